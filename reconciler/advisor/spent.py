"""What the decisions of a plan have chosen so far, as a later one sees it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from reconciler.plan.prediction import BY_ARRIVAL
from reconciler.table.filetable import Bool, ColumnBounds, Int64


@dataclass(frozen=True, slots=True)
class Sliced:
    """How a budget cuts work on a partition."""

    parts: int = 1
    """Number of slices of the chosen files."""
    whole: float = 0.0
    """Number of times that the tightest budget is spent on all files of the partition."""
    along: int = BY_ARRIVAL
    """Field id of the column that slices follow; BY_ARRIVAL if they follow the order of arrival."""


NOT_SLICED = Sliced()


@dataclass(frozen=True, slots=True)
class Left:
    """What a rewrite leaves in place of its files."""

    rows: Int64
    """int64: rows of the file table that it rewrites, ascending."""
    records: Int64
    """int64[files that it leaves]: their rows."""
    bytes: Int64
    """int64[files that it leaves]: their stored bytes."""
    target_bytes: int
    """Size in bytes that they are written to have."""
    columns: Mapping[int, ColumnBounds]
    """The bounds of these files, of columns in which they are narrower than those of all `rows`."""

    def elsewhere(self) -> Left:
        """Return what is left in the present partition, if the files go to another one."""
        return replace(self, records=self.records[:0], bytes=self.bytes[:0])


@dataclass(frozen=True, slots=True)
class AlreadySpent:
    """What earlier decisions have chosen."""

    taken: Bool
    """bool[files]: whether an action of an earlier decision rewrites the file."""
    cost: float = 0.0
    """Cost of the actions that earlier decisions chose, in bytes of reading."""
    exposed: float = 0.0
    """What the chosen actions add to the table's exposure, in bytes of reading
    (`room.PossibleLoss.exposure`)."""
    saved: tuple[tuple[int, float], ...] = ()
    """(partition, bytes of reading over the horizon) that each chosen action saves, openings
    included."""
    left: tuple[Left, ...] = ()
    """What the chosen actions leave in place of the files that they rewrite."""
    sliced: Sliced = NOT_SLICED
    """How a budget cuts the files that are being judged."""
