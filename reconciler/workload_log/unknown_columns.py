"""Names the columns of a query that no table of it has."""

from __future__ import annotations

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from reconciler.table.schema import Schema
from reconciler.workload_log.column_names import (
    columns_of,
)
from reconciler.workload_log.complexity import (
    TooComplex,
    check_text,
)


def unknown_columns(sql: str, dialect: str, schema: Schema) -> tuple[str, ...]:
    """Return the columns of a query on one table that the schema does not have, in the query's
    order.

    An import drops their conditions silently, as it must; a person needs to see a typo. None are
    returned of a text that cannot be parsed or is too complex.
    """
    try:
        check_text(sql, dialect)
        statements = [s for s in sqlglot.parse(sql, dialect=dialect or None) if s]
    except (TooComplex, SqlglotError, RecursionError, ValueError):
        return ()
    if len(statements) != 1 or len(list(statements[0].find_all(exp.Table))) != 1:
        return ()
    query = statements[0]
    known = set(columns_of(schema)) | {one.alias.lower() for one in query.find_all(exp.Alias)}
    known |= {one.alias_or_name.lower() for one in query.find_all(exp.Table, exp.Subquery, exp.CTE)}
    named = [column.parts[0].name.lower() for column in query.find_all(exp.Column)]
    own = {part.name.lower() for node in query.find_all(exp.Table) for part in node.parts}
    return tuple(dict.fromkeys(n for n in named if n and n not in known | own))
