"""Column values as numpy sees them: one ordered domain per Iceberg type.

Bounds, literals, samples and partition values of one column all live in the same domain, so that
they compare without conversion. Used by the file table, the pruning oracle and the what-if.

Domains (`Kind`):
  INT    int64: boolean 0/1, int, long, date (days), time (us), timestamp and timestamptz (us, UTC),
         timestamp_ns and timestamptz_ns (ns), decimal of precision <= 18 (unscaled)
  FLOAT  float64: float, double (NaN never appears in bounds; Iceberg counts NaN apart)
  BYTES  numpy S<n>: string (UTF-8), binary, fixed, uuid (16 bytes), decimal of precision > 18
         (17 bytes: order-preserving offset binary, see `encode_wide_decimal`)

numpy pads S values with NUL and strips trailing NULs, so two values that differ only in trailing
NULs compare equal. Comparisons against bounds must therefore treat a value that ends in NUL as a
tie (`pruning` does), which can keep a file too many and never one too few.
"""

from __future__ import annotations

import datetime as dt
import re
import uuid
from decimal import Context, Decimal
from enum import Enum
from typing import Any

Scalar = int | float | bytes
"""A value in its domain."""

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_DECIMAL = re.compile(r"decimal\((\d+),\s*(\d+)\)")
EXACT = Context(prec=80)
"""Python's own context has 28 digits, Iceberg's decimals up to 38."""

_OFFSET_WIDE = 1 << 135  # 17 bytes hold every 38-digit unscaled value with a sign bit


BOUND_BYTES = 64
"""Maximum bytes of a bound: a lower bound is cut, an upper bound cut and incremented."""


class Kind(Enum):
    INT = "int"
    FLOAT = "float"
    BYTES = "bytes"


_INT_TYPES = {
    "boolean", "int", "long", "date", "time", "timestamp", "timestamptz",
    "timestamp_ns", "timestamptz_ns",
}  # fmt: skip


def kind_of(iceberg_type: str) -> Kind | None:
    """Return the domain of an Iceberg primitive type string, None for types without ordered
    bounds."""
    if iceberg_type in _INT_TYPES:
        return Kind.INT
    if iceberg_type in ("float", "double"):
        return Kind.FLOAT
    if iceberg_type in ("string", "binary", "uuid") or iceberg_type.startswith("fixed"):
        return Kind.BYTES
    match = _DECIMAL.fullmatch(iceberg_type)
    if match:
        return Kind.INT if int(match.group(1)) <= 18 else Kind.BYTES
    return None


def decimal_scale(iceberg_type: str) -> int:
    match = _DECIMAL.fullmatch(iceberg_type)
    return int(match.group(2)) if match else 0


def encode_wide_decimal(unscaled: int) -> bytes:
    """Return an unscaled decimal of any sign as 17 bytes whose byte order is the numeric order."""
    return (unscaled + _OFFSET_WIDE).to_bytes(17, "big")


def decode_wide_decimal(value: bytes) -> int:
    return int.from_bytes(value.ljust(17, b"\0"), "big") - _OFFSET_WIDE


def micros(value: dt.datetime) -> int:
    """Return microseconds since the epoch; a naive datetime is taken as UTC."""
    if value.tzinfo is None:
        value = value.replace(tzinfo=dt.UTC)
    delta = value - _EPOCH
    return (delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds


def show(iceberg_type: str, value: Scalar | None) -> str:
    """Return a domain scalar as people write it. Only for output that may show values."""
    if value is None:
        return "null"
    if isinstance(value, bytes):
        return _show_bytes(iceberg_type, value)
    if isinstance(value, float):
        return repr(value)
    if iceberg_type == "boolean":
        return "true" if value else "false"
    if iceberg_type == "date":
        return _safe(lambda: (_EPOCH.date() + dt.timedelta(days=int(value))).isoformat(), value)
    if iceberg_type.startswith("timestamp"):
        us = int(value) // 1000 if iceberg_type.endswith("_ns") else int(value)
        return _safe(
            lambda: (_EPOCH + dt.timedelta(microseconds=us)).strftime("%Y-%m-%dT%H:%M:%SZ"), value
        )
    if _DECIMAL.fullmatch(iceberg_type):
        return str(Decimal(int(value)).scaleb(-decimal_scale(iceberg_type), EXACT))
    return str(value)


def _show_bytes(iceberg_type: str, value: bytes) -> str:
    if iceberg_type == "string":
        return value.decode("utf-8", "replace")
    if iceberg_type == "uuid" and len(value) == 16:
        return str(uuid.UUID(bytes=value))
    if _DECIMAL.fullmatch(iceberg_type):
        scale = decimal_scale(iceberg_type)
        return str(Decimal(decode_wide_decimal(value)).scaleb(-scale, EXACT))
    return "0x" + value.hex()


def _safe(render: Any, value: Scalar) -> str:
    """Return the rendered value; dates beyond Python's year range as their raw number."""
    try:
        return str(render())
    except (OverflowError, ValueError):
        return str(value)


def cut_bound(value: bytes, *, upper: bool) -> bytes | None:
    """Return a string's bound as it is stored; None for an upper one without a short value above
    it."""
    if len(value) <= BOUND_BYTES:
        return value
    if not upper:
        return value[:BOUND_BYTES]
    kept = value[:BOUND_BYTES].rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1]) if kept else None


def partition_identity(values: tuple[Scalar | None, ...]) -> tuple[object, ...]:
    """Return a key that is equal only for equal partitions.

    For floats NaN is equal to itself and -0.0 is not 0.0, as in Iceberg and unlike in Python.
    """
    return tuple(value.hex() if isinstance(value, float) else value for value in values)


def encode_partition_value(value: Scalar | None) -> Any:
    """A partition value as JSON without floats: small ints and null as they are, others tagged.

    RFC 8785 has no integers beyond 2^53 - 1, which an int64 partition value can be.
    """
    if value is None:
        return value
    if isinstance(value, int):
        return value if abs(value) < 2**53 else {"int": str(value)}
    if isinstance(value, float):
        return {"float": value.hex()}
    return {"bytes": value.hex()}


def decode_partition_value(value: Any) -> Scalar | None:
    if isinstance(value, dict):
        if "int" in value:
            return int(value["int"])
        if "float" in value:
            return float.fromhex(value["float"])
        return bytes.fromhex(value["bytes"])
    if value is None or isinstance(value, int):
        return value
    raise ValueError(f"not a partition value: {value!r}")
