"""What a layout costs: reading by column, files and row groups, and the rewrite that leads to it.

The number of rows skipped alone would always choose the smallest files and row groups. Prices are
those of a plan (`queries.read_cost`), so that a plan and a recommendation judge one layout alike.
Unit: bytes of projected reading over the horizon, as everywhere in the advisor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from reconciler.advisor.simulate.grid import GridReadings
from reconciler.queries.open_price import OpenPrice
from reconciler.queries.shape import Shape
from reconciler.queries.table_view import (
    NO_FOOTER,
    OPEN_BYTES,
    FooterBytes,
    row_group_prices,
)
from reconciler.table.filetable import Float64


@dataclass(frozen=True, slots=True)
class Costs:
    """Bytes of reading that cost as much as opening a file, and as reading a row group."""

    name: str
    """Name of the preset, "measured", or "plan" for what a plan counts without a measurement."""
    file: float
    """Bytes for opening a file."""
    group: float
    """Bytes for reading a row group."""
    group_column: float
    """Bytes for each projected column of a row group that is read."""
    source: str = ""
    """Where the numbers come from, for people."""
    footer: FooterBytes = NO_FOOTER
    """The footer of an opened file, which is read as a whole whatever a query projects."""


def costs_at(name: str, open_bytes: float, source: str) -> Costs:
    """Return the costs where opening a file costs as much as reading so many bytes."""
    prices = row_group_prices(open_bytes)
    return Costs(name, float(open_bytes), prices.group, prices.chunk, source)


LOCAL = costs_at("local", OPEN_BYTES, "a disk nearby, as a plan counts it unmeasured")
OBJECT_STORE = costs_at("object-store", 4 * OPEN_BYTES, "an open file as Iceberg counts it")
PRESETS: Mapping[str, Costs] = {costs.name: costs for costs in (LOCAL, OBJECT_STORE)}


def costs_of_plans(price: OpenPrice) -> Costs:
    """Return the costs by which plans of the table are made."""
    if not price.openings:
        return costs_at("plan", price.bytes, "as a plan counts it; no opening was measured")
    source = f"as a plan counts it; openings of {price.openings} files of this table"
    return costs_at("measured", price.bytes, source)


def reading_cost(costs: Costs, readings: GridReadings, demands: Sequence[Shape]) -> Float64:
    """Return the cost of reading per size and demand over the horizon, float64[sizes, demands]."""
    columns = np.array([sum(demand.projection.values()) for demand in demands], dtype=np.float64)
    found: Float64 = (
        readings.bytes
        + readings.files * (costs.file + costs.footer.fixed)
        + readings.groups * (costs.group + costs.group_column * columns)
        + (readings.groups + readings.skipped) * costs.footer.per_group
    )
    return found
