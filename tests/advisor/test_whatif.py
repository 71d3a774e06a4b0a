"""The what-if against really applied rewrites, moving windows, and the curve it orders by."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reconciler.advisor.simulate.layout import Layout
from reconciler.advisor.simulate.merged import merged_whole
from reconciler.advisor.simulate.pool import build_pool
from reconciler.advisor.simulate.whatif import simulate
from reconciler.plan.actions.rewrite import BinPack, Cluster, Recluster
from reconciler.plan.ordering import Hilbert, Lexicographic
from reconciler.queries.demanded import MAX_QUERIES, demands
from reconciler.queries.forecasts.regime import regime_forecast
from reconciler.queries.pruning import may_match
from reconciler.queries.rates import forecast_rates
from reconciler.queries.read_cost import read_shape
from reconciler.queries.table_view import table_view
from reconciler.table.hilbert import hilbert_index
from reconciler.table.schema import SortColumn
from tests.advisor.worlds import (
    DATE,
    DAY,
    KEY,
    PART,
    ROW_BYTES,
    SCHEMA,
    SETTINGS,
    arrived,
    range_query,
    range_workload,
    workload,
)
from tests.examples import examples


@pytest.mark.parametrize(("columns", "bits"), [(2, 2), (2, 5), (3, 3)])
def test_the_hilbert_curve_visits_every_cell_once_and_moves_by_one(columns, bits):
    side = 1 << bits
    cells = np.array(np.meshgrid(*[np.arange(side)] * columns)).reshape(columns, -1)
    index = hilbert_index(cells, bits)
    assert sorted(index.tolist()) == list(range(side**columns))
    steps = np.abs(np.diff(cells[:, np.argsort(index)], axis=1)).sum(axis=0)
    assert steps.max() == 1


def _layout(key, curve=Lexicographic, files=0, rows_per_file=2_000):
    return Layout(
        curve(tuple(SortColumn(c) for c in key)), ROW_BYTES * rows_per_file,
        ROW_BYTES * rows_per_file, np.zeros(files, dtype=np.int64), 1_000,
    )  # fmt: skip


@settings(max_examples=examples(12), deadline=None)
@given(
    seed=st.integers(0, 100),
    key=st.sampled_from([(DATE,), (PART,), (PART, DATE), (KEY,)]),
    jitter=st.sampled_from([1, 60, 900]),
    sketched=st.sampled_from([1, 3]),
)
def test_predicted_reads_are_near_those_of_the_rewrite_carried_out(seed, key, jitter, sketched):
    random = np.random.default_rng(seed)
    table = arrived(random, rows=40_000, rows_per_file=1_000, jitter=jitter)
    work = workload(
        range_workload(random, DATE, 40, 40, 1_000),
        range_workload(random, PART, 40, 3_000, 100_000, start=500),
    )
    wanted = demands(work, SCHEMA, 7 * DAY)
    files = table.file_table()
    curve = Hilbert if len(key) > 1 else Lexicographic
    sample = table.sample(np.arange(0, 40, sketched), 256)
    view = table_view(files, table.row_groups(), sample, ROW_BYTES * 2_000, 1_000)
    pool = build_pool(view, [DATE, PART, KEY])
    assert pool is not None
    predicted = simulate(_layout(key, curve, len(files)), pool, wanted)
    action = Recluster(ordering=curve(tuple(SortColumn(c) for c in key)),
        target_bytes=ROW_BYTES * 2_000, row_group_bytes=ROW_BYTES * 2_000,
        inputs=tuple(files.path),
    )  # fmt: skip
    done = table.apply(action, 0)
    after = table_view(done.file_table(), done.row_groups(), None, ROW_BYTES * 2_000, 1_000)
    assert predicted.written.files == len(done.files)
    total_predicted = total_actual = 0.0
    for demand, guess in zip(wanted, predicted.readings, strict=True):
        total_predicted += float(demand.weight @ guess.bytes)
        total_actual += float(demand.weight @ read_shape(after, demand).bytes)
    assert total_predicted == pytest.approx(total_actual, rel=0.15)


def test_row_groups_of_a_file_have_equal_rows():
    """As the engine cuts them: three row groups of a file that two and a half would fill."""
    table = arrived(np.random.default_rng(1), rows=20_000, rows_per_file=1_000)
    files = table.file_table()
    sample = table.sample(np.arange(20), 256)
    view = table_view(files, table.row_groups(), sample, ROW_BYTES * 4_000, 1_000)
    wanted = _layout((PART,), files=len(files), rows_per_file=10_000)
    wanted = replace(wanted, row_group_bytes=ROW_BYTES * 4_000)
    (written,) = simulate(wanted, build_pool(view, [PART]), []).written.views
    assert written.files.records.tolist() == pytest.approx([10_000, 10_000], rel=0.01)
    assert written.row_groups.records.tolist() == pytest.approx([3_333] * 6, rel=0.02)
    done = table.laid_out(wanted, np.arange(len(files)), 0).row_groups()
    assert done.records.tolist() == [3_333, 3_333, 3_334] * 2


@settings(max_examples=examples(12), deadline=None)
@given(seed=st.integers(0, 100), column=st.sampled_from([DATE, PART]))
def test_bounds_alone_never_promise_fewer_files_than_the_rewrite_leaves(seed, column):
    random = np.random.default_rng(seed)
    table = arrived(random, rows=20_000, rows_per_file=1_000, jitter=30)
    wanted = demands(workload(range_workload(random, column, 30, 20, 1_000)), SCHEMA, DAY)
    files = table.file_table()
    proved = simulate(_layout((column,), files=len(files)), files, wanted)
    assert proved is not None
    action = Cluster(ordering=Lexicographic((SortColumn(column),)), target_bytes=ROW_BYTES * 2_000,
        row_group_bytes=ROW_BYTES * 2_000, inputs=tuple(files.path),
    )  # fmt: skip
    done = table.apply(action, 0).file_table()
    for demand, reading in zip(wanted, proved.readings, strict=True):
        actual = may_match(demand.predicate, demand.literals, done.columns, done.records).sum(
            axis=1
        )
        assert (actual <= reading.files).all()


def test_merging_whole_files_has_exactly_the_union_of_their_bounds():
    table = arrived(np.random.default_rng(0), rows=4_000, rows_per_file=500, jitter=50)
    files = table.file_table()
    view = table_view(files, None, None, ROW_BYTES * 2_000, 1_000)
    merged = merged_whole(view, np.arange(8) // 4, ROW_BYTES * 2_000).files
    action = BinPack(target_bytes=ROW_BYTES * 2_000, row_group_bytes=ROW_BYTES * 2_000,
        inputs=tuple(files.path),
    )  # fmt: skip
    done = table.apply(action, 0).file_table()
    for field in (KEY, DATE, PART):
        assert merged.columns[field].lower.tolist() == done.columns[field].lower.tolist()
        assert merged.columns[field].upper.tolist() == done.columns[field].upper.tolist()


def test_unsketched_files_are_represented_within_their_own_bounds():
    table = arrived(np.random.default_rng(0), rows=10_000, rows_per_file=1_000, jitter=1)
    files = table.file_table()
    view = table_view(files, None, table.sample([4], 512), 1 << 20)
    pool = build_pool(view, [KEY, PART])
    assert pool is not None
    assert float(pool.weight.sum()) == pytest.approx(10_000)
    column = pool.columns[KEY]
    values = column.distinct[column.ranks]
    for number in range(10):
        mine = values[pool.file == number]
        assert mine.min() >= files.columns[KEY].lower[number]
        assert mine.max() <= files.columns[KEY].upper[number]


def test_a_moving_window_is_replayed_at_future_times():
    until = 10 * DAY
    # "the last 3 days", asked at the end of day 10.
    query = range_query(0, DATE, 7, 10, event_ms=until, moving=(-3, 0))
    (demand,) = demands(workload([query]), SCHEMA, 7 * DAY)
    ends = np.asarray(demand.literals[1])
    assert demand.moving
    assert ends[demand.weight > 0].tolist() == [10]
    assert sorted(ends[demand.executions > 0].tolist()) == [10, 11, 12, 13, 14, 15, 16]
    (fixed,) = demands(workload([replace(query, moving=(None, None))]), SCHEMA, 7 * DAY)
    assert float(fixed.executions.sum()) == pytest.approx(float(demand.executions.sum()))


def test_equal_queries_are_merged_and_long_logs_thinned_without_losing_weight():
    random = np.random.default_rng(0)
    twice = workload(
        range_workload(random, DATE, 10, 5, 1_000),
        [range_query(900 + i, DATE, 1, 2, event_ms=i) for i in range(50)],
    )
    (demand,) = demands(twice, SCHEMA, DAY)
    assert len(demand) <= 11
    assert float(demand.weight.sum()) == 60
    long = workload(range_workload(random, PART, 3 * MAX_QUERIES, 5, 10**9))
    (thin,) = demands(long, SCHEMA, SETTINGS.horizon_ms)
    assert len(thin) <= MAX_QUERIES
    assert float(thin.weight.sum()) == pytest.approx(3 * MAX_QUERIES)
    assert float(thin.executions.sum()) == pytest.approx(
        forecast_rates(long, SETTINGS.horizon_ms, regime_forecast).executions.sum()
    )


def test_the_query_that_stands_for_its_neighbours_does_not_depend_on_what_is_expected():
    """A reading that is measured later must be of the queries that the plan was judged by."""
    random = np.random.default_rng(4)
    long = workload(range_workload(random, PART, 3 * MAX_QUERIES, 5, 10**9))
    one, other = (
        demands(long, SCHEMA, DAY, random.random(3 * MAX_QUERIES))[0].literals[0] for _ in range(2)
    )
    assert np.array_equal(one, other)


def test_the_sorted_columns_own_bytes_shrink_to_its_runs_and_no_further():
    random = np.random.default_rng(3)
    table = arrived(random, rows=40_000, rows_per_file=1_000, jitter=900)
    files = table.file_table()
    view = table_view(
        files, table.row_groups(), table.sample(np.arange(40), 512), ROW_BYTES * 2_000, 1_000
    )
    pool = build_pool(view, [DATE, PART, KEY])
    assert pool is not None
    for key, repeats in ((DATE, True), (KEY, False)):
        outcome = simulate(_layout((key,), files=len(files)), pool, ())
        now = int(files.column_sizes[key].sum())
        after = int(outcome.written.views[0].files.column_sizes[key].sum())
        others = int(outcome.written.views[0].files.column_sizes[PART].sum())
        assert after < 0.3 * now if repeats else after == pytest.approx(now, rel=0.02)
        assert others == pytest.approx(int(files.column_sizes[PART].sum()), rel=0.02)


def test_a_column_that_is_null_in_every_sampled_row_has_no_bounds_afterwards():
    table = arrived(np.random.default_rng(5), rows=4_000, rows_per_file=1_000, jitter=50)
    files, sample = table.file_table(), table.sample(np.arange(4), 64)
    sample = replace(sample, null={**sample.null, PART: np.ones(len(sample), dtype=bool)})
    pool = build_pool(table_view(files, None, sample, ROW_BYTES * 2_000, 1_000), [KEY, PART])
    assert pool is not None
    after = simulate(_layout((KEY,), files=4), pool, ()).written.views[0].files
    assert not after.columns[PART].bounded.any()
    assert after.columns[KEY].bounded.all()
