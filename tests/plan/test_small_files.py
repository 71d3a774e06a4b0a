"""Which small files are merged, and what the target size is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from reconciler.plan.small_files import (
    APART,
    AS_MANY,
    LARGEST_SHARE,
    MIB,
    UNEQUAL,
    auto_target_bytes,
    small_files,
    small_mask,
)
from reconciler.table.filetable import FileTable
from reconciler.table.schema import SortColumn
from tests.said import Said
from tests.table.tables import ROW_BYTES, File, single_column, table_of

KEY = (SortColumn(1),)
TARGET = 20 * ROW_BYTES
MIN_FILES = 5


def test_small_files_of_a_tiny_partition_are_not_small() -> None:
    table = table_of([File(((1, 1),))], ("long", "long"))
    assert small_files(table, TARGET, MIN_FILES) == []
    assert not small_mask(table, TARGET, MIN_FILES).any()


def tiny(count: int, rows: int = 2, partition: int = 0) -> list[File]:
    return [File(tuple((i * 10 + j, 0) for j in range(rows)), partition) for i in range(count)]


def packed(files: list[File], key: Sequence[SortColumn] = ()) -> list[list[int]]:
    table = table_of(files, ("long", "long"))
    return [d.files.tolist() for d in small_files(table, TARGET, MIN_FILES, key=key) if d.rewrite]


def test_small_files_are_packed_from_min_input_files_on_within_a_partition(said: Said) -> None:
    assert packed(tiny(4)) == []
    assert packed(tiny(5)) == [[0, 1, 2, 3, 4]]
    assert packed([*tiny(4), *tiny(4, partition=1)]) == []
    (refusal,) = small_files(table_of(tiny(4), ("long", "long")), TARGET, MIN_FILES)
    assert not refusal.rewrite
    said(refusal.reason)


def test_a_file_much_larger_than_the_others_waits_until_they_have_grown() -> None:
    large = tiny(1, rows=14)
    assert packed([*large, *tiny(4, rows=1)]) == []
    assert packed([*large, *tiny(5, rows=1)]) == [[0, 1, 2, 3, 4, 5]]
    assert packed([*tiny(1, rows=14), *tiny(6, rows=1)][:5]) == []


@given(
    st.lists(st.integers(1, 14), min_size=MIN_FILES, max_size=12),
    st.sampled_from([LARGEST_SHARE, 1.0]),
)
def test_files_of_nearly_equal_sizes_are_never_said_to_be_unequal(
    rows: list[int], share: float
) -> None:
    files = [File(tuple((i * 20 + j, 0) for j in range(n))) for i, n in enumerate(rows)]
    table = table_of(files, ("long", "long"))
    for left in small_files(table, TARGET, MIN_FILES, largest_share=share):
        if left.rewrite or len(left.files) < MIN_FILES:
            continue
        sizes = np.sort(table.bytes[left.files])
        unequal = any(sizes[n] > share * sizes[: n + 1].sum() for n in range(1, len(sizes)))
        assert unequal or UNEQUAL not in left.reason
        assert left.reason


def test_files_that_would_fill_as_many_files_say_so() -> None:
    (left,) = small_files(table_of(tiny(2, rows=14), ("long", "long")), TARGET, 2)
    assert not left.rewrite and left.reason == AS_MANY


def test_files_with_larger_ones_between_them_say_so() -> None:
    files = []
    for place in range(6):
        files.append(File(((100 * place, 0), (100 * place + 1, 0))))
        files.append(File(tuple((100 * place + 10 + i, 0) for i in range(20))))
    (left,) = small_files(table_of(files, ("long", "long")), TARGET, MIN_FILES, key=KEY)
    assert not left.rewrite and left.reason == APART


def test_a_key_column_of_one_value_leaves_the_order_to_the_next_one() -> None:
    files = [File(((7, 10 * i), (7, 10 * i + 1))) for i in range(6)]
    between = File(tuple((7, 30 + i % 2) for i in range(20)))
    key = (SortColumn(1), SortColumn(2))
    table = table_of([*files[:3], between, *files[4:]], ("long", "long"))
    assert [d.files.tolist() for d in small_files(table, TARGET, 2, key=key) if d.rewrite] == [
        [0, 1, 2],
        [4, 5],
    ]


def test_a_file_of_ours_is_measured_by_the_size_that_it_was_written_to_have() -> None:
    table = table_of(tiny(5, rows=8), ("long", "long"))
    ours = replace(table, layout_written=np.ones(5, dtype=np.bool_))
    aimed = np.full(5, 8 * ROW_BYTES)
    for files, size, small in ((ours, aimed, 0), (ours, None, 5), (table, aimed, 5)):
        assert small_mask(files, TARGET, MIN_FILES, aimed=size).sum() == small


def test_an_objective_may_force_packing_across_size_tiers() -> None:
    table = table_of([*tiny(1, rows=14), *tiny(4, rows=1)], ("long", "long"))
    forced = small_files(table, TARGET, MIN_FILES, largest_share=1.0)
    assert [d.files.tolist() for d in forced if d.rewrite] == [[0, 1, 2, 3, 4]]


def test_packing_by_a_key_does_not_span_a_large_file() -> None:
    low = [File(((i, 0), (i + 1, 0))) for i in range(4)]
    high = [File(((900 + i, 0), (901 + i, 0))) for i in range(4)]
    large = File(tuple((100 + i, 0) for i in range(20)))
    assert packed([*low, large, *high], KEY) == []
    assert packed([*low, *high], KEY) == [[0, 1, 2, 3, 4, 5, 6, 7]]


def test_what_a_writer_of_ours_made_of_the_target_is_not_packed_again() -> None:
    ours = [replace(file, ours=True) for file in tiny(8, rows=11)]
    assert packed(ours) == []
    assert packed([replace(file, ours=False) for file in ours]) == [list(range(8))]


def resized(table: FileTable, sizes: list[int], records: int = 1000) -> FileTable:
    return replace(
        table,
        bytes=np.array(sizes, dtype=np.int64),
        records=np.full(len(sizes), records, dtype=np.int64),
    )


def test_auto_sizes_follow_the_property_and_else_the_table() -> None:
    table = single_column([(0, 1)] * 4)
    assert auto_target_bytes(table, {"write.target-file-size-bytes": "1048576"}) == MIB
    assert auto_target_bytes(table, {"write.target-file-size-bytes": "x"}) == 32 * MIB
    assert auto_target_bytes(resized(table, [1 << 20] * 4), {}) == 32 * MIB
    assert auto_target_bytes(resized(table, [960 * MIB] * 4), {}) == 128 * MIB
    assert auto_target_bytes(resized(table, [1 << 40] * 4), {}) == 512 * MIB
