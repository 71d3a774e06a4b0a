"""Candidates, labels and methods of a recommendation, on a small simulated table."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from bench.cluster_estimators import ESTIMATORS, good_turing, sizes
from bench.replay.table import empty_table
from reconciler.advisor.pto.cluster_size import cluster_sizes, subsets
from reconciler.advisor.pto.column_use import usage
from reconciler.advisor.pto.methods.features import LABELS
from reconciler.advisor.pto.methods.registry import METHODS
from reconciler.advisor.pto.objective import LOCAL, costs_at, reading_cost
from reconciler.advisor.pto.partitionings import (
    CommitFiles,
    Ingest,
    Partitioning,
    commit_files,
    partitionings,
    text_of,
)
from reconciler.advisor.pto.recommend import (
    RecommendInput,
    pareto,
    recommend,
    search_space,
    widened,
)
from reconciler.advisor.pto.sizes import (
    LEAST_GROUP_ROWS,
    MIB,
    declared_row_group,
    expert_sizes,
    simulated_sizes,
    size_grid,
)
from reconciler.advisor.pto.space import SURE_ROWS, TIE, UNSORTED, CandidateLayout
from reconciler.advisor.simulate import grid
from reconciler.advisor.simulate.grid import GridReadings, in_any_size, simulate_sizes
from reconciler.advisor.simulate.layout import Layout, Sizes
from reconciler.advisor.simulate.pool import Pool, StoredBytes, build_pool
from reconciler.advisor.simulate.sampled import sampled, stored_bytes
from reconciler.advisor.simulate.target import target_partitions
from reconciler.plan.ordering import ARRIVAL, Hilbert, Lexicographic
from reconciler.queries.demanded import demands
from reconciler.queries.predicate import Comparison, Ref
from reconciler.queries.table_view import FooterBytes, table_view
from reconciler.table.row_group_bytes import row_groups_of
from reconciler.table.schema import PartitionField, PartitionSpec, SortColumn
from tests.advisor.worlds import (
    DATE,
    DAY,
    KEY,
    PART,
    ROW_BYTES,
    SCHEMA,
    VALUE,
    arrived,
    arriving_rows,
    range_workload,
    workload,
)

ROWS, FILES = 200_000, 10
CHEAP = costs_at("cheap", 32 << 10, "so that tables of a few MiB have several files")
MONTH_MS = 30 * DAY


@pytest.fixture(scope="module")
def given() -> RecommendInput:
    """Days are anywhere in every file; most queries ask for a few of them."""
    random = np.random.default_rng(3)
    table = arrived(random, ROWS, ROWS // FILES, days=2_000, jitter=2_000)
    work = workload(
        range_workload(random, DATE, 60, 20, 2_000),
        range_workload(random, PART, 10, 3_000, 100_000, start=100),
    )
    view = table_view(
        table.file_table(), table.row_groups(), table.sample(np.arange(FILES), 2_000), 1 << 20
    )
    wanted = demands(work, SCHEMA, MONTH_MS)
    return RecommendInput(view, PartitionSpec(0), wanted, CHEAP, 4.0, MONTH_MS)


@pytest.fixture(scope="module")
def pool(given: RecommendInput) -> Pool:
    found = build_pool(given.view, (KEY, DATE, PART), 20_000)
    assert found is not None
    return found


def test_frequency_and_selectivity_are_those_of_whole_queries(given, pool):
    first, second = usage(pool, given.demands).uses
    assert (first.field_id, second.field_id) == (DATE, PART)
    assert first.frequency == pytest.approx(6 / 7)
    assert second.selectivity == pytest.approx(3_000 / 100_000, rel=0.2)
    assert first.equality == 0.0


@pytest.mark.parametrize("name", ["simulation", "random", "boosting", "forest", "tpe"])
def test_every_method_leads_with_the_column_that_most_queries_filter_on(given, name):
    if name in ("boosting", "forest"):
        pytest.importorskip("sklearn")
    if name == "tpe":
        pytest.importorskip("optuna")
    found = recommend(replace(given, method=name))
    assert found.chosen is not None and found.keep == ""
    assert found.chosen.read < (0.5 if name == "simulation" else 0.6) * found.today.read
    assert found.chosen.ordering.key[0].field_id == DATE


@pytest.mark.parametrize("name", ["expert", "default", "mddl"])
def test_a_baseline_that_is_no_better_than_today_keeps_what_there_is(given, name):
    """Their files of 32 MiB and more hold the whole table; only row groups can be skipped."""
    assert name in METHODS
    found = recommend(replace(given, method=name))
    best = found.chosen or found.others[0]
    assert best.name == "best"
    assert (found.chosen is None) == bool(found.keep)


def test_the_default_method_is_at_least_as_good_as_every_other_layout_shown(given):
    found = recommend(given)
    assert found.chosen is not None
    assert found.labelled == found.candidates and 0 < found.finer < found.candidates
    assert all(found.chosen.total <= (1.0 + TIE) * other.total for other in found.others)
    assert found.chosen.ahead.low <= found.chosen.read <= found.chosen.ahead.high
    assert {item.name for item in found.others} >= {"expert", "default"}
    assert found.fell


def test_sizes_are_refined_between_and_below_those_of_the_grid(given, pool):
    """Brute force: of all row groups from 500 rows on, in steps of 10 %, none is 1 % better."""
    thin = build_pool(given.view, (KEY, DATE, PART), 8_192)
    assert thin is not None
    space, _ = search_space(given, pool, thin, pool)
    choice = METHODS["simulation"](space, 0)
    chosen = space.label([choice.candidate])[0]
    files = {Sizes(size.target_bytes, size.target_bytes) for size in space.sizes}
    every = [
        replace(choice.candidate, sizes=Sizes(file.target_bytes, group))
        for file in files
        for group in (int(500 * space.bytes_per_row * 1.1**step) for step in range(45))
        if group <= file.target_bytes
    ]
    sure = [label for label in space.label(every) if label.sampled_rows >= SURE_ROWS]
    least = min(label.total for label in sure)
    assert chosen.total <= 1.01 * least
    assert min(label.total for label in space.labels) > 1.02 * least
    smallest = min(size.row_group_bytes for size in space.sizes)
    assert choice.candidate.sizes.row_group_bytes < smallest
    assert chosen.candidate in {label.candidate for label in choice.finer}


def test_a_rewrite_that_does_not_pay_keeps_what_there_is(given):
    found = recommend(replace(given, rho=1e9))
    assert found.chosen is None
    assert "rewriting" in found.keep


def test_files_that_nothing_rewrites_are_read_as_today(given):
    """One file cannot be packed: a simulation of it must not claim a gain, or a recommendation of
    sizes would follow from its error alone."""
    random = np.random.default_rng(8)
    table = arrived(random, 20_000, 20_000, days=2_000, jitter=2_000)
    work = workload(range_workload(random, PART, 10, 3_000, 100_000))
    view = table_view(
        table.file_table(), table.row_groups(), table.sample(np.arange(1), 2_000), 1 << 20
    )
    one = replace(given, view=view, demands=demands(work, SCHEMA, MONTH_MS), rho=1e9)
    made = recommend(one)
    assert made.chosen is None
    unsorted = [item for item in made.others if not item.ordering.key]
    assert unsorted and all(item.rewrite_bytes == 0.0 for item in unsorted)
    assert {item.read for item in unsorted} == {made.today.read}


def test_labels_are_of_row_groups_of_the_size_that_is_declared(given, pool):
    thin = build_pool(given.view, (KEY, DATE, PART), 8_192)
    space, _ = search_space(given, pool, thin, thin)
    size = Sizes(4 * MIB, 48 * ROW_BYTES * 1_000)
    (label,) = space.label([CandidateLayout(0, 1, size)])
    each = label.bytes_written / label.files
    groups = label.files * row_groups_of(each, size.row_group_bytes)
    assert label.row_groups == pytest.approx(float(groups))


def test_what_columns_take_in_an_order_is_simulated_once(given, monkeypatch):
    """Other ranges, other queries and a part of the sample change what is read, not what is
    stored."""
    asked = []

    def counting(thin: Pool, layout: Layout) -> StoredBytes:
        asked.append(layout)
        return stored_bytes(thin, layout)

    monkeypatch.setattr(grid, "stored_bytes", counting)
    every, thin = (build_pool(given.view, (KEY, DATE, PART), rows) for rows in (20_000, 2_000))
    assert every is not None and thin is not None
    space, _ = search_space(given, every, thin, thin)
    first = space.labels
    known = len(asked)
    assert known <= len(space.partitionings) * len(space.orderings) * (len(space.simulated) + 3)
    few = space.candidates[::7]
    half = build_pool(given.view, (KEY, DATE, PART), 10_000)
    assert half is not None
    space.label(few, widening=0.0)
    replace(space, demands=given.demands[:1]).label(few)
    space.on(half, thin).label(few)
    assert len(asked) == known
    again = {label.candidate: label.total for label in space.label(few)}
    assert again == {label.candidate: label.total for label in first if label.candidate in few}


@pytest.mark.parametrize("spec", [None, PartitionSpec(1, (PartitionField(DATE, 1, "month", "m"),))])
@pytest.mark.parametrize("key", [(), (DATE,), (PART, KEY)])
def test_what_rows_take_is_what_simulated_files_have(given, spec, key):
    rows = build_pool(given.view, (KEY, DATE, PART), 4_000)
    assert rows is not None
    order = Lexicographic(tuple(SortColumn(column) for column in key)) if key else ARRIVAL
    together = np.zeros(len(rows.files), dtype=np.int64)
    layout = Layout(order, 2 * MIB, MIB // 4, together, spec=spec)
    written, taken = sampled(rows, layout), stored_bytes(rows, layout)
    files = written.views[0].files
    records = files.records.sum()
    assert taken.rows == pytest.approx(min(layout.row_group_bytes / taken.per_row, records))
    assert taken.per_row * records == pytest.approx(files.bytes.sum(), rel=1e-4)
    for field, known in files.column_sizes.items():
        assert taken.widths[field] * records == pytest.approx(known.sum(), rel=1e-3)


def test_orderings_that_are_not_simulated_in_all_sizes_would_not_be_chosen(given, monkeypatch):
    """Most orderings are dropped by a few sizes on few rows: the best one must stay."""
    random = np.random.default_rng(4)
    work = workload(
        range_workload(random, DATE, 30, 20, 2_000),
        range_workload(random, PART, 30, 3_000, 100_000, start=100),
        range_workload(random, KEY, 30, 2_000, ROWS, start=200),
    )
    given = replace(given, demands=demands(work, SCHEMA, MONTH_MS))
    screened = recommend(given)
    monkeypatch.setattr("reconciler.advisor.pto.recommend.PER_SPEC", 100)
    whole = recommend(given)
    assert whole.candidates > screened.candidates
    assert screened.chosen.total <= 1.01 * whole.chosen.total


@pytest.mark.parametrize("method", ["boosting", "random"])
def test_as_many_candidates_are_labelled_where_one_partitioning_is_left(given, method):
    assert recommend(replace(given, method=method)).labelled >= LABELS
    alone = recommend(replace(given, method=method, keep_partitioning=True))
    assert len({item.spec for item in alone.others}) == 1
    assert LABELS <= alone.labelled < alone.candidates


def small_world(given: RecommendInput, dates: float = 1.0, parts: float = 1.0) -> RecommendInput:
    """40,000 rows in files of 4,000, and as many queries on days as on parts, of these weights."""
    random = np.random.default_rng(3)
    table = arrived(random, 40_000, 4_000, days=2_000, jitter=2_000)
    view = table_view(
        table.file_table(), table.row_groups(), table.sample(np.arange(10), 1_000), 1 << 20
    )
    work = workload(
        range_workload(random, DATE, 30, 20, 2_000, weight=dates),
        range_workload(random, PART, 30, 1_000, 100_000, start=100, weight=parts),
    )
    wanted = demands(work, SCHEMA, MONTH_MS)
    return replace(given, view=view, demands=wanted, horizon_ms=10 * MONTH_MS)


@pytest.mark.parametrize(("column", "weights"), [(DATE, (50.0, 1.0)), (PART, (1.0, 50.0))])
def test_queries_count_by_their_weight(given, column, weights):
    """Equally many queries on two columns, of which one are run fifty times as often."""
    found = recommend(small_world(given, *weights))
    assert found.chosen is not None and found.chosen.ordering.key[0].field_id == column
    assert found.usage.uses[0].field_id == column
    assert found.usage.uses[0].frequency == pytest.approx(50 / 51)


def test_what_opening_costs_decides_about_sizes(given):
    """If only bytes read counted, the smallest row groups would win."""
    free = replace(CHEAP, file=0.0, group=0.0, group_column=0.0)
    cheap, dear = (
        recommend(replace(small_world(given), costs=costs)).chosen for costs in (free, LOCAL)
    )
    assert cheap is not None and dear is not None
    assert cheap.read < dear.read and cheap.row_groups > 1.5 * dear.row_groups
    assert cheap.sampled_rows < dear.sampled_rows


def test_footers_of_wide_tables_are_read_whole_whatever_is_projected(given):
    """A row group must save more than its part of the footer."""
    wide = replace(CHEAP, footer=FooterBytes(1_000.0, 40_000.0))
    readings = GridReadings(*(np.array([[float(n)]]) for n in (0, 0, 3, 5, 7, 0)))
    one = given.demands[:1]
    more = reading_cost(wide, readings, one) - reading_cost(CHEAP, readings, one)
    assert more[0, 0] == pytest.approx(3 * 1_000.0 + (5 + 7) * 40_000.0)
    narrow, broad = (recommend(replace(given, costs=costs)) for costs in (CHEAP, wide))
    assert broad.chosen.row_groups < narrow.chosen.row_groups


def test_guard_rails_name_what_they_refuse(given, pool):
    used = usage(pool, given.demands)
    kept, refused = partitionings(used, pool, given.present, least_bytes=1.0, written_bytes=1.0)
    assert kept[0].present
    assert "month(day)" in {text_of(item.spec, SCHEMA) for item in kept}
    assert any(item.partitions > 10 for item in kept[1:])
    _, all_refused = partitionings(used, pool, given.present, least_bytes=1e12, written_bytes=1e12)
    assert any("per partition" in item.why for item in all_refused)
    assert len(all_refused) > len(refused)
    busy = Ingest(commits=1_440.0, bytes=1_440.0 * 1_000)
    _, scattered = partitionings(
        used, pool, given.present, least_bytes=10_000.0, written_bytes=10_000.0, ingest=busy
    )
    assert any("a commit of" in item.why for item in scattered)


def test_values_are_not_put_into_as_many_buckets():
    """16 values in 16 buckets are about 10 partitions, two values or more in some of them."""
    random = np.random.default_rng(12)
    rows = arriving_rows(random, ROWS)
    rows[PART] = random.integers(0, 16, ROWS) * 7
    table = empty_table(SCHEMA).append(rows, ROWS // FILES, 0, ROWS // FILES)
    asked = [
        replace(
            query, predicate=Comparison(Ref(PART), "=", 0), literals=(7 * i % 112,), moving=(None,)
        )
        for i, query in enumerate(range_workload(random, PART, 40, 1, 100_000))
    ]
    view = table_view(
        table.file_table(), table.row_groups(), table.sample(np.arange(FILES), 2_000), 1 << 20
    )
    few = build_pool(view, (PART,), 20_000)
    assert few is not None
    used = usage(few, demands(workload(asked), SCHEMA, MONTH_MS))
    tight = float(few.files.live_bytes.sum()) / 15.0
    for least, mine in (
        (1.0, ["none", "part", "truncate(10, part)"]),
        (tight, ["none", "truncate(10, part)", "truncate(100, part)"]),
    ):
        kept, refused = partitionings(
            used, few, PartitionSpec(0), least_bytes=least, written_bytes=least
        )
        assert [text_of(item.spec, SCHEMA) for item in kept][:3] == mine
    assert {item.what for item in refused} >= {f"bucket({n}, part)" for n in (16, 64, 256)}


def test_tasks_that_keep_their_rows_write_a_file_into_every_partition(pool):
    """The files of a commit, by the newest files: each holds rows of all buckets, whatever they
    are; sent to tasks by partition, every bucket would get one file."""
    spec = PartitionSpec(7, (PartitionField(PART, 1_000, "bucket[16]", "p"),))
    target = target_partitions(pool, spec)
    found = commit_files(pool, target, Ingest(files=4.0))
    assert found == CommitFiles(scattered=4.0 * 16, hashed=16.0)
    one = commit_files(pool, target, Ingest(files=1.0))
    assert one == CommitFiles(scattered=16.0, hashed=16.0)
    assert commit_files(pool, target, Ingest()) is None


def test_an_interval_is_wider_than_the_error_of_model_and_sample():
    """Also where the widening of ranges changes nothing, as for a table of one row group."""
    assert widened(100.0, 100.0, 1e9) == pytest.approx((95.0, 105.0))
    low, high = widened(90.0, 120.0, 10.0)
    assert low == pytest.approx(90.0 * 0.85) and high == pytest.approx(120.0 * 1.15)
    assert widened(1.0, 2.0, 1.0)[0] == 0.0


def test_a_column_that_some_queries_read_costs_them_a_part():
    """Queries of one predicate are one shape, whatever they project."""
    random = np.random.default_rng(2)
    table = arrived(random, 8_000, 2_000)
    work = workload(range_workload(random, DATE, 10, 20, 700))
    (demand,) = demands(work, SCHEMA, DAY)
    some, all_three = tuple(sorted((DATE, KEY))), tuple(sorted((DATE, KEY, VALUE)))
    shared = [
        replace(demand, column_sets=((some, 1.0 - share), (all_three, share)))
        for share in (0.0, 0.5, 1.0)
    ]
    view = table_view(
        table.file_table(), table.row_groups(), table.sample(np.arange(4), 500), 1 << 20
    )
    found = build_pool(view, (DATE,), 2_000)
    assert found is not None
    size = Sizes(1 << 30, 1 << 30)
    rows = in_any_size(found, PartitionSpec(0), ARRIVAL, thin=found, simulated=(size,))
    grids = [simulate_sizes(rows, [size], (one,)).readings for one in shared]
    read = [float(grid.window.sum()) for grid in grids]
    assert read[1] == pytest.approx((read[0] + read[2]) / 2) and read[0] < read[2]
    openings = [
        float(reading_cost(CHEAP, replace(grid, bytes=0 * grid.bytes), (one,)).sum())
        for grid, one in zip(grids, shared, strict=True)
    ]
    assert openings[1] == pytest.approx((openings[0] + openings[2]) / 2)
    assert openings[0] < openings[2]


def test_rows_of_nan_and_of_null_have_partitions_of_their_own():
    table = arrived(np.random.default_rng(2), 8_000, 2_000)
    sample = table.sample(np.arange(4), 500)
    amount = np.rint(sample.values[VALUE] * 3.0)
    amount[::5] = np.nan
    null = sample.null[VALUE].copy()
    null[1::5] = True
    odd = replace(
        sample, values={**sample.values, VALUE: amount}, null={**sample.null, VALUE: null}
    )
    view = table_view(table.file_table(), table.row_groups(), odd, 1 << 20)
    found = build_pool(view, (VALUE,), 2_000)
    assert found is not None
    spec = PartitionSpec(7, (PartitionField(VALUE, 1_000, "identity", "amount"),))
    target = target_partitions(found, spec)
    values = [value for (value,) in target.values]
    assert sum(value is None for value in values) == 1
    assert sum(value is not None and value != value for value in values) == 1
    nan = next(n for n, value in enumerate(values) if value is not None and value != value)
    assert int((target.number == nan).sum()) == 400
    assert int((target.number == values.index(None)).sum()) == 400


def test_every_estimator_ranks_clusters_by_size_and_one_is_near_the_truth():
    random = np.random.default_rng(1)
    few, many = random.integers(0, 50, 100_000), random.integers(0, 2_000, 100_000)
    for name, estimate in ESTIMATORS.items():
        assert estimate(few, 100_000) > estimate(many, 100_000), name
    assert ESTIMATORS["distinct-count"](few, 100_000) == pytest.approx(2_000, rel=0.01)
    assert good_turing(np.arange(1_000), 1_000_000) >= 1.0


@pytest.mark.parametrize("sizes", [[], [1], [2], [5], [1, 1], [1, 2, 3, 1], [2, 2, 4, 1, 9]])
def test_distinct_count_is_chaos_formula_of_the_clusters_seen_once_and_twice(sizes):
    codes = np.random.default_rng(3).permutation(np.repeat(np.arange(len(sizes)) - 2, sizes))
    once, twice = sizes.count(1), sizes.count(2)
    clusters = max(len(sizes) + once * (once - 1) / (2.0 * (twice + 1)), 1.0)
    assert ESTIMATORS["distinct-count"](codes, 100) == pytest.approx(100 / clusters)


def test_larger_subsets_have_smaller_clusters(pool):
    for found in (cluster_sizes(pool, (DATE, PART)), sizes(pool, (DATE, PART), "distinct-count")):
        assert set(found) == set(subsets((DATE, PART)))
        assert found[(DATE, PART)] <= found[(DATE,)]


@pytest.mark.parametrize("table_bytes", [2e6, 20e6, 1e12])
def test_bytes_of_rows_are_simulated_at_every_factor_of_two(table_bytes: float) -> None:
    """Between sizes further apart a dictionary that only some row groups have would not show."""
    grid = size_grid(table_bytes, 20.0)
    found = [size.row_group_bytes for size in simulated_sizes(grid, 20.0)]
    assert found[0] <= LEAST_GROUP_ROWS * 20.0
    assert found[-1] == max(size.row_group_bytes for size in grid)
    assert all(low < high <= 2 * low for low, high in itertools.pairwise(found))
    assert simulated_sizes(grid[:2], 20.0) == grid[:2]


def test_the_grid_is_the_papers_for_large_tables_and_smaller_for_small_ones():
    large = size_grid(1e12, 100.0)
    assert {size.target_bytes for size in large} == {32 << 20, 64 << 20, 128 << 20, 256 << 20,
                                                     512 << 20}  # fmt: skip
    assert len(large) == 30
    assert max(size.target_bytes for size in size_grid(20e6, 100.0)) <= 64 * MIB
    assert expert_sizes(1e12, 1, 100.0) == Sizes(512 * MIB, 10_000_000)


def test_row_groups_are_declared_in_whole_units():
    assert declared_row_group(100) == 1 << 10
    assert declared_row_group(130_500) == 127 << 10
    assert declared_row_group(9 * MIB + 100) == 9 * MIB


def test_the_front_holds_what_nothing_beats_in_both():
    assert pareto([10.0, 5.0, 6.0, 4.0], [0.0, 2.0, 3.0, 9.0]) == (0, 1, 3)


def test_a_column_that_partitions_by_its_values_sorts_nothing_within_a_partition(given, pool):
    whole = search_space(given, pool, pool, pool)[0]
    parts = PartitionSpec(7, (PartitionField(DATE, 1_000, "identity", "day"),))
    target = Partitioning(parts, target_partitions(pool, parts))
    keys = [(), (DATE,), (PART,), (DATE, PART), (PART, DATE), (DATE, KEY)]
    sorts = tuple(
        Lexicographic(tuple(SortColumn(column) for column in key)) if key else ARRIVAL
        for key in keys
    )
    curve = Hilbert((SortColumn(DATE), SortColumn(PART)))
    space = replace(
        whole, partitionings=(*whole.partitionings[:1], target), orderings=(*sorts, curve)
    )
    assert space.orderings_of(0) == tuple(range(7))
    assert [keys[n] for n in space.orderings_of(1)] == [(), (PART,), (DATE, KEY)]
    assert {c.ordering for c in space.candidates if c.spec == 1} == {0, 2, 5}
    assert replace(space, paper_orderings=2).schemes_of(1) == (2,)
    assert replace(space, paper_orderings=1).schemes_of(1) == (UNSORTED,)


def test_a_file_that_is_alone_in_its_partition_is_not_packed(given, pool):
    space = search_space(given, pool, pool, pool)[0]
    files = pool.files
    candidate = next(c for c in space.candidates if c.ordering == UNSORTED and c.spec == 0)
    apart = replace(
        files,
        partition=np.arange(len(files), dtype=files.partition.dtype),
        partitions=tuple((0, (n,)) for n in range(len(files))),
    )
    assert space.rewritten(candidate) == (float(files.live_bytes.sum()), 0.0)
    alone = replace(space, pool=replace(pool, files=apart))
    assert alone.rewritten(candidate) == (0.0, 0.0)
    two = replace(apart, partition=np.minimum(apart.partition, len(files) - 2).astype(np.int32))
    pair = replace(space, pool=replace(pool, files=two))
    assert pair.rewritten(candidate)[0] == float(files.live_bytes[-2:].sum())


def test_a_query_of_columns_that_were_not_sampled_may_match_any_row(given):
    """Of very many filtered columns not all are sampled."""
    days = build_pool(given.view, (DATE,), 20_000)
    assert days is not None
    found = usage(days, given.demands)
    unknown = np.array([filters == {PART} for filters in found.filters])
    assert unknown.any() and (found.selectivity[unknown] == pytest.approx(1.0))
    assert (found.selectivity[~unknown] < 0.1).all()
