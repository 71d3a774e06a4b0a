"""What Java's writer stores of numbers, beside what zstd at its level makes of them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from reconciler.table.column_bytes import NewOrder, StoredColumn, bytes_per_row, distinct_from_index
from reconciler.table.filetable import UNKNOWN, Array, ColumnBounds
from reconciler.table.fractions import digits_reach
from reconciler.table.number_bytes import in_no_order, rising
from reconciler.table.values import Kind

ROWS = 20_000
TYPES = {4: np.int32, 8: np.int64}


def stored(values: Array, level: int = 3, dictionary: bool = False) -> float:
    """Return the bytes of a row in the column chunk, header of its page excluded."""
    sink = pa.BufferOutputStream()
    pq.write_table(
        pa.table({"v": values}), sink, compression="zstd", compression_level=level,
        use_dictionary=dictionary, max_rows_per_page=ROWS, write_statistics=False,
    )  # fmt: skip
    group = pq.ParquetFile(pa.BufferReader(sink.getvalue())).metadata.row_group(0)
    return float(group.column(0).total_compressed_size - 60) / len(values)


@pytest.mark.parametrize("width", [4, 8])
@pytest.mark.parametrize("bits", [11.5, 13.3, 17.3, 20.5, 23.0, 26.5, 36.3, 41.0, 47.0])
def test_numbers_in_no_order_take_what_was_measured(width, bits):
    if bits > 8 * width - 1:
        return
    values = np.random.default_rng(3).integers(0, round(2**bits), ROWS).astype(TYPES[width])
    found = in_no_order(np.array([bits]), width, np.array([float(ROWS)]))
    assert found[0] == pytest.approx(stored(values), rel=0.04)


@pytest.mark.parametrize("bits", [33.5, 36.3, 39.0, 43.0])
def test_times_in_short_chunks_take_more(bits):
    values = (1 << 50) + np.random.default_rng(3).integers(0, round(2**bits), 8_000)
    found = in_no_order(np.array([bits]), 8, np.array([8_000.0]))
    assert found[0] == pytest.approx(stored(values), rel=0.05)


@pytest.mark.parametrize("bits", [9.0, 11.0, 15.0, 19.0, 23.0])
def test_numbers_in_order_take_what_was_measured(bits):
    steps = np.random.default_rng(3).exponential(2.0**bits, ROWS).astype(np.int64)
    found = rising(np.array([bits]), 8)
    assert found[0] == pytest.approx(stored((1 << 50) + np.cumsum(steps)), rel=0.08)


@pytest.mark.parametrize("bits", [13.3, 17.6, 20.0])
@pytest.mark.parametrize("level", [1, 3])
def test_another_level_of_compression_is_predicted_at_that_of_java(bits, level):
    """pyarrow writes at level 1, which takes 0.8 to 1.15 of what level 3 does."""
    values = np.random.default_rng(3).integers(0, round(2**bits), ROWS)
    distinct = np.unique(values)
    listed = np.random.default_rng(4).permutation(distinct)
    now = StoredColumn(
        rows=ROWS, bytes=stored(values, level, dictionary=True),
        dictionary=stored(listed, level) * len(listed) / ROWS, distinct=len(distinct), width=8,
    )  # fmt: skip
    reach, rows = np.array([2.0**bits]), np.array([float(ROWS)])
    then = bytes_per_row(now, rows, reach, NewOrder(reordered=True, reach=reach))[0]
    plain = now.distinct * 8 + ROWS * np.ceil(np.log2(now.distinct)) / 8 > ROWS * 8
    assert then == pytest.approx(stored(values, 3, dictionary=not plain), rel=0.09)


def test_numbers_by_which_a_row_group_is_sorted_take_what_their_distance_does():
    """A leaf of a tree is sorted by one column; another column of the same numbers is not."""
    values = np.random.default_rng(3).integers(0, 200_000, 2_000)
    now = StoredColumn(
        rows=4_000, bytes=4.7, dictionary=3.2, distinct=4_000, width=8
    )  # as pyarrow writes numbers that do not repeat
    rows, reach = np.full(2, 2_000.0), np.full(2, 200_000.0)
    order = NewOrder(reordered=True, reach=reach, sorted=np.array([True, False]))
    by_it, by_another = bytes_per_row(now, rows, np.full(2, 1e9), order)
    assert by_it == pytest.approx(stored(np.sort(values)), rel=0.12)
    assert by_another > 1.8 * by_it


def test_numbers_that_do_not_rise_are_not_predicted_to_be_in_order():
    now = StoredColumn(rows=60_000, bytes=2.02, dictionary=0.0, distinct=38_000, width=8)
    reach, rows = np.array([60_000.0]), np.array([60_000.0])
    found = bytes_per_row(now, rows, reach, NewOrder(reach=reach, wider=np.array([15.9])))
    assert found[0] == pytest.approx(2.02, rel=0.01)


def amounts(values: Array) -> ColumnBounds:
    files = values.reshape(8, -1)
    every = np.ones(8, dtype=bool)
    none = np.zeros(8, dtype=np.int64)
    return ColumnBounds(
        1, Kind.FLOAT, files.min(axis=1), files.max(axis=1), every, every, none, none,
        np.full(8, files.shape[1]), np.full(8, UNKNOWN), ~every,
    )  # fmt: skip


def test_amounts_are_known_by_the_digits_of_their_bounds():
    random = np.random.default_rng(3)
    values = np.round(random.gamma(2.0, 40.0, 80_000), 2)
    files = values.reshape(8, -1)
    cents = float(np.mean(files.max(axis=1) - files.min(axis=1)) * 100)
    assert digits_reach(amounts(values)) == pytest.approx(cents + 1.0)
    assert digits_reach(amounts(random.random(80_000))) is None


def test_amounts_are_more_than_the_index_shows_and_fewer_than_fit_between_their_bounds():
    """8,151 amounts of an index of 13 bits: 4,100 to 8,150, and 46,000 cents are possible."""
    random = np.random.default_rng(3)
    values = np.round(random.gamma(2.0, 40.0, 8_151), 2)
    index = 60.0 + 13.0 / 8.0 * len(values)
    found = distinct_from_index(float(len(values)), index, 46_000.0, repeats=True)
    assert found == pytest.approx(len(np.unique(values)), rel=0.12)


def test_headers_of_a_short_index_do_not_make_values_unique():
    """4,172 numbers below 10,000, whose index takes 30 bytes more than 12 bits a row."""
    found = distinct_from_index(4_172.0, 60.0 + 30.0 + 12.0 / 8.0 * 4_172, 10_000.0)
    assert found == pytest.approx(3_413, abs=2)
