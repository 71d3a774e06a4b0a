"""Replaces conditions that move with time by the values that they have at a time."""

from __future__ import annotations

import numpy as np

from reconciler.queries import transforms
from reconciler.queries.moving_windows import event_in_domain, moves
from reconciler.queries.predicate import Predicate
from reconciler.queries.predicate_batch import Leaf, SlotLiterals, Test, always, evaluate
from reconciler.queries.shape import Shape
from reconciler.table.filetable import Array, Int64
from reconciler.table.schema import Schema


def resolve_moving(shape: Shape, schema: Schema, at_ms: int | Int64) -> tuple[SlotLiterals, ...]:
    """Return the shape's literals at another time: moving ones become at + offset.

    at_ms: epoch milliseconds, one for all queries or int64[queries] (shape.event_ms gives the
    recorded literals). Offsets are in the column's unit: days, us or ns, or whole periods for a
    partition transform and for literals cut to a period (`Shape.clocks`). Slots on columns
    without a time do not change.
    """
    times = np.broadcast_to(np.asarray(at_ms, dtype=np.int64), (len(shape),))
    resolved = list(shape.literals)
    for leaf in _slot_leaves(shape.predicate):
        moving = ~np.isnan(shape.offsets[leaf.slot])
        literal = resolved[leaf.slot]
        offset = np.where(moving, shape.offsets[leaf.slot], 0.0).round().astype(np.int64)
        clock = shape.clocks[leaf.slot] if shape.clocks else None
        at = times if clock is None else clock.start(clock.number(times) + offset)
        moved = _domain_time(leaf, schema, at)
        if moved is None or isinstance(literal, tuple) or not moving.any():
            continue
        resolved[leaf.slot] = np.where(moving, moved + offset if clock is None else moved, literal)
    return tuple(resolved)


def _domain_time(leaf: Leaf, schema: Schema, times: Int64) -> Array | None:
    """Return epoch milliseconds in the unit of the leaf's column and transform, None without a
    time."""
    field = schema.by_id.get(leaf.ref.field_id)
    if field is None or not moves(field.type):
        return None
    if leaf.ref.transform not in ("identity", "year", "month", "day", "hour"):
        return None
    return transforms.apply(leaf.ref.transform, field.type, event_in_domain(field.type, times))


def _slot_leaves(predicate: Predicate) -> list[Leaf]:
    """Return the leaves that hold a slot, each once."""
    leaves: list[Leaf] = []

    def collect(leaf: Leaf) -> Test:
        if leaf.slot >= 0:
            leaves.append(leaf)
        return always(True)

    evaluate(predicate, collect, 0, 0)
    return leaves
