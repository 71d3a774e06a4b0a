"""The file table: groups by partition, selection of rows, bounds that end in NUL."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.table.filetable import beyond_trailing_nul
from tests.table.tables import File, table_of


def test_groups_list_every_file_once_under_its_partition() -> None:
    files = [File(((i,),), partition=p) for i, p in enumerate([2, 0, 2, 1, 0])]
    groups = table_of(files, ("long",)).groups()
    assert [(spec, values, rows.tolist()) for spec, values, rows in groups] == [
        (1, (0,), [1, 4]),
        (1, (1,), [3]),
        (1, (2,), [0, 2]),
    ]


def test_taking_rows_takes_bounds_along_and_leaves_partitions_as_they_are() -> None:
    table = table_of([File(((i,), (i + 5,)), partition=i % 2) for i in range(6)], ("long",))
    part = table.take(np.array([4, 1]))
    assert part.path.tolist() == ["f4", "f1"]
    assert part.columns[1].lower.tolist() == [4, 1]
    assert part.columns[1].upper.tolist() == [9, 6]
    assert part.partitions == table.partitions
    assert part.total_bytes == int(part.bytes.sum())
    assert part.total_records == 4
    mask = table.columns[1].lower > 3
    assert table.take(mask).path.tolist() == ["f4", "f5"]


def test_bounds_count_only_where_both_ends_are_known() -> None:
    column = table_of([File(((None,),)), File(((3,),))], ("long",)).columns[1]
    assert column.bounded.tolist() == [False, True]


@given(st.lists(st.binary(max_size=6), min_size=1, max_size=8))
def test_an_upper_bound_stays_at_or_above_what_was_written(bounds: list[bytes]) -> None:
    length = np.array([len(b) for b in bounds], dtype=np.int64)
    stored = beyond_trailing_nul(np.array(bounds, dtype=np.bytes_), length).tolist()
    for written, kept in zip(bounds, stored, strict=True):
        assert kept >= written
        assert kept == written or written.endswith(b"\0")


@pytest.mark.parametrize("value", [b"a\0", b"\0", b"ab\0\0"])
def test_a_raised_bound_is_the_next_one_that_numpy_can_hold(value: bytes) -> None:
    (kept,) = beyond_trailing_nul(np.array([value]), np.array([len(value)])).tolist()
    assert kept == value + b"\x01"
