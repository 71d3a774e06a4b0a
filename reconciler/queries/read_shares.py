"""Returns which files the queries of a shape read, and what share of each file.

The share comes from the row groups of known footers and from sampled rows, else from the overlap
with the file's bounds. Blocks of queries are evaluated against tiles of files, so that memory stays
bounded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from reconciler.queries.pruning import may_match, prune
from reconciler.queries.range_overlap import Index, Shares, covered_shares
from reconciler.queries.row_filter import matches
from reconciler.queries.shape import Shape
from reconciler.queries.table_view import TableView, projected_bytes
from reconciler.table.filetable import Bool, FileTable, Int64

Float32 = npt.NDArray[np.float32]

BLOCK_CELLS = 2_000_000
"""Queries x files evaluated at once: bounds the memory, does not change the result."""

MATCH_CELLS = 16 * BLOCK_CELLS
"""Queries x files pruned at once, one byte each."""

TILE_CELLS = 1 << 16
"""Queries x files whose shares are computed at once: temporaries of this size stay in the cache."""

OPENED = np.float32(1e-9)
"""Share of a file of which no row group is read: it is opened all the same if its bounds in the
manifest may match."""

SPARSE = 0.5
"""If fewer files of a tile than this share are read by any query, only those are computed."""


@dataclass(frozen=True, slots=True)
class Tile:
    """What a block of queries reads of some files."""

    files: Index
    """The files."""
    share: Float32
    """float32[queries, files]: share of the projected bytes that is read."""
    used: Float32
    """float32[queries, files]: share of the rows that match; never more than `share`."""

    @property
    def opened(self) -> Int64:
        """Return how many of the files each query opens, int64[queries]."""
        return np.array([np.count_nonzero(row) for row in self.share > 0], dtype=np.int64)


def read_shares(view: TableView, demand: Shape) -> Iterator[tuple[slice, Iterator[Tile]]]:
    """Yield, per block of queries, the files that they read, as tiles without a common file.

    A file of several row groups without a known footer counts as read in proportion to the overlap
    with its bounds, and at least one row group (docs/design/definitions.md#read-cost). Rows needed
    come from the sample if there is one, else from the overlap with the bounds.
    """
    files = len(view.files)
    wide = max(files, 0 if view.row_groups is None else len(view.row_groups), 1)
    step = max(1, BLOCK_CELLS // wide)
    every = range(0, len(demand), step)
    blocks = [slice(start, min(start + step, len(demand))) for start in every]
    if not demand.prunable:
        for block in blocks:
            ones = np.ones((block.stop - block.start, files), dtype=np.float32)
            yield block, iter([Tile(slice(0, files), ones, ones)])
        return
    shares = covered_shares(view.known, demand.predicate, demand.literals)
    one_group = np.minimum(1.0, view.row_group_bytes / np.maximum(view.files.bytes, 1)).astype(
        np.float32
    )
    for block, match in zip(blocks, _matches(view.files, demand, blocks), strict=True):
        part = demand.take(block)
        known = _row_group_shares(view, part), _sampled_shares(view, part)
        yield block, _tiles(block, match, shares, one_group, *known)


def _matches(files: FileTable, demand: Shape, blocks: Sequence[slice]) -> Iterator[Bool]:
    """Yield `prune` per block. Many blocks are evaluated together, because every bound is
    placed among all of the literals each time."""
    step = max(1, MATCH_CELLS // max(blocks[0].stop * len(files), 1)) if blocks else 1
    for first in range(0, len(blocks), step):
        some = blocks[first : first + step]
        start = some[0].start
        match = prune(demand.take(slice(start, some[-1].stop)), files)
        for block in some:
            yield match[block.start - start : block.stop - start]


@dataclass(frozen=True, slots=True)
class _KnownShares:
    """Shares of some files that are known better than from bounds."""

    known: Int64
    """int64[known]: rows of the file table of these files, ascending."""
    share: Float32
    """float32[queries, known]: the shares."""

    def replace(self, share: Float32, files: Index, first: int, last: int) -> None:
        """Set the shares of those of `files` that are known. share: float32[queries, files], which
        is changed. All of `files` are between the rows `first` and `last`."""
        start, stop = np.searchsorted(self.known, (first, last))
        if start == stop:
            return
        rows = self.known[start:stop]
        if isinstance(files, slice):
            share[:, rows - first] = self.share[:, start:stop]
            return
        place = np.minimum(np.searchsorted(files, rows), len(files) - 1)
        here = np.flatnonzero(files[place] == rows)
        share[:, place[here]] = self.share[:, start + here]


def _tiles(
    block: slice,
    match: Bool,
    shares: Shares,
    one_group: Float32,
    of_row_groups: _KnownShares | None,
    of_sample: _KnownShares | None,
) -> Iterator[Tile]:
    """Yield the files that some query of the block reads, as many at once as stay in the CPU's
    cache."""
    width = max(1, TILE_CELLS // max(len(match), 1))
    for first in range(0, match.shape[1], width):
        last = min(first + width, match.shape[1])
        mine, files = match[:, first:last], slice(first, last)
        near = np.flatnonzero(mine.any(axis=0))
        if not len(near):
            continue
        index: Index = files
        if len(near) < SPARSE * (last - first):
            index, mine = near + first, mine[:, near]
        used = shares(block, index)
        share = np.maximum(used, one_group[index])
        if of_row_groups is not None:
            of_row_groups.replace(share, index, first, last)
        if of_sample is not None:
            of_sample.replace(used, index, first, last)
        share *= mine
        np.maximum(share, OPENED * mine, out=share)
        np.minimum(used, share, out=used)
        yield Tile(index, share, used)


def _row_group_shares(view: TableView, part: Shape) -> _KnownShares | None:
    """Return the share of projected bytes in surviving row groups, for files with a known
    footer."""
    groups, owner = view.row_groups, view.group_file
    if groups is None or owner is None or not len(owner):
        return None
    alive = may_match(
        part.predicate, part.literals, groups.columns, groups.records,
        schema=groups.schema, queries=len(part),
    )  # fmt: skip
    starts = np.flatnonzero(np.diff(owner, prepend=-1))
    chunk = projected_bytes(groups, part.projection).astype(np.float32) + np.float32(1e-3)
    whole = np.add.reduceat(chunk, starts)
    share = np.add.reduceat(alive * chunk, starts, axis=1) / whole
    return _KnownShares(owner[starts], share.astype(np.float32, copy=False))


def _sampled_shares(view: TableView, part: Shape) -> _KnownShares | None:
    """Return the matching share of the sampled rows, for files with a sample."""
    sample = view.probe
    if sample is None or not len(sample):
        return None
    starts = np.flatnonzero(np.diff(sample.file, prepend=-1))
    weight = sample.weight.astype(np.float32)
    whole = np.maximum(np.add.reduceat(weight, starts), np.float32(1e-9))
    hit = matches(
        part.predicate, part.literals, sample.values, sample.null,
        schema=view.files.schema, queries=len(part),
    )  # fmt: skip
    share = np.add.reduceat(hit * weight, starts, axis=1) / whole
    return _KnownShares(sample.file[starts], share.astype(np.float32, copy=False))
