"""Partition transforms equal pyiceberg's, value by value."""

from __future__ import annotations

import struct
from decimal import Decimal
from typing import Any

import mmh3
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.transforms import parse_transform

from reconciler.queries import transforms
from reconciler.table.values import Kind
from tests.encoding import encode
from tests.examples import examples
from tests.queries.iceberg_twin import iceberg_type

LONG = st.integers(-(2**62), 2**62)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "int": st.integers(-(2**31), 2**31 - 1),
    "long": LONG,
    "date": st.integers(-100_000, 100_000),
    "time": st.integers(0, 86_400_000_000 - 1),
    "timestamp": st.integers(-(10**16), 10**16),
    "timestamptz": st.integers(-(10**16), 10**16),
    "string": st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])),
    "binary": st.binary().filter(lambda b: not b.endswith(b"\0")),
    "fixed[5]": st.binary(min_size=5, max_size=5),
    "uuid": st.binary(min_size=16, max_size=16),
    "decimal(12, 3)": st.integers(-(10**12) + 1, 10**12 - 1).map(lambda n: Decimal(n).scaleb(-3)),
    "decimal(30, 3)": st.integers(-(10**20), 10**20).map(
        lambda n: Decimal((int(n < 0), tuple(map(int, str(abs(n)))), -3))
    ),
}
PERIODS = [f"{name}" for name in ("year", "month", "day", "hour")]
LEGAL = {
    **{kind: ["bucket[7]", "bucket[1000]"] for kind in VALUES},
    "int": ["bucket[16]", "truncate[10]", "identity"],
    "long": ["bucket[16]", "truncate[7]"],
    "date": ["bucket[16]", "year", "month", "day"],
    "timestamp": ["bucket[16]", *PERIODS],
    "timestamptz": PERIODS,
    "string": ["bucket[16]", "truncate[1]", "truncate[3]"],
    "binary": ["bucket[16]", "truncate[3]"],
    "decimal(12, 3)": ["bucket[16]", "truncate[50]"],
    "decimal(30, 3)": ["bucket[16]", "truncate[50]"],
}


@st.composite
def columns(draw: st.DrawFn) -> tuple[str, str, list[Any]]:
    kind = draw(st.sampled_from(sorted(VALUES)))
    transform = draw(st.sampled_from(LEGAL[kind]))
    return kind, transform, draw(st.lists(VALUES[kind], min_size=1, max_size=8))


@settings(max_examples=examples(400), deadline=None)
@given(columns())
def test_transforms_equal_pyicebergs(column: tuple[str, str, list[Any]]) -> None:
    kind, transform, values = column
    scalars = [encode(kind, value) for value in values]
    dtype = np.bytes_ if isinstance(scalars[0], bytes) else np.int64
    ours = transforms.apply(transform, kind, np.array(scalars, dtype=dtype)).tolist()
    apply = parse_transform(transform).transform(iceberg_type(kind))
    result = transforms.result_kind(transform, kind)
    expected = [apply(value) for value in values]
    if result is not Kind.INT or kind.startswith("decimal"):
        same = transform.startswith("truncate") or transform == "identity"
        expected = [encode(kind, value) if same else value for value in expected]
    if kind == "binary" and transform.startswith("truncate"):
        expected = [value.rstrip(b"\0") for value in expected]
    if result is Kind.BYTES:
        expected = [value.rstrip(b"\0") for value in expected]
    assert ours == expected


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ("int", 34, 2017239379),
        ("date", 17486, -653330422),
        ("time", 81_068_000_000, -662762989),
        ("timestamp", 1_510_871_468_000_000, -2047944441),
        ("timestamp_ns", 1_510_871_468_000_001_001, -1207196810),
        ("string", b"iceberg", 1210000089),
        ("uuid", bytes.fromhex("f79c3e09677c4bbda4793f349cb785e7"), 1488055340),
        ("binary", b"\x00\x01\x02\x03", -188683207),
        ("decimal(9, 2)", 1420, -500754589),
    ],
)
def test_bucket_hashes_are_those_of_the_specification(kind: str, value: Any, expected: int) -> None:
    array = np.array([value], dtype=np.bytes_ if isinstance(value, bytes) else np.int64)
    assert transforms.bucket_hash(kind, array).astype(np.int32).tolist() == [expected]


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(st.binary(max_size=40), min_size=1, max_size=10))
def test_byte_strings_of_every_length_hash_alike_trailing_nuls_included(
    items: list[bytes],
) -> None:
    array = np.empty(len(items), dtype=object)
    array[:] = items
    ours = transforms.bucket_hash("binary", array).astype(np.int32).tolist()
    assert ours == [mmh3.hash(item) for item in items]


def test_nanoseconds_hash_like_the_microseconds_they_round_down_to() -> None:
    value = -1_500_001
    (ours,) = transforms.bucket_hash("timestamp_ns", np.array([value])).astype(np.int32).tolist()
    assert ours == mmh3.hash(struct.pack("<q", value // 1000))


def test_a_shift_at_the_end_of_the_domain_does_not_wrap_round() -> None:
    edge = np.iinfo(np.int64)
    below = transforms.project("<", np.array([edge.min]), "truncate[1]", "long")
    above = transforms.project(">", np.array([edge.max]), "truncate[1]", "long")
    assert below is not None and below[1].tolist() == [edge.min]
    assert above is not None and above[1].tolist() == [edge.max]


def test_void_and_unknown_transforms_say_nothing() -> None:
    assert transforms.project("=", np.array([1]), "void", "int") is None
    assert transforms.project("=", np.array([1]), "geohash[4]", "int") is None
    assert not transforms.known("geohash[4]")
    with pytest.raises(ValueError, match="geohash"):
        transforms.apply("geohash[4]", "int", np.array([1]))
