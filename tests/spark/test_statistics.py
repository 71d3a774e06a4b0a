"""Statistics of engines outlive our commits: Iceberg's own procedure computes them, and its own
library reads them afterwards."""

from __future__ import annotations

import datetime as dt
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reconciler.api.choices import EngineType
from reconciler.loop.local_actor import LocalActor
from reconciler.loop.ports import Target
from reconciler.loop.step import Step, run_until_converged
from reconciler.state.state import StateStore
from tests.loop.test_step import EVERYTHING, never, policy, quiet
from tests.spark.tables import Bench

LAYOUT = {"layout": {"clustering": {"mode": "Declared", "keys": ["day"]}}}
EXPIRY = {"maintenance": {"expireSnapshots": {"olderThan": "1s", "retainLast": 1}}}


def listed(bench: Bench, name: str) -> dict[int, tuple[str, list[Any]]]:
    """Path and what the blobs hold, by the snapshot that a statistics file is listed under."""
    table = bench.table(name)
    table.refresh()
    return {
        int(one.snapshotId()): (
            str(one.path()),
            [(list(b.fields()), int(b.sourceSnapshotId()), str(b.properties().get("ndv")))
             for b in one.blobMetadata()],
        )
        for one in table.statisticsFiles()
    }  # fmt: skip


def readable(bench: Bench, path: str) -> int:
    """Number of blobs that Iceberg's library decodes from the file."""
    core = bench.spark._jvm.org.apache.iceberg
    reader = core.puffin.Puffin.read(bench.spark._jvm.org.apache.iceberg.Files.localInput(path))
    blobs = reader.build().fileMetadata().blobs()
    return int(blobs.size())


@pytest.mark.parametrize("engine", [EngineType.LOCAL, EngineType.SPARK])
def test_statistics_outlive_rewrites_and_expiry(
    bench: Bench, catalog_config: Any, spark: Any, tmp_path: Path, engine: EngineType
) -> None:
    name = bench.create("id bigint, day int")
    for number in range(4):
        bench.sql(f"INSERT INTO {bench.full(name)} SELECT id + {number}, id % 7 FROM range(500)")
    bench.sql(f"CALL rec.system.compute_table_stats(table => 'jobs.{name}')")
    ((computed, found),) = listed(bench, name).items()
    assert found[1]
    actor = LocalActor(StateStore(tmp_path / "state"), tmp_path / "cache")
    actor.engine, actor.spark = engine, spark if engine is EngineType.SPARK else None
    said: list[str] = []

    def run(**spec: Any) -> int:
        made = policy(name, **spec)
        named = replace(made.spec.tables, include=(f"jobs.{name}",))
        made = replace(made, spec=replace(made.spec, tables=named))
        target = Target(catalog_config, ("jobs", name))
        step = Step(target, made, "test", lambda: dt.datetime.now(dt.UTC))
        run_until_converged(
            step, actor, EVERYTHING, lambda event: said.append(event.phase), never, quiet
        )
        return int(bench.table(name).currentSnapshot().snapshotId())

    step = Step(Target(catalog_config, ("jobs", name)), policy(name, **LAYOUT), "test",
                lambda: dt.datetime.now(dt.UTC))  # fmt: skip
    assert step.propose(actor).plan.evidence["statistics"]
    head = run(**LAYOUT)
    assert head != computed
    assert listed(bench, name) == {computed: found, head: found}
    bench.sql(f"INSERT INTO {bench.full(name)} VALUES (9, 9)")
    bench.sql(f"INSERT INTO {bench.full(name)} VALUES (9, 10)")
    time.sleep(1.1)
    newest = int(bench.table(name).currentSnapshot().snapshotId())
    run(layout={"clustering": {"mode": "None"}}, **EXPIRY)
    assert [one.snapshotId() for one in bench.table(name).snapshots()] == [newest]
    assert listed(bench, name) == {newest: found}
    assert readable(bench, found[0].removeprefix("file:")) == len(found[1])
    assert said.count("statistics") == 2
