"""Snapshots of a table as values, whatever read them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from reconciler.table.summary_keys import ATTEMPT_ID, FENCE, only_appends


@dataclass(frozen=True, slots=True)
class SnapshotInfo:
    """One snapshot of a table."""

    id: int
    """Its id."""
    parent: int | None
    """The snapshot that it was made from, None for a root."""
    operation: str
    """What it did, as the specification names it, "" if its writer does not say."""
    summary: Mapping[str, str]
    """What its writer noted, without the operation."""
    sequence_number: int = 0
    """Its sequence number, 0 in a table of format 1."""
    timestamp_ms: int = 0
    """When it was made, in epoch milliseconds."""
    schema_id: int | None = None
    """The schema that it was written under, None if its writer does not say."""
    manifest_list: str = ""
    """Location of its manifest list; "" in a table of format 1 that has none. What a live snapshot
    needs is found by it: an engine that leaves it out loses the list."""

    @property
    def only_appends(self) -> bool:
        """Whether it added data files and nothing else."""
        return only_appends(self.operation, self.summary)

    def fences(self, attempt_id: str, batch: int) -> bool:
        """Whether the snapshot forbids the commit of the batch, or of its whole attempt (batch
        0)."""
        return self.summary.get(FENCE) in (f"{attempt_id}/{batch}", f"{attempt_id}/0")


def until(line: Iterable[SnapshotInfo], base: int) -> tuple[list[SnapshotInfo], bool]:
    """Return the ancestors newer than `base`, newest first; False if the walk did not reach it.

    line: the ancestors of a head, newest first.
    """
    newer: list[SnapshotInfo] = []
    for info in line:
        if info.id == base:
            return newer, True
        newer.append(info)
    return newer, False


def changed_lately(
    line: Iterable[SnapshotInfo], milliseconds: int, attempts: Collection[str]
) -> frozenset[int]:
    """Return the sequence numbers of the snapshots of so long before the head that change or delete
    rows.

    line: the ancestors of the head, newest first. attempts: ids of our own, whose snapshots do not
    count.
    """
    found: set[int] = set()
    since: int | None = None
    for info in line:
        since = info.timestamp_ms - milliseconds if since is None else since
        if info.timestamp_ms < since:
            break
        if not info.only_appends and info.summary.get(ATTEMPT_ID) not in attempts:
            found.add(info.sequence_number)
    return frozenset(found)


def short(snapshot_id: int | None) -> str:
    """Return a snapshot id as progress shows it: 7318…221."""
    text = str(snapshot_id)
    return text if len(text) <= 8 else f"{text[:4]}…{text[-3:]}"
