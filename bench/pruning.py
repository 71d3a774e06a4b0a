"""Pruning against pyiceberg's evaluator on the same files, and alone at full size.

    python -m bench.pruning

Ratios hold across machines, absolute numbers do not. Both sides answer the same questions and the
answers are compared.
"""

from __future__ import annotations

import resource
import struct
import time
from typing import Any

import numpy as np
from pyiceberg.expressions import And as IcebergAnd
from pyiceberg.expressions import GreaterThanOrEqual, LessThanOrEqual
from pyiceberg.expressions.visitors import _InclusiveMetricsEvaluator
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from reconciler.queries.predicate import And, Comparison, In, Predicate, Ref, StartsWith
from reconciler.queries.pruning import may_match
from reconciler.table.filetable import ColumnBounds
from reconciler.table.values import Kind

DOMAIN = 10_000_000


def bounds(field_id: int, lower: Any, upper: Any) -> ColumnBounds:
    yes = np.ones(len(lower), dtype=np.bool_)
    zero = np.zeros(len(lower), dtype=np.int64)
    kind = Kind.BYTES if lower.dtype.kind == "S" else Kind.INT
    return ColumnBounds(
        field_id, kind, lower, upper, yes, yes, zero, zero - 1, zero + 1000, zero + 4096, ~yes
    )


def files(count: int, rng: np.random.Generator) -> dict[int, ColumnBounds]:
    """Two integer columns, one of them clustered, and a string column."""
    clustered = np.sort(rng.integers(0, DOMAIN, count))
    scattered = rng.integers(0, DOMAIN, count)
    names = np.array([b"%08d-name" % v for v in clustered])
    highest = np.array([b"%08d-name" % (v + 500) for v in clustered])
    return {
        1: bounds(1, clustered, clustered + 5_000),
        2: bounds(2, scattered // 2, scattered // 2 + DOMAIN // 2),
        3: bounds(3, names, highest),
    }


BETWEEN = (Comparison(Ref(1), ">=", 0), Comparison(Ref(1), "<=", 1))


def against_pyiceberg(count: int, queries: int) -> None:
    rng = np.random.default_rng(0)
    columns = files(count, rng)
    low = rng.integers(0, DOMAIN, queries)
    records = np.full(count, 1000, dtype=np.int64)
    started = time.perf_counter()
    ours = may_match(And(BETWEEN), [low, low + 50_000], columns, records)
    seconds = time.perf_counter() - started

    data_files = [
        DataFile.from_args(
            record_count=1000,
            value_counts={1: 1000},
            null_value_counts={1: 0},
            lower_bounds={1: struct.pack("<q", a)},
            upper_bounds={1: struct.pack("<q", b)},
        )
        for a, b in zip(columns[1].lower.tolist(), columns[1].upper.tolist(), strict=True)
    ]
    schema = Schema(NestedField(1, "x", LongType(), False))
    started = time.perf_counter()
    theirs = np.empty_like(ours)
    for q, a in enumerate(low.tolist()):
        range_of = IcebergAnd(GreaterThanOrEqual("x", a), LessThanOrEqual("x", a + 50_000))
        evaluator = _InclusiveMetricsEvaluator(schema, range_of)
        theirs[q] = [evaluator.eval(file) for file in data_files]
    their_seconds = time.perf_counter() - started
    assert np.array_equal(ours, theirs)
    print(f"{count:,} files x {queries:,} queries, BETWEEN, answers equal")
    print(f"  ours {seconds * 1000:8.1f} ms     pyiceberg {their_seconds * 1000:10.1f} ms")
    ratio = seconds / their_seconds
    print(f"  ratio ours / pyiceberg {ratio:.5f} (1 : {1 / ratio:,.0f})")


def at_full_size(count: int, queries: int) -> None:
    rng = np.random.default_rng(1)
    columns = files(count, rng)
    records = np.full(count, 1000, dtype=np.int64)
    low = rng.integers(0, DOMAIN, queries)
    prefixes = np.array([b"%04d" % (v // 10_000) for v in low])
    lists = tuple(tuple(rng.integers(0, DOMAIN, 10).tolist()) for _ in range(queries))
    shapes: dict[str, tuple[Predicate, list[Any]]] = {
        "BETWEEN": (And(BETWEEN), [low, low + 50_000]),
        "BETWEEN on one and = on another column": (
            And((*BETWEEN, Comparison(Ref(2), "=", 2))), [low, low + 50_000, low],
        ),
        "LIKE 'x%'": (StartsWith(Ref(3), 0), [prefixes]),
        "IN of 10": (In(Ref(1), 0), [lists]),
    }  # fmt: skip
    print(f"{count:,} files x {queries:,} queries; the result is {count * queries / 1e6:.0f} MB")
    for name, (predicate, literals) in shapes.items():
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        started = time.perf_counter()
        kept = may_match(predicate, literals, columns, records)
        seconds = time.perf_counter() - started
        after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        print(
            f"  {name:40} {seconds * 1000:8.0f} ms   kept {kept.mean():7.3%}   "
            f"peak memory +{(after - before) / 1024:.0f} MB"
        )
        del kept


if __name__ == "__main__":
    against_pyiceberg(10_000, 100)
    at_full_size(100_000, 1_000)
