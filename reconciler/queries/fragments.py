"""Fragments: what recorded queries read of one table, and how often.

A fragment is one query's demand on one table. Fragments of one shape (same predicate tree) form a
batch whose literals are arrays, so that decisions evaluate all queries of a template at once. The
columns that they read are a distribution over column sets: people ask the same question for other
columns each time. Readers in `reconciler.workload_log` create fragments; the advisor reads batches.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import numpy.typing as npt

from reconciler.queries.calendar import PeriodClock
from reconciler.queries.predicate import Literal, Predicate, slots_of
from reconciler.table.times import DAY_MS

MIN_SPAN_MS = DAY_MS


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
    """Per slot the offset in the domain's unit (days, us, ns) by which the literal follows the
    event time, None for a fixed literal. An In slot is never moving."""
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
    clocks: tuple[PeriodClock | None, ...] = ()
    """Per slot the clock that a detected offset counts from, in its periods: the literal is the
    start of the event's period plus the offset. None for event time; () if no offset was detected
    so."""
    elsewhere: bool = False
    """Whether the query has conditions, but only on other tables that this one is joined with."""
    grouped: bool = False
    """Whether the engine read the table grouped by partition, to join it without a shuffle."""
    merged: bool = False
    """Whether the query is a MERGE into this table."""

    @property
    def shape_id(self) -> str:
        return shape_id(self.predicate, self.unbound, full_scan=self.full_scan)


@lru_cache(maxsize=4096)
def _shape_text(predicate: Predicate, unbound: Predicate | None) -> str:
    return repr(predicate) if unbound is None else f"{predicate!r}|{unbound!r}"


def shape_id(
    predicate: Predicate, unbound: Predicate | None = None, *, full_scan: bool = False
) -> str:
    """Return the hash of the predicate with `?` for literals (docs/design/definitions.md#fragment).

    full_scan: a query that was not understood is not of the shape of those without a condition.
    """
    text = _shape_text(predicate, unbound) + ("|full scan" if full_scan else "")
    return hashlib.sha256(text.encode()).hexdigest()[:16]


ColumnSets = tuple[tuple[tuple[int, ...], float], ...]
"""Sets of field ids, each ascending, with their share of the weight: the heaviest first."""


def column_sets(fragments: Sequence[Fragment]) -> ColumnSets:
    """Return the distribution of the columns that these fragments read."""
    weight: dict[tuple[int, ...], float] = {}
    for fragment in fragments:
        weight[fragment.projection] = weight.get(fragment.projection, 0.0) + fragment.weight
    total = sum(weight.values()) or 1.0
    ranked = sorted(weight.items(), key=lambda pair: (-pair[1], pair[0]))
    return tuple((fields, own / total) for fields, own in ranked)


@dataclass(frozen=True)
class ShapeBatch:
    """All fragments of one shape. Arrays have shape [queries]."""

    shape_id: str
    """Id of the shape: hash of its predicate without literals."""
    predicate: Predicate
    """The predicate with slots for the literals."""
    column_sets: ColumnSets
    """The sets of columns that the queries read, each with its share of the weight."""
    literals: tuple[npt.NDArray[np.generic] | tuple[tuple[Literal, ...], ...], ...]
    """Per slot the literals of all queries: int64, float64 or S<w>[queries] for a scalar slot, an
    object array of byte strings if one of them ends in NUL, a tuple of tuples for an In slot."""
    moving: tuple[npt.NDArray[np.float64], ...]
    """Per slot float64[queries]: the offset to `event_ms` in the domain's unit, NaN if fixed; the
    offset in periods if the slot has a clock in `clocks`."""
    weight: npt.NDArray[np.float64]
    """float64[queries]: number of executions."""
    event_ms: npt.NDArray[np.int64]
    """int64[queries]: time in epoch milliseconds."""
    recorded_bytes: npt.NDArray[np.float64]
    """float64[queries]: measured bytes, NaN if missing."""
    duration_ms: npt.NDArray[np.float64]
    """float64[queries]: measured duration in milliseconds, NaN if missing."""
    full_scan: bool
    """Whether the queries could not be understood and count as reading the whole table."""
    unbound: Predicate | None = None
    """The whole predicate of a prepared statement whose values the log does not hold; None for
    other queries."""
    clocks: tuple[PeriodClock | None, ...] = ()
    """Per slot the clock that a detected offset counts from, None for event time; () if no offset
    was detected so."""
    elsewhere: float = 0.0
    """Share of the weight whose queries have conditions on other tables only."""
    grouped: float = 0.0
    """Share of the weight whose queries read the table grouped by partition."""
    merged: float = 0.0
    """Share of the weight that is MERGE statements into the table."""

    def __len__(self) -> int:
        return len(self.weight)

    @cached_property
    def projection(self) -> Mapping[int, float]:
        """Return, by field id in ascending order, the share of the queries that read the column."""
        shares: dict[int, float] = {}
        for fields, share in self.column_sets:
            for field in fields:
                shares[field] = shares.get(field, 0.0) + share
        everywhere = set[int].intersection(*(set(fields) for fields, _ in self.column_sets))
        return {
            field: 1.0 if field in everywhere else min(shares[field], 1.0)
            for field in sorted(shares)
        }


@dataclass(frozen=True)
class Workload:
    """Every shape of one table. since/until_ms: first and last event; skipped: by reason."""

    shapes: tuple[ShapeBatch, ...]
    since_ms: int
    until_ms: int
    skipped: tuple[tuple[str, int], ...] = ()

    @property
    def queries(self) -> float:
        return float(sum(batch.weight.sum() for batch in self.shapes))

    @property
    def empty(self) -> bool:
        return not self.shapes


def batch_fragments(
    fragments: Iterable[Fragment], skipped: Sequence[tuple[str, int]] = ()
) -> Workload:
    """Return the fragments of one table grouped by shape, in order of shape id; queries by event
    time."""
    items = sorted(fragments, key=lambda f: (f.event_ms, f.source, f.position))
    if not items:
        return Workload((), 0, 0, tuple(skipped))
    since, until = items[0].event_ms, items[-1].event_ms
    by_shape: dict[tuple[str, bool], list[Fragment]] = {}
    for item in items:
        by_shape.setdefault((item.shape_id, item.full_scan), []).append(item)
    shapes = tuple(_shape_batch(key[0], members) for key, members in sorted(by_shape.items()))
    return Workload(shapes, since, until, tuple(skipped))


def _shape_batch(key: str, members: list[Fragment]) -> ShapeBatch:
    first = members[0]
    weight = np.array([m.weight for m in members], dtype=np.float64)
    event = np.array([m.event_ms for m in members], dtype=np.int64)
    count = len(slots_of(first.predicate))
    return ShapeBatch(
        shape_id=key,
        predicate=first.predicate,
        column_sets=column_sets(members),
        literals=tuple(_literal_array([m.literals[i] for m in members]) for i in range(count)),
        moving=tuple(
            np.array([_nan(m.moving[i]) for m in members], dtype=np.float64) for i in range(count)
        ),
        weight=weight,
        event_ms=event,
        recorded_bytes=np.array([_nan(m.recorded_bytes) for m in members], dtype=np.float64),
        duration_ms=np.array([_nan(m.duration_ms) for m in members], dtype=np.float64),
        full_scan=first.full_scan,
        unbound=first.unbound,
        clocks=first.clocks,
        elsewhere=_share(weight, [m.elsewhere for m in members]),
        grouped=_share(weight, [m.grouped for m in members]),
        merged=_share(weight, [m.merged for m in members]),
    )


def _share(weight: npt.NDArray[np.float64], marked: Sequence[bool]) -> float:
    return float(weight[np.array(marked)].sum()) / max(float(weight.sum()), 1e-9)


def _literal_array(
    values: list[Literal],
) -> npt.NDArray[np.generic] | tuple[tuple[Literal, ...], ...]:
    if isinstance(values[0], tuple):
        return tuple(v if isinstance(v, tuple) else (v,) for v in values)
    if isinstance(values[0], bytes):
        # numpy strips trailing NULs from S; an object array keeps them (`pruning`).
        kept = any(isinstance(v, bytes) and v.endswith(b"\0") for v in values)
        return np.array(values, dtype=object if kept else np.bytes_)
    kind = np.float64 if isinstance(values[0], float) else np.int64
    return np.array(values, dtype=kind)


def _nan(value: float | int | None) -> float:
    return float("nan") if value is None else float(value)
