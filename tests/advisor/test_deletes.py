"""What is decided about deletes: which data files drop them, which delete files are replaced."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from reconciler.advisor.advice import Advice, AdviceInput, DeletePolicy, Objectives, Settings
from reconciler.advisor.decide import decide
from reconciler.plan import reasons
from reconciler.table.deletes import NO_FILE, DeleteTable, Scope
from reconciler.table.filetable import FileTable
from reconciler.table.metadata import TableMetadata
from reconciler.table.operations import Encoding, Kind, Operations, RowOperation
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
        offset=np.array([0 if d.scope is Scope.VECTOR else -1 for d in deletes]),
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
        int(p.split("-")[-1].split(".")[0]) for i in found.actions for p in i.action.inputs
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
