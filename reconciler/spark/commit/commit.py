"""Commits one batch exactly once, on a table that is still the one the work was made from.

What is committed is an `operations.Operation`; the protocol is the same for all of them. Our checks
run inside Iceberg's commit loop, on every attempt with the refreshed ancestry, through py4j's
callback server. A commit counts as failed only if the error is a CleanableFailure and history does
not hold the batch: a request that was sent twice gets a conflict with itself. Any other failure
leaves the outcome unknown (docs/design/decisions.md#unknown-is-not-failure). Iceberg deletes no
file of our commits by itself; that is done after the search (`metadata_files`).
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from reconciler.engines.snapshots import SnapshotInfo, short, until
from reconciler.errors import AccessDeniedError
from reconciler.plan.execution import Intent
from reconciler.spark.commit import history, metadata_files, standing
from reconciler.spark.commit.history import Committed
from reconciler.spark.commit.metadata_files import Prepared
from reconciler.spark.commit.operations import Operation
from reconciler.spark.session import iceberg
from reconciler.spark.session.iceberg import LiveTable
from reconciler.spark.session.translate import (
    CLEANABLE,
    is_unwritable,
    java_exception,
    java_message,
    lost_jvm,
)
from reconciler.table import summary_keys

COMMIT_FAILED = "org.apache.iceberg.exceptions.CommitFailedException"
FORBIDDEN = (
    "org.apache.iceberg.exceptions.ForbiddenException",
    "org.apache.iceberg.exceptions.NotAuthorizedException",
)
DENIED_STATES = ("42501", "42000")
"""SQLSTATEs of a statement that was not executed: no privilege (PostgreSQL), an access violation
(MySQL).

25006, a read-only transaction, is not one: Iceberg sends a statement again if its connection is
lost, so that after a failover in the middle of a commit a standby may refuse the second statement.
"""
SNAPSHOT_MADE = "org.apache.iceberg.SnapshotProducer.apply"
SENDS = 5
"""Times that a batch is sent while it only loses against other writers."""
RESEND_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Base:
    """The table as it was when the work of a batch was read."""

    table_uuid: str
    schema_id: int
    snapshot_id: int
    format_version: int


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
    live: str = ""
    """The branch that could not be published after a rewrite of main, "" for none."""
    unwritable: Exception | None = None
    """The storage's error, if it is full or read-only."""
    audit: bool = False
    """Whether the policy's check refused it."""
    invalid: bool = False
    """Whether Iceberg's library does not make such a snapshot."""

    @property
    def final(self) -> bool:
        """Whether sending the same again would be refused again."""
        return self.conflict or self.denied or self.fenced or self.invalid or bool(self.live)


@dataclass(frozen=True, slots=True)
class Unknown:
    """Sent, with an unknown outcome. lost: the JVM that sent it is gone too.

    asserted: the head that the last request was made for, None if unknown. unwritable: as in
    Refused.
    """

    why: str
    lost: bool
    asserted: int | None = None
    unwritable: Exception | None = None


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
    """Iceberg's SnapshotAncestryValidator in Python; called in every attempt of the commit loop."""

    live: LiveTable
    """The table that is committed to."""
    batch: Batch
    """What is committed."""
    refusal: str = ""
    """Why the last call refused, "" if it did not."""
    rolled_back: bool = False
    """Whether it refused because one of our commits was rolled back."""
    fenced: bool = False
    """Whether another run has settled this batch, whose files are then gone."""
    live_branch: str = ""
    """The branch because of which it refused, "" for none."""
    already: Committed | None = None
    """The snapshot that carries the batch, None if none does."""
    asserted: int | None = None
    """The head that the last request was made for, the only one on which the catalog accepts it."""
    calls: int = field(default=0)
    """How often it was called."""

    def validate(self, snapshots: Any) -> bool | None:
        """Return None if the batch is in the table.

        As a Java boolean that is a NullPointerException, which leaves Iceberg's loop without being
        a CleanableFailure.
        """
        self.calls += 1
        try:
            self.already = self._arrived()
            if self.already is not None:
                return None
            line = _until(snapshots, self.batch.base.snapshot_id)
            self.asserted = line[0].id if line else None
            self.refusal = self._check(line)
        except Exception as error:
            self.refusal = f"the table could not be checked: {java_message(error)}"
        return not self.refusal

    def explain(self) -> str:
        """Return what our checks find about a conflict that Iceberg found first; "" if nothing."""
        table, base_id = self.live.table, self.batch.base.snapshot_id
        table.refresh()
        newer, _ = until(iceberg.ancestors(table), base_id)
        base = table.snapshot(base_id)
        line = [*newer, *([iceberg.snapshot_info(base)] if base is not None else [])]
        return self._check(line) if line else ""

    def errorMessage(self) -> str:
        return self.refusal

    class Java:
        implements = ["org.apache.iceberg.SnapshotAncestryValidator"]

    def _arrived(self) -> Committed | None:
        """Return the batch if it is in the metadata of this attempt of the loop.

        Iceberg would take its own snapshot there for the target of a rollback.
        """
        return history.carrying(self.live.table.operations().current(), self.batch.intent)

    def _check(self, line: Sequence[SnapshotInfo]) -> str:
        """Return why the commit is refused. line: from the head back to the base, included if
        reached."""
        table, base, intent = self.live.table, self.batch.base, self.batch.intent
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
        metadata = table.operations().current()
        if metadata.uuid() != base.table_uuid:
            return "the table was dropped and created again"
        if int(metadata.currentSchemaId()) != base.schema_id:
            return "the table's schema was changed"
        if int(metadata.formatVersion()) != base.format_version:
            return upgraded(table)
        if unfit := self.batch.operation.unfit(table):
            return unfit
        if not self.batch.allow_live_branches:
            self.live_branch = standing.live_branch(self.live.spark, table)
            if self.live_branch:
                return f"the table has a live {self.live_branch}"
        foreign = [s for s in newer if s.summary.get(summary_keys.ATTEMPT_ID) != intent.attempt_id]
        changing = [s for s in foreign if s.operation != "append"]
        if not changing:
            return ""
        return self.batch.operation.conflict(self.live.spark, table, line[0].id, changing)


def upgraded(table: Any) -> str:
    """Return that files written for an older format do not fit: format 3 takes no position delete
    files, and its readers know rows by ids that files of format 2 do not have."""
    return f"the table was upgraded to format {iceberg.format_version(table)}"


def _until(snapshots: Any, base: int) -> list[SnapshotInfo]:
    """Return the snapshots from the head back to the base, included; all of them if it is
    missing."""
    found = []
    iterator = snapshots.iterator()
    while iterator.hasNext():
        found.append(iceberg.snapshot_info(iterator.next()))
        if found[-1].id == base:
            break
    return found


def prepare(live: LiveTable, operation: Operation) -> tuple[Prepared, ...]:
    """Return the commits that may be sent for one batch, one after the other.

    Their UUIDs are recorded before the first of them writes a file.
    """
    return tuple(
        metadata_files.prepare(live.spark, live.table, operation.begin(live.table))
        for _ in range(SENDS)
    )


def send(live: LiveTable, batch: Batch, commits: Sequence[Prepared]) -> Sent:
    """Commit a batch; send it again while it only loses against other writers."""
    sent: Sent = Refused("not sent", conflict=False)
    for attempt, prepared in enumerate(commits):
        if attempt:
            time.sleep(RESEND_SECONDS * attempt)
        live.table.refresh()
        sent = _send_once(live, batch, prepared)
        if not isinstance(sent, Refused) or sent.final:
            break
    return sent


def _send_once(live: LiveTable, batch: Batch, prepared: Prepared) -> Sent:
    """Send one commit and search history for it, whatever the answer was."""
    guard, error, filled = Guard(live, batch), None, False
    try:
        update = _fill(prepared.update, batch, guard)
        filled = True
        update.commit()
    except Exception as thrown:
        error = thrown
    if error is not None and lost_jvm(error):
        return Unknown(str(error), lost=True, asserted=guard.asserted)
    if error is not None and not filled and java_exception(error) is not None:  # nothing was sent
        return Refused(guard.explain() or java_message(error), conflict=True)
    try:
        found = history.search(live, batch.intent) or guard.already
    except Exception as failed:
        if lost_jvm(failed):
            return Unknown(str(failed), lost=True, asserted=guard.asserted)
        return Unknown(
            f"the table's history could not be read: {java_message(failed)}",
            lost=False,
            asserted=guard.asserted,
        )
    if found is not None:
        metadata_files.tidy(live, prepared, answered=error is None)
        return found
    if error is None:
        why = "the catalog accepted the commit but does not show it"
        return Unknown(why, lost=False, asserted=guard.asserted)
    refused = _classify(live.spark, error, guard)
    if isinstance(refused, Refused) and refused.invalid:  # Iceberg does not clean up after these
        metadata_files.remove_of_commits(live, (prepared.uuid,), prepared.base)
    elif isinstance(refused, Refused):
        metadata_files.remove_unwanted(live, prepared)
    return refused


def _fill(update: Any, batch: Batch, guard: Guard) -> Any:
    """Fill the update with the batch's files, our summary and our checks."""
    intent = batch.intent
    batch.operation.fill(update, batch.base.snapshot_id)
    update.set(summary_keys.PLAN_ID, intent.plan_id)
    update.set(summary_keys.ACTION_IDS, ",".join(intent.action_ids))
    update.set(summary_keys.ATTEMPT_ID, intent.attempt_id)
    update.set(summary_keys.BATCH, str(intent.batch))
    return update.validateWith(guard)


def _classify(spark: Any, error: Exception, guard: Guard) -> Refused | Unknown:
    """Classify the error of a batch that history does not hold."""
    thrown, why = java_exception(error), java_message(error)
    if thrown is not None and is_denied(spark, thrown):
        return Refused(why, conflict=False, denied=True)
    if thrown is not None and _is_invalid(spark, thrown):
        return Refused(why, conflict=False, invalid=True)
    if thrown is None or not iceberg.is_a(spark, thrown, CLEANABLE):
        unwritable = error if is_unwritable(error) else None
        return Unknown(why, lost=False, asserted=guard.asserted, unwritable=unwritable)
    lost_race = iceberg.is_a(spark, thrown, COMMIT_FAILED)
    why = guard.refusal or ("" if lost_race else guard.explain()) or why
    if guard.fenced:
        return Refused(why, conflict=False, fenced=True)
    if guard.live_branch:
        return Refused(why, conflict=False, live=guard.live_branch)
    return Refused(why, conflict=not lost_race, rolled_back=guard.rolled_back)


def _is_invalid(spark: Any, thrown: Any) -> bool:
    """Whether Iceberg's library found the commit wrong while it made the snapshot, before it asked
    the catalog: for example more rows than are replaced ("Invalid REPLACE operation")."""
    if not iceberg.is_a(spark, thrown, "java.lang.IllegalArgumentException"):
        return False
    frames = {f"{one.getClassName()}.{one.getMethodName()}" for one in thrown.getStackTrace()}
    return SNAPSHOT_MADE in frames


def is_denied(spark: Any, thrown: Any) -> bool:
    """Whether we may not commit: a REST catalog's 401 or 403, or a database's refusal of the
    statement that moves the table's pointer."""
    if any(iceberg.is_a(spark, thrown, name) for name in FORBIDDEN):
        return True
    while thrown is not None:
        if iceberg.is_a(spark, thrown, "java.sql.SQLException"):
            return str(thrown.getSQLState()) in DENIED_STATES
        thrown = thrown.getCause()
    return False


def denied(shown: str, why: str) -> AccessDeniedError:
    return AccessDeniedError(
        f"the catalog refuses commits to {shown}",
        said=(why,),
        do="grant the catalog's user, or its token, the right to change the table",
    )
