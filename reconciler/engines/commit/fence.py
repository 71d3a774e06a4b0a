"""Settles attempts with an unknown outcome: committed, or fenced and cleaned up
(docs/design/definitions.md#fenced).

An attempt is fenced when no late request of it can succeed any more. Either the head has moved past
the one that the request was made for, without it; or the catalog is a local SQLite file and the
attempt's processes are gone; or an empty append that carries `layout.fence` moves the head. Only
then may its files be removed, and only then may another attempt use its inputs.

If its processes cannot be observed (another host, another container), the attempt may yet send its
first commit. The append then names the whole attempt, and an attempt that finds itself named in a
snapshot newer than the one it read does not commit (`commit.Guard`).

The head that counts is that of the last request, not the snapshot from which the rows were read: a
batch is sent on top of other writers' appends and of our own earlier batches. Only the process that
sent it knows that head; after a crash it is unknown, and a moved head proves nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from reconciler.api.catalog_config import CatalogConfig
from reconciler.engines.answers import Kind
from reconciler.engines.commit import audit, cleanup, displaced, history, metadata_files
from reconciler.engines.commit.history import Committed
from reconciler.engines.commit.operations import Mark
from reconciler.engines.schedule import processes
from reconciler.engines.snapshots import SnapshotInfo, until
from reconciler.engines.table import Table
from reconciler.errors import BlockedError, UnavailableError
from reconciler.format import count, iec
from reconciler.plan.execution import (
    ATTEMPT_CLOSED,
    COMMITTED,
    FAILED,
    Event,
    Intent,
    Lease,
    Ledger,
    Outcome,
)
from reconciler.table import summary_keys

JVM_EXIT_SECONDS = 90.0
"""Wait for a JVM that lost its driver: it ends by itself after the commit that it was sending."""

OnEvent = Callable[[Event], None]


def resolve(
    catalog: CatalogConfig,
    identifier: tuple[str, ...],
    table: Table,
    ledger: Ledger,
    lease: Lease,
    on_event: OnEvent,
) -> int:
    """Settle every open attempt of the table and return their number.

    identifier: the table's name in the catalog. Call it with the lease held, before any work.
    """
    intents = ledger.open_intents(table.uuid())
    by_attempt: dict[str, list[Intent]] = {}
    for intent in intents:
        by_attempt.setdefault(intent.attempt_id, []).append(intent)
    for attempt_id, members in sorted(by_attempt.items()):
        members.sort(key=lambda intent: intent.batch)
        gone = _sender_gone(members, lease, attempt_id, table.name)
        sent = [intent for intent in members if intent.batch > 0]
        if not gone:
            _fence_attempt(table, members[0], sent, on_event)
        audit.drop(table, attempts=(attempt_id,))
        removed = size = 0
        failed: list[str] = []
        for intent in sent:
            outcomes = settle(catalog, table, intent, gone, on_event)
            failed += intent.commits if outcomes[0].state == FAILED else ()
            # Its commit to the branch may have arrived while this one waited.
            audit.drop(table, attempts=(attempt_id,))
            base = intent.base_snapshot_id
            gone_now = metadata_files.remove_of_commits(table, intent.commits, base).required()
            ledger.record_outcomes(intent, outcomes)
            displaced.refuse(table, outcomes[0].snapshot_id)
            removed, size = removed + gone_now.files, size + gone_now.bytes
        others = (catalog, identifier)
        left = cleanup.remove_leftovers(table, members[0].prefix, others=others, commits=failed)
        _close(ledger, members)
        on_event(_cleaned_up(removed + left.files, size + left.bytes, left.refused))
    return len(by_attempt)


def _cleaned_up(files: int, size: int, refused: str) -> Event:
    """Return the event after the leftovers were removed. refused: why others were not."""
    rest = f"; the rest stays: {refused}" if refused else ""
    what = f"{count(files)} leftover files ({iec(size)}) removed{rest}"
    return Event("resumed", f"cleaned up after an interrupted attempt: {what}")


def _close(ledger: Ledger, members: Sequence[Intent]) -> None:
    opened = [intent for intent in members if intent.batch == 0]
    for intent in opened:
        ledger.record_outcomes(intent, (closed(intent),))


def closed(intent: Intent) -> Outcome:
    """Return the single outcome of batch 0: the attempt's prefix holds only referenced files."""
    return Outcome(intent.attempt_id, 0, "", ATTEMPT_CLOSED, None, 0, 0, 0, 0, 0, 0.0, 0.0)


def _sender_gone(members: Sequence[Intent], lease: Lease, attempt_id: str, name: str) -> bool:
    """Whether the attempt's processes are known to be dead; a JVM that is still ending is waited
    for.

    False if they ran elsewhere, where they cannot be observed. An attempt that still runs here is
    not settled.
    """
    writer = members[0].writer
    if writer and not processes.is_local(writer):
        return False
    if writer and processes.wait_until_dead(writer, JVM_EXIT_SECONDS):
        return True
    if not writer and lease.writer_is_dead(members[0].table_uuid, attempt_id):
        return True
    raise BlockedError(
        f"another attempt on {name} is still running ({attempt_id})",
        do="wait for it to end, or stop it, then run the command again",
    )


def settle(
    catalog: CatalogConfig,
    table: Table,
    intent: Intent,
    sender_gone: bool,
    on_event: OnEvent,
    asserted: int | None = None,
) -> tuple[Outcome, ...]:
    """Return the outcomes of one batch: committed if it is in history, else failed once it is
    fenced.

    sender_gone: the processes that sent the commit are dead, or the call has returned. asserted:
    the head that the last request was made for, None if unknown.
    """
    found = history.search(table, intent)
    if found is None and not (
        _fenced(table, catalog, sender_gone, asserted) or _marked(table, intent)
    ):
        found = _fence_by_append(table, intent, on_event)
    if found is not None:
        return committed_outcomes(table, intent, found)
    return tuple(
        Outcome(intent.attempt_id, intent.batch, action, FAILED, None, 0, 0, 0, 0, 0, 0.0, 0.0,
                "never reached the table")
        for action in intent.action_ids
    )  # fmt: skip


def _fenced(table: Table, catalog: CatalogConfig, sender_gone: bool, asserted: int | None) -> bool:
    if sender_gone and is_local_sqlite(catalog):
        return True
    return _moved_past(table, asserted)


def _moved_past(table: Table, asserted: int | None) -> bool:
    """Whether main grew beyond the snapshot, so that no request made for it succeeds any more."""
    head = table.head()
    if asserted is None or head is None or head == asserted:
        return False
    return until(table.ancestors(), asserted)[1]


def is_local_sqlite(catalog: CatalogConfig) -> bool:
    """Whether the catalog is a local SQLite file: commits are system calls of the sender, so that
    none can arrive after its death."""
    return str(catalog.properties.get("uri", "")).startswith("sqlite")


def _marked(table: Table, intent: Intent) -> bool:
    """Whether history already shows that the batch is fenced."""
    newer, _ = until(table.ancestors(), intent.base_snapshot_id)
    return any(snapshot.fences(intent.attempt_id, intent.batch) for snapshot in newer)


def _fence_attempt(table: Table, opened: Intent, sent: Sequence[Intent], on_event: OnEvent) -> None:
    """Fence the attempt: from now on none of its batches can be committed, sent already or not.

    opened: batch 0, or the first that is open. sent: the batches without a recorded outcome.
    """
    table.refresh()
    if _marked(table, replace(opened, batch=0)):
        return
    if not all(history.search(table, one) for one in sent):
        _wait_for_requests(on_event)
    table.refresh()
    append_mark(table, opened.attempt_id, 0)


def _fence_by_append(table: Table, intent: Intent, on_event: OnEvent) -> Committed | None:
    """Wait for the request timeout, then move the head unless someone else did."""
    _wait_for_requests(on_event)
    found = history.search(table, intent)
    if found is not None:
        return found
    append_mark(table, intent.attempt_id, intent.batch)
    return history.search(table, intent)


def _wait_for_requests(on_event: OnEvent) -> None:
    seconds = history.REQUEST_TIMEOUT_SECONDS
    on_event(
        Event(
            "fence",
            f"the outcome of a commit is unknown; waiting {seconds:.0f} s, then an empty append "
            "makes sure that it cannot arrive late",
        )
    )
    time.sleep(seconds)


def append_mark(table: Table, attempt_id: str, batch: int) -> None:
    """Append the snapshot that fences the batch, once, whatever the answer is.

    batch: 0 for the whole attempt, whose sender may live. Only the mark itself keeps that from
    sending once more, for a newer head.
    """
    mark = f"{attempt_id}/{batch}"
    base = table.head()
    guard = _MarkGuard(table, mark, base)
    change = table.begin(Mark())
    answer = change.send(Mark(), change.base, {summary_keys.FENCE: mark}, guard)
    try:
        table.refresh()
        appended = guard.find()
    except Exception as failed:
        raise _unfenced(attempt_id) from failed
    if appended is not None:
        metadata_files.tidy(table, change, answered=answer.kind is Kind.ACCEPTED)
        displaced.refuse(table, appended, on_empty=base is None)
        return
    accepted = answer.kind is Kind.ACCEPTED
    if batch and accepted and _moved_past(table, base):  # the mark has expired since
        return
    if answer.cannot_arrive:
        metadata_files.remove_unwanted(table, change)
    raise _unfenced(attempt_id, accepted=accepted) from answer.error


def _unfenced(attempt_id: str, *, accepted: bool = False) -> UnavailableError:
    """accepted: the catalog says that it took the mark, and its table does not have it."""
    does = "accepts commits and does not show them" if accepted else "does not accept commits"
    return UnavailableError(
        f"attempt {attempt_id} could not be fenced: the catalog {does}",
        details=("Until it is fenced, its files stay and nothing is rewritten.",),
        do="run the command again when the catalog works",
    )


@dataclass(frozen=True, slots=True)
class _MarkGuard:
    """Ends the sending once the mark is in the table: a second one would fence nothing more."""

    table: Table
    mark: str
    base: int | None
    refusal: str = ""

    def find(self) -> int | None:
        """Return the snapshot with the mark in the last refreshed table."""
        for snapshot in self.table.added_since(-1 if self.base is None else self.base):
            if snapshot.summary.get(summary_keys.FENCE) == self.mark:
                return snapshot.id
        return None

    def allows(self, line: Iterable[SnapshotInfo]) -> bool | None:
        return True if self.find() is None else None


def committed_outcomes(table: Table, intent: Intent, found: Committed) -> tuple[Outcome, ...]:
    """Return outcomes from the intent and the snapshot's summary, for a batch whose executor died
    before recording them.

    A batch of several actions has one summary: its sums are given to the first of them.
    """
    snapshot = table.snapshot(found.snapshot_id)
    summary = {} if snapshot is None else snapshot.summary  # {}: it has expired since

    def number(key: str) -> int:
        return int(summary.get(key, "0"))

    first = Outcome(
        intent.attempt_id,
        intent.batch,
        intent.action_ids[0],
        COMMITTED,
        found.snapshot_id,
        number("removed-files-size"),
        number("added-files-size"),
        number("added-records") + number("added-position-deletes"),
        len(intent.inputs),
        len(intent.outputs),
        0.0,
        0.0,
        "from the snapshot's summary",
    )
    rest = tuple(
        Outcome(intent.attempt_id, intent.batch, action, COMMITTED, found.snapshot_id,
                0, 0, 0, 0, 0, 0.0, 0.0, f"counted with {intent.action_ids[0]}")
        for action in intent.action_ids[1:]
    )  # fmt: skip
    return (first, *rest)
