"""Where signed and unsigned order of UUIDs agree."""

from __future__ import annotations

import uuid

import numpy as np
import pytest

from reconciler.table.uuid_order import alike_in_all_orders


def _padded(text: str) -> bytes:
    return bytes.fromhex(text.ljust(32, "0"))


@pytest.mark.parametrize(
    "low, high, alike",
    [
        ("10", "7f", True),
        ("80", "ff", True),
        ("7f", "80", False),  # both halves; signed order puts 80.. first
        ("90", "20", False),  # as Java merges them
        ("90", "80", False),
        ("10" * 8 + "7f", "10" * 8 + "80", False),  # the second number decides
        ("10" * 8 + "90", "20" * 8 + "80", True),
    ],
)
def test_bounds_are_told_apart_by_the_signs_of_both_numbers(
    low: str, high: str, alike: bool
) -> None:
    ends = [np.array([_padded(end)], dtype="S16") for end in (low, high)]
    assert alike_in_all_orders(*ends).tolist() == [alike]


def test_signed_order_agrees_about_what_is_between_such_bounds() -> None:
    """As java.util.UUID.compareTo: two signed numbers."""
    random = np.random.default_rng(1)
    values = [uuid.UUID(bytes=random.bytes(16), version=4) for _ in range(200)]
    low, high = (np.array([v.bytes for v in part]) for part in (values[:100], values[100:]))
    for place in np.flatnonzero(alike_in_all_orders(low, high)).tolist():
        first, last = values[place], values[100 + place]
        for value in values:
            signed = _signed(first) <= _signed(value) <= _signed(last)
            assert signed is (first.int <= value.int <= last.int)


def _signed(value: uuid.UUID) -> tuple[int, int]:
    ends = value.bytes[:8], value.bytes[8:]
    return int.from_bytes(ends[0], signed=True), int.from_bytes(ends[1], signed=True)
