"""Deletes of real tables, as they are observed and planned for."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from reconciler.advisor.advice import Advice, DeletePolicy, Settings
from reconciler.catalog.observe import observe_table
from reconciler.loop.advised import advise
from reconciler.loop.file_checks import Checked
from reconciler.loop.ports import Target
from reconciler.queries.fragments import workload_of_fragments
from reconciler.table.deletes import Scope
from reconciler.table.observation import Observation
from tests.spark.equality import add_equality_delete, add_position_delete
from tests.spark.tables import Bench

AUTO = Settings(deletes=DeletePolicy(compaction="Auto"), mode="None")
MERGE_ON_READ = (
    "'format-version'='2', 'write.delete.mode'='merge-on-read', "
    "'write.delete.granularity'='partition', 'write.distribution-mode'='none'"
)


def _planned(
    bench: Bench, name: str, directory: Path, settings: Settings
) -> tuple[Observation, Advice]:
    target = Target(bench.config, ("jobs", name))
    seen = observe_table(bench.config, target.identifier, directory / "cache")
    nothing: Any = SimpleNamespace(  # no queries, no footers
        refusals=lambda *given: {}, check_files=lambda target, seen, paths: Checked()
    )
    return seen, advise(target, seen, workload_of_fragments([]), settings, nothing)[0]


def test_a_file_with_many_deleted_rows_is_rewritten(bench: Bench, tmp_path: Path) -> None:
    name = bench.create("id BIGINT, v STRING", MERGE_ON_READ)
    full = bench.full(name)
    bench.sql(f"INSERT INTO {full} SELECT id, 'x' FROM RANGE(0, 1000, 1, 2)")
    bench.sql(f"DELETE FROM {full} WHERE id % 2 = 0")
    seen, advice = _planned(bench, name, tmp_path, AUTO)
    assert seen.delete_files.of(Scope.PARTITION).sum() == seen.deletes.partition_files == 1
    (operation,) = seen.operations.every
    assert (operation.kind, operation.encoding, operation.rows, operation.engine) == (
        "delete", "merge-on-read", 500, "spark",
    )  # fmt: skip
    assert seen.files.position_deleted.sum() == 500
    assert [item.action.kind for item in advice.actions] == ["ApplyDeletes"]
    assert advice.actions[0].action.inputs == tuple(sorted(seen.files.path))


@pytest.mark.parametrize("version", [2, 3])
def test_files_under_equality_deletes_are_planned_and_no_deleted_row_comes_back(
    bench: Bench, tmp_path: Path, version: int
) -> None:
    """One key is deleted before the plan, one while its rewrite is under way. The second delete
    applies to the outputs, because these keep the sequence number of what was read."""
    name = bench.create("id BIGINT", f"'format-version'='{version}'")
    full = bench.full(name)
    for start in (0, 20, 40):
        bench.sql(f"INSERT INTO {full} SELECT id + {start} FROM range(0, 20, 1, 1)")
    add_equality_delete(bench, name, {"id": pa.array([1, 21])})
    seen, advice = _planned(
        bench, name, tmp_path, Settings(mode="None", min_input_files=3, deletes=AUTO.deletes)
    )
    assert (seen.files.equality_deletes > 0).all()
    assert [item.action.kind for item in advice.actions] == ["BinPack"]

    def late(event: Any) -> None:
        if event.phase == "verified" and not later:
            later.append(add_equality_delete(bench, name, {"id": pa.array([2, 59])}))

    later: list[str] = []
    actions = [item.action for item in advice.actions]
    result = bench.run(bench.request(name, *actions), late)
    assert result.done and later
    live = {row.id for row in bench.sql(f"SELECT id FROM {full}")}
    assert live == set(range(60)) - {1, 2, 21, 59}
    assert len(bench.paths(name)) == 1
    seen, _ = _planned(bench, name, tmp_path, AUTO)
    assert int(seen.files.equality_deletes.sum()) == 1, "the earlier one applies to nothing"


def test_data_files_are_rewritten_first_and_delete_files_replaced_in_a_commit_of_their_own(
    bench: Bench, tmp_path: Path
) -> None:
    """Of three files of one partition, one is half deleted; four delete files apply to all of them
    and name the two others. The budget admits two of these at once. The executor keeps the order,
    whatever that of the request."""
    by_file = MERGE_ON_READ.replace("'partition'", "'file'")
    name = bench.create("id BIGINT", by_file)
    full = bench.full(name)
    for start in (0, 40, 80):
        bench.sql(f"INSERT INTO {full} SELECT id + {start} FROM range(0, 40, 1, 1)")
    first, *others = (
        row.path
        for row in bench.sql(
            f"SELECT _file AS path, min(id) AS low FROM {full} GROUP BY _file ORDER BY low"
        )
    )
    bench.sql(f"DELETE FROM {full} WHERE id < 20")
    for position in (3, 7, 11, 30):
        add_position_delete(bench, name, [(path, position) for path in others], "")
    largest = max(row.size for row in _deletes(bench, name))
    settings = Settings(
        mode="None", min_input_files=3, target_bytes=400, most_bytes=5 * largest // 2,
        deletes=AUTO.deletes,
    )  # fmt: skip
    _, advice = _planned(bench, name, tmp_path, settings)
    actions = [item.action for item in advice.actions]
    assert [one.kind for one in actions] == ["ApplyDeletes", "CompactDeletes", "CompactDeletes"]
    assert [len(one.inputs) for one in actions] == [1, 2, 2]
    assert actions[0].inputs == (first,)
    before = bench.rows(name)
    assert len(before) == 120 - 20 - 8
    result = bench.run(bench.request(name, *reversed(actions)))
    assert result.done and result.commits == 2
    assert [one.action_id for one in result.outcomes if one.batch] == ["a03", "a01", "a02"]
    assert bench.rows(name) == before and bench.leftovers(name) == []
    assert sorted(row.rows for row in _deletes(bench, name)) == [4, 4], "one for each data file"


def _deletes(bench: Bench, name: str) -> list[Any]:
    return bench.sql(
        "SELECT file_size_in_bytes AS size, record_count AS rows "
        f"FROM {bench.full(name)}.delete_files"
    )
