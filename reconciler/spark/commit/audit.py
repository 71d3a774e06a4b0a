"""Audits a batch on a branch before it is committed to main (write, audit, publish).

The batch is committed to a branch that starts at main's head, the policy's query is run on that
snapshot, and the branch is dropped again, whatever the query returned. Only after that the same
files are committed to main, under all checks of `commit`: to fast-forward main instead would fail
after every append that came meanwhile. Where a person is to approve the batch, it stays on the
branch and this run ends; the action `Publish` commits the files to main later.

The snapshot on the branch carries AUDIT and none of the keys by which commits to main are found. A
crash leaves at most the branch, which the next run drops (`fence.resolve`).
"""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable, Collection
from typing import Any

from reconciler.api.check_query import DENIED, refused
from reconciler.api.schema import AUDITED_TABLE, MAIN_TABLE
from reconciler.errors import BlockedError, UnavailableError, UnknownCommitError
from reconciler.plan.execution import Audit, Intent
from reconciler.spark.commit import commit, history, metadata, metadata_files, standing
from reconciler.spark.commit.metadata_files import Prepared
from reconciler.spark.commit.operations import Operation
from reconciler.spark.session import iceberg
from reconciler.spark.session.iceberg import LiveTable
from reconciler.spark.session.translate import (
    CLEANABLE,
    error_class,
    java_exception,
    java_message,
    lost_jvm,
)
from reconciler.table.audits import (
    AUDIT,
    AUDIT_ACTIONS,
    AUDIT_BASE,
    AUDIT_BRANCH,
    AUDIT_FORMAT,
    AUDIT_PLAN,
    AUDIT_WAITS,
    waiting_batches,
)
from reconciler.table.retention import MAIN

log = logging.getLogger(__name__)

PLAN_EXPRESSION = "org.apache.spark.sql.catalyst.expressions.PlanExpression"
COMMAND = "org.apache.spark.sql.catalyst.plans.logical.Command"
SPARK_TABLE = "org.apache.iceberg.spark.source.SparkTable"
BASE_TABLE = "org.apache.iceberg.BaseTable"
SCRIPT = "ScriptTransformation"
"""The node of Spark's plan that starts a program; it stands in no other plan but as a literal."""
LEAVES = frozenset(
    ("OneRowRelation", "LocalRelation", "Range", "CTERelationRef", "ResolvedInlineTable")
)
"""Nodes of Spark's plan that read nothing by themselves. ICEBERG reads the table."""
ICEBERG = "DataSourceV2Relation"
WITHHELD = frozenset(
    ("CallMethodViaReflection", "TryReflect", "SparkVersion", "CurrentUser", "CurrentDatabase",
     "CurrentCatalog", "InputFileName", "InputFileBlockStart", "InputFileBlockLength", "ScalaUDF",
     "PythonUDF", "PythonUDAF", "HiveSimpleUDF", "HiveGenericUDF", "HiveGenericUDTF", "PythonUDTF",
     "VariableReference")
)  # fmt: skip
"""Expressions of Spark's plan that call code, or read anything but the rows of the table."""


def prepare(live: LiveTable, operation: Operation, audit: Audit) -> Prepared:
    """Return the commit to the branch. Its UUID is recorded before it writes a file."""
    update = operation.begin(live.table).toBranch(audit.branch)
    return metadata_files.prepare(live.spark, live.table, update)


def refuse_branch(live: LiveTable, audit: Audit | None, shown: str) -> None:
    """Raise BlockedError if batches wait for approval, or if the table has a branch of the audit's
    name which is not of an audit."""
    drop(live)
    drop_published(live)
    held = waiting_batches(metadata.log_of(live.spark, live.table))
    if held:
        raise BlockedError(
            f"plan {held[0].plan_id} of {shown} waits on branch {held[0].branch} for approval",
            details=("Nothing was rewritten.",),
            do=f"layoutctl plan {shown} shows what is to be approved",
        )
    if audit is not None and _is_taken(live, audit, ()):
        raise BlockedError(
            f"{shown} already has a branch or tag {audit.branch}, which is not ours",
            details=("Nothing was rewritten.",),
            do="drop it, or name another branch in spec.safety.branch",
        )


def _is_taken(live: LiveTable, audit: Audit, own: Collection[int]) -> bool:
    """Whether the branch exists, and is not at one of our own snapshots. Call it after `drop`."""
    ref = live.table.refs().get(audit.branch)
    return ref is not None and int(ref.snapshotId()) not in own


def commit_to_branch(
    live: LiveTable,
    operation: Operation,
    intent: Intent,
    prepared: Prepared,
    audit: Audit,
    own: Collection[int] = (),
) -> commit.Refused | int:
    """Commit the batch to the branch, and run the audit's check on it, if it has one.

    Returns why the batch must not be committed to main, or the snapshot on the branch: it stays
    there if the audit waits for approval, and is dropped otherwise. own: waiting snapshots of this
    run, which may be on the branch already. Raises UnknownCommitError if the JVM was lost.
    """
    drop(live)
    drop_published(live)
    if _is_taken(live, audit, own):
        why = f"another writer made a branch {audit.branch}"
        return commit.Refused(why, conflict=False, audit=True)
    try:
        return _on_branch(live, operation, intent, prepared, audit)
    except Exception as error:
        if lost_jvm(error):
            raise UnknownCommitError(
                f"the Spark process ended while it audited a batch of {live.name}",
                details=("Nothing of the batch is on main; its files were kept.",),
                do="run the command again: it checks, cleans up and continues",
            ) from error
        raise


def _on_branch(
    live: LiveTable, operation: Operation, intent: Intent, prepared: Prepared, audit: Audit
) -> commit.Refused | int:
    snapshot, error = _sent(live, operation, intent, prepared, audit)
    found: commit.Refused | int | None = None
    try:
        if snapshot is None:
            why = "the commit to the branch is not in the table"
            found = commit.Refused(java_message(error) if error else why, conflict=True)
        else:
            found = check(live, snapshot, audit) or int(snapshot.snapshotId())
    finally:
        if not audit.waits or not isinstance(found, int):
            drop(live, attempt=intent.attempt_id, batch=intent.batch)
            metadata_files.remove_of_commits(live, (prepared.uuid,), prepared.base)
    if audit.waits and isinstance(found, int):
        metadata_files.tidy(live, prepared, answered=error is None)
        _keep(live, audit, intent.base_snapshot_id)
    return found


def _sent(
    live: LiveTable, operation: Operation, intent: Intent, prepared: Prepared, audit: Audit
) -> tuple[Any, Exception | None]:
    """Return the snapshot on the branch, None if it is not there and cannot arrive late, and the
    error of the commit."""
    mark = f"{intent.attempt_id}/{intent.batch}"
    error = None
    try:
        operation.fill(prepared.update, intent.base_snapshot_id)
        prepared.update.set(AUDIT, mark)
        prepared.update.set(AUDIT_BRANCH, audit.branch)
        if audit.waits:
            prepared.update.set(AUDIT_PLAN, intent.plan_id)
            prepared.update.set(AUDIT_ACTIONS, ",".join(intent.action_ids))
            prepared.update.set(AUDIT_BASE, str(intent.base_snapshot_id))
            prepared.update.set(AUDIT_WAITS, audit.waits)
            prepared.update.set(AUDIT_FORMAT, str(iceberg.format_version(live.table)))
        prepared.update.commit()
    except Exception as thrown:
        if lost_jvm(thrown):
            raise
        error = thrown
    if error is not None and not _cannot_arrive(live, error):
        time.sleep(history.REQUEST_TIMEOUT_SECONDS)
    live.table.refresh()
    return _marked(live, mark), error


def _keep(live: LiveTable, audit: Audit, base: int) -> None:
    """Let nobody's expiry take the branch's snapshots, or the one that their rows were read from:
    each of them is needed to publish the branch."""
    head, number = live.table.refs().get(audit.branch).snapshotId(), 1
    snapshot = live.table.snapshot(head)
    while snapshot.parentId() is not None and int(snapshot.snapshotId()) != base:
        snapshot, number = live.table.snapshot(snapshot.parentId()), number + 1
    try:
        changes = live.table.manageSnapshots()
        changes.setMinSnapshotsToKeep(audit.branch, number).commit()
    except Exception as error:
        if lost_jvm(error):
            raise  # otherwise an expiry may void what waits: it is planned again then
    live.table.refresh()


def _cannot_arrive(live: LiveTable, error: Exception) -> bool:
    thrown = java_exception(error)
    return thrown is not None and iceberg.is_a(live.spark, thrown, CLEANABLE)


def _marked(live: LiveTable, mark: str) -> Any:
    for snapshot in iceberg.each(live.table.snapshots()):
        if snapshot.summary().get(AUDIT) == mark:
            return snapshot
    return None


def check(live: LiveTable, snapshot: Any, audit: Audit) -> commit.Refused | None:
    """Run the policy's query, if it has one: any row that it returns refuses the batch."""
    if not audit.check:
        return None
    where = f"the check of branch {audit.branch}"
    try:
        why = refused(audit.check)
        if not why:
            rows = _session(live.spark).sql(_query(live, snapshot, audit))
            why = _beyond(live, rows.queryExecution().analyzed())
        if why:
            return commit.Refused(f"{where} may not run: {why}", conflict=False, audit=True)
        passed = bool(rows.isEmpty())
    except Exception as error:
        if lost_jvm(error):
            raise
        # What an engine says may hold values of rows (`raise_error`): for this log alone.
        log.warning("%s could not be run: %s", where, java_message(error))
        kind = error_class(error)
        return commit.Refused(f"{where} could not be run ({kind})", conflict=False, audit=True)
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


def _beyond(live: LiveTable, analysed: Any) -> str:
    """Return what the query reads beyond the rows of its table, "" for nothing.

    Whatever is not known to be harmless counts: a leaf of the plan that is not the table itself.
    """
    nodes: list[Any] = [analysed]
    expressions: list[Any] = []
    while nodes or expressions:
        if expressions:
            item = expressions.pop()
            name = str(item.getClass().getSimpleName())
            if name in WITHHELD:
                return f"it uses {name}"
            if iceberg.is_a(live.spark, item, PLAN_EXPRESSION):
                nodes.append(item.plan())
            expressions += _seq(item.children())
            continue
        node = nodes.pop()
        name = str(node.getClass().getSimpleName()).rstrip("$")
        if name in (SCRIPT, "View") or iceberg.is_a(live.spark, node, COMMAND):
            return f"its plan has a node {name}"
        children = _seq(node.children())
        if not children and name not in LEAVES and not _is_checked(live, node, name):
            return f"it reads another table, by a node {name}"
        nodes += [*children, *_seq(node.innerChildren())]
        expressions += _seq(node.expressions())
    return ""


def _is_checked(live: LiveTable, node: Any, name: str) -> bool:
    """Whether the relation is the table of the check, and not a metadata table of it."""
    if name != ICEBERG:
        return False
    read = node.table()
    if not iceberg.is_a(live.spark, read, SPARK_TABLE):
        return False
    table = read.table()
    if not iceberg.is_a(live.spark, table, BASE_TABLE):
        return False
    ours = live.table.operations().current().uuid()
    return str(table.operations().current().uuid()) == str(ours)


def _seq(items: Any) -> list[Any]:
    """Return the items of a Scala sequence."""
    return [items.apply(number) for number in range(int(items.size()))]


def _session(spark: Any) -> Any:
    """Return a Java session that reads tables of catalogs only, and calls no Java method by
    name."""
    session = spark._jsparkSession.cloneSession()
    session.conf().set("spark.sql.runSQLOnFiles", "false")
    registry = session.sessionState().functionRegistry()
    identifier = spark._jvm.org.apache.spark.sql.catalyst.FunctionIdentifier
    for name in DENIED:
        registry.dropFunction(identifier(name))
    return session


def drop(
    live: LiveTable,
    *,
    attempts: Collection[str] = (),
    attempt: str = "",
    batch: int = 0,
    snapshots: Collection[int] = (),
) -> None:
    """Drop the branches and snapshots of audits, with the metadata files that only they need.

    Of those that wait for approval only the ones named: by their attempts, by one batch of an
    attempt, or by their ids. What was on the branch before one of them stays there. A snapshot
    stays if somebody made a branch or a tag on it.
    """

    def wanted(snapshot: Any) -> bool:
        mark = snapshot.summary().get(AUDIT)
        if mark is None or not snapshot.summary().get(AUDIT_WAITS):
            return mark is not None
        named = mark == f"{attempt}/{batch}" or mark.rpartition("/")[0] in attempts
        return named or int(snapshot.snapshotId()) in snapshots

    files: dict[int, list[str]] = {}

    def change(base: Any, builder: Any) -> bool:
        heads, gone = _of_audits(live, base, wanted)
        for name, head in heads.items():
            if head is None:
                builder.removeRef(name)
            else:
                ref = live.spark._jvm.org.apache.iceberg.SnapshotRef
                builder.setRef(name, ref.branchBuilder(head).build())
        files.update({int(one.snapshotId()): metadata_files.own_files(live, one) for one in gone})
        builder.removeSnapshots(iceberg.java_list(live.spark, gone))
        return bool(heads or gone)

    base = _changed(live, change)
    dropped = [paths for one, paths in files.items() if base.snapshot(one) is None]
    metadata_files.delete(live, itertools.chain.from_iterable(dropped))


def drop_published(live: LiveTable) -> None:
    """Drop branches whose batches a person published by moving main to them."""

    def change(base: Any, builder: Any) -> bool:
        found = [
            str(entry.getKey())
            for entry in iceberg.each(base.refs().entrySet())
            if entry.getKey() != MAIN
            and entry.getValue().isBranch()
            and _was_put_on(base, entry)
            and _is_on_main(live, base, int(entry.getValue().snapshotId()))
        ]
        for name in found:
            builder.removeRef(name)
        return bool(found)

    _changed(live, change)


def _was_put_on(base: Any, entry: Any) -> bool:
    """Whether the ref's snapshot is a waiting batch that was committed to this very branch."""
    summary = base.snapshot(entry.getValue().snapshotId()).summary()
    return bool(summary.get(AUDIT_WAITS)) and summary.get(AUDIT_BRANCH) == str(entry.getKey())


def _changed(live: LiveTable, change: Callable[[Any, Any], bool]) -> Any:
    """Commit a change of the table's metadata until there is nothing to change; return the
    metadata. change: fills a builder from the present metadata, and returns whether it did."""
    for _ in range(metadata.RESENDS):
        live.table.refresh()
        operations = live.table.operations()
        base = operations.current()
        builder = live.spark._jvm.org.apache.iceberg.TableMetadata.buildFrom(base)
        # A snapshot that is removed takes every ref with it that somebody moves to it meanwhile:
        # main, if a person publishes the branch by hand and this request arrives after that.
        metadata.hold(live.spark, base, builder, _names_of_refs(base))
        if not change(base, builder):
            return base
        try:
            operations.commit(base, builder.build())
        except Exception as error:
            if lost_jvm(error):
                raise
            time.sleep(metadata.PAUSE_SECONDS)  # it may have arrived: the table says so
    raise UnavailableError(
        f"the branch of an audit of {live.name} could not be dropped",
        details=("The catalog accepted none of the commits.",),
        do="run the command again when the catalog works",
    )


def _names_of_refs(metadata: Any) -> list[str]:
    return [str(name) for name in iceberg.each(metadata.refs().keySet())]


def _of_audits(
    live: LiveTable, metadata: Any, wanted: Callable[[Any], bool]
) -> tuple[dict[str, int | None], list[Any]]:
    """Return the branches whose head is to go, each with the head that it gets, None for none; and
    the snapshots that only they hold."""
    marked = [one for one in iceberg.each(metadata.snapshots()) if wanted(one)]
    ids = {int(snapshot.snapshotId()) for snapshot in marked}
    refs = {
        str(entry.getKey()): (int(entry.getValue().snapshotId()), entry.getValue().isBranch())
        for entry in iceberg.each(metadata.refs().entrySet())
    }
    own = {name for name, (head, branch) in refs.items() if branch and name != MAIN
           and head in ids and standing.is_of_audit(metadata, head, name)}  # fmt: skip
    heads = {name: _left(live, metadata, refs[name][0], ids) for name in own}
    others = [head for name, (head, _) in refs.items() if name not in heads]
    others += [head for head in heads.values() if head is not None]
    is_ancestor = live.spark._jvm.org.apache.iceberg.util.SnapshotUtil.isAncestorOf
    gone = [
        snapshot
        for snapshot in marked
        if not any(is_ancestor(live.table, head, int(snapshot.snapshotId())) for head in others)
    ]
    return heads, gone


def _left(live: LiveTable, metadata: Any, head: int, gone: Collection[int]) -> int | None:
    """Return the newest snapshot of the branch that stays on it; None if there is none: what is
    under the batches belongs to main, also a batch that a person published there."""
    snapshot = metadata.snapshot(head)
    while snapshot is not None and int(snapshot.snapshotId()) in gone:
        parent = snapshot.parentId()
        snapshot = None if parent is None else metadata.snapshot(parent)
    if snapshot is None or not snapshot.summary().get(AUDIT_WAITS):
        return None
    return (
        None
        if _is_on_main(live, metadata, int(snapshot.snapshotId()))
        else int(snapshot.snapshotId())
    )


def _is_on_main(live: LiveTable, metadata: Any, snapshot_id: int) -> bool:
    main = metadata.currentSnapshot()
    is_ancestor = live.spark._jvm.org.apache.iceberg.util.SnapshotUtil.isAncestorOf
    return main is not None and bool(is_ancestor(live.table, int(main.snapshotId()), snapshot_id))
