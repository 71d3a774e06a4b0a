"""Removes the conditions on columns that a catalog excludes from queries, with their literals.

A condition on an excluded column becomes TRUE, which never claims that a query reads less than it
does. Negations are moved onto the leaves first, because NOT TRUE would claim that it reads nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import TypeVar

from reconciler.queries.fragments import Fragment
from reconciler.queries.predicate import (
    TRUE,
    And,
    Comparison,
    In,
    Not,
    Or,
    Predicate,
    StartsWith,
    fields_of,
    push_not,
    slots_of,
)
from reconciler.queries.shape import Shape, shape_id
from reconciler.table.schema import Schema


def excluded_fields(names: Collection[str], schema: Schema) -> frozenset[int]:
    """Return the columns of these names and, for a struct, list or map, everything inside.

    Names compare without case: two spellings may mean one column in an engine.
    """
    folded = {name.lower() for name in names}
    return frozenset(field.field_id for field in schema.fields if folded & _paths(field.path))


def _paths(levels: Sequence[str]) -> set[str]:
    parts = [level.lower() for level in levels]
    return {".".join(parts[:end]) for end in range(1, len(parts) + 1)}


Queries = TypeVar("Queries", Fragment, Shape)


def without_fields(queries: Queries, excluded: Collection[int]) -> Queries:
    """Return a fragment or a shape with every condition on one of the fields replaced by TRUE, and
    without their literals. The columns that are read stay: they hold no value."""
    if not _touches(queries.predicate, excluded) and not _touches(queries.unbound, excluded):
        return queries
    kept = _kept(push_not(queries.predicate), excluded)
    slots = slots_of(kept)
    predicate = _with_slots_from_zero(kept)
    literals = tuple(queries.literals[slot] for slot in slots)
    unbound = queries.unbound
    if unbound is not None:
        unbound = _with_slots_from_zero(_kept(push_not(unbound), excluded))
    if isinstance(queries, Fragment):
        moving = tuple(queries.moving[slot] for slot in slots)
        return replace(
            queries, predicate=predicate, literals=literals, unbound=unbound, moving=moving
        )
    return replace(
        queries,
        shape_id=shape_id(predicate, unbound, full_scan=queries.full_scan),
        predicate=predicate,
        literals=literals,
        unbound=unbound,
        offsets=tuple(queries.offsets[slot] for slot in slots),
        clocks=tuple(queries.clocks[slot] for slot in slots) if queries.clocks else (),
    )


def _touches(predicate: Predicate | None, excluded: Collection[int]) -> bool:
    return predicate is not None and any(field in excluded for field in fields_of(predicate))


def _kept(predicate: Predicate, excluded: Collection[int]) -> Predicate:
    """Return what remains of a predicate whose negations are on its leaves."""
    if isinstance(predicate, (And, Or)):
        children = [_kept(child, excluded) for child in predicate.children]
        return _joined(predicate, children)
    return TRUE if _touches(predicate, excluded) else predicate


def _joined(parent: And | Or, children: list[Predicate]) -> Predicate:
    if isinstance(parent, Or):
        return TRUE if TRUE in children else Or(tuple(children))
    kept = tuple(child for child in children if child != TRUE)
    if len(kept) < 2:
        return kept[0] if kept else TRUE
    return And(kept)


def _with_slots_from_zero(predicate: Predicate) -> Predicate:
    """Return the predicate with its slots numbered 0, 1, ... in the order of the walk."""
    return _renumbered(predicate, {slot: n for n, slot in enumerate(slots_of(predicate))})


def _renumbered(predicate: Predicate, places: dict[int, int]) -> Predicate:
    if isinstance(predicate, (Comparison, In, StartsWith)):
        return replace(predicate, slot=places[predicate.slot])
    if isinstance(predicate, Not):
        return Not(_renumbered(predicate.child, places))
    if isinstance(predicate, (And, Or)):
        return type(predicate)(tuple(_renumbered(child, places) for child in predicate.children))
    return predicate
