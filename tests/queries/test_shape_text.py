"""What people see of a shape: its condition, values only on request, and what marks it."""

from __future__ import annotations

from dataclasses import replace

from reconciler.queries.fragments import Fragment, workload_of_fragments
from reconciler.queries.predicate import TRUE, And, Comparison, In, Literal, Ref
from reconciler.queries.shape import Shape
from reconciler.queries.shape_text import condition_text, latest_literals, marked_text
from reconciler.table.schema import Field, Schema

SCHEMA = Schema(0, (Field(1, "id", "long"), Field(2, "name", "string")))
BOTH = And((Comparison(Ref(1), "=", 0), In(Ref(2), 1)))


def shape_of(*rows: tuple[Literal, ...], moving: int | None = None, **marks: bool) -> Shape:
    fragments = [
        Fragment("q", n, "u", BOTH, row, (moving, None), (1, 2), 1.0, n, "e", **marks)
        for n, row in enumerate(rows)
    ]
    (found,) = workload_of_fragments(fragments).shapes
    return found


def test_values_are_those_of_the_latest_query_and_shown_on_request() -> None:
    shape = shape_of((9, (b"a",)), (4, (b"b", b"c")))
    assert condition_text(shape, SCHEMA) == "id = ? AND name IN (?)"
    shown = condition_text(shape, SCHEMA, show_literals=True)
    assert "4" in shown and "b" in shown and "9" not in shown


def test_a_byte_string_that_ends_in_nul_is_a_value_like_others() -> None:
    predicate = Comparison(Ref(2), "=", 0)
    asked = Fragment("q", 0, "u", predicate, (b"a\0",), (None,), (2,), 1.0, 0, "e")
    (shape,) = workload_of_fragments([asked]).shapes
    assert latest_literals(shape) == [b"a\0"]


def test_a_query_that_was_not_understood_is_none_without_a_filter() -> None:
    plain = replace(shape_of((1, (b"a",))), predicate=TRUE, literals=(), offsets=())
    assert condition_text(plain, SCHEMA) != condition_text(replace(plain, full_scan=True), SCHEMA)


def test_a_prepared_statement_shows_its_whole_condition_and_that_values_are_unknown() -> None:
    plain = replace(shape_of((1, (b"a",))), predicate=TRUE, literals=(), offsets=())
    unbound = replace(plain, unbound=BOTH)
    whole = condition_text(unbound, SCHEMA, show_literals=True)
    assert whole == condition_text(shape_of((1, (b"a",))), SCHEMA)
    assert marked_text(unbound, SCHEMA) == f"{whole} (values unknown)"
    assert marked_text(shape_of((1, (b"a",)), moving=3), SCHEMA).endswith("(moving)")
