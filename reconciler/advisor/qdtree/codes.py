"""Grown trees as the codes of their cuts, and back: what a cache keeps of a tree.

Codes hold no value of the table, and mean something beside their problem only.
"""

from __future__ import annotations

from collections.abc import Sequence

from reconciler.advisor.qdtree.greedy import Node, legal, settle, split
from reconciler.advisor.qdtree.problem import Problem

LEAF = -1


def codes_of(root: Node) -> tuple[int, ...]:
    """Return the code of each node's cut, a node before its left and then its right subtree."""
    found, left = [], [root]
    while left:
        node = left.pop()
        found.append(node.cut if node.children else LEAF)
        left += reversed(node.children)
    return tuple(found)


def planted(problem: Problem, root: Node, codes: Sequence[int], least: float) -> Node | None:
    """Return the tree of a node's rows that has these cuts; None if it cannot have them."""
    top = Node(root.rows, root.live, root.weight, root.own, root.own)
    left = [top]
    for code in codes:
        if not left:
            return None
        node = left.pop()
        if code == LEAF:
            continue
        allowed = legal(problem, node, least)
        if allowed is None or not 0 <= code < len(allowed) or not allowed[code]:
            return None
        node.cut, node.children = code, split(problem, node, code)
        left += reversed(node.children)
    if left:
        return None
    settle(top)
    return top
