"""Finds where a SELECT reads a table, and adds conditions on block ids there.

A condition may stand beside a WHERE only if it follows from it: it is made from conditions of the
same WHERE (and of the ON of the table's own inner join) on this table alone, which every engine
understands alike at any time. So rows that are NULL-extended, grouped or counted afterwards do not
matter.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from reconciler.errors import UserError
from reconciler.table.schema import Field, Schema
from reconciler.workload_log.column_names import levels_of
from reconciler.workload_log.sql import SqlReader
from reconciler.workload_log.tables import KnownTable

MOST_IN_LIST = 200
"""Iceberg does not look into longer IN lists."""
LEAST_RUN = 3
"""Consecutive ids from which on BETWEEN is shorter."""
_PLAIN = (
    exp.Column, exp.Identifier, exp.Literal, exp.Neg, exp.Boolean, exp.Null, exp.Paren, exp.And,
    exp.Or, exp.Not, exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.In, exp.Between,
    exp.Is, exp.Like, exp.Escape, exp.Cast, exp.DataType, exp.DataTypeParam,
)  # fmt: skip
"""What means the same in every session and at any time."""
_OWN = ("this", "db", "catalog", "alias", "hints")
"""Parts of a table's node that do not change which rows it gives."""
_OFFSET = re.compile(r"(?:Z|[+-]\d\d:?\d\d)$", re.IGNORECASE)


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

    def alone(self, table: exp.Table, dialect: str) -> str:
        """Return a query for the rows of the table that meet the conditions."""
        named = table.copy()
        if self.name is not None:
            named.set("alias", exp.TableAlias(this=self.name.copy()))
        select = exp.select("*").from_(named)
        for condition in self.conditions:
            select = select.where(condition.copy(), copy=False)
        return select.sql(dialect=dialect or None)


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
    sql: str, reader: SqlReader, levels: tuple[str, ...], table: KnownTable, zoned: bool
) -> Parsed:
    """Return the reads of a table. levels: catalog and schema that complete names. zoned: whether
    the session's time zone is known. Raises UserError for what is not one query."""
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
    found = tuple(_reference(node, table.schema, zoned) for node in nodes)
    return Parsed(query, nodes, found)


def _nodes(
    query: exp.Query, reader: SqlReader, levels: tuple[str, ...], table: KnownTable
) -> Iterator[exp.Table]:
    for node in query.find_all(exp.Table, bfs=False):
        if isinstance(node.this, exp.Identifier):
            resolved = reader.resolve(levels_of(node.parts, spelled=True), levels)
            if resolved == table:
                yield node


def _reference(node: exp.Table, schema: Schema, zoned: bool) -> Reference:
    why = _why_not(node)
    clause = node.parent
    select = clause.parent if clause is not None else None
    if why or not isinstance(select, exp.Select):
        return Reference(None, None, why_not=why or NESTED)
    name = node.args["alias"].this if node.args.get("alias") else node.this
    alone = not (select.args.get("joins") or select.args.get("laterals"))
    where = select.args.get("where")
    given = _conjuncts(where.this if where is not None else None)
    if isinstance(clause, exp.Join) and not clause.side:
        given += _conjuncts(clause.args.get("on"))
    usable = tuple(one for one in given if _usable(one, name.name, schema, alone, zoned))
    if not usable:
        return Reference(None, None, why_not=NO_CONDITION)
    return Reference(select, name, usable)


def _conjuncts(condition: exp.Expr | None) -> list[exp.Expr]:
    """Return the parts of a conjunction as they are written."""
    if isinstance(condition, exp.Paren):
        return _conjuncts(condition.this)
    if isinstance(condition, exp.And):
        return [*_conjuncts(condition.left), *_conjuncts(condition.right)]
    return [] if condition is None else [condition]


NESTED = "it is not read directly by FROM or JOIN of a SELECT"
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
    joins = list(select.args.get("joins") or []) if isinstance(select, exp.Select) else []
    later = joins if own is None else joins[joins.index(own) + 1 :]
    if any((one.side or "").upper() in ("RIGHT", "FULL") for one in later):
        return "it is on the side of an outer join that may be NULL"
    if any(one.method for one in later):
        return "a later join is natural, or by time"
    return ""


def _usable(condition: exp.Expr, name: str, schema: Schema, alone: bool, zoned: bool) -> bool:
    """Whether a condition is on this table alone, and means the same everywhere."""
    if isinstance(condition, (exp.And, exp.Or)):
        sides = (condition.left, condition.right)
        return all(_usable(one, name, schema, alone, zoned) for one in sides)
    if isinstance(condition, exp.Paren):
        return _usable(condition.this, name, schema, alone, zoned)
    if isinstance(condition, exp.Not):
        inside = condition.this.unnest()
        # Engines do not agree whether NaN meets a comparison that is negated.
        exact = isinstance(inside, (exp.Is, exp.In)) or not any(
            field is None or field.type in ("float", "double")
            for field in _fields(inside, name, schema, alone)
        )
        return exact and _usable(inside, name, schema, alone, zoned)
    nodes = list(condition.walk())
    fields = _fields(condition, name, schema, alone)
    if not fields or not all(isinstance(one, _PLAIN) for one in nodes):
        return False
    texts = [one.name for one in nodes if isinstance(one, exp.Literal) and one.is_string]
    numbers = any(isinstance(one, exp.Literal) and not one.is_string for one in nodes)
    return all(one is not None and _alike(one, texts, numbers, zoned) for one in fields)


def _fields(condition: exp.Expr, name: str, schema: Schema, alone: bool) -> list[Field | None]:
    """Return the column of the table that each name in a condition means; None for another."""
    columns = condition.find_all(exp.Column)
    return [_field(column, name, schema, alone) for column in columns]


def _field(column: exp.Column, name: str, schema: Schema, alone: bool) -> Field | None:
    parts = [part.name for part in column.parts]
    if len(parts) == 1:
        return schema.at(parts) if alone else None
    if parts[0].lower() != name.lower():
        return None
    return schema.at(parts[1:])


def _alike(field: Field, texts: Sequence[str], numbers: bool, zoned: bool) -> bool:
    """Whether engines compare a column with these literals alike, in any session."""
    kind = field.type
    if kind == "string":
        return not numbers
    if kind in ("binary", "uuid") or kind.startswith("fixed"):
        return False
    if kind == "date" or kind.startswith("timestamp"):
        if numbers:
            return False
        offset = [bool(_OFFSET.search(text)) and ":" in text for text in texts]
        return zoned or (all(offset) if kind.startswith("timestamptz") else not any(offset))
    return not texts


def add(reference: Reference, column: str, ids: Sequence[tuple[int, int]]) -> None:
    """Add the condition that a row has one of these ids, or none."""
    assert reference.select is not None and reference.name is not None
    block = exp.column(
        exp.to_identifier(column, quoted=not column.isidentifier() or None),
        table=reference.name.copy(),
    )
    parts = condition_parts(block, ids)
    reference.select.where(exp.or_(*parts, exp.Is(this=block.copy(), expression=exp.Null())),
                           copy=False)  # fmt: skip


def condition_parts(block: exp.Column, ids: Sequence[tuple[int, int]]) -> list[exp.Expr]:
    """Return conditions of which one holds for exactly these ids."""
    single = [
        one for low, high in ids if high - low + 1 < LEAST_RUN for one in range(low, high + 1)
    ]
    found: list[exp.Expr] = [
        exp.Between(this=block.copy(), low=_number(low), high=_number(high))
        for low, high in ids
        if high - low + 1 >= LEAST_RUN
    ]
    for begin in range(0, len(single), MOST_IN_LIST):
        own = [_number(one) for one in single[begin : begin + MOST_IN_LIST]]
        found.append(exp.In(this=block.copy(), expressions=own))
    return found


def _number(value: int) -> exp.Expr:
    return exp.Literal.number(value) if value >= 0 else exp.Neg(this=exp.Literal.number(-value))
