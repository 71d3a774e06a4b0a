"""The data of the HTML report: plain values, each part optional.

The CLI fills it from the catalog, the workload and the ledger. A part that is None was not
measured, and `missing` says why; the report shows that instead of an empty plot. Positions on a
key's axis are shares of its range. So no value of the table is in the report, except in the ticks
of an axis and the texts of shapes under --show-literals.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from reconciler.api.prices import Prices
from reconciler.plan.rejected import Line
from reconciler.table.filetable import Float64, Int64


@dataclass(frozen=True)
class Spans:
    """Closed intervals on a key's axis."""

    low: Float64
    """float64[n]: lower ends, as shares of the key's range."""
    high: Float64
    """float64[n]: upper ends, likewise."""

    def __len__(self) -> int:
        return len(self.low)

    def covering(self, others: Spans) -> Int64:
        """Return how many of these intervals touch each of the others, int64[others]."""
        starts = np.searchsorted(np.sort(self.low), others.high, side="right")
        ends = np.searchsorted(np.sort(self.high), others.low, side="left")
        return (starts - ends).astype(np.int64)


@dataclass(frozen=True)
class KeyFiles:
    """The ranges of the files along the first column of a key."""

    column: str
    """Name of the column."""
    after: Spans
    """Ranges of the present files."""
    before: Spans | None
    """Ranges of the files before the rewrites; None if nothing was rewritten yet."""
    queried: Spans
    """Ranges that recorded queries ask for."""
    weight: Float64
    """float64[queried]: executions of the queries of each range."""
    ticks: tuple[tuple[float, str], ...] = ()
    """Marks of the axis as (position, text); empty unless values are shown."""


@dataclass(frozen=True)
class FileSizes:
    """Sizes of the live data files, in bytes."""

    after: Int64
    """int64[files]: of the present files."""
    before: Int64 | None
    """int64[files]: before the first rewrite; None if nothing was rewritten yet."""
    target: int
    """The target size."""


@dataclass(frozen=True, slots=True)
class ShapeBytes:
    """Planned bytes of the recorded executions of one shape."""

    text: str
    """The condition of the shape."""
    executions: float
    """Number of recorded executions."""
    before: float
    """Bytes on the earlier layout."""
    after: float
    """Bytes on the later layout."""


@dataclass(frozen=True)
class QueryBytes:
    """What the shapes read before and after."""

    shapes: tuple[ShapeBytes, ...]
    """The shapes."""
    label: str
    """How `ShapeBytes.after` is known: "predicted" or "same queries by the new files' bounds"."""


@dataclass(frozen=True, slots=True)
class Investment:
    """One carried-out plan."""

    plan_id: str
    """The plan's id."""
    at_ms: int
    """When it was carried out, in epoch milliseconds."""
    cost: float
    """Its cost in bytes of reading."""
    saving_per_ms: float
    """Bytes saved per millisecond, as queries since then measured it; without any, as the recorded
    ones predict."""
    saved: str
    """What queries since then did not read, in words."""
    measured: float = 0.0
    """The same in bytes, at least; 0.0 while no query is known."""
    harm: bool = False
    """Whether queries cost more after the plan than before (`PastPlan.harm`)."""


@dataclass(frozen=True)
class Payoff:
    """What rewrites cost and what they saved over time."""

    investments: tuple[Investment, ...]
    """The rewrites in order of time."""
    until_ms: int
    """Time of the last query by which savings were measured, in epoch milliseconds; the end of the
    last rewrite if there was none."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """A prediction with its 80 % interval and the actual value."""

    label: str
    """What was predicted."""
    unit: str
    """The unit: "bytes", "count", "seconds" or "cpu"."""
    predicted: float
    """The predicted value."""
    low: float
    """Lower end of the interval."""
    high: float
    """Upper end of the interval."""
    actual: float
    """The value that was measured."""

    @property
    def ratio(self) -> float:
        return self.actual / self.predicted if self.predicted > 0 else float("nan")

    @property
    def inside(self) -> bool:
        return self.low <= self.actual <= self.high


@dataclass(frozen=True, slots=True)
class JudgedRewrite:
    """One candidate of the decision."""

    label: str
    """The candidate in words."""
    files: int
    """Number of its input files."""
    saving_low: float
    """10th percentile of the bytes of reading saved over the payback horizon, which decides."""
    cost: float
    """Its cost in bytes of reading."""
    chosen: bool
    """Whether it was chosen."""


@dataclass(frozen=True)
class CutCurve:
    """How many files are worth rewriting (WAIR, Algorithm 2)."""

    net: Float64
    """float64[files]: cumulative net saving of the files that save anything, best first, in bytes
    of reading."""
    chosen: int
    """Number of files in the prefix with the greatest net saving."""
    files: int
    """Number of data files of the table."""
    candidates: tuple[JudgedRewrite, ...]
    """The decision on each candidate, judged by its own what-if."""


@dataclass(frozen=True)
class LeafMap:
    """The leaves of a tree of cuts."""

    columns: tuple[str, ...]
    """Columns that the tree cuts, that of the first cut first, then those with most leaves below
    their cuts."""
    bytes: Float64
    """float64[leaves], bytes of the table that a leaf holds."""
    reads: Float64
    """float64[leaves], share of the recorded executions that read a leaf."""
    boxes: Float64
    """float64[leaves, 4], left, bottom, width and height of each in the unit square, with an area
    in proportion to its bytes."""
    sorted_by: tuple[str, ...]
    """Column by which the rows of each leaf are sorted, "" for the order of arrival."""


@dataclass(frozen=True)
class ReportData:
    """The data of one table's report. A part that is None was not measured."""

    table: str
    """The table's name as catalog.namespace.name."""
    generated: str
    """Time of the report, as text."""
    facts: tuple[tuple[str, str], ...]
    """(name, value) lines of the head, as text."""
    key_files: tuple[KeyFiles, ...] = ()
    """Ranges of the files along each key."""
    sizes: FileSizes | None = None
    """Sizes of the files before and after."""
    queries: QueryBytes | None = None
    """What the recorded queries read before and after."""
    payoff: Payoff | None = None
    """Costs and savings over time."""
    forecasts: tuple[Forecast, ...] = ()
    """Predictions with the actual values."""
    cut: CutCurve | None = None
    """Cumulative net saving of the files, best first, and where the choice ends."""
    refused: tuple[Line, ...] = ()
    """What was considered and not done, as the plan's text has it."""
    prices: Prices | None = None
    """Prices of the catalog, by which bytes of reading have money beside them; None without any."""
    rho: float = 1.0
    """Bytes read that a byte rewritten counts as in the costs of rewrites."""
    leaves: LeafMap | None = None
    """The leaves of the tree of cuts that is planned, else of the one written last."""
    missing: Mapping[str, str] = field(default_factory=dict)
    """By part ("key_files", "queries" and so on), one sentence that says why it is absent."""
