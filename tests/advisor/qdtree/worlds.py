"""Random rows and queries for trees of cuts, and what bounds let queries skip, by the program's
evaluator of manifests, which no tree is built with."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from reconciler.advisor.simulate.missing import NAN, NULL, VALUE
from reconciler.queries.predicate import And, Comparison, In, IsNull, Or, Ref, StartsWith
from reconciler.queries.pruning import may_match
from reconciler.queries.shape import Shape, unrecorded_shape
from reconciler.table.filetable import ColumnBounds
from reconciler.table.values import Kind

KINDS = {"i": Kind.INT, "f": Kind.FLOAT, "S": Kind.BYTES}


def pool_of(
    columns: dict[int, np.ndarray], nulls: dict[int, np.ndarray], weight: np.ndarray
) -> Any:
    """Return what a tree needs of a pool."""
    made = {}
    for field, values in columns.items():
        null = nulls.get(field, np.zeros(len(values), dtype=bool))
        nan = np.isnan(values) & ~null if values.dtype.kind == "f" else np.zeros_like(null)
        distinct = np.unique(values[~(null | nan)])
        ranks = np.where(null | nan, -1, np.searchsorted(distinct, values))
        of = np.where(null, NULL, np.where(nan, NAN, VALUE))
        places = np.where(nan, len(distinct), np.where(null, -1, ranks))
        made[field] = SimpleNamespace(
            kind=KINDS[values.dtype.kind], ranks=ranks, distinct=distinct, sort_ranks=places,
            missing=SimpleNamespace(of=of),
        )  # fmt: skip
    return SimpleNamespace(columns=made, weight=weight)


def bounds_of(values: np.ndarray, null: np.ndarray, leaves: Sequence[np.ndarray]) -> ColumnBounds:
    """Return the bounds that manifests hold of each leaf."""
    nan = np.isnan(values) & ~null if values.dtype.kind == "f" else np.zeros_like(null)
    low, high, has, nulls, nans, counts = [], [], [], [], [], []
    for rows in leaves:
        own = np.sort(values[rows][~(null | nan)[rows]])
        has.append(len(own) > 0)
        low.append(own[0] if len(own) else values.dtype.type())
        high.append(own[-1] if len(own) else values.dtype.type())
        nulls.append(null[rows].sum())
        nans.append(nan[rows].sum())
        counts.append(len(rows))
    there = np.array(has)
    return ColumnBounds(
        0, KINDS[values.dtype.kind], np.array(low), np.array(high), there, there.copy(),
        np.array(nulls), np.array(nans), np.array(counts), np.full(len(low), -1),
        np.zeros(len(low), dtype=bool),
    )  # fmt: skip


def read_share(
    columns: dict[int, np.ndarray],
    nulls: dict[int, np.ndarray],
    weight: np.ndarray,
    leaves: Sequence[np.ndarray],
    demands: Sequence[Shape],
) -> float:
    """Return the share of rows x queries in the leaves that bounds cannot rule out."""
    none = np.zeros(len(weight), dtype=bool)
    bounds = {f: bounds_of(v, nulls.get(f, none), leaves) for f, v in columns.items()}
    records = np.array([len(rows) for rows in leaves])
    held = np.array([weight[rows].sum() for rows in leaves])
    read = total = 0.0
    for demand in demands:
        alive = may_match(demand.predicate, demand.literals, bounds, records, queries=len(demand))
        read += float(demand.executions @ (np.broadcast_to(alive, (len(demand), len(held))) @ held))
        total += float(demand.executions.sum() * held.sum())
    return read / total


def demand_of(predicate: Any, literals: tuple[Any, ...], executions: np.ndarray) -> Shape:
    return unrecorded_shape("s", predicate, (), literals, executions, executions)


def random_world(seed: int, rows: int = 400) -> tuple[Any, ...]:
    """Return columns of every kind, which rows are NULL, weights, and shapes of queries."""
    random = np.random.default_rng(seed)
    words = np.array([b"ab", b"abc", b"b", b"ba", b"c", b"ca\xff", b"d"])
    columns = {
        1: random.integers(0, 40, rows),
        2: np.round(random.normal(0, 10, rows), 1),
        3: words[random.integers(0, len(words), rows)],
        4: random.integers(-5, 5, rows),
    }
    columns[2][random.random(rows) < 0.05] = np.nan
    nulls = {4: random.random(rows) < 0.2, 3: random.random(rows) < random.choice([0.0, 0.1])}
    weight = random.choice([1.0, 2.5], rows) if seed % 2 else np.ones(rows)
    demands = []
    for _ in range(int(random.integers(1, 7))):
        slots: list[Any] = []
        queries = int(random.integers(1, 12))

        def leaf(field: int = 1, slots: list[Any] = slots, queries: int = queries) -> Any:
            ref = Ref(field)
            kind = random.integers(0, 8)
            if kind == 0:
                return IsNull(ref)
            if kind == 1 and field == 3:
                slots.append(
                    np.array([random.choice([b"a", b"ab", b"c", b"zz"]) for _ in range(queries)])
                )
                return StartsWith(ref, len(slots) - 1)
            pool = columns[field][~np.isnan(columns[field])] if field == 2 else columns[field]
            if kind == 2:
                slots.append(tuple(
                    tuple(np.unique(random.choice(pool, int(random.integers(1, 4)))).tolist())
                    for _ in range(queries)
                ))  # fmt: skip
                return In(ref, len(slots) - 1)
            values = random.choice(pool, queries)
            if field != 3 and random.random() < 0.3:  # a literal that no row has, or beyond all
                values = values + values.dtype.type(random.choice([0.5, 1.0, 1000.0]))
            slots.append(values)
            return Comparison(ref, str(random.choice(["<", "<=", "=", ">", ">="])), len(slots) - 1)

        # One condition a column: bounds do not show that two conditions on it contradict.
        fields = random.permutation([1, 2, 3, 4])[: int(random.integers(1, 4))].tolist()
        parts = [leaf(field) for field in fields]
        inner = And(tuple(parts)) if len(parts) > 1 else parts[0]
        predicate = (
            Or((inner, leaf(int(random.integers(1, 5))))) if random.random() < 0.3 else inner
        )
        demands.append(demand_of(predicate, tuple(slots), random.integers(1, 9, queries) * 1.0))
    return columns, nulls, weight, demands
