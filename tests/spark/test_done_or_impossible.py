"""Work that is done, whoever did it, or that became impossible, ends: no kind of action is planned
or tried for ever."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from reconciler.catalog.observe import observe_table
from reconciler.catalog.orphans import find_orphans
from reconciler.catalog.spec_use import unused_specs
from reconciler.errors import EXIT_BLOCKED, EXIT_USER, ReconcilerError
from reconciler.plan.actions import KINDS
from reconciler.plan.actions.audited import Discard, Publish
from reconciler.plan.actions.base import Action
from reconciler.plan.actions.build_replica import BuildReplica
from reconciler.plan.actions.delete_maintenance import (
    CompactDeletes,
    ConvertDeletes,
    RemoveDanglingDeletes,
)
from reconciler.plan.actions.expire_snapshots import ExpireSnapshots
from reconciler.plan.actions.migrate import Migrate
from reconciler.plan.actions.partition_specs import AddSpec, SwitchSpec
from reconciler.plan.actions.remove_orphans import RemoveOrphans
from reconciler.plan.actions.remove_specs import RemoveSpecs
from reconciler.plan.actions.rewrite import ApplyDeletes, BinPack, Cluster, Recluster, Restore
from reconciler.plan.actions.rewrite_manifests import RewriteManifests
from reconciler.plan.actions.roll_back import RollBack
from reconciler.plan.actions.set_block_column import SetBlockColumn
from reconciler.plan.actions.set_properties import SetProperties
from reconciler.plan.actions.set_sort_order import SetSortOrder
from reconciler.plan.actions.state import Validity
from reconciler.plan.actions.upgrade_format import UpgradeFormat
from reconciler.plan.execution import ExecutionRequest, ExecutionResult
from reconciler.plan.plan import Basis, Plan, freeze
from reconciler.plan.prediction import Prediction
from reconciler.plan.standing import head_of, judge
from reconciler.spark.session import iceberg
from reconciler.table.cut_tree import Cut, made
from reconciler.table.observation import Observation
from reconciler.table.orphans import Search
from reconciler.table.schema import SortColumn, SpecField
from tests.spark.disturbed import killed_at
from tests.spark.equality import add_equality_delete, add_position_delete, java_file, on_disk
from tests.spark.ledger import FileLedger
from tests.spark.tables import Bench
from tests.spark.test_approval import BRANCH, WAITS
from tests.spark.test_kills import DAY_MS, _manifests, _orphans, _snapshots

pytestmark = pytest.mark.spark

CODEC = "write.metadata.compression-codec"
BUCKETS = (SpecField(1, "bucket[2]"),)
NOW = dt.datetime.now(dt.UTC)
Made = tuple[str, Action]


def _table(bench: Bench, files: int = 3, columns: str = "id bigint, v string") -> str:
    name = bench.create(columns, "'format-version'='2'")
    for number in range(files):
        bench.append(name, {"id": [number, number + 3, number + 6], "v": ["x"] * 3})
    return name


def _rewrite(kind: Any, *key: str) -> Callable[[Bench], Made]:
    def made(bench: Bench) -> Made:
        name = _table(bench)
        return name, bench.action(name, kind, *key, target_bytes=1 << 20)

    return made


def _deleted(bench: Bench, files: int = 1) -> tuple[str, tuple[str, ...]]:
    """A table with so many position delete files on each of its data files."""
    name = _table(bench)
    paths = bench.paths(name)
    deletes = [add_position_delete(bench, name, [(path, n) for path in paths], "")
               for n in range(files)]  # fmt: skip
    return name, tuple(sorted(deletes))


def _applied(bench: Bench) -> Made:
    name, _ = _deleted(bench)
    return name, bench.action(name, ApplyDeletes)


def _compacted(bench: Bench) -> Made:
    name, paths = _deleted(bench, files=2)
    return name, CompactDeletes(inputs=paths)


def _converted(bench: Bench) -> Made:
    name = _table(bench)
    path = add_equality_delete(bench, name, {"id": pa.array([4], pa.int64())})
    return name, ConvertDeletes(inputs=(path,))


def _dangling(bench: Bench) -> Made:
    name = bench.create("id bigint, p int", "'format-version'='2'", "p")
    for p in (0, 1):
        bench.append(name, {"id": [1, 2], "p": pa.array([p, p], pa.int32())})
    second = next(row.file_path for row in bench.files(name) if row.partition.p == 1)
    path = add_position_delete(bench, name, [(second, 0)], "p=1")
    table = bench.table(name)
    table.newDelete().deleteFile(java_file(table, second)).commit()
    return name, RemoveDanglingDeletes(inputs=(path,), partition=(1,))


def _added(bench: Bench) -> Made:
    return _table(bench), AddSpec(1, BUCKETS, 0)


def _with_spec(bench: Bench) -> str:
    name, action = _added(bench)
    assert bench.run(bench.request(name, action, plan="p-0")).done
    return name


def _moved(bench: Bench) -> Made:
    name = _with_spec(bench)
    return name, bench.action(name, Migrate, output_spec_id=1, fields=BUCKETS, target_bytes=1 << 20)


def _switched(bench: Bench) -> Made:
    return _with_spec(bench), SwitchSpec(1, BUCKETS, 0)


def _old_specs(bench: Bench) -> Made:
    """Specs 0 and 1 without a file, 2 with all."""
    name = bench.create("id bigint, v string")
    terms = bench.spark._jvm.org.apache.iceberg.expressions.Expressions
    bench.table(name).updateSpec().addField(terms.bucket("id", 2)).commit()
    bench.table(name).updateSpec().addField(terms.truncate("v", 2)).commit()
    bench.append(name, {"id": [1], "v": ["x"]})
    return name, RemoveSpecs((0, 1))


def _removal(bench: Bench) -> Made:
    """Of the files as a search names them."""
    name, _ = _orphans(bench)
    found = _found(bench, name)
    assert len(found) == 2
    return name, RemoveOrphans(tuple(sorted(found)), 2 * DAY_MS)


def _found(bench: Bench, name: str) -> frozenset[str]:
    where = bench.config, ("jobs", name), bench.directory / "cache"
    orphans = find_orphans(*where, Search(2 * DAY_MS), int(NOW.timestamp() * 1000))
    return frozenset(file.path for file in orphans.files)


def _held(bench: Bench) -> tuple[str, Publish]:
    name = _table(bench)
    action = bench.action(name, BinPack, target_bytes=1 << 20)
    assert bench.run(bench.request(name, action, plan="p-0", audit=WAITS)).waiting == 1
    (batch,) = observe_table(bench.config, ("jobs", name), bench.directory / "cache").waiting
    return name, Publish(batch.inputs, BRANCH, batch.snapshot_id)


def _dropped(bench: Bench) -> Made:
    name, held = _held(bench)
    return name, Discard(BRANCH, (held.snapshot_id,))


def _copied(bench: Bench) -> Made:
    name = _table(bench)
    head = int(bench.table(name).currentSnapshot().snapshotId())
    return name, BuildReplica(f"{name}_copy", TREE, head, 1 << 30, 1 << 20)


def _rolled_back(bench: Bench) -> Made:
    name = _table(bench)
    head = int(bench.table(name).currentSnapshot().snapshotId())
    old = tuple(bench.paths(name))
    merged = bench.action(name, BinPack, target_bytes=1 << 20)
    assert bench.run(bench.request(name, merged, plan="p-merged")).done
    new = tuple(bench.paths(name))
    over = int(bench.table(name).currentSnapshot().snapshotId())
    return name, RollBack(new, head, over, old)


TREE = made((Cut(1, 3), None, None), [0, 0])
MADE: dict[type[Action], Callable[[Bench], Made]] = {
    BinPack: _rewrite(BinPack),
    Cluster: _rewrite(Cluster, "id"),
    Recluster: _rewrite(Recluster, "id", "v"),
    ApplyDeletes: _applied,
    CompactDeletes: _compacted,
    ConvertDeletes: _converted,
    RemoveDanglingDeletes: _dangling,
    Migrate: _moved,
    AddSpec: _added,
    SwitchSpec: _switched,
    RemoveSpecs: _old_specs,
    RewriteManifests: _manifests,
    ExpireSnapshots: _snapshots,
    RemoveOrphans: _removal,
    UpgradeFormat: lambda bench: (_table(bench, 1), UpgradeFormat(2, 3)),
    SetProperties: lambda bench: (
        _table(bench, 1), SetProperties(((CODEC, None),), ((CODEC, "gzip"),))
    ),
    SetSortOrder: lambda bench: (_table(bench, 1), SetSortOrder((SortColumn(1),))),
    SetBlockColumn: lambda bench: (_table(bench, 1), SetBlockColumn("b", (TREE,))),
    BuildReplica: _copied,
    Publish: _held,
    Discard: _dropped,
    Restore: _rewrite(Restore, "id"),
    RollBack: _rolled_back,
}  # fmt: skip


def test_a_deletion_that_applies_again_is_never_removed(bench: Bench) -> None:
    """A rewrite that keeps an old sequence number may put a file under it again."""
    name, action = _dangling(bench)
    plan, request = _planned(bench, name, action)
    bench.append(name, {"id": [1, 2], "p": pa.array([1, 1], pa.int32())})
    assert _stands(bench, name, plan)
    table, (path,) = bench.table(name), action.inputs
    (new,) = [row.file_path for row in bench.files(name) if row.partition.p == 1]
    copy = bench.spark._jvm.org.apache.iceberg.DataFiles.builder(table.spec())
    copied = Path(new.removeprefix("file:")).with_name("copy.parquet")
    copied.write_bytes(Path(new.removeprefix("file:")).read_bytes())
    copy = copy.copy(java_file(table, new)).withPath(f"file:{copied}").build()
    one = bench.spark._jvm.java.util.Collections.singleton
    head = table.currentSnapshot().snapshotId()
    rewrite = table.newRewrite().validateFromSnapshot(head)
    rewrite.rewriteFiles(one(java_file(table, new)), one(copy), 1).commit()
    assert not _stands(bench, name, plan)
    assert bench.run(request).actions[0].state is Validity.LOST
    assert [row.file_path for row in bench.sql(f"TABLE {bench.full(name)}.delete_files")] == [path]


def test_every_kind_of_action_is_made() -> None:
    assert MADE.keys() == set(KINDS.values())


def _planned(bench: Bench, name: str, action: Action) -> tuple[Plan, ExecutionRequest]:
    seen = observe_table(bench.config, ("jobs", name), bench.directory / "cache")
    plan = freeze(
        Basis(bench.config.name, ("jobs", name), seen.uuid, "d", "p", _base(seen, action)),
        created=NOW,
        time_to_live=dt.timedelta(days=7), actions=[(action, Prediction(label="x"))],
        files=seen.files, evidence={},
    )  # fmt: skip
    audit = WAITS if isinstance(action, Publish | Discard) else None
    request = bench.request(name, action, plan=plan.id, audit=audit)
    base = plan.base_snapshot_id
    return plan, replace(request, action_ids=(plan.actions[0].id,), base_snapshot_id=base)


def _base(seen: Observation, action: Action) -> int | None:
    """What is rolled back to is there before and after it."""
    return action.snapshot_id if isinstance(action, RollBack) else seen.snapshot_id


def _stands(bench: Bench, name: str, plan: Plan) -> bool:
    """Whether a planner still takes the plan for one that has something to do."""
    where = bench.config, ("jobs", name), bench.directory / "cache"
    seen = observe_table(*where)
    metadata = seen.metadata
    if isinstance(plan.actions[0].action, RemoveOrphans):
        metadata = replace(metadata, orphans=_found(bench, name))
    if isinstance(plan.actions[0].action, RemoveSpecs):
        metadata = replace(metadata, unused_specs=unused_specs(*where, metadata.old_specs))
    found = judge(plan, head_of(replace(seen, metadata=metadata)), NOW)
    pending = any(one.validity is Validity.PENDING for one in found.states.values())
    return found.fallen is None and pending


def _by_somebody(bench: Bench, name: str, action: Action, request: ExecutionRequest) -> None:
    """Another machine, with a ledger of its own, does the same under another plan; or a person by
    hand."""
    table = bench.table(name)
    if isinstance(action, Publish):
        table.manageSnapshots().fastForwardBranch("main", BRANCH).commit()
    elif isinstance(action, Discard):
        table.manageSnapshots().removeBranch(BRANCH).commit()
    elif isinstance(action, SetSortOrder):
        bench.sql(f"ALTER TABLE {bench.full(name)} WRITE LOCALLY ORDERED BY id")
    elif isinstance(action, SwitchSpec):
        terms = bench.spark._jvm.org.apache.iceberg.expressions.Expressions
        table.updateSpec().addField(terms.bucket("id", 2)).commit()
    else:
        own, bench.ledger = bench.ledger, FileLedger(bench.directory / "other.db")
        try:
            assert bench.run(replace(request, plan_id="p-other")).done
        finally:
            bench.ledger = own


def _partly(bench: Bench, name: str, action: Action, request: ExecutionRequest) -> None:
    if isinstance(action, RemoveOrphans):
        Path("/" + action.files[0].removeprefix("file:").lstrip("/")).unlink()
        return
    some: Action = action.on(action.inputs[:2])
    if isinstance(action, ExpireSnapshots):
        some = ExpireSnapshots(action.snapshots[:1], 0, 1)
    elif isinstance(action, RemoveSpecs):
        some = RemoveSpecs(action.specs[:1])
    elif isinstance(action, CompactDeletes):
        some = action.on(action.inputs[:1])
    assert bench.run(bench.request(name, some, plan="p-other")).done


def _impossible(bench: Bench, name: str, action: Action, request: ExecutionRequest) -> None:
    """Everything that the action is about is gone."""
    terms = bench.spark._jvm.org.apache.iceberg.expressions.Expressions
    table = bench.table(name)
    table.newDelete().deleteFromRowFilter(terms.alwaysTrue()).commit()
    table.newFastAppend().commit()
    if isinstance(action, Publish | Discard):
        table.manageSnapshots().removeBranch(BRANCH).commit()
    bench.expire(name)
    for path in on_disk(table.location()).rglob("o?.parquet"):
        path.unlink()


def _column_gone(bench: Bench, name: str, action: Action, request: ExecutionRequest) -> None:
    bench.table(name).updateSchema().deleteColumn("id").commit()


def _killed_before(bench: Bench, name: str, action: Action, request: ExecutionRequest) -> None:
    with killed_at(iceberg, "ancestors"):
        bench.run(request)


def _killed_after(bench: Bench, name: str, action: Action, request: ExecutionRequest) -> None:
    with killed_at(bench.ledger, "record_outcomes"):
        bench.run(request)


KILLS = (_killed_before, _killed_after)
IN_PARTS = (
    BinPack, Cluster, Recluster, Restore, ApplyDeletes, Migrate, CompactDeletes, ExpireSnapshots,
    RemoveOrphans, RemoveSpecs,
)  # fmt: skip
BY_COLUMN = (Cluster, Recluster, Restore, Migrate, AddSpec, SwitchSpec, SetSortOrder,
             SetBlockColumn, BuildReplica, Publish)  # fmt: skip


def _cases() -> Iterator[Any]:
    """Two situations of each kind, in turn; the others in the long form."""
    for number, kind in enumerate(MADE):
        situations = [_by_somebody, _impossible, *KILLS]
        situations += [_partly] * (kind in IN_PARTS) + [_column_gone] * (kind in BY_COLUMN)
        short = {situations[(number + step) % len(situations)] for step in (0, 2)}
        for situation in situations:
            marks = () if situation in short else pytest.mark.soak
            name = f"{kind.kind}-{situation.__name__[1:]}"
            yield pytest.param(kind, situation, id=name, marks=marks)


@pytest.mark.parametrize(("kind", "situation"), _cases())
def test_work_that_is_done_or_impossible_ends(
    bench: Bench, kind: type[Action], situation: Callable[..., None]
) -> None:
    name, action = MADE[kind](bench)
    plan, request = _planned(bench, name, action)
    assert _stands(bench, name, plan)
    situation(bench, name, action, request)
    ended: ExecutionResult | ReconcilerError
    try:
        ended = bench.run(request)
    except ReconcilerError as error:
        assert error.exit_code in (EXIT_USER, EXIT_BLOCKED), error
        ended = error
    assert not _stands(bench, name, plan), ended
    if situation in KILLS:
        assert isinstance(ended, ExecutionResult) and ended.done
    assert bench.leftovers(name) == [] and bench.ledger.open_intents(plan.table_uuid) == ()
