"""Evaluates constants in SQL: the value of an expression without columns at a query's event time.

Used to turn `col >= current_date - interval '7' day` into a literal that moves with event time.
Only what every engine computes alike is folded; anything else is NotConstant, and the condition
that contains it is dropped. Dates and times without a zone are read in the session's time zone.
"""

from __future__ import annotations

import calendar
import datetime as dt
import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Context, Decimal, Inexact
from typing import Any, TypeVar
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from sqlglot import exp

MAX_INTERVAL = 200
"""Characters of an interval's text."""

MAX_MAGNITUDE = 400
"""Decimal digits of a number that is folded: beyond every column type and every double. A text of
few characters, 1e999999999, may stand for a number that fills the memory."""

_EXACT = Context(prec=80, traps=[Inexact])
_DAY_US = 86_400_000_000
_Time = TypeVar("_Time", dt.date, dt.datetime)


class NotConstant(Exception):
    """The expression has no value that is the same for every row and every engine."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A SQL interval: calendar months, and exact microseconds separately."""

    months: int
    micros: int


class _Unbound:
    def __repr__(self) -> str:
        return "?"


UNBOUND = _Unbound()
"""The value of a prepared statement's parameter that the log does not hold."""


@dataclass(frozen=True, slots=True)
class Const:
    """value: None (NULL), bool, int, Decimal, float, str, date, time, datetime, Interval, UNBOUND.

    A datetime without tzinfo is a TIMESTAMP without zone. relative: it depends on event time.
    """

    value: Any
    relative: bool = False


NULL = Const(None)


@dataclass(frozen=True, slots=True)
class Binding:
    """The values that differ between two queries of one template.

    literals: values of the lifted literals, by their sentinel text. dialect: sqlglot's name.
    """

    event_ms: int
    zone: dt.tzinfo
    dialect: str
    literals: dict[str, Const]

    @property
    def now(self) -> dt.datetime:
        return dt.datetime.fromtimestamp(0, dt.UTC) + dt.timedelta(milliseconds=self.event_ms)


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
    return Const(text) if node.args.get("is_string") else number(text)


def number(text: str) -> Const:
    """Return a numeric literal: exact, except that an exponent makes it a double in every
    engine."""
    if re.fullmatch(r"\d+", text):
        return Const(int(text))
    if "e" in text.lower():
        return Const(float(text))
    return Const(decimal(text))


def decimal(text: str) -> Decimal:
    """A decimal number. Raises NotConstant where it is too large to compute with."""
    if len(text) > MAX_MAGNITUDE:
        raise NotConstant("too many digits")
    value = Decimal(text)
    if value.is_finite() and abs(value.adjusted()) > MAX_MAGNITUDE:
        raise NotConstant("too large")
    return value


def _unbound(node: exp.Expr, binding: Binding) -> Const:
    return Const(UNBOUND)


def _neg(node: exp.Expr, binding: Binding) -> Const:
    value = fold(node.this, binding)
    if value.value is None or value.value is UNBOUND:
        return value
    if isinstance(value.value, Interval):
        return Const(Interval(-value.value.months, -value.value.micros), value.relative)
    if _is_number(value.value):
        return Const(-value.value, value.relative)
    raise NotConstant("negated value")


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, Decimal, float)) and not isinstance(value, bool)


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
    if isinstance(left.value, Interval) and sign > 0:
        left, right = right, left
    if isinstance(right.value, Interval):
        return Const(_shift(_temporal(left.value), right.value, sign), relative)
    if type(left.value) is dt.date and type(right.value) is int:
        return Const(left.value + dt.timedelta(days=sign * right.value), relative)
    if _is_number(left.value) and _is_number(right.value):
        return Const(_arithmetic(left.value, right.value, "+" if sign > 0 else "-"), relative)
    raise NotConstant("operands")


def _mul(node: exp.Expr, binding: Binding) -> Const:
    left, right, decided = _operands(node, binding)
    if decided is not None:
        return decided
    relative = left.relative or right.relative
    for one, other in ((left.value, right.value), (right.value, left.value)):
        if isinstance(one, Interval) and type(other) is int:
            return Const(Interval(one.months * other, one.micros * other), relative)
    if _is_number(left.value) and _is_number(right.value):
        return Const(_arithmetic(left.value, right.value, "*"), relative)
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


def _arithmetic(left: Any, right: Any, op: str) -> Any:
    if isinstance(left, float) or isinstance(right, float):
        left, right = float(left), float(right)
        return left + right if op == "+" else left - right if op == "-" else left * right
    if isinstance(left, int) and isinstance(right, int):
        if left.bit_length() + right.bit_length() > 4 * MAX_MAGNITUDE:
            raise NotConstant("too large")
        return left + right if op == "+" else left - right if op == "-" else left * right
    a, b = Decimal(left), Decimal(right)
    if op == "*":
        return _EXACT.multiply(a, b)
    return _EXACT.add(a, b) if op == "+" else _EXACT.subtract(a, b)


# Dates and times


def _temporal(value: Any) -> dt.date | dt.datetime:
    """Return a date or timestamp, also from its ISO text, as date functions accept it."""
    if isinstance(value, dt.date):
        return value
    if isinstance(value, str):
        return parse_date(value) or parse_timestamp(value) or _not_temporal(value)
    return _not_temporal(value)


def _not_temporal(value: Any) -> dt.date:
    raise NotConstant(f"{type(value).__name__} is not a date or time")


def parse_date(text: str) -> dt.date | None:
    if re.fullmatch(r"\d{4}-\d{2}-\d{2}", text.strip()):
        try:
            return dt.date.fromisoformat(text.strip())
        except ValueError:
            return None
    return None


_TIMESTAMP = re.compile(
    r"(\d{4}-\d{2}-\d{2})(?:[ T](\d{2}:\d{2}(?::\d{2}(?:\.(\d{1,6})0*)?)?))?"
    r"\s*(Z|UTC|GMT|[+-]\d{2}(?::?\d{2})?|[A-Z][A-Za-z_]+/[A-Za-z_/]+)?"
)


def parse_timestamp(text: str) -> dt.datetime | None:
    """Parse ISO text with an optional zone; None also if digits beyond microseconds are not
    zero."""
    match = _TIMESTAMP.fullmatch(text.strip())
    if match is None:
        return None
    day, clock, _, zone = match.groups()
    clock = clock or "00:00"
    head, _, fraction = clock.partition(".")
    try:
        value = dt.datetime.fromisoformat(f"{day}T{head}")
        if fraction:
            value = value.replace(microsecond=int(fraction[:6].ljust(6, "0")))
        return value if zone is None else value.replace(tzinfo=_zone(zone))
    except ValueError:
        return None


def _zone(name: str) -> dt.tzinfo:
    if name in ("Z", "UTC", "GMT"):
        return _UTC
    if name[0] in "+-":
        sign = 1 if name[0] == "+" else -1
        digits = name[1:].replace(":", "")
        return dt.timezone(sign * dt.timedelta(hours=int(digits[:2]), minutes=int(digits[2:] or 0)))
    return named_zone(name)


def named_zone(name: str) -> dt.tzinfo:
    """Return a time zone by its IANA name. Raises ValueError."""
    if name.upper() in ("UTC", "Z", "GMT", "ETC/UTC"):
        return dt.UTC
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ValueError(f"{name!r} is not a time zone") from error


def _shift(value: dt.date | dt.datetime, by: Interval, sign: int) -> dt.date | dt.datetime:
    moved = _add_months(value, sign * by.months) if by.months else value
    if isinstance(moved, dt.datetime):
        exact = moved if moved.tzinfo is None else moved.astimezone(dt.UTC)
        exact += dt.timedelta(microseconds=sign * by.micros)
        return exact if moved.tzinfo is None else exact.astimezone(moved.tzinfo)
    if by.micros % _DAY_US == 0:
        return moved + dt.timedelta(days=sign * (by.micros // _DAY_US))
    midnight = dt.datetime.combine(moved, dt.time())
    return midnight + dt.timedelta(microseconds=sign * by.micros)


def _add_months(value: _Time, months: int) -> _Time:
    """Add calendar months, the day clamped to the month's end as in SQL."""
    total = value.year * 12 + value.month - 1 + months
    year, month = divmod(total, 12)
    day = min(value.day, calendar.monthrange(year, month + 1)[1])
    return value.replace(year=year, month=month + 1, day=day)


_UNIT_US = {
    "MICROSECOND": 1, "MILLISECOND": 1000, "SECOND": 1_000_000, "MINUTE": 60_000_000,
    "HOUR": 3_600_000_000, "DAY": _DAY_US, "WEEK": 7 * _DAY_US,
}  # fmt: skip
_UNIT_MONTHS = {"MONTH": 1, "QUARTER": 3, "YEAR": 12}


def unit_name(node: Any, default: str = "") -> str:
    """Return DAY for Var(days), 'day', Literal('DAY')."""
    text = node if isinstance(node, str) else (node.name if node is not None else default)
    text = text.strip().upper().rstrip(".")
    return text[:-1] if text.endswith("S") and len(text) > 2 else text


def _interval_of(amount: Any, unit: str) -> Interval:
    if isinstance(amount, str):
        amount = int(amount) if re.fullmatch(r"\s*[+-]?\d+\s*", amount) else decimal(amount)
    if unit in _UNIT_MONTHS and amount == int(amount):
        return Interval(int(amount) * _UNIT_MONTHS[unit], 0)
    micros = Decimal(amount) * _UNIT_US[unit]
    if micros != int(micros):
        raise NotConstant("fraction of a microsecond")
    return Interval(0, int(micros))


def parse_interval(text: str) -> Interval:
    """Parse '7 days', '1 day 2 hours', '-3 months'. Raises NotConstant."""
    if len(text) > MAX_INTERVAL:
        raise NotConstant("interval")
    parts = re.findall(r"\s*([+-]?\d+(?:\.\d+)?)\s*([A-Za-z]+)\s*,?", text)
    if not parts or "".join(a + b for a, b in parts) != re.sub(r"[\s,]", "", text):
        raise NotConstant("interval")
    total = [_interval_of(amount, unit_name(unit)) for amount, unit in parts]
    return Interval(sum(i.months for i in total), sum(i.micros for i in total))


def _interval(node: exp.Expr, binding: Binding) -> Const:
    value = fold(node.this, binding)
    if value.value is UNBOUND or value.value is None:
        return value
    unit = node.args.get("unit")
    if unit is None:
        return Const(parse_interval(str(value.value)))
    if not isinstance(unit, (exp.Var, exp.Literal)):
        raise NotConstant("interval span")
    return Const(_interval_of(value.value, unit_name(unit)))


def _now(node: exp.Expr, binding: Binding) -> Const:
    if node.args.get("sysdate") and binding.dialect == "snowflake":
        return Const(binding.now.replace(tzinfo=None), True)
    return Const(binding.now, True)


def _local_now(node: exp.Expr, binding: Binding) -> Const:
    return Const(_wall_clock(binding.now, _asked_zone(node, binding)), True)


def _today(node: exp.Expr, binding: Binding) -> Const:
    return Const(_wall_clock(binding.now, _asked_zone(node, binding)).date(), True)


def _asked_zone(node: exp.Expr, binding: Binding) -> dt.tzinfo:
    """Return the zone of CURRENT_DATE('America/New_York'); a number is a precision, not a zone."""
    asked = None if node.args.get("this") is None else fold(node.this, binding).value
    if asked is None or isinstance(asked, int):
        return binding.zone
    return _zone(asked)


_UTC = ZoneInfo("UTC")
"""UTC named by a query; the dt.UTC of `Binding.now` means the session's zone."""
_OWN_ZONES = ("trino", "presto", "athena")


def _zone_of(at: dt.datetime, binding: Binding) -> dt.tzinfo:
    """Return the zone in which an instant is truncated or cast: the session's, or its own."""
    own = at.tzinfo if binding.dialect in _OWN_ZONES else None
    return binding.zone if own is None or own is dt.UTC else own


def _date_add(node: exp.Expr, binding: Binding) -> Const:
    return _date_shift(node, binding, 1)


def _date_sub(node: exp.Expr, binding: Binding) -> Const:
    return _date_shift(node, binding, -1)


def _date_shift(node: exp.Expr, binding: Binding, sign: int) -> Const:
    left, right, decided = _operands(node, binding)
    if decided is not None:
        return decided
    amount = right.value
    if not isinstance(amount, Interval):
        amount = _interval_of(amount, unit_name(node.args.get("unit"), "DAY"))
    moved = _shift(_temporal(left.value), amount, sign)
    if isinstance(node, exp.TsOrDsAdd) and binding.dialect in _DATES_FROM_DATE_ADD:
        moved = as_date(moved, binding)
    return Const(moved, left.relative or right.relative)


_DATES_FROM_DATE_ADD = ("spark", "spark2", "databricks", "hive")
"""Dialects in which date_add and add_months of a timestamp return a date."""


def _months_add(node: exp.Expr, binding: Binding) -> Const:
    left, right, decided = _operands(node, binding)
    if decided is not None:
        return decided
    start = _temporal(left.value)
    if binding.dialect in _DATES_FROM_DATE_ADD:
        start = as_date(start, binding)
    if start.day > 27 or type(right.value) is not int:
        raise NotConstant("end of month")  # some engines keep the last day of the month
    return Const(_add_months(start, right.value), left.relative or right.relative)


def truncate(value: dt.date | dt.datetime, unit: str) -> dt.datetime:
    """Return the start of the unit that contains the value; weeks start on Monday. Raises
    KeyError."""
    zone = value.tzinfo if isinstance(value, dt.datetime) else None
    at = value if isinstance(value, dt.datetime) else dt.datetime.combine(value, dt.time())
    day = dt.datetime(at.year, at.month, at.day, tzinfo=zone)
    if unit == "WEEK":
        return day - dt.timedelta(days=day.weekday())
    starts: dict[str, Callable[[], dt.datetime]] = {
        "YEAR": lambda: day.replace(month=1, day=1),
        "QUARTER": lambda: day.replace(month=(at.month - 1) // 3 * 3 + 1, day=1),
        "MONTH": lambda: day.replace(day=1),
        "DAY": lambda: day,
        "HOUR": lambda: at.replace(minute=0, second=0, microsecond=0),
        "MINUTE": lambda: at.replace(second=0, microsecond=0),
        "SECOND": lambda: at.replace(microsecond=0),
    }
    return starts[unit]()


def next_unit(start: dt.datetime, unit: str) -> dt.datetime:
    """Return the start of the following unit."""
    if unit in _UNIT_MONTHS:
        return _add_months(start, _UNIT_MONTHS[unit])
    return start + dt.timedelta(microseconds=_UNIT_US[unit])


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
    at = _temporal(value.value)
    if isinstance(at, dt.datetime) and at.tzinfo is not None:
        return Const(truncate(at.astimezone(_zone_of(at, binding)), unit), value.relative)
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
    if binding.dialect in _OWN_ZONES:
        own = _UTC if zone is dt.UTC else zone
        return Const(value.value.astimezone(own), value.relative)
    raise NotConstant("time zone")


# Casts

_LEAST_DECIMAL = 10
"""Digits of DECIMAL without parameters in every engine; engines differ in its scale."""
_INTS = {"TINYINT": 8, "SMALLINT": 16, "INT": 32, "MEDIUMINT": 32, "BIGINT": 64}


def _cast(node: exp.Expr, binding: Binding) -> Const:
    value = fold(node.this, binding)
    if value.value is None or value.value is UNBOUND:
        return value
    to = node.args["to"]
    return Const(_cast_value(value.value, to.this.value, to.expressions, binding), value.relative)


def _cast_value(value: Any, to: str, parameters: list[exp.Expr], binding: Binding) -> Any:
    if to in ("DATE", "DATE32"):
        return as_date(value, binding)
    if to in ("TIMESTAMP", "DATETIME", "TIMESTAMPNTZ", "DATETIME2"):
        return _as_timestamp(value, binding, False)
    if to in ("TIMESTAMPTZ", "TIMESTAMPLTZ"):
        return _as_timestamp(value, binding, True)
    if to == "INTERVAL" and isinstance(value, str):
        return parse_interval(value)
    if to in ("TEXT", "VARCHAR") and not parameters and isinstance(value, (str, int, dt.date)):
        return _as_text(value)
    if to in _INTS:
        return _as_int(value, _INTS[to])
    if to in ("DOUBLE", "FLOAT") and (_is_number(value) or isinstance(value, str)):
        if to == "FLOAT" and float(value) != int(float(value)):
            raise NotConstant("single precision")
        return float(value)
    if to == "DECIMAL":
        return _as_decimal(value, [int(p.name) for p in parameters] or [_LEAST_DECIMAL])
    if to == "BOOLEAN" and isinstance(value, bool):
        return value
    raise NotConstant(f"cast to {to}")


def as_date(value: Any, binding: Binding) -> dt.date:
    at = _temporal(value)
    if not isinstance(at, dt.datetime):
        return at
    return (at if at.tzinfo is None else at.astimezone(_zone_of(at, binding))).date()


def _as_timestamp(value: Any, binding: Binding, zoned: bool) -> dt.datetime:
    at = _temporal(value)
    if not isinstance(at, dt.datetime):
        at = dt.datetime.combine(at, dt.time())
    if zoned:
        return at if at.tzinfo is not None else at.replace(tzinfo=binding.zone)
    if at.tzinfo is None or isinstance(value, str):
        return at
    return _wall_clock(at, _zone_of(at, binding))


def _wall_clock(at: dt.datetime, zone: dt.tzinfo) -> dt.datetime:
    return at.astimezone(zone).replace(tzinfo=None)


def _as_text(value: Any) -> str:
    if isinstance(value, (bool, dt.datetime)):
        raise NotConstant("text of a boolean or time")
    return value.isoformat() if isinstance(value, dt.date) else str(value)


def _as_int(value: Any, bits: int) -> int:
    if isinstance(value, bool):
        raise NotConstant("boolean as a number")
    whole = int(value.strip()) if isinstance(value, str) else int(value)
    if not isinstance(value, str) and whole != value:
        raise NotConstant("engines round differently")
    if not -(1 << (bits - 1)) <= whole < 1 << (bits - 1):
        raise NotConstant("overflow")
    return whole


def _as_decimal(value: Any, parameters: list[int]) -> Decimal:
    precision, scale = parameters[0], parameters[1] if len(parameters) > 1 else 0
    if isinstance(value, (bool, float)) or not isinstance(value, (int, str, Decimal)):
        raise NotConstant("cast to decimal")
    if precision > MAX_MAGNITUDE or abs(scale) > MAX_MAGNITUDE:
        raise NotConstant("cast to decimal")
    exact = decimal(value) if isinstance(value, str) else Decimal(value)
    unscaled = exact.scaleb(scale)
    if unscaled != unscaled.to_integral_value() or abs(unscaled) >= 10**precision:
        raise NotConstant("decimal is rounded or overflows")
    return exact


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
    at = _as_timestamp(value.value, binding, False)
    if not zoned or at.tzinfo is not None:
        return Const(at, value.relative)
    named = binding.zone if zone is None else _zone(fold(zone, binding).value)
    return Const(at.replace(tzinfo=named), value.relative)


def _from_unix(node: exp.Expr, binding: Binding) -> Const:
    """Evaluate seconds since the epoch, or 10^-scale of them; without a zone only in Snowflake."""
    value, scale = fold(node.this, binding), node.args.get("scale")
    if value.value is None or value.value is UNBOUND:
        return value
    if any(node.args.get(name) for name in ("zone", "hours", "minutes", "format")):
        raise NotConstant("epoch with arguments")
    digits = 0 if scale is None else fold(scale, binding).value
    if not _is_number(value.value) or digits not in (0, 3, 6, 9):
        raise NotConstant("not an epoch time")
    micros = Decimal(value.value) * 10 ** (6 - digits) if digits <= 6 else None
    if micros is None or micros != int(micros):
        raise NotConstant("fraction of a microsecond")
    at = dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=int(micros))
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
    return Const(_add_months(first, 1) - dt.timedelta(days=1), value.relative)


def _iso_timestamp(node: exp.Expr, binding: Binding) -> Const:
    value = fold(node.this, binding)
    at = parse_timestamp(value.value) if isinstance(value.value, str) else None
    if at is None:
        raise NotConstant("not an ISO time")
    return Const(at if at.tzinfo is not None else at.replace(tzinfo=binding.zone), value.relative)


_STRPTIME_SAFE = re.compile(r"(%[YmdHMS]|[-/ :.T])+")


def _parse_with_format(node: exp.Expr, binding: Binding) -> Const:
    value, form = fold(node.this, binding), fold(node.args["format"], binding)
    if not isinstance(value.value, str) or not isinstance(form.value, str):
        raise NotConstant("format")
    plain = form.value.replace("strict", "")  # strict: two digits, which strptime does not require
    if not _STRPTIME_SAFE.fullmatch(plain):
        raise NotConstant("format")
    at = dt.datetime.strptime(value.value, plain)
    if at.strftime(plain) != value.value:
        raise NotConstant("format")
    return Const(at.date() if isinstance(node, exp.StrToDate) else at, value.relative)


def _date_from_parts(node: exp.Expr, binding: Binding) -> Const:
    parts = [fold(node.args[name], binding).value for name in ("year", "month", "day")]
    if any(type(part) is not int for part in parts):
        raise NotConstant("date parts")
    return Const(dt.date(*parts))


# Text and the rest


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
        at = as_date(value.value, binding) if name == "todate" else _temporal(value.value)
        return Const(at, value.relative)
    match = _SHIFT_FUNCTION.fullmatch(name)
    if match and len(arguments) == 2:
        start, amount = fold(arguments[0], binding), fold(arguments[1], binding)
        by = _interval_of(amount.value, unit_name(match.group(2)))
        sign = 1 if match.group(1) == "add" else -1
        return Const(_shift(_temporal(start.value), by, sign), start.relative)
    raise NotConstant(name)


_RULES: dict[type[exp.Expr], Callable[[exp.Expr, Binding], Const]] = {
    exp.Literal: _literal,
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
