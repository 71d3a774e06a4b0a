"""Partition values as texts and in JSON, beside numpy's calendar."""

from __future__ import annotations

import math
import struct
from typing import Any
from urllib.parse import quote_plus

import numpy as np
import pytest

from reconciler.commit import fields, partitions
from reconciler.commit.fields import PartitionField
from reconciler.commit.manifest import File, Layout
from reconciler.commit.summary import Counts

DAY = 86_400_000_000
FAR = (0, -1, 2_932_896, 2_932_897, -719_162, -719_163, 20_000_000, -20_000_000)
"""Days since 1970-01-01; Python's dates end at the third and the fifth."""


def calendar(days: int) -> str:
    """By numpy, with years of at least four characters as Java's `%04d` pads them."""
    year, month, day = str(np.datetime64(days, "D")).rsplit("-", 2)
    return f"{int(year):04d}-{month}-{day}"


def text(kind: str, transform: str, value: Any) -> str:
    return partitions.path([PartitionField(1000, "p", kind, transform)], {1000: value})


@pytest.mark.parametrize("days", FAR)
def test_days_of_any_year(days: int) -> None:
    """A writer that takes milliseconds for seconds writes days of the year 50,000."""
    assert text("date", "day", days) == f"p={calendar(days)}"
    assert text("date", "identity", days) == f"p={calendar(days)}"
    assert text("int", "hour", days * 24 + 23) == f"p={calendar(days)}-23"
    assert partitions.from_json("date", partitions.to_json("date", days)) == days


@pytest.mark.parametrize("kind", ["timestamp", "timestamptz"])
@pytest.mark.parametrize("days", FAR)
def test_times_of_any_year(kind: str, days: int) -> None:
    for micros in (0, 1, 45_296_000_000, DAY - 1):
        at = days * DAY + micros
        written = partitions.to_json(kind, at)
        assert written.startswith(f"{calendar(days)}T")
        assert partitions.from_json(kind, written) == at
        assert text(kind, "identity", at).startswith(f"p={calendar(days)}T")


def test_times_that_python_has_are_written_as_before() -> None:
    assert partitions.to_json("timestamptz", 1) == "1970-01-01T00:00:00.000001+00:00"
    assert partitions.to_json("timestamp", -DAY) == "1969-12-31T00:00:00"


@pytest.mark.parametrize(
    ("value", "double", "single"),
    [
        (math.nan, "NaN", "NaN"), (-math.inf, "-Infinity", "-Infinity"), (-0.0, "-0.0", "-0.0"),
        (100.0, "100.0", "100.0"), (0.001, "0.001", "0.001"), (0.00099, "9.9E-4", "9.9E-4"),
        (9999999.0, "9999999.0", "9999999.0"), (1e7, "1.0E7", "1.0E7"),
        (-12345678.5, "-1.23456785E7", "-1.2345678E7"), (0.1, "0.1", "0.1"),
    ],
)  # fmt: skip
def test_numbers_are_named_as_java_writes_them(value: float, double: str, single: str) -> None:
    assert text("double", "identity", value) == f"p={double}"
    held = struct.unpack("<f", struct.pack("<f", value))[0]
    assert text("float", "identity", held) == f"p={single}"


def test_a_summary_names_no_partition_of_an_unpartitioned_spec() -> None:
    counts = Counts()
    values = {fields.CONTENT: 0, fields.RECORDS: 3, fields.SIZE: 7, fields.PARTITION: {}}
    counts.added(Layout(2, {"spec-id": 0, "fields": []}, {}, ()), File(values))
    found = counts.fields(10)
    assert found["changed-partition-count"] == "1"
    assert not [name for name in found if name.startswith("partitions.")]


@pytest.mark.parametrize(
    ("micros", "time", "moment"),
    [
        (0, "00:00", "00:00:00"), (59_000_000, "00:00:59", "00:00:59"),
        (500_000, "00:00:00.500", "00:00:00.5"), (10, "00:00:00.000010", "00:00:00.00001"),
        (DAY - 60_000_000, "23:59", "23:59:00"),
    ],
)  # fmt: skip
def test_times_are_named_as_java_writes_them(micros: int, time: str, moment: str) -> None:
    assert text("time", "identity", micros) == f"p={quote_plus(time)}"
    at = text("timestamptz", "identity", DAY + micros)
    assert at == f"p={quote_plus(f'1970-01-02T{moment}+00:00')}"


def test_signs_are_escaped_as_java_does() -> None:
    assert text("string", "identity", "a*b~c d/e=\u00fc-_.") == "p=a*b%7Ec+d%2Fe%3D%C3%BC-_."
