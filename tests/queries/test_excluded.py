"""Excluded columns: neither values nor conditions remain, and no query seems to read less."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reconciler.queries.calendar import PeriodClock
from reconciler.queries.excluded import excluded_fields, without_fields
from reconciler.queries.fragments import Fragment, workload_of_fragments
from reconciler.queries.predicate import (
    TRUE,
    And,
    Comparison,
    In,
    Not,
    Or,
    Predicate,
    Ref,
    fields_of,
    slots_of,
)
from reconciler.table.schema import Field, Schema
from tests.examples import examples
from tests.queries.worlds import holds, predicates, settings_of, worlds

DAY, SSN = Ref(1), Ref(2)


def fragment(predicate: Predicate, literals: tuple[Any, ...], **more: Any) -> Fragment:
    return Fragment(
        "log", 1, "uuid", predicate, literals, (None,) * len(literals), (1, 2), 1.0, 0, "spark",
        **more,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("predicate", "literals", "kept", "left"),
    [
        (Comparison(SSN, "=", 0), (7,), TRUE, ()),
        (Comparison(DAY, "=", 0), (7,), Comparison(DAY, "=", 0), (7,)),
        (And((Comparison(SSN, "=", 0), Comparison(DAY, "<", 1))), (7, 8),
         Comparison(DAY, "<", 0), (8,)),
        (Or((Comparison(DAY, "=", 0), In(SSN, 1))), (7, (8, 9)), TRUE, ()),
        (Not(And((Comparison(DAY, "=", 0), Comparison(SSN, "=", 1)))), (7, 8), TRUE, ()),
        (Not(Or((Comparison(DAY, "=", 0), Comparison(SSN, "=", 1)))), (7, 8),
         Not(Comparison(DAY, "=", 0)), (7,)),
    ],
)  # fmt: skip
def test_a_condition_on_an_excluded_column_is_dropped_with_its_literal(
    predicate: Predicate, literals: tuple[Any, ...], kept: Predicate, left: tuple[Any, ...]
) -> None:
    found = without_fields(fragment(predicate, literals), {2})
    assert (found.predicate, found.literals, found.moving) == (kept, left, (None,) * len(left))
    assert found.projection == (1, 2)


def test_an_unbound_condition_is_dropped_too() -> None:
    unbound = And((Comparison(DAY, "=", 0), Comparison(SSN, "=", 1)))
    found = without_fields(fragment(Comparison(DAY, "=", 0), (7,), unbound=unbound), {2})
    assert found.unbound == found.predicate == Comparison(DAY, "=", 0)


def test_what_a_literal_moves_with_follows_it_to_its_new_place() -> None:
    day = PeriodClock("day")
    asked = fragment(And((Comparison(SSN, "=", 0), Comparison(DAY, "<", 1))), (7, 8))
    (shape,) = workload_of_fragments([replace(asked, moving=(None, -3))]).shapes
    found = without_fields(replace(shape, clocks=(None, day)), {2})
    assert ([o.tolist() for o in found.offsets], found.clocks) == ([[-3.0]], (day,))


@st.composite
def cases(draw: st.DrawFn) -> tuple[Any, ...]:
    world = draw(worlds())
    predicate, slots = draw(predicates(world.schema))
    ids = [field.field_id for field in world.schema.fields]
    queries = draw(settings_of(world.schema, slots))
    return world, predicate, queries, draw(st.sets(st.sampled_from(ids)))


@settings(max_examples=examples(100), deadline=None)
@given(cases())
def test_no_row_that_a_query_reads_is_lost(case: tuple[Any, ...]) -> None:
    world, predicate, queries, excluded = case
    ids = [field.field_id for field in world.schema.fields]
    for literals in queries:
        asked = fragment(predicate, tuple(literals))
        found = without_fields(asked, excluded)
        (shape,) = workload_of_fragments([asked]).shapes
        (alike,) = workload_of_fragments([found]).shapes
        assert repr(without_fields(shape, excluded)) == repr(alike)
        assert not excluded & set(fields_of(found.predicate))
        if found.predicate != predicate:
            assert slots_of(found.predicate) == tuple(range(len(found.literals)))
        for rows in world.files:
            for values in rows:
                row = dict(zip(ids, values, strict=True))
                if holds(predicate, list(literals), row):
                    assert holds(found.predicate, list(found.literals), row)


def test_a_name_excludes_what_is_inside_it_in_any_case() -> None:
    names = ("id", "Person.SSN", "person.name", "person_id")
    schema = Schema(0, tuple(Field(n, name, "string") for n, name in enumerate(names, start=1)))
    assert excluded_fields(["person"], schema) == {2, 3}
    assert excluded_fields(["person.ssn", "ID"], schema) == {1, 2}
    assert excluded_fields(["missing"], schema) == frozenset()
