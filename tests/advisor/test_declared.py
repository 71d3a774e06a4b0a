"""What is sorted by a Declared key: overlapping files, files that are not sorted inside, and files
of other sizes."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from bench.replay.table import SimulatedTable, empty_table
from reconciler.advisor.advice import AdviceInput
from reconciler.advisor.choose.declared import declared_what_if
from reconciler.advisor.decide import decide
from reconciler.advisor.simulate.layout import UNKNOWN_FILES
from reconciler.advisor.situation import situation_of
from reconciler.plan import reasons
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


def _base_and_stragglers(random: np.random.Generator) -> SimulatedTable:
    """Return sorted files, and a few small or wide ones over them."""
    table = empty_table(SCHEMA)
    for number in range(5 + int(random.integers(1, 6))):
        base = number < 5
        rows = 400 if base else int(random.choice([10, 30, 400]))
        low = 200 * (number if base else int(random.integers(0, 5)))
        key = random.integers(low, low + int(random.choice([1, 100, 300])), rows)
        others = {one: random.integers(0, 9, rows) for one in (DATE, PART)}
        values = {KEY: np.sort(key) if base else key, **others, VALUE: random.random(rows)}
        table = table.append(values, rows, 0, rows)
    return table


def test_a_file_that_an_action_rewrites_does_not_wait_and_none_waits_twice() -> None:
    waiting = 0
    for seed in range(16):
        random = np.random.default_rng(seed)
        key = (SortColumn(KEY), SortColumn(DATE))[: 1 + seed % 2]
        table = _base_and_stragglers(random)
        chosen = replace(
            CLUSTERED, ordering=Lexicographic(key), min_input_files=2 + seed % 4,
            target_bytes=int(table.file_table().bytes.sum()) // 3,
        )  # fmt: skip
        asked = workload(range_workload(random, KEY, 40, 30, 600, weight=50.0))
        planned = advise(table, asked, chosen, rows_per_file=64)
        moved = {path for item in planned.actions for path in item.action.inputs}
        entries = [one for one in planned.rejected if one.reason == reasons.DRIFT_WAITS]
        left = [path for one in entries for path in one.inputs]
        assert not moved & set(left) and len(set(left)) == len(left)
        assert all(one.inputs for one in entries)
        waiting += len(entries)
    assert waiting


def test_what_waits_in_many_partitions_is_one_line() -> None:
    """Three partitions, each with a sorted base and a wide small file."""
    table = empty_table(SCHEMA)
    for low in (0, 1, 2):
        for rows in (400, 400, 10):
            key = np.sort(np.arange(rows) if rows > 10 else np.arange(0, 400, 40))
            key = key + 400 * (len(table.files) % 3 == 1)
            part = np.full(rows, low)
            values = {KEY: key, DATE: part, PART: part, VALUE: np.zeros(rows)}
            table = table.append(values, rows, 0, rows)
    files = table.file_table()
    parted = replace(
        files, partitions=tuple((0, (number,)) for number in range(3)),
        partition=np.repeat(np.arange(3, dtype=np.int32), 3),
    )  # fmt: skip
    chosen = replace(CLUSTERED, min_input_files=5, target_bytes=int(files.bytes.max()))
    planned = decide(AdviceInput(parted, workload(()), chosen, table.row_groups()))
    (entry,) = [one for one in planned.rejected if one.reason == reasons.DRIFT_WAITS]
    assert entry.files == 3 and entry.bytes == int(files.bytes.min()) * 3


def test_files_of_which_nothing_is_known_are_left_in_their_number_and_not_as_they_were() -> None:
    """Small inputs would else be taken for small files that the rewrite leaves."""
    table = _arrivals(np.random.default_rng(0), sets=4)
    situation = situation_of(AdviceInput(table.file_table(), workload(), CLUSTERED))
    rows = np.arange(len(situation.table))
    made = declared_what_if(situation, rows, CLUSTERED.ordering)
    as_before = replace(made, views=(situation.part(rows),), label=UNKNOWN_FILES, files_out=2)
    left = as_before.left(1 << 20)
    assert len(left.bytes) == len(left.records) == 2
    assert abs(int(left.bytes.sum()) - int(situation.table.bytes.sum())) < 2
    assert not left.columns
