"""Returns the tree of cuts that serves a workload best on a sample of rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from reconciler.advisor.advice import TreeSettings
from reconciler.advisor.qdtree.climbing import best_greedy, climbed
from reconciler.advisor.qdtree.codes import planted
from reconciler.advisor.qdtree.conjuncts import boxes_of
from reconciler.advisor.qdtree.greedy import EXACT, Growth, Node, grow, root_of
from reconciler.advisor.qdtree.inner import sorted_by
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
    return FoundTree(tree_of_nodes(problem, root, pairs), training) if root.children else None


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


def tree_of_nodes(problem: Problem, root: Node, pairs: Sequence[Pair] = ()) -> Tree:
    """Return the tree without its sample. pairs: conditions that are cut like columns, -1 the
    first."""
    inner = [sorted_by(problem, leaf) for leaf in root.leaves()]
    done: dict[int, object] = {}
    for node in reversed(root.inner()):
        low, high = (done.pop(id(child), None) for child in node.children)
        done[id(node)] = problem.cut(node.cut), low, high
    return made(done[id(root)], inner, pairs)
