"""Partition values of rows that get another partition, and how a manifest entry writes them.

The transforms are those of Iceberg's Rust library (pyiceberg-core), on whole arrays.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from urllib.parse import quote

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from reconciler.rewrite.equal_rows import numbers_of_rows
from reconciler.rewrite.task import Field, Unfit

Int64 = npt.NDArray[np.int64]

IDENTITY, VOID = "identity", "void"
EPOCH = dt.date(1970, 1, 1)
HOUR_NS = 3_600 * 10**9


class Partitions:
    """The partition of each row.

    values: of the fields' sources, in order of arrival.
    """

    def __init__(self, fields: Sequence[Field], values: Sequence[pa.ChunkedArray]) -> None:
        self._fields = fields
        self._values = [_transformed(one, own) for one, own in zip(fields, values, strict=True)]
        numbers = numbers_of_rows([own.chunks for own in self._values], len(values[0]))
        _, self._first, self.of_row = np.unique(numbers, return_index=True, return_inverse=True)
        """int64[partitions], the first row of each; int64[rows], the number of each row's
        partition."""

    @property
    def rows(self) -> Int64:
        """Return the number of rows of each partition."""
        return np.bincount(self.of_row).astype(np.int64)

    def entry(self, number: int) -> tuple[Any, ...]:
        """Return the values of a partition, as manifests write them in JSON."""
        at = int(self._first[number])
        pairs = zip(self._fields, self._values, strict=True)
        with _dated():
            return tuple(json_value(own[at].as_py(), field.type) for field, own in pairs)

    def directory(self, number: int) -> str:
        """Return the directory of a partition, as Iceberg's writers name it."""
        parts = []
        for field, value in zip(self._fields, self.entry(number), strict=True):
            with _dated():
                text = _text(field.transform, value)
            parts.append(f"{quote(field.name, safe='')}={quote(text, safe='')}")
        return "/".join(parts)


@contextlib.contextmanager
def _dated() -> Iterator[None]:
    """Raise Unfit where Python has no such date."""
    try:
        yield
    except (OverflowError, ValueError) as error:
        raise Unfit("a partition of a date that Python does not have") from error


def _transformed(field: Field, values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the field's value of each row. Raises Unfit where the library has none."""
    try:
        found = transformed(field.transform, values)
    except ValueError as error:
        raise Unfit(f"the transform {field.transform} of {field.type}") from error
    if field.transform != VOID and found.null_count > values.null_count:
        raise Unfit(f"the transform {field.transform} of values beyond the library's range")
    return found


def transformed(transform: str, values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the transform of each value; NULL stays NULL."""
    from pyiceberg_core import transform as kernels

    name, _, argument = transform.partition("[")
    if name == IDENTITY:
        return values
    if name == VOID:
        return pa.chunked_array([pa.nulls(len(values), pa.int32())])
    kernel = getattr(kernels, name)
    if name == "hour" and _in_nanoseconds(values.type):
        kernel = _hours  # the library has none of nanoseconds
    more = (int(argument.rstrip("]")),) if argument else ()
    found = [_applied(lambda one: kernel(one, *more), chunk) for chunk in values.chunks]
    return pa.chunked_array(found) if found else pa.chunked_array([pa.nulls(0, pa.int32())])


def _in_nanoseconds(kind: pa.DataType) -> bool:
    plain = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(pa.types.is_timestamp(plain) and plain.unit == "ns")


def _hours(values: pa.Array) -> pa.Array:
    """Return the hours since 1970 of times in nanoseconds, rounded down."""
    times = values.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    null = values.is_null().to_numpy(zero_copy_only=False)
    return pa.array((times // HOUR_NS).astype(np.int32), mask=null)


def _applied(kernel: Callable[[pa.Array], pa.Array], values: pa.Array) -> pa.Array:
    """Return what the kernel makes of values, of a dictionary once for each of them."""
    if not pa.types.is_dictionary(values.type):
        return kernel(values)
    return kernel(values.dictionary).take(values.indices)


def json_value(value: Any, kind: str) -> Any:
    """Return a value as the specification writes it ("JSON single-value serialization"). kind: the
    type of the column that it comes from."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, bytes):
        return str(uuid.UUID(bytes=value)) if kind == "uuid" else value.hex().upper()
    if isinstance(value, dt.datetime):
        text = value.strftime("%Y-%m-%dT%H:%M:%S.%f").rjust(26, "0")
        return f"{text}+00:00" if value.tzinfo else text
    return value.isoformat() if isinstance(value, dt.date | dt.time) else str(value)


def _text(transform: str, value: Any) -> str:
    """Return a value as a path shows it."""
    if value is None:
        return "null"
    if transform == "year":
        return f"{1970 + value:04d}"
    if transform == "month":
        return f"{1970 + value // 12:04d}-{value % 12 + 1:02d}"
    if transform == "hour":
        return f"{(EPOCH + dt.timedelta(days=value // 24)).isoformat()}-{value % 24:02d}"
    return ("true" if value else "false") if isinstance(value, bool) else str(value)
