"""The data of the HTML report: plain values, each part optional.

The CLI fills it from the catalog, the workload and the ledger. A part that is None was not
measured, and `missing` says why; the report shows that instead of an empty plot. Positions on a
key's axis are shares of its range, so that no value of the table is in the report unless `Axis`
carries labels (--show-literals).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from reconciler.table.filetable import Float64

Int64 = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Spans:
    """Closed intervals on a key's axis. low, high: float64[n], shares of the key's range."""

    low: Float64
    high: Float64

    def __len__(self) -> int:
        return len(self.low)

    def covering(self, others: Spans) -> Int64:
        """Return how many of these intervals touch each of the others, int64[others]."""
        starts = np.searchsorted(np.sort(self.low), others.high, side="right")
        ends = np.searchsorted(np.sort(self.high), others.low, side="left")
        return (starts - ends).astype(np.int64)


@dataclass(frozen=True)
class KeyFiles:
    """Files along a key. before: None if nothing was rewritten yet. queried: recorded ranges.

    weight: float64[queried], executions. ticks: (position, text), empty unless values are shown.
    """

    column: str
    after: Spans
    before: Spans | None
    queried: Spans
    weight: Float64
    ticks: tuple[tuple[float, str], ...] = ()


@dataclass(frozen=True)
class FileSizes:
    """Bytes of the live data files; before: None if nothing was rewritten yet."""

    after: Int64
    before: Int64 | None
    target: int


@dataclass(frozen=True, slots=True)
class ShapeBytes:
    """One query shape: planned bytes of its recorded executions, per layout."""

    text: str
    executions: float
    before: float
    after: float


@dataclass(frozen=True)
class QueryBytes:
    """Shapes with what they read; label: how "after" was determined ("predicted", "same queries
    by the new files' bounds")."""

    shapes: tuple[ShapeBytes, ...]
    label: str


@dataclass(frozen=True, slots=True)
class Investment:
    """One carried-out plan.

    at_ms: when it was carried out. cost: in bytes of reading. saving_per_ms: bytes saved in a
    millisecond, as measured by queries since, or as the recorded ones let expect without any.
    saved: what queries since did not read, in words.
    """

    plan_id: str
    at_ms: int
    cost: float
    saving_per_ms: float
    saved: str

    @property
    def harm(self) -> bool:
        """Whether the recorded queries cost more after the plan than before."""
        return self.saving_per_ms < 0


@dataclass(frozen=True)
class Payoff:
    """investments in order of time; until_ms: of the last query by which savings were measured,
    the end of the last rewrite without any."""

    investments: tuple[Investment, ...]
    until_ms: int


@dataclass(frozen=True, slots=True)
class Forecast:
    """A prediction and the actual value. unit: bytes | count | seconds | cpu. low, high: 80 %
    interval."""

    label: str
    unit: str
    predicted: float
    low: float
    high: float
    actual: float

    @property
    def ratio(self) -> float:
        return self.actual / self.predicted if self.predicted > 0 else float("nan")

    @property
    def inside(self) -> bool:
        return self.low <= self.actual <= self.high


@dataclass(frozen=True, slots=True)
class JudgedRewrite:
    """One candidate of the decision, in bytes of reading over the payback horizon."""

    label: str
    files: int
    saving: float
    cost: float
    chosen: bool


@dataclass(frozen=True)
class CutCurve:
    """net: float64[files], cumulative net saving of the files that save anything, best first.

    chosen: length of the prefix with the greatest net saving (WAIR, Algorithm 2). files: number of
    files of the table. candidates: the decision on each, judged by its own what-if.
    """

    net: Float64
    chosen: int
    files: int
    candidates: tuple[JudgedRewrite, ...]


@dataclass(frozen=True)
class ReportData:
    """table: catalog.namespace.name; facts: (name, value) lines of the head, already as text."""

    table: str
    generated: str
    facts: tuple[tuple[str, str], ...]
    key_files: tuple[KeyFiles, ...] = ()
    sizes: FileSizes | None = None
    queries: QueryBytes | None = None
    payoff: Payoff | None = None
    forecasts: tuple[Forecast, ...] = ()
    cut: CutCurve | None = None
    missing: Mapping[str, str] = field(default_factory=dict)
    """By part ("key_files", "queries", ...): why it is absent, as one sentence."""
