"""No request of ours, however late or often it arrives, takes from others what they changed.

Every kind of request that the code sends to a catalog is recorded as it is made, and sent to a real
REST catalog late, and twice, after each change that others can make. Either the catalog refuses it,
or every ref, row, schema, spec and property of others is as it was (`tests.foreign`).
"""

from __future__ import annotations

import functools
import itertools
import random
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from reconciler.api.catalog_config import CatalogConfig
from reconciler.catalog.claim import claim
from reconciler.engines.commit import audit, fence
from reconciler.plan.actions.audited import Publish
from reconciler.plan.actions.delete_maintenance import (
    CompactDeletes,
    ConvertDeletes,
    RemoveDanglingDeletes,
)
from reconciler.plan.actions.expire_snapshots import ExpireSnapshots
from reconciler.plan.actions.migrate import Migrate
from reconciler.plan.actions.partition_specs import AddSpec, SwitchSpec
from reconciler.plan.actions.remove_specs import RemoveSpecs
from reconciler.plan.actions.rewrite import ApplyDeletes, BinPack
from reconciler.plan.actions.rewrite_manifests import RewriteManifests
from reconciler.plan.actions.roll_back import RollBack
from reconciler.plan.actions.set_block_column import SetBlockColumn
from reconciler.plan.actions.set_properties import SetProperties
from reconciler.plan.actions.set_sort_order import SetSortOrder
from reconciler.plan.actions.upgrade_format import UpgradeFormat
from reconciler.spark.commit.table import JavaTable
from reconciler.spark.session import iceberg
from reconciler.state import state_tables
from reconciler.state.shared_backend import SharedBackend
from reconciler.state.state_tables import StateTables
from reconciler.table.schema import SortColumn, SpecField
from tests.foreign import (
    CREATED,
    DROPPED,
    MADE,
    MAIN,
    Body,
    Change,
    Copies,
    Kept,
    changes,
    refs_of,
    snapshots_of,
)
from tests.gateway import Gateway
from tests.spark.equality import add_equality_delete, data_files, delete_paths
from tests.spark.tables import Bench
from tests.spark.test_late_requests import WAITS, _discard, _held, _publish, _waiting, served

assert served  # a fixture
pytestmark = [pytest.mark.rest, pytest.mark.second_session]

Flow = Callable[[Bench, Copies], None]


def _layout(bench: Bench, copies: Copies) -> None:
    """Everything that changes the layout of a table, then its housekeeping."""
    name = bench.create("id bigint, s string", "'commit.manifest-merge.enabled'='false'")
    bench.write(name, 3, 5, "n, 'x'")
    fields = (SpecField(1, "bucket[2]"),)
    moved = bench.action(name, Migrate, output_spec_id=1, fields=fields, target_bytes=1 << 20)
    request = bench.request(
        name,
        SetProperties(old=(("a.b", None),), new=(("a.b", "1"),)),
        SetSortOrder(key=(SortColumn(1, "desc"),)),
        AddSpec(1, fields, 0),
        moved,
        SwitchSpec(1, fields, 0),
    )
    copies.record(lambda: bench.run(request))
    bench.append(name, {"id": [7], "s": ["y"]})
    old = sorted(int(one.snapshotId()) for one in iceberg.each(bench.table(name).snapshots()))
    old.remove(int(bench.table(name).currentSnapshot().snapshotId()))
    bench.table(name).manageSnapshots().createTag("kept", old[-1]).commit()
    copies.record(lambda: bench.run(bench.request(name, ExpireSnapshots(tuple(old[:1]), 0, 1))))
    bench.table(name).manageSnapshots().removeTag("kept").commit()
    bench.expire(name)
    copies.record(lambda: bench.run(bench.request(name, RemoveSpecs((0,)))))
    merged = RewriteManifests(bench.manifests(name), 1)
    copies.record(lambda: bench.run(bench.request(name, merged)))
    copies.record(lambda: bench.run(bench.request(name, SetBlockColumn("block"))))
    copies.record(lambda: bench.run(bench.request(name, UpgradeFormat(2, 3))))


def _deletes(bench: Bench, copies: Copies) -> None:
    """Deletes that are compacted, converted, applied and removed; and a fence."""
    mode = "'format-version'='2', 'write.delete.mode'='merge-on-read'"
    name = bench.create("id bigint, s string", f"{mode}, 'write.delete.granularity'='partition'")
    full = bench.full(name)
    bench.write(name, 2, 10, "file * 10 + n, 'x'")
    for key in (4, 14):
        bench.sql(f"DELETE FROM {full} WHERE id = {key}")
    compacts = bench.request(name, CompactDeletes(inputs=delete_paths(bench, name)))
    copies.record(lambda: bench.run(compacts))
    path = add_equality_delete(bench, name, {"id": pa.array([5, 15], pa.int64())})
    converts = bench.request(name, ConvertDeletes(inputs=(path,)))
    copies.record(lambda: bench.run(converts))
    path = add_equality_delete(bench, name, {"id": pa.array([6], pa.int64())})
    applies = bench.request(name, ApplyDeletes(inputs=tuple(data_files(bench, name))))
    copies.record(lambda: bench.run(applies))
    drops = bench.request(name, RemoveDanglingDeletes(inputs=(path,)))
    copies.record(lambda: bench.run(drops))
    live = JavaTable(bench.spark, full, bench.table(name))
    copies.record(lambda: fence.append_mark(live, f"p-{uuid.uuid4().hex}-1", 1))


def _vectors(bench: Bench, copies: Copies) -> None:
    name = bench.create("id bigint", "'format-version'='3', 'write.delete.mode'='merge-on-read'")
    bench.write(name, 2, 10, "file * 10 + n")
    path = add_equality_delete(bench, name, {"id": pa.array([5, 15], pa.int64())})
    copies.record(lambda: bench.run(bench.request(name, ConvertDeletes(inputs=(path,)))))


def _packed(bench: Bench, copies: Copies) -> None:
    name = bench.create("id bigint", "'format-version'='1'")
    bench.write(name, 2, 10, "file * 10 + n")
    request = bench.request(name, bench.action(name, BinPack, target_bytes=1 << 20))
    copies.record(lambda: bench.run(request))


def _rolled_back(bench: Bench, copies: Copies) -> None:
    """What is rolled back stays in the metadata, and so do refs that others make on it."""
    name = bench.create("id bigint", "'format-version'='2'")
    bench.write(name, 2, 10, "file * 10 + n")
    old, head = (
        tuple(data_files(bench, name)),
        int(bench.table(name).currentSnapshot().snapshotId()),
    )
    merged = bench.action(name, BinPack, target_bytes=1 << 20)
    bench.run(bench.request(name, merged))
    over = int(bench.table(name).currentSnapshot().snapshotId())
    request = bench.request(name, RollBack(tuple(data_files(bench, name)), head, over, old))
    copies.record(lambda: bench.run(replace(request, base_snapshot_id=head)))


def _approved(bench: Bench, copies: Copies) -> None:
    name, request = _held(bench)
    copies.record(lambda: bench.run(request))
    (one,) = _waiting(bench, name)
    action = Publish(one.inputs, one.branch, one.snapshot_id)
    publishes = bench.request(name, action, plan="p-2", audit=WAITS)
    copies.record(lambda: bench.run(publishes))


def _discarded(bench: Bench, copies: Copies) -> None:
    _, request = _discard(bench)
    copies.record(lambda: bench.run(request))


def _published_by_hand(bench: Bench, copies: Copies) -> None:
    name, _ = _publish(bench)
    table = bench.table(name)
    table.manageSnapshots().fastForwardBranch(MAIN, WAITS.branch).commit()
    live = JavaTable(bench.spark, bench.full(name), bench.table(name))
    copies.record(lambda: audit.drop_published(live))


FLOWS: dict[str, tuple[Flow, set[str]]] = {
    "layout": (
        _layout,
        {"set-properties", "add-sort-order", "add-spec", "set-default-spec", "add-snapshot",
         "remove-snapshots", "remove-partition-specs", "upgrade-format-version"},
    ),
    "deletes": (_deletes, {"add-snapshot"}),
    "vectors": (_vectors, {"add-snapshot"}),
    "packed": (_packed, {"add-snapshot"}),
    "approved": (_approved, {"add-snapshot", "set-snapshot-ref", "remove-snapshot-ref"}),
    "discarded": (_discarded, {"remove-snapshot-ref", "remove-snapshots"}),
    "rolled back": (_rolled_back, {"set-snapshot-ref"}),
    "published by hand": (_published_by_hand, {"remove-snapshot-ref"}),
}  # fmt: skip
"""The work, and the updates that its requests must contain."""


def _claims(gateway: Gateway, copies: Copies) -> None:
    config = CatalogConfig("rec", "rest", {"type": "rest", "uri": gateway.uri}, source="test")
    for version in ("1", "2", "3"):
        table = _created(copies, f"claimed_{uuid.uuid4().hex[:8]}", version)
        copies.record(functools.partial(claim, config, ("claims", table), "us"))


def _created(copies: Copies, name: str, version: str) -> str:
    copies.catalog.create_namespace_if_not_exists("claims")
    made = copies.catalog.create_table(
        ("claims", name), pa.schema([("id", pa.int64())]), properties={"format-version": version}
    )
    if version != "3":
        made.append(pa.table({"id": pa.array([1, 2], pa.int64())}))
    return name


def _stores(gateway: Gateway, copies: Copies) -> None:
    """The shared state: rows are added, merged, removed, columns added, snapshots expired."""
    config = CatalogConfig("rec", "rest", {"type": "rest", "uri": gateway.uri}, source="test")
    tables = StateTables(SharedBackend(config, (f"state_{uuid.uuid4().hex[:8]}",)))
    columns = (("shard", "int"), ("key", "string"), ("at", "long"))

    def add(number: int) -> None:
        row = {"shard": 1, "key": str(number), "at": number}
        tables.append("notes", columns[: 2 + (number > 0)], [row])

    for number in range(3):
        copies.record(functools.partial(add, number))
    copies.record(lambda: tables.remove("notes", "at", 1))


STATE_KINDS = {"add-snapshot", "add-schema", "remove-snapshots"}


@pytest.fixture
def copies(gateway: Gateway, tmp_path: Path) -> Copies:
    return Copies(gateway, tmp_path / "copies")


@pytest.mark.spark
@pytest.mark.parametrize("flow", FLOWS)
def test_no_request_takes_anything_from_others(served: Bench, copies: Copies, flow: str) -> None:
    work, kinds = FLOWS[flow]
    work(served, copies)
    _assert_harmless(copies, kinds)


def test_no_claim_takes_anything_from_others(gateway: Gateway, copies: Copies) -> None:
    _claims(gateway, copies)
    _assert_harmless(copies, {"set-properties", "add-snapshot"})


def test_no_request_of_the_shared_state_takes_anything_from_others(
    gateway: Gateway, copies: Copies, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_tables, "MAX_FILES", 1)
    monkeypatch.setattr(state_tables, "KEEP_SNAPSHOTS", -state_tables.KEEP_SNAPSHOTS)
    _stores(gateway, copies)
    _assert_harmless(copies, STATE_KINDS, adds=True)


SOAKED = 60
"""Random sequences of changes for each request of the long form."""


@pytest.mark.spark
@pytest.mark.soak
@pytest.mark.parametrize("flow", FLOWS)
def test_no_request_takes_anything_after_many_changes(
    served: Bench, copies: Copies, flow: str
) -> None:
    """Each ref on each snapshot, and sequences of two to five changes."""
    FLOWS[flow][0](served, copies)
    _assert_harmless(copies, FLOWS[flow][1], of=_sequences)


def _sequences(copies: Copies, one: Kept) -> Iterator[Sequence[Change]]:
    every = list(changes(copies, one, every=True))
    yield from ([change] for change in every)
    dice = random.Random(len(copies.kept))
    for _ in range(SOAKED):
        yield dice.sample(every, dice.randint(2, 5))


FEW = 6
"""Changes after which a request is sent if one with the same requirements and updates was sent
after all of them."""


def _singly(copies: Copies, one: Kept) -> Iterator[Sequence[Change]]:
    first = next(other for other in copies.kept if other.signature == one.signature)
    found = changes(copies, one)
    yield from ([change] for change in (found if first is one else itertools.islice(found, FEW)))


def _assert_harmless(
    copies: Copies,
    kinds: set[str],
    *,
    adds: bool = False,
    of: Callable[[Copies, Kept], Iterator[Sequence[Change]]] = _singly,
) -> None:
    """Send every kept request after every sequence of changes.

    kinds: updates that the requests contain. adds: whether they may add or remove rows.
    """
    copies.restore()
    sent = {update["action"] for one in copies.kept for update in one.updates}
    assert kinds <= sent, kinds - sent
    accepted, wrong = 0, []
    for one in copies.kept:
        one.adds = _added(copies, one) if adds else 0
        for sequence in of(copies, one):
            found = list(_sent(copies, one, sequence))
            accepted += sum(1 for answer in found if answer is None)
            after = ", ".join(name for name, _ in sequence)
            wrong += [f"{_named(one)} after {after}: {why}" for why in found if why]
    assert not wrong, "\n".join(wrong)
    assert accepted >= len(copies.kept)  # each is accepted where nothing was changed


def _added(copies: Copies, one: Kept) -> int:
    """Return by how many rows the request changes main of an unchanged table."""
    path, before = copies.make(one.request)
    status, after = copies.call("POST", path, one.body)
    assert status == 200, after
    copies.drop(path)
    return copies.rows(after).total() - copies.rows(before).total()


def _named(one: Kept) -> str:
    return "+".join(dict.fromkeys(update["action"] for update in one.updates))


def _sent(copies: Copies, one: Kept, sequence: Sequence[Change]) -> Iterator[str | None]:
    """Send the request twice on a new copy after the changes. Yield what is wrong each time, None
    for nothing after it was accepted, "" where it was refused."""
    path, before = copies.make(one.request)
    replaced = False
    for change in sequence:  # the catalog may refuse one that no longer fits
        before = copies.change(path, before, change) or before
        replaced = replaced or change[0] in (DROPPED, CREATED)
        if change[0] == DROPPED:
            break
    body = one.body
    if "identifier" in body:
        identifier = {**body["identifier"], "name": path.rpartition("/")[2]}
        body = {**body, "identifier": identifier}
    for _ in range(2):
        status, after = copies.call("POST", path, body)
        if status != 200:
            yield ""
        elif replaced:
            yield "another table was changed"
        else:
            yield "; ".join(_taken(copies, one, before, after)) or None
            before = after
    copies.drop(path)


def _taken(copies: Copies, one: Kept, before: Body, after: Body) -> Iterator[str]:
    """Yield what an accepted request took from others."""
    was, now = before["metadata"], after["metadata"]
    yield from _refs_taken(one, was, now)
    gone = set(snapshots_of(was)) - set(snapshots_of(now))
    if gone - one.removed:
        yield f"snapshots {gone - one.removed} are gone"
    yield from _metadata_taken(one, was, now)
    if refs_of(was).get(MAIN) == refs_of(now).get(MAIN):
        return
    had, has = copies.rows(before), copies.rows(after)
    if (has.total() - had.total(), has == had) != (one.adds, one.adds == 0):
        yield f"main had {had.total()} rows, and has {has.total()}"


def _refs_taken(one: Kept, was: Body, now: Body) -> Iterator[str]:
    planned, left, own = refs_of(one.made_for), refs_of(now), snapshots_of(now)
    sent = {update["snapshot"]["snapshot-id"] for update in one.of("add-snapshot")}
    for name, snapshot in refs_of(was).items():
        if name in MADE and snapshot in one.removed:
            continue  # the protocol has no requirement that a ref of any name does not exist
        if name == WAITS.branch and snapshot == planned.get(name):
            continue  # our own, as it was
        if name == MAIN and snapshot == planned.get(MAIN) and left.get(MAIN) in _rolled_to(one):
            continue  # main was as the rollback requires it; rows are compared as always
        if name not in left:
            yield f"{name} was removed"
        elif left[name] != snapshot:
            head = left[name]
            while head in sent and head != snapshot:
                head = own[head].get("parent-snapshot-id")
            if head != snapshot:
                yield f"{name} was moved"
        if name in left and left[name] not in own:
            yield f"the snapshot of {name} is gone"
    for name in set(left) - set(refs_of(was)) - {WAITS.branch, MAIN}:
        yield f"{name} appeared"


def _rolled_to(one: Kept) -> set[int]:
    """The snapshots that the request sets main to and does not add."""
    added = {update["snapshot"]["snapshot-id"] for update in one.of("add-snapshot")}
    refs = [update for update in one.of("set-snapshot-ref") if update["ref-name"] == MAIN]
    return {update["snapshot-id"] for update in refs} - added


NAMED = {
    "set-properties": "properties",
    "add-sort-order": "sort-orders",
    "set-default-sort-order": "default-sort-order-id",
    "add-spec": "partition-specs",
    "set-default-spec": "default-spec-id",
    "remove-partition-specs": "partition-specs",
    "upgrade-format-version": "format-version",
    "add-schema": "schemas",
    "set-current-schema": "current-schema-id",
}
"""What each update may change in the metadata."""


def _metadata_taken(one: Kept, was: Body, now: Body) -> Iterator[str]:
    may = {NAMED[update["action"]] for update in one.updates if update["action"] in NAMED}
    for key in {*NAMED.values(), "table-uuid", "location"} - may:
        if was.get(key) != now.get(key):
            yield f"{key} was changed from {was.get(key)} to {now.get(key)}"
    set_ = {name for update in one.of("set-properties") for name in update["updates"]}
    for name, value in was.get("properties", {}).items():
        if name not in set_ and now.get("properties", {}).get(name) != value:
            yield f"property {name} was changed"
    default = was["default-spec-id"]
    if default not in {spec["spec-id"] for spec in now["partition-specs"]}:
        yield "the default spec was removed"
