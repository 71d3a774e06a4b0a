"""Commits a change of the table's metadata on exactly the metadata that it was judged against."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from reconciler.errors import UnavailableError, UnknownCommitError
from reconciler.plan.actions.set_sort_order import has_order, sort_term
from reconciler.plan.actions.state import ActionState, Facts, Validity
from reconciler.plan.ordering import Ordering
from reconciler.spark.commit import commit, specs
from reconciler.spark.fallback import stage
from reconciler.spark.session import iceberg
from reconciler.spark.session.translate import CLEANABLE, java_exception, java_message, lost_jvm
from reconciler.table.metadata import TableMetadata
from reconciler.table.retention import MAIN, SnapshotLog, snapshot_log

RESENDS = 10
"""Commits in a row that may lose against other writers before the action fails."""
PAUSE_SECONDS = 0.5
"""Pause before a commit is sent again that was neither accepted nor refused."""


@dataclass(frozen=True, slots=True)
class Change:
    """judge: whether the change is pending. on: the metadata after it, from those before it.
    values: what it changes, by name, as people write it."""

    judge: Callable[[Facts], ActionState]
    on: Callable[[Any], Any]
    values: Callable[[Any], Mapping[str, str]]


def facts(table: Any) -> Facts:
    """Return what actions that change metadata are judged by, from the table as last refreshed."""
    version = iceberg.format_version(table)
    return Facts(
        metadata=TableMetadata(
            dict(table.properties()),
            sort_terms(table),
            version,
            specs.terms(table),
            int(table.spec().specId()),
            columns=frozenset(json.loads(table.schema().idToName().keySet().toString())),
        )
    )


def log_of(spark: Any, table: Any) -> SnapshotLog:
    """Return the snapshots and refs of the table as last refreshed."""
    return snapshot_log(document(spark, table.operations().current()))


def document(spark: Any, metadata: Any) -> dict[str, Any]:
    """Return table metadata in the JSON form of the specification: one call, however long it
    is."""
    parser = spark._jvm.org.apache.iceberg.TableMetadataParser
    return dict(json.loads(str(parser.toJson(metadata))))


def sort_terms(table: Any) -> tuple[str, ...]:
    """Return the table's sort order in canonical form (actions.sort_term)."""
    return _terms_of(table.sortOrder())


def sort_order_id(table: Any, ordering: Ordering) -> int:
    """Return the id of the table's sort order that rows have in this ordering, UNSORTED if it has
    no such order."""
    key = ordering.key if ordering.lead is not None else ()
    found = [
        int(order.orderId())
        for order in iceberg.java_values(table.sortOrders())
        if key and has_order(_terms_of(order), key)
    ]
    return max(found, default=stage.UNSORTED)


def _terms_of(order: Any) -> tuple[str, ...]:
    return tuple(
        sort_term(
            str(part.transform().toString()),
            int(part.sourceId()),
            str(part.direction().name()),
            str(part.nullOrder().toString()),
        )
        for part in iceberg.each(order.fields())
    )


def apply(spark: Any, table: Any, change: Change) -> tuple[ActionState, str]:
    """Commit the change if it is still pending on the metadata that it replaces.

    Iceberg's own updates would be repeated on whatever another writer committed meanwhile. Here the
    commit names the metadata that was judged; after a refusal the new metadata is judged. If a
    commit was reported as failed, or not answered, and its change is found in the table, it is
    ours. Returns the state found, and after a commit "name: old -> new" for the ledger and for
    people.
    """
    detail = unknown = ""
    for number in range(RESENDS):
        table.refresh()
        state = change.judge(facts(table))
        if state.validity is Validity.DONE and number:
            return ActionState(Validity.PENDING), detail
        if state.validity is not Validity.PENDING:
            return state, ""
        operations = table.operations()
        base = operations.current()
        wanted = change.on(base)
        detail = _detail(change.values(base), change.values(wanted))
        try:
            operations.commit(base, wanted)
        except Exception as error:
            if _is_final(spark, table, error):
                table.refresh()
                if change.judge(facts(table)).validity is not Validity.DONE:
                    raise _refused(spark, table, error) from error
            unknown = _why_unknown(spark, error)
            if unknown:
                time.sleep(PAUSE_SECONDS)
            continue
        table.refresh()
        return ActionState(Validity.PENDING), detail
    if unknown:
        raise _unknown(table, "The table does not show the change yet.", unknown)
    raise UnavailableError(
        f"{table.name()}: other writers keep changing its metadata",
        details=(f"{RESENDS} commits in a row were rejected because of concurrent changes.",),
        do="run the command again when the writers are quieter",
    )


def hold(spark: Any, base: Any, builder: Any, names: Iterable[str] = (MAIN,)) -> None:
    """Have the catalog refuse the change that is built once one of these branches and tags has
    another snapshot than in `base`.

    A REST catalog compares only what the request requires, and Iceberg requires a ref's snapshot
    only where the request sets the ref (org.apache.iceberg.UpdateRequirements). So its retention is
    changed, and set back in the same request.
    """
    refs = spark._jvm.org.apache.iceberg.SnapshotRef
    for name in names:
        ref = base.ref(name)
        if ref is None:
            continue
        other = refs.builderFrom(ref)
        if ref.isBranch():
            other.minSnapshotsToKeep(1 + (ref.minSnapshotsToKeep() or 1))
        else:
            other.maxRefAgeMs(1 + (ref.maxRefAgeMs() or 1))
        builder.setRef(name, other.build())
        builder.setRef(name, ref)


def _detail(before: Mapping[str, str], after: Mapping[str, str]) -> str:
    return "; ".join(f"{name}: {before[name]} -> {value}" for name, value in after.items())


def _is_final(spark: Any, table: Any, error: Exception) -> bool:
    """Whether sending the same commit again would get the same answer. Raises UnknownCommitError if
    the JVM ended meanwhile."""
    if lost_jvm(error):
        raise _unknown(table, "The Spark process ended while it committed.") from error
    thrown = java_exception(error)
    if thrown is None or iceberg.is_a(spark, thrown, commit.COMMIT_FAILED):
        return False
    return commit.is_denied(spark, thrown) or iceberg.is_a(spark, thrown, CLEANABLE)


def _refused(spark: Any, table: Any, error: Exception) -> Exception:
    if commit.is_denied(spark, java_exception(error)):
        return commit.denied(str(table.name()), java_message(error))
    return error


def _why_unknown(spark: Any, error: Exception) -> str:
    """Return why the commit's outcome is unknown, "" if it lost against another one."""
    thrown = java_exception(error)
    lost = thrown is not None and iceberg.is_a(spark, thrown, commit.COMMIT_FAILED)
    return "" if lost else java_message(error)


def _unknown(table: Any, detail: str, *said: str) -> UnknownCommitError:
    return UnknownCommitError(
        f"it is unknown whether a change of the metadata of {table.name()} arrived",
        details=(detail,),
        said=said,
        do="run the command again: it checks, and repeats the change only if needed",
    )
