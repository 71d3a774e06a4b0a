"""Bounds of UUID columns by which no reader skips a file that holds the row.

The Parquet and Iceberg specifications order UUIDs as 16 unsigned bytes, and so do DuckDB, pyiceberg
and the writer of row groups. Iceberg's Java library compares them as two signed 64-bit numbers
(java.util.UUID.compareTo), also where it merges the bounds of row groups into those of a file. So
of a file with several row groups the bounds of the manifest may enclose only some of its values.
They are taken from the footer instead. Bounds on which the two orders disagree are left out, or
readers in Java would skip the file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from reconciler.catalog.parquet import footer_in, leaves_with_ids
from reconciler.commit.metrics import ends
from reconciler.table.parquet_schema import MAGIC
from reconciler.table.uuid_order import UUID, may_bound

Bounds = tuple[bytes, bytes]


def corrected(
    spark: Any,
    table: Any,
    files: Sequence[Any],
    footers: Mapping[str, bytes] = MappingProxyType({}),
) -> tuple[Any, ...]:
    """Return uncommitted DataFiles of the table with bounds of UUID columns that are true for every
    reader, and without those that cannot be.

    footers: ends of files, by path, which need not be read again. A table without such columns
    costs one call. A footer is used only of a file with several row groups whose bounds may stay.
    """
    schema = str(spark._jvm.org.apache.iceberg.SchemaParser.toJson(table.schema()))
    columns = sorted(columns_of(schema))
    if not columns:
        return tuple(files)
    return tuple(_corrected(spark, table, file, columns, footers) for file in files)


def columns_of(schema: str) -> set[int]:
    """Return the field ids of the UUID columns of a schema in JSON, members of structs too."""
    return _uuids(json.loads(schema)) if f'"{UUID}"' in schema else set()


def _uuids(kind: Mapping[str, Any]) -> set[int]:
    found: set[int] = set()
    for field in kind.get("fields", ()):
        if field["type"] == UUID:
            found.add(int(field["id"]))
        elif isinstance(field["type"], dict):
            found |= _uuids(field["type"])
    return found


@dataclass(frozen=True, slots=True)
class _Entry:
    """The bounds of a DataFile, as java.util.Map by field id."""

    spark: Any
    lower: Any
    upper: Any

    def of(self, column: int) -> list[bytes]:
        """Return the bounds of a column that are there."""
        as_bytes = self.spark._jvm.org.apache.iceberg.util.ByteBuffers.toByteArray
        ends = [side.get(column) for side in (self.lower, self.upper)]
        return [bytes(as_bytes(end)) for end in ends if end is not None]

    def replaced(self, column: int, bounds: Bounds | None) -> None:
        for side, end in zip((self.lower, self.upper), bounds or (None, None), strict=True):
            if end is None:
                side.remove(column)
            else:
                side.put(column, self.spark._jvm.java.nio.ByteBuffer.wrap(end))


def _corrected(
    spark: Any, table: Any, file: Any, columns: Sequence[int], footers: Mapping[str, bytes]
) -> Any:
    core, java = spark._jvm.org.apache.iceberg, spark._jvm.java.util
    if file.lowerBounds() is None or file.upperBounds() is None:
        return file
    entry = _Entry(spark, java.HashMap(file.lowerBounds()), java.HashMap(file.upperBounds()))
    given = {column: entry.of(column) for column in columns}
    true = _true_bounds(table, file, given, footers)
    changed = [column for column, ends in given.items() if ends and true[column] != tuple(ends)]
    if not changed:
        return file
    for column in changed:
        entry.replaced(column, true[column])
    metrics = core.Metrics(
        file.recordCount(), file.columnSizes(), file.valueCounts(), file.nullValueCounts(),
        file.nanValueCounts(), entry.lower, entry.upper,
    )  # fmt: skip
    spec = table.specs().get(file.specId())
    return core.DataFiles.builder(spec).copy(file).withMetrics(metrics).build()


def _true_bounds(
    table: Any, file: Any, given: dict[int, list[bytes]], footers: Mapping[str, bytes]
) -> dict[int, Bounds | None]:
    """Return the bounds that may stay of each column."""
    both = {column: (ends[0], ends[1]) for column, ends in given.items() if len(ends) == 2}
    kept = {column: ends for column, ends in both.items() if may_bound(*ends)}
    splits = file.splitOffsets()
    if kept and (splits is None or int(splits.size()) > 1):
        exact = _of_row_groups(table, file, list(kept), footers)
        kept = {c: ends for c, ends in exact.items() if ends and may_bound(*ends)}
    return {column: kept.get(column) for column in given}


def _of_row_groups(
    table: Any, file: Any, columns: Sequence[int], footers: Mapping[str, bytes]
) -> dict[int, Bounds | None]:
    """Return the bounds of columns by the file's footer; None where a row group has none."""
    known = footers.get(str(file.location()))
    if known:
        footer = pq.read_metadata(pa.BufferReader(MAGIC + known))
    else:
        try:
            footer = _footer(table, str(file.location()), int(file.fileSizeInBytes()))
        except (pa.ArrowException, OSError):
            return {}
    leaves = leaves_with_ids(footer.schema.to_arrow_schema())
    groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
    found = {}
    for column in columns:
        statistics = [group.column(leaves[column].index).statistics for group in groups]
        found[column] = ends(statistics, UUID) if all(statistics) else None
    return found


def _footer(table: Any, path: str, size: int) -> Any:
    """Return pyarrow's FileMetaData of a file of so many bytes, read through the table's own
    FileIO."""

    def tail(wanted: int) -> bytes:
        stream = table.io().newInputFile(path).newStream()
        try:
            stream.seek(size - wanted)
            return bytes(stream.readAllBytes())
        finally:
            stream.close()

    return footer_in(tail, size, f'the footer of "{path}"')
