"""Adds up values of files, or of row groups, over those that a query reads.

A query for a range of one column reads all files but those below its range and those above it. So
two sums over the places of bounds among the literals are enough, without a cell per query and file.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from reconciler.queries.literal_ranges import Band, Intervals, band_of
from reconciler.queries.predicate import And, Comparison, Predicate, push_not
from reconciler.queries.predicate_batch import Leaf, SlotLiterals, leaf_of
from reconciler.queries.pruning import intervals_of, partitions_of, prune
from reconciler.queries.read_shares import BLOCK_CELLS
from reconciler.queries.shape import Shape
from reconciler.table.filetable import Array, ColumnBounds, FileTable, Float64
from reconciler.table.values import Kind

BELOW, ABOVE = ("<", "<="), (">", ">=")
"""Operations that a file can only fail by its lower bound, and by its upper bound."""


def read_sums(demand: Shape, table: FileTable, values: Sequence[Float64]) -> list[Float64]:
    """Return the sums over the files that each query reads, float64[queries] for each of `values`,
    which are float64[files]."""
    if not demand.prunable:
        return [np.full(len(demand), own.sum()) for own in values]
    found = _by_range(demand, table, values)
    return _by_cell(demand, table, values) if found is None else found


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


class _Range(NamedTuple):
    """The conditions of a shape that asks for a range of one column."""

    column: ColumnBounds
    """The bounds of that column."""
    below: Leaf | None
    """The condition that a file fails by its lower bound."""
    above: Leaf | None
    """The condition that a file fails by its upper bound; the same one for an equality."""


def _by_range(demand: Shape, table: FileTable, values: Sequence[Float64]) -> list[Float64] | None:
    """Return the sums of files that are not beyond either end of a query's range, None where the
    shape asks for something else, or a file could be beyond both ends at once."""
    asked = _range_of(demand.predicate, table)
    if asked is None or (table.records < 0).any() or not _ordered(asked, demand.literals):
        return None
    below = above = None
    valued = table.records != 0
    for leaf in dict.fromkeys((asked.below, asked.above)):
        if leaf is None:
            continue
        over = intervals_of(leaf.op, asked.column)
        if not _sound(over):
            return None
        valued &= ~over.valueless
        band = band_of(leaf.op, np.asarray(demand.literals[leaf.slot]), over)
        below = band if leaf is asked.below else below
        above = band if leaf is asked.above else above
    return [_summed(below, above, np.where(valued, own, 0.0)) for own in values]


def _summed(below: Band | None, above: Band | None, own: Float64) -> Float64:
    """Return the sums of files whose lower bound is in reach, without those that end before."""
    band = below or above
    assert band is not None
    reached: Float64 = np.full(len(band.rank), own.sum())
    if below is not None:
        assert below.first is not None
        reached = np.bincount(below.first, own, below.size + 2).cumsum()[below.rank]
    if above is not None:
        assert above.last is not None
        reached = reached - np.bincount(above.last, own, above.size + 1).cumsum()[above.rank]
    return np.maximum(reached, 0.0)


def _range_of(predicate: Predicate, table: FileTable) -> _Range | None:
    pushed = push_not(predicate)
    children = pushed.children if isinstance(pushed, And) else (pushed,)
    if not all(isinstance(child, Comparison) for child in children):
        return None
    leaves = [leaf_of(child) for child in children]
    field = leaves[0].ref.field_id
    column = table.columns.get(field)
    if column is None or column.kind is Kind.BYTES or _partitioned(table, field):
        return None
    if any(leaf.ref != leaves[0].ref or leaf.ref.transform != "identity" for leaf in leaves):
        return None
    if len(leaves) == 1 and leaves[0].op == "=":
        return _Range(column, leaves[0], leaves[0])
    below, above = ([leaf for leaf in leaves if leaf.op in ops] for ops in (BELOW, ABOVE))
    if len(below) > 1 or len(above) > 1 or len(below) + len(above) < len(leaves):
        return None
    return _Range(column, *(one[0] if one else None for one in (below, above)))


def _partitioned(table: FileTable, field: int) -> bool:
    """Whether files are skipped by a partition value of the column too."""
    partitions = partitions_of(table)
    return partitions is not None and any(
        one.source_id == field for part in partitions.by_spec for one in part.spec.fields
    )


def _ordered(asked: _Range, literals: Sequence[SlotLiterals]) -> bool:
    """Whether the literals are numbers, and no query's range is empty: a file around an empty range
    is beyond both of its ends."""
    ends: list[Array] = []
    for leaf in (asked.above, asked.below):
        if leaf is not None:
            values = np.asarray(literals[leaf.slot])
            if values.dtype.kind not in "if" or (values != values).any():
                return False
            ends.append(values)
    if asked.below is asked.above or len(ends) < 2:
        return True
    assert asked.below is not None and asked.above is not None
    closed = asked.below.op == "<=" and asked.above.op == ">="
    return bool((ends[0] <= ends[1]).all() if closed else (ends[0] < ends[1]).all())


def _sound(over: Intervals) -> bool:
    """Whether no interval ends before it begins."""
    both = over.has_lower & over.has_upper
    return bool((over.lower <= over.upper)[both].all())
