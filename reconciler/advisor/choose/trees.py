"""Offers a tree of cuts beside keys, where queries filter on many columns (Yang et al., "Qd-tree").

A sort serves one column and a curve a few; a tree takes each cut from the queries themselves. It is
judged by the same what-if, and has to be clearly better: a key says in one line how rows lie.
"""

from __future__ import annotations

from reconciler.advisor.qdtree.building import STEPS, tree_for
from reconciler.advisor.simulate.pool import Pool
from reconciler.advisor.situation import Situation
from reconciler.plan.ordering import CutTree, by_tree

CLEARLY = 0.95
"""Share of what a key leaves to read, at most, that a tree has to leave to be chosen instead."""
LEAST_COLUMNS = 3
"""Filtered columns from which on a tree is tried beside keys: two are served by a curve."""


def tree_ordering(
    situation: Situation, pool: Pool, share: float = 1.0, *, quick: bool = False
) -> CutTree | None:
    """Return the tree of a pool's rows that serves the queries; None where none spares reading.

    share: bytes that are written per live byte, by which leaves of a file's size have more rows.
    quick: without improving it, for a first comparison.
    """
    settings = situation.settings
    built = tree_for(
        pool, situation.foreseen.demands, round(settings.target_bytes / share),
        steps=0 if quick else STEPS, seed=settings.seed,
    )  # fmt: skip
    return None if built is None else by_tree(built.tree)
