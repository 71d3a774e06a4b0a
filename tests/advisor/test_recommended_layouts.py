"""Which layouts a recommendation considers, and which of them it chooses: kinds of tables that once
got a worse one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bench.replay.table import empty_table
from reconciler.advisor.pto import space as spaces
from reconciler.advisor.pto.objective import LOCAL, Costs, costs_of_plans, reading_cost
from reconciler.advisor.pto.partitionings import text_of
from reconciler.advisor.pto.present import present_readings
from reconciler.advisor.pto.recommend import RecommendInput, recommend, search_space
from reconciler.advisor.pto.refine import refined
from reconciler.advisor.pto.space import Space
from reconciler.advisor.pto.trees import TREE_OF_CUTS
from reconciler.advisor.simulate.pool import build_pool
from reconciler.plan.grouping import SMALL_SHARE
from reconciler.plan.ordering import Lexicographic
from reconciler.queries.demanded import demands
from reconciler.queries.fragments import Fragment
from reconciler.queries.open_price import OpenPrice
from reconciler.queries.predicate import And, Comparison, Ref
from reconciler.queries.read_cost import read_shape
from reconciler.queries.table_view import footer_model, table_view
from reconciler.table.row_group_bytes import output_files
from reconciler.table.schema import PartitionSpec, SortColumn
from tests.advisor.worlds import (
    DATE,
    DAY,
    KEY,
    PART,
    SCHEMA,
    arriving_rows,
    claiming,
    range_workload,
    workload,
)

ROWS, FILES = 60_000, 6
MONTH_MS = 30 * DAY
CHEAP = Costs("cheap", 16_384.0, 2_048.0, 512.0)
"""So that a table of few MiB has several files."""


def given_of(
    asked: list[Fragment],
    *,
    times: int = 1,
    values: int = 100_000,
    costs: Costs = CHEAP,
    per_file: int = ROWS // FILES,     **more: object,
) -> RecommendInput:  # fmt: skip
    """Rows whose days and parts are anywhere in the files. times: how many times as large the table
    is said to be; values: of the parts."""
    random = np.random.default_rng(5)
    rows = arriving_rows(random, ROWS, days=2_000, jitter=2_000)
    rows[PART] = random.integers(0, values, ROWS)
    rows[DATE] = random.integers(0, 2_000, ROWS)
    table = empty_table(SCHEMA).append(rows, per_file, 0, per_file // 2)
    files = claiming(table.file_table(), times)
    groups = table.row_groups() if times == 1 else None
    sample = table.sample(np.arange(len(files)), per_file)
    view = table_view(files, groups, sample, 1 << 20)
    wanted = demands(workload(asked), SCHEMA, MONTH_MS)
    made = RecommendInput(view, PartitionSpec(0), wanted, costs, 4.0, MONTH_MS)
    return replace(made, **more)  # type: ignore[arg-type]


def space_of(given: RecommendInput) -> Space:
    pools = [build_pool(given.view, (KEY, DATE, PART), rows) for rows in (ROWS, 4_000, 8_000)]
    assert all(pools)
    return search_space(given, *pools)[0]  # type: ignore[arg-type]


def ranges(column: int, count: int, width: int, domain: int, start: int = 0) -> list[Fragment]:
    return range_workload(np.random.default_rng(column), column, count, width, domain, start=start)


def test_limits_on_partitions_hold_for_the_files_that_are_declared():
    """No file of the grid is below 32 MiB, and a partition of 10 MiB is no small file of 8 MiB."""
    space = space_of(given_of(ranges(DATE, 40, 30, 2_000), times=450))
    assert min(size.target_bytes for size in space.sizes) == 32 << 20
    texts = [text_of(item.spec, SCHEMA) for item in space.partitionings]
    months = texts.index("month(day)")
    each = space.live_bytes / space.partitionings[months].partitions
    assert 8 << 20 < each < 24 << 20
    labels = [*space.labels, *refined(space, space.labels)]
    mine = [label.candidate.sizes for label in labels if label.candidate.spec == months]
    assert mine
    assert all(each >= SMALL_SHARE * size.target_bytes * 0.999 for size in mine)


def test_few_values_may_be_partitions():
    space = space_of(given_of(ranges(PART, 40, 0, 5), times=100, values=5))
    kept = {text_of(item.spec, SCHEMA): item.partitions for item in space.partitionings}
    assert kept["part"] == 5


def test_a_curve_over_three_columns_is_a_candidate_and_chosen_for_boxes():
    random = np.random.default_rng(1)
    boxes = []
    for number, (day, part, key) in enumerate(
        zip(
            random.integers(0, 1_700, 60), random.integers(0, 85_000, 60),
            random.integers(0, 51_000, 60), strict=True,
        )
    ):  # fmt: skip
        (asked,) = range_workload(random, DATE, 1, 1, 10, start=number)
        low = (int(day), int(part), int(key))
        wide = (300, 15_000, 9_000)
        boxes.append(
            replace(
                asked,
                predicate=And(tuple(
                    Comparison(Ref(column), op, slot)
                    for slot, (column, op) in enumerate(
                        (column, op) for column in (DATE, PART, KEY) for op in (">=", "<=")
                    )
                )),
                literals=tuple(
                    value for a, w in zip(low, wide, strict=True) for value in (a, a + w)
                ),
                moving=(None,) * 6,
            )
        )  # fmt: skip
    found = recommend(given_of(boxes, times=4, by_spark="a test of keys"))
    assert found.chosen is not None and found.chosen.ordering.curve
    assert {column.field_id for column in found.chosen.ordering.key} == {DATE, PART, KEY}
    assert TREE_OF_CUTS in {item.what for item in found.refused}


@pytest.mark.parametrize("price", [1 << 20, 5 << 20])
def test_today_costs_what_a_plan_counts(price: int):
    """One price list, and one count of files, row groups and footers."""
    given = given_of([*ranges(KEY, 40, 3_000, ROWS), *ranges(DATE, 20, 30, 2_000, 100)])
    view = replace(given.view, open_bytes=price)
    costs = replace(costs_of_plans(OpenPrice(price, 9, 1)), footer=footer_model(view))
    readings = present_readings(view, given.demands)
    ours = float(reading_cost(costs, readings, given.demands).sum())
    plans = sum(float(one.executions @ read_shape(view, one).cost) for one in given.demands)
    assert ours == pytest.approx(plans, rel=2e-3)


def test_a_layout_that_rewrites_nothing_is_today_in_everything():
    given = given_of(ranges(DATE, 40, 30, 2_000), per_file=ROWS // 2, costs=LOCAL, rho=1e9)
    found = recommend(given)
    unwritten = [it for it in found.others if it.rewrite_bytes == 0.0]
    assert found.chosen is None and unwritten
    for layout in unwritten:
        assert layout.row_groups == found.today.row_groups == len(given.view.row_groups)
        assert layout.files == found.today.files
        assert (layout.read, layout.total) == (found.today.read, found.today.total)


def test_a_column_that_adds_nothing_is_not_declared():
    """Half of the queries also filter on nearly all parts."""
    asked = [*ranges(DATE, 40, 30, 2_000), *ranges(PART, 20, 97_000, 100_000, 100)]
    given = given_of(asked)
    found = recommend(given)
    assert found.chosen is not None
    assert found.chosen.ordering == Lexicographic((SortColumn(DATE),))
    cheapest = min([found.chosen, *found.others], key=lambda layout: layout.total)
    assert found.chosen.total <= (1.0 + spaces.TIE) * cheapest.total


def test_a_sort_by_which_no_query_skips_is_not_declared(monkeypatch):
    """Every query reads all parts: rows in their order only take fewer bytes."""
    given = given_of(ranges(PART, 40, 990, 1_000), values=1_000, rho=0.01)
    found = recommend(given)
    assert found.chosen is None or not found.chosen.ordering.key
    monkeypatch.setattr(spaces, "LEAST_SKIPPED", -1.0)
    else_chosen = recommend(given).chosen
    assert else_chosen is not None and else_chosen.ordering.key


def test_the_number_of_files_does_not_hang_on_a_little_more_bytes():
    """With as many bytes as predicted or a fifth more or less, the files are as many."""
    found = recommend(given_of(ranges(DATE, 40, 300, 2_000), costs=LOCAL))
    chosen = found.chosen
    assert chosen is not None and chosen.files == 1.0
    for share in (0.8, 1.0, 1.2):
        assert output_files(share * found.today.target_bytes * FILES, chosen.target_bytes) == 1
