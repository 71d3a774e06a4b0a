"""Values of constants in SQL: numbers, intervals, times, and the session that binds them."""

from __future__ import annotations

import calendar
import datetime as dt
import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Context, Decimal, Inexact
from typing import Any, TypeVar
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from reconciler.table.times import DAY_US

MAX_INTERVAL = 200
"""Characters of an interval's text."""


MAX_MAGNITUDE = 400
"""Decimal digits of a number that is folded: beyond every column type and every double. A text of
few characters, 1e999999999, may be the spelling of a number that fills the memory."""


_EXACT = Context(prec=80, traps=[Inexact])


_Time = TypeVar("_Time", dt.date, dt.datetime)


class NotConstant(Exception):
    """The expression has no value that is the same for every row and every engine."""


@dataclass(frozen=True, slots=True)
class SqlInterval:
    """A SQL interval."""

    months: int
    """Calendar months."""
    micros: int
    """Exact microseconds, apart from the months."""


class _Unbound:
    def __repr__(self) -> str:
        return "?"


UNBOUND = _Unbound()
"""The value of a prepared statement's parameter that the log does not hold."""


@dataclass(frozen=True, slots=True)
class Const:
    """The value of a constant expression."""

    value: Any
    """None (NULL), bool, int, Decimal, float, str, bytes, date, time, datetime, UUID, SqlInterval
    or UNBOUND. A datetime without tzinfo is a TIMESTAMP without zone."""
    relative: bool = False
    """Whether the value depends on the time of the query."""


NULL = Const(None)

_NO_VALUE = re.compile(
    r"\?+|\*{3,}(?:\(redacted\)|\w{1,20}\*{3,})?|[<\[](?:redacted|masked|hidden)[>\]]",
    re.IGNORECASE,
)
_MASKS = "?*[<"
"""The first characters of what it matches."""


def text_literal(text: str) -> Const:
    """Return a literal of text; UNBOUND for what systems put in the place of a value."""
    masked = text[:1] in _MASKS and _NO_VALUE.fullmatch(text) is not None
    return Const(UNBOUND if masked else text)


@dataclass(frozen=True, slots=True)
class Binding:
    """The values that differ between two queries of one template."""

    event_ms: int
    """Time of the query in epoch milliseconds."""
    zone: dt.tzinfo
    """Time zone of its session."""
    dialect: str
    """sqlglot's name of the dialect."""
    literals: dict[str, Const]
    """Values of the lifted literals, by their sentinel text."""

    @property
    def now(self) -> dt.datetime:
        return dt.datetime.fromtimestamp(0, dt.UTC) + dt.timedelta(milliseconds=self.event_ms)


def number(text: str) -> Const:
    """Return a numeric literal: exact, except that an exponent makes it a double in every
    engine."""
    if text.isdecimal():
        return Const(int(text))
    if "e" in text.lower():
        return Const(float(text))
    return Const(decimal(text))


def hex_bytes(text: str) -> bytes:
    """Return the bytes of pairs of hexadecimal digits. Raises NotConstant: engines differ about
    other text."""
    if not re.fullmatch(r"(?:[0-9a-fA-F]{2})*", text):
        raise NotConstant("hexadecimal digits")
    return bytes.fromhex(text)


def decimal(text: str) -> Decimal:
    """A decimal number. Raises NotConstant where it is too large to compute with."""
    if len(text) > MAX_MAGNITUDE:
        raise NotConstant("too many digits")
    value = Decimal(text)
    if value.is_finite() and abs(value.adjusted()) > MAX_MAGNITUDE:
        raise NotConstant("too large")
    return value


def is_number(value: Any) -> bool:
    return isinstance(value, (int, Decimal, float)) and not isinstance(value, bool)


def arithmetic(left: Any, right: Any, op: str) -> Any:
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


def temporal(value: Any) -> dt.date | dt.datetime:
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
        return value if zone is None else value.replace(tzinfo=zone_named(zone))
    except ValueError:
        return None


_STRPTIME_SAFE = re.compile(r"(%[YmdHMS]|[-/ :.T])+")


def parse_by_format(text: str, form: str) -> dt.datetime:
    """Parse a time by a strptime format. Raises NotConstant if engines read it differently."""
    plain = form.replace("strict", "")  # strict: two digits, which strptime does not require
    if not _STRPTIME_SAFE.fullmatch(plain):
        raise NotConstant("format")
    at = dt.datetime.strptime(text, plain)
    if at.strftime(plain) != text:
        raise NotConstant("format")
    return at


def epoch_time(value: Any, digits: int) -> dt.datetime:
    """Return the time of a number of 10^-digits seconds since the epoch."""
    micros = Decimal(value) * 10 ** (6 - digits) if digits <= 6 else None
    if micros is None or micros != int(micros):
        raise NotConstant("fraction of a microsecond")
    return dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=int(micros))


def zone_named(name: str) -> dt.tzinfo:
    if name in ("Z", "UTC", "GMT"):
        return UTC
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
        raise ValueError(f'"{name}" is not a time zone') from error


def shift(value: dt.date | dt.datetime, by: SqlInterval, sign: int) -> dt.date | dt.datetime:
    moved = add_months(value, sign * by.months) if by.months else value
    if isinstance(moved, dt.datetime):
        exact = moved if moved.tzinfo is None else moved.astimezone(dt.UTC)
        exact += dt.timedelta(microseconds=sign * by.micros)
        return exact if moved.tzinfo is None else exact.astimezone(moved.tzinfo)
    if by.micros % DAY_US == 0:
        return moved + dt.timedelta(days=sign * (by.micros // DAY_US))
    midnight = dt.datetime.combine(moved, dt.time())
    return midnight + dt.timedelta(microseconds=sign * by.micros)


def add_months(value: _Time, months: int) -> _Time:
    """Add calendar months, the day clamped to the month's end as in SQL."""
    total = value.year * 12 + value.month - 1 + months
    year, month = divmod(total, 12)
    day = min(value.day, calendar.monthrange(year, month + 1)[1])
    return value.replace(year=year, month=month + 1, day=day)


_UNIT_US = {
    "MICROSECOND": 1, "MILLISECOND": 1000, "SECOND": 1_000_000, "MINUTE": 60_000_000,
    "HOUR": 3_600_000_000, "DAY": DAY_US, "WEEK": 7 * DAY_US,
}  # fmt: skip


_UNIT_MONTHS = {"MONTH": 1, "QUARTER": 3, "YEAR": 12}


def unit_name(node: Any, default: str = "") -> str:
    """Return DAY for Var(days), 'day', Literal('DAY')."""
    text = node if isinstance(node, str) else (node.name if node is not None else default)
    text = text.strip().upper().rstrip(".")
    return text[:-1] if text.endswith("S") and len(text) > 2 else text


def interval_of(amount: Any, unit: str) -> SqlInterval:
    if isinstance(amount, str):
        amount = int(amount) if re.fullmatch(r"\s*[+-]?\d+\s*", amount) else decimal(amount)
    if unit in _UNIT_MONTHS and amount == int(amount):
        return SqlInterval(int(amount) * _UNIT_MONTHS[unit], 0)
    micros = Decimal(amount) * _UNIT_US[unit]
    if micros != int(micros):
        raise NotConstant("fraction of a microsecond")
    return SqlInterval(0, int(micros))


def parse_interval(text: str) -> SqlInterval:
    """Parse '7 days', '1 day 2 hours', '-3 months'. Raises NotConstant."""
    if len(text) > MAX_INTERVAL:
        raise NotConstant("interval")
    parts = re.findall(r"\s*([+-]?\d+(?:\.\d+)?)\s*([A-Za-z]+)\s*,?", text)
    if not parts or "".join(a + b for a, b in parts) != re.sub(r"[\s,]", "", text):
        raise NotConstant("interval")
    total = [interval_of(amount, unit_name(unit)) for amount, unit in parts]
    return SqlInterval(sum(i.months for i in total), sum(i.micros for i in total))


UTC = ZoneInfo("UTC")
"""UTC named by a query; the dt.UTC of `Binding.now` means the session's zone."""


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
        return add_months(start, _UNIT_MONTHS[unit])
    return start + dt.timedelta(microseconds=_UNIT_US[unit])
