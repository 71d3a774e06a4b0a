"""What a small job does around its rows, counted: no machine changes these numbers."""

from __future__ import annotations

from collections import Counter

from bench.lake import Lake
from bench.start import HERE, nothing_to_do, started
from reconciler.api.choices import EngineType
from reconciler.catalog.border import FromInputFile
from reconciler.engines.local.pool import Pool
from reconciler.loop.step import run_step
from reconciler.state import state_tables
from tests.loop.test_step import DECLARED, EVERYTHING, never, quiet, step_of

NOT_TO_START = {
    "duckdb", "pyspark", "kopf", "kubernetes", "sqlglot", "jax", "sklearn", "multiprocessing",
    "reconciler.commit.engine", "reconciler.engines.schedule.execute",
    "reconciler.engines.local.pool", "reconciler.rewrite.rewriting",
}  # fmt: skip


def test_a_small_plan_takes_few_processes_loads_and_commits(
    catalog_config, make_table, actor, monkeypatch
):
    make_table("small", files=12, rows=100)
    step = step_of(catalog_config, "small", **DECLARED)
    seen, run, parse, append = (
        Counter[str](), Pool.run, FromInputFile.table_metadata, state_tables.append,
    )  # fmt: skip

    def ran(pool, work, *arguments, **more):
        seen[work.__name__] += 1
        return run(pool, work, *arguments, **more)

    def parsed(file):
        seen["state" if "/state/" in file.location else "table"] += 1
        return parse(file)

    def appended(*given):
        seen["appended"] += 1
        return append(*given)

    monkeypatch.setattr(Pool, "run", ran)
    monkeypatch.setattr(FromInputFile, "table_metadata", parsed)
    monkeypatch.setattr(state_tables, "append", appended)
    actor.engine = EngineType.LOCAL
    done = run_step(step, actor, EVERYTHING, quiet, never)
    assert done.result.commits == 1
    assert seen["rewritten"] == 1
    assert 2 <= seen["witnessed"] <= 3, "inputs on two processes at most, and the output"
    assert 1 <= seen["table"] <= 6
    assert 1 <= seen["appended"] <= 9
    assert seen["state"] <= seen["appended"] + 2, "each is read once more at most"


def test_an_apply_without_work_imports_nothing_that_works(tmp_path):
    lake = Lake(tmp_path)
    _, _, modules = started(lake, nothing_to_do(lake), HERE)
    assert "reconciler.loop.step" in modules
    assert NOT_TO_START & set(modules) == set()
