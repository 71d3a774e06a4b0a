"""Which block ids a rewrite of ours writes to the table as an attempt reads it."""

from __future__ import annotations

from reconciler.engines.schedule import described
from reconciler.engines.schedule.attempt import Attempt
from reconciler.plan.actions.rewrite import Rewrite
from reconciler.rewrite.block_ids import Blocks
from reconciler.rewrite.files import Table
from reconciler.table.block_ids import TREE, base_of, block_tree_of, key_of, owned_column
from reconciler.table.cut_tree import NotATree, Tree
from reconciler.table.metadata import TableMetadata


def blocks_of(attempt: Attempt, action: Rewrite) -> Blocks | None:
    """Return the ids that rows of a rewrite get: those of its leaves, or NULL, which is always
    true; None if the table has no column for them that we may write."""
    known = attempt.once("metadata", lambda: _metadata(attempt))
    owned = owned_column(known)
    used = {column.field_id for column in action.ordering.key}
    used |= {one.source_id for one in action.moves_by or ()}
    if owned is None or owned in used:
        return None
    table = described.table_of(attempt)
    column = next(one for one in table.columns if one.field_id == owned)
    tree = action.ordering.tree
    if tree is None or not action.block_column or not _is_kept(known, table, tree):
        return Blocks(column)
    return Blocks(column, base_of(key_of(tree)), tree)


def _metadata(attempt: Attempt) -> TableMetadata:
    return attempt.table.facts().metadata.with_schema(described.schema_of(attempt))


def _is_kept(known: TableMetadata, table: Table, tree: Tree) -> bool:
    """Return whether the table's properties hold the tree, for columns of their present types."""
    key = key_of(tree)
    try:
        kept = block_tree_of(key, known.properties.get(TREE + key, ""))
    except NotATree:
        return False
    return all(
        one in table.ways and kept.types.get(one) == table.ways[one][-1].type
        for one in tree.of_column
    )
