"""Requests of housekeeping, of changed metadata and of publications that arrive twice, without an
answer, or only after their sender died and another run settled its work. Each is done once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from reconciler.catalog.observe import observe_table
from reconciler.engines.commit import audit, history, metadata
from reconciler.errors import StalePlanError
from reconciler.loop.audits import audited, waits_under
from reconciler.plan.actions.audited import Discard, Publish
from reconciler.plan.actions.delete_maintenance import RemoveDanglingDeletes
from reconciler.plan.actions.expire_snapshots import ExpireSnapshots
from reconciler.plan.actions.migrate import Migrate
from reconciler.plan.actions.partition_specs import AddSpec
from reconciler.plan.actions.rewrite import ApplyDeletes, BinPack
from reconciler.plan.actions.rewrite_manifests import RewriteManifests
from reconciler.plan.actions.state import Validity
from reconciler.plan.actions.upgrade_format import UpgradeFormat
from reconciler.plan.execution import COMMITTED, FAILED, WAITING, Audit, ExecutionRequest
from reconciler.spark.commit.metadata_changes import Expiry
from reconciler.spark.session import iceberg, translate
from reconciler.table import summary_keys
from reconciler.table.schema import SpecField
from tests.gateway import LATE, TWICE, Gateway
from tests.loop.test_step import policy
from tests.spark.disturbed import expires_between, killed_at
from tests.spark.equality import add_equality_delete, data_files, delete_paths
from tests.spark.tables import Bench, intact

pytestmark = [pytest.mark.spark, pytest.mark.rest, pytest.mark.second_session]

OURS = "layout.attempt-id"
WAITS = Audit("candidate", waits="policy")

Made = tuple[str, ExecutionRequest]
"""A table and the work on it."""


def _rewritten(bench: Bench) -> Made:
    name = bench.create("id bigint", "'commit.manifest-merge.enabled'='false'")
    for number in range(3):
        bench.append(name, {"id": [number]})
    action = RewriteManifests(bench.manifests(name), 1)
    return name, bench.request(name, action)


def _dangling(bench: Bench) -> Made:
    """Two equality deletes, of which a rewrite has applied the first; both in one manifest."""
    mode = "'format-version'='2', 'commit.manifest.min-count-to-merge'='2'"
    name = bench.create("id bigint, p int", mode, "p")
    full = bench.full(name)
    for p in (0, 1):
        bench.sql(f"INSERT INTO {full} SELECT /*+ COALESCE(1) */ id, {p} FROM range(10)")
    first, second = (next(x for x in data_files(bench, name) if f"p={p}" in x) for p in (0, 1))
    add_equality_delete(bench, name, {"id": pa.array([5], pa.int64())}, like=first)
    path = add_equality_delete(bench, name, {"id": pa.array([4], pa.int64())}, like=second)
    applied = bench.action(name, ApplyDeletes, inputs=(second,), partition=(1,))
    assert bench.run(bench.request(name, applied, plan="p-0")).done
    assert path in delete_paths(bench, name)
    return name, bench.request(name, RemoveDanglingDeletes(inputs=(path,), partition=(1,)))


def _expire(bench: Bench) -> Made:
    name = bench.create("id bigint")
    for number in range(2):
        bench.append(name, {"id": [number]})
    bench.sql(f"INSERT OVERWRITE {bench.full(name)} SELECT 7")
    old = [int(one.snapshotId()) for one in iceberg.each(bench.table(name).snapshots())][:-1]
    return name, bench.request(name, ExpireSnapshots(tuple(sorted(old)), 0, 1))


def _upgrade(bench: Bench) -> Made:
    name = bench.create("id bigint", "'format-version'='2'")
    bench.append(name, {"id": [1]})
    return name, bench.request(name, UpgradeFormat(2, 3))


def _migrated(bench: Bench) -> Made:
    name = bench.create("id bigint")
    bench.write(name, 3, 5, "n")
    fields = (SpecField(1, "bucket[2]"),)
    moved = bench.action(name, Migrate, output_spec_id=1, fields=fields, target_bytes=1 << 20)
    return name, bench.request(name, AddSpec(1, fields, 0), moved)


def _held(bench: Bench, properties: str = "") -> Made:
    name = bench.create("id bigint", properties)
    bench.write(name, 3, 5, "n")
    return name, bench.request(name, bench.action(name, BinPack, target_bytes=1 << 20), audit=WAITS)


def _waiting(bench: Bench, name: str) -> Sequence[Any]:
    return observe_table(bench.config, ("jobs", name), Path(bench.directory / "cache")).waiting


def _publish(bench: Bench) -> Made:
    name, request = _held(bench)
    assert bench.run(request).waiting == 1
    (one,) = _waiting(bench, name)
    action = Publish(one.inputs, one.branch, one.snapshot_id)
    return name, bench.request(name, action, plan="p-2", audit=WAITS)


def _discard(bench: Bench) -> Made:
    name, request = _held(bench)
    assert bench.run(request).waiting == 1
    snapshots = tuple(one.snapshot_id for one in _waiting(bench, name))
    return name, bench.request(name, Discard(WAITS.branch, snapshots), plan="p-2", audit=WAITS)


DROPS = "remove-snapshot-ref"
CASES: dict[str, tuple[Callable[[Bench], Made], str, Any, str]] = {
    "migrate": (_migrated, OURS, history, "search"),
    "manifests": (_rewritten, OURS, history, "search"),
    "expire": (_expire, "remove-snapshots", metadata, "_is_final"),
    "upgrade": (_upgrade, "upgrade-format-version", metadata, "_is_final"),
    "hold": (_held, "layout.audit.waits", translate, "lost"),
    "keep": (_held, "min-snapshots-to-keep", translate, "lost"),
    "publish": (_publish, OURS, history, "search"),
    "drop": (_publish, DROPS, translate, "lost"),
    "discard": (_discard, DROPS, translate, "lost"),
}
"""The work, what only the request in question contains, and the step after it."""
LATE_IN_SUITE = ("migrate", "expire", "keep", "publish", "discard")
TWICE_IN_SUITE = ("manifests", "upgrade", "hold", "drop")
"""Each kind of work has one of the faults in the suite, and both in `make soak`. The code behind a
fault is common to what has the same step after it, and each step is in both lists."""


def _cases(in_suite: Sequence[str]) -> Sequence[Any]:
    long = [case for case in CASES if case not in in_suite]
    return [*in_suite, *(pytest.param(case, marks=pytest.mark.soak) for case in long)]


def _assert_done_once(bench: Bench, name: str, case: str, request: ExecutionRequest) -> None:
    table = bench.table(name)
    refs, held = {str(ref) for ref in table.refs()}, case in ("hold", "keep")
    assert refs == ({"main", WAITS.branch} if held else {"main"})
    assert len(_waiting(bench, name)) == held
    ours = [one for one in iceberg.ancestors(table) if summary_keys.ATTEMPT_ID in one.summary]
    assert len(ours) == (case in ("migrate", "manifests", "publish", "drop"))
    assert int(table.operations().current().formatVersion()) == (3 if case == "upgrade" else 2)
    assert table.snapshots().size() == 1 or case != "expire"
    states = [one.state for one in bench.ledger.outcomes() if one.state in (COMMITTED, WAITING)]
    waited = request.audit is not None
    assert states == [WAITING] * waited + [COMMITTED] * (len(request.actions) - held)
    assert bench.leftovers(name) == []


@pytest.fixture
def served(gateway_bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """Without the long waits for a request that may still arrive."""
    monkeypatch.setattr(history, "REQUEST_TIMEOUT_SECONDS", 0.1)
    monkeypatch.setattr(metadata, "PAUSE_SECONDS", 0.1)
    return gateway_bench


@pytest.mark.parametrize("case", _cases(TWICE_IN_SUITE))
def test_what_arrives_and_is_answered_wrongly_is_done_once(
    served: Bench, gateway: Gateway, case: str
) -> None:
    made, matching, _, _ = CASES[case]
    name, request = made(served)
    rows = served.rows(name)
    gateway.fails(TWICE, matching)
    served.run(request)
    assert gateway.faults == 1
    _assert_done_once(served, name, case, request)
    intact(served, name, rows)


def _dies(bench: Bench, gateway: Gateway, case: str) -> Made:
    """The work, whose request is still under way when its process ends."""
    made, matching, place, step = CASES[case]
    name, request = made(bench)
    gateway.fails(LATE, matching)
    with killed_at(place, step):
        bench.run(request)
    assert gateway.faults == 1
    return name, request


@pytest.mark.parametrize("case", _cases(LATE_IN_SUITE))
def test_what_arrives_after_another_run_did_it_changes_nothing(
    served: Bench, gateway: Gateway, case: str
) -> None:
    name, request = _dies(served, gateway, case)
    rows = served.rows(name)
    served.run(request)
    gateway.release()
    _assert_done_once(served, name, case, request)
    intact(served, name, rows)


def test_a_late_expiry_leaves_the_snapshot_that_main_was_rolled_back_to(
    served: Bench, gateway: Gateway
) -> None:
    """A REST catalog drops every branch whose snapshot is removed: here it would be main."""
    name, _ = _dies(served, gateway, "expire")
    table = served.table(name)
    first = next(iceberg.each(table.snapshots()))
    table.manageSnapshots().rollbackTo(int(first.snapshotId())).commit()
    rows = served.rows(name)
    gateway.release()
    assert served.rows(name) == rows and served.table(name).snapshots().size() == 3
    intact(served, name, rows)


def test_an_expiry_leaves_a_tag_that_was_moved_to_its_snapshots(
    served: Bench, gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = Expiry.changed

    def tagged(self: Any, base: Any, action: ExpireSnapshots) -> Any:
        wanted = original(self, base, action)
        old, sql = action.snapshots[0], f"ALTER TABLE {served.full(name)} REPLACE TAG kept"
        served.sql(f"{sql} AS OF VERSION {old}")
        return wanted

    name, request = _expire(served)
    served.sql(f"ALTER TABLE {served.full(name)} CREATE TAG kept")
    monkeypatch.setattr(Expiry, "changed", tagged)
    result = served.run(request)
    assert result.actions[0].state is Validity.LOST
    assert served.sql(f"SELECT * FROM {served.full(name)} VERSION AS OF 'kept'") != []
    intact(served, name)


def test_a_late_upgrade_stays_away_from_what_was_compacted_since(
    served: Bench, gateway: Gateway
) -> None:
    name, request = _dies(served, gateway, "upgrade")
    table = served.table(name)
    table.rewriteManifests().commit()
    gateway.release()
    assert int(served.table(name).operations().current().formatVersion()) == 2
    assert served.run(request).actions[0].state is Validity.LOST


def test_a_late_drop_leaves_what_was_put_on_the_branch_since(
    served: Bench, gateway: Gateway
) -> None:
    name, request = _dies(served, gateway, "discard")
    assert served.run(request).done
    again = served.action(name, BinPack, target_bytes=1 << 20)
    assert served.run(served.request(name, again, plan="p-3", audit=WAITS)).waiting == 1
    gateway.release()
    assert [one.plan_id for one in _waiting(served, name)] == ["p-3"]
    intact(served, name)


def test_a_batch_that_reaches_its_branch_after_its_files_were_removed_is_dropped(
    served: Bench, gateway: Gateway
) -> None:
    """Format 1 has no sequence numbers, by which a catalog refuses a snapshot that comes late."""
    name, request = _held(served, "'format-version'='1'")
    gateway.fails(LATE, CASES["hold"][1])
    with killed_at(translate, "lost"):
        served.run(request)
    again = served.action(name, BinPack, target_bytes=1 << 20)
    assert served.run(served.request(name, again, plan="p-2")).done
    rows = served.rows(name)
    gateway.release()
    seen = observe_table(served.config, ("jobs", name), Path(served.directory / "cache"))
    rules = policy(name, safety={"branch": WAITS.branch, "approval": "Required"})
    held = replace(seen, waiting=(replace(seen.waiting[0], policy=waits_under(rules)),))
    found = audited(rules, held, seen.waiting[0].at_ms)
    assert found is not None and seen.waiting[0].missing
    (item,) = found.actions
    assert item.action == Discard(WAITS.branch, (seen.waiting[0].snapshot_id,))
    assert served.run(served.request(name, item.action, plan="p-3", audit=WAITS)).done
    assert {str(ref) for ref in served.table(name).refs()} == {"main"}
    assert served.leftovers(name) == []
    intact(served, name, rows)


def test_an_approved_batch_whose_request_was_lost_is_published_by_the_next_run(
    served: Bench, gateway: Gateway
) -> None:
    """The person's approval holds: the batch is not written again."""
    name, request = _publish(served)
    (waiting,), rows = _waiting(served, name), served.rows(name)
    gateway.fails(LATE, OURS)
    result = served.run(request)
    gateway.release()
    assert (result.done, result.commits, result.actions[0].state) == (False, 0, Validity.PENDING)
    assert [one.snapshot_id for one in _waiting(served, name)] == [waiting.snapshot_id]
    assert served.run(request).done
    _assert_done_once(served, name, "publish", request)
    intact(served, name, rows)


@pytest.mark.parametrize("made", [_rewritten, _dangling])
def test_an_expiry_that_comes_between_hides_no_commit_without_content_files(
    served: Bench, gateway: Gateway, made: Callable[[Bench], Made]
) -> None:
    """The snapshot of the batch is gone when its second copy is refused, and it added no file that
    could be searched for: its manifests are still those of the head."""
    name, request = made(served)
    rows = served.rows(name)

    def appends() -> None:
        served.append(
            name, {column: [1] for column in served.spark.table(served.full(name)).columns}
        )

    expires_between(served, gateway, request, appends)
    known = {int(one.snapshotId()) for one in iceberg.each(served.table(name).snapshots())}
    manifests = served.sql(f"SELECT added_snapshot_id FROM {served.full(name)}.manifests")
    assert {row.added_snapshot_id for row in manifests} - known
    assert sum((served.rows(name) - rows).values()) == 1


def test_a_snapshot_of_a_branch_that_somebody_tagged_is_not_taken_for_the_commit(
    served: Bench,
) -> None:
    """The process dies when the batch is on its branch. The tag keeps the manifests, and the
    snapshot that the batch was made from expires, so that they are searched."""
    name, request = _held(served)
    rows = served.rows(name)
    with killed_at(audit, "_keep"):
        served.run(request)
    full, branch = served.full(name), WAITS.branch
    served.sql(f"ALTER TABLE {full} CREATE TAG kept AS OF VERSION {_head_of(served, name, branch)}")
    served.sql(f"ALTER TABLE {full} DROP BRANCH {branch}")
    served.append(name, {"id": [1_000]})
    served.expire(name)
    with pytest.raises(StalePlanError):
        served.run(request)
    assert [one.state for one in served.ledger.outcomes() if one.batch] == [FAILED]
    assert sum((served.rows(name) - rows).values()) == 1
    assert served.sql(f"SELECT * FROM {full} VERSION AS OF 'kept'") != []


def _head_of(bench: Bench, name: str, ref: str) -> int:
    return int(bench.table(name).refs().get(ref).snapshotId())
