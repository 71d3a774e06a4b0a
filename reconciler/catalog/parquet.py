"""Maps Parquet footers and column chunks to Iceberg: leaf columns by field id, their domains.

Files that another system wrote without field ids (and that were registered afterwards) are matched
by column name, as Iceberg's name mapping does.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from reconciler.catalog import bounds
from reconciler.table.filetable import UNKNOWN
from reconciler.table.parquet_schema import (
    TRAILER_BYTES,
    NotParquetError,
    ending,
    require_plain,
)
from reconciler.table.schema import Field, Schema
from reconciler.table.times import DAY_US
from reconciler.table.values import (
    BOUND_BYTES,
    EXACT,
    Kind,
    Scalar,
    cut_bound,
    decimal_scale,
    encode_wide_decimal,
)

if TYPE_CHECKING:
    from pyiceberg.io import FileIO

Array = npt.NDArray[Any]

FIELD_ID = b"PARQUET:field_id"
_NANOS = {"milliseconds": 1_000_000, "microseconds": 1_000, "nanoseconds": 1}


@dataclass(frozen=True, slots=True)
class Leaf:
    """A leaf column of a Parquet file."""

    index: int
    """Its number among the file's columns."""
    path: tuple[str, ...]
    """Names of the struct members down to it."""
    repeated: bool
    """Whether it is in a list or a map."""


def open_parquet(io: FileIO, path: str) -> pq.ParquetFile:
    """Return the file with its footer read. Raises TooLargeError, ArrowInvalid."""
    return with_footer(io.new_input(path).open(), f'the footer of the data file "{path}"')


def with_footer(stream: Any, subject: str, **options: Any) -> pq.ParquetFile:
    """Return the file of a stream with its footer read, mostly by one request.

    subject: what messages call the footer. options: of pq.ParquetFile. Raises TooLargeError, and
    ArrowInvalid for what is no Parquet file or has encrypted columns.
    """

    def tail(wanted: int) -> bytes:
        stream.seek(size - wanted)
        return bytes(stream.read(wanted))

    size = stream.seek(0, os.SEEK_END)
    footer = footer_in(tail, size, subject)
    stream.seek(0)
    return pq.ParquetFile(stream, metadata=footer, **options)


def footer_in(tail: Callable[[int], bytes], size: int, subject: str) -> Any:
    """Return pyarrow's FileMetaData of a file of `size` bytes. tail: returns so many bytes from its
    end. subject, errors: as `with_footer` has them."""
    with _as_arrow():
        end = ending(tail, size, lambda footer: bounds.require(footer, subject))
        footer = pq.read_metadata(pa.BufferReader(end))
        require_plain(end, footer.serialized_size)
    return footer


def require_plain_file(path: Path, footer: Any) -> None:
    """Raise ArrowInvalid if columns of a local file are encrypted. footer: its own."""
    with path.open("rb") as file:
        file.seek(-TRAILER_BYTES, os.SEEK_END)
        with _as_arrow():
            require_plain(file.read(), footer.serialized_size)


@contextlib.contextmanager
def _as_arrow() -> Iterator[None]:
    """Raise what is no Parquet file as Arrow does."""
    try:
        yield
    except NotParquetError as error:
        raise pa.ArrowInvalid(str(error)) from error


def leaves_by_id(schema: pa.Schema, table: Schema) -> dict[int, Leaf]:
    """Return the leaf columns of a file by Iceberg field id.

    An imported file has no ids: its names are looked up in the table's name mapping, which has the
    former names of renamed columns; without a mapping, among the current names.
    """
    found = _leaves(schema)
    numbered = _numbered(found)
    if numbered:
        return numbered
    mapped = dict(table.name_mapping)
    named = {field.name: field.field_id for field in table.fields}
    ids = [mapped.get(leaf.path) if mapped else named.get(".".join(leaf.path)) for _, leaf in found]
    return {
        field_id: leaf
        for field_id, (_, leaf) in zip(ids, found, strict=True)
        if field_id is not None
    }


def leaves_with_ids(schema: pa.Schema) -> dict[int, Leaf]:
    """Return the leaf columns of a file by the field ids that it holds itself."""
    return _numbered(_leaves(schema))


def _leaves(schema: pa.Schema) -> list[tuple[int | None, Leaf]]:
    found: list[tuple[int | None, Leaf]] = []
    for field in schema:
        _walk(field, (), False, found)
    return found


def _numbered(leaves: list[tuple[int | None, Leaf]]) -> dict[int, Leaf]:
    return {field_id: leaf for field_id, leaf in leaves if field_id is not None}


def _walk(
    field: pa.Field, path: tuple[str, ...], repeated: bool, out: list[tuple[int | None, Leaf]]
) -> None:
    """Walk depth first, which is the order of a Parquet file's columns."""
    kind, here = field.type, (*path, field.name)
    if pa.types.is_struct(kind):
        for number in range(kind.num_fields):
            _walk(kind.field(number), here, repeated, out)
    elif pa.types.is_map(kind):
        _walk(kind.key_field, (*here, "key"), True, out)
        _walk(kind.item_field, (*here, "value"), True, out)
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        _walk(kind.value_field, (*here, "element"), True, out)
    else:
        raw = (field.metadata or {}).get(FIELD_ID)
        out.append((None if raw is None else int(raw), Leaf(len(out), here, repeated)))


def unit_of(column: Any) -> str:
    """Return the time unit of a leaf's logical type, "date", or "" for other types."""
    logical = column.logical_type
    if logical.type == "DATE":
        return "date"
    if logical.type in ("TIMESTAMP", "TIME"):
        return str(json.loads(logical.to_json())["timeUnit"])
    return ""


def domain_bound(field: Field, raw: Any, unit: str, *, upper: bool) -> Scalar | None:
    """Return a column chunk's raw minimum or maximum as a domain scalar; None if it is not
    usable."""
    if raw is None:
        return None
    if field.type.startswith("decimal"):
        value = raw if isinstance(raw, int) else int.from_bytes(raw, "big", signed=True)
        return value if field.kind is Kind.INT else encode_wide_decimal(value)
    if field.kind is Kind.INT:
        return _time(field, int(raw), unit, upper=upper)
    if field.kind is Kind.FLOAT:
        return None if raw != raw else float(raw)
    if upper and field.type in ("string", "binary") and bytes(raw).endswith(b"\0"):
        # numpy strips trailing NULs, which would lower the bound.
        return cut_bound(bytes(raw) + b"\x01", upper=True)
    return cut_bound(bytes(raw), upper=upper)


def _time(field: Field, value: int, unit: str, *, upper: bool) -> int:
    """Convert a file's time unit to the column's; for a coarser column the bound is moved
    outwards."""
    wanted = 1 if field.type.endswith("_ns") else 1_000
    if unit == "date" and field.type.startswith("timestamp"):
        return value * DAY_US * (1_000 // wanted)
    if unit not in _NANOS:
        return value
    nanos = value * _NANOS[unit]
    return -(-nanos // wanted) if upper else nanos // wanted


def domain_array(field: Field, column: pa.Array) -> tuple[Array, Array]:
    """Return a column's values as (domain array, null flags); nulls hold a filler."""
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    null = np.asarray(column.is_null().to_numpy(zero_copy_only=False))
    if field.type.startswith("decimal"):
        return _decimals(field, column), null
    if field.kind is Kind.FLOAT:
        filled = pc.fill_null(column.cast(pa.float64()), 0.0)
        return np.asarray(filled.to_numpy(zero_copy_only=False)), null
    if field.kind is Kind.INT:
        return _integers(field, column), null
    texts = column.cast(pa.binary()).to_pylist()
    kept = [b"" if text is None else text[:BOUND_BYTES] for text in texts]
    return np.array(kept, dtype=np.bytes_), null


def _integers(field: Field, column: pa.Array) -> Array:
    kind = column.type
    unit = "ns" if field.type.endswith("_ns") else "us"
    if pa.types.is_timestamp(kind) or (pa.types.is_date(kind) and field.type != "date"):
        column = column.cast(pa.timestamp(unit), safe=False).cast(pa.int64())
    elif pa.types.is_time(kind):
        column = column.cast(pa.time64("us"), safe=False).cast(pa.int64())
    elif pa.types.is_date(kind):
        column = column.cast(pa.date32()).cast(pa.int32())
    filled = pc.fill_null(column.cast(pa.int64()), 0)
    return np.asarray(filled.to_numpy(zero_copy_only=False))


def _decimals(field: Field, column: pa.Array) -> Array:
    scale = decimal_scale(field.type)
    values = column.to_pylist()
    unscaled = [0 if value is None else int(value.scaleb(scale, EXACT)) for value in values]
    if field.kind is Kind.INT:
        return np.array(unscaled, dtype=np.int64)
    return np.array([encode_wide_decimal(value) for value in unscaled], dtype="S17")


def column_at(table: pa.Table, leaf: Leaf) -> pa.Array:
    """Return a leaf of a read row group as one array; a null struct has null members."""
    column: Any = table.column(leaf.path[0]).combine_chunks()
    if isinstance(column, pa.ChunkedArray):
        column = column.chunk(0) if column.num_chunks else pa.array([], type=column.type)
    for member in leaf.path[1:]:
        column = pc.struct_field(column, member)
    return _plain(column)


def without_views(table: pa.Table) -> pa.Table:
    """Return the table without views of strings (`_plain`) among its columns."""
    views = [
        number
        for number, field in enumerate(table.schema)
        if pa.types.is_string_view(field.type) or pa.types.is_binary_view(field.type)
    ]
    for number in views:
        column = table.column(number)
        kind = pa.string() if pa.types.is_string_view(column.type) else pa.binary()
        table = table.set_column(number, table.schema.field(number).with_type(kind),
                                 column.cast(kind))  # fmt: skip
    return table


def _plain(column: pa.Array) -> pa.Array:
    """Return the column without views of strings, from which Arrow cannot take rows.

    Arrow's schema, which writers in Rust store in the file's metadata, asks readers for them.
    """
    if pa.types.is_string_view(column.type):
        return column.cast(pa.string())
    return column.cast(pa.binary()) if pa.types.is_binary_view(column.type) else column


def dictionary_sizes(group: Any, leaves: Mapping[int, Leaf]) -> dict[int, int]:
    """Return the stored bytes of every leaf's dictionary page; 0 without one, UNKNOWN if not
    recorded."""
    return {
        field_id: _dictionary_size(group.column(leaf.index)) for field_id, leaf in leaves.items()
    }


def _dictionary_size(chunk: Any) -> int:
    start, data = chunk.dictionary_page_offset, chunk.data_page_offset
    if start and data and data > start:
        return int(data - start)
    coded = any("DICTIONARY" in encoding for encoding in chunk.encodings)
    return UNKNOWN if coded else 0


def chunk_sizes(group: Any, leaves: Mapping[int, Leaf]) -> dict[int, int]:
    """Return the compressed bytes of every leaf's column chunk."""
    return {
        field_id: int(group.column(leaf.index).total_compressed_size)
        for field_id, leaf in leaves.items()
    }
