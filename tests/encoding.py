"""Python values as scalars of their column's domain: the reference for bounds read from files."""

from __future__ import annotations

import datetime as dt
import math
import uuid
from decimal import Decimal
from typing import Any

from reconciler.table.values import (
    EXACT,
    Kind,
    Scalar,
    decimal_scale,
    encode_wide_decimal,
    kind_of,
    micros,
)

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def encode(iceberg_type: str, value: Any) -> Scalar:
    """Return a Python value of an Iceberg type as its domain scalar.

    Raises ValueError if the value does not belong to the type (an inexact decimal, a string for a
    number): such a predicate cannot be judged and must not be guessed.
    """
    kind = kind_of(iceberg_type)
    if kind is Kind.FLOAT:
        return float(value)
    if iceberg_type.startswith("decimal"):
        scaled = Decimal(str(value)).scaleb(decimal_scale(iceberg_type), EXACT)
        if scaled != scaled.to_integral_value():
            raise ValueError(f"{value!r} is not exact in {iceberg_type}")
        unscaled = int(scaled)
        return unscaled if kind is Kind.INT else encode_wide_decimal(unscaled)
    if kind is Kind.INT:
        return _encode_int(iceberg_type, value)
    if kind is Kind.BYTES:
        return _encode_bytes(value)
    raise ValueError(f"no ordered domain for {iceberg_type}")


def _encode_int(iceberg_type: str, value: Any) -> int:
    if isinstance(value, dt.datetime):
        if iceberg_type == "date":
            return (value.date() - EPOCH.date()).days
        scale = 1000 if iceberg_type.endswith("_ns") else 1
        return micros(value) * scale
    if isinstance(value, dt.date):
        days = (value - EPOCH.date()).days
        if iceberg_type == "date":
            return days
        return days * 86_400_000_000 * (1000 if iceberg_type.endswith("_ns") else 1)
    if isinstance(value, dt.time):
        return (
            (value.hour * 60 + value.minute) * 60 + value.second
        ) * 1_000_000 + value.microsecond
    if isinstance(value, float) and not value.is_integer():
        raise ValueError(f"{value!r} is not exact in {iceberg_type}")
    if isinstance(value, (bool, int, float, Decimal)) and math.isfinite(value):
        if value != int(value):
            raise ValueError(f"{value!r} is not exact in {iceberg_type}")
        return int(value)
    raise ValueError(f"{value!r} is not a value of {iceberg_type}")


def _encode_bytes(value: Any) -> bytes:
    if isinstance(value, str):
        return value.encode("utf-8")
    if isinstance(value, uuid.UUID):
        return value.bytes
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    raise ValueError(f"{value!r} is not a string or binary value")
