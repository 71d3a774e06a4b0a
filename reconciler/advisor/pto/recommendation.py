"""A recommendation, and the layouts that it compares: values without decisions."""

from __future__ import annotations

from dataclasses import dataclass

from reconciler.advisor.pto.column_use import Usage
from reconciler.advisor.pto.partitionings import CommitFiles, RefusedSpec
from reconciler.advisor.simulate.layout import Sizes
from reconciler.plan.ordering import Ordering
from reconciler.table.filetable import Float64
from reconciler.table.schema import PartitionSpec


@dataclass(frozen=True, slots=True)
class RowGroup:
    """A row group size to declare."""

    bytes: int
    """The size in stored bytes."""
    rows: int
    """Rows that such a row group has."""


@dataclass(frozen=True, slots=True)
class LayoutReading:
    """What some queries read of a layout."""

    bytes: float
    """Bytes of column chunks."""
    low: float
    """Lower end of the interval of these bytes."""
    high: float
    """Upper end of it."""
    footers: float
    """Bytes of the footers of opened files, which `bytes` does not count."""
    opened: float
    """Number of files opened."""


@dataclass(frozen=True)
class DeclaredLayout:
    """A layout as people declare it, and its effect."""

    name: str
    """"today", "default", "expert", "best", or "next 1" and so on."""
    spec: PartitionSpec
    """The partition spec to declare."""
    ordering: Ordering
    """The ordering to declare; ARRIVAL for today."""
    target_bytes: int
    """Stored bytes of a file to declare; for today the mean of the files."""
    row_group: RowGroup | None
    """The row-group size to declare; None for today."""
    recorded: LayoutReading
    """What the recorded window reads."""
    ahead: LayoutReading
    """What the queries that are expected over the horizon read, by which layouts are compared."""
    by_demand: Float64
    """float64[demands], bytes of column chunks that each reads over the horizon."""
    reading: float
    """Cost of reading over the horizon, in bytes of reading."""
    total: float
    """Cost of reading and rewriting over the horizon, in bytes of reading."""
    files: float
    """Number of data files of the table."""
    row_groups: float
    """Number of row groups of the table; NaN if unknown."""
    rewrite_bytes: float
    """Bytes that are rewritten over the horizon, the first rewrite included."""
    first_rewrite_bytes: float
    """Bytes that are rewritten once, to get there."""
    sampled_rows: float
    """Sampled rows of the smallest row groups (their 10th percentile); NaN for today."""
    worse: tuple[int, ...] = ()
    """Positions of the demands that read at least 1 % more than today, over the horizon."""
    front: bool = False
    """Whether no candidate beats the layout in reading and rewriting at once."""
    leaf_rows: int = 0
    """Rows that the leaves of a tree have at least; 0 for other orderings."""
    commit: CommitFiles | None = None
    """Files that a commit writes; None if unpartitioned, if unknown, or if writers spread rows by
    partition already."""

    @property
    def hashes(self) -> bool:
        """Whether writers should send rows to tasks by partition: else each commit writes at least
        twice as many files."""
        return self.commit is not None and self.commit.scattered >= 2.0 * self.commit.hashed

    @property
    def read(self) -> float:
        """Return the bytes of column chunks that are read over the horizon."""
        return self.ahead.bytes


@dataclass(frozen=True)
class Sensitivity:
    """The choice that other evidence would lead to."""

    what: str
    """The evidence, for people: another window of the log, or half of the sample."""
    layout: DeclaredLayout
    """The layout that would be chosen."""
    regret: float
    """How much more that layout costs by the full evidence, as a share of the chosen layout's
    cost."""


@dataclass(frozen=True, slots=True)
class FrontPoint:
    """A layout that no candidate beats in reading and rewriting at once."""

    what: str
    """Partitioning and ordering as text."""
    sizes: Sizes | None
    """File and row-group sizes; None for today's layout."""
    reading: float
    """Cost of reading over the horizon, in bytes of reading."""
    rewrite_bytes: float
    """Bytes that are rewritten over the horizon."""


@dataclass(frozen=True)
class Recommendation:
    """What to declare, and what it was compared with."""

    today: DeclaredLayout
    """The present layout."""
    chosen: DeclaredLayout | None
    """The layout to declare; None if the table should stay as it is."""
    others: tuple[DeclaredLayout, ...]
    """The layouts beside it: the expert's, the default and the next best, the cheapest of these
    first. The best comes before them if the table should stay as it is."""
    keep: str
    """Why the table should stay as it is; "" if a layout is chosen."""
    refused: tuple[RefusedSpec, ...]
    """Partition specs that are no candidates, with their reasons."""
    usage: Usage
    """The columns that the queries filter, and how often."""
    labelled: int
    """Number of candidates that were simulated to choose."""
    candidates: int
    """Number of all candidates."""
    sampled: int
    """Number of sampled rows that were simulated."""
    sampled_rows: float
    """Sampled rows of the smallest row groups of the best candidate; where the sample is too thin,
    the most that any candidate has."""
    finer: int = 0
    """Number of sizes of the best candidates that were simulated besides."""
    sensitivity: tuple[Sensitivity, ...] = ()
    """What other windows of the log, and half of the sample, would choose."""
    fell: tuple[tuple[str, str], ...] = ()
    """(layout, why) of the partitionings and orderings that were not chosen, the cheapest first
    after layouts that could not be judged."""
    front: tuple[FrontPoint, ...] = ()
    """The layouts that none beats in reading and rewriting at once, by rewritten bytes."""
