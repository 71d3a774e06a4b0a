"""Says whether a query may end before it has read all rows of a scan, because of a LIMIT."""

from __future__ import annotations

from sqlglot import exp

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
    # A function that the parser does not know may be an aggregate.
    reads_all = (exp.AggFunc, exp.Window, exp.Query, exp.Anonymous)
    if any(item.find(*reads_all) for item in node.expressions):
        return False
    source = node.args.get("from_")
    if source is None or not isinstance(source.this, exp.Table):
        return False
    rows = limit.args.get("count") if isinstance(limit, exp.Fetch) else limit.expression
    if not isinstance(rows, exp.Literal) or rows.is_string or not str(rows.this).isdigit():
        return False
    options = limit.args.get("limit_options")
    if options is not None and (options.args.get("percent") or options.args.get("with_ties")):
        return False
    return int(rows.this) <= MOST_LOOKED_AT
