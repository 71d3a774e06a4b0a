"""Bounds of UUID columns by which no reader skips a file that holds the row.

The Parquet and Iceberg specifications order UUIDs as 16 unsigned bytes, and so do DuckDB, pyiceberg
and the writer of row groups. Iceberg's Java library compares them as two signed 64-bit numbers
(java.util.UUID.compareTo), also where it merges the bounds of row groups into those of a file. So
of a file with several row groups the bounds of the manifest may enclose only some of its values.
They are taken from the footer instead. Bounds on which the two orders disagree are left out, or
readers in Java would skip the file.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from reconciler.catalog.parquet import leaves_with_ids
from reconciler.spark import iceberg
from reconciler.spark.footer import footer_of

UUID = "uuid"
HALVES = (0, 8)
"""Places of the bytes that begin a UUID's two 64-bit numbers."""
SIGN = 0x80

Bounds = tuple[bytes, bytes]


def alike_in_all_orders(low: bytes, high: bytes) -> bool:
    """Whether signed and unsigned order agree about what is between two UUIDs."""
    signs = [[end[at] & SIGN for at in HALVES] for end in (low, high)]
    return low <= high and signs[0] == signs[1]


def enclosing(parts: Iterable[Bounds | None]) -> Bounds | None:
    """Return the least lower and the greatest upper bound, unsigned; None if one is unknown."""
    known = list(parts)
    found = [part for part in known if part is not None]
    if not found or len(found) < len(known):
        return None
    return min(low for low, _ in found), max(high for _, high in found)


def corrected(spark: Any, table: Any, files: Sequence[Any]) -> tuple[Any, ...]:
    """Return uncommitted DataFiles of the table with bounds of UUID columns that are true for every
    reader, and without those that cannot be.

    A table without such columns costs one call. A footer is read only of a file with several row
    groups whose bounds may stay.
    """
    columns = _columns(spark, table)
    if not columns:
        return tuple(files)
    return tuple(_corrected(spark, table, file, columns) for file in files)


def _columns(spark: Any, table: Any) -> list[int]:
    """Return the field ids of the UUID columns, nested ones too."""
    schema = table.schema()
    if f'"{UUID}"' not in str(spark._jvm.org.apache.iceberg.SchemaParser.toJson(schema)):
        return []
    ids = [int(field_id) for field_id in iceberg.each(schema.idToName().keySet())]
    return [field_id for field_id in ids if str(schema.findType(field_id)) == UUID]


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


def _corrected(spark: Any, table: Any, file: Any, columns: Sequence[int]) -> Any:
    core, java = spark._jvm.org.apache.iceberg, spark._jvm.java.util
    if file.lowerBounds() is None or file.upperBounds() is None:
        return file
    entry = _Entry(spark, java.HashMap(file.lowerBounds()), java.HashMap(file.upperBounds()))
    given = {column: entry.of(column) for column in columns}
    true = _true_bounds(table, file, given)
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


def _true_bounds(table: Any, file: Any, given: dict[int, list[bytes]]) -> dict[int, Bounds | None]:
    """Return the bounds that may stay of each column."""
    both = {column: (ends[0], ends[1]) for column, ends in given.items() if len(ends) == 2}
    kept = {column: ends for column, ends in both.items() if alike_in_all_orders(*ends)}
    splits = file.splitOffsets()
    if kept and (splits is None or int(splits.size()) > 1):
        exact = _of_row_groups(table, file, list(kept))
        kept = {c: ends for c, ends in exact.items() if ends and alike_in_all_orders(*ends)}
    return {column: kept.get(column) for column in given}


def _of_row_groups(table: Any, file: Any, columns: Sequence[int]) -> dict[int, Bounds | None]:
    """Return the bounds of columns by the file's footer; None where a row group has none."""
    footer = footer_of(table, str(file.location()), int(file.fileSizeInBytes()))
    if footer is None:
        return {}
    leaves = leaves_with_ids(footer.schema.to_arrow_schema())
    groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
    found = {}
    for column in columns:
        chunks = [group.column(leaves[column].index) for group in groups]
        found[column] = enclosing(_of_chunk(chunk) for chunk in chunks if not _is_null(chunk))
    return found


def _is_null(chunk: Any) -> bool:
    stats = chunk.statistics
    return bool(stats and stats.has_null_count and stats.null_count == chunk.num_values)


def _of_chunk(chunk: Any) -> Bounds | None:
    stats = chunk.statistics
    if stats is None or not stats.has_min_max:
        return None
    return bytes(stats.min_raw), bytes(stats.max_raw)
