"""Finds where a SELECT reads a table, and which conditions of its own are on that table alone.

A condition may stand beside a WHERE only if it follows from it: it is made from conditions of the
same WHERE (and of the ON of the table's own inner join) on this table alone, which every engine
understands alike at any time. So rows that are NULL-extended, grouped or counted afterwards do not
matter.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from reconciler.errors import UserError
from reconciler.table.schema import Field, Schema
from reconciler.workload_log.column_names import levels_of
from reconciler.workload_log.sql import SqlReader
from reconciler.workload_log.tables import KnownTable

_PLAIN = (
    exp.Column, exp.Identifier, exp.Literal, exp.Neg, exp.Boolean, exp.Null, exp.Paren, exp.And,
    exp.Or, exp.Not, exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.In, exp.Between,
    exp.Is, exp.Like, exp.Escape, exp.Cast, exp.DataType, exp.DataTypeParam,
)  # fmt: skip
"""What means the same in every session and at any time."""
_OWN = ("this", "db", "catalog", "alias", "hints")
"""Parts of a table's node that do not change which rows it gives."""
_DAY = r"\d{4}-\d\d-\d\d"
_TIME = _DAY + r"[ T]\d\d:\d\d(?::\d\d(?:\.\d{1,9})?)?"
_PLAIN_TIME = re.compile(rf"{_DAY}|{_TIME}")
_ZONED_TIME = re.compile(rf"{_TIME} ?(?:Z|[+-]\d\d:\d\d)")
_INSTANTS = frozenset((exp.DType.TIMESTAMPTZ, exp.DType.TIMESTAMPLTZ))
"""Types of times that engines convert by the session's time zone."""
_DAY_AROUND = (dt.timedelta(-1), dt.timedelta(0), dt.timedelta(1))
_INEXACT = (exp.DType.FLOAT, exp.DType.DOUBLE)
_EXACT = 1 << 24
"""Whole numbers below it are the same as floats."""
_COLLATES = ("mysql", "tsql", "singlestore")
"""Dialects of engines whose usual collation ignores case."""


@dataclass(frozen=True)
class Reference:
    """One read of the table in the query."""

    select: exp.Select | None
    """The SELECT whose WHERE may get a condition; None if none may."""
    name: exp.Identifier | None
    """By which columns of the table are qualified there."""
    conditions: tuple[exp.Expr, ...] = ()
    """Its conditions on the table alone."""
    why_not: str = ""
    """Why it gets no condition, "" if it may."""
    join: exp.Join | None = None
    """Its own join, whose ON may get the condition where the SELECT has no WHERE."""

    @property
    def select_where(self) -> exp.Expr | None:
        """Return the condition of the SELECT's WHERE, None if it has none."""
        where = None if self.select is None else self.select.args.get("where")
        return None if where is None else where.this

    def alone(self, table: exp.Table, dialect: str) -> str:
        """Return a query for the rows of the table that meet the conditions."""
        named = table.copy()
        if self.name is not None:
            named.set("alias", exp.TableAlias(this=self.name.copy()))
        select = exp.select("*").from_(named)
        for condition in self.conditions:
            select = select.where(condition.copy(), copy=False)
        return select.sql(dialect=dialect or None)


@dataclass(frozen=True, slots=True)
class _Rules:
    """What decides which conditions may be put into a WHERE."""

    alone: bool
    """Whether the SELECT reads this table only."""
    zone: dt.tzinfo | None
    """The session's time zone; None if that is not known."""
    collates: bool
    """Whether texts may be compared without case."""


@dataclass(frozen=True)
class Parsed:
    """A query and its reads of one table."""

    query: exp.Query
    """The query's tree, to which conditions are added."""
    nodes: tuple[exp.Table, ...]
    """The table's nodes, in the order of the text."""
    references: tuple[Reference, ...]
    """The same as references."""


def parsed(
    sql: str,
    reader: SqlReader,
    levels: tuple[str, ...],
    table: KnownTable,
    zone: dt.tzinfo | None,
) -> Parsed:
    """Return the reads of a table. levels: catalog and schema that complete names. zone: the
    session's time zone, None if that is not known. Raises UserError for what is not one query."""
    try:
        statements = [one for one in sqlglot.parse(sql, dialect=reader.dialect or None) if one]
    except (SqlglotError, RecursionError) as error:
        first = str(error).partition("\n")[0]
        raise UserError(
            "the query cannot be parsed", details=(first,), do="name its dialect with --dialect"
        ) from error
    query = statements[0] if len(statements) == 1 else None
    if not isinstance(query, exp.Query):
        raise UserError(
            "only one SELECT can be routed", do="give one query, without other statements"
        )
    nodes = tuple(_nodes(query, reader, levels, table))
    collates = reader.dialect in _COLLATES
    found = tuple(_reference(node, table.schema, _Rules(True, zone, collates)) for node in nodes)
    if HINT in sql:
        found = tuple(Reference(None, None, why_not=HINTED) for _ in nodes)
    return Parsed(query, nodes, found)


def _nodes(
    query: exp.Query, reader: SqlReader, levels: tuple[str, ...], table: KnownTable
) -> Iterator[exp.Table]:
    for node in query.find_all(exp.Table, bfs=False):
        if isinstance(node.this, exp.Identifier):
            resolved = reader.resolve(levels_of(node.parts, spelled=True), levels)
            if resolved == table:
                yield node


def _reference(node: exp.Table, schema: Schema, rules: _Rules) -> Reference:
    why = _why_not(node)
    clause = node.parent
    select = clause.parent if clause is not None else None
    if why or not isinstance(select, exp.Select) or select.args.get("match"):
        return Reference(None, None, why_not=why or NESTED)
    name = node.args["alias"].this if node.args.get("alias") else node.this
    alone = not (select.args.get("joins") or select.args.get("laterals"))
    where, own = select.args.get("where"), None
    given = conjuncts(where.this if where is not None else None)
    if isinstance(clause, exp.Join) and not clause.side and clause.args.get("on"):
        own = clause
        given += conjuncts(clause.args["on"])
    rules = replace(rules, alone=alone)
    usable = tuple(one for one in given if _usable(one, name, schema, rules))
    if not usable or (where is None and own is None):
        zoned = replace(rules, zone=rules.zone or dt.UTC)
        by_zone = not usable and any(_usable(one, name, schema, zoned) for one in given)
        return Reference(None, None, why_not=NO_ZONE if by_zone else NO_CONDITION)
    return Reference(select, name, usable, join=own)


def conjuncts(condition: exp.Expr | None) -> list[exp.Expr]:
    """Return the parts of a conjunction as they are written."""
    if isinstance(condition, exp.Paren):
        return conjuncts(condition.this)
    if isinstance(condition, exp.And):
        return [*conjuncts(condition.left), *conjuncts(condition.right)]
    return [] if condition is None else [condition]


NESTED = "it is not read directly by FROM or JOIN of a SELECT"
HINT = "/*+"
HINTED = "the query has hints, which may change what is read"
NO_ZONE = "its conditions depend on the session's time zone: name it with --time-zone"
NO_CONDITION = "the SELECT that reads it has no condition on it alone that can be used"


def _why_not(node: exp.Table) -> str:
    """Return why no condition may be added for a read, "" if one may."""
    if node.args.get("version") or node.args.get("when") or node.args.get("changes"):
        return "it is read as of another time"
    if any(node.args.get(part) for part in node.args.keys() - set(_OWN)):
        return "it is sampled, pivoted or read in parts"
    alias = node.args.get("alias")
    if alias is not None and alias.args.get("columns"):
        return "its columns are renamed in FROM"
    if alias is not None and not isinstance(alias.this, exp.Identifier):
        return "it is read as of another time"
    if not node.args.get("db") and _is_cte(node):
        return "a common table expression has its name"
    clause = node.parent
    if isinstance(clause, exp.From):
        return _extended(clause.parent, None)
    if isinstance(clause, exp.Join):
        return _of_join(clause)
    return NESTED


def _is_cte(node: exp.Table) -> bool:
    """Whether a CTE of this name may be meant."""
    at: exp.Expr | None = node.parent
    while at is not None:
        with_ = at.args.get("with_")
        if with_ is not None and any(
            one.alias.lower() == node.name.lower() for one in with_.expressions
        ):
            return True
        at = at.parent
    return False


def _of_join(join: exp.Join) -> str:
    kind, side = (join.kind or "").upper(), (join.side or "").upper()
    if join.method:
        return "its join is natural, or by time"
    if kind not in ("", "INNER", "CROSS", "OUTER"):
        return "its join does not show its columns"
    if side in ("LEFT", "FULL"):
        return "it is on the side of an outer join that may be NULL"
    return _extended(join.parent, join)


def _extended(select: exp.Expr | None, own: exp.Join | None) -> str:
    """Return whether a later join may extend rows of the others by NULL."""
    if not isinstance(select, exp.Select):
        return NESTED
    joins = list(select.args.get("joins") or [])
    later = joins if own is None else joins[joins.index(own) + 1 :]
    if any((one.side or "").upper() in ("RIGHT", "FULL") for one in later):
        return "it is on the side of an outer join that may be NULL"
    if any(one.method for one in later):
        return "a later join is natural, or by time"
    return ""


def _usable(condition: exp.Expr, name: exp.Identifier, schema: Schema, rules: _Rules) -> bool:
    """Whether a condition is on this table alone, and means the same everywhere."""
    if isinstance(condition, (exp.And, exp.Or)):
        return all(_usable(one, name, schema, rules) for one in (condition.left, condition.right))
    if isinstance(condition, exp.Paren):
        return _usable(condition.this, name, schema, rules)
    if isinstance(condition, exp.Not):
        inside = condition.this.unnest()
        # Engines do not agree whether NaN meets a comparison that is negated.
        exact = isinstance(inside, (exp.Is, exp.In)) or not any(
            field is None or field.type in ("float", "double")
            for field in _fields(inside, name, schema, rules.alone)
        )
        return exact and _usable(inside, name, schema, rules)
    fields = _fields(condition, name, schema, rules.alone)
    if not fields or not all(isinstance(one, _PLAIN) for one in condition.walk()):
        return False
    return all(one is not None and _alike(one, condition, rules) for one in fields)


def _fields(
    condition: exp.Expr, name: exp.Identifier, schema: Schema, alone: bool
) -> list[Field | None]:
    """Return the column of the table that each name in a condition means; None for another."""
    columns = condition.find_all(exp.Column)
    return [_field(column, name, schema, alone) for column in columns]


def _field(column: exp.Column, name: exp.Identifier, schema: Schema, alone: bool) -> Field | None:
    parts = [part.name for part in column.parts]
    if len(parts) == 1:
        return schema.at(parts) if alone else None
    return schema.at(parts[1:]) if _same_name(column.parts[0], name) else None


def _same_name(one: exp.Expr, other: exp.Identifier) -> bool:
    """Whether two names are the same in every dialect: some fold names that are not quoted."""
    if not isinstance(one, exp.Identifier) or bool(one.quoted) != bool(other.quoted):
        return False
    return one.name == other.name if one.quoted else one.name.lower() == other.name.lower()


def _alike(field: Field, condition: exp.Expr, rules: _Rules) -> bool:
    """Whether engines compare a column with the literals of a condition alike, in any session."""
    kind = field.type
    literals = list(condition.find_all(exp.Literal))
    texts = [one.name for one in literals if one.is_string]
    numbers = [one.name for one in literals if not one.is_string]
    if kind == "string":
        return not numbers and not rules.collates
    if kind in ("binary", "uuid") or kind.startswith("fixed"):
        return False
    if kind == "date" or kind.startswith("timestamp"):
        types = frozenset(one.this for one in condition.find_all(exp.DataType))
        return not numbers and all(_is_time(text, kind, types, rules.zone) for text in texts)
    if texts:
        return False
    return kind in ("float", "double", "boolean") or not _rounds(condition, numbers)


def _is_time(text: str, kind: str, types: frozenset[exp.DType], zone: dt.tzinfo | None) -> bool:
    """Whether all engines read the same day or instant in a text. types: of the condition's
    casts."""
    if kind.startswith("timestamptz") and _ZONED_TIME.fullmatch(text):
        return types <= _INSTANTS  # a cast to another type drops the zone, or converts it
    if not _PLAIN_TIME.fullmatch(text):
        return False
    if kind.startswith("timestamptz"):
        return zone is not None and _is_once(text, zone)
    return not types & _INSTANTS or (zone is not None and _is_steady(text, zone))


def _is_once(text: str, zone: dt.tzinfo) -> bool:
    """Whether clocks of the zone show this time exactly once: engines differ about a time that is
    skipped or repeated."""
    try:
        at = dt.datetime.fromisoformat(text[:26]).replace(tzinfo=zone)
        return at.utcoffset() == at.replace(fold=1).utcoffset()
    except (ValueError, OverflowError):
        return False


def _is_steady(text: str, zone: dt.tzinfo) -> bool:
    """Whether clocks of the zone are not changed within a day of this time. Where they are, the
    instants of a column's times without zone are in another order than the times."""
    try:
        at = dt.datetime.fromisoformat(text[:26]).replace(tzinfo=zone)
        return len({(at + by).utcoffset() for by in _DAY_AROUND}) == 1
    except (ValueError, OverflowError):
        return False


def _rounds(condition: exp.Expr, numbers: Sequence[str]) -> bool:
    """Whether engines may compare whole numbers or decimals as floats, which rounds both sides."""
    types = (one.this for one in condition.find_all(exp.DataType))
    if any(one in _INEXACT for one in types):
        return True
    return any(
        "e" in text.lower() or ("." in text and abs(float(text)) >= _EXACT) for text in numbers
    )
