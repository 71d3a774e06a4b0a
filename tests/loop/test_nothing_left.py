"""After one plan that nobody disturbs, the next one is empty, and files are as many as their bytes
need."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from reconciler.advisor.choose.joined import _Others
from reconciler.loop.local_actor import LocalActor
from reconciler.loop.step import CONVERGED, run_step
from reconciler.plan.small_files import SMALL_SHARE
from tests.loop.test_local_engine import live_rows
from tests.loop.test_step import DECLARED, EVERYTHING, never, queries_on, quiet, step_of

RANGE, WIDTH = 100, 50
"""Distance of the sets on the key, and the width of each."""


def batch(random: np.random.Generator, rows: int, low: int, width: int = WIDTH) -> pa.Table:
    return pa.table(
        {
            "id": random.integers(0, 1 << 40, rows),
            "day": random.integers(low, low + width, rows),
            "p": pa.array([0] * rows, pa.int32()),
            "pad": [random.bytes(32).hex() for _ in range(rows)],
        }
    )


def table_of(catalog: Any, name: str, target: int, batches: list[pa.Table]) -> Any:
    catalog.create_namespace_if_not_exists("loop")
    properties = {"write.target-file-size-bytes": str(target)}
    schema = batch(np.random.default_rng(0), 1, 0).schema
    table = catalog.create_table(f"loop.{name}", schema, properties=properties)
    for one in batches:
        table.append(one)
    return table


@pytest.mark.parametrize(
    ("sets", "between", "rows", "target"),
    [(6, 0, 20, 1 << 20), (2, 2, 20, 1 << 20), (3, 1, 400, 1 << 17)],
)
def test_drifted_sets_that_would_be_small_are_one_action(
    catalog_config: Any,
    iceberg_catalog: Any,
    actor: LocalActor,
    sets: int,
    between: int,
    rows: int,
    target: int,
) -> None:
    """sets: of three overlapping files, with so many small files between each two of them."""
    random = np.random.default_rng(sets)
    batches = []
    for number in range(sets):
        low = number * RANGE
        batches += [batch(random, rows, low) for _ in range(3)]
        batches += [batch(random, rows, low + WIDTH + 9 * at, 5) for at in range(1, between + 1)]
    name = f"sets_{sets}_{between}"
    table = table_of(iceberg_catalog, name, target, batches)
    before = live_rows(table)
    step = step_of(catalog_config, name, **DECLARED)
    planned = step.propose(actor)
    done = run_step(step, actor, EVERYTHING, quiet, never, planned)
    assert done.state.state == CONVERGED and not done.after.pending
    files = table.refresh().inspect.files()
    size = sum(files["file_size_in_bytes"].to_pylist())
    assert len(files) <= math.ceil(size / (SMALL_SHARE * target))
    assert len(planned.pending) <= len(files)
    assert live_rows(table) == before


def test_a_file_of_the_target_size_between_two_sets_is_not_spanned(
    catalog_config: Any, iceberg_catalog: Any, actor: LocalActor
) -> None:
    random = np.random.default_rng(1)
    batches = [batch(random, 20, low) for low in (0, 0, 200, 200)]
    batches.append(batch(random, 2_000, RANGE))
    table = table_of(iceberg_catalog, "apart", 1 << 20, batches)
    with table.transaction() as change:
        change.set_properties({"write.target-file-size-bytes": str(1 << 15)})
    step = step_of(catalog_config, "apart", **DECLARED)
    planned = step.propose(actor)
    assert sorted(len(item.action.inputs) for item in planned.pending) == [2, 2]
    done = run_step(step, actor, EVERYTHING, quiet, never, planned)
    assert done.state.state == CONVERGED and not done.after.pending


def test_sets_are_joined_along_the_first_key_column_that_varies(
    catalog_config: Any, iceberg_catalog: Any, actor: LocalActor
) -> None:
    random = np.random.default_rng(2)
    large = [batch(random, 500, low) for low in (RANGE, 2 * RANGE) for _ in range(3)]
    small = [*(batch(random, 20, 0) for _ in range(2)), batch(random, 20, WIDTH + 10, 5)]
    table = table_of(iceberg_catalog, "constant", 1 << 16, [*small, *large])
    before = live_rows(table)
    layout = {"clustering": {"mode": "Declared", "keys": ["p", "day"]}}
    step = step_of(catalog_config, "constant", layout=layout)
    done = run_step(step, actor, EVERYTHING, quiet, never)
    assert done.state.state == CONVERGED and not done.after.pending
    assert live_rows(table) == before


def test_a_merge_is_judged_by_what_is_read_once_the_plan_is_done(
    catalog_config: Any, iceberg_catalog: Any, actor: LocalActor
) -> None:
    """A sort saves nearly all reading, so that a share of the reading before says little of what
    the next plan would see."""
    random = np.random.default_rng(2)
    files, _ = random.integers(2, 25), random.choice(4)
    batches = []
    for _ in range(files):
        rows, low = int(random.choice([1, 5, 50, 500, 2_000])), int(random.integers(0, 380))
        batches.append(batch(random, rows, low, int(random.choice([1, 10, 40, 400]))))
    table = table_of(iceberg_catalog, "floor", 1 << 20, batches)
    before = live_rows(table)
    actor.store.append_fragments(queries_on(table, "id", 100, 1 << 38, 1 << 40))
    step = step_of(catalog_config, "floor", layout={"files": {"minInputFiles": 3}})
    done = run_step(step, actor, EVERYTHING, quiet, never)
    assert done.result is not None and not done.after.pending
    assert live_rows(table) == before


def test_which_files_would_be_spanned_is_what_each_of_them_says() -> None:
    random = np.random.default_rng(7)
    for _ in range(200):
        first = random.integers(0, 9, 3)
        last = first + random.integers(0, 4, 3)
        low = int(random.integers(0, 9))
        high = low + int(random.integers(0, 4))
        of: Any = SimpleNamespace(first=first, last=last)
        overlaps = np.where(
            (first < last) & (low < high),
            (first < high) & (last > low),
            (first <= high) & (last >= low),
        )
        assert _Others(of, np.arange(3)).meet(low, high) == overlaps.any()


def test_what_no_budget_admits_together_stays_apart(
    catalog_config: Any, iceberg_catalog: Any, actor: LocalActor
) -> None:
    random = np.random.default_rng(1)
    table = table_of(
        iceberg_catalog, "tight", 1 << 20, [batch(random, 400, low) for low in (0, 0, 200, 200)]
    )
    size = sum(table.inspect.files()["file_size_in_bytes"].to_pylist())
    daily = [{"name": "d", "per": "24h", "maxRewriteBytes": str(size * 3 // 4)}]
    planned = step_of(catalog_config, "tight", budgets=daily, **DECLARED).propose(actor)
    assert [len(item.action.inputs) for item in planned.pending] == [2, 2]


@pytest.mark.parametrize("seed", [0, 1, 2, 3])
def test_the_plan_after_an_apply_of_a_random_table_is_empty(
    catalog_config: Any, iceberg_catalog: Any, actor: LocalActor, seed: int
) -> None:
    """The one drifted set of seed 1 lies beside two small files, with which the next plan would
    merge what becomes of it. With seed 3 all rows have one value of the key's first column."""
    random = np.random.default_rng(seed)
    batches = []
    for _ in range(int(random.integers(4, 10))):
        rows, low = int(random.choice([1, 5, 50, 500])), int(random.integers(0, 380))
        batches.append(batch(random, rows, low, int(random.choice([1, 10, 40, 400]))))
    name = f"random_{seed}"
    target = int(random.choice([1 << 16, 1 << 20]))
    table = table_of(iceberg_catalog, name, target, batches)
    before = live_rows(table)
    keys = ["p", "day", "id"] if seed == 3 else ["day"]
    layout = {"clustering": {"mode": "Declared", "keys": keys}, "files": {"minInputFiles": 3}}
    step = step_of(catalog_config, name, layout=layout)
    done = run_step(step, actor, EVERYTHING, quiet, never)
    assert done.result is not None and not done.after.pending
    assert live_rows(table) == before


@pytest.mark.parametrize("seed", [9, 26, 56])
def test_a_rewrite_for_the_queries_takes_the_small_files_beside_what_it_leaves(
    catalog_config: Any, iceberg_catalog: Any, actor: LocalActor, seed: int
) -> None:
    """In the order of these seeds, the next plan would merge small files with the small file that a
    rewrite leaves, with each other where the rewritten files separate them before, and only some of
    them where the written files separate them afterwards."""
    random = np.random.default_rng(seed)
    files, partitions = int(random.integers(2, 25)), int(random.choice([1, 1, 2, 4]))
    batches = []
    for _ in range(files):
        rows, low = int(random.choice([1, 5, 50, 500, 2_000])), int(random.integers(0, 380))
        one = batch(random, rows, low, int(random.choice([1, 10, 40, 400])))
        if partitions > 1:
            one = one.set_column(2, "p", pa.array(random.integers(0, partitions, rows), pa.int32()))
        batches.append(one)
    target = int(random.choice([1 << 16, 1 << 18, 1 << 20]))
    least = int(random.choice([2, 3, 5, 8]))
    table = table_of(iceberg_catalog, f"beside_{seed}", target, [])
    if partitions > 1:
        with table.update_spec() as spec:
            spec.add_identity("p")
    for one in batches:
        table.append(one)
    before = live_rows(table)
    asked = np.random.default_rng([seed, 9])
    column, end = str(asked.choice(["day", "id"])), 400
    count, width = int(asked.choice([10, 100, 400])), int(asked.choice([1, 10, 100]))
    if column == "id":
        width, end = 1 << {1: 20, 10: 34, 100: 38}[width], 1 << 40
    actor.store.append_fragments(queries_on(table, column, count, width, end))
    step = step_of(catalog_config, f"beside_{seed}", layout={"files": {"minInputFiles": least}})
    done = run_step(step, actor, EVERYTHING, quiet, never)
    assert done.result is not None and not done.after.pending
    assert live_rows(table) == before
