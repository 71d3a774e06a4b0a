"""Finds the literals of a shape that move with time, and by how much (definitions: Moving literal).

`now()`-relative SQL comes from its reader with exact offsets. This module finds the other case:
constants that an application computes for each query and that keep their distance to the query's
event time over days. Such literals form a moving window, which is replayed at future times.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from reconciler.queries.fragments import Fragment
from reconciler.queries.predicate import And, Comparison, In, Predicate, StartsWith, walk
from reconciler.table.schema import Schema

MIN_EVENTS = 8
MIN_DAYS = 3
MAX_SPREAD = 0.05
MAX_SLOPE_ERROR = 0.1
_DAY_MS = 86_400_000
_UNIT_MS = {"date": _DAY_MS, "timestamp": 1e-3, "timestamptz": 1e-3,
            "timestamp_ns": 1e-6, "timestamptz_ns": 1e-6}  # fmt: skip
"""Milliseconds in one unit of a time type's domain."""


def moves(iceberg_type: str) -> bool:
    """Whether the type can keep a distance to event time: only dates and timestamps can."""
    return iceberg_type in _UNIT_MS


def event_in_domain(iceberg_type: str, event_ms: int) -> int:
    """Return event time as a value of a date or timestamp column: the day in UTC, us or ns."""
    if iceberg_type == "date":
        return event_ms // _DAY_MS
    return event_ms * (1_000_000 if iceberg_type.endswith("_ns") else 1000)


def with_detected_movement(fragments: Iterable[Fragment], schema: Schema) -> list[Fragment]:
    """Return the fragments, with an offset on each literal of a shape that keeps its distance.

    A slot for which a reader found any exact offset is not changed.
    """
    items = list(fragments)
    by_shape: dict[str, list[int]] = {}
    for index, item in enumerate(items):
        by_shape.setdefault(item.shape_id, []).append(index)
    for members in by_shape.values():
        moving = _moving_slots([items[i] for i in members], schema)
        if moving:
            for i in members:
                items[i] = _with_offsets(items[i], moving)
    return items


def _with_offsets(fragment: Fragment, types: dict[int, str]) -> Fragment:
    offsets = list(fragment.moving)
    for slot, iceberg_type in types.items():
        event = event_in_domain(iceberg_type, fragment.event_ms)
        offsets[slot] = int(fragment.literals[slot]) - event  # type: ignore[arg-type]
    return replace(fragment, moving=tuple(offsets))


def _moving_slots(members: Sequence[Fragment], schema: Schema) -> dict[int, str]:
    """Return the slots of one shape that move, with their column's type."""
    if len(members) < MIN_EVENTS:
        return {}
    days = {member.event_ms // _DAY_MS for member in members}
    if len(days) < MIN_DAYS:
        return {}
    predicate = members[0].predicate
    event = np.array([member.event_ms for member in members], dtype=np.float64)
    widths = _range_widths(predicate, members)
    found: dict[int, str] = {}
    for slot, field_id in _time_slots(predicate, schema):
        if any(member.moving[slot] is not None for member in members):
            continue
        iceberg_type = schema.by_id[field_id].type
        values = np.array([member.literals[slot] for member in members], dtype=np.float64)
        unit_ms = _UNIT_MS[iceberg_type]
        if keeps_distance(values, event / unit_ms, widths.get(slot, 0.0), iceberg_type == "date"):
            found[slot] = iceberg_type
    return found


def keeps_distance(
    values: npt.NDArray[np.float64],
    event: npt.NDArray[np.float64],
    width: float,
    whole_days: bool,
) -> bool:
    """Whether literals follow event time (definitions: Moving literal).

    values, event: float64[events] in one unit; width: of the range that the literal bounds, 0 for
    an open one. They do if the median absolute deviation of their distance is at most 5 % of the
    width or one unit (for a timestamp, whose unit is too fine, one second of clock skew), and the
    least-squares slope of the literal over event time is 1 within 0.1.
    """
    clock = np.floor(event) if whole_days else event
    distance = values - clock
    spread = float(np.median(np.abs(distance - np.median(distance))))
    unit = 1.0 if whole_days else (1e9 if float(np.max(np.abs(event))) > 1e17 else 1e6)
    if spread > max(MAX_SPREAD * width, unit):
        return False
    centred = event - event.mean()
    variance = float(centred @ centred)
    if variance == 0.0:
        return False
    slope = float(centred @ (values - values.mean())) / variance
    return math.isfinite(slope) and abs(slope - 1.0) <= MAX_SLOPE_ERROR


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


def _range_widths(predicate: Predicate, members: Sequence[Fragment]) -> dict[int, float]:
    """Return, per slot, the median width of the range between a lower and an upper bound of one
    column."""
    widths: dict[int, float] = {}
    for node in walk(predicate):
        if not isinstance(node, And):
            continue
        leaves = [child for child in node.children if isinstance(child, Comparison)]
        for low in leaves:
            for high in leaves:
                if low.op in (">", ">=") and high.op in ("<", "<=") and low.ref == high.ref:
                    spans = [_difference(m, high.slot, low.slot) for m in members]
                    width = max(0.0, float(np.median(spans)))
                    widths[low.slot] = widths[high.slot] = width
    return widths


def _difference(fragment: Fragment, high: int, low: int) -> float:
    upper, lower = fragment.literals[high], fragment.literals[low]
    if isinstance(upper, (int, float)) and isinstance(lower, (int, float)):
        return float(upper) - float(lower)
    return 0.0
