"""Commits by Iceberg's own operations (`engines.table.PendingCommit`).

Our checks run inside Iceberg's commit loop, on every attempt with the refreshed ancestry, through
py4j's callback server. An error counts as an answer only if it is a CleanableFailure. Iceberg
deletes no file of our commits by itself: it only names those that it would delete.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from reconciler.commit.request import DENIED_STATES
from reconciler.engines.answers import ACCEPTED, Answer, Kind
from reconciler.engines.commit.operations import (
    Mark,
    NewManifests,
    RemoveDeletes,
    RewriteFiles,
    RowDelta,
)
from reconciler.engines.snapshots import SnapshotInfo
from reconciler.engines.table import Guard
from reconciler.spark.commit import manifests
from reconciler.spark.session import iceberg, translate
from reconciler.spark.session.translate import CLEANABLE, java_exception, message
from reconciler.table.retention import MAIN

COMMIT_FAILED = "org.apache.iceberg.exceptions.CommitFailedException"
FORBIDDEN = (
    "org.apache.iceberg.exceptions.ForbiddenException",
    "org.apache.iceberg.exceptions.NotAuthorizedException",
)
SNAPSHOT_MADE = "org.apache.iceberg.SnapshotProducer.apply"
PRODUCER = "org.apache.iceberg.SnapshotProducer"


@dataclass(frozen=True, slots=True)
class JavaCommit:
    """One commit of an operation, which may be sent once."""

    spark: Any
    """The session."""
    table: Any
    """The org.apache.iceberg.Table, as it was when the update was made."""
    update: Any
    """The org.apache.iceberg.SnapshotUpdate, which deletes no files."""
    uuid: str
    """UUID in the names of its files, "" if unknown."""
    deleted: Any
    """A java.util.Queue of the files that Iceberg wanted to delete."""
    base: int
    """The head before it, 0 if there is none."""

    def send(
        self,
        operation: Any,
        base_snapshot_id: int,
        summary: Mapping[str, str],
        guard: Guard | None,
    ) -> Answer:
        filled = False
        try:
            self.table.refresh()
        except Exception as error:
            kind = Kind.LOST if translate.lost(error) else Kind.FAILED
            return Answer(kind, message(error), error, cannot_arrive=kind is Kind.FAILED)
        try:
            update = filled_with(self.spark, self.update, operation, base_snapshot_id)
            for name, value in summary.items():
                update.set(name, value)
            if guard is not None:
                update.validateWith(JavaGuard(guard))
            filled = True
            update.commit()
        except Exception as error:
            return answer_of(self.spark, error, sent=filled)
        return ACCEPTED

    def entries(self, operation: Any, base_snapshot_id: int) -> tuple[int, str]:
        update = filled_with(self.spark, self.update, operation, base_snapshot_id)
        return manifests.live_entries(self.spark, self.table, update.apply())

    def unwanted(self) -> Collection[str]:
        return [str(path) for path in iceberg.each(self.deleted)]


def begun(table: Any, operation: Any, branch: str = MAIN) -> JavaCommit:
    """Return the empty commit of an operation. table: a JavaTable."""
    spark, java = table.spark, table.java
    update = _empty(java, operation)
    if branch != MAIN:
        update = update.toBranch(branch)
    deleted = spark._jvm.java.util.concurrent.ConcurrentLinkedQueue()
    add = iceberg.method(spark, "java.util.Collection", "add", "boolean", "java.lang.Object")
    update.deleteWith(iceberg.as_lambda(spark, "java.util.function.Consumer", add.bindTo(deleted)))
    uuid = _commit_uuid(spark, update)
    return JavaCommit(spark, java, update, uuid, deleted, table.head() or 0)


def _empty(java: Any, operation: Any) -> Any:
    if isinstance(operation, RewriteFiles):
        return java.newRewrite()
    if isinstance(operation, NewManifests):
        return java.rewriteManifests()
    return java.newFastAppend() if isinstance(operation, Mark) else java.newRowDelta()


def filled_with(spark: Any, update: Any, operation: Any, base_snapshot_id: int) -> Any:
    """Name every file that the operation adds and removes, and what Iceberg is to check; return the
    update.

    base_snapshot_id: the snapshot that the work was made from.
    """
    if isinstance(operation, RewriteFiles):
        update.validateFromSnapshot(base_snapshot_id)
        update.dataSequenceNumber(operation.sequence_number)
        operation.tasks.remove_in(update)  # type: ignore[attr-defined]
        for file in operation.added:
            update.addFile(file.entry)
    elif isinstance(operation, RowDelta):
        update.validateFromSnapshot(base_snapshot_id)
        update.validateDeletedFiles()  # a delete file to be removed must still be there
        operation.tasks.require_in(update)  # type: ignore[attr-defined]
        for one in operation.added:
            update.addDeletes(one.entry)
        for one in operation.removed:
            update.removeDeletes(one.entry)
    elif isinstance(operation, RemoveDeletes):
        update.validateFromSnapshot(base_snapshot_id)
        update.validateDeletedFiles()
        for one in operation.files:
            update.removeDeletes(one.entry)
    elif isinstance(operation, NewManifests):
        manifests.fill(spark, update, operation)
    return update


def _commit_uuid(spark: Any, update: Any) -> str:
    """Return the commit's UUID, which Iceberg does not publish; "" if a version has another
    field."""
    from py4j.protocol import Py4JJavaError

    with contextlib.suppress(Py4JJavaError):
        field = iceberg.java_class(spark, PRODUCER).getDeclaredField("commitUUID")
        field.setAccessible(True)
        return str(field.get(update))
    return ""


@dataclass(frozen=True, slots=True)
class JavaGuard:
    """Iceberg's SnapshotAncestryValidator in Python; called in every attempt of the commit loop."""

    guard: Guard

    def validate(self, snapshots: Any) -> bool | None:
        """Return None if the batch is in the table: Iceberg would take its own snapshot there for
        the target of a rollback.

        As a Java boolean that is a NullPointerException, which leaves Iceberg's loop without being
        a CleanableFailure.
        """
        return self.guard.allows(_line(snapshots))

    def errorMessage(self) -> str:
        return self.guard.refusal

    class Java:
        implements = ["org.apache.iceberg.SnapshotAncestryValidator"]


def _line(snapshots: Any) -> Iterator[SnapshotInfo]:
    return map(iceberg.snapshot_info, iceberg.each(snapshots))


def answer_of(spark: Any, error: Exception, *, sent: bool = True) -> Answer:
    """Return what an error of Iceberg's library says of a commit. sent: whether it may have reached
    the catalog."""
    if translate.lost(error):
        return Answer(Kind.LOST, str(error), error)
    thrown, why = java_exception(error), message(error)
    if thrown is None:
        return Answer(Kind.UNKNOWN, why, error)
    cleanable = iceberg.is_a(spark, thrown, CLEANABLE)
    if not sent:
        kind = Kind.UNSENT
    elif is_denied(spark, thrown):
        kind = Kind.DENIED
    elif _is_invalid(spark, thrown):
        kind = Kind.INVALID
    elif not cleanable:
        kind = Kind.UNKNOWN
    else:
        lost_race = iceberg.is_a(spark, thrown, COMMIT_FAILED)
        kind = Kind.LOST_RACE if lost_race else Kind.REFUSED
    return Answer(kind, why, error, cleanable)


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
