"""A table in the leaves of a tree: it stays as it is for the same queries, and where only a region
is asked otherwise, only that region is laid out again."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from bench.replay.table import SimulatedTable, empty_table
from reconciler.advisor.advice import QD_TREE, AdviceInput, Migration
from reconciler.advisor.decide import decide
from reconciler.plan.plan import PlannedAction
from reconciler.queries.fragments import Fragment
from reconciler.queries.predicate import And, Comparison, Ref
from reconciler.queries.rewrite_cost import Rho
from reconciler.replay.run import reading
from reconciler.table.schema import SpecField
from tests.advisor.worlds import DATE, DAY, KEY, PART, SCHEMA, SETTINGS, VALUE, advise, workload

ROWS, REGION = 60_000, 200
SETTINGS_OF_TREES = replace(SETTINGS, mode=QD_TREE, now_ms=10 * DAY, rho=Rho(1.0, "measured"))


def ranges(position: int, at_ms: int, *conditions: tuple[int, float, float]) -> Fragment:
    """A query with a range of each column: (column, least value, width)."""
    parts, literals = list[Comparison](), list[float]()
    for column, low, width in conditions:
        parts += [
            Comparison(Ref(column), ">=", len(literals)),
            Comparison(Ref(column), "<=", len(literals) + 1),
        ]
        literals += [low, low + width]
    return Fragment(
        source="log", position=position, table_uuid="u", predicate=And(tuple(parts)),
        literals=tuple(literals), moving=(None,) * len(literals),
        projection=tuple(sorted(column for column, *_ in conditions)), weight=1.0,
        event_ms=at_ms, engine="trino",
    )  # fmt: skip


def days_and_parts(random: np.random.Generator, first: int, count: int) -> list[Fragment]:
    return [
        ranges(
            first + number, first * DAY // 40 + number * DAY // 40,
            (DATE, int(random.integers(0, 900)), 100),
            (PART, int(random.integers(0, 90_000)), 8_000),
        )
        for number in range(count)
    ]  # fmt: skip


def amounts_of_early_days(random: np.random.Generator, first: int, count: int) -> list[Fragment]:
    return [
        ranges(
            10_000 + first + number, first * DAY // 40 + number * DAY // 40,
            (DATE, int(random.integers(0, REGION)), 60),
            (VALUE, float(random.random() * 0.9), 0.05),
        )
        for number in range(count)
    ]  # fmt: skip


def laid_out(random: np.random.Generator) -> SimulatedTable:
    """A table in the leaves that serve ranges of days and parts."""
    rows = {
        KEY: np.arange(ROWS),
        DATE: random.integers(0, 1_000, ROWS),
        PART: random.integers(0, 100_000, ROWS),
        VALUE: random.random(ROWS),
    }
    table = empty_table(SCHEMA).append(rows, 2_000, 0, 2_000)
    advice = advise(table, workload(days_and_parts(random, 0, 300)), SETTINGS_OF_TREES)
    assert [item.action.kind for item in advice.actions] == ["Recluster"]
    return table.apply(advice.actions[0].action, 10 * DAY)


def test_leaves_stay_for_the_same_queries_and_a_region_asked_otherwise_is_built_alone() -> None:
    random = np.random.default_rng(0)
    table = laid_out(random)
    later = replace(SETTINGS_OF_TREES, now_ms=15 * DAY)
    same = advise(table, workload(days_and_parts(random, 400, 200)), later)
    assert not [item for item in same.actions if item.action.kind == "Recluster"]
    early = amounts_of_early_days(random, 400, 200)
    asked = workload(days_and_parts(random, 400, 200), early)
    (item,) = advise(table, asked, later).actions
    files = table.file_table()
    own = np.isin(files.path.astype(str), list(item.action.inputs))
    reached = REGION + 60
    assert files.columns[DATE].lower[own].max() <= reached, "no file beyond the region"
    assert files.bytes[own].sum() < 0.5 * files.bytes.sum()
    after = table.apply(item.action, 15 * DAY)
    of_region = workload(early).shapes
    assert reading(after, of_region, later)[1] < 0.6 * reading(table, of_region, later)[1]


def test_files_move_to_another_spec_along_a_tree() -> None:
    random = np.random.default_rng(1)
    table = laid_out(random)
    asked = workload(days_and_parts(random, 400, 200))
    sample = table.sample(np.arange(len(table.files)), 256)

    def moved(mode: str) -> PlannedAction:
        migration = Migration((SpecField(KEY, "bucket[2]"),), spec_id=1, exists=True, present=0)
        settings = replace(SETTINGS_OF_TREES, mode=mode, migration=migration)
        given = AdviceInput(table.file_table(), asked, settings, table.row_groups(), sample)
        (item,) = (one for one in decide(given).actions if one.action.kind == "Migrate")
        return item

    along, plain = moved(QD_TREE), moved("None")
    assert along.action.trees and not plain.action.trees
    assert along.predicted.read_after < 0.7 * plain.predicted.read_after
