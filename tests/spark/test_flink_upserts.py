"""A real Flink job upserts into a table that is maintained meanwhile. The long form is
`python -m bench.flink_upserts`."""

from __future__ import annotations

from pathlib import Path

import pytest

from reconciler.loop.step import CONVERGED
from tests.flink.job import UpsertJob, checkpoints, create_table, on_sqlite, source_of_truth
from tests.flink.maintained import Maintained
from tests.spark.tables import Bench

pytestmark = pytest.mark.usefixtures("flink")

EVENTS, PER_SECOND = 10_000, 400


def test_beside_maintenance_no_upsert_is_lost_and_checkpoints_go_on(
    bench: Bench, warehouse: Path, tmp_path: Path
) -> None:
    name = create_table(bench, 2)
    job = UpsertJob(
        on_sqlite(warehouse), bench.full(name), tmp_path / "flink.log",
        events=EVENTS, per_second=PER_SECOND, checkpoint_ms=1_000,
    )  # fmt: skip
    held = Maintained(bench, name, tmp_path, min_input_files=2)
    try:
        held.beside(job)
        assert job.wait() == 0, job.log.read_text()[-2_000:]
    finally:
        job.stop()

    assert held.kinds["ConvertDeletes"] >= 1 and held.overtaken >= 1
    assert (held.conflicts, held.stale) == (0, 0), "Flink's checkpoints hinder no maintenance"
    numbers = [checkpoint.number for checkpoint in checkpoints(held.table)]
    assert numbers == sorted(set(numbers)), "each is committed once, in order"
    truth = source_of_truth(EVENTS)
    assert held.rows() == truth
    assert held.converge().state == CONVERGED
    assert held.rows() == truth
    assert len(held.table.refresh().inspect.delete_files()) == 0
    seen = held.table.scan().to_arrow()
    assert dict(zip(seen["id"].to_pylist(), seen["n"].to_pylist(), strict=True)) == truth
    assert bench.leftovers(name) == []
