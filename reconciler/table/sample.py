"""Row samples and row groups: additions to the file table from footers and sketches.

`RowGroups` lists the row groups of files whose footer has been read; `RowSample` is a pooled joint
sample of rows. `catalog.footers` and `state.sketch` fill them; utilization and what-if read them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from reconciler.table.filetable import Array, Bool, ColumnBounds, Int64


@dataclass(frozen=True)
class RowGroups:
    """Row groups of the files with a known footer, in file order. Arrays have shape [row groups]
    unless said otherwise."""

    file: Int64
    """int64[row groups]: row of the file in the file table."""
    records: Int64
    """int64[row groups]: number of rows."""
    columns: Mapping[int, ColumnBounds]
    """Zone maps by field id; their sizes are those of the compressed column chunks."""
    column_sizes: Mapping[int, Int64]
    """int64[row groups] by field id: compressed bytes of every leaf column's chunk."""
    footer_bytes: Int64
    """int64[files]: bytes of the footer, UNKNOWN if it has not been read."""
    has_footer: Bool
    """bool[files]: whether the footer has been read."""
    dictionary: Mapping[int, Int64] | None = None
    """int64[row groups] by field id: stored bytes of the dictionary page, 0 without one, UNKNOWN if
    the footer does not say; None if that was not read."""


@dataclass(frozen=True)
class RowSample:
    """A joint sample of rows over the predicate columns. Arrays have shape [rows]."""

    values: Mapping[int, Array]
    """Values by field id, in the column's domain (`values`)."""
    null: Mapping[int, Bool]
    """Whether each value is NULL, by field id."""
    weight: npt.NDArray[np.float64]
    """Rows of the table that each sampled row represents."""
    file: Int64
    """Row of the file table that each sampled row came from."""

    def __len__(self) -> int:
        return len(self.weight)

    def take(self, index: Array) -> RowSample:
        return RowSample(
            {key: value[index] for key, value in self.values.items()},
            {key: value[index] for key, value in self.null.items()},
            self.weight[index],
            self.file[index],
        )


DataBytes = Callable[[Int64, Sequence[int], frozenset[int]], Mapping[int, int]]
"""(order of the rows, columns, those without a dictionary, rows of a page) -> bytes of each
column's data pages, as the Parquet writer stores the rows in this order."""


@dataclass(frozen=True)
class RowBlocks:
    """Rows that are stored next to each other, from a few files, over all columns of plain types. A
    systematic sample does not show which values repeat from one row to the next."""

    rows: RowSample
    """The blocks, one after the other."""
    starts: Int64
    """First row of each block: int64[blocks]."""
    data_bytes: DataBytes
    """Encodes rows, to measure their bytes."""

    def __len__(self) -> int:
        return len(self.rows)
