"""Small files are merged for their openings; where the queries have a key, a sort of the same files
costs little more and saves what they skip as well."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bench.replay.table import SimulatedTable, empty_table
from reconciler.advisor.advice import Settings
from reconciler.plan import reasons
from reconciler.plan.actions.rewrite import BinPack, Recluster
from reconciler.plan.ordering import Lexicographic
from reconciler.queries.shape import Workload
from reconciler.table.schema import Field, Schema, SortColumn
from tests.advisor.worlds import (
    DATE,
    DAY,
    KEY,
    PART,
    SCHEMA,
    SETTINGS,
    VALUE,
    advise,
    apply,
    range_query,
    window_cost,
    workload,
)

DEVICES, DAYS = 200, 14
MEASURES = range(10, 126)
WIDE = Schema(1, (*SCHEMA.fields, *(Field(n, f"m{n}", "double") for n in MEASURES)))
LARGE = replace(
    SETTINGS, target_bytes=512 << 20, row_group_bytes=128 << 20, target_auto=True,
    row_group_auto=True, open_bytes=1 << 20, now_ms=DAYS * DAY,
)  # fmt: skip


def _measured(files: int = 24, rows: int = 2_000) -> SimulatedTable:
    """Few wide files of a fleet of devices, whose numbers are anywhere in each."""
    random, count = np.random.default_rng(1), files * rows
    data = {
        KEY: np.arange(count),
        DATE: np.arange(count) * 1_000 // count,
        PART: random.integers(0, DEVICES, count),
        VALUE: random.random(count),
    }
    data |= {number: random.random(count) for number in MEASURES}
    return empty_table(WIDE).append(data, rows, 0, rows)


def _of_a_device(a_day: int, columns: int = 10) -> Workload:
    """Queries for some measures of one device."""
    count, random = a_day * DAYS, np.random.default_rng(2)
    projection = (VALUE, *MEASURES[:columns])
    return workload([
        range_query(place, PART, device, device, event_ms=place * DAYS * DAY // count,
                    projection=projection)
        for place, device in enumerate(random.integers(0, DEVICES, count).tolist())
    ])  # fmt: skip


def _kinds(table: SimulatedTable, work: Workload, settings: Settings = LARGE) -> list[type]:
    return [type(item.action) for item in advise(table, work, settings).actions]


def test_files_that_are_merged_anyway_are_sorted_where_that_saves_more():
    table, work = _measured(), _of_a_device(5)
    unsampled = advise(table, work, LARGE, rows_per_file=0)
    assert len(unsampled.wanted_sketches) == len(table.files)  # only rows tell what a sort saves
    advice = advise(table, work, LARGE)
    (item,) = advice.actions
    assert isinstance(item.action, Recluster)
    assert item.action.ordering == Lexicographic((SortColumn(PART),))
    merge = next(r for r in advice.rejected if r.reason == reasons.OTHER_KEY)
    assert (merge.files, merge.cost) == (len(table.files), item.predicted.cost)
    assert item.predicted.saving_low > merge.saving_low + 0.25 * merge.cost
    after = apply(table, advice, LARGE)
    merged = apply(table, unsampled, LARGE)
    assert window_cost(after, work, LARGE) < 0.5 * window_cost(merged, work, LARGE)


def test_a_sort_that_pays_by_openings_and_skipped_rows_together_is_found():
    """Neither a merge nor the skipped bytes pay on their own."""
    table, work = _measured(), _of_a_device(1, columns=60)
    advice = advise(table, work, LARGE)
    assert [type(item.action) for item in advice.actions] == [Recluster]
    alone = {r.reason: r for r in advice.rejected if r.files == len(table.files)}
    assert alone[reasons.BELOW_COST].saving_low < advice.actions[0].predicted.cost


@pytest.mark.parametrize("a_day, columns", [(2, 1), (5, 1)])
def test_a_merge_stays_where_queries_read_too_little_to_skip(a_day, columns):
    table, work = _measured(), _of_a_device(a_day, columns)
    assert not len(advise(table, work, LARGE, rows_per_file=0).wanted_sketches)
    assert _kinds(table, work) == [BinPack]


def test_appends_to_a_sorted_file_are_not_sorted_into_it_each_time():
    """A day's few small files beside the run that a plan of ours made: they are merged or left."""
    work = _of_a_device(5)
    table = apply(_measured(), advise(_measured(), work, LARGE), LARGE, plan="p-1")
    random, rows = np.random.default_rng(3), 2_000
    for _ in range(5):
        fresh = {f.field_id: random.integers(0, DEVICES, rows) for f in WIDE.fields}
        table = table.append(fresh, rows, LARGE.now_ms, rows)
    for item in advise(table, work, LARGE).actions:
        assert not any("layout-p-1" in path for path in item.action.inputs)
