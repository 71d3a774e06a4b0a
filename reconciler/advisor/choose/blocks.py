"""Decides about block ids: which trees get them, and what the table has to say of these trees.

Only where the policy names a column. Without ids nothing else changes: bounds serve as before.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from reconciler.advisor.advice import QD_TREE, Rejected
from reconciler.advisor.judge.candidate import rejected
from reconciler.advisor.qdtree.pairs import of_one_type, pairs_asked
from reconciler.advisor.qdtree.uncut import uncut
from reconciler.advisor.situation import Situation
from reconciler.format import iec
from reconciler.plan import reasons
from reconciler.plan.actions.base import Action
from reconciler.plan.actions.set_block_column import SetBlockColumn
from reconciler.plan.ordering import Ordering
from reconciler.table.block_ids import (
    MOST_TREE_BYTES,
    TREE,
    base_of,
    hindrance,
    holds,
    is_key,
    key_of,
    owned_column,
)
from reconciler.table.cut_tree import MOST_LEAVES, Tree
from reconciler.table.filetable import Int64

MOST_TREES = 64
"""Trees that a table's properties hold: each is read with the table's metadata."""


def wanted_column(situation: Situation) -> str:
    """Return the column that ids of new trees can be written to, "" for none."""
    wanted = situation.settings.trees.block_column
    return "" if not wanted or _why_not(situation) else wanted


def block_column_of(situation: Situation, ordering: Ordering) -> str:
    """Return the column that gets the ids of this ordering's tree, "" if none does."""
    tree = ordering.tree
    return "" if tree is None or too_large(tree) else wanted_column(situation)


def refused_blocks(situation: Situation, orderings: Iterable[Ordering]) -> tuple[Rejected, ...]:
    """Return why trees get no ids although the policy names a column, and which conditions of the
    queries no cut of trees serves."""
    wanted = situation.settings.trees.block_column
    # Bands beside keys are cut at quantiles, so that no condition was to be served by a cut.
    all_grown = situation.settings.mode == QD_TREE
    trees = [
        one.tree for one in orderings
        if one.tree is not None and (all_grown or one.tree.bands is None)
    ]  # fmt: skip
    if situation.facts.refused or not (wanted or trees):
        return ()
    large = next((why for tree in trees if (why := too_large(tree))), "")
    no_ids = (_why_not(situation) or large) if wanted else ""
    nothing, found = np.zeros(0, dtype=np.int64), list[Rejected]()
    if no_ids:
        title = f"block ids in column {wanted}"
        found.append(rejected(situation, title, reasons.NO_BLOCK_IDS, no_ids, nothing))
    if trees and (why := _uncut(situation, ids=bool(wanted) and not no_ids)):
        title = "cuts by LIKE, between columns and by expressions"
        found.append(rejected(situation, title, reasons.NOT_CUT, why, nothing))
    return tuple(found)


def _uncut(situation: Situation, *, ids: bool) -> str:
    """Return the conditions that no cut serves. ids: whether rows get block ids."""
    schema, demands = situation.table.schema, situation.expected.demands
    reads = [
        float(demand.executions @ reading.bytes) for demand, reading in situation.expected.readings
    ]
    able = {pair for pair in pairs_asked(demands) if of_one_type(pair, schema)}
    why = uncut(demands, reads, schema, able if ids else ())
    return f"{why}; with a blockColumn, trees could be cut by some" if able and not ids else why


def set_block_column(situation: Situation, orderings: Iterable[Ordering]) -> tuple[Action, ...]:
    """Return the action that prepares the table for the ids of these orderings' trees, if it is not
    prepared."""
    wanted, metadata = situation.settings.trees.block_column, situation.settings.metadata
    trees = {
        one.tree.name: one.tree
        for one in orderings
        if one.tree is not None and block_column_of(situation, one)
    }
    new = [tree for _, tree in sorted(trees.items()) if not holds(metadata.properties, tree)]
    if not trees or (not new and owned_column(metadata) is not None):
        return ()
    return (SetBlockColumn(wanted, tuple(new), tuple(_idle(situation, trees.values()))),)


def _why_not(situation: Situation) -> str:
    metadata = situation.settings.metadata
    why = hindrance(metadata, situation.settings.trees.block_column)
    if why:
        return why
    kept = [name for name in metadata.properties if name.startswith(TREE)]
    if len(kept) - len(_idle(situation, ())) >= MOST_TREES:
        return f"its files have ids of {len(kept)} trees, and {MOST_TREES} are the most"
    return ""


def too_large(tree: Tree) -> str:
    """Return why the ids of a tree cannot be written, "" if they can."""
    size = len(tree.text)
    if size <= MOST_TREE_BYTES:
        return ""
    return f"a tree takes {iec(size)} as a property, and {iec(MOST_TREE_BYTES)} are the most"


def _idle(situation: Situation, wanted: Iterable[Tree]) -> list[str]:
    """Return the keys of trees that no live file has ids of. wanted: trees that stay."""
    properties = situation.settings.metadata.properties
    held = _held(situation)
    kept = {key_of(tree) for tree in wanted}
    keys = sorted(name.removeprefix(TREE) for name in properties if name.startswith(TREE))
    return [key for key in keys if key not in kept and not _may_hold(held, key)]


def _held(situation: Situation) -> tuple[Int64, Int64]:
    """Return the least and the greatest id of each file that may have any. Files that say nothing
    of the column are older than it, or have it in no row: a tree that leaves too early costs
    reading, not rows."""
    owned = owned_column(situation.settings.metadata)
    column = None if owned is None else situation.table.columns.get(owned)
    if column is None:
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    known = column.bounded
    return column.lower[known], column.upper[known]


def _may_hold(held: tuple[Int64, Int64], key: str) -> bool:
    if not is_key(key):
        return False
    base, (low, high) = base_of(key), held
    return bool(((low < base + MOST_LEAVES) & (high >= base)).any())
