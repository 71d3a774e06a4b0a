"""Which keys are tried, and which one is chosen."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np

from bench.replay.table import SimulatedTable, empty_table
from reconciler.advisor.advice import AdviceInput
from reconciler.advisor.choose.recluster import recluster
from reconciler.advisor.decide import decide
from reconciler.advisor.simulate.layout import Layout
from reconciler.advisor.situation import situation_of
from reconciler.plan.actions.rewrite import Recluster
from reconciler.plan.ordering import Lexicographic, best_of
from reconciler.queries.fragments import Fragment
from reconciler.queries.predicate import And, Comparison, Ref
from reconciler.replay.run import reading
from reconciler.table.schema import Field, Schema, SortColumn
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
    written_by_spark,
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
    """Where Spark writes, which ends files at no value: bands of single days serve them better."""
    mixed = _mixed(days=5)
    (action,) = decide(replace(mixed, settings=written_by_spark(mixed.settings))).actions
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


def test_a_curve_over_all_columns_is_chosen_where_every_query_combines_most_of_them():
    """The best pair reads a quarter more: no pair is in most of the conditions."""
    table, queries = _explored()
    size = ROWS // 256 * table.row_width
    settings = replace(SETTINGS, target_bytes=size, row_group_bytes=size)
    files = table.file_table()
    sample = table.sample(np.arange(len(files)), 128)
    given = AdviceInput(files, workload(queries), settings, table.row_groups(), sample)
    (action,) = decide(given).actions
    assert isinstance(action.action, Recluster)
    assert len(action.action.ordering.key) >= 4
    asked = workload(queries).shapes
    found = reading(table.apply(action.action, 0), asked, settings)[1]
    every, together = np.arange(len(files)), np.zeros(len(files), dtype=np.int64)
    for pair in combinations((1, 2, 3, 4, 5), 2):
        layout = Layout(best_of(tuple(map(SortColumn, pair))), size, size, together)
        assert found < 0.9 * reading(table.laid_out(layout, every, 0), asked, settings)[1]


def _explored() -> tuple[SimulatedTable, list[Fragment]]:
    """Five columns in no order, and ranges of four of them at a time."""
    random = np.random.default_rng(9)
    schema = Schema(1, tuple(Field(n, f"c{n}", "int") for n in range(1, 6)))
    rows = {n: random.integers(0, 1_000, ROWS) for n in range(1, 6)}
    per_file = ROWS // 256
    table = empty_table(schema).append(rows, per_file, 0, per_file)
    queries = []
    for number in range(120):
        columns = np.sort(random.permutation(5)[:4] + 1).tolist()
        first = random.integers(0, 700, 4).tolist()
        bounds = [Comparison(Ref(c), op, 2 * n + high) for n, c in enumerate(columns)
                  for high, op in enumerate((">=", "<"))]  # fmt: skip
        literals = tuple(value for low in first for value in (low, low + 300))
        queries.append(
            Fragment("log", number, "u", And(tuple(bounds)), literals, (None,) * 8,
                     (1, 2, 3, 4, 5), 50.0, number * DAY // 20, "spark")
        )  # fmt: skip
    return table, queries


def _tried(given: AdviceInput) -> list[tuple[int, ...]]:
    """Return the sorts that were chosen or named as worse."""
    found = recluster(situation_of(given))
    chosen = [candidate.ordering for candidate in found.candidates]
    titles = {str(item.what) for item in found.rejected}
    names = {field.name: field.field_id for field in SCHEMA.fields}
    keys = [
        tuple(column.field_id for column in ordering.key)
        for ordering in chosen
        if ordering.lead is not None
    ]
    for title in titles:
        columns = title.removeprefix("recluster by ").split(", ")
        if all(column in names for column in columns):
            keys.append(tuple(names[column] for column in columns))
    return keys
