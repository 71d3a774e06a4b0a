"""The leaves that the report draws, against rows and queries that the test evaluates itself."""

from __future__ import annotations

import numpy as np
import pytest

from reconciler.queries.shape import Shape, Workload, unrecorded_shape
from reconciler.render.leaf_boxes import boxes, leaf_bytes, leaf_map
from reconciler.table.cut_tree import Cut, Tree, made
from reconciler.table.sample import RowSample
from tests.advisor.worlds import DATE, PART, arrived, between

ROWS = 4_000
DAY_500, PART_300, PART_700 = Cut(DATE, 500), Cut(PART, 30_000), Cut(PART, 70_000)
TREE = made((DAY_500, (PART_300, None, None), (PART_700, None, None)), [PART, 0, 0, DATE])


def leaf_of(day: np.ndarray, part: np.ndarray) -> np.ndarray:
    early = np.where(part < 30_000, 0, 1)
    return np.where(day < 500, early, np.where(part < 70_000, 2, 3))


def queries(column: int, low: np.ndarray, width: int) -> Shape:
    weight = np.arange(1.0, len(low) + 1.0)
    return unrecorded_shape(f"by {column}", between(column), (), (low, low + width), weight, weight)


def test_bytes_and_reads_of_leaves_are_those_of_rows_and_queries() -> None:
    random = np.random.default_rng(5)
    table = arrived(random, rows=ROWS, rows_per_file=200)
    day, part = table.values[DATE], table.values[PART]
    none = np.zeros(ROWS, dtype=bool)
    sample = RowSample(
        {DATE: day, PART: part}, {DATE: none, PART: none}, np.ones(ROWS),
        np.arange(ROWS, dtype=np.int64) // 200,
    )  # fmt: skip
    days = queries(DATE, random.integers(0, 1000, 30), 20)
    parts = queries(PART, random.integers(0, 100_000, 30), 900)
    found = leaf_map(TREE, table.file_table(), sample, Workload((days, parts), 0, 1))
    held = np.bincount(leaf_of(day, part), minlength=4) / ROWS
    assert found.bytes / found.bytes.sum() == pytest.approx(held, abs=1e-3)
    weight = days.weight.sum() + parts.weight.sum()
    low, high = days.literals
    early = days.weight[low < 500].sum(), days.weight[high >= 500].sum()
    low, high = parts.literals
    bands = [low < 30_000, high >= 30_000, low < 70_000, high >= 70_000]
    expected = [early[n // 2] + parts.weight[band].sum() for n, band in enumerate(bands)]
    assert found.reads * weight == pytest.approx(np.array(expected))
    assert found.columns == ("day", "part") and found.sorted_by == ("part", "", "", "day")


def test_files_without_sampled_rows_are_where_their_bounds_are() -> None:
    random = np.random.default_rng(6)
    table = arrived(random, rows=ROWS, rows_per_file=100, jitter=1)
    tree = made((DAY_500, None, None), [0, 0])
    held = leaf_bytes(tree, table.file_table(), None)
    live = table.file_table().live_bytes
    assert held.sum() == pytest.approx(live.sum())
    assert held[0] == pytest.approx(live[: len(live) // 2].sum(), rel=0.06)


@pytest.mark.parametrize("seed", range(4))
def test_boxes_fill_the_square_in_proportion_to_bytes(seed: int) -> None:
    random = np.random.default_rng(seed)
    tree = _random_tree(random, 40)
    held = random.integers(0, 5, tree.leaves) * random.random(tree.leaves)
    held[0] += 1.0
    found = boxes(tree, held)
    assert found[:, 2] * found[:, 3] == pytest.approx(held / held.sum())
    points = random.random((500, 2))
    inside = (points[:, None] >= found[:, :2]) & (points[:, None] < found[:, :2] + found[:, 2:])
    assert (inside.all(axis=2).sum(axis=1) == 1).all()


def _random_tree(random: np.random.Generator, leaves: int) -> Tree:
    def node(low: int, high: int, count: int):
        if count == 1:
            return None
        left = int(random.integers(1, count))
        middle = low + (high - low) * left // count
        return Cut(PART, middle), node(low, middle, left), node(middle, high, count - left)

    return made(node(0, 1 << 40, leaves), [0] * leaves)
