"""Commits one change of a table's files: writes a snapshot, and sends it once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from reconciler import __version__
from reconciler.commit import request
from reconciler.commit.metadata import NEWEST_VERSION, Update
from reconciler.commit.request import Request
from reconciler.commit.snapshot import (
    CommitNames,
    Make,
    MissingFilesError,
    SnapshotChange,
    SnapshotProducer,
)
from reconciler.commit.table import LiveTable, Snapshot, State
from reconciler.engines.answers import Answer, Kind
from reconciler.errors import UnsupportedError, first_line

ENGINE: Mapping[str, str] = {"engine-name": "layoutctl", "engine-version": __version__}
"""Fields of a summary that name the writer."""


@dataclass(frozen=True, slots=True)
class Sent:
    """What became of a change."""

    answer: Answer
    """The catalog's answer, or why it was not asked."""
    written: tuple[str, ...] = ()
    """The manifests and the manifest list that were written for the request."""


def commit(
    table: LiveTable, change: SnapshotChange, names: CommitNames, make: Make = SnapshotProducer.make
) -> Sent:
    """Write and send one change, made for the table's state as last refreshed. Raises nothing.

    Once the request has left, nothing that was written is removed, whatever the answer is: a
    request that was delivered twice is refused because of itself, and history decides. names:
    recorded before, so that what was written is found after a crash. make: writes the snapshot,
    where manifests are not those of a change of files.
    """
    state = table.state
    producer = SnapshotProducer(table, change, names, ENGINE)
    try:
        _require_version(state, table.name)
        made = make(producer)
    except BaseException as error:
        for path in producer.written:
            table.delete(path)
        if not isinstance(error, Exception):
            raise
        return Sent(not_sent(error))
    required = request.requirements(state, change.branch)
    updates = _updates(state, change, names, made)
    answer = request.send(table, Request(state, updates, required, names.uuid))
    return Sent(answer, tuple(producer.written))


def not_sent(error: Exception) -> Answer:
    """Return the answer of a commit that ended before its request left: the table is not as the
    commit needs it, or the storage or the database failed."""
    kind = Kind.FAILED
    if isinstance(error, MissingFilesError):
        kind = Kind.REFUSED
    elif isinstance(error, UnsupportedError):
        kind = Kind.UNSENT
    return Answer(kind, first_line(error), error, cannot_arrive=True)


def _require_version(state: State, name: str) -> None:
    """Raise UnsupportedError for a table whose snapshots need what is not written here."""
    if state.version > NEWEST_VERSION:
        raise UnsupportedError(
            f"{name} has format version {state.version}, which needs Spark",
            details=("Row ids and deletion vectors are written by Iceberg's Java library only.",),
            do="let Spark commit to the table: set engine.type to Spark",
        )


def _updates(
    state: State, change: SnapshotChange, names: CommitNames, made: Snapshot
) -> list[Update]:
    known = state.refs.get(change.branch, {})
    ref = {"type": "branch", **known, "snapshot-id": names.snapshot_id}
    return [
        {"action": "add-snapshot", "snapshot": made},
        {"action": "set-snapshot-ref", "ref-name": change.branch, **ref},
    ]
