"""Sums over the files that queries read are those of a cell per query and file."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from reconciler.queries import read_sums
from reconciler.queries.predicate import And, Comparison, Predicate, Ref
from reconciler.queries.pruning import prune
from reconciler.queries.shape import Shape
from reconciler.table.schema import PartitionSpec
from tests.advisor.worlds import arrived
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
