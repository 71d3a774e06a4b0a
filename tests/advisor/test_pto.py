"""Candidates, labels and methods of a recommendation, on a small simulated table."""

from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np
import pytest

from reconciler.advisor.pto.cluster_size import ESTIMATORS, cluster_sizes, good_turing, subsets
from reconciler.advisor.pto.column_use import usage
from reconciler.advisor.pto.methods.registry import METHODS
from reconciler.advisor.pto.objective import LOCAL
from reconciler.advisor.pto.partitionings import Ingest, partitionings, text_of
from reconciler.advisor.pto.recommend import Given, pareto, recommend, search_space
from reconciler.advisor.pto.sizes import MIB, declared_row_group, expert_sizes, size_grid
from reconciler.advisor.pto.space import CandidateLayout
from reconciler.advisor.simulate.demand import demands
from reconciler.advisor.simulate.grid import Sizes
from reconciler.advisor.simulate.pool import Pool, build_pool
from reconciler.queries.table_view import table_view
from reconciler.table.row_group_bytes import rows_of_row_group
from reconciler.table.schema import PartitionSpec
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

ROWS, FILES = 200_000, 10
MONTH_MS = 30 * DAY


@pytest.fixture(scope="module")
def given() -> Given:
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
    return Given(view, PartitionSpec(0), wanted, LOCAL, 4.0, MONTH_MS, float(ROW_BYTES))


@pytest.fixture(scope="module")
def pool(given: Given) -> Pool:
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
    assert found.chosen.read < 0.5 * found.today.read
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
    assert found.labelled == found.candidates
    assert all(found.chosen.total <= other.total for other in found.others)
    assert found.chosen.low <= found.chosen.read <= found.chosen.high
    assert {item.name for item in found.others} >= {"expert", "default"}
    assert found.fell


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


def test_labels_are_of_row_groups_that_the_writer_can_make(given, pool):
    thin = build_pool(given.view, (KEY, DATE, PART), 8_192)
    wide = replace(given, plain_row=8.0 * ROW_BYTES)
    space, _ = search_space(wide, pool, thin, thin)
    size = Sizes(4 * MIB, 48 * ROW_BYTES * 1_000)
    (label,) = space.label([CandidateLayout(0, 1, size)])
    row = label.bytes_written / ROWS
    rows = space.declared(size.row_group_bytes, row).rows
    whole = ROWS / label.files
    assert label.row_groups == pytest.approx(label.files * np.ceil(whole / rows / 1.1), rel=0.1)


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


def test_a_method_without_its_package_says_so(given, monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.ensemble", None)
    with pytest.raises(ImportError):
        recommend(replace(given, method="boosting"))


def test_guard_rails_name_what_they_refuse(given, pool):
    used = usage(pool, given.demands)
    kept, refused = partitionings(used, pool, given.present, least_bytes=1.0)
    assert kept[0].present
    assert "month(day)" in {text_of(item.spec, SCHEMA) for item in kept}
    assert any(item.partitions > 10 for item in kept[1:])
    _, all_refused = partitionings(used, pool, given.present, least_bytes=1e12)
    assert any("per partition" in item.why for item in all_refused)
    assert len(all_refused) > len(refused)
    busy = Ingest(commits=1_440.0, bytes=1_440.0 * 1_000)
    _, scattered = partitionings(used, pool, given.present, least_bytes=10_000.0, ingest=busy)
    assert any("a commit of" in item.why for item in scattered)


def test_every_estimator_ranks_clusters_by_size_and_one_is_near_the_truth():
    random = np.random.default_rng(1)
    few, many = random.integers(0, 50, 100_000), random.integers(0, 2_000, 100_000)
    for name, estimate in ESTIMATORS.items():
        assert estimate(few, 100_000) > estimate(many, 100_000), name
    assert ESTIMATORS["distinct-count"](few, 100_000) == pytest.approx(2_000, rel=0.01)
    assert good_turing(np.arange(1_000), 1_000_000) >= 1.0


def test_larger_subsets_have_smaller_clusters(pool):
    sizes = cluster_sizes(pool, (DATE, PART), ESTIMATORS["distinct-count"])
    assert set(sizes) == set(subsets((DATE, PART)))
    assert sizes[(DATE, PART)] <= sizes[(DATE,)]


def test_the_grid_is_the_papers_for_large_tables_and_smaller_for_small_ones():
    large = size_grid(1e12, 100.0)
    assert {size.target_bytes for size in large} == {32 << 20, 64 << 20, 128 << 20, 256 << 20,
                                                     512 << 20}  # fmt: skip
    assert len(large) == 30
    assert max(size.target_bytes for size in size_grid(20e6, 100.0)) <= 64 * MIB
    assert expert_sizes(1e12, 1, 100.0) == Sizes(512 * MIB, 10_000_000)


def test_the_declared_row_group_gives_the_stored_one():
    for stored in (64 << 10, 4 * MIB, 64 * MIB):
        found = declared_row_group(stored, 25.0, 60.0)
        assert found.rows == round(rows_of_row_group(found.configured, 25.0, 60.0))
        assert found.configured >= found.stored
    assert declared_row_group(64 * MIB, 25.0, 60.0).stored == pytest.approx(64 * MIB, rel=0.1)


@pytest.mark.parametrize("plain", [40.0, 137.0, 600.0])
def test_no_declared_row_group_is_near_the_gap_between_one_page_and_several(plain):
    """There a little more makes twice the rows, and plain bytes are an estimate."""
    page = 20_000 * plain
    for stored in np.geomspace(32 << 10, 64 * MIB, 60):
        found = declared_row_group(int(stored), 25.0, plain)
        assert not 0.82 < found.configured / page < 1.22


def test_the_front_holds_what_nothing_beats_in_both():
    assert pareto([10.0, 5.0, 6.0, 4.0], [0.0, 2.0, 3.0, 9.0]) == (0, 1, 3)
