"""WAIR as its paper states it: its mechanisms one by one, and the decisions that they make."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bench.replay.table import SimulatedTable, empty_table
from reconciler.advisor.advice import Advice, AdviceInput, Debt, Settings
from reconciler.advisor.choose.literal import cut_of_window, groups, limit_left
from reconciler.advisor.judge.candidate import _yearly_of_partition
from reconciler.advisor.situation import situation_of
from reconciler.advisor.wair.memory import memory_parts
from reconciler.advisor.wair.performance import with_bonus
from reconciler.advisor.wair.reselection import reselected_ms
from reconciler.advisor.wair.signature import scattered
from reconciler.advisor.wair.utilization import FileSavings
from reconciler.advisor.wair.warm_start import warm_start_limit
from reconciler.plan.actions.rewrite import Recluster
from reconciler.plan.ordering import Lexicographic
from reconciler.queries.forecasts.window import window_once
from reconciler.queries.shape import Workload
from reconciler.table.schema import SortColumn
from tests.advisor.worlds import (
    DATE,
    DAY,
    PART,
    ROW_BYTES,
    SCHEMA,
    SETTINGS,
    advise,
    apply,
    arriving_rows,
    range_query,
    workload,
)

PER_FILE, FILES = 250, 32
SIZE = ROW_BYTES * PER_FILE
CELLS = {DATE: 12, PART: 16}
"""By column of the condition, the bytes that a query reads of a row: it, and the amount."""
LITERAL = replace(
    SETTINGS, literal=True, forecast=window_once, target_bytes=SIZE, row_group_bytes=SIZE,
    open_bytes=0,
)  # fmt: skip


def table() -> SimulatedTable:
    rows = arriving_rows(np.random.default_rng(1), FILES * PER_FILE, first=0)
    return empty_table(SCHEMA).append(rows, PER_FILE, 0, PER_FILE)


def asked(column: int, count: int, first: int = 0, width: int = 900) -> list:
    random = np.random.default_rng(column)
    lows = random.integers(0, {PART: 99_000, DATE: 900}[column], count).tolist()
    return [
        range_query(first + number, column, low, low + width,
                    event_ms=DAY + (first + number) * 60_000)
        for number, low in enumerate(lows)
    ]  # fmt: skip


def recluster(advice: Advice) -> list[Recluster]:
    return [one.action for one in advice.actions if isinstance(one.action, Recluster)]


def test_the_warm_start_lasts_as_many_queries_as_the_table_has_files() -> None:
    assert warm_start_limit(10.0, 1_024, unit=3.0) == pytest.approx(10.0 * 10.0 * 3.0)
    assert warm_start_limit(1_024.0, 1_024, unit=3.0) == float("inf")
    assert warm_start_limit(0.0, 1, unit=3.0) == 0.0


def test_the_key_is_selected_again_after_each_n_queries() -> None:
    event_ms, weight = np.arange(25, dtype=np.int64), np.ones(25)
    assert reselected_ms(event_ms, weight, files=10) == 19
    assert reselected_ms(event_ms, weight, files=25) == 24
    assert reselected_ms(event_ms[::-1].copy(), weight, files=10) == 19
    assert reselected_ms(event_ms, weight, files=100) == 24


def test_a_set_beyond_the_memory_is_cut_into_parts_of_neighbours() -> None:
    files = table().file_table()
    rows = np.arange(len(files), dtype=np.int64)
    parts = memory_parts(files, rows, Lexicographic((SortColumn(PART),)), most=5)
    assert sorted(np.concatenate(parts).tolist()) == rows.tolist()
    assert max(len(part) for part in parts) == 5
    middle = (files.columns[PART].lower + files.columns[PART].upper) / 2
    means = [middle[part].mean() for part in parts]
    assert means == sorted(means)


def test_the_bonus_counts_a_file_for_what_a_query_did_not_use_of_it() -> None:
    situation = situation_of(_given(table(), workload(asked(PART, 16))))
    view, demands = situation.facts.view, situation.expected.demands
    savings: FileSavings = situation.expected.savings
    extra = with_bonus(savings, view, demands, beta=7.0) - savings.by_shape
    # Each of 16 executions uses about 1 % of a file, if it reads it at all: 1 - u of a file each.
    width = demands[0].executions.sum()
    assert (extra <= 7.0 * width + 1e-6).all()
    assert extra[0].mean() == pytest.approx(7.0 * width, rel=0.05)
    assert (with_bonus(savings, view, demands, beta=0.0) == savings.by_shape).all()


def _given(now: SimulatedTable, work: Workload, settings: Settings = LITERAL) -> AdviceInput:
    return now.given(work, settings)


@pytest.mark.parametrize(("columns", "is_so"), [(1, False), (2, False), (3, False), (5, True)])
def test_savings_of_more_columns_than_a_curve_has_are_scattered(columns: int, is_so: bool) -> None:
    centroid = np.zeros(6)
    centroid[:columns] = 1.0
    assert scattered(centroid) is is_so


def test_boundary_files_are_sorted_by_the_column_that_speaks_for_it() -> None:
    found = recluster(advise(table(), workload(asked(PART, 64)), LITERAL))
    assert [column.field_id for one in found for column in one.ordering.key] == [PART]
    assert sum(len(one.inputs) for one in found) > FILES / 2


def _by_hand(
    rows: np.ndarray,
    read: int,
    queries: list[tuple[int, int]],
    alpha: float,
    beta: float,
    limit: float,
) -> tuple[np.ndarray, set[int]]:
    """Return what rewriting each file would save by Eq. 3 and 6, and the files of Algorithm 2's cut
    under Eq. 2, 4 and 5, over the rows themselves.

    rows: values of the column, [files, rows]. read: bytes that a query reads of a file."""
    saving = np.zeros(len(rows))
    for low, high in queries:
        for number, values in enumerate(rows):
            if values.min() <= high and values.max() >= low:
                unused = 1.0 - np.mean((values >= low) & (values <= high))
                saving[number] += unused * read + beta * unused
    cost = 4.0 * SIZE
    best = sorted(range(len(rows)), key=lambda number: -saving[number])
    cuts = [alpha * cost * cut - saving[best[:cut]].sum() for cut in range(1, len(best) + 1)]
    cut = int(np.argmin(cuts)) + 1 if min(cuts) < 0.0 else 0
    return saving, set(best[: int(min(cut, limit // cost))])


@pytest.mark.parametrize(
    ("alpha", "beta", "allowance"),
    [(1.0, 0.0, None), (2.0, 0.0, None), (0.5, 2.0, 10.0), (1.0, 0.0, 1.0)],
)
@pytest.mark.parametrize("column", [DATE, PART])
def test_a_decision_is_that_of_the_equations_by_hand(
    column: int, alpha: float, beta: float, allowance: float | None
) -> None:
    """Utilization is estimated from bounds; by hand it is counted over the rows."""
    world, asks = table(), asked(column, 64, width=40 if column == DATE else 900)
    settings = replace(
        LITERAL, alpha=alpha, beta_openings=beta, allowance=allowance, open_bytes=500,
        debt_share=1.0, debt=Debt(spent=100_000.0, realised=40_000.0),
    )  # fmt: skip
    situation = situation_of(_given(world, workload(asks), settings))
    values = world.values[column].reshape(FILES, PER_FILE)
    ranges = [one.literals for one in asks]
    opened = sum(
        values[number].min() <= high and values[number].max() >= low
        for low, high in ranges for number in range(FILES)
    )  # fmt: skip
    read = CELLS[column] * PER_FILE
    unit = read + 500 + 250  # a row group's opening is half of that of a file
    limit = np.inf if allowance is None else 40_000.0 - 100_000.0 + allowance * 64 * unit
    saving, chosen = _by_hand(values, read, ranges, alpha, beta * 500, limit)
    found, by_shape = cut_of_window(situation)
    assert opened > 64
    assert by_shape.sum() == pytest.approx(saving.sum(), rel=0.05)
    assert abs(len(chosen) - len(found.chosen)) <= 1
    if column == DATE:  # all files hold all parts, so that they are alike
        assert len(chosen ^ set(found.chosen.tolist())) <= 2


def test_only_the_last_queries_count() -> None:
    """16 of one column after 16 of another: the window halves to the last ones."""
    work = workload([*asked(DATE, 16, width=20), *asked(PART, 16, first=16)])
    situation = situation_of(_given(table(), work))
    weights = {
        next(iter(shape.projection)): float(shape.executions.sum())
        for shape in situation.expected.demands
    }
    assert sorted(weights.values()) == [0.0, 16.0]


def test_the_window_has_no_time_in_which_a_rewrite_pays_back() -> None:
    work = workload(asked(PART, 64))
    advice = advise(table(), work, LITERAL)
    assert recluster(advice) and sum(one.predicted.saving for one in advice.actions) > 0.0
    assert advice.payback_hours is None
    situation = situation_of(_given(table(), work))
    assert situation.expected.yearly == situation.expected.yearly_mean


def test_a_partition_is_its_share_of_the_mean_year() -> None:
    """The window's executions are no rate: the year of a partition adds up to that of the table."""
    files = table().file_table()
    half = replace(files, partition=np.arange(len(files)) % 2, partitions=files.partitions * 2)
    given = replace(_given(table(), workload(asked(PART, 64))), table=half)
    situation = situation_of(given)
    parts = [_yearly_of_partition(situation, np.array([row])) for row in (0, 1)]
    assert sum(parts) == pytest.approx(situation.expected.yearly_mean)


def test_queries_from_before_a_rewrite_do_not_speak_for_another_one() -> None:
    """They never read the new files; later ones did."""
    work = workload(asked(PART, 64))
    now = replace(LITERAL, now_ms=2 * DAY)
    after = apply(table(), advise(table(), work, now), now)
    assert recluster(advise(after, work, now)) == []
    situation = situation_of(_given(after, work, now))
    _, saving = cut_of_window(situation)
    assert saving[:, situation.table.layout_written].sum() == 0.0


def test_the_limits_are_the_least_of_eq_2_eq_5_and_the_warm_start() -> None:
    work = workload(asked(PART, 64))
    situation = situation_of(_given(table(), work))
    free = limit_left(situation)
    assert free == pytest.approx(LITERAL.debt_share * situation.expected.yearly_mean)
    owing = replace(LITERAL, debt=Debt(spent=free + 1.0, realised=0.0))
    assert limit_left(situation_of(_given(table(), work, owing))) == 0.0
    frugal = replace(LITERAL, allowance=0.001)
    assert limit_left(situation_of(_given(table(), work, frugal))) < 0.01 * free
    few = workload(asked(PART, 8))
    assert limit_left(situation_of(_given(table(), few))) <= warm_start_limit(8, FILES, SIZE)


def test_with_one_key_all_groups_have_the_column_of_the_last_selection() -> None:
    work = workload([*asked(DATE, 32, width=20), *asked(PART, 16, first=32)])
    situation = situation_of(_given(table(), work))
    chosen, saving = cut_of_window(situation)
    found = list(groups(situation, chosen, saving, hybrid=False))
    # 32 files: the key was selected by the 32 queries on DATE, and holds for 32 more.
    assert {column.field_id for one in found for column in one.ordering.key} == {DATE}
    own = list(groups(situation, chosen, saving))
    assert {column.field_id for one in own for column in one.ordering.key} == {PART}
