"""Which block ids a rewrite of ours writes to the table as an attempt reads it."""

from __future__ import annotations

from reconciler.engines.schedule import described
from reconciler.engines.schedule.attempt import Attempt
from reconciler.plan.actions.rewrite import Rewrite
from reconciler.rewrite.block_ids import Blocks
from reconciler.rewrite.files import TableShape
from reconciler.table.block_ids import (
    TREE,
    base_of,
    block_tree_of,
    key_of,
    newest,
    owned_column,
)
from reconciler.table.cut_tree import NotATree, Tree
from reconciler.table.metadata import TableMetadata


def blocks_of(attempt: Attempt, action: Rewrite) -> Blocks | None:
    """Return the ids that rows of a rewrite get: those of its leaves, else of the tree that was
    written last, or NULL, which is always true; None if the table has no column for them that we
    may write."""
    known = attempt.once("metadata", lambda: _metadata(attempt))
    owned = owned_column(known)
    used = {column.field_id for column in action.ordering.key}
    used |= {one.source_id for one in action.moves_by or ()}
    if owned is None or owned in used:
        return None
    table = described.table_of(attempt)
    column = next(one for one in table.columns if one.field_id == owned)
    tree = action.ordering.tree if action.block_column else None
    key = key_of(tree) if tree is not None else attempt.once("tree", lambda: _newest(attempt))
    kept = None if key is None else _kept(known, table, key)
    return Blocks(column) if kept is None else Blocks(column, base_of(key_of(kept)), kept)


def _newest(attempt: Attempt) -> str | None:
    line = attempt.table.ancestors()
    return newest(attempt.table.properties(), (one.summary for one in line))


def _metadata(attempt: Attempt) -> TableMetadata:
    return attempt.table.facts().metadata.with_schema(described.schema_of(attempt))


def _kept(known: TableMetadata, table: TableShape, key: str) -> Tree | None:
    """Return the tree of this key if the table's properties hold it, for columns of their present
    types."""
    try:
        kept = block_tree_of(key, known.properties.get(TREE + key, ""))
    except NotATree:
        return None
    same = all(
        one in table.ways and kept.types.get(one) == table.ways[one][-1].type
        for one in kept.tree.cut_columns
    )
    return kept.tree if same else None
