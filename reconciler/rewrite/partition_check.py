"""Whether a file's rows are in the partition that its manifest entry says.

Rows that move to another partition spec are given their partitions by pyiceberg's kernels in Rust,
or by Spark; here pyiceberg's transforms in Python, and numpy's calendar, say where values belong. A
transform that keeps the order of values is proven by the smallest and the largest one of a file, a
bucket by a sample.
"""

from __future__ import annotations

import decimal
import math
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

SAMPLE = 64
"""Distinct values of a file whose bucket is computed."""
_CALENDAR = {"year": "Y", "month": "M", "day": "D", "hour": "h"}
_UNITS = {"date": "D", "time": "us", "timestamp": "us", "timestamptz": "us",
          "timestamp_ns": "ns", "timestamptz_ns": "ns"}  # fmt: skip
"""What a value of these types counts since the epoch, or midnight."""
FLOATS = ("float", "double")


@dataclass(frozen=True, slots=True)
class TargetField:
    """A field of the partition that a file's rows moved to."""

    source_id: int
    """Field id of the column that it is computed from."""
    type: str
    """Iceberg's type of this column."""
    transform: str
    """Its transform as the specification writes it: "bucket[16]"."""
    value: Any
    """The partition's value as the specification writes it in JSON."""

    @property
    def sampled(self) -> bool:
        """Whether distinct values are looked at, not the smallest and the largest: DuckDB takes
        zeros of either sign for equal."""
        return self.transform.startswith("bucket") or self.type in FLOATS


def as_number(kind: str, value: str) -> str:
    """Return SQL of a column's value in the form that `misplaced` takes."""
    if kind == "date":
        return f"date_diff('day', DATE '1970-01-01', {value})"
    unit = _UNITS.get(kind)
    return value if unit is None else f"epoch_{unit}({value})"


def misplaced(field: TargetField, values: Iterable[Any]) -> bool:
    """Whether a row with one of these values belongs elsewhere. values: moments as counts since
    the epoch, other types as DuckDB gives them to Python."""
    if field.transform == "void":
        return field.value is not None
    of, stated = _transform(field), _stated(field)
    return any(not _same(None if one is None else of(one), stated) for one in values)


def _transform(field: TargetField) -> Callable[[Any], Any]:
    if field.transform in _CALENDAR:
        unit: Any = _UNITS[field.type]
        to = f"datetime64[{_CALENDAR[field.transform]}]"
        return lambda count: int(np.datetime64(count, unit).astype(to).astype(np.int64))
    if field.transform == "identity":
        return lambda value: value
    from pyiceberg.schema import Schema
    from pyiceberg.transforms import parse_transform

    column = {"id": 1, "name": "v", "required": False, "type": field.type}
    body = {"type": "struct", "schema-id": 0, "fields": [column]}
    source = Schema.model_validate(body).fields[0].field_type
    apply = parse_transform(field.transform).transform(source)
    if field.type == "uuid":
        return lambda value: apply(uuid.UUID(bytes=value))
    return apply


def _stated(field: TargetField) -> Any:
    """Return the partition's value as `_transform` returns one."""
    value, kind = field.value, field.type
    if field.transform == "day":
        kind = "date"
    elif field.transform in _CALENDAR or field.transform.startswith("bucket"):
        return value
    if value is None or kind in ("boolean", "int", "long", "string"):
        return value
    if kind in FLOATS:
        return float(value)
    if kind.startswith("decimal"):
        return decimal.Decimal(value)
    if kind == "uuid":
        return uuid.UUID(value).bytes
    if kind == "time":
        moment = np.datetime64(f"1970-01-01T{value}", "us")
    elif kind in _UNITS:
        unit: Any = _UNITS[kind]
        moment = np.datetime64(value.removeprefix("+").removesuffix("+00:00"), unit)
    else:
        return bytes.fromhex(value)
    return int(moment.astype(np.int64))


def _same(found: Any, stated: Any) -> bool:
    if isinstance(found, float) and isinstance(stated, float):
        if math.isnan(found) or math.isnan(stated):
            return math.isnan(found) and math.isnan(stated)
        return found == stated and math.copysign(1.0, found) == math.copysign(1.0, stated)
    return found == stated and (found is None) is (stated is None)
