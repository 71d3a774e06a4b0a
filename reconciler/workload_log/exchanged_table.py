"""Reads another table instead of the one that a query names: its name is exchanged, token by token,
and nothing else of the text.

The other table has the same columns and rows, in the same namespace of the same catalog, so that
only the last part of the name differs. Columns that are qualified by the table's name stay: the
reference gets the old name as its alias.
"""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

from reconciler.table.schema import METADATA_COLUMNS
from reconciler.workload_log.inserted_conditions import canonical, is_query
from reconciler.workload_log.routed_query import HINT, Parsed

OF_FILES = ("input_file", "metadata$", "$")
"""What names of functions and columns begin with that tell of files."""


def why_not(sql: str, parsed: Parsed, levels: tuple[str, ...]) -> str:
    """Return why the query must read the table that it names, "" if it may read the other. levels:
    catalog and namespace of the table."""
    if HINT in sql:
        return "the query has hints, which may name the table"
    for node in parsed.nodes:
        if any(node.args.get(part) for part in node.args.keys() - _PARTS):
            return "a read is of another time, sampled, pivoted or in parts"
        alias = node.args.get("alias")
        if alias is not None and not isinstance(alias.this, exp.Identifier):
            return "a read is of another time"
        if not node.args.get("db") and _names_a_cte(parsed.query, node.name):
            return "a common table expression has the table's name"
    above = {one.lower() for one in levels}
    for column in parsed.query.find_all(exp.Column, exp.Dot):
        names = _names(column)
        if len(names) > 2 and names[0].lower() in above:
            return "a column is qualified by more than the table's name"
    if any(_is_of_files(name) for name in _named(parsed.query)):
        return "the query asks for files or row ids"
    return ""


_PARTS = {"this", "db", "catalog", "alias"}


def _names(column: exp.Expr) -> list[str]:
    if isinstance(column, exp.Column):
        return [part.name for part in column.parts]
    return [one.name for one in column.find_all(exp.Identifier)]


def _names_a_cte(query: exp.Query, name: str) -> bool:
    return any(one.alias.lower() == name.lower() for one in query.find_all(exp.CTE))


def _named(query: exp.Query) -> Iterator[str]:
    """Yield the names of all columns and of functions that are not SQL's own."""
    for one in query.walk():
        if isinstance(one, (exp.Column, exp.Anonymous, exp.Parameter)):
            yield one.name
        elif isinstance(one, exp.Func):
            yield one.sql_name()


def _is_of_files(name: str) -> bool:
    text = name.lower()
    return text in METADATA_COLUMNS or text.startswith(OF_FILES)


def exchanged(sql: str, parsed: Parsed, table: str, dialect: str) -> str | None:
    """Return the text that reads the other table in every place, None if that cannot be done
    safely. table: its name, without catalog and namespace.

    The exchange is made in the query's tree, too: the text is parsed again and has to be that tree.
    """
    wanted = parsed.query.copy()
    edits = []
    for node, copied in zip(parsed.nodes, _same(parsed, wanted), strict=True):
        start, end = (node.this.meta.get(place) for place in ("start", "end"))
        if start is None or end is None:
            return None
        old = sql[start : end + 1]
        quoted = bool(node.this.args.get("quoted"))
        new = f"{old[0]}{table}{old[-1]}" if quoted else table
        named = bool(node.args.get("alias"))
        edits.append((start, end + 1, new if named else f"{new} {old}"))
        if not named:
            copied.set("alias", exp.TableAlias(this=copied.this.copy()))
        copied.set("this", exp.to_identifier(table, quoted=quoted))
    for start, stop, piece in sorted(edits, reverse=True):
        sql = sql[:start] + piece + sql[stop:]
    return sql if is_query(sql, canonical(wanted), dialect) else None


def _same(parsed: Parsed, copied: exp.Query) -> list[exp.Table]:
    """Return the nodes of a copy of the query that are copies of the table's."""
    mine = {id(node) for node in parsed.nodes}
    both = zip(parsed.query.find_all(exp.Table), copied.find_all(exp.Table), strict=True)
    by_id = {id(node): other for node, other in both if id(node) in mine}
    return [by_id[id(node)] for node in parsed.nodes]
