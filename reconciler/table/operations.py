"""Row-level operations of a table's history: what kind, how often, and how much they touch.

The encodings are those of "Petabyte-Scale Row-Level Operations in Data Lakehouses", section 3:
copy-on-write rewrites the data files (eager), merge-on-read writes deleted positions, and
equality deletes write deleted keys (lazy). A number that the history does not hold is None; it is
never 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from reconciler.table.times import DAY_MS


class Kind(StrEnum):
    DELETE = "delete"
    UPDATE = "update"
    MERGE = "merge"
    UPSERT = "upsert"
    OVERWRITE = "overwrite"


class Encoding(StrEnum):
    COPY_ON_WRITE = "copy-on-write"
    MERGE_ON_READ = "merge-on-read"
    EQUALITY = "equality"
    WHOLE_FILES = "whole files"


@dataclass(frozen=True, slots=True)
class RowOperation:
    """One commit of another writer that changed or deleted rows."""

    snapshot_id: int
    """Id of the snapshot."""
    timestamp_ms: int
    """Its commit time in epoch milliseconds."""
    kind: Kind
    """The statement."""
    encoding: Encoding
    """How the change is stored."""
    rows: int | None
    """Number of deleted or replaced rows; None if unknown."""
    at_most: bool
    """Whether `rows` is only an upper bound, because keys that never existed count too."""
    files: int | None
    """Number of data files that it touched; None if unknown."""
    partitions: int | None
    """Number of partitions that it touched; None if unknown."""
    replaced_bytes: int | None
    """Bytes of the data files that it replaced; None if unknown."""
    added_rows: int
    """Number of rows in the data files that it added."""
    added_files: int
    """Number of data files that it added."""
    delete_files: int
    """Number of delete files that it added."""
    engine: str
    """"spark", "flink" or "trino"; "" if the commit does not say."""
    inserted_rows: int | None = None
    """Number of rows of a MERGE that replace none; None if its engine does not count them."""


@dataclass(frozen=True, slots=True)
class KindSummary:
    """Operations of one kind, encoding and engine. Medians are over the operations with a known
    value; None if there is none."""

    kind: Kind
    """The statement."""
    encoding: Encoding
    """How the change is stored."""
    engine: str
    """"spark", "flink" or "trino"; "" if the commits do not say."""
    count: int
    """Number of operations."""
    per_day: float
    """Operations per day of the retained history."""
    rows: int | None
    """Median of the deleted or replaced rows."""
    at_most: bool
    """Whether `rows` of some operation is only an upper bound."""
    files: int | None
    """Median of the data files touched."""
    partitions: int | None
    """Median of the partitions touched."""
    added_files: int | None
    """Median of the data files added."""


@dataclass(frozen=True, slots=True)
class Operations:
    """Row-level operations of other writers."""

    every: tuple[RowOperation, ...] = ()
    """The operations, newest first."""
    span_ms: int = DAY_MS
    """Milliseconds by which rates divide."""
    covered_ms: int | None = None
    """Milliseconds from the oldest retained snapshot to the newest, where `span_ms` is longer."""

    @property
    def per_day(self) -> float:
        return len(self.every) * DAY_MS / self.span_ms

    def summaries(self) -> tuple[KindSummary, ...]:
        """Return one summary per kind, encoding and engine, the most frequent first."""
        groups: dict[tuple[Kind, Encoding, str], list[RowOperation]] = {}
        for one in self.every:
            groups.setdefault((one.kind, one.encoding, one.engine), []).append(one)
        found = [self._summary(items) for items in groups.values()]
        return tuple(sorted(found, key=lambda s: (-s.count, s.kind, s.encoding, s.engine)))

    def _summary(self, items: Sequence[RowOperation]) -> KindSummary:
        first = items[0]
        return KindSummary(
            kind=first.kind,
            encoding=first.encoding,
            engine=first.engine,
            count=len(items),
            per_day=len(items) * DAY_MS / self.span_ms,
            rows=_median([one.rows for one in items]),
            at_most=any(one.at_most for one in items),
            files=_median([one.files for one in items]),
            partitions=_median([one.partitions for one in items]),
            added_files=_median([one.added_files for one in items]),
        )


NO_OPERATIONS = Operations()


def _median(values: Sequence[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return int(np.median(known)) if known else None
