"""Fragments: one query's demand on one table, as the readers of logs give it.

The state stores them as rows of arrays, and `queries.shape` is what everything after it works on.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from reconciler.queries.predicate import Literal, Predicate, slots_of
from reconciler.queries.shape import (
    Shape,
    Workload,
    literal_array,
    ranked_sets,
    shape_id,
    share_of,
    workload_of,
)


@dataclass(frozen=True, slots=True)
class Fragment:
    """One query's demand on one table."""

    source: str
    """Kind of the record that the query comes from. With `position` and the table it identifies the
    scan, so that a query counts once however often it is imported."""
    position: int
    """Number that identifies the scan within `source`."""
    table_uuid: str
    """UUID of the table."""
    predicate: Predicate
    """The predicate as a tree by field id, with slots for literals."""
    literals: tuple[Literal, ...]
    """One literal per slot, in the column's domain."""
    moving: tuple[int | None, ...]
    """Per slot the offset (`Shape.offsets`) by which the literal follows the event time, in the
    domain's unit (days, us, ns); None for a fixed literal. An In slot never moves."""
    projection: tuple[int, ...]
    """Ids of the fields read, ascending, those of the predicate included."""
    weight: float
    """Number of executions that the fragment represents."""
    event_ms: int
    """Time of the query in epoch milliseconds."""
    engine: str
    """Name of the engine, "" if the log does not say."""
    recorded_bytes: int | None = None
    """Bytes read as the engine measured them; None if it recorded nothing."""
    duration_ms: int | None = None
    """Duration in milliseconds as the engine measured it; None if it recorded nothing."""
    full_scan: bool = False
    """Whether the query could not be understood and counts as an unexplained full scan."""
    unbound: Predicate | None = None
    """The whole predicate of a prepared statement whose values the log does not hold; `predicate`
    then has only the conditions with known literals. None for other queries."""
    elsewhere: bool = False
    """Whether the query has conditions, but only on other tables that this one is joined with."""
    grouped: bool = False
    """Whether the engine read the table grouped by partition, to join it without a shuffle."""
    merged: bool = False
    """Whether the query is a MERGE into this table."""

    @property
    def shape_id(self) -> str:
        return shape_id(self.predicate, self.unbound, full_scan=self.full_scan)


def workload_of_fragments(fragments: Iterable[Fragment]) -> Workload:
    """Return the fragments of one table as shapes, their queries by event time."""
    by_shape: dict[tuple[str, bool], list[Fragment]] = {}
    for item in sorted(fragments, key=lambda f: (f.event_ms, f.source, f.position)):
        by_shape.setdefault((item.shape_id, item.full_scan), []).append(item)
    return workload_of(_shape(key[0], members) for key, members in by_shape.items())


def _shape(key: str, members: list[Fragment]) -> Shape:
    first = members[0]
    weight = np.array([m.weight for m in members], dtype=np.float64)
    places: dict[tuple[int, ...], int] = {}
    number = [places.setdefault(m.projection, len(places)) for m in members]
    sets, column_set = ranked_sets(list(places), np.array(number, dtype=np.int32), weight)
    count = len(slots_of(first.predicate))
    return Shape(
        shape_id=key,
        predicate=first.predicate,
        column_sets=sets,
        literals=tuple(literal_array([m.literals[i] for m in members]) for i in range(count)),
        offsets=tuple(
            np.array([_nan(m.moving[i]) for m in members], dtype=np.float64) for i in range(count)
        ),
        weight=weight,
        executions=weight,
        event_ms=np.array([m.event_ms for m in members], dtype=np.int64),
        recorded_bytes=np.array([_nan(m.recorded_bytes) for m in members], dtype=np.float64),
        position=np.array([m.position for m in members], dtype=np.int64),
        column_set=column_set,
        full_scan=first.full_scan,
        unbound=first.unbound,
        elsewhere=share_of(weight, np.array([m.elsewhere for m in members])),
        grouped=share_of(weight, np.array([m.grouped for m in members])),
        merged=share_of(weight, np.array([m.merged for m in members])),
    )


def _nan(value: float | int | None) -> float:
    return float("nan") if value is None else float(value)
