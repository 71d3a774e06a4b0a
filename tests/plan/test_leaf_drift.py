"""Between which leaves a file lies, by its bounds."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from reconciler.plan.leaf_drift import ends_of, leaf_drift, leaves_between, leaves_met, meets
from reconciler.plan.ordering import by_tree
from reconciler.table.cut_tree import Cut, Tree, made
from reconciler.table.pairs import EQUALS, LESS, Pair
from tests.examples import seeds
from tests.table.tables import File, table_of


def _tree(random: np.random.Generator, depth: int) -> object:
    if not depth or random.random() < 0.15:
        return None
    cut = Cut(int(random.integers(1, 3)), int(random.integers(0, 40)), bool(random.random() < 0.5))
    return cut, _tree(random, depth - 1), _tree(random, depth - 1)


@pytest.mark.parametrize("seed", seeds(40))
def test_a_file_lies_between_the_first_and_the_last_leaf_that_its_bounds_meet(seed: int) -> None:
    random = np.random.default_rng(seed)
    node = None
    while node is None:
        node = _tree(random, 5)
    leaves = 1 + str(node).count("Cut(")
    tree = made(node, [0] * leaves)
    files = []
    for _ in range(30):
        low = random.integers(0, 40, 2)
        span = random.integers(0, 12, 2)
        rows = tuple(tuple((low + random.integers(0, span + 1)).tolist()) for _ in range(3))
        files.append(File((*rows, (None, None)) if random.random() < 0.2 else rows))
    table = table_of(files, ("long", "long"))
    every = np.arange(len(files))
    ends = {field: ends_of(table.columns[field], every) for field in tree.of_column}
    first, last = leaves_between(tree, ends, len(files))
    met = meets(table, tree, every)
    assert first.tolist() == met.argmax(axis=1).tolist()
    assert last.tolist() == (leaves - 1 - met[:, ::-1].argmax(axis=1)).tolist()


def _chain(field: int, low: int, high: int) -> object:
    if high - low == 1:
        return None
    middle = (low + high) // 2
    return Cut(field, middle), _chain(field, low, middle), _chain(field, middle, high)


@pytest.mark.parametrize("pair", [False, True])
@pytest.mark.parametrize("nested", [False, True])
def test_files_of_one_side_of_a_condition_between_columns_meet_their_own_leaf(
    pair: bool, nested: bool
) -> None:
    """Files have no bounds of such a condition; those of a column of truth values say as much."""
    by, pairs = (Cut(-1, 1), (Pair(4, LESS, 5),)) if pair else (Cut(3, 1), ())
    deeper = Cut(-2, 1) if pair else Cut(6, 1)
    pairs += (Pair(4, EQUALS, 5),) if pair and nested else ()
    sides = [_chain(1, 0, 32), _chain(2, 0, 32)]
    if nested:
        sides = [(deeper, side, side) for side in sides]
    tree = made((by, *sides), [0] * (128 if nested else 64), pairs)
    files = []
    for first, second in itertools.product((0, 1), repeat=2):
        truth = (first, 0, 0, second)  # columns 3 to 6
        for n in range(32):
            ends = ((0, n), (31, n)) if first else ((n, 0), (n, 31))
            files.append(File(tuple((*end, *truth) for end in ends)))
    table = table_of(files, ("long",) * 6)
    every = np.arange(len(files))
    assert leaves_met(table, tree, every).tolist() == [1] * len(files)
    assert leaf_drift(table, tree, every, 2) == []
    wide = table_of([*files, File(((0, 0, 0, 0, 0, 0), (31, 31, 1, 0, 0, 1)))], ("long",) * 6)
    met = leaves_met(wide, tree, np.arange(len(wide)))
    assert met[-1] == (32 if pair else tree.leaves)
    assert [one.tolist() for one, *_ in leaf_drift(wide, tree, np.arange(len(wide)), 2)] == [
        [len(files)]
    ]


def _one_cut() -> Tree:
    return made((Cut(1, 10), None, (Cut(1, 20), None, None)), [0, 0, 0])


def test_a_file_without_bounds_may_be_in_every_leaf_and_one_of_nulls_in_the_first() -> None:
    tree = _one_cut()
    table = table_of([File(((None,),)), File(((12,), (15,)))], ("long",))
    known = by_tree(tree).extents(table)
    assert (known.low.tolist(), known.high.tolist()) == ([0, 1], [0, 1])
    nothing = by_tree(tree).extents(table_of([File(((12,),))] * 2, ("long",), bounds=False))
    assert (nothing.low.tolist(), nothing.high.tolist()) == ([0, 0], [1, 1])
    both = leaves_between(tree, {}, 2)
    assert [found.tolist() for found in both] == [[0, 0], [2, 2]]
