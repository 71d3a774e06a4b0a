"""Converts a SQL condition over one table's columns into a pruning predicate, for the SQL reader.

Every row for which the SQL condition is true satisfies the predicate; a part that the engine cannot
push down, or that engines evaluate differently, is TRUE for every evaluator. Literals are converted
to the column's domain and rounded so that no row is lost (`int_col < 3.5` is `< 4`). NaN follows
Iceberg's evaluators, which never let a comparison match it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from sqlglot import exp

from reconciler.queries.predicate import FALSE, LIKE, TRUE, Always
from reconciler.table.pairs import EQUALS, LESS, Pair
from reconciler.table.schema import Field, Schema
from reconciler.table.values import Kind
from reconciler.workload_log.comparisons import Operand, compare, in_truncated, membership, utf8
from reconciler.workload_log.complexity import operands_of
from reconciler.workload_log.computed import computed
from reconciler.workload_log.condition_tree import (
    Condition,
    Negated,
    NotPushed,
    ScanPredicate,
    Tree,
    branch,
    scan_predicate,
)
from reconciler.workload_log.constants import UNBOUND, Binding, Const, NotConstant, unit_name
from reconciler.workload_log.fold import fold


def bind(conditions: list[exp.Expr], schema: Schema, binding: Binding) -> ScanPredicate:
    """Return the conjunction of conditions (in negation normal form) for one query of a
    template."""
    return scan_predicate(branch(True, [_tree(node, schema, binding) for node in conditions]))


def _tree(node: exp.Expr, schema: Schema, binding: Binding) -> Tree:
    if isinstance(node, exp.Paren):
        return _tree(node.this, schema, binding)
    if isinstance(node, (exp.And, exp.Or)):
        sides = [_tree(side, schema, binding) for side in operands_of(node)]
        return branch(isinstance(node, exp.And), sides)
    try:
        return _condition(node, schema, binding)
    except (NotConstant, NotPushed):
        return computed(node, schema)


def _condition(node: exp.Expr, schema: Schema, binding: Binding) -> Tree:
    if isinstance(node, exp.Not):
        return _negated(node.this, schema, binding)
    rule = _RULES.get(type(node))
    if rule is not None:
        return rule(node, schema, binding)
    if isinstance(node, (exp.Column, exp.Dot)):
        return _boolean_column(node, schema, True)
    return _constant_condition(node, binding)


def _negated(node: exp.Expr, schema: Schema, binding: Binding) -> Tree:
    """Return NOT of a leaf; exact only if the leaf itself is exact."""
    while isinstance(node, exp.Paren):
        node = node.this
    if isinstance(node, (exp.Column, exp.Dot)):
        return _boolean_column(node, schema, False)
    if isinstance(node, exp.In):
        return _in(node, schema, binding, negated=True)
    if isinstance(node, exp.Like):
        return _like(node, schema, binding, negated=True)
    if isinstance(node, exp.Escape):
        return _escaped_like(node, schema, binding, negated=True)
    if isinstance(node, exp.StartsWith):
        return _not(_starts_with(node, schema, binding))
    if isinstance(node, exp.Is):
        return _is(node, schema, binding, negated=True)
    if isinstance(node, exp.IsNan):
        return _not(_is_nan(node, schema, binding))
    if isinstance(node, (exp.Boolean, exp.Null)):
        value = fold(node, binding).value
        return Always(value is False)
    raise NotPushed("negation")


def _not(tree: Tree) -> Tree:
    if isinstance(tree, Condition):
        return Negated(tree)
    if isinstance(tree, Always):
        return Always(not tree.value)
    raise NotPushed("negation")


def _constant_condition(node: exp.Expr, binding: Binding) -> Tree:
    value = fold(node, binding).value
    if value is None or isinstance(value, bool):
        return Always(value is True)
    return TRUE


# Columns, directly or inside a function that can be converted to a range


def column_path(node: exp.Expr) -> tuple[str, ...] | None:
    """Return the names of a column, and of the struct's field inside it, None for anything else."""
    if isinstance(node, exp.Column):
        return (node.name,)
    if isinstance(node, exp.Dot):
        head = column_path(node.this)
        return None if head is None else (*head, node.expression.name)
    return None


def _field(node: exp.Expr, schema: Schema) -> Field | None:
    path = column_path(node)
    field = schema.at(path) if path is not None else None
    if path is not None and (field is None or field.kind is None):
        raise NotPushed("no usable bounds")
    return field


def _operand(node: exp.Expr, schema: Schema, binding: Binding) -> Operand | None:
    """Return the column that an expression reads, None if it is not one column. Raises
    NotPushed."""
    while isinstance(node, exp.Paren):
        node = node.this
    field = _field(node, schema)
    if field is not None:
        return Operand(field)
    if isinstance(node, (exp.Cast, exp.TryCast)):
        return _unwrapped_cast(node, schema, binding)
    if isinstance(node, (exp.TsOrDsToDate, exp.Date)) and node.this is not None:
        if any(node.args.get(name) for name in ("zone", "format", "expressions")):
            raise NotPushed("date function with arguments")
        return _truncated(node.this, "DAY", schema, binding)
    if isinstance(node, (exp.DateTrunc, exp.TimestampTrunc, exp.DatetimeTrunc)):
        if node.args.get("zone") is not None:
            raise NotPushed("zone")
        return _truncated(node.this, unit_name(node.args.get("unit")), schema, binding, "trunc")
    if isinstance(node, exp.Year) or (
        isinstance(node, exp.Extract) and node.name.upper() == "YEAR"
    ):
        inner = node.this if isinstance(node, exp.Year) else node.expression
        operand = _truncated(inner, "YEAR", schema, binding, "trunc")
        return None if operand is None else Operand(operand.field, "YEAR", year=True)
    return None


_EXACT_CASTS = {
    "int": {"INT", "BIGINT", "DOUBLE"},
    "long": {"BIGINT"},
    "float": {"FLOAT", "DOUBLE"},
    "double": {"DOUBLE"},
    "date": {"DATE", "TIMESTAMP", "TIMESTAMPNTZ", "DATETIME"},
    "string": {"TEXT", "VARCHAR"},
    "timestamp": {"TIMESTAMP", "TIMESTAMPNTZ", "DATETIME"},
    "timestamptz": {"TIMESTAMPTZ", "TIMESTAMPLTZ"},
    "boolean": {"BOOLEAN"},
}
"""Casts that keep every value and the order, by the column's type."""


def _unwrapped_cast(node: exp.Expr, schema: Schema, binding: Binding) -> Operand | None:
    inner = node.this
    while isinstance(inner, exp.Paren):
        inner = inner.this
    field = _field(inner, schema)
    if field is None:
        return None
    to = node.args["to"]
    name, parameters = to.this.value, [p.name for p in to.expressions]
    if name in _EXACT_CASTS.get(field.type, ()) and not parameters:
        return Operand(field)
    if name == "DECIMAL" and len(parameters) in (1, 2) and _decimal_holds(field.type, parameters):
        return Operand(field)
    if name == "DATE" and field.type.startswith("timestamp"):
        return _truncated(inner, "DAY", schema, binding)
    raise NotPushed("cast")


def _decimal_holds(kind: str, parameters: list[str]) -> bool:
    precision, scale = int(parameters[0]), int(parameters[1]) if len(parameters) > 1 else 0
    if kind in ("int", "long"):
        return precision - scale >= (10 if kind == "int" else 19)
    match = re.fullmatch(r"decimal\((\d+),\s*(\d+)\)", kind)
    if match is None:
        return False
    own_precision, own_scale = int(match[1]), int(match[2])
    return scale >= own_scale and precision - scale >= own_precision - own_scale


_NO_DATE_CAST = ("duckdb", "flink", "hive")
_NO_TRUNCATION = (*_NO_DATE_CAST, "spark", "spark2", "databricks")
_UNITS = ("YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE", "SECOND")


def _truncated(
    node: exp.Expr, unit: str, schema: Schema, binding: Binding, how: str = "cast"
) -> Operand | None:
    """Return a time truncated to a unit, if the engine turns that into a range of the column."""
    field = _field(node, schema)
    if field is None:
        return None
    if field.type == "date" and unit == "DAY":
        return Operand(field)
    refusing = _NO_DATE_CAST if how == "cast" else _NO_TRUNCATION
    if binding.dialect in refusing or unit not in _UNITS:
        raise NotPushed("truncation")
    if unit == "WEEK" and binding.dialect in ("", "bigquery", "snowflake", "mysql", "tsql"):
        raise NotPushed("first day of the week")
    if not (field.type.startswith("timestamp") or field.type == "date"):
        raise NotPushed("not a time")
    return Operand(field, unit)


def _boolean_column(node: exp.Expr, schema: Schema, value: bool) -> Tree:
    field = _field(node, schema)
    if field is None or field.type != "boolean":
        raise NotPushed("not boolean")
    return Condition(field.field_id, "=", int(value))


# Comparisons

_FLIP = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "=", "!=": "!="}
_OPS: dict[type[exp.Expr], str] = {
    exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">=", exp.EQ: "=", exp.NEQ: "!=",
}  # fmt: skip


def _comparison(node: exp.Expr, schema: Schema, binding: Binding) -> Tree:
    op = _OPS[type(node)]
    left, right = node.this, node.expression
    pair = _between_columns(left, op, right, schema)
    if pair is not None:
        return pair
    operand = _operand(left, schema, binding)
    if operand is None:
        operand, right, op = _operand(right, schema, binding), left, _FLIP[op]
    if operand is None:
        return _compare_constants(node, op, binding)
    return compare(operand, op, fold(right, binding), binding)


def _between_columns(left: exp.Expr, op: str, right: exp.Expr, schema: Schema) -> Tree | None:
    """Return a condition between two columns, None for any other comparison.

    It is written as a truth value: `a < b` as less >= 1, `a >= b` as less < 1. Neither is met where
    a column is NULL. Which types are cut by such a condition, `qdtree.pairs` says.
    """
    columns = (exp.Column, exp.Dot)
    right = right.unnest()
    if not isinstance(right, columns):  # the usual case: a column and a value
        return None
    left = left.unnest()
    if not isinstance(left, columns):
        return None
    first, second = _field(left, schema), _field(right, schema)
    if first is None or second is None:
        return None
    if first == second:
        raise NotPushed("one column")
    if op in (">", "<="):  # a > b is b < a, and a <= b is that this is false
        first, second = second, first
    if op in ("=", "!=") and first.field_id > second.field_id:
        first, second = second, first
    pair = Pair(first.field_id, EQUALS if op in ("=", "!=") else LESS, second.field_id)
    true = op in ("<", ">", "=")
    return Condition(pair.left, ">=" if true else "<", 1, transform=pair.transform)


def _compare_constants(node: exp.Expr, op: str, binding: Binding) -> Tree:
    """Compare constants such as `1 = 0`; TRUE unless both sides are plain numbers."""
    left, right = fold(node.this, binding).value, fold(node.expression, binding).value
    if left is None or right is None:
        return FALSE
    if not all(isinstance(side, (int, Decimal)) for side in (left, right)):
        return TRUE
    order = (left > right) - (left < right)
    if _FLIP[op] != op:
        op = _FLIP[op]  # `_comparison` swapped the sides
    return Always(_holds(op, order))


def _holds(op: str, order: int) -> bool:
    return {"<": order < 0, "<=": order <= 0, "=": order == 0,
            "!=": order != 0, ">": order > 0, ">=": order >= 0}[op]  # fmt: skip


# IN, LIKE, IS


def _in(node: exp.Expr, schema: Schema, binding: Binding, negated: bool = False) -> Tree:
    if node.args.get("query") is not None:
        raise NotPushed("subquery")
    items = _items(node)
    operand = _operand(node.this, schema, binding)
    if operand is None or not items:
        raise NotPushed("not a column")
    consts = [fold(item, binding) for item in items]
    if operand.unit:
        return in_truncated(operand, consts, binding, negated)
    if negated and any(const.value is None for const in consts):
        return FALSE
    field = operand.field
    if any(const.value is UNBOUND for const in consts):
        leaf = Condition(field.field_id, "in", UNBOUND)
        return Negated(leaf) if negated else leaf
    found: set[Any] = set()
    for const in consts:
        equal = compare(operand, "=", Const(const.value), binding)
        if isinstance(equal, Condition) and equal.test == "=":
            found.add(equal.literal)
        elif isinstance(equal, Condition):
            if negated:
                raise NotPushed("not exact in single precision")
            found.update(equal.literal)
    return membership(field, found, negated)


def _items(node: exp.Expr) -> list[exp.Expr]:
    """Return the values of a list, or of an array literal."""
    unnest = node.args.get("unnest")
    if unnest is None:
        return list(node.expressions)
    arrays = unnest.expressions
    if len(arrays) != 1 or not isinstance(arrays[0], exp.Array):
        raise NotPushed("not a list")
    return list(arrays[0].expressions)


def _like(node: exp.Expr, schema: Schema, binding: Binding, negated: bool = False) -> Tree:
    return _pattern(node, "\\", schema, binding, negated)


def _escaped_like(node: exp.Expr, schema: Schema, binding: Binding, negated: bool = False) -> Tree:
    escape = fold(node.expression, binding).value
    if not isinstance(node.this, exp.Like) or not isinstance(escape, str) or len(escape) > 1:
        raise NotPushed("escape")
    return _pattern(node.this, escape, schema, binding, negated)


def _pattern(node: exp.Expr, escape: str, schema: Schema, binding: Binding, negated: bool) -> Tree:
    """Return the prefix condition of a pattern: exact for `x%` and for text without wildcards.

    It is the literal text before the first wildcard or escape. Any other pattern is recorded by its
    column alone, as a truth value that no bound says anything of.
    """
    field = _field(node.this, schema)
    text = fold(node.expression, binding).value
    if field is None or field.type != "string":
        raise NotPushed("not a string column")
    if text is UNBOUND:
        leaf = Condition(field.field_id, "starts", UNBOUND)
        return Negated(leaf) if negated else leaf
    if text is None:
        return FALSE
    if not isinstance(text, str):
        raise NotPushed("not a string")
    found = re.match(f"[^%_\\\\{re.escape(escape)}]*", text)
    prefix = found[0] if found else ""
    rest = text[len(prefix) :]
    if rest == "":
        return Condition(field.field_id, "!=" if negated else "=", utf8(prefix))
    refused = "_" in rest and binding.dialect in ("spark", "spark2", "databricks")
    if not prefix or (negated and rest != "%") or refused:
        return Condition(field.field_id, "<" if negated else ">=", 1, transform=LIKE)
    leaf = Condition(field.field_id, "starts", utf8(prefix))
    return Negated(leaf) if negated else leaf


def _starts_with(node: exp.Expr, schema: Schema, binding: Binding) -> Tree:
    field = _field(node.this, schema)
    text = fold(node.expression, binding).value
    if field is None or field.type != "string":
        raise NotPushed("not a string column")
    if text is UNBOUND:
        return Condition(field.field_id, "starts", UNBOUND)
    if not isinstance(text, str):
        raise NotPushed("not a string")
    return Condition(field.field_id, "starts", utf8(text))


def _is(node: exp.Expr, schema: Schema, binding: Binding, negated: bool = False) -> Tree:
    right = node.expression
    path = column_path(node.this)
    field = schema.at(path) if path is not None else None
    if field is None or field.repeated or not isinstance(right, (exp.Null, exp.Boolean)):
        raise NotPushed("IS")
    null = Condition(field.field_id, "null")
    if isinstance(right, exp.Null):
        return Negated(null) if negated else null
    if field.type != "boolean":
        raise NotPushed("not boolean")
    if not negated:
        return Condition(field.field_id, "=", int(right.this))
    return branch(False, [Condition(field.field_id, "=", int(not right.this)), null])


def _is_nan(node: exp.Expr, schema: Schema, binding: Binding) -> Tree:
    field = _field(node.this, schema)
    if field is None or field.kind is not Kind.FLOAT:
        raise NotPushed("not a float")
    return Condition(field.field_id, "nan")


def _null_safe(node: exp.Expr, schema: Schema, binding: Binding) -> Tree:
    operand, other = _operand(node.this, schema, binding), node.expression
    if operand is None:
        operand, other = _operand(node.expression, schema, binding), node.this
    if operand is None or operand.unit:
        raise NotPushed("not a column")
    const = fold(other, binding)
    null = Condition(operand.field.field_id, "null")
    if isinstance(node, exp.NullSafeEQ):
        return null if const.value is None else compare(operand, "=", const, binding)
    if const.value is None:
        return Negated(null)
    return branch(False, [compare(operand, "!=", const, binding), null])


_Rule = Callable[[exp.Expr, Schema, Binding], Tree]
_RULES: dict[type[exp.Expr], _Rule] = {
    **dict.fromkeys(_OPS, _comparison),
    exp.In: _in,
    exp.Like: _like,
    exp.Escape: _escaped_like,
    exp.StartsWith: _starts_with,
    exp.Is: _is,
    exp.IsNan: _is_nan,
    exp.NullSafeEQ: _null_safe,
    exp.NullSafeNEQ: _null_safe,
}
