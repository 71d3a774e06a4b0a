"""The row filter equals a plain evaluator that looks at one row at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from reconciler.queries.predicate import And, Comparison, IsNull, Not, Or, Ref
from reconciler.queries.row_filter import matches
from reconciler.table.schema import Field, Schema
from tests.examples import examples
from tests.queries.worlds import batched, holds, predicates, row_values, settings_of, worlds


@st.composite
def cases(draw: st.DrawFn) -> tuple[Any, ...]:
    world = draw(worlds())
    predicate, slots = draw(predicates(world.schema))
    return world, predicate, slots, draw(settings_of(world.schema, slots))


@settings(max_examples=examples(300), deadline=None)
@given(cases())
def test_rows_match_exactly_when_the_predicate_is_true_of_them(case: tuple[Any, ...]) -> None:
    world, predicate, slots, queries = case
    values, null, _ = row_values(world)
    literals = batched(queries, world.schema, slots)
    result = matches(predicate, literals, values, null, queries=len(queries))
    ids = [field.field_id for field in world.schema.fields]
    rows = [dict(zip(ids, row, strict=True)) for members in world.files for row in members]
    for q, setting in enumerate(queries):
        assert result[q].tolist() == [holds(predicate, setting, row) for row in rows]


def test_a_column_that_was_not_sampled_loses_no_row() -> None:
    predicate = And((Comparison(Ref(1), "=", 0), Comparison(Ref(2), "=", 1)))
    literals = [np.array([5]), np.array([6])]
    result = matches(predicate, literals, {1: np.array([4, 5])}, {})
    assert result.tolist() == [[False, True]]


def test_transforms_are_applied_to_rows() -> None:
    schema = Schema(0, (Field(1, "d", "date"),))
    result = matches(
        Or((Comparison(Ref(1, "month"), "=", 0), IsNull(Ref(1, "void")))),
        [np.array([1])],
        {1: np.array([30, 31, 58, 59])},
        {},
        schema=schema,
    )
    assert result.all()
    result = matches(
        Not(Comparison(Ref(1, "month"), "=", 0)),
        [np.array([1])],
        {1: np.array([30, 31, 58, 59])},
        {1: np.array([False, False, False, True])},
        schema=schema,
    )
    assert result.tolist() == [[True, False, False, False]]
