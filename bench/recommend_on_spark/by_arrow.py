"""Writes layouts without Spark, as its writer would: many layouts in little time.

Rows are put in order exactly, cut into files of equal rows as executions cut them, and into row
groups where Parquet's Java writer ends them (`rows_of_row_group`, by the true bytes of a row), in
pages of as many rows as it. A column has a dictionary in a file if the Java writer keeps it in most
of the file's row groups. The files are registered in a table of their own and observed like any
other. Only layouts without partitions are written.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench.tables.play import NAMESPACE, Place
from reconciler.catalog.parquet import without_views
from reconciler.plan.grouping import output_files
from reconciler.plan.ordering import Ordering
from reconciler.table.column_bytes import drops_dictionary
from reconciler.table.filetable import Int64
from reconciler.table.row_group_bytes import rows_of_row_group
from reconciler.table.schema import Schema

MOST_ASKED = 16
"""Row groups of a file that are asked whether they keep their dictionaries."""


class ByArrow:
    """Layouts of one table. rows: in order of arrival; folder: where their files go."""

    def __init__(self, place: Place, name: str, rows: pa.Table, folder: Path) -> None:
        self.place, self.name, self.rows, self.folder = place, name, without_views(rows), folder
        self.written = 0
        self.plain = plain_row(self.rows)

    def write(
        self, schema: Schema, ordering: Ordering, target: int, row_group: int, page_rows: int
    ) -> str:
        """Return the name of a table in this layout. row_group: the declared size."""
        rows = self.rows.take(pa.array(self._order(schema, ordering)))
        each, whole = len(rows), 0
        for _ in range(2):  # bytes of a row depend on the rows of a row group
            whole, columns = size_of(rows, each, page_rows)
            stored = columns / len(rows)
            held = rows_of_row_group(row_group, stored, max(self.plain, stored), page_rows)
            each = min(max(1, round(held)), len(rows))
        files = int(output_files(np.array([float(whole)]), target)[0])
        self.written += 1
        name = f"{self.name}_{self.written}"
        directory = self.folder / name
        directory.mkdir(parents=True)
        edges = [len(rows) * part // files for part in range(files + 1)]
        paths = []
        for number, (start, end) in enumerate(pairwise(edges)):
            path = directory / f"{number:05d}.parquet"
            write_file(rows.slice(start, end - start), path, each, page_rows)
            paths.append(f"file://{path}")
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


def _coded(rows: pa.Table, each: int, page_rows: int) -> list[str]:
    """Return the columns whose dictionary the Java writer keeps after the first page of most row
    groups; of many row groups, those spread evenly over the file."""
    groups = -(-len(rows) // each)
    asked = sorted(set(np.linspace(0, groups - 1, MOST_ASKED).astype(int).tolist()))
    pages = [rows.slice(each * group, min(each, page_rows)) for group in asked]
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


def plain_row(rows: pa.Table) -> float:
    """Return the bytes of a row in plain encoding."""
    return sum(map(_plain_bytes, rows.columns)) / max(len(rows), 1)


def _plain_bytes(column: pa.ChunkedArray) -> float:
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        return float(sum(len(text) + 4 for text in column.to_pylist() if text is not None))
    if pa.types.is_decimal(column.type):
        width = 4 if column.type.precision <= 9 else 8 if column.type.precision <= 18 else 16
    else:
        width = max(column.type.bit_width // 8, 1)
    return float(width * (len(column) - column.null_count))


def size_of(rows: pa.Table, each: int, page_rows: int) -> tuple[int, int]:
    """Return the bytes of one file of the rows, and those of its columns.

    The writer ends row groups by these. Footers and the index of pages (4 % of lineitem in pages
    of 512 rows) count for the number of files."""
    sink = pa.BufferOutputStream()
    write_file(rows, sink, each, page_rows)
    written = sink.getvalue()
    footer = pq.ParquetFile(pa.BufferReader(written)).metadata
    groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
    columns = sum(g.column(n).total_compressed_size for g in groups for n in range(g.num_columns))
    return int(written.size), int(columns)


def write_file(rows: pa.Table, where: Path | pa.NativeFile, each: int, page_rows: int) -> None:
    """Write the rows in row groups of `each` rows, as Java's writer encodes them."""
    coded = _coded(rows, each, page_rows)
    pq.write_table(
        rows, where, compression="zstd", compression_level=3, use_dictionary=coded,
        row_group_size=each, max_rows_per_page=page_rows, dictionary_pagesize_limit=2 << 20,
        store_decimal_as_integer=True, write_page_index=True, write_page_checksum=True,
    )  # fmt: skip
