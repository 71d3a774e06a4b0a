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

DAY_MS = 86_400_000


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
    """One commit of another writer that changed or deleted rows.

    rows: deleted or replaced rows, None if unknown; at_most: an upper bound only (keys that never
    existed count too). files, partitions: touched, None if unknown. read_bytes: bytes of the data
    files that it replaced. added_files: data files; delete_files: delete files that it wrote.
    engine: "spark", "flink", "trino", "" if the commit does not say. inserted_rows: those of a
    MERGE that replace none, None if its engine does not count them.
    """

    snapshot_id: int
    timestamp_ms: int
    kind: Kind
    encoding: Encoding
    rows: int | None
    at_most: bool
    files: int | None
    partitions: int | None
    replaced_bytes: int | None
    added_rows: int
    added_files: int
    delete_files: int
    engine: str
    inserted_rows: int | None = None


@dataclass(frozen=True, slots=True)
class KindSummary:
    """Operations of one kind, encoding and engine. Medians over those that are known, else None.

    per_day: rate over the retained history.
    """

    kind: Kind
    encoding: Encoding
    engine: str
    count: int
    per_day: float
    rows: int | None
    at_most: bool
    files: int | None
    partitions: int | None
    added_files: int | None


@dataclass(frozen=True, slots=True)
class Operations:
    """every: newest first. span_ms: time over which they were counted."""

    every: tuple[RowOperation, ...] = ()
    span_ms: int = DAY_MS

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
