"""Evaluates a predicate for many literal settings at once; used by pruning and row filtering.

It is the one evaluator of predicates, for files, row groups, partitions and rows.

`pruning` and `row_filter` differ in what a leaf means. Both compile each leaf once into a test over
a slice of the queries and let `evaluate` combine the tests, chunk by chunk, so that temporaries
stay in the CPU's cache and memory beyond the result is bounded whatever the number of queries.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from reconciler.queries.predicate import (
    Always,
    And,
    Comparison,
    First,
    In,
    IsNaN,
    IsNull,
    Literal,
    Not,
    Or,
    Predicate,
    Ref,
    StartsWith,
    push_not,
    slots_of,
)
from reconciler.table.filetable import Array, Bool

SlotLiterals = Array | tuple[tuple[Literal, ...], ...]
"""One slot's literals, [queries]: an array, or for In a tuple of tuples (shape.Shape.literals)."""

Test = Callable[[slice], Bool]
"""The queries of a slice against everything: bool[queries of the slice or 1, n]."""

CHUNK_CELLS = 1 << 20

COMPLEMENT = {
    "<": ">=", "<=": ">", ">": "<=", ">=": "<", "=": "!=", "!=": "=",
    "in": "not in", "not in": "in", "starts": "not starts", "not starts": "starts",
    "null": "not null", "not null": "null", "nan": "not nan", "not nan": "nan",
}  # fmt: skip
"""Each operation and its negation."""

NEGATIVE = ("!=", "not in", "not starts")
"""Operations that are true for values other than the literal's, NaN among them."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """A condition without negation."""

    op: str
    """A key of COMPLEMENT."""
    ref: Ref
    """The column."""
    slot: int = -1
    """Slot of the literal; -1 if the condition has none."""


def leaf_of(node: Predicate) -> Leaf:
    """Return a leaf of a tree whose negations were pushed down; Not becomes the complement.

    This is what Iceberg does (NOT a < 5 becomes a >= 5), so NULL and NaN match neither form.
    """
    if isinstance(node, Not):
        inner = leaf_of(node.child)
        return Leaf(COMPLEMENT[inner.op], inner.ref, inner.slot)
    if isinstance(node, Comparison):
        return Leaf(node.op, node.ref, node.slot)
    if isinstance(node, In):
        return Leaf("in", node.ref, node.slot)
    if isinstance(node, StartsWith):
        return Leaf("starts", node.ref, node.slot)
    if isinstance(node, IsNull):
        return Leaf("null", node.ref)
    if isinstance(node, IsNaN):
        return Leaf("nan", node.ref)
    raise TypeError(f"not a leaf: {node!r}")


def count_queries(
    predicate: Predicate, literals: Sequence[SlotLiterals], queries: int | None
) -> int:
    """Return the number of literal settings of a call: given, or the length of any slot, or one."""
    if queries is not None:
        return queries
    slots = slots_of(predicate)
    return len(literals[slots[0]]) if slots else 1


def evaluate(
    predicate: Predicate, compile_leaf: Callable[[Leaf], Test], queries: int, count: int
) -> Bool:
    """Return bool[queries, count]: the tree over the tests that `compile_leaf` returns for its
    leaves."""
    test = _compile(push_not(predicate), compile_leaf)
    result = np.empty((queries, count), dtype=np.bool_)
    step = max(1, CHUNK_CELLS // max(count, 1))
    for start in range(0, queries, step):
        chunk = slice(start, min(start + step, queries))
        result[chunk] = test(chunk)
    return result


def always(value: bool) -> Test:
    cell = np.full((1, 1), value)
    return lambda _: cell


def per_file(mask: Bool) -> Test:
    row = mask[None, :]
    return lambda _: row


def _compile(node: Predicate, compile_leaf: Callable[[Leaf], Test]) -> Test:
    if isinstance(node, Always):
        return always(node.value)
    if isinstance(node, First):
        return always(True)
    if isinstance(node, And):
        return conjunction([_compile(child, compile_leaf) for child in node.children])
    if isinstance(node, Or):
        return _disjunction([_compile(child, compile_leaf) for child in node.children])
    return compile_leaf(leaf_of(node))


def conjunction(tests: Sequence[Test]) -> Test:
    if not tests:
        return always(True)
    first, *others = tests
    if not others:
        return first

    def test(chunk: slice) -> Bool:
        result = first(chunk)
        for part in others:
            if not result.any():
                break
            result = result & part(chunk)
        return result

    return test


def _disjunction(tests: Sequence[Test]) -> Test:
    if not tests:
        return always(False)
    first, *others = tests

    def test(chunk: slice) -> Bool:
        result = first(chunk)
        for part in others:
            if result.all():
                break
            result = result | part(chunk)
        return result

    return test
