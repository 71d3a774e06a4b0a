"""Rearranges conditions: into conjuncts in negation normal form, and to the share of one table.

Conditions also pass through equalities, merged keys of USING, and group keys.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sqlglot import exp


def clause_of(select: exp.Select, name: str) -> exp.Expr | None:
    clause = select.args.get(name)
    return None if clause is None else clause.this


def conjuncts_of(condition: exp.Expr | None) -> list[exp.Expr]:
    if condition is None or isinstance(condition, exp.Boolean):
        return [condition] if isinstance(condition, exp.Boolean) else []
    normal = normal_form(condition)
    return list(normal.flatten()) if isinstance(normal, exp.And) else [normal]


_COMPLEMENT: dict[type[exp.Expr], type[exp.Expr]] = {
    exp.EQ: exp.NEQ, exp.NEQ: exp.EQ, exp.LT: exp.GTE, exp.GTE: exp.LT, exp.GT: exp.LTE,
    exp.LTE: exp.GT, exp.NullSafeEQ: exp.NullSafeNEQ, exp.NullSafeNEQ: exp.NullSafeEQ,
}  # fmt: skip


def normal_form(node: exp.Expr, negate: bool = False) -> exp.Expr:
    """Return the negation normal form in three-valued logic, BETWEEN split; the input does not
    change."""
    if isinstance(node, exp.Paren):
        return normal_form(node.this, negate)
    if isinstance(node, exp.Not):
        return normal_form(node.this, not negate)
    if isinstance(node, (exp.And, exp.Or)):
        sides = [normal_form(side, negate) for side in node.flatten()]
        combine = exp.and_ if isinstance(node, exp.And) != negate else exp.or_
        return combine(*sides, copy=False, wrap=True)
    written = node.this if isinstance(node, exp.Escape) else node
    if written.args.get("negate"):  # `NOT LIKE` in sqlglot's tree
        plain = node.copy()
        (plain.this if isinstance(plain, exp.Escape) else plain).set("negate", None)
        return normal_form(plain, not negate)
    if isinstance(node, exp.Between):
        low, high = node.args["low"], node.args["high"]
        within = _between(node.this, low, high)
        if node.args.get("symmetric"):
            within = exp.or_(within, _between(node.this, high, low), copy=False, wrap=True)
        return normal_form(within, negate)
    if isinstance(node, exp.EQ) and isinstance(node.expression, exp.Any):
        array = node.expression.this.unnest()
        if isinstance(array, exp.Array) and array.expressions:
            items = [item.copy() for item in array.expressions]
            return normal_form(exp.In(this=node.this.copy(), expressions=items), negate)
    if not negate:
        return node.copy()
    complement = _COMPLEMENT.get(type(node))
    if complement is not None:
        return complement(this=node.this.copy(), expression=node.expression.copy())
    return exp.Not(this=node.copy())


def _between(value: exp.Expr, low: exp.Expr, high: exp.Expr) -> exp.Expr:
    return exp.and_(
        exp.GTE(this=value.copy(), expression=low.copy()),
        exp.LTE(this=value.copy(), expression=high.copy()),
        copy=False,
    )


def share_of(condition: exp.Expr, alias: str) -> exp.Expr | None:
    """Return the condition on one source that another condition implies, None if it implies
    nothing."""
    if isinstance(condition, exp.Paren):
        return share_of(condition.this, alias)
    if isinstance(condition, (exp.And, exp.Or)):
        shares = [share_of(side, alias) for side in condition.flatten()]
        if isinstance(condition, exp.And):
            kept = [share for share in shares if share is not None]
            return exp.and_(*kept, copy=False, wrap=True) if kept else None
        if any(share is None for share in shares):
            return None
        return exp.or_(*[s for s in shares if s is not None], copy=False, wrap=True)
    if condition.find(exp.Query) is not None:
        return None
    tables = {column.table.lower() for column in condition.find_all(exp.Column)}
    return condition.copy() if tables <= {alias} else None


def without_table(condition: exp.Expr) -> exp.Expr:
    for column in list(condition.find_all(exp.Column)):
        column.set("table", None)
    return condition


def with_merged_keys(
    condition: exp.Expr, merged: dict[tuple[tuple[str, str], tuple[str, str]], bool]
) -> exp.Expr:
    """Return the condition with merged columns replaced.

    merged: pairs of columns that are equal or have one NULL; whether the second one is kept.
    """

    def visit(node: exp.Expr) -> exp.Expr:
        if not isinstance(node, exp.Coalesce):
            return node
        kept, *rest = [node.this, *node.expressions]
        while rest and isinstance(kept, exp.Column) and isinstance(rest[0], exp.Column):
            second = merged.get((name_of(kept), name_of(rest[0])))
            if second is None:
                return node
            kept, rest = rest[0] if second else kept, rest[1:]
        return node if rest else kept.copy()

    return condition.transform(visit) if merged else condition


def through_equalities(
    joining: Sequence[exp.Expr],
    conditions: Sequence[exp.Expr],
    alias: str,
    type_of: Callable[[exp.Column], str | None],
) -> list[exp.Expr]:
    """Return conditions on the alias implied by its join keys: `a.k = b.k AND a.k = 5` implies `b.k
    = 5`.

    joining: contains the equalities. Only between columns of one type, so that both compare with
    the constant alike.
    """
    keys: dict[tuple[str, str], exp.Column] = {}
    for condition in joining:
        if not isinstance(condition, exp.EQ):
            continue
        for one, other in ((condition.this, condition.expression),
                           (condition.expression, condition.this)):  # fmt: skip
            if not (isinstance(one, exp.Column) and isinstance(other, exp.Column)):
                continue
            if one.table.lower() == alias != other.table.lower():
                own = type_of(one)
                if own is not None and own == type_of(other):
                    keys[name_of(other)] = one
    derived = []
    for condition in conditions if keys else ():
        columns = list(condition.find_all(exp.Column))
        names = {name_of(column) for column in columns}
        if len(names) == 1 and condition.find(exp.Query) is None:
            key = keys.get(next(iter(names)))
            if key is not None:
                derived.append(_substituted(condition, key))
    return derived


def _substituted(condition: exp.Expr, by: exp.Column) -> exp.Expr:
    def visit(node: exp.Expr) -> exp.Expr:
        return by.copy() if isinstance(node, exp.Column) else node

    return condition.transform(visit)


def group_keys(select: exp.Select) -> list[exp.Expr] | None:
    """Return the GROUP BY keys; None if there is no grouping by plain keys (rollup, cube).

    ALL means every item of the SELECT that is not an aggregate.
    """
    group = select.args.get("group")
    if group is None:
        return None
    special = ("grouping_sets", "cube", "rollup", "totals")
    every = bool(group.args.get("all"))
    if any(group.args.get(name) for name in special) or bool(group.expressions) == every:
        return None
    if every:
        items = [item.unalias() for item in select.expressions]
        return [item for item in items if item.find(exp.AggFunc, exp.Window, exp.Query) is None]
    if any(node.find(exp.Rollup, exp.Cube, exp.GroupingSets) for node in group.expressions):
        return None
    return list(group.expressions)


def group_key_conditions(select: exp.Select) -> list[exp.Expr]:
    """Return the HAVING conditions that use only group keys, because they hold for the rows
    themselves."""
    keys = group_keys(select)
    if keys is None:
        return []
    plain = {name_of(key) for key in keys if isinstance(key, exp.Column)}
    return [
        condition
        for condition in conjuncts_of(clause_of(select, "having"))
        if condition.find(exp.AggFunc, exp.Query, exp.Window) is None
        and {name_of(column) for column in condition.find_all(exp.Column)} <= plain
    ]


def name_of(column: exp.Column) -> tuple[str, str]:
    return column.table.lower(), column.name.lower()
