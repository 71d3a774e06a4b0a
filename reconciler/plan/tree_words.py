"""A tree of cuts in words, for `layoutctl explain --tree`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from reconciler.table.cut_tree import LEAF, Cut, Tree
from reconciler.table.schema import Schema
from reconciler.table.values import show


@dataclass(frozen=True, slots=True)
class Line:
    """A node of a tree."""

    depth: int
    """How many cuts are above it."""
    text: str
    """Its cut, or by what the rows of the leaf are sorted."""
    leaves: int
    """Leaves below it; 1 for a leaf."""


def lines(tree: Tree, schema: Schema, depth: int, *, show_literals: bool) -> Iterator[Line]:
    """Yield the nodes down to a depth, each before its left and then its right subtree.

    show_literals: values are those of queries or of rows, which are shown only if a person asks for
    them.
    """
    leaf = 0
    for at, node, leaves in tree.walk():
        if at <= depth:
            if node == LEAF:
                field = tree.inner[leaf]
                order = f"sorted by {schema.name_of(field)}" if field else "in order of arrival"
                yield Line(at, f"leaf, {order}", 1)
            else:
                yield Line(at, cut_text(tree, tree.cuts[node], schema, show_literals), leaves)
        leaf += node == LEAF


def cut_text(tree: Tree, cut: Cut, schema: Schema, show_literals: bool) -> str:
    """Return `distance < ?`, with the value if literals are shown."""
    pair = tree.pair_of(cut.field_id)
    if pair is not None:
        left, right = (schema.name_of(one) for one in pair.fields)
        return f"{left} {pair.sign} {right} {'is NULL' if cut.value is None else 'is not true'}"
    name = schema.name_of(cut.field_id)
    kind = cut.place[0]
    if kind:
        return f"{name} IS NULL" if kind < 0 else f"{name} IS NOT NAN"
    field = schema.by_id.get(cut.field_id)
    value = show(field.type, cut.value) if show_literals and field is not None else "?"
    return f"{name} {'<=' if cut.inclusive else '<'} {value}"
