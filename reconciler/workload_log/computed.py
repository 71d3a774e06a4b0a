"""Records a condition that computes with a column (by arithmetic or a function) by that column.

No engine turns such a condition into one that bounds serve, so that every evaluator takes it for
true. It is recorded so that people see which conditions no layout serves, and what they read.
"""

from __future__ import annotations

from sqlglot import exp

from reconciler.queries.predicate import EXPRESSION, TRUE
from reconciler.table.schema import Schema
from reconciler.workload_log.column_names import UNKNOWN_COLUMN
from reconciler.workload_log.condition_tree import Condition, Tree

_COMPUTE = (exp.Func, exp.Add, exp.Sub, exp.Mul, exp.Div, exp.IntDiv, exp.Mod, exp.Neg, exp.DPipe)
_PLAIN = (exp.Cast, exp.TryCast, exp.Connector)
"""Of these, what shows or joins values and computes none."""
_OF_MANY_ROWS = (exp.Query, exp.AggFunc, exp.Window)


def computed(node: exp.Expr, schema: Schema) -> Tree:
    """Return a condition that is not pushed down by the first column that it computes with, TRUE if
    it computes with none."""
    if node.find(*_OF_MANY_ROWS) is not None:
        return TRUE
    for function in node.find_all(*_COMPUTE, bfs=False):
        if isinstance(function, _PLAIN):
            continue
        if isinstance(function, exp.Anonymous) and function.name == UNKNOWN_COLUMN:
            return TRUE
        column = function.find(exp.Column, bfs=False)
        field = None if column is None else schema.at((column.name,))
        if field is not None and field.kind is not None:
            return Condition(field.field_id, ">=", 1, transform=EXPRESSION)
    return TRUE
