"""Offers a tree of cuts beside keys, where queries filter on many columns (Yang et al., "Qd-tree").

A sort serves one column and a curve a few; a tree takes each cut from the queries themselves. It is
judged by the same what-if, and has to be clearly better: a key says in one line how rows lie.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain

from reconciler.advisor.advice import QD_TREE
from reconciler.advisor.choose.blocks import too_large, wanted_column
from reconciler.advisor.judge.engine import why_by_spark
from reconciler.advisor.qdtree.building import FoundTree, found_for
from reconciler.advisor.qdtree.pairs import of_one_type, pairs_asked
from reconciler.advisor.simulate.pool import Pool
from reconciler.advisor.situation import Situation
from reconciler.plan.ordering import CutTree, by_tree
from reconciler.table.block_ids import owned_column
from reconciler.table.filetable import Int64

CLEARLY = 0.95
"""Share of what a key leaves to read, at most, that a tree has to leave to be chosen instead."""
LEAST_COLUMNS = 3
"""Filtered columns from which on a tree is tried beside keys: two are served by a curve."""


def tree_ordering(situation: Situation, pool: Pool, *, quick: bool = False) -> CutTree | None:
    """Return the order by the tree of `tree_found`; None where no tree spares reading."""
    found = tree_found(situation, pool, quick=quick)
    return None if found is None else by_tree(found.tree)


def tree_found(
    situation: Situation, pool: Pool, share: float = 1.0, *, quick: bool = False
) -> FoundTree | None:
    """Return the tree of a pool's rows that serves the queries; None where none spares reading.

    share: bytes that are written per live byte, by which leaves of a file's size have more rows.
    quick: without improving it, for a first comparison.
    """
    settings = situation.settings
    wanted = replace(settings.trees, block_column=wanted_column(situation))
    wanted = replace(wanted, climbs=False, episodes=0) if quick else wanted
    target = round(settings.target_bytes / share)
    owned = owned_column(settings.metadata)
    unbounded = situation.facts.unbounded
    unbounded |= set() if owned is None else {owned}  # a tree would be cut by another one's leaves
    demands = situation.expected.demands
    trained = situation.given.trained
    found = found_for(pool, demands, target, wanted, settings.seed, unbounded, trained)
    if found is not None and found.tree.pairs and too_large(found.tree):
        wanted = replace(wanted, block_column="")  # nothing would skip by what has no ids
        found = found_for(pool, demands, target, wanted, settings.seed, unbounded, trained)
    return found


def cut_columns(situation: Situation, filtered: Sequence[int]) -> list[int]:
    """Return the columns whose rows show what a tree can be cut by: those that queries filter on,
    and those of conditions between two columns, where rows get block ids."""
    if not wanted_column(situation):
        return sorted(filtered)
    pairs = pairs_asked(situation.expected.demands)
    schema = situation.table.schema
    sides = (pair.fields for pair in pairs if of_one_type(pair, schema))
    return sorted({*filtered, *chain(*sides)})


def tries_trees(situation: Situation, rows: Int64, columns: Sequence[int]) -> bool:
    """Return whether trees are tried for these files. columns: those that queries filter on.

    Spark ends files by their size, not at leaves.
    """
    wanted = situation.settings.mode == QD_TREE or len(columns) >= LEAST_COLUMNS
    return wanted and not why_by_spark(situation, rows)
