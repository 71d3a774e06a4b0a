"""Commits one change of a table's files: writes a snapshot, sends it once, removes what is not
needed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from reconciler import __version__
from reconciler.commit import request
from reconciler.commit.metadata import Update
from reconciler.commit.request import Accepted, Answer, LostRace, Request, Unknown, Unsent
from reconciler.commit.snapshot import Change, Made, Missing, Names, Producer
from reconciler.commit.table import LiveTable, State
from reconciler.errors import UnsupportedError

ENGINE: Mapping[str, str] = {"engine-name": "layoutctl", "engine-version": __version__}
"""Fields of a summary that name the writer."""
NEWEST_VERSION = 2
"""Format version of the tables whose snapshots are written here."""


@dataclass(frozen=True, slots=True)
class Sent:
    """What became of a change."""

    answer: Answer
    """Of the catalog, or why it was not asked."""
    snapshot_id: int
    """Of the snapshot, committed or not."""
    base: State
    """The state that it was made for."""


def require_version(state: State, name: str) -> None:
    """Raise UnsupportedError for a table whose snapshots need what is not written here."""
    if state.version > NEWEST_VERSION:
        raise UnsupportedError(
            f"{name} has format version {state.version}, which needs Spark",
            details=("Row ids and deletion vectors are written by Iceberg's Java library only.",),
            do="let Spark commit to the table: set engine.type to Spark",
        )


def commit(
    table: LiveTable,
    change: Change,
    names: Names,
    make: Callable[[Producer], Made] = Producer.make,
) -> Sent:
    """Write and send one change, made for the table's state as last refreshed.

    names: recorded before, so that what was written is found after a crash. make: writes the
    snapshot, where manifests are not those of a change of files. Raises UnsupportedError
    and what reading the table raises, having removed what it wrote.
    """
    state = table.state
    require_version(state, table.name)
    producer = Producer(table, change, names, ENGINE)
    try:
        made = make(producer)
    except Missing as error:
        _remove(table, producer)
        return Sent(LostRace(str(error)), names.snapshot_id, state)
    except OSError as error:
        _remove(table, producer)
        return Sent(Unsent(error), names.snapshot_id, state)
    except BaseException:
        _remove(table, producer)
        raise
    ref: dict[str, Any] = {"snapshot-id": names.snapshot_id, "type": "branch"}
    ref |= {k: v for k, v in state.refs.get(change.branch, {}).items() if k not in ref}
    updates: list[Update] = [
        {"action": "add-snapshot", "snapshot": made.snapshot},
        {"action": "set-snapshot-ref", "ref-name": change.branch, **ref},
    ]
    required = request.requirements(state, change.branch)
    answer = request.send(table, Request(state, updates, required, names.uuid))
    if not isinstance(answer, Accepted | Unknown):
        _remove(table, producer)
    return Sent(answer, names.snapshot_id, state)


def _remove(table: LiveTable, producer: Producer) -> None:
    for path in producer.written:
        table.delete(path)
