from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.api.quantities import (
    MAX_BYTES,
    MAX_SECONDS,
    decimal_units,
    format_bytes,
    format_decimal,
    format_duration,
    parse_bytes,
    parse_decimal,
    parse_duration,
)


@pytest.mark.parametrize(
    ("text", "size"),
    [("0", 0), (0, 0), (17, 17), ("1Ki", 1024), ("512Mi", 2**29), ("500Gi", 500 * 2**30)],
)
def test_sizes(text: str | int, size: int) -> None:
    assert parse_bytes(text) == size


@pytest.mark.parametrize("text", ["", "1.5Gi", "5GB", "-1", "01", "1 Gi", "Gi", -1, True, "1Gi\n"])
def test_what_is_not_a_size_is_refused(text: str | int) -> None:
    with pytest.raises(ValueError):
        parse_bytes(text)


def test_sizes_beyond_64_bits_saturate() -> None:
    assert parse_bytes("99999999Pi") == MAX_BYTES == parse_bytes(2**70)


@given(st.integers(0, MAX_BYTES))
def test_a_size_survives_printing(size: int) -> None:
    assert parse_bytes(format_bytes(size)) == size


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("10m", 600), ("1h30m", 5400), ("168h", 604_800), ("0s", 0), ("90s", 90), ("1h1s", 3601)],
)
def test_durations(text: str, seconds: int) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "h", "5", "1d", "1m1h", "-1h", "1.5h", "10m\n", " 1h"])
def test_what_is_not_a_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse_duration(text)


@given(st.integers(0, MAX_SECONDS))
def test_a_duration_survives_printing(seconds: int) -> None:
    assert parse_duration(format_duration(seconds)) == seconds


def test_durations_beyond_a_century_saturate() -> None:
    assert parse_duration("99999999999999h") == MAX_SECONDS


@given(st.decimals(min_value=1, max_value=999_999, places=4, allow_nan=False))
def test_a_decimal_survives_printing_and_hashes_as_a_whole_number(value: Decimal) -> None:
    text = format_decimal(value)
    assert parse_decimal(text) == value
    assert decimal_units(parse_decimal(text)) == value * 10_000


@pytest.mark.parametrize("text", ["1e3", "NaN", "-1", "1.", ".5", "1.23456", 1.5])
def test_what_is_not_a_decimal_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse_decimal(text)
