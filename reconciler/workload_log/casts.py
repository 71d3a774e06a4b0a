"""Casts of constants as the engines do them, exact or not at all."""

from __future__ import annotations

import datetime as dt
import re
import uuid
from decimal import Decimal
from typing import Any

from sqlglot import exp

from reconciler.workload_log.constants import (
    MAX_MAGNITUDE,
    Binding,
    NotConstant,
    decimal,
    is_number,
    parse_interval,
    temporal,
)

OWN_ZONES = ("trino", "presto", "athena")


def zone_of(at: dt.datetime, binding: Binding) -> dt.tzinfo:
    """Return the zone in which an instant is truncated or cast: the session's, or its own."""
    own = at.tzinfo if binding.dialect in OWN_ZONES else None
    return binding.zone if own is None or own is dt.UTC else own


_LEAST_DECIMAL = 10
"""Digits of DECIMAL without parameters in every engine; engines differ in its scale."""


_INTS = {"TINYINT": 8, "SMALLINT": 16, "INT": 32, "MEDIUMINT": 32, "BIGINT": 64}


def cast_value(value: Any, to: str, parameters: list[exp.Expr], binding: Binding) -> Any:
    if to in ("DATE", "DATE32"):
        return as_date(value, binding)
    if to in ("TIMESTAMP", "DATETIME", "TIMESTAMPNTZ", "DATETIME2"):
        return as_timestamp(value, binding, False)
    if to in ("TIMESTAMPTZ", "TIMESTAMPLTZ"):
        return as_timestamp(value, binding, True)
    if to == "INTERVAL" and isinstance(value, str):
        return parse_interval(value)
    if to in ("TEXT", "VARCHAR") and not parameters and isinstance(value, (str, int, dt.date)):
        return _as_text(value)
    if to in _INTS:
        return _as_int(value, _INTS[to])
    if to in ("DOUBLE", "FLOAT") and (is_number(value) or isinstance(value, str)):
        if to == "FLOAT" and float(value) != int(float(value)):
            raise NotConstant("single precision")
        return float(value)
    if to == "DECIMAL":
        return _as_decimal(value, [int(p.name) for p in parameters] or [_LEAST_DECIMAL])
    if to == "BOOLEAN" and isinstance(value, bool):
        return value
    if to in _BINARY and isinstance(value, str) and not parameters:
        return _as_bytes(value, binding.dialect)
    if to == "UUID" and isinstance(value, str):
        return uuid.UUID(value)
    raise NotConstant(f"cast to {to}")


_BINARY = ("BINARY", "VARBINARY", "BLOB")
_UTF8_CASTS = (*OWN_ZONES, "spark", "spark2", "databricks")
"""Dialects in which a text cast to bytes is its UTF-8."""
_BLOB_TEXT = re.compile(r"(?>(?:\\x[0-9a-fA-F]{2}|[^\\\x80-\U0010ffff])*)")


def _as_bytes(text: str, dialect: str) -> bytes:
    """Return the bytes of a text; in DuckDB one of ASCII characters and bytes as `\\x0f`."""
    if dialect in _UTF8_CASTS:
        return text.encode()
    if dialect != "duckdb" or not _BLOB_TEXT.fullmatch(text):
        raise NotConstant("text as bytes")
    return text.encode("ascii").decode("unicode_escape").encode("latin-1")


def as_date(value: Any, binding: Binding) -> dt.date:
    at = temporal(value)
    if not isinstance(at, dt.datetime):
        return at
    return (at if at.tzinfo is None else at.astimezone(zone_of(at, binding))).date()


def as_timestamp(value: Any, binding: Binding, zoned: bool) -> dt.datetime:
    at = temporal(value)
    if not isinstance(at, dt.datetime):
        at = dt.datetime.combine(at, dt.time())
    if zoned:
        return at if at.tzinfo is not None else at.replace(tzinfo=binding.zone)
    if at.tzinfo is None or isinstance(value, str):
        return at
    return wall_clock(at, zone_of(at, binding))


def wall_clock(at: dt.datetime, zone: dt.tzinfo) -> dt.datetime:
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
