"""Laws of the model of a column's bytes: what repeats, what a dictionary costs, what is kept."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reconciler.table.column_bytes import (
    MOST_DISTINCT,
    NewOrder,
    StoredColumn,
    bytes_per_row,
    distinct_from_index,
    distinct_in,
    domain_of,
    extrapolated,
)
from tests.examples import examples

one = np.ones(1)


@settings(max_examples=examples(60), deadline=None)
@given(domain=st.floats(2.0, 1e7), rows=st.floats(2.0, 1e6))
def test_the_domain_is_found_again_from_the_distinct_values_it_shows(domain, rows):
    shown = distinct_in(one * domain, one * rows)
    assert 0.0 < shown[0] <= min(domain, rows) * (1 + 1e-9)
    if shown[0] < 0.999 * rows:  # almost no repeat says almost nothing
        assert distinct_in(domain_of(shown, one * rows), one * rows)[0] == pytest.approx(shown[0])
        assert domain_of(shown, one * rows)[0] == pytest.approx(domain, rel=1e-6)


def test_a_domain_has_one_value_at_least_and_where_none_repeats_the_most():
    rows, shown = np.array([5.0, 5.0, 1.0, 1e6, 7.0]), np.array([5.0, 0.0, 1.0, 1e6, 9.0])
    assert domain_of(shown, rows).tolist() == [MOST_DISTINCT, 1.0] + [MOST_DISTINCT] * 3


@pytest.mark.parametrize("domain", [5, 300, 2_400, 60_000, 10**9])
def test_a_thousand_rows_show_how_many_values_all_rows_have(domain):
    random = np.random.default_rng(domain)
    rows = random.integers(0, domain, 25_000)
    counts = np.unique(rows[::25], return_counts=True)[1]
    estimated = extrapolated(
        one * len(counts), one * (counts == 1).sum(), one * (counts == 2).sum(),
        one * counts.sum(), one * len(rows),
    )  # fmt: skip
    assert estimated[0] == pytest.approx(len(np.unique(rows)), rel=0.2)


def test_nothing_is_added_to_rows_that_were_all_sampled():
    estimated = extrapolated(one * 70, one * 50, one * 10, one * 100, one * 100)
    assert estimated[0] == 70.0


columns = st.builds(
    StoredColumn,
    rows=st.floats(100.0, 1e6),
    bytes=st.floats(1.5, 40.0),
    dictionary=st.sampled_from([0.0, 0.05, 1.0]),
    distinct=st.floats(1.0, 100.0),
    width=st.sampled_from([4, 8, 24]),
)


@settings(max_examples=examples(100), deadline=None)
@given(now=columns, more=st.floats(1.0, 1e3), domain=st.floats(1.0, 1e9), reordered=st.booleans())
def test_no_column_is_predicted_to_grow_or_to_vanish(now, more, domain, reordered):
    after = bytes_per_row(
        now, one * now.rows * more, one * domain, NewOrder(reordered=reordered, reach=one * domain)
    )[0]
    assert 0.0 <= after <= now.bytes


@settings(max_examples=examples(100), deadline=None)
@given(
    rows=st.floats(1_000.0, 1e6), share=st.floats(1e-4, 0.2), entry=st.floats(1.0, 30.0),
    packed=st.floats(0.3, 1.1),
)  # fmt: skip
def test_a_dictionary_column_written_again_as_it_is_keeps_its_bytes(rows, share, entry, packed):
    distinct = max(3.0, rows * share)
    dictionary = 24.0 + entry * distinct
    index = 60.0 + packed * np.log2(distinct) / 8.0 * rows
    now = StoredColumn(rows, (dictionary + index) / rows, dictionary / rows, distinct, 24)
    domain = domain_of(one * distinct, one * rows)
    again = bytes_per_row(now, one * rows, domain, NewOrder(reordered=True, reach=domain))[0]
    assert again == pytest.approx(now.bytes, rel=1e-3)


def test_many_files_merged_write_their_dictionary_once():
    now = StoredColumn(1_000.0, 5.0 + 9.4 / 8.0 + 0.084, 5.024, 680.0, 8)
    merged = bytes_per_row(now, one * 1e6, one * 1_000.0)[0]
    assert merged == pytest.approx(np.log2(1_000.0) / 8.0 + 5.0 * 1_000 / 680 / 1_000, rel=0.02)


def test_small_row_groups_repeat_their_dictionary():
    """Of 4,000 values, 4,000 rows have 2,528, and a dictionary for themselves."""
    now = StoredColumn(40_000.0, 0.3 + 1.5 + 84.0 / 40_000, 0.3 + 24.0 / 40_000, 4_000.0, 8)
    small = bytes_per_row(now, one * 4_000.0, one * 4_000.0, NewOrder(reordered=True))[0]
    assert small == pytest.approx(3.0 * 2_528 / 4_000 + np.log2(2_528) / 8.0, rel=0.03)


def test_a_sequence_that_is_scattered_takes_the_bits_of_its_range():
    now = StoredColumn(25_000.0, 2.7, 0.83, 25_000.0, 8)
    kept = bytes_per_row(now, one * 450_000.0, one * 1.8e6)[0]
    scattered = bytes_per_row(
        now, one * 450_000.0, one * 1.8e6, NewOrder(reordered=True, reach=one * 1.8e6)
    )[0]
    assert kept == pytest.approx(0.83, rel=0.01)
    assert 2.5 <= scattered <= 2.7


def test_times_out_of_their_order_take_the_bits_of_their_unit():
    """1.2 million whole seconds of 75 days, in microseconds: 5.7 bytes each in a real file."""
    now = StoredColumn(16_000.0, 5.11, 3.35, 14_600.0, 8, ordered=True)
    rows, seconds = one * 1.2e6, one * 75 * 86_400.0
    scattered = bytes_per_row(now, rows, seconds, NewOrder(reordered=True, reach=seconds * 1e6))[0]
    assert scattered == pytest.approx(5.7, rel=0.02)
    repeated = bytes_per_row(
        now, rows, one * 5_000.0, NewOrder(reordered=True, reach=seconds * 1e6)
    )[0]
    assert repeated < 0.5 * scattered


@pytest.mark.parametrize(("distinct", "bits"), [(3, 2), (700, 10), (2_406, 12), (9_000, 14)])
def test_an_index_shows_the_distinct_values_to_within_its_last_bit(distinct, bits):
    estimated = distinct_from_index(25_000.0, 60.0 + bits / 8.0 * 25_000)
    assert distinct / 2 <= estimated <= distinct * 2


@pytest.mark.parametrize("domain", [30_000, 60_000, 140_000, 400_000])
def test_an_index_of_many_pages_shows_more_than_its_whole_bits(domain):
    """Each page has the bits of the values seen so far: read from random rows, page by page."""
    values = np.random.default_rng(domain).integers(0, domain, 200_000)
    index = 60.0
    for end in range(20_000, 200_001, 20_000):
        index += 20_000 * np.ceil(np.log2(len(np.unique(values[:end])))) / 8.0
    estimated = distinct_from_index(200_000.0, index)
    assert estimated == pytest.approx(len(np.unique(values)), rel=0.3)


def test_an_index_that_numbers_every_row_is_of_values_that_do_not_repeat():
    assert distinct_from_index(25_000.0, 60.0 + 14.6 / 8.0 * 25_000) == 25_000.0
    assert distinct_from_index(25_000.0, 0.0) == 1.0


def test_values_that_repeat_are_as_few_as_the_index_allows():
    """Prices of 13,000 rows: 14 bits may number 8,200 or 13,000 of them."""
    index = 60.0 + 14.0 / 8.0 * 13_000
    assert distinct_from_index(13_000.0, index) == 13_000.0
    assert distinct_from_index(13_000.0, index, repeats=True) == pytest.approx(8_192, rel=0.05)


def test_a_column_in_whose_order_rows_lie_grows_when_they_leave_it():
    """600,000 rows of 3,000 pages: runs take next to nothing, in no order 11.6 bits a row."""
    runs = StoredColumn(600_000.0, 0.06, 0.05, 3_000.0, 8, ordered=True)
    lost = bytes_per_row(runs, one * 600_000.0, one * 3_000.0, NewOrder(reordered=True))[0]
    assert lost == pytest.approx(np.log2(3_000) / 8.0, rel=0.1)
    assert bytes_per_row(runs, one * 600_000.0, one * 3_000.0)[0] <= runs.bytes
    skewed = StoredColumn(600_000.0, 0.06, 0.05, 3_000.0, 8, ordered=True, skew=0.5)
    assert bytes_per_row(skewed, one * 6e5, one * 3e3, NewOrder(reordered=True))[0] < 0.6 * lost
