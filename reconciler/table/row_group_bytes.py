"""Predicts the stored size of a row group from the size that the writer is configured with.

Parquet's writer closes a row group when its buffers reach the configured size. Finished pages are
buffered compressed, but the page being filled is not, and a page is finished only every 20,000 rows
(or 1 MiB). A small row group is therefore measured by its encoded size and becomes far smaller on
disk; a large one is measured nearly by its compressed size. While a column has a dictionary, its
open page even counts as the plain values (FallbackValuesWriter.getBufferedSize): `plain_row_bytes`.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from reconciler.table.filetable import UNKNOWN, FileTable, Float64
from reconciler.table.sample import RowGroups
from reconciler.table.schema import Schema
from reconciler.table.values import BOUND_BYTES

SLACK = 1.1
"""A row group may exceed its size by this factor before another one is counted."""

UNBOUNDED_TEXT = 28.0
"""Bytes of a string whose bounds are cut or unknown: as of a short sentence or a hash."""

IN_DICTIONARY = 0.25
"""Stored bytes of a column's texts, of those in plain encoding, below which a dictionary holds
them: compression alone leaves more."""

PAGE_ROWS = 20_000
"""parquet.page.row.count.limit of the Java writer."""

PAGES, LEAST_PAGE_ROWS = 4, 512
"""Open pages of plain rows that fit into a row group, or pages should have fewer rows; pages of
fewer rows than that cost more than they help."""

PAGE_GAP = (0.8, 1.25)
"""Declared sizes, in plain pages, between which a row group has one page or several."""


def row_groups_of(size: npt.ArrayLike, row_group_bytes: float) -> npt.NDArray[np.int64]:
    """Return the number of row groups of files, or runs of rows, of these bytes, int64."""
    wanted = np.ceil(np.asarray(size, dtype=np.float64) / max(row_group_bytes * SLACK, 1.0))
    return np.maximum(1, wanted).astype(np.int64)


def stored_row_group_bytes(
    configured: int, footers: RowGroups | None, schema: Schema, page_rows: int = PAGE_ROWS
) -> int:
    """Return the compressed bytes of one full row group written with the configured size.

    footers: of files of the same table; they show the compressed size of a row, and with the schema
    the plain one. Without footers, the configured size itself. page_rows: limit of a page.
    """
    if footers is None or not len(footers.records):
        return configured
    rows = float(footers.records.sum())
    compressed = float(
        sum(int(np.maximum(sizes, 0).sum()) for sizes in footers.column_sizes.values())
    )
    if not rows or not compressed:
        return configured
    per_row, plain = compressed / rows, plain_row_bytes(footers, schema)
    if plain <= per_row:
        return configured
    return max(1, round(per_row * rows_of_row_group(configured, per_row, plain, page_rows)))


def plain_row_bytes(groups: RowGroups, schema: Schema) -> float:
    """Return the bytes of a row in plain encoding: values of fixed width exactly, strings by the
    lengths of their bounds; the encoded bytes if these are more, as with lists. 0 without a row.

    Of values of fixed width alone, other writers encode more than that if they list values that
    hardly repeat; Java's writer drops such a dictionary."""
    rows = float(groups.records.sum())
    if not rows:
        return 0.0
    plain = sum(_plain_bytes(groups, schema, field) for field in groups.column_sizes)
    if groups.encoded is None or all(_exact(schema, field) for field in groups.column_sizes):
        return plain / rows
    return max(plain, float(np.maximum(groups.encoded, 0).sum())) / rows


def _exact(schema: Schema, field_id: int) -> bool:
    """Whether the plain bytes of a column are known: one value of fixed width a row."""
    field = schema.by_id.get(field_id)
    return field is not None and not field.repeated and _fixed_width(field.type) is not None


def text_row_bytes(groups: RowGroups | None, schema: Schema) -> dict[int, float] | None:
    """Return, by field id, the bytes of a row's strings and binaries in plain encoding, without
    columns that a dictionary holds; None if that is not known."""
    texts = [field.field_id for field in schema.fields if field.type in ("string", "binary")]
    if not texts:
        return {}
    rows = 0.0 if groups is None else float(groups.records.sum())
    if groups is None or not rows:
        return None
    plain = {}
    for field in (each for each in texts if each in groups.column_sizes):
        size = _plain_bytes(groups, schema, field)
        stored = float(np.maximum(groups.column_sizes[field], 0).sum())
        if stored >= IN_DICTIONARY * size:
            plain[field] = size / rows
    return plain


def plain_row_of(files: FileTable) -> float:
    """Return `plain_row_bytes` by what manifests say, without a footer."""
    none = np.zeros(len(files), dtype=bool)
    every = np.arange(len(files), dtype=np.int64)
    unread = np.full(len(files), UNKNOWN, dtype=np.int64)
    groups = RowGroups(every, files.records, files.columns, files.column_sizes, unread, none)
    return plain_row_bytes(groups, files.schema)


def _plain_bytes(groups: RowGroups, schema: Schema, field_id: int) -> float:
    stored = float(np.maximum(groups.column_sizes[field_id], 0).sum())
    field, known = schema.by_id.get(field_id), groups.columns.get(field_id)
    if field is None:
        return stored
    present = groups.records.astype(np.float64)
    if known is not None:
        present = np.maximum(present - np.maximum(known.nulls, 0), 0.0)
    width = _fixed_width(field.type)
    if width is not None:
        whole = width * float(present.sum())
        return max(whole, stored) if field.repeated else whole
    if known is None or known.lower.dtype.kind != "S":
        return max(UNBOUNDED_TEXT * float(present.sum()), stored)
    bounded = known.has_lower & known.has_upper & ~known.truncated
    lengths = (np.char.str_len(known.lower) + np.char.str_len(known.upper)) / 2.0
    return max(float(_text_width(lengths, bounded) @ present), stored)


def _text_width(lengths: Float64, bounded: npt.NDArray[np.bool_]) -> Float64:
    """Return the bytes of one value with its length. bounded: bounds are known and whole."""
    long = ~bounded | (lengths >= BOUND_BYTES)
    return np.where(long, UNBOUNDED_TEXT, lengths) + 4.0


def _fixed_width(iceberg_type: str) -> float | None:
    """Return the bytes of a plain value as Iceberg's Parquet writer stores it, None for texts."""
    if iceberg_type in ("string", "binary"):
        return None
    if iceberg_type == "boolean":
        return 1.0 / 8.0
    if iceberg_type in ("int", "float", "date"):
        return 4.0
    if iceberg_type.startswith("decimal"):
        digits = int(iceberg_type.partition("(")[2].partition(",")[0])
        return 4.0 if digits <= 9 else 8.0 if digits <= 18 else 16.0
    if iceberg_type.startswith("fixed"):
        return float(iceberg_type.partition("[")[2].rstrip("]"))
    return 16.0 if iceberg_type == "uuid" else 8.0


def rows_of_row_group(
    configured: int, compressed_row: float, encoded_row: float, page_rows: int = PAGE_ROWS
) -> float:
    """Return the least n with compressed * (n - n mod page_rows) + encoded * (n mod page_rows) >=
    configured. page_rows: of a finished page."""
    page = compressed_row * page_rows
    overshoot = (encoded_row - compressed_row) * page_rows
    full_pages = max(0, math.ceil((configured - page - overshoot) / page))
    rest = max(0.0, configured - full_pages * page) / encoded_row
    return full_pages * page_rows + min(rest, page_rows)


def page_rows_for(configured: int, plain_row: float) -> int:
    """Return the rows of a page with which row groups come out near the configured size:
    PAGE_ROWS for large ones, a smaller power of two if a row group has fewer than PAGES such pages
    of plain rows."""
    wanted = configured / max(PAGES * plain_row, 1e-9)
    if wanted >= PAGE_ROWS:
        return PAGE_ROWS
    return int(max(LEAST_PAGE_ROWS, 2 ** math.floor(math.log2(max(wanted, 1.0)))))
