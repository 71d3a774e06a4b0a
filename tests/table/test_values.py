"""Domains: one order per Iceberg type, values in and out."""

from __future__ import annotations

import datetime as dt
import uuid
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.table.values import (
    Kind,
    decimal_scale,
    decode_wide_decimal,
    encode_wide_decimal,
    kind_of,
    micros,
    show,
)
from tests.encoding import encode

UNSCALED = st.integers(-(10**38) + 1, 10**38 - 1)


@given(st.lists(UNSCALED, min_size=1, max_size=6))
def test_wide_decimals_keep_their_order_as_bytes_and_come_back(numbers: list[int]) -> None:
    stored = np.array([encode_wide_decimal(n) for n in numbers])
    assert [decode_wide_decimal(v) for v in stored.tolist()] == numbers
    assert [decode_wide_decimal(v) for v in np.sort(stored).tolist()] == sorted(numbers)


@pytest.mark.parametrize(
    ("kind", "value", "scalar"),
    [
        ("boolean", True, 1),
        ("int", 7.0, 7),
        ("long", Decimal("7"), 7),
        ("double", 3, 3.0),
        ("date", dt.date(1970, 1, 2), 1),
        ("date", dt.datetime(1970, 1, 2, 23, 59), 1),
        ("time", dt.time(1, 0, 0, 5), 3_600_000_005),
        ("timestamp", dt.date(1970, 1, 2), 86_400_000_000),
        ("timestamp", dt.datetime(1969, 12, 31, 23, 59, 59, 999_999), -1),
        ("timestamptz", dt.datetime(1970, 1, 1, 2, tzinfo=dt.timezone(dt.timedelta(hours=2))), 0),
        ("timestamp_ns", dt.datetime(1970, 1, 1, 0, 0, 1), 1_000_000_000),
        ("decimal(9, 2)", "1.50", 150),
        ("decimal(38,2)", Decimal("-1.5"), encode_wide_decimal(-150)),
        ("string", "é", b"\xc3\xa9"),
        ("binary", bytearray(b"\x01"), b"\x01"),
        ("uuid", uuid.UUID(int=5), uuid.UUID(int=5).bytes),
    ],
)
def test_values_enter_their_domain(kind: str, value: Any, scalar: Any) -> None:
    assert encode(kind, value) == scalar


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("int", 1.5),
        ("int", "1"),
        ("long", float("inf")),
        ("long", Decimal("1.5")),
        ("decimal(9, 2)", "1.505"),
        ("string", 5),
        ("list<int>", 1),
    ],
)
def test_a_value_that_is_not_of_the_type_is_refused_and_not_guessed(kind: str, value: Any) -> None:
    with pytest.raises(ValueError):
        encode(kind, value)


@pytest.mark.parametrize(
    ("kind", "scalar", "text"),
    [
        ("int", None, "null"),
        ("boolean", 0, "false"),
        ("double", 0.5, "0.5"),
        ("date", 20_000, "2024-10-04"),
        ("date", 10**9, "1000000000"),
        ("timestamp", -1, "1969-12-31T23:59:59Z"),
        ("timestamptz_ns", 1_000_000_000, "1970-01-01T00:00:01Z"),
        ("decimal(9, 2)", 150, "1.50"),
        ("decimal(38, 2)", encode_wide_decimal(-150), "-1.50"),
        ("string", b"\xc3\xa9", "é"),
        ("uuid", uuid.UUID(int=5).bytes, str(uuid.UUID(int=5))),
        ("binary", b"\x01\xff", "0x01ff"),
    ],
)
def test_scalars_show_as_people_write_them(kind: str, scalar: Any, text: str) -> None:
    assert show(kind, scalar) == text


def test_every_primitive_type_has_its_domain_and_others_have_none() -> None:
    assert kind_of("decimal(18, 0)") is Kind.INT
    assert kind_of("decimal(19, 0)") is Kind.BYTES
    assert kind_of("fixed[4]") is Kind.BYTES
    assert kind_of("float") is Kind.FLOAT
    assert kind_of("map<string,int>") is None
    assert decimal_scale("decimal(9, 4)") == 4 and decimal_scale("int") == 0


def test_a_naive_time_is_taken_as_utc() -> None:
    assert micros(dt.datetime(1970, 1, 1, 0, 0, 0, 7)) == 7
