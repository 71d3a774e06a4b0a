"""One commit batch: exactly once, on a table that is still what the rewrite was made from.

Our checks run inside Iceberg's commit loop, on every attempt with the refreshed ancestry, through
py4j's callback server. Only a CleanableFailure proves that nothing was committed; whatever else
goes wrong leaves the outcome unknown (design: "Unknown is not failure").
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from reconciler.core.execution import Intent
from reconciler.errors import AccessDeniedError, first_line
from reconciler.jobs import iceberg
from reconciler.jobs.iceberg import SnapshotInfo
from reconciler.jobs.scan import ScanTasks, scan_tasks
from reconciler.jobs.translate import is_unwritable, java_exception, lost_jvm

CLEANABLE = "org.apache.iceberg.exceptions.CleanableFailure"
COMMIT_FAILED = "org.apache.iceberg.exceptions.CommitFailedException"
FORBIDDEN = (
    "org.apache.iceberg.exceptions.ForbiddenException",
    "org.apache.iceberg.exceptions.NotAuthorizedException",
)
DENIED_STATES = ("42501", "42000")
"""SQLSTATEs of a statement that was not carried out: no privilege (PostgreSQL), an access violation
(MySQL). Not 25006, a read-only transaction: Iceberg sends a statement again when its connection is
lost, so that a failover in the middle of a commit ends in a standby that refuses the second."""
RESENDS = 5
RESEND_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Staged:
    """What a batch was made from. tasks: its inputs, with the deletes that were applied to them."""

    table_uuid: str
    schema_id: int
    base_snapshot_id: int
    sequence_number: int
    tasks: ScanTasks


@dataclass(frozen=True, slots=True)
class Committed:
    snapshot_id: int


@dataclass(frozen=True, slots=True)
class Refused:
    """Nothing was committed. conflict: another writer's change, inputs must be looked at again;
    denied: we may not commit to this table at all; fenced: another run took the attempt for dead
    and removed its files; unwritable: the storage's own words, where it takes no files; otherwise
    the catalog would not take the commit although nothing was in its way.
    """

    why: str
    conflict: bool
    rolled_back: bool = False
    denied: bool = False
    fenced: bool = False
    unwritable: Exception | None = None

    @property
    def final(self) -> bool:
        """Sending the same again would be refused again."""
        return self.conflict or self.denied or self.fenced


@dataclass(frozen=True, slots=True)
class Unknown:
    """Sent, and no one knows. lost: the JVM that sent it is gone too. asserted: the head that the
    last request was made for, None if that is not known. unwritable: as in Refused."""

    why: str
    lost: bool
    asserted: int | None = None
    unwritable: Exception | None = None


Sent = Committed | Refused | Unknown


@dataclass
class Guard:
    """Iceberg's SnapshotAncestryValidator in Python; called in every attempt of the commit loop.

    own: snapshots that this attempt committed, which must not have been rolled back. `refusal`
    is why the last call refused, "" if it did not; `already` the snapshot that carries the batch;
    `fenced` whether another run has settled this batch, whose files are gone then;
    `asserted` the head that the last request was made for: the catalog takes it on no other.
    """

    spark: Any
    table: Any
    staged: Staged
    intent: Intent
    own: Collection[int]
    refusal: str = ""
    rolled_back: bool = False
    fenced: bool = False
    already: int | None = None
    asserted: int | None = None
    calls: int = field(default=0)

    def validate(self, snapshots: Any) -> bool:
        self.calls += 1
        try:
            line = _until(snapshots, self.staged.base_snapshot_id)
            self.asserted = line[0].id if line else None
            self.refusal = self._check(line)
        except Exception as error:  # an exception that left this method would not be cleanable
            self.refusal = f"the table could not be checked: {error}"
        return not self.refusal

    def explain(self) -> str:
        """What our checks say of a conflict that Iceberg's own found first; "" if nothing."""
        self.table.refresh()
        newer, _ = iceberg.ancestors_until(self.table, self.staged.base_snapshot_id)
        base = self.table.snapshot(self.staged.base_snapshot_id)
        line = [*newer, *([iceberg.snapshot_info(base)] if base is not None else [])]
        return self._check(line) if line else ""

    def errorMessage(self) -> str:
        return self.refusal

    class Java:
        implements = ["org.apache.iceberg.SnapshotAncestryValidator"]

    def _check(self, line: Sequence[SnapshotInfo]) -> str:
        """line: from the head back to the base, the base included if it was reached."""
        newer = [s for s in line if s.id != self.staged.base_snapshot_id]
        for snapshot in newer:
            if snapshot.is_batch(self.intent.attempt_id, self.intent.batch):
                self.already = snapshot.id
                return "this batch is committed already"
        if any(snapshot.fences(self.intent.attempt_id, self.intent.batch) for snapshot in newer):
            self.fenced = True
            return "another run took this attempt for dead, and has removed its files"
        if len(newer) == len(line):
            return "the snapshot it was made from is no longer in the table's history"
        missing = set(self.own) - {snapshot.id for snapshot in newer}
        if missing:
            self.rolled_back = True
            return f"commit {iceberg.short(missing.pop())} of this plan was rolled back"
        metadata = self.table.operations().current()
        if metadata.uuid() != self.staged.table_uuid:
            return "the table was dropped and created again"
        if int(metadata.currentSchemaId()) != self.staged.schema_id:
            return "the table's schema was changed"
        foreign = [s for s in newer if s.summary.get(iceberg.ATTEMPT_ID) != self.intent.attempt_id]
        changing = [s for s in foreign if s.operation != "append"]
        if not changing:
            return ""
        return changed_inputs(
            self.spark, self.table, line[0].id, self.staged, self.intent.inputs, changing
        )


def _until(snapshots: Any, base: int) -> list[SnapshotInfo]:
    """Snapshots from the head back to the base, base included; all of them if it is missing."""
    found = []
    iterator = snapshots.iterator()
    while iterator.hasNext():
        found.append(iceberg.snapshot_info(iterator.next()))
        if found[-1].id == base:
            break
    return found


def changed_inputs(
    spark: Any,
    table: Any,
    head: int,
    staged: Staged,
    inputs: Sequence[str],
    changing: Sequence[SnapshotInfo],
) -> str:
    """Why the inputs are not what was read any more, "" if they are.

    Equality deletes added since do not count: the outputs keep the inputs' sequence number, so
    that they apply to them too.
    """
    live = scan_tasks(spark, table, head, inputs)
    gone = [path for path in inputs if path not in live]
    deleted = [
        path
        for path, file in live.items()
        if (
            file.deletes.positions != staged.tasks[path].deletes.positions
            or staged.tasks[path].deletes.equality - file.deletes.equality
        )
    ]
    by = describe(changing[0])
    if gone:
        return f"{by} replaced {len(gone)} of its files"
    if deleted:
        return f"{by} changed the deletes of {len(deleted)} of its files"
    return ""


def describe(snapshot: SnapshotInfo) -> str:
    """Another writer's snapshot in a few words."""
    verb = {"overwrite": "an overwrite or MERGE", "delete": "a DELETE", "replace": "a rewrite"}
    what = verb.get(snapshot.operation, snapshot.operation)
    return f"{what} (snapshot {iceberg.short(snapshot.id)})"


def send(
    spark: Any,
    table: Any,
    staged: Staged,
    intent: Intent,
    files: Sequence[Any],
    own: Collection[int],
) -> Sent:
    """Commits a batch; sends it again while the catalog only loses races."""
    sent: Sent = Refused("not sent", conflict=False)
    for attempt in range(RESENDS):
        if attempt:
            time.sleep(RESEND_SECONDS * attempt)
        table.refresh()
        guard = Guard(spark, table, staged, intent, own)
        sent = _send_once(spark, table, staged, intent, files, guard)
        if not isinstance(sent, Refused) or sent.final:
            break
    if not isinstance(sent, Refused):
        return sent
    # A statement that was sent again over a new connection is refused when the first one arrived.
    return find_batch(table, intent) or find_batch_anywhere(table, intent) or sent


def _send_once(
    spark: Any, table: Any, staged: Staged, intent: Intent, files: Sequence[Any], guard: Guard
) -> Sent:
    try:
        _rewrite_files(table, staged, intent, files, guard).commit()
    except Exception as error:
        return _classify(spark, error, guard)
    return (
        find_batch(table, intent)
        or find_batch_anywhere(table, intent)
        or Unknown(
            "the catalog accepted the commit but does not show it",
            lost=False,
            asserted=guard.asserted,
        )
    )


def _rewrite_files(
    table: Any, staged: Staged, intent: Intent, files: Sequence[Any], guard: Guard
) -> Any:
    """newRewrite() with every input, every file-scoped delete of it, and our checks."""
    update = (
        table.newRewrite()
        .validateFromSnapshot(staged.base_snapshot_id)
        .dataSequenceNumber(staged.sequence_number)
    )
    staged.tasks.remove_in(update)
    for file in files:
        update.addFile(file)
    update.set(iceberg.PLAN_ID, intent.plan_id)
    update.set(iceberg.ACTION_IDS, ",".join(intent.action_ids))
    update.set(iceberg.ATTEMPT_ID, intent.attempt_id)
    update.set(iceberg.BATCH, str(intent.batch))
    return update.validateWith(guard)


def _classify(spark: Any, error: Exception, guard: Guard) -> Sent:
    if lost_jvm(error):
        return Unknown(str(error), lost=True, asserted=guard.asserted)
    thrown = java_exception(error)
    message = str(thrown.getMessage()) if thrown is not None else str(error)
    if thrown is not None and is_denied(spark, thrown):
        return Refused(first_line(message), conflict=False, denied=True)
    if thrown is None or not iceberg.is_a(spark, thrown, CLEANABLE):
        why = first_line(message) or type(error).__name__
        unwritable = error if is_unwritable(error) else None
        return Unknown(why, lost=False, asserted=guard.asserted, unwritable=unwritable)
    if guard.already is not None:
        return Committed(guard.already)
    lost_race = iceberg.is_a(spark, thrown, COMMIT_FAILED)
    why = guard.refusal or ("" if lost_race else guard.explain()) or first_line(message)
    if guard.fenced:
        return Refused(why, conflict=False, fenced=True)
    return Refused(why, conflict=not lost_race, rolled_back=guard.rolled_back)


def is_denied(spark: Any, thrown: Any) -> bool:
    """Whether we may not commit: a REST catalog's 401 or 403, or a database that refused the
    statement which moves the table's pointer."""
    if any(iceberg.is_a(spark, thrown, name) for name in FORBIDDEN):
        return True
    while thrown is not None:
        if iceberg.is_a(spark, thrown, "java.sql.SQLException"):
            return str(thrown.getSQLState()) in DENIED_STATES
        thrown = thrown.getCause()
    return False


def denied(shown: str, why: str) -> AccessDeniedError:
    return AccessDeniedError(
        f"the catalog does not let us commit to {shown}",
        details=(why,),
        do="grant the catalog's user, or its token, the right to change the table",
    )


def find_batch(table: Any, intent: Intent) -> Committed | None:
    """The snapshot of main's history that carries the batch, on freshly read metadata."""
    table.refresh()
    for snapshot in iceberg.ancestors(table):
        if snapshot.is_batch(intent.attempt_id, intent.batch):
            return Committed(snapshot.id)
        if snapshot.id == intent.base_snapshot_id:
            return None
    return None


def find_batch_anywhere(table: Any, intent: Intent) -> Committed | None:
    """The batch's snapshot even if it is not in main's history any more (rolled back)."""
    for snapshot in iceberg.each(table.snapshots()):
        info = iceberg.snapshot_info(snapshot)
        if info.is_batch(intent.attempt_id, intent.batch):
            return Committed(info.id)
    return None
