"""What a layout costs: reading by column, files and row groups, and the rewrite that leads to it.

The number of rows skipped alone would always choose the smallest files and row groups. Unit: bytes
of projected reading over the horizon, as everywhere in the advisor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from reconciler.advisor.simulate.grid import Readings
from reconciler.queries.open_price import OpenPrice
from reconciler.queries.shape import Shape
from reconciler.queries.table_view import OPEN_BYTES, OPENING_REQUESTS
from reconciler.table.filetable import Float64

KIB = 1 << 10

FOOTER_COLUMN = 180.0
"""Bytes of a column of a row group in a footer. Reading them costs about as much as so many bytes
of columns in Spark, and more in Arrow and DuckDB (docs/design/recommendations.md)."""

MEASURED_COLUMNS = 16
"""Columns of the table on which the presets were measured."""


@dataclass(frozen=True, slots=True)
class Costs:
    """Bytes of reading that cost as much as opening a file, and as reading a row group."""

    name: str
    """Name of the preset, or "measured"."""
    file: float
    """Bytes for opening a file."""
    file_column: float
    """Bytes for each projected column of an opened file."""
    group: float
    """Bytes for reading a row group."""
    group_column: float
    """Bytes for each projected column of a row group that is read."""
    skipped: float = 1.0 / 7.0
    """Share of a row group's cost that one costs which is not read, in a file that is opened."""
    footer: float = 0.0
    """Bytes for each row group of an opened file, for columns that no query reads: a footer is read
    as a whole."""
    source: str = ""
    """Where the numbers come from, for people."""


LOCAL = Costs(
    "local", 2.0 * KIB, 5.5 * KIB, 7.7 * KIB, 1.83 * KIB,
    source="CPU time of Spark on a local disk, 4 and 16 columns",
)  # fmt: skip
OBJECT_STORE = Costs(
    "object-store", 4096.0 * KIB, 5.5 * KIB, 256.0 * KIB, 1.83 * KIB,
    source="an open file as Iceberg counts it (4 MiB), a request per row group",
)  # fmt: skip


def with_footers(costs: Costs, columns: int) -> Costs:
    """Return the costs for a table of so many columns. The presets were measured on 16, and their
    constants contain the footers of those."""
    return replace(costs, footer=FOOTER_COLUMN * max(columns - MEASURED_COLUMNS, 0))


def measured_costs(price: OpenPrice) -> Costs:
    """Return the costs on a storage whose openings were timed; a row group waits for a request."""
    return Costs(
        "measured", float(price.bytes), OBJECT_STORE.file_column,
        max((price.bytes - OPEN_BYTES) / OPENING_REQUESTS, LOCAL.group), OBJECT_STORE.group_column,
        source=f"openings of {price.openings} files of this table",
    )  # fmt: skip


PRESETS: Mapping[str, Costs] = {costs.name: costs for costs in (LOCAL, OBJECT_STORE)}


def reading_cost(costs: Costs, readings: Readings, demands: Sequence[Shape]) -> Float64:
    """Return the cost of reading per size and demand over the horizon, float64[sizes, demands]."""
    columns = np.array([sum(demand.projection.values()) for demand in demands], dtype=np.float64)
    file = costs.file + costs.file_column * columns
    group = costs.group + costs.group_column * columns
    found: Float64 = (
        readings.bytes
        + readings.files * file
        + (readings.groups + costs.skipped * readings.skipped) * group
        + (readings.groups + readings.skipped) * costs.footer
    )
    return found
