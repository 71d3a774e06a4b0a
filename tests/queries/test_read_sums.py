"""Sums over the files that queries read are those of a cell per query and file."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reconciler.queries import read_cost, read_sums
from reconciler.queries.predicate import And, Comparison, Predicate, Ref
from reconciler.queries.pruning import prune
from reconciler.queries.shape import Shape
from reconciler.queries.table_view import TableView, table_view
from reconciler.table.filetable import UNKNOWN
from reconciler.table.schema import PartitionSpec
from tests.advisor.worlds import DATE, KEY, PART, VALUE, arrived
from tests.examples import examples
from tests.queries.worlds import batched, file_table, predicates, settings_of, worlds

OPS = "<", "<=", "=", ">", ">="


@st.composite
def ranges(draw: st.DrawFn, field: int) -> tuple[Predicate, list[tuple[str, int]]]:
    ops = draw(st.lists(st.sampled_from(OPS), min_size=1, max_size=2))
    found = tuple(Comparison(Ref(field), op, slot) for slot, op in enumerate(ops))
    return (found[0] if len(ops) == 1 else And(found)), [(op, field) for op in ops]


def shape_of(predicate: Predicate, literals: list[Any], queries: int) -> Shape:
    ones, numbers = np.ones(queries), np.arange(queries)
    return Shape(
        "shape", predicate, (((1,), 1.0),), tuple(literals),
        tuple(np.full(queries, np.nan) for _ in literals), ones, ones, numbers, ones, numbers,
        np.zeros(queries, dtype=np.int32),
    )  # fmt: skip


@settings(max_examples=examples(300), deadline=None)
@given(st.data())
def test_sums_are_those_of_the_files_that_are_not_pruned(data: Any) -> None:
    world = data.draw(worlds(("int", "double", "string", "date")))
    of_range = data.draw(st.booleans())
    drawn = ranges(1) if of_range else predicates(world.schema)
    predicate, slots = data.draw(drawn)
    queries = data.draw(settings_of(world.schema, slots))
    shape = shape_of(predicate, batched(queries, world.schema, slots), len(queries))
    table = file_table(world, PartitionSpec(0, ()), [()] * len(world.files))
    values = [np.arange(1.0, len(table) + 1.0), np.ones(len(table))]
    expected = [prune(shape, table) @ own for own in values]
    for found, wanted in zip(read_sums.read_sums(shape, table, values), expected, strict=True):
        np.testing.assert_allclose(found, wanted)


def test_a_range_needs_no_cell_per_query_and_file_unless_it_is_empty(monkeypatch: Any) -> None:
    table = arrived(np.random.default_rng(0), rows=400, rows_per_file=10, jitter=3).file_table()
    predicate = And((Comparison(Ref(1), ">=", 0), Comparison(Ref(1), "<", 1)))
    asked = []
    monkeypatch.setattr(read_sums, "prune", lambda *given: asked.append(1) or prune(*given))
    for width, cells in ((5, False), (0, True)):
        low = np.arange(0, 400, 7)
        shape = shape_of(predicate, [low, low + width], len(low))
        (found,) = read_sums.read_sums(shape, table, [np.ones(len(table))])
        assert (found == prune(shape, table).sum(axis=1)).all()
        assert bool(asked) is cells


@pytest.mark.parametrize("seed", range(12))
def test_readings_of_ranges_are_those_of_a_cell_per_query_and_file(
    seed: int, monkeypatch: Any
) -> None:
    random = np.random.default_rng(seed)
    table = arrived(random, rows=2_000, rows_per_file=50, jitter=int(random.choice([3, 300])))
    files = table.file_table()
    count = len(files)
    column = int(random.choice([KEY, DATE, PART]))
    bounds = files.columns[column]
    lost = random.random(count) < 0.1
    holes = replace(
        bounds, has_lower=bounds.has_lower & ~lost, nulls=np.where(lost[::-1], 3, bounds.nulls)
    )
    laden = {
        "delete_files": random.integers(0, 2, count),
        "delete_bytes": random.integers(0, 9, count),
    }
    if seed % 2:
        files = replace(files, columns={**files.columns, column: holes}, **laden)
    sample = table.sample(range(0, count, 5), 20) if seed % 3 == 0 else None
    footers = table.row_groups() if seed % 4 == 3 else None
    size = int(np.sort(files.bytes)[count // 2]) if seed % 5 == 0 else 1 << 20
    view = table_view(files, footers, sample, size)
    ops = [(">=", "<="), (">", "<"), (">=", "<"), ("=",), ("<",), (">",)][seed % 6]
    leaves = tuple(Comparison(Ref(column), op, slot) for slot, op in enumerate(ops))
    low = random.choice(table.values[column], 30).astype(np.int64)
    literals = [low, low + random.integers(2, 400, 30)][: len(ops)]
    shape = shape_of(leaves[0] if len(ops) == 1 else And(leaves), literals, 30)
    shape = replace(shape, executions=random.random(30), column_sets=(((column, VALUE), 1.0),))
    _readings_agree(view, shape, monkeypatch)


@pytest.mark.parametrize("apart", [86_400 * 10**9, 1 << 45, 40])
def test_files_of_one_value_far_apart_are_covered_as_by_cells(apart: int, monkeypatch: Any) -> None:
    """Whole days in nanoseconds, and hashed keys, have more digits than sums of shares keep. Sizes
    that no metrics tell come from all files, and an open end is no distance."""
    files = arrived(np.random.default_rng(0), rows=2_000, rows_per_file=10).file_table()
    number = np.arange(len(files))
    low, alone = apart * number, number % 3 == 0
    bounds = replace(files.columns[KEY], lower=low, upper=low + np.where(alone, 0, apart // 4))
    told = np.where(alone, UNKNOWN, files.column_sizes[VALUE] // (1 + number % 2))
    files = replace(
        files,
        columns={**files.columns, KEY: bounds},
        column_sizes={**files.column_sizes, VALUE: told},
    )
    leaves = And((Comparison(Ref(KEY), ">=", 0), Comparison(Ref(KEY), "<", 1)))
    begins = np.random.default_rng(1).choice(low, 40)
    ends = np.where(np.arange(40) % 4 == 0, np.iinfo(np.int64).max, begins + 3 * apart)
    shape = shape_of(leaves, [begins, ends], 40)
    shape = replace(shape, column_sets=(((KEY, VALUE), 1.0),))
    _readings_agree(table_view(files, None, None, 1 << 20), shape, monkeypatch)


def _readings_agree(view: TableView, shape: Shape, monkeypatch: Any) -> None:
    found = {}
    for cells in (0, 1 << 60):
        monkeypatch.setattr(read_cost, "MANY_CELLS", cells)
        found[cells] = read_cost.read_shape(view, shape)
    for field in fields(read_cost.ShapeReading):
        mine, wanted = (getattr(found[cells], field.name) for cells in (0, 1 << 60))
        np.testing.assert_allclose(
            mine, wanted, rtol=1e-4, atol=1e-4 * wanted.max(), err_msg=field.name
        )


def test_files_that_queries_cover_save_nothing_at_all(monkeypatch: Any) -> None:
    """Differences of sums that are rounding would make them boundary files."""
    random = np.random.default_rng(0)
    files = arrived(random, rows=2_000, rows_per_file=10).file_table()
    predicate = And((Comparison(Ref(KEY), ">=", 0), Comparison(Ref(KEY), "<", 1)))
    low = random.integers(0, 20, 40) * 100
    shape = replace(shape_of(predicate, [low, low + 100], 40), executions=random.random(40))
    monkeypatch.setattr(read_cost, "MANY_CELLS", 0)
    assert not read_cost.read_shape(table_view(files, None, None, 1 << 20), shape).saving.any()
