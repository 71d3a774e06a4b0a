"""A tree of tests on the columns of one table, simplified and converted to a predicate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from reconciler.queries.predicate import (
    TRUE,
    Always,
    And,
    Comparison,
    In,
    IsNaN,
    IsNull,
    Literal,
    Not,
    Or,
    Predicate,
    Ref,
    StartsWith,
)
from reconciler.workload_log.constants import UNBOUND


@dataclass(frozen=True, slots=True)
class Condition:
    """One condition with its literal. Slots are numbered once the tree is final."""

    field_id: int
    """Id of the column."""
    test: str
    """A comparison operator, "in", "starts", "null" or "nan"."""
    literal: Any = None
    """The literal in the column's domain, or UNBOUND."""
    offset: int | None = None
    """Literal minus event time, in the domain's unit, if the literal moves with event time; None if
    it is fixed."""
    transform: str = "identity"
    """What of the column is compared, as `predicate.Ref.transform` has it."""


@dataclass(frozen=True, slots=True)
class Branch:
    """Several trees, joined by AND or OR."""

    conjunction: bool
    """Whether they are joined by AND; else by OR."""
    children: tuple[Any, ...]
    """The trees: Condition, Negated, Branch or Always."""


@dataclass(frozen=True, slots=True)
class Negated:
    """A condition that must not be true, nor unknown."""

    leaf: Condition
    """The condition."""


Tree = Condition | Negated | Branch | Always


@dataclass(frozen=True, slots=True)
class ScanPredicate:
    """The conditions of one scan as a predicate, with their literals."""

    predicate: Predicate
    """The predicate of the conditions whose values are known."""
    literals: tuple[Literal, ...]
    """One literal per slot of the predicate."""
    moving: tuple[int | None, ...]
    """Per slot the offset as `Condition.offset` has it."""
    unbound: Predicate | None
    """The whole predicate, where the log lacks some values; None where it has all."""


def scan_predicate(tree: Tree) -> ScanPredicate:
    """Return a tree with its slots numbered, without the conditions whose value is unknown."""
    predicate, literals, moving = _number(tree)
    values: tuple[Any, ...] = literals
    if not any(value is UNBOUND for value in values):
        return ScanPredicate(predicate, literals, moving, None)
    return ScanPredicate(*_number(_known(tree)), predicate)


class NotPushed(Exception):
    """The condition is valid SQL that the engine evaluates only after reading the row."""


def branch(conjunction: bool, children: list[Tree]) -> Tree:
    """Return AND or OR of trees: flat, without duplicates and constants, in the order of
    columns."""
    if len(children) == 1:
        return children[0]
    flat: dict[Tree, None] = {}
    for child in children:
        if isinstance(child, Always):
            if child.value != conjunction:
                return child
            continue
        inner = isinstance(child, Branch) and child.conjunction == conjunction
        for item in child.children if inner and isinstance(child, Branch) else (child,):
            flat[item] = None
    if conjunction:
        flat = dict.fromkeys(_without_implied(list(flat)))
    if not flat:
        return Always(conjunction)
    ordered = sorted(flat, key=_rank)
    return ordered[0] if len(ordered) == 1 else Branch(conjunction, tuple(ordered))


def _without_implied(conjuncts: list[Tree]) -> list[Tree]:
    """Drop IS NOT NULL beside a condition on the same column that NULL never meets."""
    judged = {
        leaf.field_id
        for leaf in (c.leaf if isinstance(c, Negated) else c for c in conjuncts)
        if isinstance(leaf, Condition)
        and leaf.test not in ("null", "nan")
        and leaf.literal is not UNBOUND
        and not Ref(leaf.field_id, leaf.transform).unbounded
    }
    return [
        c
        for c in conjuncts
        if not (isinstance(c, Negated) and c.leaf.test == "null" and c.leaf.field_id in judged)
    ]


_TEST_ORDER = (">=", ">", "=", "in", "starts", "<=", "<", "!=", "null", "nan")


def _rank(tree: Tree) -> tuple[Any, ...]:
    if isinstance(tree, Condition):
        return (0, tree.field_id, tree.transform, _TEST_ORDER.index(tree.test), repr(tree.literal))
    if isinstance(tree, Negated):
        return (1, *_rank(tree.leaf)[1:])
    if isinstance(tree, Branch):
        return (2, len(tree.children), tuple(_rank(child) for child in tree.children))
    return (3, tree.value)


def _known(tree: Tree) -> Tree:
    """Return the tree without the conditions whose value the log does not hold."""
    leaf = tree.leaf if isinstance(tree, Negated) else tree
    if isinstance(leaf, Condition):
        return TRUE if leaf.literal is UNBOUND else tree
    if isinstance(tree, Branch):
        return branch(tree.conjunction, [_known(child) for child in tree.children])
    return tree


def _number(tree: Tree) -> tuple[Predicate, tuple[Literal, ...], tuple[int | None, ...]]:
    literals: list[Literal] = []
    moving: list[int | None] = []

    def visit(node: Tree) -> Predicate:
        if isinstance(node, Branch):
            children = tuple(visit(child) for child in node.children)
            return And(children) if node.conjunction else Or(children)
        if isinstance(node, Negated):
            return Not(visit(node.leaf))
        if isinstance(node, Always):
            return node
        ref = Ref(node.field_id, node.transform)
        if node.test in ("null", "nan"):
            return IsNull(ref) if node.test == "null" else IsNaN(ref)
        literals.append(node.literal)
        moving.append(node.offset)
        slot = len(literals) - 1
        if node.test == "in":
            return In(ref, slot)
        return StartsWith(ref, slot) if node.test == "starts" else Comparison(ref, node.test, slot)

    predicate = visit(tree)
    return predicate, tuple(literals), tuple(moving)
