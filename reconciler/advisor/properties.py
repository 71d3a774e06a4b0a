"""Decisions about metadata: the target file size, and the sort order that writers follow.

A size is written only when the policy names it; a sort order only for Declared keys with
applyToWrites, because a sorted table makes every writer shuffle (design: Never surprise writers).
"""

from __future__ import annotations

from reconciler.advisor.advice import Settings
from reconciler.core.actions import Action, ActionType, has_order

TARGET_SIZE = "write.target-file-size-bytes"


def set_properties(settings: Settings) -> tuple[Action, ...]:
    """The target file size as a table property, where an explicit one differs."""
    wanted = str(settings.target_bytes)
    present = settings.properties.get(TARGET_SIZE)
    if not settings.target_explicit or present == wanted:
        return ()
    return (
        Action(
            ActionType.SET_PROPERTIES,
            properties_old=((TARGET_SIZE, present),),
            properties_new=((TARGET_SIZE, wanted),),
        ),
    )


def set_sort_order(settings: Settings) -> tuple[Action, ...]:
    """The Declared key as the table's sort order, for writers to follow."""
    if settings.mode != "Declared" or not settings.apply_to_writes or not settings.key:
        return ()
    if has_order(settings.sort_terms, settings.key):
        return ()
    return (Action(ActionType.SET_SORT_ORDER, key=settings.key, order_old=settings.sort_terms),)
