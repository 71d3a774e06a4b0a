"""Which keys are tried, and which one is chosen."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from reconciler.advisor.advice import AdviceInput
from reconciler.advisor.decide import decide
from reconciler.advisor.recluster import recluster
from reconciler.advisor.simulate.table import empty_table
from reconciler.advisor.situation import look
from reconciler.plan.actions.recluster import Recluster
from reconciler.plan.ordering import Lexicographic
from reconciler.queries.fragments import Fragment
from reconciler.queries.predicate import And, Comparison, Ref
from tests.advisor.worlds import (
    DATE,
    DAY,
    KEY,
    PART,
    SCHEMA,
    SETTINGS,
    VALUE,
    range_query,
    workload,
)

ROWS, PER_FILE = 20_000, 1_000


def _mixed(days: int) -> AdviceInput:
    """Rows of so many days in no order; half of the queries ask for a day, half for a range of
    parts within a day."""
    random = np.random.default_rng(3)
    rows = {
        KEY: np.arange(ROWS),
        DATE: random.integers(0, days, ROWS),
        PART: random.integers(0, 100_000, ROWS),
        VALUE: random.random(ROWS),
    }
    table = empty_table(SCHEMA).append(rows, PER_FILE, 0, PER_FILE)
    of_day = [
        range_query(n, DATE, n % days, n % days, event_ms=n * DAY // 4, weight=50.0)
        for n in range(40)
    ]
    of_part = [_part_of_a_day(100 + n, n % days, int(random.integers(0, 98_000)))
               for n in range(40)]  # fmt: skip
    settings = replace(SETTINGS, target_bytes=28 * PER_FILE, row_group_bytes=28 * PER_FILE)
    files = table.file_table()
    return AdviceInput(
        files, workload(of_day, of_part), settings,
        table.row_groups(), table.sample(np.arange(len(files)), 256),
    )  # fmt: skip


def _part_of_a_day(position: int, day: int, low: int) -> Fragment:
    inside = (Comparison(Ref(PART), ">=", 1), Comparison(Ref(PART), "<=", 2))
    predicate = And((Comparison(Ref(DATE), "=", 0), *inside))
    return Fragment(
        "log", position, "u", predicate, (day, low, low + 2_000), (None, None, None),
        (DATE, PART, VALUE), 50.0, position * DAY // 40, "spark",
    )  # fmt: skip


def test_a_sort_by_two_columns_is_chosen_where_it_serves_both_conditions():
    (action,) = decide(_mixed(days=5)).actions
    assert isinstance(action.action, Recluster)
    assert isinstance(action.action.ordering, Lexicographic)
    assert [column.field_id for column in action.action.ordering.key] == [DATE, PART]


def test_a_second_column_is_not_tried_behind_one_whose_values_hardly_repeat():
    tried = _tried(_mixed(days=ROWS * 10))
    assert (DATE,) in tried
    assert (DATE, PART) not in tried


def test_a_column_that_is_constant_in_the_files_is_no_part_of_a_key():
    tried = _tried(_mixed(days=1))
    assert tried
    assert not any(DATE in key for key in tried)


def _tried(given: AdviceInput) -> list[tuple[int, ...]]:
    """Return the sorts that were chosen or named as worse."""
    found = recluster(look(given))
    chosen = [candidate.ordering for candidate in found.candidates]
    titles = {str(item.what) for item in found.rejected}
    names = {field.name: field.field_id for field in SCHEMA.fields}
    keys = [tuple(column.field_id for column in ordering.key) for ordering in chosen]
    for title in titles:
        columns = title.removeprefix("recluster by ").split(", ")
        if all(column in names for column in columns):
            keys.append(tuple(names[column] for column in columns))
    return keys
