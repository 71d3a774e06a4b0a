"""The size of written row groups follows the writer's buffering."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.table.row_group_bytes import PAGE_ROWS, rows_of_row_group


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
