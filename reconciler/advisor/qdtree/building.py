"""Returns the tree of cuts that serves a workload best on a sample of rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from reconciler.advisor.advice import TreeSettings
from reconciler.advisor.qdtree import parted
from reconciler.advisor.qdtree.climbing import best_greedy, climbed
from reconciler.advisor.qdtree.codes import planted
from reconciler.advisor.qdtree.conjuncts import boxes_of
from reconciler.advisor.qdtree.greedy import EXACT, Growth, Node, grow, root_of
from reconciler.advisor.qdtree.pairs import cuttable_pairs, with_pairs
from reconciler.advisor.qdtree.problem import Problem, problem_of
from reconciler.advisor.qdtree.woodblock import Training
from reconciler.advisor.simulate.pool import Pool
from reconciler.queries.shape import Shape
from reconciler.queries.table_view import projected_bytes
from reconciler.table.cut_tree import Tree, made
from reconciler.table.filetable import FileTable
from reconciler.table.pairs import Pair
from reconciler.table.uuid_order import UUID

LEAF_SHARE = 0.78
"""Least bytes of a leaf in those of a file: leaves are then about one file on average."""
LEAF_ROWS = 40
"""Sampled rows that a leaf has at least: with fewer, the bounds of the sample promise too much
(with 14 rows a leaf 13 % too much, with 44 rows 3 %)."""


TrainedTrees = Mapping[str, Sequence[int]]
"""Trees that Woodblock has found: their codes by `Training.name`."""


@dataclass(frozen=True, slots=True)
class FoundTree:
    """A tree that was found."""

    tree: Tree
    """The tree."""
    training: Training | None
    """What Woodblock would have to search for a better one; None where it has, or is not to."""
    grown: parted.Grown
    """The same tree beside the sample that it was grown on."""
    pairs: tuple[Pair, ...]
    """The conditions between two columns that are cut like columns."""


def found_for(
    pool: Pool,
    demands: Sequence[Shape],
    target_bytes: int,
    wanted: TreeSettings,
    seed: int = 0,
    unbounded: frozenset[int] = frozenset(),
    trained: TrainedTrees = MappingProxyType({}),
) -> FoundTree | None:
    """Return the tree of a pool's rows; None where no cut spares any reading.

    target_bytes: of a file. unbounded: columns that are not cut, by field id; UUIDs are none
    either, because readers do not agree on their order. trained: what Woodblock has found. The same
    arguments give the same tree. Conditions between two columns are cut by only where rows get
    block ids (`qdtree.pairs`).
    """
    problem = problem_for(pool, demands, unbounded)
    if problem is None:
        return None
    least = least_rows(pool, target_bytes, wanted.least_rows)
    root, pairs = _searched(problem, least, wanted, seed), tuple[Pair, ...]()
    if wanted.block_column:
        pairs = cuttable_pairs(pool.columns, pool.files.schema, demands)
        paired = problem_for(*with_pairs(pool, demands, pairs), unbounded) if pairs else None
        other = root if paired is None else _searched(paired, least, wanted, seed)
        if paired is None or other.cost >= root.cost * (1.0 - EXACT):
            pairs = ()
        else:
            problem, root = paired, other
    training = None
    if wanted.episodes:
        training = Training(problem, least, root, wanted.episodes, seed)
        if training.name in trained:
            root, training = better(training, trained[training.name]), None
    if not root.children:
        return None
    grown = parted.grown(problem, root, least)
    return FoundTree(_written(grown, pairs), training, grown, pairs)


def finer(found: FoundTree, least: float) -> FoundTree | None:
    """Return the tree with leaves of fewer rows, `least`, below those that it has; None where
    queries read nothing less of them."""
    weight = found.grown.problem.weight
    sampled = LEAF_ROWS * float(weight.sum()) / max(len(weight), 1)
    made = parted.parted(found.grown, max(least, sampled))
    if made is None:
        return None
    return replace(found, tree=_written(made, found.pairs), grown=made)


def _written(grown: parted.Grown, pairs: Sequence[Pair]) -> Tree:
    return _without_sample(grown.problem, grown.root, [one.column for one in grown.inner], pairs)


def _searched(problem: Problem, least: float, wanted: TreeSettings, seed: int) -> Node:
    root = root_of(problem)
    if wanted.climbs:
        return climbed(problem, best_greedy(problem, root, least), least, wanted.steps, seed)
    return grow(problem, root, Growth(least))


def problem_for(
    pool: Pool, demands: Sequence[Shape], unbounded: frozenset[int] = frozenset()
) -> Problem | None:
    """Return a pool's rows and the queries in numbers, where a query costs the bytes that it reads
    of each row; None where no query can be cut. unbounded: as in `found_for`."""
    schema = pool.files.schema
    unbounded |= {one for one in pool.columns if one > 0 and schema.by_id[one].type == UUID}
    weights = [demand.executions * _row_bytes(pool.files, demand) for demand in demands]
    boxes = boxes_of(pool, demands, weights, unbounded)
    if not boxes.columns or not boxes.weight.sum():
        return None
    return problem_of(boxes, pool.weight)


def better(training: Training, codes: Sequence[int]) -> Node:
    """Return the tree with these codes if it is one, and better than the one to start from."""
    start = training.start
    found = planted(training.problem, start, codes, training.least)
    return start if found is None or found.cost >= start.cost else found


def least_rows(pool: Pool, target_bytes: int, given: int) -> float:
    """Return the rows of the table that a leaf has at least. given: by the policy, 0 if not."""
    live, records = float(pool.files.live_bytes.sum()), float(pool.weight.sum())
    per_row = live / max(records, 1.0)
    sampled = LEAF_ROWS * records / max(len(pool), 1)
    return max(given or LEAF_SHARE * target_bytes / max(per_row, 1e-9), sampled)


def _row_bytes(files: FileTable, demand: Shape) -> float:
    rows = max(float(files.records.sum()), 1.0)
    return float(projected_bytes(files, demand.projection).sum()) / rows


def tree_of_nodes(problem: Problem, root: Node) -> Tree:
    """Return the tree without its sample."""
    return _written(parted.grown(problem, root, 0.0), ())


def _without_sample(
    problem: Problem, root: Node, inner: Sequence[int], pairs: Sequence[Pair]
) -> Tree:
    """inner: per leaf, the column that sorts it. pairs: conditions that are cut like columns, -1
    the first."""
    done: dict[int, object] = {}
    for node in reversed(root.inner()):
        low, high = (done.pop(id(child), None) for child in node.children)
        done[id(node)] = problem.cut(node.cut), low, high
    return made(done[id(root)], inner, pairs)
