"""A tree is judged by queries that it was not grown for: what a plan says is what the next queries
of the same kind read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from bench.replay.table import SimulatedTable, empty_table
from reconciler.advisor.advice import Advice, Settings
from reconciler.advisor.choose import keys
from reconciler.advisor.decide import decide
from reconciler.advisor.judge.candidate import Candidate, sharpen
from reconciler.advisor.pto.objective import Costs
from reconciler.advisor.pto.recommend import RecommendInput, recommend
from reconciler.advisor.simulate.grid import in_any_size, simulate_sizes
from reconciler.advisor.simulate.layout import Sizes
from reconciler.advisor.simulate.pool import build_pool
from reconciler.queries.demanded import demands
from reconciler.queries.fragments import Fragment, workload_of_fragments
from reconciler.queries.predicate import In, Ref
from reconciler.queries.rewrite_cost import Rho
from reconciler.queries.shape import Shape, Workload
from reconciler.queries.table_view import table_view
from reconciler.replay.run import carry_out, reading
from reconciler.table.schema import Field, PartitionSpec, Schema
from reconciler.table.times import DAY_MS
from tests.advisor.qdtree.test_keeping import ranges

COLUMNS, DOMAIN, FILE_ROWS = 5, 100_000, 500
SCHEMA = Schema(1, tuple(Field(n, f"c{n}", "long") for n in range(1, COLUMNS + 1)))
SIZE = 8 * COLUMNS * FILE_ROWS
SETTINGS = Settings(
    target_bytes=SIZE, row_group_bytes=SIZE, open_bytes=0, rho=Rho(1.0, "measured"),
    now_ms=2 * DAY_MS,
)  # fmt: skip


def _table(random: np.random.Generator) -> SimulatedTable:
    table = empty_table(SCHEMA)
    for _ in range(48):
        rows = {n: random.integers(0, DOMAIN, FILE_ROWS) for n in range(1, COLUMNS + 1)}
        table = table.append(rows, FILE_ROWS, 0, FILE_ROWS)
    return table


def _query(random: np.random.Generator, number: int) -> Fragment:
    """Return a query of ranges of one or two columns."""
    columns = np.sort(random.choice(np.arange(1, COLUMNS + 1), random.integers(1, 3), False))
    width = 3_000 * len(columns)
    lows = random.integers(0, DOMAIN - width, len(columns))
    conditions = [
        (column, low, width) for column, low in zip(columns.tolist(), lows.tolist(), strict=True)
    ]
    return ranges(number, DAY_MS + number * 60_000, *conditions)


def _asked(random: np.random.Generator, count: int) -> Workload:
    return workload_of_fragments([_query(random, number) for number in range(count)])


def _promised(advice: Advice) -> float:
    return advice.cost_after.mid / advice.cost_now


def _read(table: SimulatedTable, advice: Advice, queries: Workload) -> float:
    """Return the share of the reading that is left once the plan was carried out."""
    after, _, _ = carry_out(table, [item.action for item in advice.actions], SETTINGS, [])
    found = [reading(one, queries.shapes, SETTINGS)[1] for one in (after, table)]
    return found[0] / found[1]


@pytest.mark.parametrize(("seed", "count"), [(0, 24), (1, 48), (2, 60)])
def test_the_next_queries_read_what_the_plan_says(seed: int, count: int) -> None:
    """Judged by the queries that they were grown for, these trees promise 0.5 to 0.7 of it."""
    random = np.random.default_rng(seed)
    table = _table(random)
    advice = decide(table.given(_asked(random, count), SETTINGS))
    assert any(item.action.ordering.tree is not None for item in advice.actions)
    assert 0.8 < _read(table, advice, _asked(random, 400)) / _promised(advice) < 1.1


def test_the_bound_of_a_judged_tree_has_the_error_of_the_sample(monkeypatch) -> None:
    """Replicates show what queries read that the tree was grown for: it is the error beside what
    others read."""
    made = []

    def spied(situation: Any, candidate: Candidate, *rest: Any) -> Candidate:
        made.append((candidate, sharpen(situation, candidate, *rest)))
        return made[-1][1]

    monkeypatch.setattr(keys, "sharpen", spied)
    random = np.random.default_rng(1)
    decide(_table(random).given(_asked(random, 48), SETTINGS))
    (before, after), *_ = made
    assert before.ordering.tree is not None
    assert after.saving == before.saving
    assert after.saving_low < before.saving_low - 0.001 * before.saving


def _executions(asked: Sequence[Shape]) -> float:
    return float(sum(one.executions.sum() for one in asked))


@pytest.mark.parametrize("count", [24, 60])
def test_the_next_queries_read_what_a_recommendation_says(count: int) -> None:
    """Judged by the queries that they were grown for, these trees promise 0.65 and 0.82 of it."""
    random = np.random.default_rng(4)
    table = _table(random)
    files = table.file_table()
    sample = table.sample(np.arange(len(files)), FILE_ROWS)
    view = table_view(files, table.row_groups(), sample, SIZE)
    cheap = Costs("cheap", 64.0, 8.0, 2.0)
    log, later = (demands(_asked(random, many), SCHEMA, DAY_MS) for many in (count, 400))
    given = RecommendInput(view, PartitionSpec(0), log, cheap, 1.0, 100 * DAY_MS)
    chosen = recommend(given).chosen
    assert chosen is not None and chosen.ordering.tree is not None and chosen.row_group is not None
    pool = build_pool(view, sorted(sample.values), len(files) * FILE_ROWS)
    assert pool is not None
    sizes = Sizes(chosen.target_bytes, chosen.row_group.bytes)
    rows = in_any_size(pool, chosen.spec, chosen.ordering, thin=pool, simulated=(sizes,))
    each = simulate_sizes(rows, [sizes], later).readings.bytes.sum() / _executions(later)
    assert 0.75 < each / (chosen.ahead.bytes / _executions(log)) < 1.15
    assert chosen.recorded.bytes / count < chosen.ahead.bytes / _executions(log)


def test_queries_that_come_again_and_again_are_read_as_the_tree_was_grown_for_them() -> None:
    table = _table(np.random.default_rng(3))
    often = workload_of_fragments(
        [
            _query(np.random.default_rng(number % 12), 12 * turn + number % 12)
            for turn in range(12)
            for number in range(12)
        ]
    )
    advice = decide(table.given(often, SETTINGS))
    assert any(item.action.ordering.tree is not None for item in advice.actions)
    assert _promised(advice) == pytest.approx(_read(table, advice, often), rel=0.1)


def test_a_shape_with_a_list_of_which_one_half_has_no_query_is_judged_too() -> None:
    """The only query with the list is in one half, so that the other half's tree is grown without
    any query of that shape."""
    random = np.random.default_rng(1)
    table = _table(random)
    asked = [_query(random, number) for number in range(48)]
    listed = replace(asked[0], predicate=In(Ref(1), 0), literals=((1, 500, 90_000),),
                     moving=(None,), position=48)  # fmt: skip
    advice = decide(table.given(workload_of_fragments([*asked, listed]), SETTINGS))
    assert any(item.action.ordering.tree is not None for item in advice.actions)
