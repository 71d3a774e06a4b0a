"""Deletes of real tables, as they are observed and planned for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from reconciler.advisor.advice import DeletePolicy, Settings
from reconciler.catalog.observe import observe_table
from reconciler.loop.propose import Target, advise
from reconciler.queries.fragments import batch_fragments
from reconciler.table.deletes import Scope
from tests.spark.tables import Bench

AUTO = Settings(deletes=DeletePolicy(compaction="Auto"), mode="None")
MERGE_ON_READ = (
    "'format-version'='2', 'write.delete.mode'='merge-on-read', "
    "'write.delete.granularity'='partition', 'write.distribution-mode'='none'"
)


def test_a_file_with_many_deleted_rows_is_rewritten(bench: Bench, tmp_path: Path) -> None:
    name = bench.create("id BIGINT, v STRING", MERGE_ON_READ)
    full = bench.full(name)
    bench.sql(f"INSERT INTO {full} SELECT id, 'x' FROM RANGE(0, 1000, 1, 2)")
    bench.sql(f"DELETE FROM {full} WHERE id % 2 = 0")
    target = Target(bench.config, ("jobs", name))
    seen = observe_table(bench.config, target.identifier, tmp_path / "cache")
    nothing: Any = None  # no queries, no footers
    advice, _ = advise(target, seen, batch_fragments([], ()), AUTO, nothing)
    assert seen.delete_files.of(Scope.PARTITION).sum() == seen.deletes.partition_files == 1
    (operation,) = seen.operations.every
    assert (operation.kind, operation.encoding, operation.rows, operation.engine) == (
        "delete", "merge-on-read", 500, "spark",
    )  # fmt: skip
    assert seen.files.position_deleted.sum() == 500
    assert [item.action.kind for item in advice.actions] == ["ApplyDeletes"]
    assert advice.actions[0].action.inputs == tuple(sorted(seen.files.path))
