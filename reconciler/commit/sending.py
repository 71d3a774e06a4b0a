"""Commits one change of a table's files: writes a snapshot, sends it once, removes what is not
needed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from reconciler import __version__
from reconciler.commit import request
from reconciler.commit.metadata import NEWEST_VERSION, Update
from reconciler.commit.request import Accepted, Answer, LostRace, Request, Unknown, Unsent
from reconciler.commit.snapshot import Change, Made, Missing, Names, Producer
from reconciler.commit.table import LiveTable, State
from reconciler.errors import UnsupportedError

ENGINE: Mapping[str, str] = {"engine-name": "layoutctl", "engine-version": __version__}
"""Fields of a summary that name the writer."""


@dataclass(frozen=True, slots=True)
class Sent:
    """What became of a change."""

    answer: Answer
    """Of the catalog, or why it was not asked."""
    snapshot_id: int
    """Of the snapshot, committed or not."""
    base: State
    """The state that it was made for."""
    written: tuple[str, ...] = ()
    """Manifests and the manifest list that were written, and not removed."""


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
    """Write and send one change, made for the table's state as last refreshed; remove what it wrote
    if nothing of it can arrive.

    names: recorded before, so that what was written is found after a crash. make: writes the
    snapshot, where manifests are not those of a change of files. Raises UnsupportedError
    and what reading the table raises, having removed what it wrote.
    """
    sent = sent_once(table, change, names, make)
    if isinstance(sent.answer, Accepted | Unknown):
        return sent
    found = arrived(table, sent)
    if found is None:
        why = "it was refused, and whether it arrived before cannot be seen"
        return replace(sent, answer=Unknown(why))
    if found:
        return replace(sent, answer=Accepted(table.state.location))
    for path in sent.written:
        table.delete(path)
    return replace(sent, written=())


def sent_once(
    table: LiveTable,
    change: Change,
    names: Names,
    make: Callable[[Producer], Made] = Producer.make,
) -> Sent:
    """Write and send one change as `commit`, and remove nothing, whatever the answer is.

    A request that was delivered twice is refused because of itself: history decides.
    """
    state = table.state
    require_version(state, table.name)
    producer = Producer(table, change, names, ENGINE)
    try:
        made = make(producer)
    except Missing as error:
        answer: Answer = LostRace(str(error))
    except OSError as error:
        answer = Unsent(error)
    except BaseException:
        for path in producer.written:
            table.delete(path)
        raise
    else:
        required = request.requirements(state, change.branch)
        updates = _updates(state, change, names, made)
        answer = request.send(table, Request(state, updates, required, names.uuid))
    return Sent(answer, names.snapshot_id, state, tuple(producer.written))


def _updates(state: State, change: Change, names: Names, made: Made) -> list[Update]:
    known = state.refs.get(change.branch, {})
    ref = {"type": "branch", **known, "snapshot-id": names.snapshot_id}
    return [
        {"action": "add-snapshot", "snapshot": made.snapshot},
        {"action": "set-snapshot-ref", "ref-name": change.branch, **ref},
    ]


def arrived(table: LiveTable, sent: Sent) -> bool | None:
    """Whether the snapshot is in the table as it is now; None if that cannot be seen: the catalog
    does not answer, or snapshots have expired since."""
    try:
        state = table.refresh()
    except Exception:
        return None
    if sent.snapshot_id in state.snapshots:
        return True
    return False if sent.base.snapshots.keys() <= state.snapshots.keys() else None
