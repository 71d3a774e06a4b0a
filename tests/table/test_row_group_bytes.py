"""The size of written row groups follows the writer's buffering."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.table.filetable import UNKNOWN, ColumnBounds
from reconciler.table.row_group_bytes import (
    PAGE_ROWS,
    plain_row_bytes,
    rows_of_row_group,
    text_row_bytes,
)
from reconciler.table.sample import RowGroups
from reconciler.table.schema import Field, Schema
from reconciler.table.values import BOUND_BYTES, Kind


def closes_at(configured: int, compressed: float, encoded: float) -> int:
    """The writer, page by page and then row by row."""
    full = 0
    while compressed * full * PAGE_ROWS + encoded * PAGE_ROWS < configured:
        full += 1
    rest = 0
    while compressed * full * PAGE_ROWS + encoded * rest < configured and rest < PAGE_ROWS:
        rest += 1
    return full * PAGE_ROWS + rest


@given(
    st.integers(1_000, 200_000_000), st.floats(1.0, 200.0), st.floats(1.0, 5.0)
)  # fmt: skip
def test_equals_the_writer_buffering_row_by_row(configured, compressed, ratio):
    rows = rows_of_row_group(configured, compressed, compressed * ratio)
    assert rows == pytest.approx(closes_at(configured, compressed, compressed * ratio), abs=1.01)


def test_a_small_row_group_is_measured_by_its_encoded_size():
    assert rows_of_row_group(1 << 18, 47.0, 98.0) == pytest.approx((1 << 18) / 98.0)


def test_a_large_row_group_is_measured_nearly_by_its_compressed_size():
    assert rows_of_row_group(128 << 20, 47.0, 98.0) == pytest.approx((128 << 20) / 47.0, rel=0.01)


def test_a_row_in_plain_encoding_counts_what_dictionaries_hide():
    """As the writer does for open pages: 62 encoded bytes of a row of lineitem are 137 plain."""
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
        encoded=np.array([10_000, 30_000]),
    )  # fmt: skip
    fixed, mode, note, half = 8 + 8 + 4, 4 + 4, 4 + 28, 2
    assert plain_row_bytes(groups, schema) == pytest.approx(fixed + mode + note + half)
    assert text_row_bytes(groups, schema) == {}  # of 400 stored bytes: all in dictionaries
    stored = groups.column_sizes | {5: np.array([10_000, 30_000])}
    assert text_row_bytes(replace(groups, column_sizes=stored), schema) == {5: pytest.approx(note)}
    assert text_row_bytes(None, schema) is None
    assert text_row_bytes(None, Schema(0, schema.fields[:3])) == {}


@pytest.mark.parametrize(("kind", "plain"), [("long", 16.0), ("string", 40.0)])
def test_a_dictionary_of_values_that_do_not_repeat_makes_no_row_larger(kind, plain):
    """Another writer lists them and writes an index, Java's drops the dictionary. What a row
    of texts or of lists takes, only the encoded bytes show. List and index may be stored in more
    than the plain values."""
    schema = Schema(0, (Field(1, "key", "long"), Field(2, "other", kind)))
    sizes = {field: np.array([9_400]) for field in (1, 2)}
    groups = RowGroups(
        np.array([0]), np.array([1_000]), {}, sizes, np.array([10]), np.ones(1, dtype=bool),
        encoded=np.array([40_000]),
    )  # fmt: skip
    assert plain_row_bytes(groups, schema) == pytest.approx(plain)
    lists = Schema(0, (Field(1, "key", "long"), Field(2, "element", kind, repeated=True)))
    groups = replace(groups, encoded=np.array([50_000]))
    assert plain_row_bytes(groups, lists) == pytest.approx(50.0)


def _texts(
    field: int, lower: list[bytes], upper: list[bytes], records: np.ndarray, nulls: int,
    half: bool = False,
) -> ColumnBounds:  # fmt: skip
    known, count = np.ones(2, dtype=bool), np.full(2, nulls)
    return ColumnBounds(
        field, Kind.BYTES, np.array(lower, "S64"), np.array(upper, "S64"), known, known,
        records // 2 if half else count, count, records, count, ~known,
    )  # fmt: skip
