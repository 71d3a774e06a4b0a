"""Commits one batch exactly once, on a table that is still the one the work was made from.

What is committed is an `operations.Operation`; the protocol is the same for all of them. Our checks
run right before every request, with the refreshed ancestry. A commit counts as failed only if the
engine knows that it cannot arrive and history does not hold the batch: a request that was sent
twice gets a conflict with itself. Any other failure leaves the outcome unknown
(docs/design/decisions.md#unknown-is-not-failure). The engine deletes no file of our commits by
itself; that is done after the search (`metadata_files`).
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from reconciler.engines.answers import Answer, Kind
from reconciler.engines.commit import history, metadata_files, standing
from reconciler.engines.commit.history import Committed
from reconciler.engines.commit.operations import Operation
from reconciler.engines.snapshots import SnapshotInfo, short, until
from reconciler.engines.table import PendingCommit, Table
from reconciler.errors import AccessDeniedError
from reconciler.plan.execution import Intent
from reconciler.table import summary_keys
from reconciler.table.others import paused_because

SENDS = 5
"""Times that a batch is sent while it only loses against other writers."""
RESEND_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Base:
    """The table as it was when the work of a batch was read."""

    table_uuid: str
    """UUID of the table."""
    schema_id: int
    """Id of its schema."""
    snapshot_id: int
    """Id of its head."""
    format_version: int
    """Its format version."""


@dataclass(frozen=True, slots=True)
class Refused:
    """Nothing was committed. Where no field says more, the catalog refused the commit."""

    why: str
    """What happened, as a clause."""
    conflict: bool
    """Whether another writer changed the table, so that inputs must be checked again."""
    rolled_back: bool = False
    """Whether somebody rolled one of our commits back."""
    denied: bool = False
    """Whether we may not commit to this table at all."""
    fenced: bool = False
    """Whether another run took the attempt for dead and removed its files."""
    paused: str = ""
    """Why the table stops every action on it, "" if it does not."""
    live: str = ""
    """The branch that could not be published after a rewrite of main, "" for none."""
    unwritable: Exception | None = None
    """The storage's error, if it is full or read-only."""
    audit: bool = False
    """Whether the policy's check refused it."""
    invalid: bool = False
    """Whether the library, or the catalog, finds the commit wrong, whatever the table's state."""

    @property
    def final(self) -> bool:
        """Whether sending the same again would be refused again."""
        known = self.conflict or self.denied or self.fenced or self.invalid
        return known or bool(self.live or self.paused) or self.unwritable is not None


@dataclass(frozen=True, slots=True)
class Unknown:
    """A commit that was sent, with an unknown outcome."""

    why: str
    """What the catalog or the library said."""
    lost: bool
    """Whether the process that sent it is gone too."""
    asserted: int | None = None
    """The head that the last request was made for, None if it is unknown."""
    unwritable: Exception | None = None
    """As in `Refused`."""


Sent = Committed | Refused | Unknown


@dataclass(frozen=True, slots=True)
class Batch:
    """The content of one commit."""

    operation: Operation
    """Which files it removes and adds."""
    base: Base
    """The state of the table that the work was made from."""
    intent: Intent
    """The record of the batch, written before it is sent."""
    own: Collection[int]
    """Snapshots that this attempt committed; none of them may have been rolled back."""
    allow_live_branches: bool = False
    """Whether branches that other writers use are allowed, as in the policy."""


@dataclass
class Guard:
    """Judges a commit right before each of its requests (`table.Guard`)."""

    table: Table
    """The table that is committed to."""
    batch: Batch
    """What is committed."""
    refusal: str = ""
    """Why the last call refused, "" if it did not."""
    rolled_back: bool = False
    """Whether it refused because one of our commits was rolled back."""
    fenced: bool = False
    """Whether another run has settled this batch, whose files are then gone."""
    paused: str = ""
    """Why the table stops every action on it, "" if it does not."""
    live_branch: str = ""
    """The branch because of which it refused, "" for none."""
    already: Committed | None = None
    """The snapshot that carries the batch, None if none does."""
    asserted: int | None = None
    """The head that the last request was made for, the only one on which the catalog accepts it."""

    def allows(self, line: Iterable[SnapshotInfo]) -> bool | None:
        """Judge the request as `table.Guard` says, and note why it is refused."""
        try:
            self.already = history.carrying(self.table, self.batch.intent)
            if self.already is not None:
                return None
            seen = _down_to(line, self.batch.base.snapshot_id)
            self.asserted = seen[0].id if seen else None
            self.refusal = self._check(seen)
        except Exception as error:
            why = self.table.errors.message(error)
            self.refusal = f"the table could not be checked: {why}"
        return not self.refusal

    def explain(self) -> str:
        """Return what our checks find about a conflict that the engine found first; "" if
        nothing."""
        table, base_id = self.table, self.batch.base.snapshot_id
        table.refresh()
        newer, _ = until(table.ancestors(), base_id)
        base = table.snapshot(base_id)
        line = [*newer, *([base] if base is not None else [])]
        return self._check(line) if line else ""

    def _check(self, line: Sequence[SnapshotInfo]) -> str:
        """Return why the commit is refused. line: from the head back to the base, included if
        reached."""
        table, base, intent = self.table, self.batch.base, self.batch.intent
        newer = [s for s in line if s.id != base.snapshot_id]
        if any(snapshot.fences(intent.attempt_id, intent.batch) for snapshot in newer):
            self.fenced = True
            return "another run considered this attempt dead and removed its files"
        if len(newer) == len(line):
            return "the snapshot it was made from is no longer in the table's history"
        missing = set(self.batch.own) - {snapshot.id for snapshot in newer}
        if missing:
            self.rolled_back = True
            return f"commit {short(missing.pop())} of this plan was rolled back"
        if table.uuid() != base.table_uuid:
            return "the table was dropped and created again"
        if table.schema_id() != base.schema_id:
            return "the table's schema was changed"
        if table.format_version() != base.format_version:
            return upgraded(table)
        if unfit := self.batch.operation.unfit(table):
            return unfit
        self.paused = paused_because(table.properties())
        if self.paused:
            return self.paused
        if not self.batch.allow_live_branches:
            self.live_branch = standing.live_branch(table)
            if self.live_branch:
                return f"the table has a live {self.live_branch}"
        foreign = [s for s in newer if s.summary.get(summary_keys.ATTEMPT_ID) != intent.attempt_id]
        changing = [s for s in foreign if not s.only_appends]
        if not changing:
            return ""
        return self.batch.operation.conflict(table, line[0].id, changing)


def upgraded(table: Table) -> str:
    """Return that files written for an older format do not fit: format 3 takes no position delete
    files, and its readers know rows by ids that files of format 2 do not have."""
    return f"the table was upgraded to format {table.format_version()}"


def _down_to(line: Iterable[SnapshotInfo], base: int) -> list[SnapshotInfo]:
    """Return the snapshots from the head back to the base, included; all of them if it is
    missing."""
    found = []
    for one in line:
        found.append(one)
        if one.id == base:
            break
    return found


def prepare(table: Table, operation: Operation) -> tuple[PendingCommit, ...]:
    """Return the commits that may be sent for one batch, one after the other.

    Their UUIDs are recorded before the first of them writes a file.
    """
    return tuple(table.begin(operation) for _ in range(SENDS))


def send(table: Table, batch: Batch, commits: Sequence[PendingCommit]) -> Sent:
    """Commit a batch; send it again while it only loses against other writers."""
    sent: Sent = Refused("not sent", conflict=False)
    for number, change in enumerate(commits):
        if number:
            time.sleep(RESEND_SECONDS * number)
        sent = _send_once(table, batch, change)
        if not isinstance(sent, Refused) or sent.final:
            break
    return sent


def _send_once(table: Table, batch: Batch, change: PendingCommit) -> Sent:
    """Send one commit and search history for it, whatever the answer was."""
    guard = Guard(table, batch)
    answer = change.send(batch.operation, batch.base.snapshot_id, _summary(batch), guard)
    if answer.kind is Kind.LOST:
        return Unknown(answer.why, lost=True, asserted=guard.asserted)
    if answer.kind is Kind.UNSENT:
        return Refused(guard.explain() or answer.why, conflict=True)
    try:
        found = history.search(table, batch.intent) or guard.already
    except Exception as failed:
        if table.errors.lost(failed):
            return Unknown(str(failed), lost=True, asserted=guard.asserted)
        if answer.kind is Kind.FAILED:  # nothing left, so that nothing can be in the table
            raise
        return Unknown(
            f"the table's history could not be read: {table.errors.message(failed)}",
            lost=False,
            asserted=guard.asserted,
        )
    if found is not None:
        metadata_files.tidy(table, change, answered=answer.kind is Kind.ACCEPTED)
        return found
    if answer.kind is Kind.ACCEPTED:
        why = "the catalog accepted the commit but does not show it"
        return Unknown(why, lost=False, asserted=guard.asserted)
    refused = _classify(answer, guard)
    if isinstance(refused, Refused) and refused.invalid:  # no library cleans up after these
        metadata_files.remove_of_commits(table, (change.uuid,), change.base)
    elif isinstance(refused, Refused):
        metadata_files.remove_unwanted(table, change)
    return refused


def _summary(batch: Batch) -> dict[str, str]:
    """Return what the summary of the batch's snapshot says."""
    intent = batch.intent
    return {
        **batch.operation.notes,
        summary_keys.PLAN_ID: intent.plan_id,
        summary_keys.ACTION_IDS: ",".join(intent.action_ids),
        summary_keys.ATTEMPT_ID: intent.attempt_id,
        summary_keys.BATCH: str(intent.batch),
    }


def _classify(answer: Answer, guard: Guard) -> Refused | Unknown:
    """Classify the error of a batch that history does not hold."""
    why = answer.why
    if answer.kind is Kind.DENIED:
        return Refused(why, conflict=False, denied=True)
    if answer.kind is Kind.INVALID:
        return Refused(why, conflict=False, invalid=True)
    full = answer.error is not None and guard.table.errors.is_unwritable(answer.error)
    unwritable = answer.error if full else None
    if answer.kind is Kind.FAILED:
        return Refused(why, conflict=False, unwritable=unwritable)
    if answer.kind is Kind.UNKNOWN:
        return Unknown(why, lost=False, asserted=guard.asserted, unwritable=unwritable)
    lost_race = answer.kind is Kind.LOST_RACE
    why = guard.refusal or ("" if lost_race else guard.explain()) or why
    if guard.fenced:
        return Refused(why, conflict=False, fenced=True)
    if guard.paused:
        return Refused(why, conflict=False, paused=guard.paused)
    if guard.live_branch:
        return Refused(why, conflict=False, live=guard.live_branch)
    return Refused(why, conflict=not lost_race, rolled_back=guard.rolled_back)


def denied(shown: str, why: str) -> AccessDeniedError:
    return AccessDeniedError(
        f"the catalog refuses commits to {shown}",
        said=(why,),
        do="grant the catalog's user, or its token, the right to change the table",
    )
