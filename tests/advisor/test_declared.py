"""What is sorted by a Declared key: overlapping files, files that are not sorted inside, and files
of other sizes."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from bench.replay.table import SimulatedTable, empty_table
from reconciler.plan.ordering import Lexicographic
from reconciler.table.schema import SortColumn
from tests.advisor.worlds import (
    DATE,
    KEY,
    PART,
    SCHEMA,
    SETTINGS,
    VALUE,
    advise,
    range_workload,
    workload,
)

CLUSTERED = replace(
    SETTINGS, mode="Declared", ordering=Lexicographic((SortColumn(KEY),)), min_input_files=2
)


def _arrivals(random: np.random.Generator, sets: int) -> SimulatedTable:
    """Return files of several row groups, sorted inside or not, alone or overlapping."""
    table = empty_table(SCHEMA)
    for low in range(0, 100 * sets, 100):
        for _ in range(int(random.choice([1, 1, 2, 3]))):
            rows = int(random.choice([20, 50, 100, 400]))
            key = random.integers(low, low + 50, rows)
            others = {one: random.integers(0, 9, rows) for one in (DATE, PART)}
            key = np.sort(key) if random.random() < 0.5 else key
            values = {KEY: key, **others, VALUE: random.random(rows)}
            table = table.append(values, rows, 0, rows // int(random.choice([1, 2, 4])))
    return table


@pytest.mark.parametrize("seed", range(12))
def test_no_file_is_in_two_actions(seed: int) -> None:
    """A small file beside overlapping ones is sorted with them, and neither alone because its own
    row groups overlap, nor for other sizes."""
    random = np.random.default_rng(seed)
    table = _arrivals(random, sets=6)
    size = int(table.file_table().bytes.sum())
    target = size // int(random.choice([1, 3, 10]))
    asked = workload(range_workload(random, KEY, 40, 30, 600, weight=50.0))
    chosen = replace(
        CLUSTERED, target_bytes=target, row_group_bytes=target // 16, row_group_auto=seed % 2 == 0,
        most_bytes=size // 2 if seed % 3 == 0 else None,
    )  # fmt: skip
    planned = advise(table, asked, chosen, rows_per_file=64)
    count = Counter(path for item in planned.actions for path in item.action.inputs)
    assert planned.actions and max(count.values()) == 1
