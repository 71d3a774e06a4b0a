"""Many sizes of one arrangement at once, against rows that are really sorted and cut."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bench.replay.table import empty_table
from reconciler.advisor.simulate.grid import SizedRows, in_any_size, simulate_sizes
from reconciler.advisor.simulate.layout import Layout, Sizes
from reconciler.advisor.simulate.pool import Pool, build_pool
from reconciler.advisor.simulate.sampled import sampled
from reconciler.advisor.simulate.target import target_partitions
from reconciler.plan.ordering import ARRIVAL, Hilbert, Lexicographic, Ordering
from reconciler.queries import transforms
from reconciler.queries.demanded import demands
from reconciler.queries.shape import Shape
from reconciler.queries.table_view import table_view
from reconciler.table.row_group_bytes import row_groups_of
from reconciler.table.schema import PartitionField, PartitionSpec, SortColumn
from tests.advisor.worlds import (
    DATE,
    DAY,
    KEY,
    PART,
    ROW_BYTES,
    SCHEMA,
    arrived,
    range_workload,
    workload,
)

ROWS = 48_000
NONE = PartitionSpec(0)
MONTH = PartitionSpec(7, (PartitionField(DATE, 1000, "month", "day_month"),))
BUCKET = PartitionSpec(8, (PartitionField(PART, 1000, "bucket[8]", "part_bucket"),))
SIZES = (
    Sizes(ROWS * ROW_BYTES, ROWS * ROW_BYTES // 8),
    Sizes(ROWS * ROW_BYTES // 8, ROWS * ROW_BYTES // 8),
    Sizes(ROWS * ROW_BYTES // 4, ROWS * ROW_BYTES // 24),
)


@pytest.fixture(scope="module")
def world() -> tuple[dict[int, np.ndarray], Pool, Pool, tuple[Shape, ...]]:
    """All rows, a pool of all of them, one of every 48th, and the queries."""
    random = np.random.default_rng(5)
    table = arrived(random, ROWS, 4_000, days=700, jitter=60)
    work = workload(
        range_workload(random, DATE, 30, 20, 700),
        range_workload(random, PART, 20, 2_000, 100_000, start=100),
    )
    pools = []
    for rows in (4_000, 4_000 // 48):
        sample = table.sample(np.arange(12), rows)
        view = table_view(table.file_table(), table.row_groups(), sample, 1 << 20)
        pools.append(build_pool(view, (KEY, DATE, PART), ROWS))
    whole, thin = pools
    assert whole is not None and thin is not None and len(whole) == ROWS
    return dict(table.values), whole, thin, demands(work, SCHEMA, 7 * DAY)


def _rows(pool: Pool, spec: PartitionSpec, ordering: Ordering) -> SizedRows:
    return in_any_size(pool, spec, ordering, thin=pool, simulated=(SIZES[2], SIZES[0]))


def _key(*columns: int) -> tuple[SortColumn, ...]:
    return tuple(SortColumn(column) for column in columns)


def _brute(
    values: dict[int, np.ndarray],
    spec: PartitionSpec,
    key: tuple[int, ...],
    size: Sizes,
    wanted: tuple[Shape, ...],
) -> tuple[float, int, int]:
    """Row groups read over the horizon, files and row groups, with plain loops."""
    part = np.zeros(ROWS, dtype=np.int64)
    for field in spec.fields:
        source = SCHEMA.by_id[field.source_id].type
        part = transforms.apply(field.transform, source, values[field.source_id])
    order = np.lexsort(
        (np.arange(ROWS), *(values[c] for c in reversed(key)), part)
    )  # fmt: skip
    groups, files = [], 0
    for value in np.unique(part):
        mine = order[part[order] == value]
        count = max(1, int(len(mine) * ROW_BYTES / size.target_bytes + 0.5))
        files += count
        for file in np.array_split(mine, count):
            groups += np.array_split(
                file, int(row_groups_of(len(file) * ROW_BYTES, size.row_group_bytes))
            )
    read = 0.0
    for demand in wanted:
        column = next(c for c in (DATE, PART) if c in demand.projection)
        low, high = (np.asarray(slot) for slot in demand.literals)
        for group in groups:
            least, most = values[column][group].min(), values[column][group].max()
            read += float(demand.executions[(low <= most) & (high >= least)].sum())
    return read, files, len(groups)


@pytest.mark.parametrize("spec", [NONE, MONTH], ids=["unpartitioned", "month"])
@pytest.mark.parametrize("key", [(), (DATE,), (PART,), (PART, DATE)], ids=str)
def test_all_rows_read_what_rows_really_sorted_and_cut_do(world, spec, key):
    values, pool, _, wanted = world
    ordering = Lexicographic(_key(*key)) if key else ARRIVAL
    grid = simulate_sizes(_rows(pool, spec, ordering), SIZES, wanted, widening=0.0)
    for number, size in enumerate(SIZES):
        read, files, groups = _brute(values, spec, key, size, wanted)
        assert grid.files[number] == files
        assert grid.row_groups[number] == pytest.approx(groups, abs=files)
        assert grid.readings.groups[number].sum() == pytest.approx(read, rel=0.02)


def test_one_size_reads_what_the_what_if_of_one_layout_reads(world):
    _, pool, _, wanted = world
    ordering = Hilbert(_key(DATE, PART))
    grid = simulate_sizes(_rows(pool, NONE, ordering), SIZES[:1], wanted)
    layout = Layout(ordering, *_plain(SIZES[0]), np.zeros(12, dtype=np.int64))
    files = sampled(pool, layout).views[0]
    assert files.row_groups is not None
    assert grid.row_groups[0] == len(files.row_groups)
    assert grid.bytes_written == pytest.approx(float(files.files.bytes.sum()), rel=0.01)


def _plain(size: Sizes) -> tuple[int, int]:
    return size.target_bytes, size.row_group_bytes


def test_a_bucket_prunes_only_by_its_partition_values(world):
    """Rows are sorted by day within buckets of another column: a range of parts prunes nothing."""
    _, pool, _, wanted = world
    grid = simulate_sizes(_rows(pool, BUCKET, Lexicographic(_key(DATE))), SIZES[:1], wanted)
    of_part = [number for number, demand in enumerate(wanted) if PART in demand.projection]
    executions = sum(float(wanted[number].executions.sum()) for number in of_part)
    read = grid.readings.groups[0][of_part].sum()
    assert read == pytest.approx(executions * grid.row_groups[0], rel=0.02)


def test_a_thin_sample_is_corrected_and_says_how_thin_it_is(world):
    """Without the correction, few rows in a row group flatter a layout."""
    _, pool, thin, wanted = world
    ordering = Lexicographic(_key(PART))
    exact = simulate_sizes(_rows(pool, NONE, ordering), SIZES, wanted, widening=0.0)
    bare = simulate_sizes(_rows(thin, NONE, ordering), SIZES, wanted, widening=0.0)
    widened = simulate_sizes(_rows(thin, NONE, ordering), SIZES, wanted)
    of_date = [number for number, demand in enumerate(wanted) if DATE in demand.projection]
    true = exact.readings.bytes[:, of_date].sum()
    assert bare.readings.bytes[:, of_date].sum() <= widened.readings.bytes[:, of_date].sum()
    assert widened.readings.bytes[:, of_date].sum() == pytest.approx(true, rel=0.1)
    assert thin.columns[PART].ranks.size / thin.weight.sum() == pytest.approx(1 / 48, rel=0.05)
    assert widened.sampled_rows[2] == pytest.approx(len(thin) / widened.row_groups[2], rel=0.3)


@pytest.mark.parametrize("rows_each", [750, 3_000])
@pytest.mark.parametrize("noise", ["errors", "counts"])
def test_row_groups_reach_as_far_as_all_rows_in_columns_that_go_with_the_key(noise, rows_each):
    """Few rows of a bell are far from its middle: 40 to 160 of 750 to 3,000 reach 0.73 to 0.88 as
    far, and even columns hardly less. Checked by all rows, sorted by numpy."""
    random, rows = np.random.default_rng(4), 240_000
    day = random.integers(0, 60_000, rows)
    beside = random.normal(0.0, 3_000.0, rows) if noise == "errors" else random.poisson(40, rows)
    together = day + beside if noise == "errors" else day // 1_500 + beside
    values = {KEY: random.permutation(rows), DATE: day, PART: together.astype(np.int64),
              4: np.zeros(rows)}  # fmt: skip
    table = empty_table(SCHEMA).append(values, 20_000, 0, 20_000)
    sample = table.sample(np.arange(12), 20_000 // 18)
    view = table_view(table.file_table(), table.row_groups(), sample, 1 << 20)
    pool = build_pool(view, (KEY, DATE, PART), rows)
    assert pool is not None
    layout = Layout(Lexicographic((SortColumn(DATE),)), rows * ROW_BYTES, rows_each * ROW_BYTES,
                    np.zeros(12, dtype=np.int64))  # fmt: skip
    (view,) = sampled(pool, layout).views
    assert view.row_groups is not None
    assert len(view.row_groups) == pytest.approx(rows / rows_each, rel=0.2)
    order = np.argsort(day, kind="stable")
    starts = np.cumsum(view.row_groups.records) - view.row_groups.records
    for field, most in ((PART, 0.07), (DATE, 0.03), (KEY, 0.03)):
        known, own = np.sort(values[field]), view.row_groups.columns[field]
        sorted_by_day = values[field][order]
        real = [reduce.reduceat(sorted_by_day, starts) for reduce in (np.minimum, np.maximum)]
        reach, found = (
            np.searchsorted(known, high, "right") - np.searchsorted(known, low, "left")
            for low, high in (real, (own.lower, own.upper))
        )
        assert float(found.mean() / reach.mean()) == pytest.approx(1.0, abs=most), field


def test_partitions_of_a_sample_are_those_of_its_values(world):
    values, pool, _, _ = world
    target = target_partitions(pool, MONTH)
    months = transforms.apply("month", "date", values[DATE])
    assert sorted(value for (value,) in target.values) == sorted(np.unique(months).tolist())
    assert np.bincount(target.number).sum() == ROWS


def test_row_groups_that_hold_only_nulls_of_a_column_are_skipped():
    """Every row with a large key has no date, so that slices by key have no range of dates."""
    random = np.random.default_rng(5)
    table = arrived(random, ROWS, ROWS // 8, days=400, jitter=400)
    sample = table.sample(np.arange(8), 1_000)
    empty = sample.values[KEY] > ROWS // 2
    sample = replace(sample, null=sample.null | {DATE: empty})
    view = table_view(table.file_table(), table.row_groups(), sample, 1 << 20)
    pool, work = build_pool(view, (KEY, DATE), 8_000), range_workload(random, DATE, 20, 40, 400)
    assert pool is not None
    rows = _rows(pool, NONE, Lexicographic((SortColumn(KEY),)))
    wanted = demands(workload(work), SCHEMA, 7 * DAY)
    readings = simulate_sizes(rows, SIZES, wanted).readings
    everything = ROWS * ROW_BYTES * sum(float(demand.weight.sum()) for demand in wanted)
    assert 0 < readings.window[0].sum() < 0.6 * everything
