"""Inserts conditions on block ids where a SELECT reads a table (`routed_query`).

The rest of the text stays as it is, character by character: another way to write it may mean
something else.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.tokenizer_core import Token, TokenType

from reconciler.workload_log.routed_query import Parsed, Reference, conjuncts

MOST_IN_LIST = 200
"""Iceberg does not look into longer IN lists."""
LEAST_RUN = 3
"""Consecutive ids from which on BETWEEN is shorter."""
UNSAFE = "no place for the condition is found in its text"


def inserted(
    sql: str,
    parsed: Parsed,
    added: Sequence[tuple[int, str, Sequence[tuple[int, int]]]],
    dialect: str,
) -> str | None:
    """Return the text with conditions, None if they cannot be inserted safely.

    added: the number of each read, the name of the column, and the ids. The conditions are added to
    the query's tree, and the text is parsed again: it has to be that tree.
    """
    tokens = list(sqlglot.tokenize(sql, dialect=dialect or None))
    reads = [
        (parsed.references[number], parsed.nodes[number], _condition(parsed, number, column, ids))
        for number, column, ids in added
    ]
    variants = [
        [_edits(tokens, reference, node, condition.sql(dialect=dialect or None), behind)
         for reference, node, condition in reads]
        for behind in (True, False)
    ]  # fmt: skip
    for reference, node, condition in reads:
        _add(node, condition, to_join=reference.select_where is None)
    wanted = canonical(parsed.query)
    texts = (_edited(sql, edits) for edits in variants)
    return next((text for text in texts if text and is_query(text, wanted, dialect)), None)


def _edited(sql: str, edits: Sequence[list[tuple[int, str]] | None]) -> str | None:
    """Return the text with all insertions, None if the place of one was not found."""
    if any(own is None for own in edits):
        return None
    every = [edit for own in edits for edit in own or ()]
    for place, piece in sorted(every, key=lambda edit: -edit[0]):
        sql = sql[:place] + piece + sql[place:]
    return sql


def is_query(sql: str, wanted: exp.Expr, dialect: str) -> bool:
    """Whether the text is one query with this canonical tree."""
    try:
        found = [one for one in sqlglot.parse(sql, dialect=dialect or None) if one]
    except (SqlglotError, RecursionError):
        return False
    return len(found) == 1 and canonical(found[0]) == wanted


def _condition(
    parsed: Parsed, number: int, column: str, ids: Sequence[tuple[int, int]]
) -> exp.Expr:
    """Return the condition that a row of a read has one of these ids, or none."""
    name = parsed.references[number].name
    assert name is not None
    block = exp.column(
        exp.to_identifier(column, quoted=not column.isidentifier() or None), table=name.copy()
    )
    null = exp.Is(this=block.copy(), expression=exp.Null())
    return exp.paren(exp.or_(*condition_parts(block, ids), null), copy=False)


def _add(node: exp.Table, condition: exp.Expr, *, to_join: bool) -> None:
    """Add the condition to the WHERE of the SELECT that reads the table, or to its join."""
    clause = node.parent
    assert clause is not None
    if to_join:
        assert isinstance(clause, exp.Join)
        clause.set("on", exp.and_(clause.args["on"], condition.copy()))
        return
    select = clause.parent
    assert isinstance(select, exp.Select)
    select.where(condition.copy(), copy=False)


def _edits(
    tokens: Sequence[Token], reference: Reference, node: exp.Table, condition: str, behind: bool
) -> list[tuple[int, str]] | None:
    """Return what is inserted where, as (offset, text); None if the place is not found."""
    own = reference.select_where
    word = TokenType.WHERE
    if own is None and reference.join is not None:
        own, word = reference.join.args["on"], TokenType.ON
    at = node.this.meta.get("start")
    if at is None or own is None:
        return None
    first = next((n for n, t in enumerate(tokens) if t.start <= at <= t.end), len(tokens))
    place = next((n for n in _level(tokens, first + 1) if tokens[n].token_type == word), None)
    if place is None or place + 1 >= len(tokens):
        return None
    begin, last = tokens[place + 1].start, place
    for number in _level(tokens, place + 1):
        if tokens[number].text.upper().partition(" ")[0] in _ENDS:
            break
        last = _closing(tokens, number)
    end = tokens[last].end + 1
    if isinstance(own, exp.Connector) and not isinstance(own, exp.And):
        return [(begin, "("), (end, f") AND {condition}")]
    return [(end, f" AND {condition}")] if behind else [(begin, f"{condition} AND ")]


_OPENS, _CLOSES = (TokenType.L_PAREN, TokenType.L_BRACKET), (TokenType.R_PAREN, TokenType.R_BRACKET)
_ENDS = frozenset((
    "GROUP", "HAVING", "QUALIFY", "WINDOW", "ORDER", "LIMIT", "FETCH", "OFFSET", "UNION", "EXCEPT",
    "INTERSECT", "MINUS", ";", "CLUSTER", "DISTRIBUTE", "SORT", "FOR", "SETTINGS", "FORMAT",
    "CONNECT", "START", "JOIN", "LEFT", "RIGHT", "FULL", "INNER", "CROSS", "WHERE",
))  # fmt: skip
"""What may follow a WHERE or an ON. Where another word follows, the result is not that which is
wanted, and the query stays as it is."""


def _level(tokens: Sequence[Token], first: int) -> Iterator[int]:
    """Yield the tokens of one level of parentheses, until it ends."""
    number = first
    while number < len(tokens) and tokens[number].token_type not in _CLOSES:
        yield number
        number = _closing(tokens, number) + 1


def _closing(tokens: Sequence[Token], number: int) -> int:
    """Return the token that closes what the given one opens; itself if it opens nothing."""
    depth = 0
    for place in range(number, len(tokens)):
        depth += (tokens[place].token_type in _OPENS) - (tokens[place].token_type in _CLOSES)
        if depth == 0:
            return place
    return len(tokens) - 1


def canonical(query: exp.Expr) -> exp.Expr:
    """Return the tree with the parts of each WHERE and ON in one order, without parentheses around
    them."""
    found = query.copy()
    for node in found.find_all(exp.Where, exp.Join):
        name = "this" if isinstance(node, exp.Where) else "on"
        given = node.args.get(name)
        if given is not None:
            parts = sorted((one.unnest() for one in conjuncts(given)), key=lambda one: one.sql())
            node.set(name, exp.and_(*parts) if len(parts) > 1 else parts[0])
    return found


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
