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
    COST = "read + open"
    AMPLIFICATION = "scan amplification"
    STORAGE = "storage"
    SMALL_FILES = "small files"
    DELETED_ROWS = "deleted rows"


MEASURES: Mapping[Quantity, str] = {
    Quantity.FILES: "dataFiles",
    Quantity.READ: "readBytes",
    Quantity.COST: "readCost",
    Quantity.AMPLIFICATION: "scanAmplification",
    Quantity.STORAGE: "storageBytes",
    Quantity.SMALL_FILES: "smallFilesPercent",
    Quantity.DELETED_ROWS: "deletedRowsPercent",
}
"""What programs find a line by, whatever people read there. readCost: bytes read and the opening of
files, in bytes of reading."""


@dataclass(frozen=True, slots=True)
class TotalLine:
    """One quantity of the table now and after the plan, in its unit. A value is None if it is not
    predicted, as for a plan that was carried out in part."""

    now: int
    """The present value."""
    after: int | None
    """The predicted value."""
    low: int | None
    """10 % quantile of the prediction."""
    high: int | None
    """90 % quantile of the prediction."""
    note: str
    """A remark that is printed behind the line."""


def named(quantity: Quantity, window: str = "") -> dict[str, Any]:
    """Return the beginning of a line. window: such as "7 days", for what is read."""
    name = f"{quantity}{_WINDOW}{window}" if window else str(quantity)
    return {"name": name, "measure": MEASURES[quantity]}


def is_of(line: Mapping[str, Any], quantity: Quantity) -> bool:
    """Whether the line is of this quantity: by its measure, in older plans by its name."""
    measure = line.get("measure")
    if measure is not None:
        return bool(measure == MEASURES[quantity])
    return bool(line["name"].partition(_WINDOW)[0] == quantity)


HARMS = 0.01
"""Share of what the recorded queries cost now from which on more cost is called harm."""


def harm_of(evidence: Mapping[str, Any]) -> int:
    """Return the bytes, opened files counted, that the plan expects the recorded queries to cost
    more than now; 0 where it expects no harm or does not say."""
    cost = total_of(evidence, Quantity.COST)
    if cost is None or cost.after is None or cost.after <= (1.0 + HARMS) * cost.now:
        return 0
    return cost.after - cost.now


def total_of(evidence: Mapping[str, Any], quantity: Quantity) -> TotalLine | None:
    """Return the line of a quantity that is not a percentage; None if the plan has no such line,
    such as that of reads without recorded queries."""
    for line in evidence.get("totals", ()):
        if is_of(line, quantity):
            return TotalLine(
                line["now"], line.get("after"), line.get("low"), line.get("high"),
                line.get("note") or "",
            )  # fmt: skip
    return None
