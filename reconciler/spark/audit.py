"""Audits a batch on a branch before it is committed to main (write, audit, publish).

The batch is committed to a branch that starts at main's head, the policy's query is run on that
snapshot, and the branch is dropped again, whatever the query returned. Only after that the same
files are committed to main, under all checks of `commit`: to fast-forward main instead would fail
after every append that came meanwhile.

The snapshot on the branch carries AUDIT and none of the keys by which commits to main are found. A
crash leaves at most the branch, which the next run drops (`fence.resolve`).
"""

from __future__ import annotations

import time
from typing import Any

from reconciler.api.schema import AUDITED_TABLE, MAIN_TABLE
from reconciler.errors import BlockedError, UnavailableError, UnknownCommitError, UnsupportedError
from reconciler.plan.execution import Audit, Intent
from reconciler.spark import commit, history, iceberg, metadata_files
from reconciler.spark.iceberg import LiveTable
from reconciler.spark.metadata_files import Prepared
from reconciler.spark.operations import Operation
from reconciler.spark.translate import CLEANABLE, java_exception, java_message, lost_jvm
from reconciler.table.branches import AUDIT

RESENDS = 10
PAUSE_SECONDS = 0.5
SCRIPT = "ScriptTransformation"
"""The node of Spark's plan that starts a program; it stands in no other plan but as a literal."""
REFLECTION = ("reflect", "java_method", "try_reflect")
"""SQL functions that call any method of any class, which a policy may not."""


def prepare(live: LiveTable, operation: Operation, audit: Audit) -> Prepared:
    """Return the commit to the branch. Its UUID is recorded before it writes a file."""
    return metadata_files.prepare(live.spark, operation.begin(live.table).toBranch(audit.branch))


def refuse_foreign_branch(live: LiveTable, audit: Audit, shown: str) -> None:
    """Raise BlockedError if the table has a branch of that name which is not of an audit."""
    drop(live)
    if _is_taken(live, audit):
        raise BlockedError(
            f"{shown} already has a branch {audit.branch}, which is not ours",
            details=("Nothing was rewritten.",),
            do="drop the branch, or name another one in spec.safety.branch",
        )


def _is_taken(live: LiveTable, audit: Audit) -> bool:
    """Whether the branch exists, after those of audits were dropped."""
    return live.table.refs().get(audit.branch) is not None


def check(
    live: LiveTable, operation: Operation, intent: Intent, prepared: Prepared, audit: Audit
) -> commit.Refused | None:
    """Return why the batch must not be committed to main, None if its audit passed.

    Raises UnknownCommitError if the JVM was lost.
    """
    drop(live)
    if _is_taken(live, audit):
        why = f"another writer made a branch {audit.branch}"
        return commit.Refused(why, conflict=False, audit=True)
    try:
        return _check_on_branch(live, operation, intent, prepared, audit)
    except Exception as error:
        if lost_jvm(error):
            raise UnknownCommitError(
                f"the Spark process ended while it audited a batch of {live.name}",
                details=("Nothing of the batch is on main; its files were kept.",),
                do="run the command again: it checks, cleans up and continues",
            ) from error
        raise


def _check_on_branch(
    live: LiveTable, operation: Operation, intent: Intent, prepared: Prepared, audit: Audit
) -> commit.Refused | None:
    mark = f"{intent.attempt_id}/{intent.batch}"
    error = None
    try:
        operation.fill(prepared.update, intent.base_snapshot_id)
        prepared.update.set(AUDIT, mark)
        prepared.update.commit()
    except Exception as thrown:
        if lost_jvm(thrown):
            raise
        error = thrown
    if error is not None and not _cannot_arrive(live, error):
        time.sleep(history.REQUEST_TIMEOUT_SECONDS)
    live.table.refresh()
    snapshot = _marked(live, mark)
    try:
        if snapshot is not None:
            return _ask(live, snapshot, audit)
        why = "the commit to the branch is not in the table"
        return commit.Refused(java_message(error) if error else why, conflict=True)
    finally:
        drop(live)
        metadata_files.remove_of_commits(live, (prepared.uuid,), None)


def _cannot_arrive(live: LiveTable, error: Exception) -> bool:
    thrown = java_exception(error)
    return thrown is not None and iceberg.is_a(live.spark, thrown, CLEANABLE)


def _marked(live: LiveTable, mark: str) -> Any:
    for snapshot in iceberg.each(live.table.snapshots()):
        if snapshot.summary().get(AUDIT) == mark:
            return snapshot
    return None


def _ask(live: LiveTable, snapshot: Any, audit: Audit) -> commit.Refused | None:
    """Run the policy's query: any row that it returns refuses the batch."""
    where = f"the check of branch {audit.branch}"
    try:
        rows = _session(live.spark).sql(_query(live, snapshot, audit))
        if SCRIPT in str(rows.queryExecution().analyzed().toString()):
            raise UnsupportedError("the query starts a program (TRANSFORM)")
        passed = bool(rows.isEmpty())
    except Exception as error:
        if lost_jvm(error):
            raise
        return commit.Refused(
            f"{where} could not be run: {java_message(error)}", conflict=False, audit=True
        )
    return None if passed else commit.Refused(f"{where} returned rows", conflict=False, audit=True)


def _query(live: LiveTable, snapshot: Any, audit: Audit) -> str:
    """Return the query over the snapshots of the branch and of main.

    As a subquery it can only read.
    """
    text = audit.check
    for name, version in (
        (AUDITED_TABLE, int(snapshot.snapshotId())),
        (MAIN_TABLE, int(snapshot.parentId())),
    ):
        text = text.replace(name, f"{live.name} VERSION AS OF {version}")
    return f"SELECT * FROM (\n{text}\n) LIMIT 1"


def _session(spark: Any) -> Any:
    """Return a Java session that reads tables of catalogs only, and calls no Java method by
    name."""
    session = spark._jsparkSession.cloneSession()
    session.conf().set("spark.sql.runSQLOnFiles", "false")
    registry = session.sessionState().functionRegistry()
    identifier = spark._jvm.org.apache.spark.sql.catalyst.FunctionIdentifier
    for name in REFLECTION:
        registry.dropFunction(identifier(name))
    return session


def drop(live: LiveTable) -> None:
    """Drop the branches and snapshots of audits.

    A snapshot stays if somebody made a branch or a tag on it.
    """
    java = live.spark._jvm
    for _ in range(RESENDS):
        live.table.refresh()
        operations = live.table.operations()
        base = operations.current()
        names, snapshots = _of_audits(live, base)
        if not names and not snapshots:
            return
        builder = java.org.apache.iceberg.TableMetadata.buildFrom(base)
        for name in names:
            builder.removeRef(name)
        builder.removeSnapshots(iceberg.java_list(live.spark, snapshots))
        try:
            operations.commit(base, builder.build())
        except Exception as error:
            if lost_jvm(error):
                raise
            time.sleep(PAUSE_SECONDS)
    raise UnavailableError(
        f"the branch of an audit of {live.name} could not be dropped",
        details=("The catalog accepted none of the commits.",),
        do="run the command again when the catalog works",
    )


def _of_audits(live: LiveTable, metadata: Any) -> tuple[list[str], list[Any]]:
    """Return the branches whose head is an audit's snapshot, and the snapshots only they hold."""
    marked = [s for s in iceberg.each(metadata.snapshots()) if s.summary().get(AUDIT)]
    ids = {int(snapshot.snapshotId()) for snapshot in marked}
    heads = {
        str(entry.getKey()): (int(entry.getValue().snapshotId()), entry.getValue().isBranch())
        for entry in iceberg.each(metadata.refs().entrySet())
    }
    names = [n for n, (head, branch) in heads.items() if branch and n != "main" and head in ids]
    others = [head for name, (head, _) in heads.items() if name not in names]
    is_ancestor = live.spark._jvm.org.apache.iceberg.util.SnapshotUtil.isAncestorOf
    gone = [
        snapshot
        for snapshot in marked
        if not any(is_ancestor(live.table, head, int(snapshot.snapshotId())) for head in others)
    ]
    return names, gone
