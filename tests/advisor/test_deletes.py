"""What is decided about deletes: which data files drop them, which delete files are replaced."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from reconciler.advisor.advice import Advice, AdviceInput, DeletePolicy, Objectives, Settings
from reconciler.advisor.decide import decide
from reconciler.advisor.situation import situation_of
from reconciler.plan import reasons
from reconciler.queries.rewrite_cost import PRIOR_THROUGHPUT
from reconciler.table.deletes import NO_FILE, DeleteTable, Scope
from reconciler.table.filetable import FileTable
from reconciler.table.metadata import TableMetadata
from reconciler.table.operations import Encoding, Kind, Operations, RowOperation
from reconciler.table.refusals import PHYSICAL_SCHEMA, Refusal
from reconciler.table.schema import Field
from tests.advisor.worlds import DAY, SETTINGS, arrived, range_workload, workload

AUTO = replace(SETTINGS, deletes=DeletePolicy(mode="Keep", compaction="Auto"))
FILES, ROWS = 50, 2_000


@dataclass(frozen=True)
class Delete:
    """One delete file of the world. file: the data file that it names, None for all of them."""

    scope: Scope
    records: int
    file: int | None = None
    snapshot: int = 1
    dangling: bool = False
    path: str = ""
    bytes: int = 2_000


def world(deletes: Sequence[Delete]) -> tuple[FileTable, DeleteTable]:
    """A table in one partition with these deletes, all newer than its files."""
    files = arrived(np.random.default_rng(0)).file_table()
    assert len(files) == FILES and set(files.records.tolist()) == {ROWS}
    newest = int(files.sequence.max()) + 1
    table = DeleteTable(
        path=np.array([d.path or f"d{n}" for n, d in enumerate(deletes)], dtype=object),
        offset=np.array([n if d.scope is Scope.VECTOR else -1 for n, d in enumerate(deletes)]),
        scope=np.array([int(d.scope) for d in deletes]),
        spec_id=np.zeros(len(deletes), dtype=np.int64),
        sequence=np.array([0 if d.dangling else newest for d in deletes]),
        records=np.array([d.records for d in deletes]),
        bytes=np.array([d.bytes for d in deletes]),
        snapshot_id=np.array([d.snapshot for d in deletes]),
        partition=((),) * len(deletes),
        data_row=np.array([NO_FILE if d.file is None else d.file for d in deletes]),
        group=np.array([0 if d.file is None else NO_FILE for d in deletes]),
        equality_ids=tuple((1,) if d.scope >= Scope.EQUALITY else () for d in deletes),
        dangling=np.array([d.dangling for d in deletes]),
    )
    load: dict[str, Any] = {
        name: np.zeros(FILES, dtype=np.int64)
        for name in ("position_deleted", "delete_files", "delete_bytes", "equality_deletes")
    }
    for row, one in enumerate(deletes):
        scope = table.reaches(row, files) if not one.dangling else []
        load["delete_files"][scope] += 1
        load["delete_bytes"][scope] += one.bytes
        if one.scope >= Scope.EQUALITY:
            load["equality_deletes"][scope] += 1
        elif len(scope):
            load["position_deleted"][scope] += one.records // len(scope)
    return replace(files, **load), table


def queries(weight: float) -> Any:
    return workload(range_workload(np.random.default_rng(1), 1, 40, 100, 100_000, weight=weight))


def advice(
    deletes: Sequence[Delete],
    settings: Settings = AUTO,
    weight: float = 0.0,
    operations: Operations | None = None,
) -> Advice:
    files, table = world(deletes)
    asked = queries(weight) if weight else workload()
    return decide(
        AdviceInput(files, asked, settings, deletes=table, operations=operations or Operations())
    )


def kinds(found: Advice) -> list[str]:
    return [item.action.kind for item in found.actions]


def reason_of(found: Advice) -> list[str]:
    return [item.reason for item in found.rejected]


def named(share: float, files: Sequence[int] = range(FILES)) -> list[Delete]:
    """One vector for each of the files that deletes this share of its rows."""
    return [Delete(Scope.VECTOR, int(share * ROWS), file, path="v.puffin") for file in files]


@pytest.mark.parametrize(("share", "rewritten"), [(0.1, 0), (0.29, 0), (0.3, 8), (0.9, 8)])
def test_without_queries_a_share_of_deleted_rows_decides(share: float, rewritten: int) -> None:
    found = advice(named(share, range(8)))
    inputs = [path for item in found.actions for path in item.action.inputs]
    assert len(inputs) == rewritten
    assert set(kinds(found)) == ({"ApplyDeletes"} if rewritten else set())
    assert (reasons.FEW_DELETED in reason_of(found)) is not bool(rewritten)


def test_reads_decide_where_they_are_known() -> None:
    rare, often = (advice(named(0.2), weight=weight) for weight in (1e-4, 500.0))
    assert "ApplyDeletes" not in kinds(rare)
    assert reasons.BELOW_COST in reason_of(rare)
    assert "ApplyDeletes" in kinds(often)
    (action, *_) = [i for i in often.actions if i.action.kind == "ApplyDeletes"]
    assert action.predicted.saving_low > action.predicted.cost > 0


@pytest.mark.parametrize("limit", [0, 5, 12, 20])
def test_an_objective_takes_the_densest_files_until_it_holds(limit: int) -> None:
    """Deleted rows: 0 to 24.5 % of a file, 12.25 % of all."""
    deletes = [d for n in range(FILES) for d in named(n / 200, [n])]
    wanted = replace(AUTO, objectives=Objectives(max_deleted_rows_percent=float(limit)))
    found = advice(deletes, wanted)
    (judged,) = found.objectives
    assert judged.state == "met"
    assert judged.after <= limit
    gone = sorted(
        int(p.split("-")[-1].split(".")[0]) // ROWS for i in found.actions for p in i.action.inputs
    )
    if limit == 20:
        assert not gone
    else:  # not one file more than needed
        assert gone == list(range(FILES - len(gone), FILES))
        left = [n / 200 * ROWS for n in range(FILES - len(gone) + 1)]
        stored = FILES * ROWS - sum(n / 200 * ROWS for n in range(len(left), FILES))
        assert 100 * sum(left) / stored > limit
        assert {i.predicted.evidence for i in found.actions} == {"objective"}


@pytest.mark.parametrize("compaction", ["Minor", "Disabled"])
def test_a_policy_without_majors_says_why_the_objective_is_missed(compaction: str) -> None:
    wanted = replace(
        AUTO,
        objectives=Objectives(max_deleted_rows_percent=5.0),
        deletes=DeletePolicy(compaction=compaction),
    )
    found = advice(named(0.5), wanted)
    assert "ApplyDeletes" not in kinds(found)
    assert reasons.COMPACTION_OFF in reason_of(found)
    assert found.objectives[0].state == "unreachable"
    assert compaction in found.objectives[0].message


def test_position_deletes_of_a_partition_are_compacted_when_many_apply_to_a_file() -> None:
    few, many = (
        advice([Delete(Scope.PARTITION, 500, snapshot=n) for n in range(count)]) for count in (4, 5)
    )
    assert kinds(few) == [] and reasons.FEW_DELETE_FILES in reason_of(few)
    assert kinds(many) == ["CompactDeletes"]
    (item,) = many.actions
    assert item.predicted.files_in == 5 and item.predicted.rows == 2_500
    assert many.files_after.mid == FILES
    """Delete files are no data files."""


def test_one_delete_file_per_data_file_is_compact_on_format_2_and_becomes_a_vector_on_3() -> None:
    files = [Delete(Scope.FILE, 20, n) for n in range(FILES)] * 5
    single, doubled = files[:FILES], files
    assert kinds(advice(single)) == []
    assert kinds(advice(doubled)) == ["CompactDeletes"]
    new = replace(AUTO, metadata=TableMetadata(format_version=3), min_input_files=1)
    assert kinds(advice(single, new)) == ["CompactDeletes"]


def test_a_rewrite_takes_its_files_own_deletes_with_it() -> None:
    """They are not named by a second action of the plan."""
    deletes = [Delete(Scope.FILE, 200, n, path=f"{n}-{i}") for n in range(8) for i in range(5)]
    found = advice(deletes, replace(AUTO, min_input_files=3))
    assert kinds(found) == ["ApplyDeletes"]


def test_data_files_are_rewritten_before_delete_files_are_replaced() -> None:
    """Dangling deletes go last: a rewrite may remove them with those of its inputs."""
    dense = [Delete(Scope.FILE, 1_000, n) for n in range(3)]
    crowded = [Delete(Scope.FILE, 20, n) for n in range(3, 9)] * 5
    gone = [Delete(Scope.FILE, 9, 3, dangling=True)]
    found = advice([*gone, *crowded, *dense], AUTO)
    assert kinds(found) == ["ApplyDeletes", "CompactDeletes", "RemoveDanglingDeletes"]
    rewritten, compacted, _ = (item.action.inputs for item in found.actions)
    assert len(rewritten) == 3 and len(compacted) == 30


def test_equality_deletes_are_converted_for_an_objective_that_is_unknown_before() -> None:
    one = [Delete(Scope.EQUALITY, 500)]
    assert kinds(advice(one)) == []
    wanted = replace(AUTO, objectives=Objectives(max_deleted_rows_percent=5.0))
    found = advice(one, wanted)
    assert kinds(found) == ["ConvertDeletes"]
    assert found.actions[0].predicted.evidence == "objective"
    assert found.objectives[0].state == "unknown"


def test_equality_deletes_are_applied_for_an_objective_where_they_may_not_be_converted() -> None:
    wanted = replace(
        AUTO, objectives=Objectives(max_deleted_rows_percent=5.0),
        deletes=DeletePolicy(compaction="Major"),
    )  # fmt: skip
    found = advice([Delete(Scope.EQUALITY, 500)], wanted)
    assert set(kinds(found)) == {"ApplyDeletes"}
    assert len({path for item in found.actions for path in item.action.inputs}) == FILES
    assert found.objectives[0].state == "met", "no file is left under them"


def test_small_files_that_updates_left_are_merged_in_the_same_plan() -> None:
    """With the dense files of their partition; without any, as soon as there are enough of them."""
    files, table = world(named(0.5, range(3)))
    small = np.arange(FILES) >= FILES - 6
    files = replace(files, bytes=np.where(small, files.bytes // 50, files.bytes))
    dense = decide(AdviceInput(files, workload(), AUTO, deletes=table))
    inputs = {path for item in dense.actions for path in item.action.inputs}
    assert inputs == {str(path) for path in files.path[small | (np.arange(FILES) < 3)]}
    files, table = world(named(0.01, range(3)))
    files = replace(files, bytes=np.where(small, files.bytes // 50, files.bytes))
    sparse = decide(AdviceInput(files, workload(), AUTO, deletes=table))
    assert kinds(sparse) == ["BinPack"]
    assert set(sparse.actions[0].action.inputs) == {str(path) for path in files.path[small]}


def test_dangling_deletes_go_unless_their_file_holds_a_live_vector() -> None:
    gone = [Delete(Scope.EQUALITY, 9, dangling=True), Delete(Scope.FILE, 9, 3, dangling=True)]
    vectors = [
        Delete(Scope.VECTOR, 9, 4, path="v", dangling=True), Delete(Scope.VECTOR, 9, 5, path="v"),
    ]  # fmt: skip
    found = advice([*gone, *vectors])
    assert kinds(found) == ["RemoveDanglingDeletes"]
    assert found.actions[0].action.inputs == ("d0", "d1")


def test_maintenance_waits_for_a_partition_whose_writers_would_conflict_and_only_for_it() -> None:
    deletes = [Delete(Scope.EQUALITY, 50, snapshot=n) for n in range(6)]
    quiet = replace(AUTO, quiet_partitions=frozenset({0}))
    assert kinds(advice(deletes, quiet)) == ["ConvertDeletes"]
    held = replace(quiet, deletes=replace(AUTO.deletes, conflicting=frozenset({0})))
    found = advice(deletes, held)
    assert kinds(found) == []
    assert reasons.QUIET_PERIOD in reason_of(found)


def history(count: int, over_ms: int) -> Operations:
    """As many equality commits over that time, up to now, by the snapshots 0, 1, ..."""
    every = tuple(
        RowOperation(
            n, AUTO.now_ms - over_ms + n * over_ms // count, Kind.UPSERT, Encoding.EQUALITY, 50,
            True, None, 1, None, 50, 1, 1, "flink",
        )
        for n in range(count)
    )  # fmt: skip
    return Operations(tuple(reversed(every)), over_ms)


def test_maintenance_is_due_after_as_many_operations_as_the_model_says() -> None:
    """The faster the operations come, the more of them gather before a conversion."""
    deletes = [Delete(Scope.EQUALITY, 50, snapshot=n) for n in range(6)]
    slow = advice(deletes, weight=20.0, operations=history(6, 6 * DAY))
    fast = advice(deletes, weight=20.0, operations=history(6, DAY // 24))
    assert "ConvertDeletes" in kinds(slow)
    assert "ConvertDeletes" not in kinds(fast)
    assert reasons.NOT_DUE in reason_of(fast)


def test_nothing_is_planned_for_a_damaged_table() -> None:
    files, table = world(named(0.9))
    found = decide(AdviceInput(files, workload(), AUTO, deletes=table, damage="two vectors"))
    assert not found.actions
    assert (found.rejected[0].reason, str(found.rejected[0].why)) == (
        reasons.NOT_REWRITABLE, "two vectors",
    )  # fmt: skip


@pytest.mark.parametrize("kind", ["ConvertDeletes", "CompactDeletes", "RemoveDanglingDeletes"])
@pytest.mark.parametrize("repeated", ["data file", "delete file"])
def test_no_delete_file_is_replaced_where_a_file_is_in_two_entries(
    kind: str, repeated: str
) -> None:
    """A replacement names a path, not an entry."""
    made = {
        "ConvertDeletes": [Delete(Scope.EQUALITY, 50, snapshot=n) for n in range(6)],
        "CompactDeletes": [Delete(Scope.PARTITION, 50, snapshot=n) for n in range(6)],
        "RemoveDanglingDeletes": [Delete(Scope.FILE, 50, 0, dangling=True)] * 2,
    }
    files, table = world(made[kind])
    asked = queries(20.0) if kind == "ConvertDeletes" else workload()
    given = AdviceInput(files, asked, AUTO, deletes=table, operations=history(6, 6 * DAY))
    assert kind in kinds(decide(given))
    paths = files if repeated == "data file" else table
    path = paths.path.copy()
    path[1] = path[0]
    changed = replace(paths, path=path)
    found = decide(
        replace(given, table=changed) if paths is files else replace(given, deletes=changed)
    )
    assert kind not in kinds(found)
    assert reasons.NOT_REWRITABLE in reason_of(found)


@pytest.mark.parametrize("refused", ["delete file", "data file"])
def test_equality_deletes_are_not_converted_where_a_file_is_refused(refused: str) -> None:
    files, table = world([Delete(Scope.EQUALITY, 50, snapshot=n) for n in range(6)])
    given = AdviceInput(files, queries(20.0), AUTO, deletes=table, operations=history(6, 6 * DAY))
    assert "ConvertDeletes" in kinds(decide(given))
    path = str(table.path[2] if refused == "delete file" else files.path[2])
    bad = {path: Refusal(path, PHYSICAL_SCHEMA, "at", "INT96")}
    found = decide(replace(given, refusals=bad))
    assert "ConvertDeletes" not in kinds(found)
    assert reasons.REFUSED_FILES in reason_of(found)


@pytest.mark.parametrize("kind", ["ConvertDeletes", "CompactDeletes", "Recluster"])
def test_no_delete_file_is_read_whose_path_has_a_line_end(kind: str) -> None:
    """PyIceberg would read another file for it, and the witness the same one."""
    scope = Scope.EQUALITY if kind == "ConvertDeletes" else Scope.PARTITION
    wanted = [Delete(scope, 50, snapshot=n) for n in range(6)]
    settings = replace(SETTINGS, deletes=DeletePolicy(mode="Keep", compaction="Minor"))
    asked, files, table = queries(20.0), *world(named(0.9) if kind == "Recluster" else wanted)
    given = AdviceInput(
        files, asked, settings if kind == "CompactDeletes" else AUTO, deletes=table,
        operations=history(6, 6 * DAY),
    )  # fmt: skip
    assert kind in kinds(decide(given))
    path = np.array([f"{one[:-9]}\n{one[-9:]}" for one in table.path], dtype=object)
    found = decide(replace(given, deletes=replace(table, path=path)))
    under = {one for n in range(len(table)) for one in files.path[table.reaches(n, files)]}
    assert under and not _inputs(found) & {*path, *under}
    assert {reasons.NOT_REWRITABLE, reasons.REFUSED_FILES} & {*reason_of(found)}


@pytest.mark.parametrize("unfit", ["parquet", "encrypted"])
def test_equality_deletes_are_not_converted_over_a_file_that_verification_cannot_read(
    unfit: str,
) -> None:
    files, table = world([Delete(Scope.EQUALITY, 50, snapshot=n) for n in range(6)])
    mask = getattr(files, unfit).copy()
    mask[2] = not mask[2]
    files = replace(files, **{unfit: mask})
    given = AdviceInput(files, queries(20.0), AUTO, deletes=table, operations=history(6, 6 * DAY))
    found = decide(given)
    assert "ConvertDeletes" not in kinds(found)
    assert reasons.NOT_REWRITABLE in [
        one.reason for one in found.rejected if str(one.what).startswith("convert")
    ]


@pytest.mark.parametrize("kind", ["time", "long"])
def test_files_that_only_spark_could_write_are_left_where_it_lacks_a_type(kind: str) -> None:
    """Those under delete files in ORC or Avro, which the engine does not apply to rows; it converts
    them all the same."""
    files, table = world([Delete(Scope.EQUALITY, 50, snapshot=n) for n in range(6)])
    fields = (*files.schema.fields, Field(77, "at", kind))
    files = replace(files, schema=replace(files.schema, fields=fields))
    table = replace(table, other_format=np.arange(len(table)) == 0)
    given = AdviceInput(files, queries(20.0), AUTO, deletes=table, operations=history(6, 6 * DAY))
    under = np.zeros(len(files), dtype=np.bool_)
    under[table.reaches(0, files)] = True
    assert under.any()
    assert np.array_equal(
        situation_of(given).facts.rewritable, ~under if kind == "time" else under | ~under
    )
    assert "ConvertDeletes" in kinds(decide(given))


def test_no_delete_file_is_replaced_where_one_file_is_in_two_manifest_entries() -> None:
    minor = replace(SETTINGS, deletes=DeletePolicy(mode="Keep", compaction="Minor"))
    files, table = world([Delete(Scope.PARTITION, 50, snapshot=n) for n in range(6)])
    given = AdviceInput(files, workload(), minor, deletes=table)
    assert "CompactDeletes" in kinds(decide(given))
    path = files.path.copy()
    path[1] = path[0]
    assert "CompactDeletes" not in kinds(decide(replace(given, table=replace(files, path=path))))


def test_a_data_file_under_a_refused_delete_file_is_not_rewritten() -> None:
    files, table = world(named(0.9))
    given = AdviceInput(files, queries(20.0), AUTO, deletes=table)
    wanted = sorted(_inputs(decide(given)) & set(files.path))
    (number,) = np.flatnonzero(table.data_row == files.row_of[wanted[0]])
    path = str(table.path[number])
    bad = {path: Refusal(path, PHYSICAL_SCHEMA, "pos", "INT96")}
    assert not _inputs(decide(replace(given, refusals=bad))) & {wanted[0], path}


def _inputs(found: Advice) -> set[str]:
    return {path for item in found.actions for path in item.action.inputs}


ONE_FILE = int(arrived(np.random.default_rng(0)).file_table().bytes.max())
TIGHT = {
    "bytes": replace(AUTO, most_bytes=3 * ONE_FILE),
    "cpu": replace(AUTO, most_cpu_seconds=0.3),
}
"""Budgets that admit a rewrite of a few files, and no conversion of `UPSERTS`."""
UPSERTS = [Delete(Scope.EQUALITY, 50, snapshot=n, bytes=ONE_FILE) for n in range(6)]


@pytest.mark.parametrize("budget", TIGHT)
def test_what_no_budget_can_convert_is_applied_in_slices_for_an_objective(budget: str) -> None:
    objective = Objectives(max_deleted_rows_percent=5.0)
    wanted = replace(TIGHT[budget], objectives=objective)
    assert kinds(advice(UPSERTS, replace(AUTO, objectives=objective))) == ["ConvertDeletes"]
    found = advice(UPSERTS, wanted)
    assert set(kinds(found)) == {"ApplyDeletes"} and len(found.actions) > 1
    for item in found.actions:
        assert item.predicted.rewrite_bytes <= (wanted.most_bytes or math.inf)
        assert item.predicted.cpu_seconds <= (wanted.most_cpu_seconds or math.inf)
    inputs = [path for item in found.actions for path in item.action.inputs]
    assert len(inputs) == len(set(inputs)) == FILES
    assert found.objectives[0].state == "met"


@pytest.mark.parametrize("budget", TIGHT)
@pytest.mark.parametrize(("records", "estimate"), [(50, 0.3), (2_000, 12.0)])
def test_no_budget_is_spent_on_a_share_that_the_next_upsert_makes_unknown_again(
    budget: str, records: int, estimate: float
) -> None:
    """Upserts every ten minutes, and a day passes between two slices: the estimate is held within
    the objective, and by no more files than that takes."""
    objective = Objectives(max_deleted_rows_percent=5.0)
    wanted = replace(TIGHT[budget], objectives=objective, budget_ms=DAY)
    deletes = [replace(one, records=records) for one in UPSERTS]
    found = advice(deletes, wanted, operations=history(6, DAY // 24))
    count = sum(len(item.action.inputs) for item in found.actions)
    before = estimate / 100
    needed = math.ceil(FILES * (before - 0.05) / (before * 0.95)) if before > 0.05 else 0
    assert needed <= count <= needed + 1, (count, needed)
    assert set(kinds(found)) <= {"ApplyDeletes"}
    assert found.objectives[0].state == "unknown"
    stated = float(found.objectives[0].message.split()[-2])
    assert stated == pytest.approx(min(estimate, 5.0), rel=0.05)


@pytest.mark.parametrize(
    ("commits", "over_ms", "budget_ms"),
    [(1, DAY, DAY), (6, 300 * DAY, DAY), (6, DAY // 24, 0)],
    ids=["once", "seldom", "at-once"],
)
def test_upserts_that_leave_time_for_all_slices_do_not_stop_them(
    commits: int, over_ms: int, budget_ms: int
) -> None:
    wanted = replace(
        TIGHT["bytes"], objectives=Objectives(max_deleted_rows_percent=5.0), budget_ms=budget_ms
    )
    found = advice(UPSERTS, wanted, operations=history(commits, over_ms))
    assert sum(len(item.action.inputs) for item in found.actions) == FILES
    assert found.objectives[0].state == "met"


def test_what_is_left_is_converted_as_soon_as_a_budget_admits_it() -> None:
    """Files that were rewritten have the sequence number of a snapshot after the deletes."""
    wanted = replace(
        AUTO, most_bytes=7 * ONE_FILE, objectives=Objectives(max_deleted_rows_percent=5.0)
    )
    deletes = [replace(one, bytes=ONE_FILE) for one in UPSERTS]
    assert set(kinds(advice(deletes, wanted))) == {"ApplyDeletes"}
    files, table = world(deletes)
    done = np.arange(FILES) >= 3
    left = replace(
        files,
        sequence=np.where(done, int(files.sequence.max()) + 2, files.sequence),
        delete_files=files.delete_files * ~done,
        delete_bytes=files.delete_bytes * ~done,
        equality_deletes=files.equality_deletes * ~done,
    )
    found = decide(AdviceInput(left, workload(), wanted, deletes=table))
    assert kinds(found) == ["ConvertDeletes"]


def test_without_an_objective_queries_decide_on_what_no_budget_can_convert() -> None:
    free, tight = (replace(one, mode="None") for one in (AUTO, TIGHT["bytes"]))
    assert kinds(advice(UPSERTS, free)) == ["ConvertDeletes"]
    unknown = advice(UPSERTS, tight)
    assert kinds(unknown) == [] and reasons.LARGER_THAN_BUDGET in reason_of(unknown)
    assert "ConvertDeletes" in kinds(advice(UPSERTS, free, weight=2_000.0))
    often = advice(UPSERTS, tight, weight=2_000.0)
    assert set(kinds(often)) == {"ApplyDeletes"}
    assert all(i.predicted.saving_low > i.predicted.cost for i in often.actions)


def test_a_declared_compaction_applies_what_no_budget_can_convert() -> None:
    declared = replace(TIGHT["bytes"], deletes=DeletePolicy(compaction="Hybrid"))
    assert set(kinds(advice(UPSERTS, declared))) == {"ApplyDeletes"}
    assert kinds(advice(UPSERTS[:4], declared)) == []
    only = replace(declared, deletes=DeletePolicy(compaction="Minor"))
    assert kinds(advice(UPSERTS, only)) == []
    assert reasons.LARGER_THAN_BUDGET in reason_of(advice(UPSERTS, only))


@pytest.mark.parametrize(
    "deletes",
    [
        [Delete(Scope.PARTITION, 500, snapshot=n) for n in range(7)],
        [Delete(Scope.FILE, 20, n) for n in range(FILES)] * 5,
    ],
    ids=["of-a-partition", "of-files"],
)
def test_a_compaction_larger_than_its_budget_is_cut_into_slices(deletes: list[Delete]) -> None:
    """Together they replace what one action would; the second begins where the first ends."""
    free = replace(AUTO, mode="None", deletes=DeletePolicy(compaction="Minor"))
    (whole,) = advice(deletes, free, weight=50.0).actions
    fixed = PRIOR_THROUGHPUT.cpu_seconds("compact-deletes", 0)
    half = fixed + (whole.predicted.cpu_seconds - fixed) / 2
    limits = (
        replace(free, most_bytes=2_000 * len(deletes) // 3), replace(free, most_cpu_seconds=half),
    )  # fmt: skip
    for limited in limits:
        found = advice(deletes, limited, weight=50.0)
        assert len(found.actions) > 1 and set(kinds(found)) == {"CompactDeletes"}
        named = f", one of {len(found.actions)} slices"
        assert all(str(item.predicted.label).endswith(named) for item in found.actions)
        inputs = [path for item in found.actions for path in item.action.inputs]
        assert sorted(inputs) == sorted(whole.action.inputs)
        for item in found.actions:
            assert item.predicted.rewrite_bytes <= (limited.most_bytes or math.inf)
            assert item.predicted.cpu_seconds <= (limited.most_cpu_seconds or math.inf)
        saved = sum(item.predicted.saving for item in found.actions)
        assert 0 < saved <= 1.01 * whole.predicted.saving


def test_delete_files_of_one_data_file_are_in_one_slice() -> None:
    deletes = [Delete(Scope.FILE, 20, n) for n in range(FILES)] * 5
    found = advice(deletes, replace(AUTO, most_bytes=23_000))
    assert len(found.actions) == 25
    for item in found.actions:
        named = [int(path[1:]) % FILES for path in item.action.inputs]
        assert len(named) == 10 and len(set(named)) == 2


def test_on_format_3_deletes_of_a_partition_become_vectors_together() -> None:
    """A vector hides every other position delete of its data file."""
    deletes = [Delete(Scope.PARTITION, 500, snapshot=n) for n in range(7)]
    limited = replace(
        AUTO, most_bytes=5_000, metadata=TableMetadata(format_version=3), min_input_files=2
    )
    found = advice(deletes, limited)
    assert kinds(found) == [] and reasons.LARGER_THAN_BUDGET in reason_of(found)


@pytest.mark.parametrize("scope", [Scope.PARTITION, Scope.EQUALITY], ids=["compact", "convert"])
@pytest.mark.parametrize("limit", ["most_bytes", "most_cpu_seconds"])
def test_a_budget_of_zero_forbids_maintenance(scope: Scope, limit: str) -> None:
    deletes = [Delete(scope, 400, snapshot=number) for number in range(1, 9)]
    settings = replace(AUTO, min_input_files=2)
    assert kinds(advice(deletes, settings, weight=50.0))
    found = advice(deletes, replace(settings, **{limit: 0}), weight=50.0)
    assert kinds(found) == [] and reasons.LARGER_THAN_BUDGET in reason_of(found)
