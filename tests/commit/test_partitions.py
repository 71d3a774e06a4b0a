"""Partition values as texts and in JSON, beside numpy's calendar."""

from __future__ import annotations

import numpy as np
import pytest

from reconciler.commit import partitions
from reconciler.commit.fields import PartitionField

DAY = 86_400_000_000
FAR = (0, -1, 2_932_896, 2_932_897, -719_162, -719_163, 20_000_000, -20_000_000)
"""Days since 1970-01-01; Python's dates end at the third and the fifth."""


def calendar(days: int) -> str:
    """By numpy, with years of at least four characters as Java's `%04d` pads them."""
    year, month, day = str(np.datetime64(days, "D")).rsplit("-", 2)
    return f"{int(year):04d}-{month}-{day}"


def text(kind: str, transform: str, value: int) -> str:
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
