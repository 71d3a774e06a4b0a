"""Read cost, utilization, rho and throughput: what the gate's numbers are made of."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reconciler.plan.prediction_interval import calibrate
from reconciler.queries.demanded import demands
from reconciler.queries.read_cost import read_shape, scan_amplification
from reconciler.queries.rewrite_cost import (
    KEY_TEXT,
    PRIOR_RHO,
    SPARK_SECONDS,
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
    table = replace(table, files=tuple(f.in_groups(250) for f in table.files))
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
    """The start of Java, the part beside the tasks of each group, and the speed of the machine."""
    runs = [
        RunTimes(start, beside, groups, tasks=6.0, cpu=6.0, model=4.0)
        for start, beside, groups in ((8.0, 4.0, 2), (None, 9.0, 3), (10.0, -1.0, 1))
    ]
    assert run_times([run.document() for run in runs]) == tuple(runs)
    found, prior = throughput_from([], runs), Throughput()
    assert found.start_seconds == pytest.approx(8.0)  # of 2, 8 and 10
    assert found.group_seconds == pytest.approx((0.5 + 2.0) / 2)  # of 0, 0.5, 2 and 3
    assert found.cpu_seconds("pack", 10**7) == pytest.approx(1.5 * prior.cpu_seconds("pack", 10**7))
    assert found.plan_seconds(5.0, 4) == pytest.approx(8.0 + 4 * 1.25 + 5.0)
    assert found.plan_seconds(5.0, 4, 1) == pytest.approx(8.0 + SPARK_SECONDS + 4 * 1.25 + 5.0)
    own = throughput_from([ThroughputSample("sort", 10**8, 60.0, 60.0, 20)], runs)
    assert own.start_seconds == found.start_seconds
    assert own.cpu_scale["sort"] != found.cpu_scale["sort"]
    assert [each.label for each in (prior, found, own)] == ["model", "other tables", "measured"]


REWRITES = {
    "orders": (262_668, 5, 0, 28, 4_473_164, 0.35), "sensors": (25_244, 4, 0, 1, 286_138, 0.05),
    "trips": (551_166, 5, 0, 28, 5_580_219, 0.44), "nulls": (744_165, 3, 0, 23, 8_643_291, 0.42),
    "wide": (85_320, 62, 0, 28, 11_800_167, 0.84), "clicks": (927_472, 4, 0, 26, 9_816_637, 0.54),
    "logs": (270_000, 15, 0, 36, 10_577_518, 0.64),
    "coupons": (517_431, 3, 20 * KEY_TEXT, 23, 6_236_610, 0.66),
    "sensors_busy": (176_240, 4, 0, 20, 2_166_990, 0.22),
    "nested": (207_960, 4, 0, 15, 1_644_524, 0.24), "skewed": (434_416, 3, 0, 16, 5_679_234, 0.30),
    "low_cardinality": (334_908, 3, 0, 12, 3_481_584, 0.23),
    "many_small": (90_800, 3, 0, 200, 1_473_835, 0.56),
    "two_columns": (979_872, 3, 0, 24, 17_830_554, 0.93),
    "prices": (551_370, 3, 0, 15, 5_658_268, 0.35),
    "dashboards": (69_228, 3, 0, 2, 686_811, 0.08),
    "unnamed_sizes": (1_156_472, 5, 0, 8, 46_965_959, 1.29),
    "lineitem": (6_001_215, 16, 27, 8, 156_000_000, 7.6),
}  # fmt: skip
"""Kinds of tables that were sorted: rows, columns, bytes of text in each row as it counts, files,
bytes, CPU seconds with verification on a shared machine."""


def test_before_any_outcome_cpu_is_forecast_by_rows_of_many_kinds_of_tables():
    errors = []
    for count, columns, text, files, _, cpu in REWRITES.values():
        rows = Rows(count, count * text, columns)
        errors.append(abs(Throughput().cpu_seconds("sort", 0, files, False, rows) / cpu - 1.0))
    assert np.median(errors) < 0.25
    assert max(errors) < 0.4


def test_by_bytes_alone_cpu_is_forecast_less_well():
    """Random numbers take more stored bytes for the same work."""
    found = [
        Throughput().cpu_seconds("sort", size, files, False) / cpu
        for *_, files, size, cpu in REWRITES.values()
    ]
    assert np.median(np.abs(np.array(found) - 1.0)) < 0.3
    assert min(found) > 0.7 and max(found) < 2.3


def test_a_key_of_text_costs_more_than_text_beside_it_and_columns_cost_each():
    def cpu(text, columns=3):
        return Throughput().cpu_seconds("sort", 0, 1, False, Rows(100_000, 100_000 * text, columns))

    assert cpu(20 * KEY_TEXT) - cpu(0) == pytest.approx(KEY_TEXT * (cpu(20) - cpu(0)))
    assert cpu(0, 16) > 1.5 * cpu(0, 3)


def test_actions_of_one_plan_pay_once_for_what_is_loaded_once():
    """9 partitions of 43,416 rows each took 0.69 CPU s."""
    rows = Rows(43_416, 0.0, 3)
    each = [Throughput().cpu_seconds("sort", 0, 4, n == 0, rows) for n in range(9)]
    assert sum(each) == pytest.approx(0.69, rel=0.25)
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
