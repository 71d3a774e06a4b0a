"""Bands of one column, each sorted by another one: where they are chosen, and that files hold what
the plan says."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import duckdb
import numpy as np
import pytest

from bench.replay.table import SimulatedTable, empty_table
from reconciler.advisor.advice import AdviceInput, Settings
from reconciler.advisor.choose.bands import in_bands
from reconciler.advisor.decide import decide
from reconciler.advisor.simulate.layout import Layout
from reconciler.advisor.simulate.pool import Pool, build_pool
from reconciler.plan.actions.rewrite import Recluster
from reconciler.plan.ordering import best_of
from reconciler.queries.fragments import Fragment
from reconciler.queries.table_view import table_view
from reconciler.replay.run import reading
from reconciler.rewrite.columns import Column
from reconciler.rewrite.rewriting import rewritten
from reconciler.rewrite.task import Key, Order, Task
from reconciler.table.schema import SortColumn
from tests.advisor.qdtree.test_keeping import ranges
from tests.advisor.worlds import (
    DATE,
    DAY,
    KEY,
    PART,
    SCHEMA,
    SETTINGS,
    VALUE,
    workload,
    written_by_spark,
)
from tests.examples import seeds
from tests.rewrite.model import table_of, write
from tests.rewrite.test_rewriting import PLENTY, files_of, seen

FILES, PER_FILE, DAYS = 256, 100, 1_000
SIZE = 28 * PER_FILE
SMALL_FILES = replace(SETTINGS, target_bytes=SIZE, row_group_bytes=SIZE, open_bytes=0)


def _mixed() -> SimulatedTable:
    """Days and parts in no order."""
    random, rows = np.random.default_rng(5), FILES * PER_FILE
    return empty_table(SCHEMA).append(
        {
            KEY: np.arange(rows), DATE: random.integers(0, DAYS, rows),
            PART: random.integers(0, 100_000, rows), VALUE: random.random(rows),
        },
        PER_FILE, 0, PER_FILE,
    )  # fmt: skip


def _asked(seed: int, count: int) -> list[Fragment]:
    """Three of four queries ask for few parts, one for a quarter of the days."""
    random = np.random.default_rng(seed)
    return [
        ranges(number, number * DAY // 20, (DATE, int(random.integers(0, 750)), 250))
        if number % 4 == 3
        else ranges(number, number * DAY // 20, (PART, int(random.integers(0, 99_000)), 200))
        for number in range(count)
    ]


def _given(table: SimulatedTable, settings: Settings = SMALL_FILES) -> AdviceInput:
    files = table.file_table()
    sample = table.sample(np.arange(len(files)), 100)
    return AdviceInput(files, workload(_asked(1, 80)), settings, table.row_groups(), sample)


def test_bands_are_chosen_where_most_queries_ask_for_one_of_two_columns():
    """The next queries read as much of them as the plan says, and less than of a curve."""
    table = _mixed()
    advice = decide(_given(table))
    (action,) = [item.action for item in advice.actions]
    assert isinstance(action, Recluster) and action.ordering.tree is not None
    assert set(action.ordering.tree.bands or ()) == {DATE, PART}
    assert str(action.ordering.tree.leaves) in action.ordering.text(SCHEMA)
    later = workload(_asked(2, 400)).shapes
    before = reading(table, later, SMALL_FILES)[1]
    found = reading(table.apply(action, 0), later, SMALL_FILES)[1]
    assert 0.9 < found / before / (advice.cost_after.mid / advice.cost_now) < 1.1
    every = np.arange(FILES, dtype=np.int64)
    layout = Layout(best_of((SortColumn(DATE), SortColumn(PART))), SIZE, SIZE, every * 0)
    assert found < 0.9 * reading(table.laid_out(layout, every, 0), later, SMALL_FILES)[1]


def test_spark_gets_no_bands_to_write():
    """It ends files by their size, so that a file would hold rows of two bands."""
    advice = decide(_given(_mixed(), written_by_spark(SMALL_FILES)))
    assert advice.actions
    assert all(item.action.ordering.tree is None for item in advice.actions)


def _pool(table: SimulatedTable) -> Pool:
    every = np.arange(len(table.files))
    view = table_view(table.file_table(), table.row_groups(), table.sample(every, 100), SIZE)
    pool = build_pool(view, (DATE, PART))
    assert pool is not None
    return pool


def _skewed(random: np.random.Generator) -> SimulatedTable:
    """A column of which one value may fill several bands."""
    rows = 24 * PER_FILE
    common = random.random(rows) < random.choice([0.0, 0.4])
    return empty_table(SCHEMA).append(
        {
            KEY: np.arange(rows),
            DATE: np.where(common, 7, random.integers(0, random.choice([3, 400]), rows)),
            PART: random.integers(0, 1_000, rows), VALUE: random.random(rows),
        },
        PER_FILE, 0, PER_FILE,
    )  # fmt: skip


@pytest.mark.parametrize("seed", seeds(6))
def test_written_files_lie_in_one_band_and_follow_each_other_in_it(tmp_path: Path, seed: int):
    """DuckDB reads what was written; bands are counted from the rows, not from the tree."""
    random = np.random.default_rng(seed)
    table, count = _skewed(random), int(random.choice([2, 3, 4]))
    ordering = in_bands(_pool(table), DATE, PART, count)
    assert ordering is not None and 2 <= ordering.tree.leaves <= count
    columns = tuple(Column(field, name, "long") for field, name in ((KEY, "id"), (DATE, "day"),
                                                                     (PART, "part")))  # fmt: skip
    rows = np.stack([table.values[field] for field in (KEY, DATE, PART)], axis=1).tolist()
    files = [write(tmp_path / f"in{n}.parquet", columns, rows[n::2]) for n in range(2)]
    order = Order(tuple(Key(field) for field in ordering.tree.columns), tree=ordering.tree)
    path = f"file:{tmp_path}/x-NUMBER-ATTEMPT.parquet"
    task = Task(table_of(columns), tuple(files), order, (path,), 10_000, file_rows=PER_FILE)
    made = files_of(rewritten(task, None, PLENTY))
    assert seen(table_of(columns), made) == seen(table_of(columns), files)
    ends = duckdb.execute(
        "SELECT min(day), max(day), min(part), max(part), count(*) FROM "
        "read_parquet($1, filename=true) GROUP BY filename ORDER BY 1, 3",
        [[one.path.removeprefix("file:") for one in made]],
    ).fetchall()
    cuts = [cut.value for cut in ordering.tree.cuts]
    band = np.searchsorted(cuts, [[low, high] for low, high, *_ in ends], side="right")
    assert (band[:, 0] == band[:, 1]).all()
    for number in range(ordering.tree.leaves):
        own = sorted(one[2:] for one, at in zip(ends, band[:, 0], strict=True) if at == number)
        assert all(before[1] <= after[0] for before, after in pairwise(own))
    held = np.bincount(band[:, 0], [one[4] for one in ends])
    commonest = np.bincount(table.values[DATE]).max()
    assert held.max() <= held.sum() / count + commonest
