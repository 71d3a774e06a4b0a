"""Decides about metadata: sizes of files and row groups, and the sort order of writers.

A size is set only if the policy names it, so that other writers use it too. A sort order is set
only for Declared keys with applyToWrites, because a sorted table makes every writer shuffle
(docs/design/decisions.md#never-surprise-writers).
"""

from __future__ import annotations

from reconciler.advisor.advice import Settings
from reconciler.plan.actions.base import Action
from reconciler.plan.actions.set_properties import SetProperties
from reconciler.plan.actions.set_sort_order import SetSortOrder, has_order
from reconciler.table.left_to_spark import ROW_GROUP
from reconciler.table.numbers import FILE_BYTES

DISTRIBUTION_MODE = "write.distribution-mode"


def set_properties(settings: Settings) -> tuple[Action, ...]:
    """Return one action that sets what the policy declares of files, where the table's properties
    differ."""
    present = settings.metadata.properties
    wanted = {}
    if settings.row_group_explicit:
        wanted[ROW_GROUP] = str(settings.row_group_bytes)
    if settings.target_explicit:
        wanted[FILE_BYTES] = str(settings.target_bytes)
    if settings.distribution_mode is not None:
        wanted[DISTRIBUTION_MODE] = settings.distribution_mode
    changes = sorted((name, size) for name, size in wanted.items() if present.get(name) != size)
    if not changes:
        return ()
    return (
        SetProperties(
            old=tuple((name, present.get(name)) for name, _ in changes), new=tuple(changes)
        ),
    )


def set_sort_order(settings: Settings) -> tuple[Action, ...]:
    """Return the action that makes the Declared key the table's sort order, for writers to
    follow."""
    key = settings.ordering.key
    if settings.mode != "Declared" or not settings.apply_to_writes or not key:
        return ()
    if has_order(settings.metadata.sort_terms, key):
        return ()
    return (SetSortOrder(key=key, old=settings.metadata.sort_terms),)
