"""The predicate tree: shape, negation, and how it prints without literals."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reconciler.queries.predicate import (
    FALSE,
    TRUE,
    Always,
    And,
    Comparison,
    In,
    IsNaN,
    IsNull,
    Not,
    Or,
    Predicate,
    Ref,
    StartsWith,
    fields_of,
    push_not,
    render,
    slots_of,
    walk,
)
from reconciler.table.schema import Field, Schema
from tests.examples import examples
from tests.queries.worlds import holds, predicates, settings_of, worlds

SCHEMA = Schema(
    0, (Field(1, "ship", "date"), Field(2, "note", "string"), Field(3, "price", "double"))
)


@st.composite
def cases(draw: st.DrawFn) -> tuple[Any, ...]:
    world = draw(worlds())
    predicate, slots = draw(predicates(world.schema))
    return world, predicate, draw(settings_of(world.schema, slots))


@settings(max_examples=examples(150), deadline=None)
@given(cases())
def test_pushing_negations_down_changes_no_verdict_and_leaves_them_on_leaves(
    case: tuple[Any, ...],
) -> None:
    world, predicate, queries = case
    pushed = push_not(predicate)
    for node in walk(pushed):
        if isinstance(node, Not):
            assert not isinstance(node.child, (And, Or, Not, Always))
    assert sorted(slots_of(pushed)) == sorted(slots_of(predicate))
    assert fields_of(pushed) == fields_of(predicate)
    ids = [field.field_id for field in world.schema.fields]
    for rows in world.files:
        for row in rows:
            values = dict(zip(ids, row, strict=True))
            assert holds(pushed, queries[0], values) == holds(predicate, queries[0], values)


def test_slots_are_numbered_in_the_order_of_the_walk_and_fields_are_distinct() -> None:
    tree = Or((And((Comparison(Ref(3), "<", 0), In(Ref(1), 1))), Not(StartsWith(Ref(2), 2))))
    assert slots_of(tree) == (0, 1, 2)
    assert fields_of(And((tree, IsNull(Ref(1)), IsNaN(Ref(3))))) == (1, 2, 3)
    assert fields_of(TRUE) == ()


BETWEEN = And((Comparison(Ref(1), ">=", 0), Comparison(Ref(1), "<=", 1)))


@pytest.mark.parametrize(
    ("tree", "text"),
    [
        (BETWEEN, "ship BETWEEN ? AND ?"),
        (Or((BETWEEN, IsNull(Ref(2)))), "(ship BETWEEN ? AND ?) OR note IS NULL"),
        (Not(In(Ref(2), 0)), "note NOT IN (?)"),
        (StartsWith(Ref(2), 0), "note LIKE ?%"),
        (IsNaN(Ref(3)), "price IS NAN"),
        (Comparison(Ref(1, "month"), "=", 0), "month(ship) = ?"),
        (Comparison(Ref(2, "bucket[16]"), "=", 0), "bucket(16, note) = ?"),
        (Comparison(Ref(9), "=", 0), "(dropped column 9) = ?"),
        (And((TRUE, FALSE)), "TRUE AND FALSE"),
    ],
)
def test_predicates_print_their_shape_without_values(tree: Predicate, text: str) -> None:
    assert render(tree, SCHEMA) == text


def test_literals_are_shown_only_when_given() -> None:
    assert render(BETWEEN, SCHEMA, [0, 31]) == "ship BETWEEN 1970-01-01 AND 1970-02-01"
    assert render(In(Ref(2), 0), SCHEMA, [(b"a", b"b")]) == "note IN (a, b)"
    assert render(Comparison(Ref(1, "month"), "=", 0), SCHEMA, [5]) == "month(ship) = 5"
