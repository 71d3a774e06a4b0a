"""Moves conditions on the columns of a derived table or CTE into its own SELECT."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlglot import exp

from reconciler.workload_log.complexity import MAX_EXPANDED
from reconciler.workload_log.conjuncts import group_keys

BEFORE_WHERE = ("sample", "connect", "match")
"""Clauses that see rows which WHERE removes later: USING SAMPLE, CONNECT BY, MATCH_RECOGNIZE."""


def pushed_inside(
    select: exp.Select, outputs: dict[str, exp.Expr], pushed: Sequence[exp.Expr]
) -> list[exp.Expr]:
    """Return conditions on a derived table's output as conditions on its inner rows, if
    possible."""
    if not pushed or any(select.args.get(name) for name in BEFORE_WHERE):
        return []
    distinct = select.args.get("distinct")
    if distinct is not None and distinct.args.get("on") is not None:
        return []
    passing = _passing_outputs(select, outputs)
    sizes = {name: sum(1 for _ in item.walk()) for name, item in passing.items()}
    inside = []
    for condition in pushed:
        names = {column.name.lower() for column in condition.find_all(exp.Column)}
        if names and names <= passing.keys() and _inlined_size(condition, sizes) <= MAX_EXPANDED:
            inside.append(_inlined(condition, passing))
    return inside


def _passing_outputs(select: exp.Select, outputs: dict[str, exp.Expr]) -> dict[str, exp.Expr]:
    """Return the output columns on which a filter may move below the SELECT, with their
    expressions.

    Below an aggregation these are the group keys, below window functions the columns by which every
    window is partitioned.
    """
    plain = {name: item.unalias() for name, item in outputs.items() if name}
    if len(plain) != len(select.expressions):
        return {}
    allowed: list[list[exp.Expr]] = []
    keys = group_keys(select)
    if select.args.get("group") is not None:
        allowed.append(keys or [])
    elif any(_aggregates(item) for item in plain.values()) or select.args.get("having"):
        return {}
    qualify = select.args.get("qualify")
    if qualify is not None and qualify.find(exp.Query) is not None:
        return {}
    windows = [w for item in plain.values() for w in item.find_all(exp.Window)]
    windows += qualify.find_all(exp.Window) if qualify is not None else []
    if windows and select.args.get("windows"):
        return {}
    allowed += [window.args.get("partition_by") or [] for window in windows]
    return {
        name: item
        for name, item in plain.items()
        if all(item in keys for keys in allowed)
        and item.find(exp.Query, exp.Window, exp.Explode, exp.Unnest, exp.Rand) is None
    }


def _aggregates(item: exp.Expr) -> bool:
    """Whether the item is an aggregate of this SELECT: not of a window, nor in a subquery."""
    return any(_aggregates_here(function, item) for function in item.find_all(exp.AggFunc))


def _aggregates_here(function: exp.Expr, item: exp.Expr) -> bool:
    node = function
    while node is not item and node.parent is not None:
        node = node.parent
        if isinstance(node, (exp.Window, exp.Query)):
            return False
        if isinstance(node, exp.AggFunc):
            return True
    return True


def _inlined_size(condition: exp.Expr, sizes: Mapping[str, int]) -> int:
    """Nodes of a condition once its columns are replaced by their expressions, which may double
    them at each level of derived tables."""
    return sum(
        sizes.get(node.name.lower(), 1) if isinstance(node, exp.Column) else 1
        for node in condition.walk()
    )


def _inlined(condition: exp.Expr, outputs: dict[str, exp.Expr]) -> exp.Expr:
    def visit(node: exp.Expr) -> exp.Expr:
        if isinstance(node, exp.Column) and not node.table:
            item = outputs[node.name.lower()].copy()
            return item if isinstance(item, (exp.Column, exp.Literal)) else exp.paren(item)
        return node

    return condition.transform(visit)
