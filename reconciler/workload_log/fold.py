"""Evaluates constants in SQL: the value of an expression without columns at a query's event time.

Used to turn `col >= current_date - interval '7' day` into a literal that moves with event time.
Only what every engine computes alike is folded; anything else is NotConstant, and the condition
that contains it is dropped. Dates and times without a zone are read in the session's time zone.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable

from sqlglot import exp

from reconciler.workload_log.casts import (
    OWN_ZONES,
    as_date,
    as_timestamp,
    cast_value,
    wall_clock,
    zone_of,
)
from reconciler.workload_log.constants import (
    NULL,
    UNBOUND,
    UTC,
    Binding,
    Const,
    NotConstant,
    SqlInterval,
    add_months,
    arithmetic,
    epoch_time,
    hex_bytes,
    interval_of,
    is_number,
    named_zone,
    number,
    parse_by_format,
    parse_interval,
    parse_timestamp,
    shift,
    temporal,
    text_literal,
    truncate,
    unit_name,
    zone_named,
)


def fold(node: exp.Expr, binding: Binding) -> Const:
    """Return the constant's value. Raises NotConstant."""
    rule = _RULES.get(type(node))
    if rule is None:
        raise NotConstant(type(node).__name__)
    try:
        return rule(node, binding)
    except (ValueError, OverflowError, ArithmeticError, TypeError, KeyError) as error:
        raise NotConstant(str(error)) from error


def _literal(node: exp.Expr, binding: Binding) -> Const:
    text = node.this
    lifted = binding.literals.get(text)
    if lifted is not None:
        return lifted
    return text_literal(text) if node.args.get("is_string") else number(text)


def _hex(node: exp.Expr, binding: Binding) -> Const:
    """Evaluate X'0aff'."""
    lifted = binding.literals.get(node.this)
    return lifted if lifted is not None else Const(hex_bytes(node.this))


def _from_hex(node: exp.Expr, binding: Binding) -> Const:
    value = fold(node.this, binding)
    if value.value is None or value.value is UNBOUND:
        return value
    return Const(hex_bytes(value.value))


def _unbound(node: exp.Expr, binding: Binding) -> Const:
    return Const(UNBOUND)


def _neg(node: exp.Expr, binding: Binding) -> Const:
    value = fold(node.this, binding)
    if value.value is None or value.value is UNBOUND:
        return value
    if isinstance(value.value, SqlInterval):
        return Const(SqlInterval(-value.value.months, -value.value.micros), value.relative)
    if is_number(value.value):
        return Const(-value.value, value.relative)
    raise NotConstant("negated value")


def _operands(node: exp.Expr, binding: Binding) -> tuple[Const, Const, Const | None]:
    """Return both operands, and the result if one of them alone decides it (NULL, an unbound
    one)."""
    left, right = fold(node.this, binding), fold(node.expression, binding)
    for side in (left, right):
        if side.value is UNBOUND:
            return left, right, side
    for side in (left, right):
        if side.value is None:
            return left, right, NULL
    return left, right, None


def _add(node: exp.Expr, binding: Binding) -> Const:
    return _plus(node, binding, 1)


def _sub(node: exp.Expr, binding: Binding) -> Const:
    return _plus(node, binding, -1)


def _plus(node: exp.Expr, binding: Binding, sign: int) -> Const:
    left, right, decided = _operands(node, binding)
    if decided is not None:
        return decided
    relative = left.relative or right.relative
    if isinstance(left.value, SqlInterval) and sign > 0:
        left, right = right, left
    if isinstance(right.value, SqlInterval):
        return Const(shift(temporal(left.value), right.value, sign), relative)
    if type(left.value) is dt.date and type(right.value) is int:
        return Const(left.value + dt.timedelta(days=sign * right.value), relative)
    if is_number(left.value) and is_number(right.value):
        return Const(arithmetic(left.value, right.value, "+" if sign > 0 else "-"), relative)
    raise NotConstant("operands")


def _mul(node: exp.Expr, binding: Binding) -> Const:
    left, right, decided = _operands(node, binding)
    if decided is not None:
        return decided
    relative = left.relative or right.relative
    for one, other in ((left.value, right.value), (right.value, left.value)):
        if isinstance(one, SqlInterval) and type(other) is int:
            return Const(SqlInterval(one.months * other, one.micros * other), relative)
    if is_number(left.value) and is_number(right.value):
        return Const(arithmetic(left.value, right.value, "*"), relative)
    raise NotConstant("operands")


def _div(node: exp.Expr, binding: Binding) -> Const:
    """Return a quotient if it is exact: engines differ in integer and decimal division."""
    left, right, decided = _operands(node, binding)
    if decided is not None:
        return decided
    if type(left.value) is int and type(right.value) is int and right.value:
        quotient, rest = divmod(left.value, right.value)
        if not rest:
            return Const(quotient, left.relative or right.relative)
    raise NotConstant("division")


# Dates and times


def _interval(node: exp.Expr, binding: Binding) -> Const:
    value = fold(node.this, binding)
    if value.value is UNBOUND or value.value is None:
        return value
    unit = node.args.get("unit")
    if unit is None:
        return Const(parse_interval(str(value.value)))
    if not isinstance(unit, (exp.Var, exp.Literal)):
        raise NotConstant("interval span")
    return Const(interval_of(value.value, unit_name(unit)))


def _now(node: exp.Expr, binding: Binding) -> Const:
    if node.args.get("sysdate") and binding.dialect == "snowflake":
        return Const(binding.now.replace(tzinfo=None), True)
    return Const(binding.now, True)


def _local_now(node: exp.Expr, binding: Binding) -> Const:
    return Const(wall_clock(binding.now, _asked_zone(node, binding)), True)


def _today(node: exp.Expr, binding: Binding) -> Const:
    return Const(wall_clock(binding.now, _asked_zone(node, binding)).date(), True)


def _asked_zone(node: exp.Expr, binding: Binding) -> dt.tzinfo:
    """Return the zone of CURRENT_DATE('America/New_York'); a number is a precision, not a zone."""
    asked = None if node.args.get("this") is None else fold(node.this, binding).value
    if asked is None or isinstance(asked, int):
        return binding.zone
    return zone_named(asked)


def _date_add(node: exp.Expr, binding: Binding) -> Const:
    return _date_shift(node, binding, 1)


def _date_sub(node: exp.Expr, binding: Binding) -> Const:
    return _date_shift(node, binding, -1)


def _date_shift(node: exp.Expr, binding: Binding, sign: int) -> Const:
    left, right, decided = _operands(node, binding)
    if decided is not None:
        return decided
    amount = right.value
    if not isinstance(amount, SqlInterval):
        amount = interval_of(amount, unit_name(node.args.get("unit"), "DAY"))
    moved = shift(temporal(left.value), amount, sign)
    if isinstance(node, exp.TsOrDsAdd) and binding.dialect in _DATES_FROM_DATE_ADD:
        moved = as_date(moved, binding)
    return Const(moved, left.relative or right.relative)


_DATES_FROM_DATE_ADD = ("spark", "spark2", "databricks", "hive")
"""Dialects in which date_add and add_months of a timestamp return a date."""


def _months_add(node: exp.Expr, binding: Binding) -> Const:
    left, right, decided = _operands(node, binding)
    if decided is not None:
        return decided
    start = temporal(left.value)
    if binding.dialect in _DATES_FROM_DATE_ADD:
        start = as_date(start, binding)
    if start.day > 27 or type(right.value) is not int:
        raise NotConstant("end of month")  # some engines keep the last day of the month
    return Const(add_months(start, right.value), left.relative or right.relative)


_TRUNCATION_NAMES = {"MM": "MONTH", "MON": "MONTH", "YY": "YEAR", "YYYY": "YEAR", "DD": "DAY",
                     "ISOWEEK": "WEEK"}  # fmt: skip
_SUNDAY_WEEKS = ("bigquery", "snowflake", "mysql", "tsql", "clickhouse")


def _date_trunc(node: exp.Expr, binding: Binding) -> Const:
    value = fold(node.this, binding)
    if value.value is UNBOUND or value.value is None:
        return value
    unit = unit_name(node.args.get("unit"))
    if node.args.get("zone") is not None or (unit == "WEEK" and binding.dialect in _SUNDAY_WEEKS):
        raise NotConstant("truncation depends on a setting")
    unit = _TRUNCATION_NAMES.get(unit, unit)
    at = temporal(value.value)
    if isinstance(at, dt.datetime) and at.tzinfo is not None:
        return Const(truncate(at.astimezone(zone_of(at, binding)), unit), value.relative)
    start = truncate(at, unit)
    whole_day = not isinstance(at, dt.datetime)
    return Const(start.date() if whole_day else start, value.relative)


def _at_time_zone(node: exp.Expr, binding: Binding) -> Const:
    value, name = fold(node.this, binding), fold(node.args["zone"], binding)
    if not isinstance(value.value, dt.datetime) or not isinstance(name.value, str):
        raise NotConstant("time zone")
    zone = named_zone(name.value)
    if value.value.tzinfo is None:
        return Const(value.value.replace(tzinfo=zone), value.relative)
    if binding.dialect in ("postgres", "redshift", "duckdb"):
        return Const(value.value.astimezone(zone).replace(tzinfo=None), value.relative)
    if binding.dialect in OWN_ZONES:
        own = UTC if zone is dt.UTC else zone
        return Const(value.value.astimezone(own), value.relative)
    raise NotConstant("time zone")


# Casts


def _cast(node: exp.Expr, binding: Binding) -> Const:
    value = fold(node.this, binding)
    if value.value is None or value.value is UNBOUND:
        return value
    to = node.args["to"]
    return Const(cast_value(value.value, to.this.value, to.expressions, binding), value.relative)


def _to_date(node: exp.Expr, binding: Binding) -> Const:
    value = fold(node.this, binding)
    if value.value is None or value.value is UNBOUND:
        return value
    if any(node.args.get(name) for name in ("zone", "expressions")):
        raise NotConstant("date function with arguments")
    if node.args.get("format") is not None:
        value = _parse_with_format(node, binding)
    return Const(as_date(value.value, binding), value.relative)


def _to_timestamp(node: exp.Expr, binding: Binding) -> Const:
    """Evaluate TIMESTAMP(x) and DATETIME(x), with the zone in which a text or a date x is read."""
    value = fold(node.this, binding)
    if value.value is None or value.value is UNBOUND:
        return value
    zoned, zone = bool(node.args.get("with_tz")), node.args.get("zone")
    if node.args.get("expression") is not None or (zone is not None and not zoned):
        raise NotConstant("time function with arguments")
    at = as_timestamp(value.value, binding, False)
    if not zoned or at.tzinfo is not None:
        return Const(at, value.relative)
    named = binding.zone if zone is None else zone_named(fold(zone, binding).value)
    return Const(at.replace(tzinfo=named), value.relative)


def _from_unix(node: exp.Expr, binding: Binding) -> Const:
    """Evaluate seconds since the epoch, or 10^-scale of them; without a zone only in Snowflake."""
    value, scale = fold(node.this, binding), node.args.get("scale")
    if value.value is None or value.value is UNBOUND:
        return value
    if any(node.args.get(name) for name in ("zone", "hours", "minutes", "format")):
        raise NotConstant("epoch with arguments")
    digits = 0 if scale is None else fold(scale, binding).value
    if not is_number(value.value) or digits not in (0, 3, 6, 9):
        raise NotConstant("not an epoch time")
    at = epoch_time(value.value, digits)
    kind = node.args.get("target_type")
    if binding.dialect == "snowflake" and (kind is None or kind.this.value != "TIMESTAMPTZ"):
        return Const(at.replace(tzinfo=None), value.relative)
    return Const(at, value.relative)


def _last_day(node: exp.Expr, binding: Binding) -> Const:
    value = fold(node.this, binding)
    if value.value is None or value.value is UNBOUND:
        return value
    if unit_name(node.args.get("unit"), "MONTH") != "MONTH":
        raise NotConstant("last day of another unit")
    first = as_date(value.value, binding).replace(day=1)
    return Const(add_months(first, 1) - dt.timedelta(days=1), value.relative)


def _iso_timestamp(node: exp.Expr, binding: Binding) -> Const:
    value = fold(node.this, binding)
    at = parse_timestamp(value.value) if isinstance(value.value, str) else None
    if at is None:
        raise NotConstant("not an ISO time")
    return Const(at if at.tzinfo is not None else at.replace(tzinfo=binding.zone), value.relative)


def _parse_with_format(node: exp.Expr, binding: Binding) -> Const:
    value, form = fold(node.this, binding), fold(node.args["format"], binding)
    if not isinstance(value.value, str) or not isinstance(form.value, str):
        raise NotConstant("format")
    at = parse_by_format(value.value, form.value)
    return Const(at.date() if isinstance(node, exp.StrToDate) else at, value.relative)


def _date_from_parts(node: exp.Expr, binding: Binding) -> Const:
    parts = [fold(node.args[name], binding).value for name in ("year", "month", "day")]
    if any(type(part) is not int for part in parts):
        raise NotConstant("date parts")
    return Const(dt.date(*parts))


def _concat(node: exp.Expr, binding: Binding) -> Const:
    pieces = node.expressions or [node.this, node.expression]
    values = [fold(piece, binding) for piece in pieces]
    if any(value.value is UNBOUND for value in values):
        return Const(UNBOUND)
    if not all(isinstance(value.value, str) for value in values):
        raise NotConstant("concatenation")
    return Const("".join(value.value for value in values), any(v.relative for v in values))


_SHIFT_FUNCTION = re.compile(r"(add|subtract)(second|minute|hour|day|week|month|year)s")
_EPOCH_FUNCTIONS = {"timestamp_seconds": 0, "timestamp_millis": 3, "timestamp_micros": 6}
_NOW_FUNCTIONS = ("now", "getdate", "sysdatetime", "systimestamp")


def _anonymous(node: exp.Expr, binding: Binding) -> Const:
    name, arguments = node.name.lower(), node.expressions
    if not arguments and name in _NOW_FUNCTIONS:
        return _now(node, binding)
    if not arguments and name in ("today", "curdate"):
        return _today(node, binding)
    if name in _EPOCH_FUNCTIONS and len(arguments) == 1:
        scale = exp.Literal.number(_EPOCH_FUNCTIONS[name])
        return _from_unix(exp.UnixToTime(this=arguments[0].copy(), scale=scale), binding)
    if name == "make_date" and len(arguments) == 3:
        year, month, day = (argument.copy() for argument in arguments)
        return _date_from_parts(exp.DateFromParts(year=year, month=month, day=day), binding)
    if name in ("todate", "todatetime") and len(arguments) == 1:
        value = fold(arguments[0], binding)
        if value.value is None or value.value is UNBOUND:
            return value
        at = as_date(value.value, binding) if name == "todate" else temporal(value.value)
        return Const(at, value.relative)
    match = _SHIFT_FUNCTION.fullmatch(name)
    if match and len(arguments) == 2:
        start, amount = fold(arguments[0], binding), fold(arguments[1], binding)
        by = interval_of(amount.value, unit_name(match.group(2)))
        sign = 1 if match.group(1) == "add" else -1
        return Const(shift(temporal(start.value), by, sign), start.relative)
    raise NotConstant(name)


_RULES: dict[type[exp.Expr], Callable[[exp.Expr, Binding], Const]] = {
    exp.Literal: _literal,
    exp.HexString: _hex,
    exp.Unhex: _from_hex,
    exp.Boolean: lambda node, binding: Const(bool(node.this)),
    exp.Null: lambda node, binding: NULL,
    exp.Placeholder: _unbound,
    exp.Parameter: _unbound,
    exp.SessionParameter: _unbound,
    exp.Paren: lambda node, binding: fold(node.this, binding),
    exp.Neg: _neg,
    exp.Add: _add,
    exp.Sub: _sub,
    exp.Mul: _mul,
    exp.Div: _div,
    exp.Interval: _interval,
    exp.CurrentTimestamp: _now,
    exp.CurrentTimestampLTZ: _now,
    exp.CurrentDatetime: _local_now,
    exp.Localtimestamp: _local_now,
    exp.CurrentDate: _today,
    exp.Cast: _cast,
    exp.TryCast: _cast,
    exp.TsOrDsToDate: _to_date,
    exp.Date: _to_date,
    exp.FromISO8601Date: _to_date,
    exp.Timestamp: _to_timestamp,
    exp.TsOrDsToDatetime: _to_timestamp,
    exp.UnixToTime: _from_unix,
    exp.LastDay: _last_day,
    exp.FromISO8601Timestamp: _iso_timestamp,
    exp.StrToDate: _parse_with_format,
    exp.StrToTime: _parse_with_format,
    exp.DateFromParts: _date_from_parts,
    exp.DateAdd: _date_add,
    exp.DateSub: _date_sub,
    exp.DatetimeAdd: _date_add,
    exp.DatetimeSub: _date_sub,
    exp.TimestampAdd: _date_add,
    exp.TimestampSub: _date_sub,
    exp.TsOrDsAdd: _date_add,
    exp.AddMonths: _months_add,
    exp.DateTrunc: _date_trunc,
    exp.TimestampTrunc: _date_trunc,
    exp.DatetimeTrunc: _date_trunc,
    exp.AtTimeZone: _at_time_zone,
    exp.Concat: _concat,
    exp.DPipe: _concat,
    exp.Anonymous: _anonymous,
}
