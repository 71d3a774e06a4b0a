"""Row groups of a size, and texts in plain encoding."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.table.filetable import UNKNOWN, ColumnBounds
from reconciler.table.row_group_bytes import (
    SLACK,
    row_group_rows,
    row_groups_of,
    text_row_bytes,
)
from reconciler.table.sample import RowGroups
from reconciler.table.schema import Field, Schema
from reconciler.table.values import BOUND_BYTES, Kind


@given(st.integers(1 << 20, 200 << 20), st.floats(0.5, 400.0), st.floats(0.01, 40.0))
def test_files_are_cut_into_as_many_row_groups_as_are_predicted(size, stored, groups):
    """`row_group_rows` is what the engine is given, `row_groups_of` what a plan counts with. The
    first is in whole rows: a file that just fills its row groups may have one more."""
    most, rows = row_group_rows(size, stored), max(1, round(groups * size / stored))
    cut = -(-rows // most)
    assert row_groups_of(rows * stored, size) in (cut, cut - 1)
    if rows % most > 0.1 * most:
        assert row_groups_of(rows * stored, size) == cut
    assert row_groups_of(0.99 * SLACK * size, size) == 1
    assert row_groups_of(size, 0) == 1


def test_texts_count_in_plain_encoding_unless_a_dictionary_holds_them():
    schema = Schema(0, (
        Field(1, "id", "long"), Field(2, "price", "decimal(15,2)"), Field(3, "day", "date"),
        Field(4, "mode", "string"), Field(5, "note", "string"), Field(6, "half", "int"),
    ))  # fmt: skip
    records = np.array([1_000, 3_000])
    columns = {
        4: _texts(4, [b"AIR", b"MAIL"], [b"TRUCK", b"SHIP"], records, nulls=0),
        5: _texts(5, [b"a" * BOUND_BYTES] * 2, [b"z" * BOUND_BYTES] * 2, records, nulls=0),
        6: _texts(6, [b""] * 2, [b""] * 2, records, nulls=UNKNOWN, half=True),
    }
    sizes = {field: np.array([100, 300]) for field in (1, 2, 3, 4, 5, 6)}
    groups = RowGroups(
        np.array([0, 1]), records, columns, sizes, np.array([10, 10]), np.ones(2, dtype=bool),
    )  # fmt: skip
    note = 4 + 28
    assert text_row_bytes(groups, schema) == {}  # of 400 stored bytes: all in dictionaries
    stored = groups.column_sizes | {5: np.array([10_000, 30_000])}
    assert text_row_bytes(replace(groups, column_sizes=stored), schema) == {5: pytest.approx(note)}
    assert text_row_bytes(None, schema) is None
    assert text_row_bytes(None, Schema(0, schema.fields[:3])) == {}


def _texts(
    field: int, lower: list[bytes], upper: list[bytes], records: np.ndarray, nulls: int,
    half: bool = False,
) -> ColumnBounds:  # fmt: skip
    known, count = np.ones(2, dtype=bool), np.full(2, nulls)
    return ColumnBounds(
        field, Kind.BYTES, np.array(lower, "S64"), np.array(upper, "S64"), known, known,
        records // 2 if half else count, count, records, count, ~known,
    )  # fmt: skip
