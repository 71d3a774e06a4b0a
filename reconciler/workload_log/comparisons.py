"""Compares a column with a constant in the column's type: rounded, scaled, in its time zone."""

from __future__ import annotations

import datetime as dt
import math
import re
import struct
import uuid
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

from reconciler.queries.moving_windows import event_in_domain
from reconciler.queries.predicate import (
    FALSE,
)
from reconciler.table.schema import Field
from reconciler.table.times import DAY_US
from reconciler.table.values import Kind, decimal_scale, encode_wide_decimal, micros
from reconciler.workload_log.condition_tree import Condition, Negated, NotPushed, Tree, branch
from reconciler.workload_log.constants import (
    UNBOUND,
    Binding,
    Const,
    next_unit,
    parse_date,
    parse_timestamp,
    truncate,
)


@dataclass(frozen=True, slots=True)
class Operand:
    """The column side of a comparison."""

    field: Field
    """The column."""
    unit: str = ""
    """Unit that the column's time is truncated to; "" for the column itself."""
    year: bool = False
    """Whether the function returns the number of the year instead of a time."""


def compare_value(field: Field, op: str, value: Any, binding: Binding) -> Tree:
    """Return `column op value` for a Python value. Raises NotPushed."""
    return compare(Operand(field), op, Const(value), binding)


def member_of(field: Field, values: list[Any], negated: bool, binding: Binding) -> Tree:
    """Return `column IN values`, or NOT IN. Raises NotPushed."""
    found = {leaf.literal for leaf in (compare_value(field, "=", v, binding) for v in values)
             if isinstance(leaf, Condition) and leaf.test == "="}  # fmt: skip
    return membership(field, found, negated)


def compare(operand: Operand, op: str, const: Const, binding: Binding) -> Tree:
    if const.value is None:
        return FALSE
    field = operand.field
    if const.value is UNBOUND:
        return Condition(field.field_id, op, UNBOUND)
    if operand.unit:
        return _compare_truncated(operand, op, const, binding)
    if field.kind is Kind.INT or field.type.startswith("decimal"):
        point, low, high = _point(field.type, const.value, binding)
        return _rounded(field, op, point, low, high, const, binding)
    if field.kind is Kind.FLOAT:
        return _compare_float(field, op, const.value)
    return _compare_bytes(field, op, const.value)


MOST_RANGES = 32
"""Maximum ranges that one list becomes, for example a list of days or months."""


_STRICT_TYPES = ("", "trino", "presto", "athena", "bigquery")
"""Dialects in which a number never compares with a string."""


_WHOLE = re.compile(r"[+-]?[0-9]{1,15}")
"""Text that is the same number in every engine, also in engines that compare as doubles."""


def _point(kind: str, value: Any, binding: Binding) -> tuple[int | Fraction, int, int]:
    """Return the constant on the column's integer axis, and the axis' least and greatest value."""
    if kind in ("int", "long"):
        bits = 31 if kind == "int" else 63
        if isinstance(value, str) and binding.dialect not in _STRICT_TYPES:
            value = int(value) if _WHOLE.fullmatch(value) else value
        return _scaled(value, 0), -(1 << bits), (1 << bits) - 1
    if kind.startswith("decimal"):
        precision = int(re.findall(r"\d+", kind)[0])
        if isinstance(value, float):
            if precision > 15:
                raise NotPushed("compared as doubles")
            value = Decimal(repr(value))
        edge = 10**precision - 1
        return _scaled(value, decimal_scale(kind)), -edge, edge
    if kind == "boolean":
        if not isinstance(value, bool):
            raise NotPushed("not boolean")
        return int(value), 0, 1
    if kind == "time":
        if not isinstance(value, dt.time):
            raise NotPushed("not a time of day")
        seconds = (value.hour * 60 + value.minute) * 60 + value.second
        return seconds * 1_000_000 + value.microsecond, 0, DAY_US - 1
    us = _instant(kind, value, binding)
    if kind == "date":
        days = us // DAY_US if us % DAY_US == 0 else Fraction(us, DAY_US)
        return days, -(1 << 31), (1 << 31) - 1
    return us * (1000 if kind.endswith("_ns") else 1), -(1 << 63), (1 << 63) - 1


def _scaled(value: Any, scale: int) -> int | Fraction:
    """Return a number times a power of ten, exactly."""
    if isinstance(value, bool) or not isinstance(value, (int, Decimal, float)):
        raise NotPushed("not a number")
    if isinstance(value, int):
        return int(value * 10**scale)
    if not math.isfinite(value):
        raise NotPushed("not finite")
    exact: Fraction = Fraction(value) * 10**scale
    return exact


def _instant(kind: str, value: Any, binding: Binding) -> int:
    """Return the microseconds since the epoch of a date or time in a column of this type."""
    if isinstance(value, str):
        parsed = parse_date(value)
        if parsed is None and kind != "date":
            parsed = parse_timestamp(value)
        if parsed is None:
            raise NotPushed("not an ISO date or time")
        value = parsed
        if kind == "timestamp" and isinstance(value, dt.datetime) and value.tzinfo is not None:
            raise NotPushed("zone in a literal for a column without")
    if not isinstance(value, dt.date):
        raise NotPushed("not a date or time")
    if not isinstance(value, dt.datetime):
        value = dt.datetime.combine(value, dt.time())
    zoned = kind.startswith("timestamptz")
    if zoned and value.tzinfo is None:
        value = value.replace(tzinfo=binding.zone)
    if not zoned and value.tzinfo is not None:
        value = value.astimezone(binding.zone).replace(tzinfo=None)
    return micros(value.astimezone(dt.UTC) if value.tzinfo is not None else value)


def _rounded(
    field: Field,
    op: str,
    point: int | Fraction,
    low: int,
    high: int,
    const: Const,
    binding: Binding,
) -> Tree:
    """Return `column op point` over integers: exact for a point between two of them or outside
    their range."""
    present = Negated(Condition(field.field_id, "null"))
    if point.denominator != 1:
        if op in ("=", "!="):
            return FALSE if op == "=" else present
        value = math.ceil(point) if op in ("<", ">=") else math.floor(point)
    else:
        value = int(point)
    if point > high or value > high:
        return present if op in ("<", "<=", "!=") else FALSE
    if point < low or value < low:
        return present if op in (">", ">=", "!=") else FALSE
    offset = None
    if const.relative and field.type.startswith(("date", "timestamp")):
        offset = value - event_in_domain(field.type, binding.event_ms)
    wide = field.kind is Kind.BYTES
    return Condition(field.field_id, op, encode_wide_decimal(value) if wide else value, offset)


def _compare_float(field: Field, op: str, value: Any) -> Tree:
    point = float(_scaled(value, 0))
    if field.type == "double":
        return Condition(field.field_id, op, point)
    narrow = _single(point)
    if narrow == point:
        return Condition(field.field_id, op, point)
    if op == "=":  # the engine may compare in single or in double precision
        return Condition(field.field_id, "in", tuple(sorted((point, narrow))))
    if op == "!=":
        raise NotPushed("not exact in single precision")
    edge = max(point, narrow) if op in ("<", "<=") else min(point, narrow)
    return Condition(field.field_id, op, edge)


def _single(value: float) -> float:
    try:
        return float(struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError:
        raise NotPushed("overflows single precision") from None


def _compare_bytes(field: Field, op: str, value: Any) -> Tree:
    if field.type == "string" and isinstance(value, str):
        return Condition(field.field_id, op, utf8(value))
    if isinstance(value, bytes) and field.type in ("binary", f"fixed[{len(value)}]"):
        return Condition(field.field_id, op, value)
    if field.type == "uuid" and isinstance(value, (str, uuid.UUID)) and op in ("=", "!="):
        try:
            return Condition(field.field_id, op, uuid.UUID(str(value)).bytes)
        except ValueError:
            raise NotPushed("not a UUID") from None
    raise NotPushed("types differ")


def utf8(text: str) -> bytes:
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:
        raise NotPushed("lone surrogate") from None


def _compare_truncated(operand: Operand, op: str, const: Const, binding: Binding) -> Tree:
    """Return `trunc(column) op constant` as a range: units are half-open and adjacent."""
    if operand.year:
        if type(const.value) is not int or not 1 <= const.value < 9999:
            raise NotPushed("not a year")
        at = dt.datetime(const.value, 1, 1)
    else:
        at = _local(const.value, binding)
    start = truncate(at, operand.unit)
    after = next_unit(start, operand.unit)

    def side(op: str, edge: dt.datetime) -> Tree:
        return compare(Operand(operand.field), op, Const(edge, const.relative), binding)

    if op == "=":
        return branch(True, [side(">=", start), side("<", after)]) if at == start else FALSE
    if op == "!=":
        if at != start:
            return Negated(Condition(operand.field.field_id, "null"))
        return branch(False, [side("<", start), side(">=", after)])
    if op in ("<", ">="):
        return side(op, start if at == start else after)
    return side("<" if op == "<=" else ">=", after)


def _local(value: Any, binding: Binding) -> dt.datetime:
    """Return the constant as wall-clock time of the zone in which the column is truncated."""
    us = _instant("timestamp", value, binding)
    return dt.datetime(1970, 1, 1) + dt.timedelta(microseconds=us)


def in_truncated(operand: Operand, consts: list[Const], binding: Binding, negated: bool) -> Tree:
    """Return `trunc(column) IN (...)` as one range each, of a limited number: each length is a new
    shape."""
    if len(consts) > MOST_RANGES:
        raise NotPushed("too many ranges")
    op = "!=" if negated else "="
    return branch(negated, [compare(operand, op, const, binding) for const in consts])


def membership(field: Field, found: set[Any], negated: bool) -> Tree:
    if not found:
        return Negated(Condition(field.field_id, "null")) if negated else FALSE
    if len(found) == 1:
        return Condition(field.field_id, "!=" if negated else "=", found.pop())
    leaf = Condition(field.field_id, "in", tuple(sorted(found)))
    return Negated(leaf) if negated else leaf
