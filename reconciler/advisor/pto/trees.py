"""Trees of cuts as candidates of a recommendation, where queries filter on many columns.

As in a plan (`choose.trees`): the same conditions for trying one, the same builder, the same margin
by which a tree has to be better than a key. Leaves are as large as the row groups or the files that
serve the best key best; the policy then names their rows, so that a plan grows them as large.
"""

from __future__ import annotations

from collections.abc import Iterator

from reconciler.advisor.advice import TreeSettings
from reconciler.advisor.choose.trees import LEAST_COLUMNS
from reconciler.advisor.pto.sizes import LEAST_GROUP_ROWS, MOST_FILE, SMALLEST_FILE
from reconciler.advisor.pto.space import (
    SURE_ROWS,
    CandidateLayout,
    GrownTree,
    Label,
    Space,
)
from reconciler.advisor.qdtree.building import LEAF_SHARE, found_for, least_rows
from reconciler.advisor.simulate.layout import Sizes
from reconciler.plan.ordering import by_tree
from reconciler.queries.demanded import predicate_columns

TREE_OF_CUTS = "tree of cuts"
"""What it is called among layouts that are no candidates."""

UNSEEN = "queries that it was not grown for read too little less of it"
"""Why one that is cheaper than every key is not chosen."""

LEAVES = (1.0, 2.0, 4.0)
"""Bytes of a leaf in row groups of the best key."""
IN_LEAF, OF_FILE = (0.25, 0.5, 1.0), (0.5, 1.0, 2.0)
"""Row groups in leaves, and files in those of the best key, that are tried."""


def tries_trees(space: Space) -> bool:
    """Return whether queries filter on enough columns for a tree."""
    schema = space.pool.files.schema
    asked = [one.predicate for one in space.demands if one.prunable]
    filtered = {column for one in asked for column in predicate_columns(one, schema)}
    return len(filtered & set(space.pool.columns)) >= LEAST_COLUMNS


def grown(space: Space, key: Label, seed: int) -> tuple[Label, ...]:
    """Return the labels of the best tree, in sizes around those of the best key; the space then
    knows it. The best of several greedy trees is improved."""
    if space.by_spark or not tries_trees(space):
        return ()
    greedy = [_tree(space, key, rows, seed, climbs=False) for rows in _leaf_rows(space, key)]
    if not any(greedy):
        return ()
    best = min(filter(len, greedy), key=_least_cost)
    rows = space.trees[best[0].candidate.ordering].least_rows
    better = _tree(space, key, rows, seed, climbs=True)
    return min(filter(len, (best, better)), key=_least_cost)


def _least_cost(labels: tuple[Label, ...]) -> float:
    return min(label.total for label in labels)


def _leaf_rows(space: Space, key: Label) -> Iterator[int]:
    """Yield the least rows of leaves: of some row groups, and of a file."""
    sizes = key.candidate.sizes
    found = {
        round(least_rows(space.pool, 1, round(size / space.bytes_per_row)))
        for size in (*(n * sizes.row_group_bytes for n in LEAVES), LEAF_SHARE * sizes.target_bytes)
        if size < space.live_bytes / 2.0
    }
    return iter(sorted(found))


def _tree(space: Space, key: Label, rows: int, seed: int, *, climbs: bool) -> tuple[Label, ...]:
    number = tree_number(space, key.candidate.sizes.target_bytes, rows, seed, climbs=climbs)
    if number is None:
        return ()
    whole, sizes = _whole(space), _sizes(space, key, rows)
    labels = space.label([CandidateLayout(whole, number, size) for size in sizes])
    return tuple(label for label in labels if label.sampled_rows >= SURE_ROWS)


def tree_number(
    space: Space, target_bytes: int, rows: int, seed: int, *, climbs: bool
) -> int | None:
    """Return the number of the tree that serves the queries best, which the space then knows; None
    where none spares reading. rows: the least of a leaf; climbs: whether it is improved."""
    wanted = TreeSettings(climbs=climbs, least_rows=rows, block_column="")
    found = found_for(space.pool, space.demands, target_bytes, wanted, seed, space.unbounded)
    return None if found is None else space.add_tree(GrownTree(by_tree(found.tree), rows))


def _whole(space: Space) -> int:
    """Return the partitioning of a tree: none, or the present one. Others would cut its leaves."""
    known = [n for n, item in enumerate(space.partitionings) if item.spec.unpartitioned]
    return known[0] if known else 0


def _sizes(space: Space, key: Label, rows: int) -> list[Sizes]:
    leaf, file = rows * space.bytes_per_row, key.candidate.sizes.target_bytes
    least = LEAST_GROUP_ROWS * space.bytes_per_row
    files = {int(min(max(file * share, SMALLEST_FILE), MOST_FILE)) for share in OF_FILE}
    groups = {int(max(leaf * share, least)) for share in IN_LEAF}
    return [Sizes(f, g) for f in sorted(files) for g in sorted(groups) if g <= f]
