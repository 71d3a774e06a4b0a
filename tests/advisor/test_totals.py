"""The prediction for the whole table is what the next observation finds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from reconciler.advisor.advice import AdviceInput, Objectives
from reconciler.advisor.decide import decide
from reconciler.advisor.measure.totals import is_worse
from reconciler.advisor.simulate.layout import Layout
from reconciler.advisor.simulate.whatif import simulate
from reconciler.plan.ordering import Lexicographic
from reconciler.plan.prediction import OPENING, SKIPPING, total
from reconciler.queries.predicate import Comparison, Ref
from reconciler.queries.rewrite_cost import COMMIT_SECONDS, START_SECONDS, Throughput
from reconciler.queries.shape import unrecorded_shape
from reconciler.queries.table_view import row_group_count, table_view
from reconciler.table.schema import SortColumn
from tests.advisor.worlds import (
    DATE,
    PART,
    ROW_BYTES,
    SETTINGS,
    advise,
    apply,
    arrived,
    range_workload,
    workload,
)


def _scattered(rows_per_file: int = 200):
    return arrived(np.random.default_rng(1), rows=60_000, rows_per_file=rows_per_file)


def _ranges(width: int, column: int = PART, domain: int = 100_000):
    return workload(range_workload(np.random.default_rng(0), column, 60, width, domain))


@pytest.mark.parametrize("width", [20, 1_000, 20_000])
def test_the_predicted_amplification_is_what_the_next_plan_finds(width):
    """200 rows a row group before, 2,000 after: few matching rows then cost ten times as much."""
    table, work = _scattered(), _ranges(width)
    advice = advise(table, work)
    assert advice.actions
    found = advise(apply(table, advice), work).amplification_now
    assert advice.amplification_after.mid == pytest.approx(found, rel=0.2)
    assert advice.amplification_after.mid >= 1.0
    assert found < advice.amplification_now


def test_by_bounds_alone_the_predicted_amplification_is_at_least_what_is_found():
    table, work = _scattered(), _ranges(5, DATE, 1_000)
    declared = replace(SETTINGS, mode="Declared", ordering=Lexicographic((SortColumn(DATE),)))
    advice = advise(table, work, declared, rows_per_file=0)
    assert {item.predicted.estimate for item in advice.actions} == {"bound"}
    found = advise(apply(table, advice), work, declared, rows_per_file=0).amplification_now
    assert 1.0 <= found <= advice.amplification_after.mid < advice.amplification_now


def test_all_groups_of_a_rewrite_judged_by_bounds_alone_are_in_its_outcome():
    files = _scattered().file_table()
    chunk = np.arange(len(files)) % 3
    size = SETTINGS.target_bytes
    outcome = simulate(Layout(Lexicographic((SortColumn(DATE),)), size, size, chunk), files, ())
    written = [view.files for view in outcome.written.views]
    assert sum(len(part) for part in written) == outcome.written.files
    assert sum(int(part.bytes.sum()) for part in written) == pytest.approx(files.bytes.sum(), 0.01)


def test_files_that_stay_keep_their_own_row_groups_in_the_amplification():
    """Only a part of the table is rewritten: the floor is of both."""
    table, work = _scattered(), _ranges(1_000)
    files = table.file_table()
    kept = replace(files, encrypted=np.arange(len(files)) % 2 == 0)
    sample = table.sample(np.arange(len(files)), 256)
    advice = decide(AdviceInput(kept, work, SETTINGS, table.row_groups(), sample))
    assert 0 < sum(item.predicted.files_in for item in advice.actions) <= len(files) // 2
    found = advise(apply(table, advice), work).amplification_now
    assert advice.amplification_after.mid == pytest.approx(found, rel=0.2)


def test_an_objective_is_judged_by_the_layout_that_the_plan_leaves():
    table, work = _scattered(), _ranges(20)
    free = advise(table, work)
    found = advise(apply(table, free), work).amplification_now
    limit = 0.5 * (1.0 + found) if found > 1.2 else 0.9 * found
    wanted = replace(SETTINGS, objectives=Objectives(max_scan_amplification=limit))
    (judged,) = advise(table, work, wanted).objectives
    assert judged.after == pytest.approx(free.amplification_after.mid)
    assert judged.state != "met"


def test_row_groups_without_a_footer_are_counted_by_the_largest_known_one():
    table = _scattered(rows_per_file=4_000)
    files, groups = table.file_table(), table.row_groups()
    whole = table_view(files, groups, None, 1 << 40)
    assert row_group_count(whole) == len(groups.file)
    first = groups.file == 0
    known = replace(
        groups,
        file=groups.file[first],
        records=groups.records[first],
        columns={key: column.take(first) for key, column in groups.columns.items()},
        column_sizes={key: size[first] for key, size in groups.column_sizes.items()},
        dictionary=None,
    )
    part = table_view(files, known, None, 1 << 40)
    assert row_group_count(part) == pytest.approx(len(groups.file), rel=0.1)
    assert row_group_count(table_view(files, None, None, ROW_BYTES * 1_000)) == 60


def _judged(table, limit, *, position=0, equality=0):
    """Judge maxDeletedRowsPercent with deletes on each file, and equality deletes on the first."""
    files = table.file_table()
    hidden = np.arange(len(files)) < equality
    files = replace(
        files,
        position_deleted=files.records * position // 100,
        equality_deletes=hidden.astype(np.int64),
    )
    wanted = replace(SETTINGS, objectives=Objectives(max_deleted_rows_percent=limit))
    return decide(AdviceInput(files, workload(), wanted)).objectives[0]


@pytest.mark.parametrize(
    ("position", "equality", "state", "at_least"),
    [
        (0, 0, "met", False),
        (2, 0, "met", False),
        (0, 1, "met", False),  # even if every row of the file is deleted
        (0, 2, "unknown", True),
        (2, 3, "unknown", True),
        (50, 0, "unreachable", False),
        (50, 3, "unreachable", True),
    ],
)
def test_the_objective_is_met_only_if_every_row_under_an_equality_delete_may_be_deleted(
    position, equality, state, at_least, said
):
    table = arrived(np.random.default_rng(0), rows=20_000)
    judged = _judged(table, 10.0, position=position, equality=equality)
    assert (judged.state, judged.at_least) == (state, at_least)
    said(judged.message)


def _parts(advice):
    (item,) = advice.actions
    return {name: share for share, name in total([item.predicted]).saved_by}


def test_a_merge_of_small_files_pays_by_opening_fewer():
    table, work = _scattered(), _ranges(90_000)
    parts = _parts(advise(table, work))
    assert parts[OPENING] > 80
    assert sum(parts.values()) == pytest.approx(100, abs=1)


def test_a_sort_of_large_files_pays_by_skipping_data():
    random = np.random.default_rng(1)
    table = arrived(random, rows=60_000, rows_per_file=4_000)
    settings = replace(SETTINGS, open_bytes=1, target_bytes=4_000 * ROW_BYTES)
    parts = _parts(advise(table, _ranges(500), settings))
    assert parts[SKIPPING] > 80
    assert abs(parts[OPENING]) <= 1


def test_the_predicted_cost_counts_what_is_read_and_opened():
    table, work = _scattered(), _ranges(1_000)
    advice = advise(table, work)
    assert advice.cost_now > advice.read_now
    found = advise(apply(table, advice), work).cost_now
    assert advice.cost_after.mid == pytest.approx(found, rel=0.2)
    assert found < advice.cost_now


def test_moving_windows_are_worse_off_by_what_they_will_read():
    """The recorded instances read less, but those to come read more."""
    sets, column = (((1,), 1.0),), Comparison(Ref(1), ">=", 0)
    literals, weight, executions = (np.zeros(2),), np.array([1.0, 0.0]), np.array([0.0, 1.0])
    fixed = unrecorded_shape("s", column, sets, literals, weight, executions)
    demand = replace(fixed, offsets=(np.array([np.nan, 7.0]),))
    now, after = np.array([10.0, 10.0]), np.array([1.0, 11.0])
    assert is_worse(demand, now, after)
    assert not is_worse(demand, now, np.array([20.0, 10.0]))
    assert not is_worse(fixed, now, after)


def test_a_plan_takes_the_start_of_a_jvm_and_a_commit_for_each_group():
    advice = advise(_scattered(), _ranges(90_000))
    work = total(item.predicted for item in advice.actions)
    assert work.groups
    fixed = START_SECONDS + work.groups * COMMIT_SECONDS
    assert advice.seconds == pytest.approx(fixed + work.millis / 1000)
    assert Throughput().plan_seconds(0.0, 0) == 0.0
