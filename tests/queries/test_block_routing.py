"""The description of a leaf admits every row of the leaf, for every type that can be cut."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from reconciler.queries import block_routing
from reconciler.queries.block_routing import described
from reconciler.queries.predicate import Comparison, IsNaN, IsNull, Not, Predicate, Ref
from reconciler.queries.pruning import may_match
from reconciler.rewrite.columns import Column
from reconciler.table.cut_tree import Cut, made
from reconciler.table.values import Kind, kind_of
from tests.rewrite import model
from tests.rewrite.model import PRIMITIVES
from tests.rewrite.test_leaves import _count, _domain, _leaf, _random_tree

RECORDS = 1 << 40


@pytest.mark.parametrize("seed", range(60))
def test_no_row_is_beyond_the_description_of_its_leaf(seed: int) -> None:
    chance = random.Random(seed)
    kinds = [chance.choice(PRIMITIVES) for _ in range(3)]
    columns = [Column(i, f"c{i}", kind) for i, kind in enumerate(kinds, 1)]
    rows = [[model.random_value(chance, column) for column in columns] for _ in range(60)]
    node = None
    while node is None:
        node = _random_tree(chance, kinds, rows, 5)
    tree = made(node, [0] * _count(node))
    of = {one: kind_of(kinds[one - 1]) for one in tree.of_column}
    bounds = {one: described(tree, one, kind) for one, kind in of.items() if kind}
    records = np.full(tree.leaves, RECORDS)
    excluded = 0
    for row in rows:
        leaf = _leaf(node, row, kinds)[0]
        for field in bounds:
            for predicate, literals in _met(field, kinds[field - 1], row[field - 1]):
                found = may_match(predicate, literals, bounds, records, queries=1)[0]
                assert found[leaf], (kinds[field - 1], row[field - 1], predicate)
                excluded += int((~found).sum())
    assert excluded or tree.leaves < 3


def _met(field: int, kind: str, value: object) -> list[tuple[Predicate, tuple[np.ndarray, ...]]]:
    """Return conditions that a value meets, as engines see it: NaN is above all numbers."""
    ref = Ref(field)
    if value is None:
        return [(IsNull(ref), ())]
    found: list[tuple[Predicate, tuple[np.ndarray, ...]]] = [(Not(IsNull(ref)), ())]
    if isinstance(value, float) and math.isnan(value):
        return [*found, (IsNaN(ref), ()), (Comparison(ref, ">", 0), (np.array([1e300]),))]
    own = _domain(kind, value)
    literal = np.array([own], dtype=object if isinstance(own, bytes) else None)
    return [*found, *((Comparison(ref, op, 0), (literal,)) for op in ("=", "<=", ">=", "!="))]


@pytest.mark.parametrize("value", [-(1 << 63), (1 << 63) - 1])
@pytest.mark.parametrize("inclusive", [False, True])
def test_thresholds_at_the_end_of_a_type_stay_in_it(value: int, inclusive: bool) -> None:
    for upper in (False, True):
        end = block_routing._end(Cut(1, value, inclusive), Kind.INT, upper=upper)
        assert isinstance(end, int) and -(1 << 63) <= end < 1 << 63
