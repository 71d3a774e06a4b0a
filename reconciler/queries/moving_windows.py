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
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from reconciler.queries.calendar import PERIODS, PeriodClock, clock_of
from reconciler.queries.predicate import And, Comparison, In, Predicate, StartsWith, walk
from reconciler.queries.shape import Shape, Workload
from reconciler.table.filetable import Array, Int64
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


def with_movement(workload: Workload, schema: Schema) -> Workload:
    """Return the workload, with an offset on each literal that keeps its distance.

    A slot for which a reader found any exact offset is not changed.
    """
    return replace(workload, shapes=tuple(_detected(shape, schema) for shape in workload.shapes))


@dataclass(frozen=True, slots=True)
class _Movement:
    """How one slot of a shape moves. offsets: int64[queries]; moves: bool[queries], false for the
    few queries whose literal is fixed. clock: the clock that the offsets count from, None for event
    time itself."""

    offsets: Int64
    moves: npt.NDArray[np.bool_]
    clock: PeriodClock | None = None


def _detected(shape: Shape, schema: Schema) -> Shape:
    moving = _moving_slots(shape, schema)
    if not moving:
        return shape
    offsets = list(shape.offsets)
    clocks: list[PeriodClock | None] = [None] * len(offsets)
    for slot, movement in moving.items():
        clocks[slot] = movement.clock
        offsets[slot] = np.where(movement.moves, movement.offsets.astype(np.float64), np.nan)
    return replace(shape, offsets=tuple(offsets), clocks=tuple(clocks))


def _moving_slots(shape: Shape, schema: Schema) -> dict[int, _Movement]:
    """Return the slots of one shape that move."""
    if len(shape) < MIN_EVENTS or len(np.unique(shape.event_ms // DAY_MS)) < MIN_DAYS:
        return {}
    widths = _range_widths(shape)
    found: dict[int, _Movement] = {}
    for slot, field_id in _time_slots(shape.predicate, schema):
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


def _movement(values: Int64, events: Int64, width: float, iceberg_type: str) -> _Movement | None:
    """Return how one slot's literals follow their events, None if they do not.

    values: in the column's unit; events: epoch milliseconds; width: of the range, 0 if open.
    """
    exact = _exact(values, events, width, iceberg_type)
    if exact is not None:
        return exact
    at, whole = _in_ms(values, iceberg_type)
    for period in PERIODS:
        clock = clock_of(period, at)
        on_it = whole & (clock.start(clock.number(at)) == at)
        distance = clock.number(at) - clock.number(events)
        moves = on_it & _frequent(distance, on_it, events, clock)
        if moves.mean() >= MOST_EVENTS:
            return _Movement(distance, moves, clock)
    return None


def _in_ms(values: Int64, iceberg_type: str) -> tuple[Int64, npt.NDArray[np.bool_]]:
    """Return the literals as epoch milliseconds, and which of them are whole ones."""
    if iceberg_type == "date":
        return values * DAY_MS, np.ones(len(values), dtype=bool)
    per_ms = round(1 / _UNIT_MS[iceberg_type])
    return values // per_ms, values % per_ms == 0


def _frequent(
    distance: Int64, on_it: npt.NDArray[np.bool_], events: Int64, clock: PeriodClock
) -> npt.NDArray[np.bool_]:
    """Return which queries have one of the few distances in periods that recur."""
    numbers, counts = np.unique(distance[on_it], return_counts=True)
    kept = [
        number
        for number in numbers[np.argsort(-counts, kind="stable")][:MAX_WINDOWS]
        if _recurs(events[on_it & (distance == number)], clock)
    ]
    return np.isin(distance, kept)


def _recurs(events: Int64, clock: PeriodClock | None) -> bool:
    """Whether a window is asked for often enough, on several days and in more than one period."""
    if len(events) < MIN_EVENTS or len(np.unique(events // DAY_MS)) < MIN_DAYS:
        return False
    return clock is None or len(np.unique(clock.number(events))) > 1


def _exact(values: Int64, events: Int64, width: float, iceberg_type: str) -> _Movement | None:
    """Return the movement of literals at fixed distances from the event time itself."""
    clock = events / _UNIT_MS[iceberg_type]
    whole_days = iceberg_type == "date"
    distance = values.astype(np.float64) - (np.floor(clock) if whole_days else clock)
    near = float(np.median(np.abs(distance)))
    label = _clustered(distance, max(MAX_SPREAD * (width or near), _tolerance(clock, whole_days)))
    if int(label.max()) >= MAX_WINDOWS:
        return None
    moves = np.zeros(len(values), dtype=bool)
    for number in range(int(label.max()) + 1):
        mine = label == number
        span = width or float(np.median(np.abs(distance[mine])))
        if _recurs(events[mine], None) and keeps_distance(
            values[mine].astype(np.float64), clock[mine], span, whole_days
        ):
            moves |= mine
    if moves.mean() < MOST_EVENTS:
        return None
    return _Movement(values - event_in_domain(iceberg_type, events), moves)


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

    values, event: float64[events] in one unit; width: of the range that the literal bounds, 0 for
    an open one. They do if the median absolute deviation of their distance is at most 5 % of the
    width or one unit (for a timestamp, whose unit is too fine, one second of clock skew), and the
    least-squares slope of the literal over event time is 1 within 0.1.
    """
    clock = np.floor(event) if whole_days else event
    distance = values - clock
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


def _time_slots(predicate: Predicate, schema: Schema) -> list[tuple[int, int]]:
    """Return (slot, field id) of scalar comparisons on untransformed date and timestamp columns."""
    slots = []
    for node in walk(predicate):
        if isinstance(node, Comparison) and node.ref.transform == "identity":
            field = schema.by_id.get(node.ref.field_id)
            if field is not None and moves(field.type):
                slots.append((node.slot, node.ref.field_id))
        elif isinstance(node, (In, StartsWith)):
            continue
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
