"""The partitions that rows get under a partition spec that the table may not have yet.

Used by the what-if of a target spec (PTO section 3.3.2, Algorithm 3, lines 4 to 6): rows are
grouped by target partition before they are sorted and cut, and queries prune by partition values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from reconciler.advisor.simulate.missing import NULL
from reconciler.advisor.simulate.pool import Pool, PoolColumn
from reconciler.queries import transforms
from reconciler.table.filetable import FileTable, Int64, Partition
from reconciler.table.schema import PartitionField, PartitionSpec, Schema


@dataclass(frozen=True)
class TargetPartitions:
    """The partitions that the rows of a pool get under a partition spec."""

    spec: PartitionSpec
    """The partition spec."""
    number: Int64
    """int64[rows of the pool]: index into `values` of the row's partition."""
    values: tuple[Partition, ...]
    """Partition values of each partition, in the order of the spec's fields."""


def target_partitions(pool: Pool, spec: PartitionSpec) -> TargetPartitions:
    """Return the partitions of the pool's rows under `spec`.

    Raises KeyError if the source column of a field was not sampled.
    """
    code = np.zeros(len(pool), dtype=np.int64)
    columns: list[tuple[Int64, list[object]]] = []
    for field in spec.fields:
        if field.transform == "void":
            columns.append((np.zeros(len(pool), dtype=np.int64), [None]))
            continue
        here, values = _values(pool.columns[field.source_id], field, pool.files.schema)
        columns.append((here, values))
        code = code * len(values) + here
        code = np.unique(code, return_inverse=True)[1].reshape(-1).astype(np.int64)
    _, first, number = np.unique(code, return_index=True, return_inverse=True)
    found = tuple(tuple(values[here[row]] for here, values in columns) for row in first.tolist())
    return TargetPartitions(spec, number.reshape(-1).astype(np.int64), found)


def number_of_partitions(pool: Pool, target: TargetPartitions) -> float:
    """Return about how many partitions all rows are in: those of the rows sampled from their own
    files, and others by how many were seen once and twice (Chao and Lin 2012, for samples without
    replacement).

    Rows that a file without a sample borrows have its own range of each column, but not values that
    occur together: they multiply the partitions as far as they bring new values of a single field.
    """
    seen = np.bincount(target.number[pool.native], minlength=len(target.values))
    once, twice = float((seen == 1).sum()), float((seen == 2).sum())
    drawn, rows = float(seen.sum()), float(pool.weight.sum())
    found, every = float((seen > 0).sum()), float(len(target.values))
    if not found:  # of many files, those with a sample may all be left out of the pool
        return min(every, rows)
    if once and 2.0 <= drawn < rows:
        share = drawn / rows
        found += once**2 / (2.0 * twice * drawn / (drawn - 1.0) + once * share / (1.0 - share))
    own = [value for value, times in zip(target.values, seen.tolist(), strict=True) if times]
    grown = found * float(np.prod(_numbers(target.values) / np.maximum(_numbers(own), 1)))
    return min(grown, max(found, every), rows)


def _numbers(values: Sequence[Partition]) -> Int64:
    """Return how many values each field has, int64[fields]."""
    return np.array([len(set(column)) for column in zip(*values, strict=True)], dtype=np.int64)


def _values(
    column: PoolColumn, field: PartitionField, schema: Schema
) -> tuple[Int64, list[object]]:
    """Return per row an index into the field's distinct partition values; the first is None."""
    source = schema.by_id[field.source_id].type
    results = transforms.apply(field.transform, source, column.distinct)
    distinct, of_rank = np.unique(results, return_inverse=True)
    index = np.where(column.ranks >= 0, of_rank.reshape(-1)[np.maximum(column.ranks, 0)] + 1, 0)
    values: list[object] = [None, *distinct.tolist()]
    nan = (column.ranks < 0) & (column.missing.of != NULL)
    if nan.any():
        values.append(float("nan"))
        index = np.where(nan, len(values) - 1, index)
    return index.astype(np.int64), values


def placed(files: FileTable, spec: PartitionSpec, values: Sequence[Partition]) -> FileTable:
    """Return simulated files in the partitions of `spec`; values: of each file."""
    known = list(dict.fromkeys(values))
    at = {value: number for number, value in enumerate(known)}
    return replace(
        files,
        specs={spec.spec_id: spec},
        default_spec_id=spec.spec_id,
        spec_id=np.full(len(files), spec.spec_id, dtype=files.spec_id.dtype),
        partition=np.array([at[value] for value in values], dtype=files.partition.dtype),
        partitions=tuple((spec.spec_id, value) for value in known),
    )
