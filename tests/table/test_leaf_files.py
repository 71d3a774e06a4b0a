"""Small leaves share a file with those below the same node."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from reconciler.table.cut_tree import Cut, Tree, made
from reconciler.table.leaf_files import ALONE, MOST, file_units, unit_table
from tests.examples import seeds

FILE = 100.0


def _random(random: np.random.Generator, depth: int) -> Any:
    if not depth or random.random() < 0.1:
        return None
    return Cut(1, int(random.integers(0, 9))), *(_random(random, depth - 1) for _ in range(2))


def _nodes(node: Any, first: int, found: dict[tuple[int, int], int], depth: int = 0) -> int:
    """Collect the range of leaves of each node with its depth; return the leaf after its last."""
    end = first + 1
    if node is not None:
        end = _nodes(node[2], _nodes(node[1], first, found, depth + 1), found, depth + 1)
    found[first, end] = depth
    return end


@pytest.mark.parametrize("seed", seeds(60))
def test_every_leaf_is_in_one_unit_and_shared_files_are_neither_small_nor_large(seed: int) -> None:
    random = np.random.default_rng(seed)
    node = None
    while node is None:
        node = _random(random, 6)
    nodes: dict[tuple[int, int], int] = {}
    tree = made(node, [0] * _nodes(node, 0, nodes))
    rows = random.integers(1, int(random.choice([20, 60, 200])), tree.leaves)
    leaf = np.flatnonzero(random.random(tree.leaves) < random.choice([0.4, 1.0]))
    units = file_units(tree, leaf, rows[leaf], FILE)
    assert [at for unit in units for at in range(unit.first, unit.end)] == list(range(len(leaf)))
    part = len(leaf) // 2
    apart = [file_units(tree, one, rows[one], FILE) for one in (leaf[part:], leaf[:part])]
    turned, behind = np.append(leaf[part:], leaf[:part]), len(leaf) - part
    assert unit_table(tree, turned, rows[turned], FILE, np.array([0, behind])).tolist() == [
        *map(list, apart[0]),
        *([first + behind, end + behind, files] for first, end, files in apart[1]),
    ]
    held = [int(rows[leaf[unit.first : unit.end]].sum()) for unit in units]
    for unit, own in zip(units, held, strict=True):
        if unit.shared:
            assert (rows[leaf[unit.first : unit.end]] < ALONE * FILE).all() and unit.files == 1
            assert own < MOST * FILE
    for (a, one), (b, two) in itertools.pairwise(zip(units, held, strict=True)):
        if max(rows[leaf[a.first]], rows[leaf[b.first]]) < ALONE * FILE:
            assert min(one, two) >= ALONE * FILE or one + two >= MOST * FILE


def _full(depth: int) -> Tree:
    def node(depth: int) -> Any:
        return None if not depth else (Cut(1, depth), node(depth - 1), node(depth - 1))

    return made(node(depth), [0] * (1 << depth))


def test_files_of_equal_leaves_are_subtrees_whichever_leaves_have_no_rows() -> None:
    tree = _full(4)
    assert tree.partings.tolist() == [3, 2, 3, 1, 3, 2, 3, 0, 3, 2, 3, 1, 3, 2, 3]
    every = np.arange(16)
    units = file_units(tree, every, np.full(16, 30), FILE)
    assert [(unit.first, unit.end) for unit in units] == [(0, 4), (4, 8), (8, 12), (12, 16)]
    some = np.array([0, 1, 2, 4, 5, 6, 7, 9, 10, 11])
    units = file_units(tree, some, np.full(10, 40), FILE)
    assert [some[unit.first : unit.end].tolist() for unit in units] == [
        [0, 1, 2], [4, 5], [6, 7], [9, 10, 11],
    ]  # fmt: skip


def test_no_leaf_with_rows_is_no_file() -> None:
    nothing = np.zeros(0, dtype=np.int64)
    assert file_units(_full(2), nothing, nothing, FILE) == []
