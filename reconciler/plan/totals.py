"""The totals of a plan: a line per quantity of its table, now and afterwards, in the evidence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

_WINDOW = " / "
"""Stands in a line's name between the quantity and the window that it covers."""


class Quantity(StrEnum):
    FILES = "data files"
    READ = "read"
    AMPLIFICATION = "scan amplification"
    STORAGE = "storage"
    SMALL_FILES = "small files"
    DELETED_ROWS = "deleted rows"


@dataclass(frozen=True, slots=True)
class Total:
    """One line, in its unit. None: not predicted, as for a plan that was carried out in part."""

    now: int
    after: int | None
    low: int | None
    high: int | None
    note: str


def name_of(quantity: Quantity, window: str = "") -> str:
    """Return the name of a line. window: such as "7 days", for bytes read."""
    return f"{quantity}{_WINDOW}{window}" if window else str(quantity)


def is_of(line: Mapping[str, Any], quantity: Quantity) -> bool:
    return bool(line["name"].partition(_WINDOW)[0] == quantity)


def total_of(evidence: Mapping[str, Any], quantity: Quantity) -> Total | None:
    """Return the line of a quantity that is no percentage; None without one, as of reads without
    recorded queries."""
    for line in evidence.get("totals", ()):
        if is_of(line, quantity):
            return Total(
                line["now"], line.get("after"), line.get("low"), line.get("high"),
                line.get("note") or "",
            )  # fmt: skip
    return None
