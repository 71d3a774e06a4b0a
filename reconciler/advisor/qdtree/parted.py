"""Parts the leaves of a tree further, into row groups: the cuts above them stay as they are.

A leaf is about a file. Its row groups are parts of it in the order of one column, or leaves of
further cuts. Of both, a leaf takes what its queries read less of. The engine makes files of the
leaves below one node, so that files stay as they are, and a file's bounds rule out as much.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from reconciler.advisor.qdtree.greedy import Growth, Node, grow
from reconciler.advisor.qdtree.inner import Sorting, sorting
from reconciler.advisor.qdtree.problem import Problem

CREDIT = 0.1
"""Credit of boxes (`Growth.credit`): one greedy tree is grown in each leaf, not one of each
credit."""
CLEARLY = 0.98
"""Share of what queries read of a leaf in the order of its column that they may read, at most, of
the leaves that it is cut into."""


@dataclass(frozen=True, slots=True)
class Grown:
    """A tree beside the sample that it was grown on."""

    problem: Problem
    """The sampled rows and the queries."""
    root: Node
    """The tree."""
    inner: tuple[Sorting, ...]
    """Per leaf, from left to right, how its rows are sorted."""
    least: float
    """Rows of the table that a leaf has at least."""

    @property
    def cost(self) -> float:
        """Return what queries read of the row groups: rows x cost."""
        return sum(one.cost for one in self.inner)


def grown(problem: Problem, root: Node, least: float) -> Grown:
    return Grown(problem, root, tuple(sorting(problem, leaf) for leaf in root.leaves()), least)


def parted(tree: Grown, least: float) -> Grown | None:
    """Return the tree with leaves of fewer rows, `least`, where queries read clearly less of these;
    None if they do not. A new leaf is sorted by the column of the one that it is a part of."""
    problem, inner, new = tree.problem, list[Sorting](), dict[int, Node]()
    growth = Growth(least, CREDIT if problem.disjunctive else 0.0)
    for leaf, own in zip(tree.root.leaves(), tree.inner, strict=True):
        cut = grow(problem, leaf, growth)
        if not cut.children or cut.cost > CLEARLY * own.cost:
            inner.append(own)
            continue
        new[id(leaf)] = cut
        inner += [Sorting(own.column, part.cost) for part in cut.leaves()]
    made = Grown(problem, _with(tree.root, new), tuple(inner), least)
    return made if made.cost <= CLEARLY * tree.cost else None


def _with(root: Node, new: Mapping[int, Node]) -> Node:
    """Return a copy of the tree with some leaves exchanged for trees. new: by the leaf's `id`."""
    done = dict(new)
    for node in reversed(root.inner()):
        children = tuple(done.pop(id(child), child) for child in node.children)
        cost = sum(child.cost for child in children)
        done[id(node)] = Node(node.rows, node.live, node.weight, node.own, cost, node.cut, children)
    return done.pop(id(root), root)
