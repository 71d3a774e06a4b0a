"""Finds the literals of a shape that move with time, and by how much
(docs/design/definitions.md#moving-literal).

`now()`-relative SQL comes from its reader with exact offsets. This module finds the other case:
constants that an application computes for each query and that keep their distance to the query's
event time over days: exactly (`t - 24 h`), or to the start of its hour, day, week or month
(`[yesterday, today)`). One shape may have a few windows (last day, last week). Such literals form
a moving window, which is replayed at future times.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from reconciler.queries.calendar import PERIODS, PeriodClock, clock_of
from reconciler.queries.predicate import And, Comparison, walk
from reconciler.queries.shape import Shape, Workload
from reconciler.table.filetable import Array, Float64, Int64
from reconciler.table.schema import Schema
from reconciler.table.times import DAY_MS

MIN_EVENTS = 8
MIN_DAYS = 3
MAX_SPREAD = 0.05
MAX_SLOPE_ERROR = 0.1
MAX_WINDOWS = 4
"""Windows of different length that one shape may have."""
MOST_EVENTS = 0.8
"""Share of a shape's queries that must be in such windows; the others stay fixed."""
_UNIT_MS = {"date": DAY_MS, "timestamp": 1e-3, "timestamptz": 1e-3,
            "timestamp_ns": 1e-6, "timestamptz_ns": 1e-6}  # fmt: skip
"""Milliseconds in one unit of a time type's domain."""


def moves(iceberg_type: str) -> bool:
    """Whether the type can keep a distance to event time: only dates and timestamps can."""
    return iceberg_type in _UNIT_MS


Times = TypeVar("Times", int, Int64)


def event_in_domain(iceberg_type: str, event_ms: Times) -> Times:
    """Return event times as values of a date or timestamp column: the day in UTC, us or ns."""
    if iceberg_type == "date":
        return event_ms // DAY_MS
    return event_ms * (1_000_000 if iceberg_type.endswith("_ns") else 1000)


@dataclass(frozen=True, slots=True)
class Movement:
    """How the literals of one slot follow the time of their queries."""

    spans: tuple[tuple[float, float], ...]
    """Distances of a literal to the time of its query, from and to, at which it moves. Literals at
    other distances are fixed."""
    clock: PeriodClock | None = None
    """The clock that distances count from, in its periods; None for the time of the query itself,
    in the column's unit."""

    def offsets(self, values: Int64, events: Int64, iceberg_type: str) -> Float64:
        """Return the offset of each literal, NaN for a fixed one."""
        if self.clock is None:
            distance = _distance(values, events, iceberg_type)
            offset = values - event_in_domain(iceberg_type, events)
            moves = np.ones(len(values), dtype=np.bool_)
        else:
            moves, offset = _in_periods(values, events, self.clock, iceberg_type)
            distance = offset.astype(np.float64)
        moves &= np.any(
            [(distance >= low) & (distance <= high) for low, high in self.spans], axis=0
        )
        return np.where(moves, offset.astype(np.float64), np.nan)


Movements = Mapping[int, Movement]
"""By slot, how its literals move; slots whose literals are fixed are missing."""


@dataclass(frozen=True, slots=True)
class ShapeMovement:
    """What the queries of a shape show of its movement."""

    fingerprint: str
    """Text that differs once the shape has other queries or its columns other types."""
    movements: Movements
    """The slots that move."""


StoredMovements = Mapping[str, ShapeMovement]
"""By shape id, the movement that an import detected."""


def detected_movements(
    workload: Workload, schema: Schema, stored: StoredMovements
) -> dict[str, ShapeMovement]:
    """Return how every shape moves; a shape whose queries have not changed keeps what is stored."""
    return {shape.shape_id: _movement_of_shape(shape, schema, stored) for shape in workload.shapes}


def with_movement(workload: Workload, schema: Schema, stored: StoredMovements) -> Workload:
    """Return the workload, with an offset on each literal that keeps its distance.

    stored: what an import found. A slot for which a reader found any exact offset is not changed.
    """
    return replace(
        workload,
        shapes=tuple(
            _moved(shape, _movement_of_shape(shape, schema, stored).movements, schema)
            for shape in workload.shapes
        ),
    )


def _movement_of_shape(shape: Shape, schema: Schema, stored: StoredMovements) -> ShapeMovement:
    fingerprint, before = _fingerprint(shape, schema), stored.get(shape.shape_id)
    if before is not None and before.fingerprint == fingerprint:
        return before
    return ShapeMovement(fingerprint, _detected(shape, schema))


def _fingerprint(shape: Shape, schema: Schema) -> str:
    """Return a text that differs once the shape has other queries or its columns other types."""
    types = [f"{slot}:{schema.by_id[field].type}" for slot, field in _time_slots(shape, schema)]
    queries = int(np.bitwise_xor.reduce(shape.position))
    return f"{len(shape)} {queries:x} {' '.join(types)}"


def _moved(shape: Shape, movements: Movements, schema: Schema) -> Shape:
    if not movements:
        return shape
    types = {slot: schema.by_id[field].type for slot, field in _time_slots(shape, schema)}
    offsets = list(shape.offsets)
    clocks: list[PeriodClock | None] = [None] * len(offsets)
    for slot, movement in movements.items():
        values = _scalars(shape, slot)
        if values is not None:
            clocks[slot] = movement.clock
            offsets[slot] = movement.offsets(values.astype(np.int64), shape.event_ms, types[slot])
    return replace(shape, offsets=tuple(offsets), clocks=tuple(clocks))


def _detected(shape: Shape, schema: Schema) -> dict[int, Movement]:
    """Return how the slots of one shape move."""
    if len(shape) < MIN_EVENTS or len(np.unique(shape.event_ms // DAY_MS)) < MIN_DAYS:
        return {}
    widths = _range_widths(shape)
    found: dict[int, Movement] = {}
    for slot, field_id in _time_slots(shape, schema):
        values = _scalars(shape, slot)
        if values is None or not np.isnan(shape.offsets[slot]).all():
            continue
        movement = _movement(
            values.astype(np.int64), shape.event_ms, widths.get(slot, 0.0),
            schema.by_id[field_id].type,
        )  # fmt: skip
        if movement is not None:
            found[slot] = movement
    return found


def _movement(values: Int64, events: Int64, width: float, iceberg_type: str) -> Movement | None:
    """Return how one slot's literals follow their events, None if they do not.

    values: in the column's unit; events: epoch milliseconds; width: of the range, 0 if open.
    """
    exact = _exact(values, events, width, iceberg_type)
    if exact is not None:
        return exact
    at, _ = _in_ms(values, iceberg_type)
    for period in PERIODS:
        clock = clock_of(period, at)
        on_it, distance = _in_periods(values, events, clock, iceberg_type)
        kept = _frequent(distance, on_it, events, clock)
        if (on_it & np.isin(distance, kept)).mean() >= MOST_EVENTS:
            return Movement(tuple((float(number), float(number)) for number in kept), clock)
    return None


def _in_periods(
    values: Int64, events: Int64, clock: PeriodClock, iceberg_type: str
) -> tuple[npt.NDArray[np.bool_], Int64]:
    """Return which literals are the start of a period, and how many periods after their events."""
    at, whole = _in_ms(values, iceberg_type)
    number = clock.number(at)
    return whole & (clock.start(number) == at), number - clock.number(events)


def _in_ms(values: Int64, iceberg_type: str) -> tuple[Int64, npt.NDArray[np.bool_]]:
    """Return the literals as epoch milliseconds, and which of them are whole ones."""
    if iceberg_type == "date":
        return values * DAY_MS, np.ones(len(values), dtype=bool)
    per_ms = round(1 / _UNIT_MS[iceberg_type])
    return values // per_ms, values % per_ms == 0


def _frequent(
    distance: Int64, on_it: npt.NDArray[np.bool_], events: Int64, clock: PeriodClock
) -> list[int]:
    """Return the few distances in periods that recur."""
    numbers, counts = np.unique(distance[on_it], return_counts=True)
    return [
        int(number)
        for number in numbers[np.argsort(-counts, kind="stable")][:MAX_WINDOWS]
        if _recurs(events[on_it & (distance == number)], clock)
    ]


def _recurs(events: Int64, clock: PeriodClock | None) -> bool:
    """Whether a window is asked for often enough, on several days and in more than one period."""
    if len(events) < MIN_EVENTS or len(np.unique(events // DAY_MS)) < MIN_DAYS:
        return False
    return clock is None or len(np.unique(clock.number(events))) > 1


def _exact(values: Int64, events: Int64, width: float, iceberg_type: str) -> Movement | None:
    """Return the movement of literals at fixed distances from the event time itself, None if they
    have none. Arguments as of `_movement`."""
    at, whole_days = events / _UNIT_MS[iceberg_type], iceberg_type == "date"
    distance = _distance(values, events, iceberg_type)
    near = float(np.median(np.abs(distance)))
    label = _clustered(distance, max(MAX_SPREAD * (width or near), _tolerance(at, whole_days)))
    if int(label.max()) >= MAX_WINDOWS:
        return None
    spans, moving = [], 0
    for number in range(int(label.max()) + 1):
        mine = label == number
        span = width or float(np.median(np.abs(distance[mine])))
        if _recurs(events[mine], None) and keeps_distance(
            values[mine].astype(np.float64), at[mine], span, whole_days
        ):
            spans.append((float(distance[mine].min()), float(distance[mine].max())))
            moving += int(mine.sum())
    return Movement(tuple(spans)) if moving / len(values) >= MOST_EVENTS else None


def _distance(values: Int64, events: Int64, iceberg_type: str) -> Float64:
    """Return how far the literals are from their events, in the column's unit."""
    at = events / _UNIT_MS[iceberg_type]
    return values.astype(np.float64) - (np.floor(at) if iceberg_type == "date" else at)


def _clustered(distance: npt.NDArray[np.float64], gap: float) -> Int64:
    """Return a cluster number per value: neighbours further apart than `gap` are in different
    ones."""
    order = np.argsort(distance, kind="stable")
    label = np.zeros(len(distance), dtype=np.int64)
    label[order] = np.concatenate(([0], np.cumsum(np.diff(distance[order]) > gap)))
    return label


def keeps_distance(
    values: npt.NDArray[np.float64],
    event: npt.NDArray[np.float64],
    width: float,
    whole_days: bool,
) -> bool:
    """Whether literals follow event time (docs/design/definitions.md#moving-literal).

    values, event: float64[events] in one unit. width: of the range that the literal bounds, 0 for
    an open range. Literals follow if both hold:

    - The median absolute deviation of their distance is at most 5 % of the width, or at most one
      day for dates and one second of clock skew for timestamps.
    - The least-squares slope of the literal over event time is 1 within 0.1.
    """
    distance = values - (np.floor(event) if whole_days else event)
    spread = float(np.median(np.abs(distance - np.median(distance))))
    if spread > max(MAX_SPREAD * width, _tolerance(event, whole_days)):
        return False
    centred = event - event.mean()
    variance = float(centred @ centred)
    if variance == 0.0:
        return False
    slope = float(centred @ (values - values.mean())) / variance
    return math.isfinite(slope) and abs(slope - 1.0) <= MAX_SLOPE_ERROR


def _tolerance(event: npt.NDArray[np.float64], whole_days: bool) -> float:
    """Return one day, or one second of clock skew in microseconds or nanoseconds."""
    return 1.0 if whole_days else (1e9 if float(np.max(np.abs(event))) > 1e17 else 1e6)


def _time_slots(shape: Shape, schema: Schema) -> list[tuple[int, int]]:
    """Return (slot, field id) of scalar comparisons on untransformed date and timestamp columns."""
    slots = []
    for node in walk(shape.predicate):
        if isinstance(node, Comparison) and node.ref.transform == "identity":
            field = schema.by_id.get(node.ref.field_id)
            if field is not None and moves(field.type):
                slots.append((node.slot, node.ref.field_id))
    return slots


def _range_widths(shape: Shape) -> dict[int, float]:
    """Return, per slot, the median width of the range between a lower and an upper bound of one
    column."""
    widths: dict[int, float] = {}
    for node in walk(shape.predicate):
        if not isinstance(node, And):
            continue
        leaves = [child for child in node.children if isinstance(child, Comparison)]
        for low in leaves:
            for high in leaves:
                if low.op in (">", ">=") and high.op in ("<", "<=") and low.ref == high.ref:
                    width = _median_width(_scalars(shape, high.slot), _scalars(shape, low.slot))
                    widths[low.slot] = widths[high.slot] = width
    return widths


def _median_width(upper: Array | None, lower: Array | None) -> float:
    if upper is None or lower is None:
        return 0.0
    return max(0.0, float(np.median(upper.astype(np.float64) - lower.astype(np.float64))))


def _scalars(shape: Shape, slot: int) -> Array | None:
    """Return the slot's literals if they are numbers."""
    values = shape.literals[slot]
    return values if isinstance(values, np.ndarray) and values.dtype.kind in "if" else None
