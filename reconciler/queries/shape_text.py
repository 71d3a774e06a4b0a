"""Prints the condition of a shape as text, with literals only if the user asked for them."""

from __future__ import annotations

from typing import cast

from reconciler.queries.predicate import TRUE, Literal, render
from reconciler.queries.predicate_batch import SlotLiterals
from reconciler.queries.shape import Shape
from reconciler.table.schema import Schema


def condition_text(shape: Shape, schema: Schema, *, show_literals: bool = False) -> str:
    """Return the condition of the shape's queries; with literals, those of its latest query.

    A prepared statement shows its whole condition, whose values the log does not hold.
    """
    if shape.full_scan:
        return "(not understood: full scan)"
    if shape.unbound is not None:
        return render(shape.unbound, schema)
    if shape.predicate == TRUE:
        return "no filter"
    return render(shape.predicate, schema, latest_literals(shape) if show_literals else None)


def marked_text(shape: Shape, schema: Schema, *, show_literals: bool = False) -> str:
    """Return the condition and what people need to know of it, as plans and reports show it."""
    text = condition_text(shape, schema, show_literals=show_literals)
    marks = (" (moving)", shape.moving), (" (values unknown)", shape.unbound is not None)
    return text + "".join(mark for mark, on in marks if on)


def latest_literals(shape: Shape) -> list[Literal]:
    """Return the literals of the shape's last query in order of time, one for each slot."""
    return [_last(values) for values in shape.literals]


def _last(values: SlotLiterals) -> Literal:
    # Not `item`: an object array has Python's own byte strings.
    last = values[-1] if isinstance(values, tuple) else values[-1:].tolist()[0]
    return cast(Literal, last)
