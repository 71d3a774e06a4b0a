"""What a history says about row-level operations, from summaries as the engines write them."""

from __future__ import annotations

from typing import Any

import pytest

from reconciler.catalog.operations import operations_of
from reconciler.render.deletes_text import _span
from reconciler.table.observation import SnapshotInfo
from reconciler.table.operations import Encoding, Kind
from reconciler.table.summary_keys import ATTEMPT_ID
from reconciler.table.times import DAY_MS
from tests.said import Said

HOUR_MS = 3_600_000
SPARK = {"engine-name": "spark", "engine-version": "4.1.4", "spark.app.id": "local-1"}
FLINK = {"flink.job-id": "7", "flink.max-committed-checkpoint-id": "3"}
MERGE = "spark.merge-into.num-target-rows-"


def snapshot(number: int, operation: str, at_ms: int = 0, **summary: Any) -> SnapshotInfo:
    named = {key.replace("_", "-"): str(value) for key, value in summary.items()}
    return SnapshotInfo(number, number, at_ms, operation, named)


def with_keys(base: SnapshotInfo, more: dict[str, str]) -> SnapshotInfo:
    return SnapshotInfo(
        base.snapshot_id, base.sequence_number, base.timestamp_ms, base.operation,
        {**base.summary, **more},
    )  # fmt: skip


CASES: dict[str, tuple[SnapshotInfo, tuple[Any, ...]]] = {
    "a vector writer folds older positions into its vectors": (
        snapshot(5, "delete", added_dvs=8, removed_dvs=8, added_delete_files=8,
                 added_position_deletes=29_922, removed_position_deletes=15_034,
                 changed_partition_count=8),
        (Kind.DELETE, Encoding.MERGE_ON_READ, 14_888, False, 8, 8),
    ),
    "an update deletes as many rows as it adds": (
        snapshot(5, "overwrite", added_position_delete_files=2, added_position_deletes=40,
                 added_records=40, added_data_files=2),
        (Kind.UPDATE, Encoding.MERGE_ON_READ, 40, False, 2, None),
    ),
    "a MERGE on copy-on-write counts what it changed, not what it copied": (
        with_keys(
            snapshot(5, "overwrite", deleted_data_files=3, added_data_files=3,
                     deleted_records=900, added_records=950),
            {f"{MERGE}updated": "70", f"{MERGE}deleted": "5", f"{MERGE}copied": "825",
             f"{MERGE}inserted": "55"},
        ),
        (Kind.MERGE, Encoding.COPY_ON_WRITE, 75, False, 3, None),
    ),
    "an UPDATE on copy-on-write does not say how many rows": (
        snapshot(5, "overwrite", deleted_data_files=3, added_data_files=3,
                 deleted_records=900, added_records=900),
        (Kind.UPDATE, Encoding.COPY_ON_WRITE, None, False, 3, None),
    ),
    "a DELETE on copy-on-write removed the rows that are fewer afterwards": (
        with_keys(
            snapshot(5, "overwrite", deleted_data_files=3, added_data_files=3,
                     deleted_records=900, added_records=880),
            {"engine-name": "spark", "engine-version": "4.1.4"},
        ),
        (Kind.DELETE, Encoding.COPY_ON_WRITE, 20, False, 3, None),
    ),
    "of an engine that does not count merges it may be a MERGE": (
        with_keys(
            snapshot(5, "overwrite", deleted_data_files=3, added_data_files=3,
                     deleted_records=900, added_records=880),
            {"engine-name": "spark", "engine-version": "3.5.1"},
        ),
        (Kind.DELETE, Encoding.COPY_ON_WRITE, None, False, 3, None),
    ),
    "equality deletes are an upper bound, and their files are unknown": (
        snapshot(5, "overwrite", added_equality_delete_files=1, added_equality_deletes=500,
                 added_position_delete_files=1, added_position_deletes=20, added_records=520),
        (Kind.UPSERT, Encoding.EQUALITY, 500, True, None, None),
    ),
    "whole files are dropped": (
        snapshot(5, "delete", deleted_data_files=4, deleted_records=400),
        (Kind.DELETE, Encoding.WHOLE_FILES, 400, False, 4, None),
    ),
    "whole partitions are replaced": (
        with_keys(
            snapshot(5, "overwrite", deleted_data_files=4, added_data_files=1,
                     deleted_records=400, added_records=90),
            {"replace-partitions": "true"},
        ),
        (Kind.OVERWRITE, Encoding.WHOLE_FILES, 400, False, 4, None),
    ),
    "a damaged count is unknown": (
        snapshot(5, "delete", deleted_data_files=4, deleted_records="many"),
        (Kind.DELETE, Encoding.WHOLE_FILES, None, False, 4, None),
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    ("keys", "inserted"),
    [({}, None), ({"inserted": "55", "updated": "3"}, 55), ({"updated": "3"}, 0)],
)
def test_a_merge_says_how_many_rows_it_inserted(keys: dict[str, str], inserted: int | None) -> None:
    """It decides how Spark joins; engines leave out counts of zero."""
    overwrite = snapshot(5, "overwrite", deleted_data_files=3, added_data_files=3,
                         deleted_records=900, added_records=950)  # fmt: skip
    merge = with_keys(overwrite, {f"{MERGE}{key}": value for key, value in keys.items()})
    assert operations_of([merge]).every[0].inserted_rows == inserted


@pytest.mark.parametrize("case", list(CASES))
def test_an_operation_is_known_by_what_it_added_and_removed(case: str) -> None:
    given, expected = CASES[case]
    (found,) = operations_of((given,)).every
    seen = (found.kind, found.encoding, found.rows, found.at_most, found.files, found.partitions)
    assert seen == expected


def test_appends_rewrites_and_our_own_commits_are_not_operations() -> None:
    history = (
        snapshot(4, "append", added_records=5),
        snapshot(3, "replace", deleted_data_files=4, added_data_files=1),
        with_keys(snapshot(2, "delete", added_dvs=3), {ATTEMPT_ID: "x"}),
        snapshot(1, "overwrite", removed_delete_files=3),
    )
    assert operations_of(history).every == ()


def test_a_rate_is_that_of_the_retained_history_and_of_at_least_a_young_tables_day(
    said: Said,
) -> None:
    def history(first: int) -> list[SnapshotInfo]:
        return [
            with_keys(snapshot(first + n, "delete", at_ms=n * HOUR_MS, added_dvs=1), SPARK)
            for n in reversed(range(7))
        ]

    young, old = operations_of(history(1)), operations_of(history(900))
    assert (young.span_ms, young.per_day) == (DAY_MS, 7.0)
    assert young.covered_ms == 6 * HOUR_MS and old.covered_ms is None
    for operations in (young, old):
        said(_span(operations, None))
    assert (old.span_ms, old.per_day) == (6 * HOUR_MS, 28.0)


def test_kinds_are_summed_up_by_engine_and_unknown_is_not_zero() -> None:
    unknown = snapshot(9, "overwrite", deleted_data_files=3, added_data_files=3,
                       deleted_records=9, added_records=9)  # fmt: skip
    delete = snapshot(8, "delete", added_dvs=2, added_position_deletes=10)
    equality = snapshot(7, "overwrite", added_equality_deletes=3, added_records=3)
    found = operations_of(
        (
            with_keys(unknown, SPARK), with_keys(delete, SPARK), with_keys(delete, SPARK),
            with_keys(delete, {"trino_query_id": "q"}), with_keys(equality, FLINK), delete,
        )
    ).summaries()  # fmt: skip
    assert [(one.kind, one.engine, one.count, one.rows) for one in found] == [
        ("delete", "spark", 2, 10),
        ("delete", "", 1, 10),
        ("delete", "trino", 1, 10),
        ("update", "spark", 1, None),
        ("upsert", "flink", 1, 3),
    ]
