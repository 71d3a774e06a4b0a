"""Shapes taken apart into single queries, for tests that speak of one."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from reconciler.queries.calendar import PeriodClock
from reconciler.queries.fragments import Fragment, workload_of_fragments
from reconciler.queries.moving_windows import with_movement
from reconciler.queries.predicate import Predicate
from reconciler.queries.shape import Shape
from reconciler.table.schema import Schema


@dataclass(frozen=True)
class Query:
    """What decisions know of one query."""

    position: int
    event_ms: int
    predicate: Predicate
    literals: tuple[Any, ...]
    moving: tuple[int | None, ...]
    projection: tuple[int, ...]
    weight: float
    recorded_bytes: float | None
    full_scan: bool
    unbound: Predicate | None
    clocks: tuple[PeriodClock | None, ...] = ()


def queries_of(shapes: Iterable[Shape]) -> list[Query]:
    """By time, then by position."""
    found = [_query(shape, number) for shape in shapes for number in range(len(shape))]
    return sorted(found, key=lambda query: (query.event_ms, query.position))


def of_fragments(fragments: Iterable[Fragment]) -> list[Query]:
    """The fragments in their order."""
    return [
        Query(
            one.position, one.event_ms, one.predicate, one.literals, one.moving, one.projection,
            one.weight, one.recorded_bytes, one.full_scan, one.unbound,
        )
        for one in fragments
    ]  # fmt: skip


def recorded(store: Any, table_uuid: str) -> list[Query]:
    return queries_of(store.shapes(table_uuid))


def detected(fragments: Iterable[Fragment], schema: Schema) -> list[Query]:
    return queries_of(with_movement(workload_of_fragments(fragments), schema, {}).shapes)


def _query(shape: Shape, number: int) -> Query:
    measured = float(shape.recorded_bytes[number])
    return Query(
        int(shape.position[number]),
        int(shape.event_ms[number]),
        shape.predicate,
        tuple(_literal(values[number]) for values in shape.literals),
        tuple(None if math.isnan(o[number]) else int(o[number]) for o in shape.offsets),
        shape.column_sets[shape.column_set[number]][0],
        float(shape.weight[number]),
        None if math.isnan(measured) else int(measured),
        shape.full_scan,
        shape.unbound,
        shape.clocks,
    )


def _literal(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else value
