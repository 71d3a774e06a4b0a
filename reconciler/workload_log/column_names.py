"""Prepares a query's names for sqlglot's `qualify`, which would guess where one is ambiguous."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from sqlglot import exp
from sqlglot.optimizer.scope import traverse_scope

from reconciler.table.schema import Schema
from reconciler.workload_log.joins import may_be_comma
from reconciler.workload_log.session_names import is_stored

SPELLED = "spelled"
"""Key under which a folded identifier keeps the query's spelling."""
UNKNOWN_COLUMN = "either"
"""Name of the function around a column that may be one of several."""


def columns_of(schema: Schema) -> dict[str, str]:
    """Return the top-level columns for sqlglot. Types matter only so that structs are not
    expanded."""
    return {field.path[0].lower(): "unknown" for field in schema.fields}


def fold_names(query: exp.Expr) -> None:
    """Fold names, because Iceberg's engines compare them without case by default."""
    for identifier in query.find_all(exp.Identifier):
        identifier.meta[SPELLED] = identifier.name  # names of tables may differ only in case
        identifier.set("this", identifier.name.lower())
        identifier.set("quoted", True)


def real_tables(query: exp.Expr) -> Iterator[exp.Table]:
    """Yield the nodes of names that may be stored tables, and no references to a CTE, each once."""
    seen: set[int] = set()
    for scope in traverse_scope(query):
        for source in scope.sources.values():
            if isinstance(source, exp.Table) and id(source) not in seen:
                seen.add(id(source))
                if is_stored(source):
                    yield source
        for node in scope.tables:
            named = scope.sources.get(node.alias_or_name)
            if id(node) not in seen and (named is node or isinstance(named, exp.Table)):
                seen.add(id(node))
                if is_stored(node):
                    yield node


def rename_table(columns: Iterable[exp.Column], node: exp.Table, key: str) -> None:
    """Give a table a one-level unique name for sqlglot; `schema.table.column` columns follow."""
    alias, levels = node.alias or node.name, [part.name for part in node.parts]
    if len(levels) > 1:
        for column in columns:
            if not column.args.get("db"):
                continue
            own = [part.name for part in column.parts[:-1]]
            if len(own) > 1 and own == levels[-len(own) :]:
                column.set("db", None)
                column.set("catalog", None)
    node.set("this", exp.to_identifier(key, quoted=True))
    node.set("db", None)
    node.set("catalog", None)
    if not node.alias:
        node.set("alias", exp.TableAlias(this=exp.to_identifier(alias, quoted=True)))


def tell_namesakes_apart(query: exp.Expr) -> None:
    """Give tables of one name aliases (`a.t JOIN b.t`), since their columns are written
    `a.t.column`.

    Tables whose names differ only in case are distinguished by the query's spelling.
    """
    for select in query.find_all(exp.Select):
        joins = select.args.get("joins") or []
        items = [item.this for item in (select.args.get("from_"), *joins) if item is not None]
        names = Counter(item.alias_or_name for item in items)
        tables = [
            item
            for item in items
            if isinstance(item, exp.Table)
            and not item.alias
            and len(item.parts) > 1
            and names[item.name] > 1
        ]
        folded = Counter(levels_of(item.parts) for item in tables)
        for number, item in enumerate(tables):
            spelled = folded[levels_of(item.parts)] > 1
            levels = levels_of(item.parts, spelled)
            name = "_".join(("layoutctl", *levels_of(item.parts), *([str(number)] * spelled)))
            alias = exp.to_identifier(name, quoted=True)
            for column in select.find_all(exp.Column):
                qualifier = levels_of(column.parts[:-1], spelled)
                if len(qualifier) > 1 and qualifier == levels[-len(qualifier) :]:
                    column.set("table", alias.copy())
                    column.set("db", None)
                    column.set("catalog", None)
            item.set("alias", exp.TableAlias(this=alias))


def levels_of(parts: Iterable[exp.Expr], spelled: bool = False) -> tuple[str, ...]:
    """Return the levels of a folded name. spelled: in the query's spelling."""
    return tuple(part.meta.get(SPELLED, part.name) if spelled else part.name for part in parts)


def hide_ambiguous(query: exp.Expr, columns: dict[str, dict[str, str]], dialect: str) -> None:
    """Hide names that are a column and the alias of something else: their meaning depends on the
    engine.

    In HAVING; in ClickHouse, whose aliases shadow columns, everywhere.
    """
    clauses = ("having", "where", "prewhere") if dialect == "clickhouse" else ("having",)
    for select in query.find_all(exp.Select):
        aliases = {
            item.alias
            for item in select.expressions
            if isinstance(item, exp.Alias)
            and not (isinstance(item.this, exp.Column) and item.this.name == item.alias)
        }
        read = _possible_columns(select, columns)
        ambiguous = aliases if read is None else aliases & read
        for clause in (select.args.get(name) for name in clauses if ambiguous):
            for column in list(clause.find_all(exp.Column)) if clause is not None else ():
                aggregated = column.find_ancestor(exp.AggFunc, exp.Select) is not select
                if column.name in ambiguous and not column.table and not aggregated:
                    _hide(column)


def hide_keys_after_commas(query: exp.Expr) -> None:
    """Hide the keys of USING and NATURAL after a comma: whether a table before the comma shares
    them depends on the engine."""
    for select in query.find_all(exp.Select):
        joins = [join for join in select.find_all(exp.Join) if join.parent_select is select]
        merging = [join for join in joins if join.args.get("using") or join.method == "NATURAL"]
        if not merging or not any(may_be_comma(join) for join in joins):
            continue
        keys = {key.name for join in merging for key in join.args.get("using") or ()}
        natural = any(join.method == "NATURAL" for join in merging)
        for column in list(select.find_all(exp.Column)):
            if not column.table and (natural or column.name in keys):
                _hide(column)
        for join in merging:
            join.set("using", None)
            join.set("method", None)
            join.set("on", exp.Anonymous(this=UNKNOWN_COLUMN, expressions=[]))


def _hide(column: exp.Column) -> None:
    """Put a column into a function of which nothing is known."""
    hidden: exp.Expr = exp.Anonymous(this=UNKNOWN_COLUMN, expressions=[column.copy()])
    if isinstance(column.parent, exp.Select) and column.arg_key == "expressions":
        hidden = exp.alias_(hidden, column.name)
    column.replace(hidden)


def _possible_columns(select: exp.Select, columns: dict[str, dict[str, str]]) -> set[str] | None:
    """Return the columns of the tables in FROM; None if not all of them are known."""
    found: set[str] = set()
    for item in (select.args.get("from_"), *(select.args.get("joins") or [])):
        if item is None or not isinstance(item.this, exp.Table) or item.this.name not in columns:
            return None
        found |= columns[item.this.name].keys()
    return found
