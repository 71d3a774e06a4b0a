"""Adds up values of files, or of row groups, over those that a query reads."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from reconciler.queries.pruning import prune
from reconciler.queries.range_reads import range_reads
from reconciler.queries.read_shares import BLOCK_CELLS
from reconciler.queries.shape import Shape
from reconciler.table.filetable import FileTable, Float64


def read_sums(demand: Shape, table: FileTable, values: Sequence[Float64]) -> list[Float64]:
    """Return the sums over the files that each query reads, float64[queries] for each of `values`,
    which are float64[files]."""
    if not demand.prunable:
        return [np.full(len(demand), own.sum()) for own in values]
    reads = range_reads(demand, table)
    if reads is not None:
        return [reads.of_files(own) for own in values]
    return _by_cell(demand, table, values)


def _by_cell(demand: Shape, table: FileTable, values: Sequence[Float64]) -> list[Float64]:
    """Return the sums by a cell per query and file. einsum needs no BLAS: on a busy machine its
    threads spin for many times the work of matrices this small."""
    found = [np.zeros(len(demand)) for _ in values]
    step = max(1, BLOCK_CELLS // max(len(table), 1))
    for start in range(0, len(demand), step):
        block = slice(start, min(start + step, len(demand)))
        part = demand if step >= len(demand) else demand.take(block)
        alive = prune(part, table).astype(np.float32)
        for sums, own in zip(found, values, strict=True):
            sums[block] = np.einsum("qf,f->q", alive, own.astype(np.float32))
    return found
