"""Says why a query of spec.safety.check is refused: it may read its own table and nothing else.

Whether the query returns a row becomes known to whoever reads the table's status, so that a query
over other tables would tell about them. `spark.commit.query` asks again for the plan that Spark
makes of it, which also knows what this release of sqlglot does not.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from reconciler.api.schema import AUDITED_TABLE, MAIN_TABLE

if TYPE_CHECKING:
    from sqlglot import exp

PLACES = {AUDITED_TABLE: "__audited_table", MAIN_TABLE: "__main_table"}
"""What the query has in place of the two snapshots of its table while it is parsed."""

DENIED = (
    "reflect", "java_method", "try_reflect", "version", "current_catalog", "current_database",
    "current_schema", "current_user", "session_user", "user", "read_files", "input_file_name",
    "input_file_block_start", "input_file_block_length",
)  # fmt: skip
"""Functions that call Java, or read anything but the rows of the query's table."""

_TABLE_FUNCTIONS = frozenset(
    ("range", "explode", "explode_outer", "posexplode", "posexplode_outer", "inline",
     "inline_outer", "stack", "json_tuple")
)  # fmt: skip
"""Functions that may stand in FROM: they make rows of their arguments."""


def refused(query: str) -> str:
    """Return why the query may not run, "" if nothing speaks against it."""
    import sqlglot
    from sqlglot import exp
    from sqlglot.errors import SqlglotError

    text = query
    for name, place in PLACES.items():
        text = text.replace(name, place)
    try:
        trees = sqlglot.parse(text, dialect="spark")
    except (SqlglotError, RecursionError, ValueError):
        return "it is not one SELECT that can be parsed"
    if len(trees) != 1 or not isinstance(trees[0], exp.Query):
        return "it is not one SELECT"
    return next(_reasons(trees[0]), "")


def _reasons(tree: exp.Expr) -> Iterator[str]:
    from sqlglot import exp

    for node in tree.walk():
        if isinstance(node, exp.Table):
            yield from _of_table(node)
        elif isinstance(node, exp.QueryTransform | exp.Command):
            yield "it starts a program (TRANSFORM)"
        elif isinstance(node, exp.DML | exp.DDL | exp.Into) and not isinstance(node, exp.Query):
            yield "it is not one SELECT"
        elif isinstance(node, exp.Func) and _name(node) in DENIED:
            yield f"it calls {_name(node)}"


def _name(function: exp.Func) -> str:
    from sqlglot import exp

    named = function.name if isinstance(function, exp.Anonymous) else function.sql_name()
    return named.lower()


def _of_table(table: exp.Table) -> Iterator[str]:
    from sqlglot import exp

    if isinstance(table.this, exp.Func):
        if _name(table.this) not in _TABLE_FUNCTIONS:
            yield f"it reads the table function {_name(table.this)}"
        return
    own = not table.db and not table.catalog
    if not own or (table.name not in PLACES.values() and not _is_defined(table)):
        yield f"it reads another table than {AUDITED_TABLE} and {MAIN_TABLE}"


def _is_defined(table: exp.Table) -> bool:
    """Whether the name is that of a WITH that is visible where the table stands.

    Within a WITH only the names before it are: `WITH t AS (SELECT * FROM t)` reads a table t.
    """
    from sqlglot import exp

    node: exp.Expr = table
    while node.parent is not None:
        outer = node.parent
        if isinstance(outer, exp.With):
            names = outer.expressions[: node.index]
        else:
            own = outer.args.get("with_")
            names = own.expressions if isinstance(own, exp.With) and own is not node else []
        if any(one.alias.lower() == table.name.lower() for one in names):
            return True
        node = outer
    return False
