"""Files that a plan found unreferenced are looked up again before they are deleted."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from reconciler.plan.actions.remove_orphans import RemoveOrphans
from reconciler.plan.actions.state import Validity
from tests.spark.equality import on_disk
from tests.spark.tables import Bench, intact

pytestmark = pytest.mark.spark

DAY_MS = 86_400_000


def _aged(bench: Bench, name: str) -> dict[str, Path]:
    """All files of the table, made old, by kind; and one that nothing refers to."""
    root = on_disk(bench.table(name).location())
    (root / "data" / "orphan.parquet").write_bytes(b"x")
    for path in root.rglob("*"):
        os.utime(path, (0, 0))
    return {
        "orphan": root / "data" / "orphan.parquet",
        "data": next(path for path in root.rglob("data/*.parquet") if path.stem != "orphan"),
        "manifest": next(root.rglob("metadata/*-m0.avro")),
        "list": next(root.rglob("metadata/snap-*.avro")),
        "metadata": next(root.rglob("metadata/*.metadata.json")),
    }


def _removal(paths: dict[str, Path]) -> RemoveOrphans:
    return RemoveOrphans(tuple(sorted(f"file:{path}" for path in paths.values())), 2 * DAY_MS)


def test_what_is_referred_to_by_now_stays(bench: Bench) -> None:
    name = bench.create("id bigint, s string")
    bench.fill(name, 2, 10, "n, 'x'")
    before, paths = bench.rows(name), _aged(bench, name)
    result = bench.run(bench.request(name, _removal(paths)))
    assert (result.done, result.commits) == (True, 0)
    assert [kind for kind, path in paths.items() if not path.exists()] == ["orphan"]
    (outcome,) = bench.ledger.outcomes()
    assert outcome.detail.startswith("1 file removed") and "4 of" in outcome.detail
    intact(bench, name, before)


def test_files_of_a_branch_and_of_an_old_snapshot_stay(bench: Bench) -> None:
    name = bench.create("id bigint, s string")
    full = bench.full(name)
    bench.fill(name, 2, 10, "n, 'x'")
    bench.sql(f"ALTER TABLE {full} CREATE BRANCH other")
    bench.sql(f"INSERT INTO {full}.branch_other VALUES (7, 'branch')")
    bench.sql(f"INSERT OVERWRITE {full} VALUES (1, 'new')")
    root = on_disk(bench.table(name).location())
    every = {str(number): path for number, path in enumerate(sorted(root.rglob("data/*.parquet")))}
    _aged(bench, name)
    (root / "data" / "orphan.parquet").unlink()
    bench.run(bench.request(name, _removal(every), allow_live_branches=True))
    assert len(every) >= 4 and all(path.exists() for path in every.values())
    assert len(bench.sql(f"SELECT * FROM {full} VERSION AS OF 'other'")) == 21


def test_a_table_whose_files_may_belong_to_others_is_left_alone(bench: Bench) -> None:
    name = bench.create("id bigint, s string", "'gc.enabled'='false'")
    bench.fill(name, 1, 10, "n, 'x'")
    paths: Any = _aged(bench, name)
    (state,) = bench.run(bench.request(name, _removal(paths))).actions
    assert state.state is Validity.LOST and "gc.enabled" in state.detail
    assert paths["orphan"].exists()
