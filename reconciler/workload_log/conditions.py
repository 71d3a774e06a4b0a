"""Converts a SQL condition over one table's columns into a pruning predicate, for the SQL reader.

Every row for which the SQL condition is true satisfies the predicate; a part that the engine cannot
push down, or that engines evaluate differently, becomes TRUE. Literals are converted to the
column's domain and rounded so that no row is lost (`int_col < 3.5` is `< 4`). NaN follows Iceberg's
evaluators, which never let a comparison match it.
"""

from __future__ import annotations

import datetime as dt
import math
import re
import struct
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

from sqlglot import exp

from reconciler.queries.moving_windows import event_in_domain
from reconciler.queries.predicate import (
    FALSE,
    TRUE,
    Always,
    And,
    Comparison,
    In,
    IsNaN,
    IsNull,
    Literal,
    Not,
    Or,
    Predicate,
    Ref,
    StartsWith,
)
from reconciler.table.schema import Field, Schema
from reconciler.table.values import Kind, decimal_scale, encode_wide_decimal, micros
from reconciler.workload_log.fold import (
    UNBOUND,
    Binding,
    Const,
    NotConstant,
    fold,
    next_unit,
    parse_date,
    parse_timestamp,
    truncate,
    unit_name,
)

_DAY_US = 86_400_000_000


@dataclass(frozen=True, slots=True)
class Leaf:
    """A leaf with its literal; slots are numbered once the tree is final.

    test: a comparison operator, "in", "starts", "null" or "nan". literal: in the domain, or
    UNBOUND. offset: literal - event time in the domain's unit, if the literal moves with event
    time.
    """

    field_id: int
    test: str
    literal: Any = None
    offset: int | None = None
    transform: str = "identity"


@dataclass(frozen=True, slots=True)
class Branch:
    """conjunction: AND, else OR. Children are Leaf, Refuse, Branch or Always."""

    conjunction: bool
    children: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Refuse:
    """NOT leaf."""

    leaf: Leaf


Tree = Leaf | Refuse | Branch | Always


@dataclass(frozen=True, slots=True)
class Bound:
    """A predicate with its literals; unbound: the whole shape if some value is unknown."""

    predicate: Predicate
    literals: tuple[Literal, ...]
    moving: tuple[int | None, ...]
    unbound: Predicate | None


def bind(conditions: list[exp.Expr], schema: Schema, binding: Binding) -> Bound:
    """Return the conjunction of conditions (in negation normal form) for one query of a
    template."""
    return bound(branch(True, [_tree(node, schema, binding) for node in conditions]))


def bound(tree: Tree) -> Bound:
    """Return a tree with its slots numbered, without the conditions whose value is unknown."""
    known = _known(tree)
    predicate, literals, moving = _number(known)
    unbound = None if known == tree else _number(tree)[0]
    return Bound(predicate, literals, moving, unbound)


def _tree(node: exp.Expr, schema: Schema, binding: Binding) -> Tree:
    if isinstance(node, exp.Paren):
        return _tree(node.this, schema, binding)
    if isinstance(node, (exp.And, exp.Or)):
        sides = [_tree(side, schema, binding) for side in node.flatten()]
        return branch(isinstance(node, exp.And), sides)
    try:
        return _condition(node, schema, binding)
    except (NotConstant, NotPushed):
        return TRUE


class NotPushed(Exception):
    """The condition is valid SQL that the engine evaluates only after reading the row."""


def _condition(node: exp.Expr, schema: Schema, binding: Binding) -> Tree:
    if isinstance(node, exp.Not):
        return _negated(node.this, schema, binding)
    rule = _RULES.get(type(node))
    if rule is not None:
        return rule(node, schema, binding)
    if isinstance(node, (exp.Column, exp.Dot)):
        return _boolean_column(node, schema, True)
    return _constant_condition(node, binding)


def _negated(node: exp.Expr, schema: Schema, binding: Binding) -> Tree:
    """Return NOT of a leaf; exact only if the leaf itself is exact."""
    while isinstance(node, exp.Paren):
        node = node.this
    if isinstance(node, (exp.Column, exp.Dot)):
        return _boolean_column(node, schema, False)
    if isinstance(node, exp.In):
        return _in(node, schema, binding, negated=True)
    if isinstance(node, exp.Like):
        return _like(node, schema, binding, negated=True)
    if isinstance(node, exp.Escape):
        return _escaped_like(node, schema, binding, negated=True)
    if isinstance(node, exp.StartsWith):
        return _not(_starts_with(node, schema, binding))
    if isinstance(node, exp.Is):
        return _is(node, schema, binding, negated=True)
    if isinstance(node, exp.IsNan):
        return _not(_is_nan(node, schema, binding))
    if isinstance(node, (exp.Boolean, exp.Null)):
        value = fold(node, binding).value
        return Always(value is False)
    raise NotPushed("negation")


def _not(tree: Tree) -> Tree:
    if isinstance(tree, Leaf):
        return Refuse(tree)
    if isinstance(tree, Always):
        return Always(not tree.value)
    raise NotPushed("negation")


def _constant_condition(node: exp.Expr, binding: Binding) -> Tree:
    value = fold(node, binding).value
    if value is None or isinstance(value, bool):
        return Always(value is True)
    return TRUE


# Columns, directly or inside a function that can be turned into a range


@dataclass(frozen=True, slots=True)
class _Operand:
    """unit: "" for the column itself, else the unit that its time is truncated to.

    year: the function returns the year's number instead of a time.
    """

    field: Field
    unit: str = ""
    year: bool = False


def column_path(node: exp.Expr) -> str | None:
    """Return `a` or `a.b.c` for a column or a struct's field, None for anything else."""
    if isinstance(node, exp.Column):
        return node.name
    if isinstance(node, exp.Dot):
        head = column_path(node.this)
        return None if head is None else f"{head}.{node.expression.name}"
    return None


def _field(node: exp.Expr, schema: Schema) -> Field | None:
    path = column_path(node)
    field = schema.find(path) if path is not None else None
    if path is not None and (field is None or field.kind is None):
        raise NotPushed("no usable bounds")
    return field


def _operand(node: exp.Expr, schema: Schema, binding: Binding) -> _Operand | None:
    """Return the column that an expression reads, None if it is not one column. Raises
    NotPushed."""
    while isinstance(node, exp.Paren):
        node = node.this
    field = _field(node, schema)
    if field is not None:
        return _Operand(field)
    if isinstance(node, (exp.Cast, exp.TryCast)):
        return _unwrapped_cast(node, schema, binding)
    if isinstance(node, (exp.TsOrDsToDate, exp.Date)) and node.this is not None:
        if any(node.args.get(name) for name in ("zone", "format", "expressions")):
            raise NotPushed("date function with arguments")
        return _truncated(node.this, "DAY", schema, binding)
    if isinstance(node, (exp.DateTrunc, exp.TimestampTrunc, exp.DatetimeTrunc)):
        if node.args.get("zone") is not None:
            raise NotPushed("zone")
        return _truncated(node.this, unit_name(node.args.get("unit")), schema, binding, "trunc")
    if isinstance(node, exp.Year) or (
        isinstance(node, exp.Extract) and node.name.upper() == "YEAR"
    ):
        inner = node.this if isinstance(node, exp.Year) else node.expression
        operand = _truncated(inner, "YEAR", schema, binding, "trunc")
        return None if operand is None else _Operand(operand.field, "YEAR", year=True)
    return None


_EXACT_CASTS = {
    "int": {"INT", "BIGINT", "DOUBLE"},
    "long": {"BIGINT"},
    "float": {"FLOAT", "DOUBLE"},
    "double": {"DOUBLE"},
    "date": {"DATE", "TIMESTAMP", "TIMESTAMPNTZ", "DATETIME"},
    "string": {"TEXT", "VARCHAR"},
    "timestamp": {"TIMESTAMP", "TIMESTAMPNTZ", "DATETIME"},
    "timestamptz": {"TIMESTAMPTZ", "TIMESTAMPLTZ"},
    "boolean": {"BOOLEAN"},
}
"""Casts that keep every value and the order, by the column's type."""


def _unwrapped_cast(node: exp.Expr, schema: Schema, binding: Binding) -> _Operand | None:
    inner = node.this
    while isinstance(inner, exp.Paren):
        inner = inner.this
    field = _field(inner, schema)
    if field is None:
        return None
    to = node.args["to"]
    name, parameters = to.this.value, [p.name for p in to.expressions]
    if name in _EXACT_CASTS.get(field.type, ()) and not parameters:
        return _Operand(field)
    if name == "DECIMAL" and len(parameters) in (1, 2) and _decimal_holds(field.type, parameters):
        return _Operand(field)
    if name == "DATE" and field.type.startswith("timestamp"):
        return _truncated(inner, "DAY", schema, binding)
    raise NotPushed("cast")


def _decimal_holds(kind: str, parameters: list[str]) -> bool:
    precision, scale = int(parameters[0]), int(parameters[1]) if len(parameters) > 1 else 0
    if kind in ("int", "long"):
        return precision - scale >= (10 if kind == "int" else 19)
    match = re.fullmatch(r"decimal\((\d+),\s*(\d+)\)", kind)
    if match is None:
        return False
    own_precision, own_scale = int(match[1]), int(match[2])
    return scale >= own_scale and precision - scale >= own_precision - own_scale


_NO_DATE_CAST = ("duckdb", "flink", "hive")
_NO_TRUNCATION = (*_NO_DATE_CAST, "spark", "spark2", "databricks")
_UNITS = ("YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE", "SECOND")


def _truncated(
    node: exp.Expr, unit: str, schema: Schema, binding: Binding, how: str = "cast"
) -> _Operand | None:
    """Return a time truncated to a unit, if the engine turns that into a range of the column."""
    field = _field(node, schema)
    if field is None:
        return None
    if field.type == "date" and unit == "DAY":
        return _Operand(field)
    refusing = _NO_DATE_CAST if how == "cast" else _NO_TRUNCATION
    if binding.dialect in refusing or unit not in _UNITS:
        raise NotPushed("truncation")
    if unit == "WEEK" and binding.dialect in ("", "bigquery", "snowflake", "mysql", "tsql"):
        raise NotPushed("first day of the week")
    if not (field.type.startswith("timestamp") or field.type == "date"):
        raise NotPushed("not a time")
    return _Operand(field, unit)


def _boolean_column(node: exp.Expr, schema: Schema, value: bool) -> Tree:
    field = _field(node, schema)
    if field is None or field.type != "boolean":
        raise NotPushed("not boolean")
    return Leaf(field.field_id, "=", int(value))


# Comparisons

_FLIP = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "=", "!=": "!="}
_OPS: dict[type[exp.Expr], str] = {
    exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">=", exp.EQ: "=", exp.NEQ: "!=",
}  # fmt: skip


def _comparison(node: exp.Expr, schema: Schema, binding: Binding) -> Tree:
    op = _OPS[type(node)]
    left, right = node.this, node.expression
    operand = _operand(left, schema, binding)
    if operand is None:
        operand, right, op = _operand(right, schema, binding), left, _FLIP[op]
    if operand is None:
        return _compare_constants(node, op, binding)
    return _compare(operand, op, fold(right, binding), binding)


def _compare_constants(node: exp.Expr, op: str, binding: Binding) -> Tree:
    """Compare constants such as `1 = 0`; TRUE unless both sides are plain numbers."""
    left, right = fold(node.this, binding).value, fold(node.expression, binding).value
    if left is None or right is None:
        return FALSE
    if not all(isinstance(side, (int, Decimal)) for side in (left, right)):
        return TRUE
    order = (left > right) - (left < right)
    if _FLIP[op] != op:
        op = _FLIP[op]  # `_comparison` swapped the sides
    return Always(_holds(op, order))


def _holds(op: str, order: int) -> bool:
    return {"<": order < 0, "<=": order <= 0, "=": order == 0,
            "!=": order != 0, ">": order > 0, ">=": order >= 0}[op]  # fmt: skip


def compare_value(field: Field, op: str, value: Any, binding: Binding) -> Tree:
    """Return `column op value` for a Python value. Raises NotPushed."""
    return _compare(_Operand(field), op, Const(value), binding)


def member_of(field: Field, values: list[Any], negated: bool, binding: Binding) -> Tree:
    """Return `column IN values`, or NOT IN. Raises NotPushed."""
    found = {leaf.literal for leaf in (compare_value(field, "=", v, binding) for v in values)
             if isinstance(leaf, Leaf) and leaf.test == "="}  # fmt: skip
    return _membership(field, found, negated)


def _compare(operand: _Operand, op: str, const: Const, binding: Binding) -> Tree:
    if const.value is None:
        return FALSE
    field = operand.field
    if const.value is UNBOUND:
        return Leaf(field.field_id, op, UNBOUND)
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
        return seconds * 1_000_000 + value.microsecond, 0, _DAY_US - 1
    us = _instant(kind, value, binding)
    if kind == "date":
        days = us // _DAY_US if us % _DAY_US == 0 else Fraction(us, _DAY_US)
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
    present = Refuse(Leaf(field.field_id, "null"))
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
    return Leaf(field.field_id, op, encode_wide_decimal(value) if wide else value, offset)


def _compare_float(field: Field, op: str, value: Any) -> Tree:
    point = float(_scaled(value, 0))
    if field.type == "double":
        return Leaf(field.field_id, op, point)
    narrow = _single(point)
    if narrow == point:
        return Leaf(field.field_id, op, point)
    if op == "=":  # the engine may compare in single or in double precision
        return Leaf(field.field_id, "in", tuple(sorted((point, narrow))))
    if op == "!=":
        raise NotPushed("not exact in single precision")
    edge = max(point, narrow) if op in ("<", "<=") else min(point, narrow)
    return Leaf(field.field_id, op, edge)


def _single(value: float) -> float:
    try:
        return float(struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError:
        raise NotPushed("overflows single precision") from None


def _compare_bytes(field: Field, op: str, value: Any) -> Tree:
    if field.type == "string" and isinstance(value, str):
        return Leaf(field.field_id, op, _utf8(value))
    if field.type == "uuid" and isinstance(value, str) and op in ("=", "!="):
        try:
            return Leaf(field.field_id, op, uuid.UUID(value).bytes)
        except ValueError:
            raise NotPushed("not a UUID") from None
    raise NotPushed("types differ")


def _utf8(text: str) -> bytes:
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:
        raise NotPushed("lone surrogate") from None


def _compare_truncated(operand: _Operand, op: str, const: Const, binding: Binding) -> Tree:
    """Return `trunc(column) op constant` as a range: units are half-open and adjacent."""
    if operand.year:
        if type(const.value) is not int or not 1 <= const.value < 9999:
            raise NotPushed("not a year")
        at = dt.datetime(const.value, 1, 1)
    else:
        at = _local(operand.field.type, const.value, binding)
    start = truncate(at, operand.unit)
    after = next_unit(start, operand.unit)

    def side(op: str, edge: dt.datetime) -> Tree:
        return _compare(_Operand(operand.field), op, Const(edge, const.relative), binding)

    if op == "=":
        return branch(True, [side(">=", start), side("<", after)]) if at == start else FALSE
    if op == "!=":
        if at != start:
            return Refuse(Leaf(operand.field.field_id, "null"))
        return branch(False, [side("<", start), side(">=", after)])
    if op in ("<", ">="):
        return side(op, start if at == start else after)
    return side("<" if op == "<=" else ">=", after)


def _local(kind: str, value: Any, binding: Binding) -> dt.datetime:
    """Return the constant as wall-clock time of the zone in which the column is truncated."""
    us = _instant("timestamp", value, binding)
    return dt.datetime(1970, 1, 1) + dt.timedelta(microseconds=us)


# IN, LIKE, IS


def _in(node: exp.Expr, schema: Schema, binding: Binding, negated: bool = False) -> Tree:
    if node.args.get("query") is not None:
        raise NotPushed("subquery")
    items = _items(node)
    operand = _operand(node.this, schema, binding)
    if operand is None or not items:
        raise NotPushed("not a column")
    consts = [fold(item, binding) for item in items]
    if operand.unit:
        return _in_truncated(operand, consts, binding, negated)
    if negated and any(const.value is None for const in consts):
        return FALSE
    field = operand.field
    if any(const.value is UNBOUND for const in consts):
        leaf = Leaf(field.field_id, "in", UNBOUND)
        return Refuse(leaf) if negated else leaf
    found: set[Any] = set()
    for const in consts:
        equal = _compare(operand, "=", Const(const.value), binding)
        if isinstance(equal, Leaf) and equal.test == "=":
            found.add(equal.literal)
        elif isinstance(equal, Leaf):
            if negated:
                raise NotPushed("not exact in single precision")
            found.update(equal.literal)
    return _membership(field, found, negated)


def _in_truncated(operand: _Operand, consts: list[Const], binding: Binding, negated: bool) -> Tree:
    """Return `trunc(column) IN (...)` as one range each, of a limited number: each length is a new
    shape."""
    if len(consts) > MOST_RANGES:
        raise NotPushed("too many ranges")
    op = "!=" if negated else "="
    return branch(negated, [_compare(operand, op, const, binding) for const in consts])


def _items(node: exp.Expr) -> list[exp.Expr]:
    """Return the values of a list, or of an array literal."""
    unnest = node.args.get("unnest")
    if unnest is None:
        return list(node.expressions)
    arrays = unnest.expressions
    if len(arrays) != 1 or not isinstance(arrays[0], exp.Array):
        raise NotPushed("not a list")
    return list(arrays[0].expressions)


def _membership(field: Field, found: set[Any], negated: bool) -> Tree:
    if not found:
        return Refuse(Leaf(field.field_id, "null")) if negated else FALSE
    if len(found) == 1:
        return Leaf(field.field_id, "!=" if negated else "=", found.pop())
    leaf = Leaf(field.field_id, "in", tuple(sorted(found)))
    return Refuse(leaf) if negated else leaf


def _like(node: exp.Expr, schema: Schema, binding: Binding, negated: bool = False) -> Tree:
    return _pattern(node, "\\", schema, binding, negated)


def _escaped_like(node: exp.Expr, schema: Schema, binding: Binding, negated: bool = False) -> Tree:
    escape = fold(node.expression, binding).value
    if not isinstance(node.this, exp.Like) or not isinstance(escape, str) or len(escape) > 1:
        raise NotPushed("escape")
    return _pattern(node.this, escape, schema, binding, negated)


def _pattern(node: exp.Expr, escape: str, schema: Schema, binding: Binding, negated: bool) -> Tree:
    """Return the prefix condition of a pattern: exact for `x%` and for text without wildcards.

    It is the literal text before the first wildcard or escape.
    """
    field = _field(node.this, schema)
    text = fold(node.expression, binding).value
    if field is None or field.type != "string":
        raise NotPushed("not a string column")
    if text is UNBOUND:
        leaf = Leaf(field.field_id, "starts", UNBOUND)
        return Refuse(leaf) if negated else leaf
    if text is None:
        return FALSE
    if not isinstance(text, str):
        raise NotPushed("not a string")
    found = re.match(f"[^%_\\\\{re.escape(escape)}]*", text)
    prefix = found[0] if found else ""
    rest = text[len(prefix) :]
    if rest == "":
        return Leaf(field.field_id, "!=" if negated else "=", _utf8(prefix))
    if not prefix or (negated and rest != "%"):
        raise NotPushed("pattern")
    if "_" in rest and binding.dialect in ("spark", "spark2", "databricks"):
        raise NotPushed("pattern")
    leaf = Leaf(field.field_id, "starts", _utf8(prefix))
    return Refuse(leaf) if negated else leaf


def _starts_with(node: exp.Expr, schema: Schema, binding: Binding) -> Tree:
    field = _field(node.this, schema)
    text = fold(node.expression, binding).value
    if field is None or field.type != "string":
        raise NotPushed("not a string column")
    if text is UNBOUND:
        return Leaf(field.field_id, "starts", UNBOUND)
    if not isinstance(text, str):
        raise NotPushed("not a string")
    return Leaf(field.field_id, "starts", _utf8(text))


def _is(node: exp.Expr, schema: Schema, binding: Binding, negated: bool = False) -> Tree:
    right = node.expression
    path = column_path(node.this)
    field = schema.find(path) if path is not None else None
    if field is None or field.repeated or not isinstance(right, (exp.Null, exp.Boolean)):
        raise NotPushed("IS")
    null = Leaf(field.field_id, "null")
    if isinstance(right, exp.Null):
        return Refuse(null) if negated else null
    if field.type != "boolean":
        raise NotPushed("not boolean")
    if not negated:
        return Leaf(field.field_id, "=", int(right.this))
    return branch(False, [Leaf(field.field_id, "=", int(not right.this)), null])


def _is_nan(node: exp.Expr, schema: Schema, binding: Binding) -> Tree:
    field = _field(node.this, schema)
    if field is None or field.kind is not Kind.FLOAT:
        raise NotPushed("not a float")
    return Leaf(field.field_id, "nan")


def _null_safe(node: exp.Expr, schema: Schema, binding: Binding) -> Tree:
    operand, other = _operand(node.this, schema, binding), node.expression
    if operand is None:
        operand, other = _operand(node.expression, schema, binding), node.this
    if operand is None or operand.unit:
        raise NotPushed("not a column")
    const = fold(other, binding)
    null = Leaf(operand.field.field_id, "null")
    if isinstance(node, exp.NullSafeEQ):
        return null if const.value is None else _compare(operand, "=", const, binding)
    if const.value is None:
        return Refuse(null)
    return branch(False, [_compare(operand, "!=", const, binding), null])


_Rule = Callable[[exp.Expr, Schema, Binding], Tree]
_RULES: dict[type[exp.Expr], _Rule] = {
    **dict.fromkeys(_OPS, _comparison),
    exp.In: _in,
    exp.Like: _like,
    exp.Escape: _escaped_like,
    exp.StartsWith: _starts_with,
    exp.Is: _is,
    exp.IsNan: _is_nan,
    exp.NullSafeEQ: _null_safe,
    exp.NullSafeNEQ: _null_safe,
}


# The tree: simplified, in a fixed order, with slots


def branch(conjunction: bool, children: list[Tree]) -> Tree:
    """Return AND or OR of trees: flat, without duplicates and constants, in the order of
    columns."""
    flat: dict[Tree, None] = {}
    for child in children:
        if isinstance(child, Always):
            if child.value != conjunction:
                return child
            continue
        inner = isinstance(child, Branch) and child.conjunction == conjunction
        for item in child.children if inner and isinstance(child, Branch) else (child,):
            flat[item] = None
    if conjunction:
        flat = dict.fromkeys(_without_implied(list(flat)))
    if not flat:
        return Always(conjunction)
    ordered = sorted(flat, key=_rank)
    return ordered[0] if len(ordered) == 1 else Branch(conjunction, tuple(ordered))


def _without_implied(conjuncts: list[Tree]) -> list[Tree]:
    """Drop IS NOT NULL beside a condition on the same column that NULL never meets."""
    judged = {
        leaf.field_id
        for leaf in (c.leaf if isinstance(c, Refuse) else c for c in conjuncts)
        if isinstance(leaf, Leaf)
        and leaf.test not in ("null", "nan")
        and leaf.literal is not UNBOUND
    }
    return [
        c
        for c in conjuncts
        if not (isinstance(c, Refuse) and c.leaf.test == "null" and c.leaf.field_id in judged)
    ]


_TEST_ORDER = (">=", ">", "=", "in", "starts", "<=", "<", "!=", "null", "nan")


def _rank(tree: Tree) -> tuple[Any, ...]:
    if isinstance(tree, Leaf):
        return (0, tree.field_id, tree.transform, _TEST_ORDER.index(tree.test), repr(tree.literal))
    if isinstance(tree, Refuse):
        return (1, *_rank(tree.leaf)[1:])
    if isinstance(tree, Branch):
        return (2, len(tree.children), tuple(_rank(child) for child in tree.children))
    return (3, tree.value)


def _known(tree: Tree) -> Tree:
    """Return the tree without the conditions whose value the log does not hold."""
    leaf = tree.leaf if isinstance(tree, Refuse) else tree
    if isinstance(leaf, Leaf):
        return TRUE if leaf.literal is UNBOUND else tree
    if isinstance(tree, Branch):
        return branch(tree.conjunction, [_known(child) for child in tree.children])
    return tree


def _number(tree: Tree) -> tuple[Predicate, tuple[Literal, ...], tuple[int | None, ...]]:
    literals: list[Literal] = []
    moving: list[int | None] = []

    def visit(node: Tree) -> Predicate:
        if isinstance(node, Branch):
            children = tuple(visit(child) for child in node.children)
            return And(children) if node.conjunction else Or(children)
        if isinstance(node, Refuse):
            return Not(visit(node.leaf))
        if isinstance(node, Always):
            return node
        ref = Ref(node.field_id, node.transform)
        if node.test in ("null", "nan"):
            return IsNull(ref) if node.test == "null" else IsNaN(ref)
        literals.append(node.literal)
        moving.append(node.offset)
        slot = len(literals) - 1
        if node.test == "in":
            return In(ref, slot)
        return StartsWith(ref, slot) if node.test == "starts" else Comparison(ref, node.test, slot)

    predicate = visit(tree)
    return predicate, tuple(literals), tuple(moving)
