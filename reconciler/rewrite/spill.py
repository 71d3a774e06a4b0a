"""Rows that go through the disk, because they do not fit a task's memory (external sort, one pass
of distribution): each input is cut into a spill per row group that is written."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from reconciler.rewrite import arrow
from reconciler.rewrite.order import stable_order

RANK = "__layout_rank"
CODEC = "lz4"


class Spill:
    """Rows on the disk, in the parts in which they are written.

    directory: is removed by its owner, with what is left there. ranks: how many rows are written
    before each row, in order of arrival. sizes: rows of each part.
    """

    def __init__(
        self, directory: Path, ranks: npt.NDArray[np.integer[Any]], sizes: Sequence[int]
    ) -> None:
        self._directory, self._parts = directory, len(sizes)
        self._ranks = ranks
        self._ends = np.array(list(itertools.accumulate(sizes)), dtype=np.int64)
        self._at = 0

    def _path(self, number: int) -> Path:
        return self._directory / f"spill-{number}.arrows"

    def add(self, table: pa.Table) -> None:
        """Cut the next rows, in order of arrival, into their parts."""
        ranks = self._ranks[self._at : self._at + len(table)]
        self._at += len(table)
        parts = np.searchsorted(self._ends, ranks, side="right")
        order = stable_order([parts], len(parts))
        ends = np.cumsum(np.bincount(parts, minlength=self._parts))
        rows = arrow.Whole(table.append_column(RANK, pa.array(ranks))).take(order)
        for number in np.unique(parts).tolist():
            begin = int(ends[number - 1]) if number else 0
            self._append(number, rows.slice(begin, int(ends[number]) - begin))

    def _append(self, number: int, rows: pa.Table) -> None:
        """Add a stream to the part's file: thousands of parts cannot be open at once."""
        options = pa.ipc.IpcWriteOptions(compression=CODEC, use_threads=False)
        with (
            self._path(number).open("ab") as file,
            pa.ipc.new_stream(file, rows.schema, options=options) as stream,
        ):
            stream.write_table(rows)

    def parts(self) -> Iterator[pa.Table]:
        """Yield the rows of each part in their order."""
        for number in range(self._parts):
            rows = pa.concat_tables(list(self._read(number)))
            order = np.empty(len(rows), dtype=np.int64)
            begin = int(self._ends[number - 1]) if number else 0
            order[rows.column(RANK).to_numpy() - begin] = np.arange(len(rows))
            yield arrow.Whole(rows.drop_columns([RANK])).take(order)
            self._path(number).unlink()

    def _read(self, number: int) -> Iterator[pa.Table]:
        with self._path(number).open("rb") as file:
            size = self._path(number).stat().st_size
            while file.tell() < size:
                with pa.ipc.open_stream(file) as stream:
                    yield stream.read_all()
