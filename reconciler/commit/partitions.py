"""Partition values as manifests store them: bounds of a manifest's partitions, and their names."""

from __future__ import annotations

import datetime as dt
import json
import math
import re
import struct
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from functools import cache
from typing import Any
from urllib.parse import quote_plus

from reconciler.commit import fields
from reconciler.commit.fields import PartitionField
from reconciler.table.times import DAY_US
from reconciler.table.values import EXACT

TIMES = ("timestamp", "timestamptz")
UTC = "+00:00"
_FRACTION = re.compile(r"(\.\d*[1-9])0+")
EPOCH = dt.date(1970, 1, 1)
CYCLE = 146_097
"""Days of 400 years."""
TURN = (dt.date(2000, 1, 1) - EPOCH).days
"""Where a cycle begins, in days since EPOCH."""


class Summary:
    """What a manifest list says about the partitions of one manifest."""

    def __init__(self, partition: Sequence[PartitionField]) -> None:
        self._partition = partition
        self._seen: dict[tuple[str, ...], Mapping[int, Any]] = {}

    def update(self, values: Mapping[int, Any]) -> None:
        """Count the partition of one file, by field id."""
        self._seen[key(values)] = values

    def fields(self) -> list[dict[int, Any]]:
        """Return the summary of each field of the spec, by the field ids of a manifest list."""
        return [
            _of_field(one.type, [values.get(one.field_id) for values in self._seen.values()])
            for one in self._partition
        ]


def _of_field(kind: str, values: Sequence[Any]) -> dict[int, Any]:
    known = [value for value in values if value is not None]
    numbers = [value for value in known if not (isinstance(value, float) and math.isnan(value))]
    order = _order(kind)
    lower = min(numbers, key=order) if numbers else None
    upper = max(numbers, key=order) if numbers else None
    return {
        fields.P_NULL: len(known) < len(values),
        fields.P_NAN: len(numbers) < len(known),
        fields.P_LOWER: None if lower is None else bound(kind, lower),
        fields.P_UPPER: None if upper is None else bound(kind, upper),
    }


def _order(kind: str) -> Callable[[Any], Any]:
    """Return the key by which Iceberg's Java library orders values of a type."""
    if kind.startswith("decimal"):
        return lambda value: int.from_bytes(value, "big", signed=True)
    if kind == "uuid":
        return lambda value: struct.unpack(">qq", value)
    if kind in ("float", "double"):
        return lambda value: (value, math.copysign(1.0, value))
    return lambda value: value


_NUMBERS = {"boolean": "<?", "int": "<i", "date": "<i", "float": "<f", "double": "<d"}


def bound(kind: str, value: Any) -> bytes:
    """Return a value as bounds store it ("Binary single-value serialization")."""
    if kind == "string":
        return str(value).encode()
    if kind.startswith("decimal"):
        return minimal(int.from_bytes(value, "big", signed=True))
    if kind in ("uuid", "binary") or kind.startswith("fixed"):
        return bytes(value)
    return struct.pack(_NUMBERS.get(kind, "<q"), value)


def minimal(value: int) -> bytes:
    """Return the least bytes of a number's two's complement, the highest first."""
    return value.to_bytes((value + (value < 0)).bit_length() // 8 + 1, "big", signed=True)


def key(values: Mapping[int, Any], partition: Sequence[PartitionField] = ()) -> tuple[str, ...]:
    """Return what tells partitions of one spec apart; NaN is one value, -0.0 another than 0.0.

    partition: the fields of the spec. Manifests that were written before and after a decimal became
    wider have its values in different numbers of bytes; within one manifest it is not needed.
    """
    decimals = {one.field_id for one in partition if one.type.startswith("decimal")}
    return tuple(
        repr(int.from_bytes(value, "big", signed=True) if value and one in decimals else value)
        for one, value in values.items()
    )


def text_of(partition: Sequence[PartitionField], values: Iterable[Any]) -> str:
    """Return a partition's values by field id in one text: equal for equal partitions of a spec,
    and only for them. values: in the order of the spec, as `to_json` returns them."""
    ids = (str(one.field_id) for one in partition)
    return json.dumps(dict(zip(ids, values, strict=True)))


def path(partition: Sequence[PartitionField], values: Mapping[int, Any]) -> str:
    """Return the name of a partition as summaries and directories have it."""
    return "/".join(
        f"{_escaped(one.name)}={_escaped(_text(one, values.get(one.field_id)))}"
        for one in partition
    )


def _escaped(text: str) -> str:
    """Return a text as Java's `URLEncoder` writes it, which keeps "*" and not "~"."""
    return quote_plus(text, safe="*").replace("~", "%7E")


def _text(one: PartitionField, value: Any) -> str:
    from pyiceberg.transforms import parse_transform

    if value is None or one.transform == "void":
        return "null"
    if one.type == "date":
        return _day(value)
    if one.transform == "hour":
        days, hour = divmod(value, 24)
        return f"{_day(days)}-{hour:02d}"
    if one.type in TIMES:  # Java writes no zeros at the end of a fraction
        return _FRACTION.sub(r"\1", str(to_json(one.type, value)))
    if one.type == "time":
        return _time(value)
    if one.type in ("float", "double"):
        return _number(value, one.type)
    held = _python(one.type, value)
    return str(parse_transform(one.transform).to_human_string(_type(one.type), held))


def _time(micros: int) -> str:
    """Return a time of day as Java's `LocalTime.toString` does: of the fewest parts that hold it, a
    fraction of three or six digits."""
    at = (dt.datetime.min + dt.timedelta(microseconds=micros)).time()
    if at.microsecond:
        return at.isoformat("microseconds" if at.microsecond % 1000 else "milliseconds")
    return at.isoformat("seconds" if at.second else "minutes")


def _number(value: float, kind: str) -> str:
    """Return a number as Java's `Float.toString` and `Double.toString` do: of its shortest digits,
    with an exponent below 10^-3 and from 10^7 on."""
    import numpy as np

    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else f"{'-' * (value < 0)}Infinity"
    shortest = Decimal(str(np.float32(value)) if kind == "float" else repr(value))
    if value and not 1e-3 <= abs(value) < 1e7:
        mantissa, _, exponent = f"{shortest.normalize():E}".partition("E")
        return f"{mantissa}{'' if '.' in mantissa else '.0'}E{int(exponent)}"
    text = f"{shortest.normalize():f}"
    return text if "." in text else f"{text}.0"


def _day(days: int) -> str:
    """Return a day since 1970-01-01 as `TransformUtil.humanDay` of Apache Iceberg 1.12 does. The
    calendar repeats after 400 years; Python's own ends with the year 9999."""
    cycles, rest = divmod(days - TURN, CYCLE)
    found = EPOCH + dt.timedelta(days=TURN + rest)
    return f"{found.year + 400 * cycles:04d}-{found:%m-%d}"


def _days(text: str) -> int:
    year, month, day = text.rsplit("-", 2)
    cycles, rest = divmod(int(year) - 2000, 400)
    return CYCLE * cycles + (dt.date(2000 + rest, int(month), int(day)) - EPOCH).days


def from_json(kind: str, value: Any) -> Any:
    """Return a partition value as Avro stores it. value: as the specification writes single values
    in JSON."""
    from pyiceberg import conversions

    if kind == "date":
        return _days(value)
    if kind in TIMES:
        day, _, clock = value.partition("T")
        at = dt.datetime.combine(EPOCH, dt.time.fromisoformat(clock.removesuffix(UTC)))
        start = dt.datetime.combine(EPOCH, dt.time())
        return _days(day) * DAY_US + (at - start) // dt.timedelta(microseconds=1)
    held = conversions.from_json(_type(kind), value)
    return from_bound(kind, conversions.to_bytes(_type(kind), held))


def to_json(kind: str, value: Any) -> Any:
    """Return a partition value of Avro as the specification writes single values in JSON."""
    from pyiceberg import conversions

    if kind == "date":
        return _day(value)
    if kind in TIMES:
        days, micros = divmod(value, DAY_US)
        clock = (dt.datetime.min + dt.timedelta(microseconds=micros)).time()
        return f"{_day(days)}T{clock.isoformat()}{UTC if kind == 'timestamptz' else ''}"
    return conversions.to_json(_type(kind), _python(kind, value))


def from_bound(kind: str, data: bytes) -> Any:
    """Return a value of the form of bounds as Avro stores it."""
    if kind == "string":
        return data.decode()
    if kind.startswith("decimal"):
        size = fields.decimal_bytes(int(kind[len("decimal(") :].split(",")[0]))
        return int.from_bytes(data, "big", signed=True).to_bytes(size, "big", signed=True)
    if kind in ("uuid", "binary") or kind.startswith("fixed"):
        return data
    return struct.unpack(_NUMBERS.get(kind, "<q"), data)[0]


@cache
def _type(kind: str) -> Any:
    from pydantic import TypeAdapter
    from pyiceberg.types import IcebergType

    return TypeAdapter(IcebergType).validate_python(kind)


def _python(kind: str, value: Any) -> Any:
    """Return a value as pyiceberg takes it."""
    decimal = re.fullmatch(r"decimal\((\d+),\s*(\d+)\)", kind)
    if decimal:
        return Decimal(int.from_bytes(value, "big", signed=True)).scaleb(-int(decimal[2]), EXACT)
    return uuid.UUID(bytes=bytes(value)) if kind == "uuid" else value
