"""Bounds on one SQL statement, for the SQL reader: what is analysed, what counts as a full scan.

Every bound is on something counted (tokens, nodes, nesting, columns), never on time: one log always
gives the same workload. `check_text` runs before the parser, `check_tree` and `check_expansion`
before the optimizer, whose passes are quadratic in a tree's depth and copy what an alias or a star
expands to.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping

from sqlglot import exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.optimizer.scope import Scope, traverse_scope

MAX_SQL = 1 << 20
"""Characters of one statement that is analysed."""

MAX_TOKENS = 500_000
"""An IN list of 100,000 literals has 200,000; parsing takes some 10 microseconds for each."""

MAX_NODES = 40_000
"""Nodes of a statement, literals not counted."""

MAX_DEPTH_SUM = 1_000_000
"""Sum of the depths of all nodes: the optimizer climbs from a node to its SELECT many times."""

MAX_STATEMENTS = 256
MAX_TABLES = 512
MAX_TABLE_NODES = 1_000_000
"""Tables times nodes: conditions are judged for each table of a join."""

MAX_COLUMNS = 20_000
"""Output columns of all SELECTs once their stars are expanded."""

MAX_EXPANDED = 20_000
"""Nodes of a SELECT's columns once aliases in them are replaced by their expressions."""


_LONG_INTERVAL = re.compile(r"\bINTERVAL\s*+'[^']{200}", re.IGNORECASE)


class TooComplex(Exception):
    """A statement that would take too long to analyse."""


def check_text(text: str, dialect: str) -> None:
    """Raises TooComplex, or SqlglotError where the text has no tokens."""
    if _LONG_INTERVAL.search(text):
        raise TooComplex  # the parser's own pattern is quadratic in it
    if len(text) <= MAX_TOKENS:
        return  # a token has a character at least
    if len(Dialect.get_or_raise(dialect or None).tokenize(text)) > MAX_TOKENS:
        raise TooComplex


def balanced(statement: exp.Expr) -> exp.Expr:
    """The statement with each chain of AND or OR as a balanced tree: `a OR b OR c OR d` parses to
    a tree as deep as the chain is long. Changes the statement."""
    chains = [
        node for node in statement.find_all(exp.And, exp.Or) if type(node.parent) is not type(node)
    ]
    for chain in chains:
        operands = operands_of(chain)
        if len(operands) > 3:
            kind = type(chain)
            middle = len(operands) // 2
            chain.set("this", _joined(kind, operands[:middle]))
            chain.set("expression", _joined(kind, operands[middle:]))
    return statement


def operands_of(chain: exp.Expr) -> list[exp.Expr]:
    """The operands of a chain of one connector, in order."""
    found, open_nodes = [], [chain]
    while open_nodes:
        node = open_nodes.pop()
        if type(node) is type(chain):
            open_nodes += [node.args["expression"], node.this]
        else:
            found.append(node)
    return found


def _joined(kind: type[exp.Expr], operands: list[exp.Expr]) -> exp.Expr:
    while len(operands) > 1:
        pairs = [operands[at : at + 2] for at in range(0, len(operands), 2)]
        operands = [
            kind(this=pair[0], expression=pair[1]) if len(pair) == 2 else pair[0] for pair in pairs
        ]
    return operands[0]


def check_tree(statement: exp.Expr) -> None:
    """Raises TooComplex where the optimizer would take too long on a statement."""
    nodes = depths = queries = tables = 0
    open_nodes = [(statement, 1)]
    while open_nodes:
        node, depth = open_nodes.pop()
        if isinstance(node, exp.Literal):
            continue
        nodes += 1
        depths += depth
        tables += isinstance(node, (exp.Table, exp.Subquery))
        queries += isinstance(node, (exp.CTE, exp.SetOperation))
        if nodes > MAX_NODES or depths > MAX_DEPTH_SUM or max(tables, queries) > MAX_TABLES:
            raise TooComplex
        open_nodes += [(child, depth + 1) for child in node.iter_expressions()]
    if nodes * tables > MAX_TABLE_NODES:
        raise TooComplex


def check_expansion(query: exp.Expr, widths: Mapping[str, int]) -> None:
    """Raises TooComplex where stars or aliases expand to too many columns.

    widths: the number of columns by the name of a table node.
    """
    outputs: dict[int, int] = {}
    total = 0
    for scope in traverse_scope(query):
        outputs[id(scope)] = _outputs(scope, outputs, widths)
        total += outputs[id(scope)]
        if total > MAX_COLUMNS:
            raise TooComplex
    for select in query.find_all(exp.Select):
        _check_aliases(select)


def _outputs(scope: Scope, outputs: Mapping[int, int], widths: Mapping[str, int]) -> int:
    """The number of columns that a scope gives."""
    node = scope.expression
    if isinstance(node, exp.SetOperation):
        return max((outputs.get(id(side), 1) for side in scope.set_operation_scopes), default=1)
    if not isinstance(node, exp.Select):
        return 1
    stars = sum(1 for item in node.expressions if item.is_star)
    if not stars:
        return len(node.expressions)
    below = sum(
        widths.get(source.name, 1) if isinstance(source, exp.Table) else outputs.get(id(source), 1)
        for source in scope.sources.values()
    )
    return len(node.expressions) - stars + stars * below


def _check_aliases(select: exp.Select) -> None:
    sizes: dict[str, int] = {}
    for item in select.expressions:
        size = sum(_sizes(item, sizes))
        if size > MAX_EXPANDED:
            raise TooComplex
        if isinstance(item, exp.Alias):
            sizes[item.alias.lower()] = size
    if sizes and max(sizes.values()) > math.isqrt(MAX_EXPANDED):
        rest = (node for key, node in select.args.items() if key != "expressions")
        parts = (part for node in rest for part in (node if isinstance(node, list) else [node]))
        if sum(sum(_sizes(p, sizes)) for p in parts if isinstance(p, exp.Expr)) > MAX_EXPANDED:
            raise TooComplex


def _sizes(item: exp.Expr, sizes: Mapping[str, int]) -> Iterator[int]:
    """Of each node, that of the alias where it may be one."""
    for node in item.walk():
        named = isinstance(node, exp.Column) and not node.table
        yield sizes.get(node.name.lower(), 1) if named else 1
