"""Read cost, utilization, rho and throughput: what the gate's numbers are made of."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reconciler.advisor.simulate.demand import demands
from reconciler.plan.prediction_interval import calibrate
from reconciler.queries.read_cost import read_shape, scan_amplification
from reconciler.queries.rewrite_cost import (
    KEY_TEXT,
    PRIOR_RHO,
    Rows,
    RunTimes,
    Throughput,
    ThroughputSample,
    rho_from,
    run_times,
    throughput_from,
)
from reconciler.queries.row_filter import matches
from reconciler.queries.table_view import (
    CHUNK_OPENS,
    OPEN_BYTES,
    ROW_GROUP_OPENS,
    projected_bytes,
    table_view,
)
from reconciler.table.filetable import UNKNOWN
from tests.advisor.worlds import (
    DATE,
    DAY,
    KEY,
    PART,
    ROW_BYTES,
    SCHEMA,
    VALUE,
    arrived,
    range_query,
    workload,
)
from tests.examples import examples


def one_of(column: int, low: int, high: int, projection: tuple[int, ...] = (VALUE,)):
    work = workload([range_query(0, column, low, high, event_ms=0, projection=projection)])
    (demand,) = demands(work, SCHEMA, 7 * DAY)
    return demand


def test_read_cost_is_the_projected_bytes_of_surviving_row_groups():
    table = arrived(np.random.default_rng(0), rows=4_000, rows_per_file=1_000, jitter=1)
    table = replace(table, files=tuple(replace(f, group_rows=250) for f in table.files))
    view = table_view(table.file_table(), table.row_groups(), None, 1 << 20)
    reading = read_shape(view, one_of(KEY, 1_300, 1_400))
    # ids 1300..1400 lie in the second row group of the second file: 250 rows of id and amount.
    assert reading.bytes.tolist() == pytest.approx([250 * 16], rel=1e-4)
    assert reading.files.tolist() == [1.0]
    row_group = OPEN_BYTES * (ROW_GROUP_OPENS + 2 * CHUNK_OPENS)
    cost = 250 * 16 + OPEN_BYTES + row_group
    assert reading.cost.tolist() == pytest.approx([cost], rel=1e-4)


def test_without_a_footer_the_share_read_is_at_least_one_row_group_and_at_most_the_file():
    table = arrived(np.random.default_rng(0), rows=4_000, rows_per_file=1_000, jitter=1)
    file_bytes = 1_000 * ROW_BYTES
    for row_group, share in ((file_bytes // 4, 0.25), (file_bytes, 1.0)):
        view = table_view(table.file_table(), None, None, row_group)
        reading = read_shape(view, one_of(KEY, 1_300, 1_310))
        assert reading.bytes.tolist() == pytest.approx([share * 1_000 * 16], rel=1e-4)
        assert view.label == "bound"


def test_delete_files_cost_their_bytes_and_an_open_each():
    table = arrived(np.random.default_rng(0), rows=2_000, rows_per_file=1_000, jitter=1)
    files = table.file_table()
    loaded = replace(files, delete_files=np.array([2, 0]), delete_bytes=np.array([5_000, 0]))
    demand = one_of(KEY, 0, 10)
    clean = read_shape(table_view(files, table.row_groups(), None, 1 << 20), demand)
    dirty = read_shape(table_view(loaded, table.row_groups(), None, 1 << 20), demand)
    assert dirty.bytes[0] - clean.bytes[0] == pytest.approx(5_000, rel=1e-3)
    assert dirty.cost[0] - clean.cost[0] == pytest.approx(5_000 + 2 * OPEN_BYTES, rel=1e-3)


def test_missing_column_sizes_are_estimated_from_the_other_files():
    files = arrived(np.random.default_rng(0), rows=4_000, rows_per_file=1_000).file_table()
    known = projected_bytes(files, (DATE, VALUE))
    holes = files.column_sizes[VALUE].copy()
    holes[1] = UNKNOWN
    partial = replace(files, column_sizes={**files.column_sizes, VALUE: holes})
    assert projected_bytes(partial, (DATE, VALUE)) == pytest.approx(known)
    nothing = replace(files, column_sizes={})
    assert (projected_bytes(nothing, (DATE, VALUE)) > 0).all()
    assert (projected_bytes(nothing, tuple(SCHEMA.by_id)) <= files.bytes).all()


@settings(max_examples=examples(40), deadline=None)
@given(
    column=st.sampled_from([KEY, DATE, PART]),
    low=st.integers(0, 1_000),
    width=st.integers(0, 50_000),
    seed=st.integers(0, 5),
    with_sample=st.booleans(),
)
def test_needed_never_exceeds_read_and_matching_rows_are_always_read(
    column, low, width, seed, with_sample
):
    table = arrived(np.random.default_rng(seed), rows=3_000, rows_per_file=300, jitter=80)
    sample = table.sample(range(0, 10, 2), 100) if with_sample else None
    view = table_view(table.file_table(), table.row_groups(), sample, 300 * ROW_BYTES)
    demand = one_of(column, low, low + width)
    reading = read_shape(view, demand)
    assert (reading.matching <= reading.bytes + 1.0).all()
    assert (reading.saving >= 0).all()
    hit = matches(demand.predicate, demand.literals, table.values, {})
    files_with_rows = sum(hit[0][file.rows].any() for file in table.files)
    assert reading.files[0] >= files_with_rows


def test_scan_amplification_is_one_when_only_matching_row_groups_are_read():
    demand = one_of(KEY, 0, 10)
    read, matching = [np.array([400.0])], [np.array([100.0])]
    assert scan_amplification([demand], read, matching, [50.0]) == pytest.approx(4.0)
    # A query of a few rows cannot read less than one row group.
    assert scan_amplification([demand], read, [np.array([1.0])], [400.0]) == pytest.approx(1.0)
    assert np.isnan(scan_amplification([], [], [], []))


def test_rho_is_the_geometric_mean_with_the_prior_counted_once():
    assert rho_from([]) == PRIOR_RHO
    assert rho_from([float("nan"), -1.0]) == PRIOR_RHO
    measured = rho_from([9.0])
    assert measured.value == pytest.approx(6.0)
    assert measured.label == "measured"
    assert rho_from([9.0] * 50).value == pytest.approx(9.0, rel=0.05)


def test_throughput_is_the_median_and_an_unseen_kind_scales_from_the_seenone_of():
    prior = Throughput()
    model = prior.cpu_seconds("sort", 10**8, 20)
    runs = [
        ThroughputSample("sort", 10**8, times * model, 2 * times * model, 20)
        for times in (1.5, 2.0, 90.0)
    ]
    learned = throughput_from(runs)
    assert learned.cpu_seconds("sort", 10**8, 20) == pytest.approx(2.0 * model)
    assert learned.seconds("sort", 10**8, 20) == pytest.approx(4.0 * model)
    assert learned.cpu_seconds("pack", 5_000, 3) == pytest.approx(
        2.0 * prior.cpu_seconds("pack", 5_000, 3)
    )
    assert (prior.label, learned.label) == ("model", "measured")
    assert throughput_from([ThroughputSample("sort", 0, 1.0, 1.0)]) == prior


def test_runs_on_other_tables_forecast_the_first_plan_of_a_table():
    """The start of Spark, the part beside the tasks of each group, and the speed of the machine."""
    runs = [
        RunTimes(start, beside, groups, tasks=6.0, cpu=6.0, model=4.0)
        for start, beside, groups in ((8.0, 4.0, 2), (None, 9.0, 3), (10.0, -1.0, 1))
    ]
    assert run_times([run.document() for run in runs]) == tuple(runs)
    found, prior = throughput_from([], runs), Throughput()
    assert found.start_seconds == pytest.approx(8.0)  # of 4.5, 8 and 10
    assert found.group_seconds == pytest.approx((0.5 + 2.0) / 2)  # of 0, 0.5, 2 and 3
    assert found.cpu_seconds("pack", 10**7) == pytest.approx(1.5 * prior.cpu_seconds("pack", 10**7))
    assert found.plan_seconds(5.0, 4) == pytest.approx(8.0 + 4 * 1.25 + 5.0)
    own = throughput_from([ThroughputSample("sort", 10**8, 60.0, 60.0, 20)], runs)
    assert own.start_seconds == found.start_seconds
    assert own.cpu_scale["sort"] != found.cpu_scale["sort"]
    assert [each.label for each in (prior, found, own)] == ["model", "other tables", "measured"]


MEASURED = [
    ("sort", 173.3e6, 55, 50.4), ("sort", 173.3e6, 55, 46.7), ("sort", 68.9e6, 60, 18.7),
    ("sort", 57.9e6, 60, 16.9), ("sort", 41.6e6, 22, 11.1), ("sort", 16.2e6, 15, 7.1),
    ("sort", 9.0e6, 55, 5.2), ("pack", 33.7e6, 41, 6.6), ("pack", 11.5e6, 14, 2.4),
    ("pack", 4.1e6, 5, 1.0), ("pack", 2.5e6, 55, 0.9),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "size", "files", "cpu"), MEASURED)
def test_before_any_outcome_cpu_is_forecast_within_a_quarter_of_what_rewrites_took(
    kind, size, files, cpu
):
    assert Throughput().cpu_seconds(kind, int(size), files) == pytest.approx(cpu, rel=0.25)


REWRITES = {
    "orders": (532_120, 5, 0, 20, True, 2.36), "nulls": (651_240, 3, 0, 18, True, 3.21),
    "skewed": (495_100, 3, 0, 20, True, 2.29), "prices": (635_835, 3, 0, 15, True, 2.53),
    "unnamed_sizes": (1_156_472, 5, 0, 8, True, 4.42),
    "many_small": (85_200, 3, 0, 200, True, 0.52),
    "trips": (551_166, 5, 0, 28, False, 2.46), "clicks": (927_472, 4, 0, 26, False, 3.14),
    "nested": (207_960, 4, 0, 15, False, 1.0), "low_cardinality": (504_963, 3, 0, 19, False, 1.56),
    "coupons": (522_558, 3, 20 * KEY_TEXT, 18, False, 5.72),
    "two_columns": (715_700, 3, 0, 25, False, 3.44),
    "16 columns and text": (180_000, 16, 27, 12, False, 1.62),
    "long text": (240_000, 4, 60, 12, False, 1.28),
    "lineitem": (6_001_215, 16, 27, 55, True, 48.5), "o": (1_500_000, 9, 49, 60, True, 18.7),
}  # fmt: skip
"""Kinds of tables that were sorted: rows, columns, bytes of text in each row as it counts, files,
whether the JVM is fresh, CPU seconds on a shared machine."""


def test_known_rows_forecast_the_cpu_of_many_kinds_of_tables():
    errors = []
    for count, columns, text, files, first, cpu in REWRITES.values():
        rows = Rows(count, count * text, columns)
        errors.append(abs(Throughput().cpu_seconds("sort", 0, files, first, rows) / cpu - 1.0))
    assert np.median(errors) < 0.25
    assert max(errors) < 0.55


def test_a_key_of_text_costs_more_than_text_beside_it_and_columns_cost_each():
    def cpu(text, columns=3):
        return Throughput().cpu_seconds("sort", 0, 1, False, Rows(100_000, 100_000 * text, columns))

    assert cpu(20 * KEY_TEXT) - cpu(0) == pytest.approx(KEY_TEXT * (cpu(20) - cpu(0)))
    assert cpu(0, 16) > 2.0 * cpu(0, 3)


def test_one_jvm_warms_up_once():
    """21 partitions of a table of 2.2 M rows in 252 files took 22 CPU s in one JVM."""
    one = [Throughput().cpu_seconds("sort", 55_000_000 // 21, 12, n == 0) for n in range(21)]
    assert sum(one) == pytest.approx(22, rel=0.25)
    model = Throughput()
    alone, after = (model.cpu_seconds("sort", 1 << 20, 4, first) for first in (True, False))
    slow = [
        ThroughputSample("sort", 1 << 20, 2.0 * alone, 1.0, 4, True),
        ThroughputSample("sort", 1 << 20, 2.0 * after, 1.0, 4, False),
    ]
    assert throughput_from(slow).cpu_scale["sort"] == pytest.approx(2.0)


def test_intervals_are_fixed_below_five_outcomes_and_quantiles_after():
    young = calibrate([1.0, 1.1])
    assert (young.low, young.high, young.label) == (0.8, 1.25, "uncalibrated")
    grown = calibrate([0.9, 1.0, 1.0, 1.1, 1.2, float("inf"), 0.0])
    assert grown.label == "calibrated"
    interval = grown.around(200.0)
    assert interval.low < 200.0 <= interval.high
    assert interval.mid == 200.0
