"""Reads the values of a line of a SQL log: its time, its session, its counts."""

from __future__ import annotations

import datetime as dt
import math
import re
from typing import Any

from reconciler.workload_log.constants import parse_timestamp

OWN_AGENT = "layoutctl"


def event_time(value: Any, zone: dt.tzinfo) -> tuple[int | None, bool]:
    """Return the epoch milliseconds of an ISO 8601 text or of a number, and whether `zone` was
    taken because a text has none."""
    if not isinstance(value, str):
        number = number_of(value)
        return (None if number is None else epoch_ms(number)), False
    text = value.strip()
    if re.fullmatch(r"\d{10,19}(\.\d{1,9})?", text):
        return epoch_ms(float(text)), False
    try:
        at = dt.datetime.fromisoformat(text)
    except ValueError:
        named = parse_timestamp(text)  # "2026-03-01 10:00:00 UTC", as engines print it
        if named is None:
            return None, False
        at = named
    zoneless = at.tzinfo is None
    at = at.replace(tzinfo=zone) if zoneless else at
    try:
        since = at - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
        return int(since / dt.timedelta(milliseconds=1)), zoneless
    except OverflowError:
        return None, False


def epoch_ms(number: float) -> int:
    """Return milliseconds of a time in seconds, milliseconds, microseconds or nanoseconds since the
    epoch, which its size tells."""
    for limit, factor in ((1e11, 1e3), (1e14, 1.0), (1e17, 1e-3)):
        if abs(number) < limit:
            return int(round(number * factor, 3))
    return int(round(number * 1e-6, 3))  # a float of nanoseconds is exact to 128


def number_of(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None


def count_of(value: Any) -> int | None:
    number = number_of(value)
    return None if number is None or not 0 <= number < 1 << 62 else int(number)


def first_count(body: dict[str, Any], names: tuple[str, ...]) -> int | None:
    for name in names:
        count = count_of(body[name]) if name in body else None
        if count is not None:
            return count
    return None


def is_own(body: dict[str, Any]) -> bool:
    """Whether it is our own statement, if the engine logs the client's name."""
    for name in _AGENT_FIELDS:
        if name in body and str(body[name]).lower().startswith(OWN_AGENT):
            return True
    return False


_AGENT_FIELDS = ("application", "applicationName", "client", "clientInfo", "source", "userAgent")
_SESSION_FIELDS = ("sessionId", "session_id", "session", "connectionId", "user", "userName")


def names_of(body: dict[str, Any]) -> tuple[str, str]:
    """Return the catalog and the schema that complete names, "" where the line has none."""
    values = (body.get("catalog"), body.get("schema"))
    catalog, schema = (value if isinstance(value, str) else "" for value in values)
    return catalog, schema


def session_name_of(body: dict[str, Any]) -> str:
    for name in _SESSION_FIELDS:
        value = body.get(name)
        if isinstance(value, (str, int)) and value != "":
            return str(value)[:200]
    return ""
