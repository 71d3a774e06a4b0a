"""Columns of random tables: their types, their values, and how Arrow holds them."""

from __future__ import annotations

import datetime as dt
import math
import random
import uuid
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pyarrow as pa
from pyiceberg import types as t

Random = random.Random
EPOCH = dt.datetime(1970, 1, 1)
TEXTS = ["", "a", "a b", "ü/=", "x" * 40, "a\u0000b", "zz", "*~0", "\U0001f600", "A"]


def _decimal(random: Random, digits: int, scale: int) -> Decimal:
    return Decimal(random.choice([0, 1, -1, 10**digits - 1, random.randrange(10**digits)])).scaleb(
        -scale
    )


def _double(random: Random) -> float:
    return random.choice([0.0, -0.0, 1.5, -2.25, math.nan, math.inf, -math.inf, 1e300, 0.1])


def _float(random: Random) -> float:
    return random.choice([0.0, -0.0, 1.5, -2.25, math.nan, math.inf, 0.5])


def _moment(random: Random) -> dt.datetime:
    days = random.choice([-400, -1, 0, 365, 20_000])
    return EPOCH + dt.timedelta(days=days, microseconds=random.randrange(86_400_000_000))


VALUES: dict[str, Callable[[Random], Any]] = {
    "boolean": lambda r: r.random() < 0.5,
    "int": lambda r: r.choice([0, 1, 2, -1, 2**31 - 1, -(2**31), r.randrange(100)]),
    "long": lambda r: r.choice([0, 1, 2, -5, 2**63 - 1, -(2**63), r.randrange(100)]),
    "float": _float,
    "double": _double,
    "string": lambda r: r.choice(TEXTS),
    "date": lambda r: dt.date(1970, 1, 1) + dt.timedelta(days=r.choice([-1, 0, 30, 31, 20_000])),
    "time": lambda r: dt.time(r.randrange(24), 0, 0, r.choice([0, 1, 999_999])),
    "timestamp": _moment,
    "timestamptz": lambda r: _moment(r).replace(tzinfo=dt.UTC),
    "decimal(9, 2)": lambda r: _decimal(r, 9, 2),
    "decimal(18, 4)": lambda r: _decimal(r, 18, 4),
    "decimal(30, 6)": lambda r: _decimal(r, 30, 6),
    "binary": lambda r: r.choice([b"", b"\x00", b"\xff\xff", b"ab" * 20]),
    "fixed[4]": lambda r: r.choice([b"abcd", b"\x00" * 4, b"\xff" * 4]),
    "uuid": lambda r: uuid.UUID(int=r.choice([0, 1, 2**128 - 1, 7 << 100])),
}
TYPES: dict[str, t.PrimitiveType] = {
    "boolean": t.BooleanType(), "int": t.IntegerType(), "long": t.LongType(),
    "float": t.FloatType(), "double": t.DoubleType(), "string": t.StringType(),
    "date": t.DateType(), "time": t.TimeType(), "timestamp": t.TimestampType(),
    "timestamptz": t.TimestamptzType(), "decimal(9, 2)": t.DecimalType(9, 2),
    "decimal(18, 4)": t.DecimalType(18, 4), "decimal(30, 6)": t.DecimalType(30, 6),
    "binary": t.BinaryType(), "fixed[4]": t.FixedType(4), "uuid": t.UUIDType(),
}  # fmt: skip
WIDER: dict[str, t.PrimitiveType] = {
    "int": t.LongType(), "float": t.DoubleType(), "decimal(9, 2)": t.DecimalType(20, 2),
    "decimal(18, 4)": t.DecimalType(38, 4),
}  # fmt: skip
_ARROW: dict[str, pa.DataType] = {
    "boolean": pa.bool_(), "int": pa.int32(), "long": pa.int64(), "float": pa.float32(),
    "double": pa.float64(), "string": pa.string(), "date": pa.date32(), "time": pa.time64("us"),
    "timestamp": pa.timestamp("us"), "timestamptz": pa.timestamp("us", "UTC"),
    "binary": pa.binary(), "uuid": pa.uuid(),
}  # fmt: skip


def random_value(random: Random, kind: t.IcebergType) -> Any:
    """A value of a column, nested ones by the ids of their fields."""
    if isinstance(kind, t.StructType):
        return {
            one.field_id: None if random.random() < 0.2 else random_value(random, one.field_type)
            for one in kind.fields
        }
    if isinstance(kind, t.ListType):
        inside = [random_value(random, kind.element_type) for _ in range(random.randrange(3))]
        return [None if random.random() < 0.2 else one for one in inside]
    if isinstance(kind, t.MapType):
        keys = random.sample(["a", "b", "ü"], random.randrange(3))
        return [(key, random_value(random, kind.value_type)) for key in keys]
    if isinstance(kind, t.DecimalType):
        return _decimal(random, min(kind.precision, 9), kind.scale)
    return VALUES[str(kind)](random)


def arrow_type(kind: t.IcebergType, ids: bool) -> pa.DataType:
    if isinstance(kind, t.StructType):
        return pa.struct([arrow_field(one, ids) for one in kind.fields])
    if isinstance(kind, t.ListType):
        return pa.list_(arrow_field(kind.element_field, ids).with_name("element"))
    if isinstance(kind, t.MapType):
        key, value = arrow_field(kind.key_field, ids), arrow_field(kind.value_field, ids)
        return pa.map_(key.with_name("key"), value.with_name("value"))
    if isinstance(kind, t.DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    if isinstance(kind, t.FixedType):
        return pa.binary(len(kind))
    return _ARROW[str(kind)]


def arrow_field(one: t.NestedField, ids: bool) -> pa.Field:
    about = {"PARQUET:field_id": str(one.field_id)} if ids else None
    return pa.field(one.name, arrow_type(one.field_type, ids), not one.required, about)


def arrow_value(kind: t.IcebergType, value: Any) -> Any:
    """The value as `pa.array` takes it."""
    if value is None:
        return None
    if isinstance(kind, t.StructType):
        return {f.name: arrow_value(f.field_type, value.get(f.field_id)) for f in kind.fields}
    if isinstance(kind, t.UUIDType):
        return value.bytes
    return value


def plain(value: Any) -> Any:
    """A value that compares as the same row in every reader: NaN is itself, zeros have signs."""
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, float):
        return "nan" if math.isnan(value) else repr(value)
    if isinstance(value, Decimal):
        return Fraction(value)
    if isinstance(value, uuid.UUID):
        return value.bytes
    if isinstance(value, dt.datetime):
        return int((value.replace(tzinfo=None) - EPOCH) / dt.timedelta(microseconds=1))
    if isinstance(value, dict):
        return tuple((key, plain(one)) for key, one in sorted(value.items()) if one is not None)
    if isinstance(value, list | tuple):
        return tuple(plain(one) for one in value)
    return value


def internal(value: Any) -> Any:
    """A value as pyiceberg's transforms take it."""
    if isinstance(value, dt.datetime):
        return plain(value)
    if isinstance(value, dt.date):
        return (value - dt.date(1970, 1, 1)).days
    if isinstance(value, dt.time):
        return ((value.hour * 60 + value.minute) * 60 + value.second) * 10**6 + value.microsecond
    return value


def in_domain(kind: t.IcebergType, value: Any) -> Any:
    """A value as the cuts of trees hold it."""
    if isinstance(kind, t.DecimalType):
        unscaled = int(value.scaleb(kind.scale))
        return unscaled if kind.precision <= 18 else (unscaled + (1 << 135)).to_bytes(17, "big")
    if isinstance(value, uuid.UUID):
        return value.bytes
    if isinstance(value, str):
        return value.encode()
    return int(value) if isinstance(value, bool) else internal(value)
