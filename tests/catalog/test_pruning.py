"""The oracle on real tables: the files that pyiceberg's own scan plans, no more and no fewer."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg import expressions as ex
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform, DayTransform, IdentityTransform, TruncateTransform
from pyiceberg.types import DoubleType, LongType, NestedField, StringType, TimestampType

from reconciler.queries.fragments import Fragment, workload_of_fragments
from reconciler.queries.predicate import (
    And,
    Comparison,
    In,
    IsNaN,
    IsNull,
    Not,
    Or,
    Predicate,
    Ref,
    StartsWith,
)
from reconciler.queries.pruning import prune
from reconciler.table.observation import Observation
from tests.encoding import encode

EVENTS = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "ts", TimestampType(), required=False),
    NestedField(3, "name", StringType(), required=False),
    NestedField(4, "price", DoubleType(), required=False),
)
DAY = dt.datetime(1969, 12, 28)


def batch(start: int, count: int = 6) -> pa.Table:
    """Neighbouring keys with NULL, NaN, and names longer than bounds are kept."""
    numbers = range(start, start + count)
    return pa.table(
        {
            "id": pa.array([None if n % 7 == 3 else n for n in numbers], pa.int64()),
            "ts": pa.array([DAY + dt.timedelta(hours=9 * n) for n in numbers], pa.timestamp("us")),
            "name": [None if n % 5 == 4 else f"user-{n % 9}-{n:020d}" for n in numbers],
            "price": pa.array([float("nan") if n % 6 == 5 else n / 2 for n in numbers]),
        }
    )


def at(hours: int) -> dt.datetime:
    return DAY + dt.timedelta(hours=hours)


CASES: list[tuple[Predicate, list[tuple[str, Any]], Any]] = [
    (Comparison(Ref(1), "=", 0), [("long", 14)], ex.EqualTo("id", 14)),
    (Comparison(Ref(1), ">", 0), [("long", 30)], ex.GreaterThan("id", 30)),
    (In(Ref(1), 0), [("long", (2, 33))], ex.In("id", [2, 33])),
    (
        And((Comparison(Ref(2), ">=", 0), Comparison(Ref(2), "<", 1))),
        [("timestamp", at(40)), ("timestamp", at(100))],
        ex.And(
            ex.GreaterThanOrEqual("ts", at(40).isoformat()),
            ex.LessThan("ts", at(100).isoformat()),
        ),
    ),
    (
        Not(Comparison(Ref(2), "<", 0)),
        [("timestamp", at(200))],
        ex.GreaterThanOrEqual("ts", at(200).isoformat()),
    ),
    (StartsWith(Ref(3), 0), [("string", "user-3")], ex.StartsWith("name", "user-3")),
    (Not(StartsWith(Ref(3), 0)), [("string", "user")], ex.NotStartsWith("name", "user")),
    (Comparison(Ref(3), "<=", 0), [("string", "user-1")], ex.LessThanOrEqual("name", "user-1")),
    (
        Or((IsNull(Ref(1)), Comparison(Ref(4), "<", 0))),
        [("double", 2.0)],
        ex.Or(ex.IsNull("id"), ex.LessThan("price", 2.0)),
    ),
    (IsNaN(Ref(4)), [], ex.IsNaN("price")),
    (
        And((Not(IsNull(Ref(1))), Comparison(Ref(1), "!=", 0))),
        [("long", 5)],
        ex.And(ex.NotNull("id"), ex.NotEqualTo("id", 5)),
    ),
]
SPECS = {
    "unpartitioned": (),
    "day": (PartitionField(2, 1000, DayTransform(), "day"),),
    "bucket": (PartitionField(1, 1000, BucketTransform(4), "b"),),
    "truncate": (PartitionField(3, 1000, TruncateTransform(6), "t"),),
    "two fields": (
        PartitionField(1, 1000, BucketTransform(2), "b"),
        PartitionField(3, 1001, TruncateTransform(6), "t"),
    ),
}


@pytest.mark.parametrize("name", SPECS)
def test_the_oracle_keeps_the_files_that_pyiceberg_plans(
    catalog: Any, look: Callable[..., Observation], name: str
) -> None:
    table = catalog.create_table("sales.t", EVENTS, partition_spec=PartitionSpec(*SPECS[name]))
    for start in range(0, 36, 6):
        table.append(batch(start))
    assert_every_case(table, look())


def test_files_of_an_older_spec_are_judged_by_their_own(
    catalog: Any, look: Callable[..., Observation]
) -> None:
    table = catalog.create_table("sales.t", EVENTS, partition_spec=PartitionSpec(*SPECS["day"]))
    for start in range(0, 18, 6):
        table.append(batch(start))
    with table.update_spec() as update:
        update.remove_field("day")
        update.add_field("name", IdentityTransform(), "by_name")
    for start in range(18, 36, 6):
        table.append(batch(start))
    seen = look()
    assert len(set(seen.files.spec_id.tolist())) == 2
    assert_every_case(table, seen)


def assert_every_case(table: Any, seen: Observation) -> None:
    pruned = 0
    for predicate, literals, expression in CASES:
        scalars = tuple(
            tuple(encode(kind, v) for v in value)
            if isinstance(value, tuple)
            else encode(kind, value)
            for kind, value in literals
        )
        fragment = Fragment(
            "log", 0, seen.uuid, predicate, scalars, (None,) * len(scalars), (1,), 1.0, 0, "spark"
        )
        (kept,) = prune(workload_of_fragments([fragment]).shapes[0], seen.files)
        planned = {task.file.file_path for task in table.scan(row_filter=expression).plan_files()}
        assert set(seen.files.path[kept].tolist()) == planned, expression
        pruned += len(seen.files) - len(planned)
    assert pruned > len(CASES)
