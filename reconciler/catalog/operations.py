"""Reads row-level operations from the summaries of a table's snapshots; no file is opened.

The name of a snapshot's operation does not say what was done: a row delta without new rows is
called `delete`, with new rows `overwrite`. What it added and removed does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from reconciler.table.observation import SnapshotInfo
from reconciler.table.operations import Encoding, Kind, Operations, RowOperation
from reconciler.table.times import DAY_MS

MERGE_KEYS = "spark.merge-into.num-target-rows-"


def operations_of(ancestry: Sequence[SnapshotInfo]) -> Operations:
    """Return the row-level operations of the retained history, newest first.

    Our own commits and rewrites of the same rows (`replace`) are none.
    """
    found = tuple(one for snapshot in ancestry if (one := _operation(snapshot)) is not None)
    if not ancestry:
        return Operations(found)
    covered = max(0, ancestry[0].timestamp_ms - ancestry[-1].timestamp_ms)
    span = _span(covered, ancestry[-1].sequence_number <= 1)
    return Operations(found, span, covered if covered < span else None)


def _span(covered: int, complete: bool) -> int:
    """Return the time that the history covers, at least a day where it begins with the table.

    A young table has no known rate for less than a day; an old one may keep only an hour of
    snapshots, and its rate is that of the hour.
    """
    return max(covered, DAY_MS) if complete or not covered else covered


def _operation(snapshot: SnapshotInfo) -> RowOperation | None:
    summary = _Summary(snapshot.summary)
    if snapshot.ours or snapshot.operation not in ("overwrite", "delete"):
        return None
    positions = summary.count("added-position-deletes")
    encoding = _encoding(summary, positions)
    if encoding is None:
        return None
    rows, at_most = _rows(summary, encoding)
    return RowOperation(
        snapshot_id=snapshot.snapshot_id,
        timestamp_ms=snapshot.timestamp_ms,
        kind=_kind(summary, encoding, rows),
        encoding=encoding,
        rows=rows,
        at_most=at_most,
        files=_files(summary, encoding),
        partitions=summary.known("changed-partition-count"),
        replaced_bytes=summary.known("removed-files-size"),
        added_rows=summary.count("added-records"),
        added_files=summary.count("added-data-files"),
        delete_files=summary.count("added-delete-files"),
        engine=engine_of(snapshot.summary),
        inserted_rows=summary.count(f"{MERGE_KEYS}inserted") if summary.merge else None,
    )


class _Summary:
    """A snapshot's summary; numbers that are missing or damaged are unknown."""

    def __init__(self, values: Mapping[str, str]):
        self.values = values

    def known(self, name: str) -> int | None:
        try:
            found = int(self.values[name])
        except (KeyError, ValueError):
            return None
        return found if found >= 0 else None

    def count(self, name: str) -> int:
        """Return the number, 0 if missing: engines leave out what is zero."""
        return self.known(name) or 0

    @property
    def names_merges(self) -> bool:
        """Whether its engine would have counted the rows if it were a MERGE: Spark from 4.1 on."""
        version = self.values.get("engine-version", "").split(".")[:2]
        numbers = [int(part) if part.isdigit() else 0 for part in version]
        return self.values.get("engine-name", "").lower() == "spark" and numbers >= [4, 1]

    @property
    def merge(self) -> bool:
        return any(name.startswith(MERGE_KEYS) for name in self.values)


def _encoding(summary: _Summary, positions: int) -> Encoding | None:
    """Equality deletes come with position deletes where a row changed twice in one commit."""
    if summary.count("added-equality-delete-files") or summary.count("added-equality-deletes"):
        return Encoding.EQUALITY
    if positions or summary.count("added-dvs") or summary.count("added-position-delete-files"):
        return Encoding.MERGE_ON_READ
    if not summary.count("deleted-data-files"):
        return None  # deletes were only removed, or nothing was changed
    added = summary.count("added-data-files")
    replaced = summary.values.get("replace-partitions") == "true"
    return Encoding.COPY_ON_WRITE if added and not replaced else Encoding.WHOLE_FILES


def _rows(summary: _Summary, encoding: Encoding) -> tuple[int | None, bool]:
    """Return the deleted or replaced rows, None if unknown, and whether that is an upper bound."""
    if encoding is Encoding.EQUALITY:
        return summary.count("added-equality-deletes"), True
    if encoding is Encoding.MERGE_ON_READ:
        # A writer that folds older positions into its files adds them once more and removes them.
        added = summary.count("added-position-deletes")
        return max(0, added - summary.count("removed-position-deletes")), False
    if encoding is Encoding.WHOLE_FILES:
        return summary.known("deleted-records"), False
    if not summary.merge:
        # A DELETE keeps all other rows; an UPDATE leaves their number, whatever it changed.
        fewer = summary.count("deleted-records") - summary.count("added-records")
        return (fewer if fewer > 0 and summary.names_merges else None), False
    changed = [summary.count(MERGE_KEYS + what) for what in ("updated", "deleted")]
    return sum(changed), False


def _kind(summary: _Summary, encoding: Encoding, rows: int | None) -> Kind:
    added = summary.count("added-records")
    if summary.merge:
        return Kind.MERGE
    if encoding is Encoding.EQUALITY:
        return Kind.UPSERT if added else Kind.DELETE
    if encoding is Encoding.WHOLE_FILES:
        return Kind.OVERWRITE if added else Kind.DELETE
    if encoding is Encoding.MERGE_ON_READ:
        return Kind.DELETE if not added else Kind.UPDATE if added == rows else Kind.MERGE
    removed = summary.count("deleted-records")
    return Kind.DELETE if added < removed else Kind.UPDATE if added == removed else Kind.OVERWRITE


def _files(summary: _Summary, encoding: Encoding) -> int | None:
    """Return the data files touched: replaced ones, or those that got a vector or a file of
    positions."""
    if encoding in (Encoding.COPY_ON_WRITE, Encoding.WHOLE_FILES):
        return summary.known("deleted-data-files")
    if encoding is Encoding.EQUALITY:
        return None  # every older file of its partitions is in scope
    return summary.known("added-dvs") or summary.known("added-position-delete-files")


def engine_of(summary: Mapping[str, str]) -> str:
    """Return the engine that a commit names, "" if it names none."""
    named = summary.get("engine-name", "").strip().lower()
    if named:
        return named
    if "flink.job-id" in summary:
        return "flink"
    if "trino_query_id" in summary:
        return "trino"
    return "spark" if "spark.app.id" in summary else ""
