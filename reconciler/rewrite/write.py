"""Writes the files of a task: each with exactly the rows and row groups that it is given.

A file that is not complete is removed: a Parquet writer that is left when an error passes through
it would otherwise leave a readable file of some of the rows.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from reconciler.catalog.parquet import leaves_with_ids
from reconciler.rewrite import arrow
from reconciler.rewrite.columns import STRUCT, Column
from reconciler.rewrite.task import FileProperties, Output
from reconciler.table.column_bytes import drops_dictionary
from reconciler.table.parquet_schema import TRAILER_BYTES
from reconciler.table.row_group_bytes import PAGE_ROWS

STATISTIC_BYTES = 4_096
"""Longest value that Arrow keeps in a footer's statistics."""
INT_DIGITS = 9
"""Most digits of a decimal that an integer of 4 bytes holds."""


@contextlib.contextmanager
def writing(
    path: Path, columns: Sequence[Column], properties: FileProperties
) -> Iterator[FileWriter]:
    """Provide a file to write to; it does not exist if anything fails before it ends."""
    made = FileWriter(path, columns, properties)
    try:
        yield made
        made.close()
    except BaseException:
        with contextlib.suppress(Exception):
            made.close()
        path.unlink(missing_ok=True)
        raise


class FileWriter:
    """Writes one Parquet file, a row group at a time, and counts what its footer will not say."""

    def __init__(self, path: Path, columns: Sequence[Column], properties: FileProperties) -> None:
        self.path, self._columns = path, columns
        self.schema = arrow.schema_of(columns)
        self._nans: dict[int, int] = {}
        self._long: dict[int, dict[int, tuple[bytes, bytes]]] = {}
        self._groups = 0
        self._properties, self._parquet = properties, None

    def _opened(self, table: pa.Table) -> Any:
        """Return Arrow's writer of the file, which is opened at the first row group: that shows
        which columns come as dictionaries, and for which ones a dictionary pays."""
        if self._parquet is None:
            own, schema = self._properties, table.schema
            first = table.slice(0, PAGE_ROWS)
            self._parquet = pq.ParquetWriter(
                self.path,
                schema,
                version="2.6",
                compression=own.codec,
                compression_level=own.level,
                write_page_index=True,
                write_page_checksum=True,
                store_schema=False,
                store_decimal_as_integer=True,
                use_compliant_nested_type=True,
                data_page_size=own.page_bytes,
                max_rows_per_page=own.page_rows,
                use_dictionary=[
                    path
                    for field, values in zip(schema, first.columns, strict=True)
                    if _keeps_dictionary(values)
                    for path in _leaves(field.name, field.type)
                ],
                dictionary_pagesize_limit=own.dictionary_bytes,
                bloom_filter_options={
                    path: {"ndv": ndv, "fpp": fpp} for path, (ndv, fpp) in own.blooms.items()
                }
                or None,
            )
        return self._parquet

    def write(self, table: pa.Table) -> None:
        """Write the rows as one row group."""
        if not len(table):
            return
        for column, values in zip(self._columns, table.columns, strict=True):
            self._count(column, values)
            self._remember(column, values)
        arrays = [
            _stored(values, field.type)
            for values, field in zip(table.columns, self.schema, strict=True)
        ]
        schema = pa.schema([
            field.with_type(own.type) for field, own in zip(self.schema, arrays, strict=True)
        ])  # fmt: skip
        made = pa.table(arrays, schema=schema)
        self._opened(made).write_table(made, row_group_size=len(table))
        self._groups += 1

    def close(self) -> None:
        if self._parquet is not None and self._parquet.is_open:
            self._parquet.close()

    def output(self, location: str) -> Output:
        """Return what was written; after `close`."""
        footer = pq.read_metadata(self.path)
        return Output(
            location,
            footer.num_rows,
            self.path.stat().st_size,
            tuple(_begin(footer.row_group(n)) for n in range(footer.num_row_groups)),
            self._nans,
            self._bounds(footer),
            footer=tail_of(self.path, footer.serialized_size),
        )

    def _count(self, column: Column, values: Any) -> None:
        """Count NaN values: of a float column and of those inside structs."""
        if column.type in ("float", "double"):
            found = pc.sum(pc.is_nan(values)).as_py() or 0
            self._nans[column.field_id] = self._nans.get(column.field_id, 0) + found
        elif column.type == STRUCT:
            for child in arrow.held(column.children):
                if child.type in ("float", "double", STRUCT):
                    self._count(child, arrow.child_of(values, child.name))

    def _remember(self, column: Column, values: Any) -> None:
        """Keep the bounds of a row group's values that are too long for its statistics: of a
        column, and of those inside structs."""
        if column.type == STRUCT:
            for child in arrow.held(column.children):
                if child.type in ("string", "binary", STRUCT):
                    self._remember(child, arrow.child_of(values, child.name))
        if column.type not in ("string", "binary"):
            return
        lengths = pc.max(pc.binary_length(_distinct(values))).as_py()
        if lengths is not None and lengths > STATISTIC_BYTES:
            ends = pc.min_max(_distinct(values).cast(pa.binary())).as_py()
            self._long.setdefault(column.field_id, {})[self._groups] = (ends["min"], ends["max"])

    def _bounds(self, footer: Any) -> dict[int, tuple[bytes, bytes]]:
        """Return the bounds of columns with long values."""
        leaves = leaves_with_ids(self.schema)
        groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
        found = {}
        for field_id, long in self._long.items():
            ends = list(long.values())
            for number, group in enumerate(groups):
                known = group.column(leaves[field_id].index).statistics
                if number not in long and known.has_min_max:  # others have no value
                    ends.append((known.min_raw, known.max_raw))
            found[field_id] = min(low for low, _ in ends), max(high for _, high in ends)
        return found


def _keeps_dictionary(page: pa.ChunkedArray) -> bool:
    """Return whether a dictionary of the column is smaller than its plain values, by the rows of a
    first page. Arrow's writer asks nobody: numbers that never repeat took a fifth more with one."""
    kind = page.type
    if pa.types.is_dictionary(kind) or pa.types.is_nested(kind) or pa.types.is_boolean(kind):
        return True
    if isinstance(kind, pa.BaseExtensionType):  # UUIDs, which cannot be counted as such
        page = pa.chunked_array([chunk.storage for chunk in page.chunks], kind.storage_type)
    if pa.types.is_decimal64(kind):  # likewise
        page = page.cast(pa.decimal128(kind.precision, kind.scale))
    values = page.drop_null()
    if not len(values):
        return True
    width = values.nbytes / len(values)
    if pa.types.is_decimal(kind) and kind.precision <= arrow.LONG_DIGITS:  # stored as an integer
        width = 4 if kind.precision <= INT_DIGITS else 8
    return not drops_dictionary(len(values.unique()), len(values), max(1, round(width)))


def _leaves(path: str, kind: pa.DataType) -> Iterator[str]:
    """Yield the paths of a column's leaves in a Parquet schema."""
    if pa.types.is_struct(kind):
        for field in kind:
            yield from _leaves(f"{path}.{field.name}", field.type)
    elif pa.types.is_map(kind):
        yield from _leaves(f"{path}.key_value.key", kind.key_type)
        yield from _leaves(f"{path}.key_value.value", kind.item_type)
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        yield from _leaves(f"{path}.list.element", kind.value_type)
    else:
        yield path


def tail_of(path: Path, footer_bytes: int) -> bytes:
    """Return the footer with its length and the magic bytes behind it."""
    with path.open("rb") as file:
        file.seek(-(footer_bytes + TRAILER_BYTES), os.SEEK_END)
        return file.read()


def _stored(values: pa.ChunkedArray, wanted: pa.DataType) -> pa.ChunkedArray:
    """Return values as they are written: the field ids of nested columns are of the type."""
    if (
        pa.types.is_dictionary(values.type)
        or pa.types.is_decimal64(values.type)
        or values.type.equals(wanted, check_metadata=True)
    ):
        return values
    return values.cast(wanted)


def _distinct(values: Any) -> Any:
    """Return the values, each at least once: of a dictionary, those that are used."""
    if not pa.types.is_dictionary(values.type):
        return values
    used = [chunk.dictionary.take(chunk.indices.unique().drop_null()) for chunk in values.chunks]
    return pa.chunked_array(used, values.type.value_type)


def _begin(group: Any) -> int:
    chunk = group.column(0)
    first = chunk.dictionary_page_offset if chunk.has_dictionary_page else None
    return int(min(at for at in (first, chunk.data_page_offset) if at))
