"""How queries use the columns of a table: the input of every choice of candidates.

Frequency and selectivity of PTO, section 3.2.1: the queries in which a column is a filter, and the
mean share of the table's rows that these queries match (of the whole scan, not of the column).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from reconciler.advisor.simulate.missing import NULL
from reconciler.advisor.simulate.pool import Pool
from reconciler.queries.predicate import Comparison as Compared
from reconciler.queries.predicate import In, Ref, bounded_fields_of, fields_of, walk
from reconciler.queries.row_filter import matches
from reconciler.queries.shape import Shape
from reconciler.table.filetable import Array, Bool, Float64
from reconciler.table.values import Kind


@dataclass(frozen=True, slots=True)
class ColumnUse:
    """How the queries use one column as a filter."""

    field_id: int
    """Field id of the column."""
    frequency: float
    """Share of all queries that filter on the column."""
    selectivity: float
    """Mean share of the table's rows that these queries match."""
    equality: float
    """Share of these queries that ask for single values."""


@dataclass(frozen=True)
class Usage:
    """What every query of a workload filters on."""

    weight: Float64
    """float64[queries]: recorded executions."""
    selectivity: Float64
    """float64[queries]: share of the table's rows that the query matches."""
    filters: tuple[frozenset[int], ...]
    """Per query, field ids of the columns of its predicate."""
    equal: tuple[frozenset[int], ...]
    """Per query, those of `filters` that it compares with single values only."""

    @cached_property
    def total(self) -> float:
        return max(float(self.weight.sum()), 1e-12)

    def union_frequency(self, columns: Sequence[int]) -> float:
        """Return the share of queries that filter on any of the columns."""
        return float(self.weight[self._any(columns)].sum()) / self.total

    def mean_selectivity(self, columns: Sequence[int]) -> float:
        """Return the mean share of rows matched by queries that filter on any of the columns."""
        mine = self._any(columns)
        weight = float(self.weight[mine].sum())
        return float(self.weight[mine] @ self.selectivity[mine]) / weight if weight else 1.0

    def _any(self, columns: Sequence[int]) -> Bool:
        wanted = frozenset(columns)
        return np.array([bool(wanted & found) for found in self.filters], dtype=bool)

    @cached_property
    def uses(self) -> tuple[ColumnUse, ...]:
        columns = sorted(frozenset().union(*self.filters)) if self.filters else []
        found = []
        for column in columns:
            mine = np.array([column in filters for filters in self.filters])
            single = np.array([column in equal for equal in self.equal])
            weight = float(self.weight[mine].sum())
            if weight > 0.0:
                found.append(
                    ColumnUse(
                        column,
                        weight / self.total,
                        float(self.weight[mine] @ self.selectivity[mine]) / weight,
                        float(self.weight[single].sum()) / weight,
                    )
                )
        return tuple(sorted(found, key=lambda use: (-use.frequency, use.selectivity)))


def usage(pool: Pool, demands: Sequence[Shape]) -> Usage:
    """Return what recorded queries filter on, with selectivities measured on the sampled rows."""
    share = pool.weight / max(float(pool.weight.sum()), 1e-12)
    weight, selectivity, filters, equal = [], [], [], []
    for demand in demands:
        columns, single = _filters(demand)
        kept = np.flatnonzero(demand.weight > 0.0)
        part = demand.take(kept)
        if not demand.prunable or not len(part):
            matched = np.ones(len(part))
        else:
            matched = np.einsum("qr,r->q", matched_rows(pool, part), share)
        weight.append(part.weight)
        selectivity.append(matched)
        filters += [columns] * len(part)
        equal += [single] * len(part)
    if not weight:
        return Usage(np.zeros(0), np.zeros(0), (), ())
    return Usage(
        np.concatenate(weight), np.concatenate(selectivity), tuple(filters), tuple(equal)
    )  # fmt: skip


def matched_rows(pool: Pool, demand: Shape) -> Bool:
    """Return bool[queries, rows]: the sampled rows that each query matches. A query of columns that
    were not sampled may match any row."""
    fields = [field for field in fields_of(demand.predicate) if field in pool.columns]
    if not fields:
        return np.ones((len(demand), len(pool)), dtype=np.bool_)
    return matches(
        demand.predicate,
        demand.literals,
        {field: _values(pool, field) for field in fields},
        {field: pool.columns[field].missing.of == NULL for field in fields},
        schema=pool.files.schema,
        queries=len(demand),
    )


def _filters(demand: Shape) -> tuple[frozenset[int], frozenset[int]]:
    """Return the columns of the predicate, and those compared with single values only."""
    if not demand.prunable:
        return frozenset(), frozenset()
    ranged: set[int] = set()
    single: set[int] = set()
    for node in walk(demand.predicate):
        ref: Ref | None = getattr(node, "ref", None)
        if ref is None or ref.unbounded:
            continue
        alone = isinstance(node, In) or (isinstance(node, Compared) and node.op == "=")
        (single if alone else ranged).add(ref.field_id)
    return frozenset(bounded_fields_of(demand.predicate)), frozenset(single - ranged)


def _values(pool: Pool, field: int) -> Array:
    column = pool.columns[field]
    values = column.distinct[np.maximum(column.ranks, 0)]
    if column.kind is Kind.FLOAT:
        values = np.where((column.ranks < 0) & (column.missing.of != NULL), np.nan, values)
    return values
