"""Predicts the stored size of a row group from the size that the writer is configured with.

Parquet's writer closes a row group when its buffers reach the configured size. Finished pages are
buffered compressed, but the page being filled is not, and a page is finished only every 20,000 rows
(or 1 MiB). A small row group is therefore measured by its encoded size and becomes far smaller on
disk; a large one is measured nearly by its compressed size.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from reconciler.table.sample import RowGroups

SLACK = 1.1
"""A row group may exceed its size by this factor before another one is counted."""

PAGE_ROWS = 20_000
"""parquet.page.row.count.limit of the Java writer."""


def row_groups_of(size: npt.ArrayLike, row_group_bytes: float) -> npt.NDArray[np.int64]:
    """Return the number of row groups of files, or runs of rows, of these bytes, int64."""
    wanted = np.ceil(np.asarray(size, dtype=np.float64) / max(row_group_bytes * SLACK, 1.0))
    return np.maximum(1, wanted).astype(np.int64)


def stored_row_group_bytes(configured: int, footers: RowGroups | None) -> int:
    """Return the compressed bytes of one full row group written with the configured size.

    footers: of files of the same table; their rows show the encoded and the compressed size of a
    row. Without footers, the configured size itself.
    """
    if footers is None or footers.encoded is None or not len(footers.records):
        return configured
    rows = float(footers.records.sum())
    compressed = float(
        sum(int(np.maximum(sizes, 0).sum()) for sizes in footers.column_sizes.values())
    )
    encoded = float(np.maximum(footers.encoded, 0).sum())
    if not rows or not compressed or encoded <= compressed:
        return configured
    per_row = compressed / rows
    return max(1, round(per_row * rows_of_row_group(configured, per_row, encoded / rows)))


def rows_of_row_group(configured: int, compressed_row: float, encoded_row: float) -> float:
    """Return the least n with compressed * (n - n mod PAGE) + encoded * (n mod PAGE) >=
    configured."""
    page = compressed_row * PAGE_ROWS
    overshoot = (encoded_row - compressed_row) * PAGE_ROWS
    full_pages = max(0, math.ceil((configured - page - overshoot) / page))
    rest = max(0.0, configured - full_pages * page) / encoded_row
    return full_pages * PAGE_ROWS + min(rest, PAGE_ROWS)
