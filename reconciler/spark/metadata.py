"""Carries out actions that change only metadata: table properties and the sort order.

Each records the value it replaces; the table's present value decides if it is done, pending or
lost.
"""

from __future__ import annotations

import time
from typing import Any

from reconciler.errors import UnavailableError, UnknownCommitError
from reconciler.plan.actions.base import Action
from reconciler.plan.actions.set_properties import SetProperties
from reconciler.plan.actions.set_sort_order import SetSortOrder, sort_term
from reconciler.plan.actions.state import ActionState, Facts, Validity
from reconciler.spark import commit, iceberg
from reconciler.spark.translate import CLEANABLE, java_exception, java_message, lost_jvm

RESENDS = 10
"""Commits in a row that may lose against other writers before the action fails."""
PAUSE_SECONDS = 0.5
"""Pause before a commit is sent again that was neither accepted nor refused."""


def judge(table: Any, action: Action) -> ActionState:
    """Return the validity of a metadata action on the present table."""
    return action.judge(Facts(properties=dict(table.properties()), sort_terms=sort_terms(table)))


def sort_terms(table: Any) -> tuple[str, ...]:
    """Return the table's sort order in canonical form (actions.sort_term)."""
    return tuple(
        sort_term(
            str(part.transform().toString()),
            int(part.sourceId()),
            str(part.direction().name()),
            str(part.nullOrder().toString()),
        )
        for part in table.sortOrder().fields()
    )


def apply(spark: Any, table: Any, action: Action) -> tuple[ActionState, str]:
    """Commit the change if it is still pending on the metadata that it replaces.

    Iceberg's own updates would be repeated on whatever another writer committed meanwhile. Here the
    commit names the metadata that was judged; after a refusal the new metadata is judged. If a
    commit was reported as failed, or not answered, and its change is found in the table, it is
    ours. Returns the state found, and after a commit "name: old -> new" for the ledger and for
    people.
    """
    before, unknown = _shown(table), ""
    for number in range(RESENDS):
        table.refresh()
        state = judge(table, action)
        if state.validity is Validity.DONE and number:
            return ActionState(Validity.PENDING), _detail(table, action, before)
        if state.validity is not Validity.PENDING:
            return state, ""
        operations = table.operations()
        base, before = operations.current(), _shown(table)
        try:
            operations.commit(base, _changed(spark, table, base, action))
        except Exception as error:
            if _is_final(spark, table, error):
                table.refresh()
                if judge(table, action).validity is not Validity.DONE:
                    raise _refused(spark, table, error) from error
            unknown = _why_unknown(spark, error)
            if unknown:
                time.sleep(PAUSE_SECONDS)
            continue
        table.refresh()
        return ActionState(Validity.PENDING), _detail(table, action, before)
    if unknown:
        raise _unknown(table, unknown, "The table does not show it so far.")
    raise UnavailableError(
        f"{table.name()}: its metadata is changed so often that no change of ours is accepted",
        details=(f"{RESENDS} commits in a row lost against other writers.",),
        do="run the command again when the writers are quieter",
    )


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


def _unknown(table: Any, *details: str) -> UnknownCommitError:
    return UnknownCommitError(
        f"whether a change of the metadata of {table.name()} arrived is not known",
        details=details,
        do="run the command again: it finds out, and does it only if it is not done",
    )


def _changed(spark: Any, table: Any, base: Any, action: Action) -> Any:
    """Return the metadata after the action."""
    if isinstance(action, SetProperties):
        wanted = spark._jvm.java.util.HashMap(base.properties())
        for name, value in action.new:
            wanted.put(name, value)
        return base.replaceProperties(wanted)
    assert isinstance(action, SetSortOrder)
    nulls = spark._jvm.org.apache.iceberg.NullOrder
    order = spark._jvm.org.apache.iceberg.SortOrder.builderFor(base.schema())
    for part in action.key:
        name = base.schema().findColumnName(part.field_id)
        if part.direction == "desc":
            order.desc(name, nulls.NULLS_LAST)
        else:
            order.asc(name, nulls.NULLS_FIRST)
    return base.replaceSortOrder(order.build())


def _detail(table: Any, action: Action, before: str) -> str:
    if isinstance(action, SetSortOrder):
        return f"sort order: {before} -> {_shown(table)}"
    assert isinstance(action, SetProperties)
    old = dict(action.old)
    return "; ".join(
        f"{name}: {old.get(name) or '(unset)'} -> {value}" for name, value in action.new
    )


def _shown(table: Any) -> str:
    """Return the sort order as people write it."""
    schema, parts = table.schema(), []
    for part in table.sortOrder().fields():
        column = str(schema.findColumnName(part.sourceId()))
        transform = str(part.transform().toString())
        name = column if transform == "identity" else f"{transform}({column})"
        parts.append(f"{name} {str(part.direction().name()).lower()}")
    return ", ".join(parts) or "unsorted"
