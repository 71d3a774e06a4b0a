"""Decides about metadata: sizes of files and row groups, and the sort order of writers.

A size is set only if the policy names it, so that other writers use it too; with small row groups
comes a limit of the rows of a page, without which they would be a fifth as large. A sort order is
set only for Declared keys with applyToWrites, because a sorted table makes every writer shuffle
(docs/design/decisions.md#never-surprise-writers).
"""

from __future__ import annotations

from reconciler.advisor.advice import Settings
from reconciler.plan.actions.base import Action
from reconciler.plan.actions.set_properties import SetProperties
from reconciler.plan.actions.set_sort_order import SetSortOrder, has_order
from reconciler.table.row_group_bytes import PAGE_ROWS, page_rows_for

ROW_GROUP_SIZE = "write.parquet.row-group-size-bytes"
TARGET_SIZE = "write.target-file-size-bytes"


PAGE_ROW_LIMIT = "write.parquet.page-row-limit"
DISTRIBUTION_MODE = "write.distribution-mode"


def set_properties(settings: Settings, plain_row: float) -> tuple[Action, ...]:
    """Return one action that sets what the policy declares of files, where the table's properties
    differ. plain_row: bytes of a row in plain encoding, 0 if unknown.
    """
    present = settings.metadata.properties
    wanted = {}
    if settings.row_group_explicit:
        wanted[ROW_GROUP_SIZE] = str(settings.row_group_bytes)
        limit = _page_limit(settings.row_group_bytes, plain_row, present.get(PAGE_ROW_LIMIT))
        wanted |= {} if limit is None else {PAGE_ROW_LIMIT: str(limit)}
    if settings.target_explicit:
        wanted[TARGET_SIZE] = str(settings.target_bytes)
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


def page_rows(settings: Settings, plain_row: float) -> int:
    """Return the rows of a page in the files that a plan writes."""
    present = settings.metadata.properties.get(PAGE_ROW_LIMIT)
    limit = None
    if settings.row_group_explicit:
        limit = _page_limit(settings.row_group_bytes, plain_row, present)
    if limit is None:
        limit = int(present) if present is not None and present.isdecimal() else PAGE_ROWS
    return max(1, min(limit, PAGE_ROWS))


def _page_limit(row_group_bytes: int, plain_row: float, present: str | None) -> int | None:
    """Return the rows of a page that small row groups need to come out as large as declared; None
    if they need no limit, or if the present one is near enough."""
    wanted = page_rows_for(row_group_bytes, plain_row) if plain_row else PAGE_ROWS
    if wanted >= PAGE_ROWS:
        return None
    if present is not None and present.isdecimal() and wanted <= 2 * int(present) <= 4 * wanted:
        return None
    return wanted


def set_sort_order(settings: Settings) -> tuple[Action, ...]:
    """Return the action that makes the Declared key the table's sort order, for writers to
    follow."""
    key = settings.ordering.key
    if settings.mode != "Declared" or not settings.apply_to_writes or not key:
        return ()
    if has_order(settings.metadata.sort_terms, key):
        return ()
    return (SetSortOrder(key=key, old=settings.metadata.sort_terms),)
