"""Says what a LIMIT means for a scan: it may end early, or it wants the first rows of an order."""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from reconciler.queries.predicate import First, Predicate, Ref
from reconciler.table.values import Kind
from reconciler.workload_log.tables import KnownTable

MOST_LOOKED_AT = 10_000
"""Rows of a LIMIT up to which a query without any condition is taken to look at some rows only."""


_ALL_ROWS = ("where", "prewhere", "group", "having", "qualify", "order", "sort", "cluster",
             "distribute", "distinct", "joins", "laterals", "windows", "connect", "match",
             "offset")  # fmt: skip
"""Clauses with which a query reads more rows than it returns, or others than the first ones."""


def stops_early(node: exp.Expr) -> bool:
    """Whether a SELECT ends as soon as it has some rows, whichever: `SELECT * FROM t LIMIT 100`.

    Engines read one or a few files for it, whatever the layout is. Where a condition decides which
    rows count, the files that are read depend on the layout as with any query.
    """
    limit = node.args.get("limit")
    if not isinstance(node, exp.Select) or limit is None:
        return False
    if any(node.args.get(name) for name in _ALL_ROWS):
        return False
    return 0 <= _rows_of(node) <= MOST_LOOKED_AT


@dataclass(frozen=True, slots=True)
class FirstRows:
    """The rows that a query wants in an order: `ORDER BY column LIMIT count`."""

    column: exp.Column
    """The column that leads the order."""
    descending: bool
    """Whether the greatest values come first."""
    nulls_first: bool
    """Whether NULLs come before all values."""
    count: int
    """Number of rows."""


SKIPPING = frozenset({"duckdb"})
"""Dialects of engines that skip row groups whose bounds cannot hold one of the first rows. Others,
such as Spark, read all files for ORDER BY and LIMIT (docs/design/first-rows.md)."""


def first_rows(node: exp.Select) -> FirstRows | None:
    """Return which rows of its one table a SELECT without a condition wants by `ORDER BY column
    LIMIT count`; None for any other query."""
    order = node.args.get("order")
    if order is None or any(node.args.get(name) for name in _ALL_ROWS if name != "order"):
        return None
    count = _rows_of(node)
    if not 0 < count <= MOST_LOOKED_AT:
        return None
    lead = order.expressions[0]
    column = lead.this if isinstance(lead, exp.Ordered) else None
    if isinstance(column, exp.Column) and not column.table:
        outputs = [item for item in node.expressions if item.alias_or_name == column.name]
        column = outputs[0].unalias() if len(outputs) == 1 else None
    if not isinstance(column, exp.Column) or not column.table:
        return None
    return FirstRows(column, bool(lead.args.get("desc")), bool(lead.args.get("nulls_first")), count)


def skipped_to(first: FirstRows | None, table: KnownTable, dialect: str) -> Predicate | None:
    """Return the predicate of the first rows; None where the engine reads all files for them, or
    where bounds do not tell which rows come first: NULL and NaN have none, and those of text may be
    cut."""
    if first is None or dialect not in SKIPPING or first.column.name in table.hidden:
        return None
    field = table.schema.at((first.column.name,))
    if field is None or field.kind is not Kind.INT:
        return None
    if first.nulls_first and not field.required:
        return None
    return First(Ref(field.field_id), first.descending, first.count)


def _rows_of(node: exp.Select) -> int:
    """Return the rows of the LIMIT of a SELECT that returns rows of one table as they are; -1 of
    any other."""
    # A function that the parser does not know may be an aggregate.
    reads_all = (exp.AggFunc, exp.Window, exp.Query, exp.Anonymous)
    if any(item.find(*reads_all) for item in node.expressions):
        return -1
    source, limit = node.args.get("from_"), node.args.get("limit")
    if source is None or not isinstance(source.this, exp.Table) or limit is None:
        return -1
    rows = limit.args.get("count") if isinstance(limit, exp.Fetch) else limit.expression
    if not isinstance(rows, exp.Literal) or rows.is_string or not str(rows.this).isdigit():
        return -1
    options = limit.args.get("limit_options")
    if options is not None and (options.args.get("percent") or options.args.get("with_ties")):
        return -1
    return int(rows.this)
