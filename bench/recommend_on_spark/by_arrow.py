"""Writes layouts without Spark, as the engine cuts them: many layouts in little time.

Rows are put in order exactly, and cut into files and row groups of equal rows (`row_group_rows`, by
the true bytes of a row). A column has a dictionary in a file if the Java writer keeps it in most of
the file's row groups. The files are registered in a table of their own and observed like any other.
Only layouts without partitions are written.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench.tables.play import NAMESPACE, Place
from reconciler.advisor.simulate.layout import Sizes
from reconciler.catalog.parquet import without_views
from reconciler.plan.ordering import Ordering
from reconciler.table.column_bytes import drops_dictionary
from reconciler.table.filetable import Int64
from reconciler.table.row_group_bytes import PAGE_ROWS, output_files, row_group_rows
from reconciler.table.schema import Schema

MOST_ASKED = 16
"""Row groups of a file that are asked whether they keep their dictionaries."""


class ByArrow:
    """Layouts of one table. rows: in order of arrival; folder: where their files go."""

    def __init__(self, place: Place, name: str, rows: pa.Table, folder: Path) -> None:
        self.place, self.name, self.rows, self.folder = place, name, without_views(rows), folder
        self.written = 0

    def write(self, schema: Schema, ordering: Ordering, sizes: Sizes) -> str:
        """Return the name of a table in this layout."""
        rows = self.rows.take(pa.array(self._order(schema, ordering)))
        self.written += 1
        name = f"{self.name}_{self.written}"
        directory = self.folder / name
        directory.mkdir(parents=True)
        paths = [f"file://{path}" for path in written(rows, sizes, directory)]
        table = self.place.catalog.create_table(f"{NAMESPACE}.{name}", self.rows.schema)
        table.add_files(paths)
        return name

    def _order(self, schema: Schema, ordering: Ordering) -> Int64:
        ranks = [_ranks(self.rows[schema.name_of(c.field_id)]) for c in ordering.key]
        keys: Sequence[Int64] = ordering.sort_keys(ranks) if ordering.key else ()
        arrival = np.arange(len(self.rows), dtype=np.int64)
        return np.lexsort((arrival, *reversed(keys))).astype(np.int64)


def _ranks(column: pa.ChunkedArray) -> Int64:
    """Return dense ranks: NULL before all values, NaN after them."""
    null = np.asarray(column.is_null())
    values = column.drop_null().to_numpy(zero_copy_only=False)
    values = values.astype(str) if values.dtype == object else values
    ranks = np.full(len(null), -1, dtype=np.int64)
    ranks[~null] = np.unique(values, return_inverse=True)[1].reshape(-1)
    return ranks


def _coded(rows: pa.Table, each: int) -> list[str]:
    """Return the columns whose dictionary the Java writer keeps after the first page of most row
    groups; of many row groups, those spread evenly over the file."""
    groups = -(-len(rows) // each)
    asked = sorted(set(np.linspace(0, groups - 1, MOST_ASKED).astype(int).tolist()))
    pages = [rows.slice(each * group, min(each, PAGE_ROWS)) for group in asked]
    return [
        name
        for name in rows.column_names
        if 2 * sum(_keeps_dictionary(page[name]) for page in pages) > len(pages)
    ]


def _keeps_dictionary(page: pa.ChunkedArray) -> bool:
    values = page.drop_null()  # a NULL is in no dictionary
    if not len(values):
        return True
    width = max(round(_plain_bytes(values) / len(values)), 1)
    return not drops_dictionary(len(values.unique()), len(values), width)


def _plain_bytes(column: pa.ChunkedArray) -> float:
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        return float(sum(len(text) + 4 for text in column.to_pylist() if text is not None))
    if pa.types.is_decimal(column.type):
        width = 4 if column.type.precision <= 9 else 8 if column.type.precision <= 18 else 16
    else:
        width = max(column.type.bit_width // 8, 1)
    return float(width * (len(column) - column.null_count))


def written(rows: pa.Table, sizes: Sizes, folder: Path) -> Iterator[Path]:
    """Write rows as the engine cuts them into files and row groups of these sizes."""
    count, each = 1, len(rows)
    for _ in range(3):  # bytes of a row depend on the rows of a row group, and of a file
        whole = size_of(rows, each)
        count = int(output_files(np.array([float(whole)]), sizes.target_bytes)[0])
        most = row_group_rows(sizes.row_group_bytes, whole / len(rows))
        file_rows = -(-len(rows) // count)
        each = -(-file_rows // -(-file_rows // most))
    edges = [len(rows) * part // count for part in range(count + 1)]
    for number, (start, end) in enumerate(pairwise(edges)):
        path = folder / f"{number:05d}.parquet"
        write_file(rows.slice(start, end - start), path, each)
        yield path


def size_of(rows: pa.Table, each: int) -> int:
    """Return the bytes of one file of the rows."""
    sink = pa.BufferOutputStream()
    write_file(rows, sink, each)
    return int(sink.getvalue().size)


def write_file(rows: pa.Table, where: Path | pa.NativeFile, each: int) -> None:
    """Write the rows in row groups of `each` rows."""
    pq.write_table(rows, where, row_group_size=each, **options_of(rows, each))


def options_of(rows: pa.Table, each: int) -> dict[str, Any]:
    """Return how the engine stores these rows in row groups of `each` rows."""
    return {
        "compression": "zstd", "compression_level": 3, "use_dictionary": _coded(rows, each),
        "max_rows_per_page": PAGE_ROWS, "dictionary_pagesize_limit": 2 << 20,
        "store_decimal_as_integer": True, "write_page_index": True, "write_page_checksum": True,
    }  # fmt: skip
