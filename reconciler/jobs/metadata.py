"""Actions that change metadata only: table properties and the sort order.

Each records the value it replaces, and is done, pending or lost by what the table says now.
"""

from __future__ import annotations

from typing import Any

from reconciler.core.actions import Action, ActionType
from reconciler.core.plan import Validity
from reconciler.jobs.standing import Standing


def judge(table: Any, action: Action) -> Standing:
    """Validity of a metadata action on the table as it is now."""
    if action.type is ActionType.SET_SORT_ORDER:
        wanted = [(part.field_id, part.direction) for part in action.key]
        return Standing(Validity.DONE if sort_order(table) == wanted else Validity.PENDING)
    current = table.properties()
    if all(current.get(name) == value for name, value in action.properties_new):
        return Standing(Validity.DONE)
    changed = [name for name, old in action.properties_old if current.get(name) != old]
    if changed:
        why = f"{changed[0]} was set to {current.get(changed[0])!r} by someone else"
        return Standing(Validity.LOST, why=why)
    return Standing(Validity.PENDING)


def sort_order(table: Any) -> list[tuple[int, str]]:
    """(field id, "asc" | "desc") of the table's current sort order."""
    return [
        (int(part.sourceId()), part.direction().name().lower())
        for part in table.sortOrder().fields()
    ]


def apply(spark: Any, table: Any, action: Action) -> str:
    """Commits the change; returns "name: old -> new" for the ledger and for people."""
    if action.type is ActionType.SET_SORT_ORDER:
        return _replace_sort_order(spark, table, action)
    update = table.updateProperties()
    for name, value in action.properties_new:
        update.set(name, value)
    update.commit()
    old = dict(action.properties_old)
    return "; ".join(
        f"{name}: {old.get(name) or '(unset)'} -> {value}" for name, value in action.properties_new
    )


def _replace_sort_order(spark: Any, table: Any, action: Action) -> str:
    nulls = spark._jvm.org.apache.iceberg.NullOrder
    before = _shown(table, sort_order(table))
    update = table.replaceSortOrder()
    for part in action.key:
        name = table.schema().findColumnName(part.field_id)
        column = spark._jvm.org.apache.iceberg.expressions.Expressions.ref(name)
        if part.direction == "desc":
            update.desc(column, nulls.NULLS_LAST)
        else:
            update.asc(column, nulls.NULLS_FIRST)
    update.commit()
    table.refresh()
    return f"sort order: {before} -> {_shown(table, sort_order(table))}"


def _shown(table: Any, order: list[tuple[int, str]]) -> str:
    schema = table.schema()
    return ", ".join(f"{schema.findColumnName(i)} {d}" for i, d in order) or "unsorted"
