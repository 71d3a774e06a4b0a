"""Finds the single-table conditions and columns of each scan of a query, for the SQL reader.

Invariant: removing from a table every row that fails the conditions of all its scans does not
change the query's result. Conditions come from WHERE, ON and HAVING, through derived tables, CTEs,
set operations and subqueries; from a disjunction over several tables each table gets its part. An
outer join gives its null-supplying side only its own ON conditions, unless a later condition
rejects the null-extended rows, which makes the join an inner one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from sqlglot import exp

from reconciler.workload_log.complexity import TooComplex
from reconciler.workload_log.conjuncts import (
    clause_of,
    conjuncts_of,
    group_key_conditions,
    name_of,
    share_of,
    through_equalities,
    with_merged_keys,
    without_table,
)
from reconciler.workload_log.derived_tables import BEFORE_WHERE, pushed_inside
from reconciler.workload_log.early_stop import FirstRows, first_rows, stops_early
from reconciler.workload_log.joins import Joins, Source, is_decorated, reduced_joins, sources_of
from reconciler.workload_log.tables import KnownTable

Path = tuple[str, ...]

MAX_SCANS = 256
MAX_QUERIES = 4096
"""SELECTs visited: CTEs that read each other twice expand to exponentially many."""


@dataclass(frozen=True, slots=True)
class Scan:
    """One read of a table."""

    table: KnownTable
    """The table."""
    conditions: tuple[exp.Expr, ...]
    """Conditions on columns of this table only, in negation normal form."""
    columns: frozenset[Path]
    """Paths of the columns read, in lower case: names of a column and of struct fields in it."""
    elsewhere: bool = False
    """Whether the query has conditions on tables that this one is joined with, and none on this
    one."""
    merged: bool = False
    """Whether the query is a MERGE into this table."""
    first: FirstRows | None = None
    """The rows that a query without a condition wants in an order; None if it wants all."""


def scans_of(query: exp.Expr, tables: dict[str, KnownTable]) -> list[Scan]:
    """Return the scans of a qualified query, in which the table nodes are named by keys of
    `tables`; without those that read only a few rows, wherever they are (`stops_early`)."""
    walk = _Walk(tables)
    walk.query(query, {}, [], None)
    return walk.scans


@dataclass(frozen=True)
class _Cte:
    """A common table expression that may be read."""

    node: exp.CTE
    env: dict[str, _Cte]
    """The expressions that it may read, by name."""
    recursive: bool
    """Whether it may read itself."""


@dataclass
class _Walk:
    """The walk through a query that finds its scans."""

    tables: dict[str, KnownTable]
    scans: list[Scan] = field(default_factory=list)
    open_ctes: list[exp.CTE] = field(default_factory=list)
    """The common table expressions that are being visited."""
    queries: int = 0
    """Number of SELECTs visited so far."""

    def query(
        self,
        node: exp.Expr,
        env: dict[str, _Cte],
        pushed: Sequence[exp.Expr],
        needed: frozenset[str] | None,
    ) -> None:
        """Visit a query.

        pushed: conditions on the output columns (as columns without a table) that an output row
        must meet to matter; needed: the output columns read, None for all.
        """
        self.queries += 1
        if self.queries > MAX_QUERIES:
            raise TooComplex
        env = self._with_ctes(node, env)
        if node.args.get("limit") or node.args.get("offset") or node.args.get("fetch"):
            pushed = []
        if isinstance(node, exp.Select):
            if not stops_early(node) or node.args["from_"].this.name.lower() in env:
                _Block(self, node, env).run(pushed, needed)
        elif isinstance(node, exp.SetOperation):
            self._set_operation(node, env, pushed, needed)
        elif isinstance(node, exp.Subquery) and not is_decorated(node):
            self.query(node.this, env, pushed, needed)
        else:
            for child in node.iter_expressions():
                self.everything(child, env)

    def _with_ctes(self, node: exp.Expr, env: dict[str, _Cte]) -> dict[str, _Cte]:
        with_ = node.args.get("with_")
        if with_ is None:
            return env
        env = dict(env)
        declared = bool(with_.args.get("recursive"))
        for cte in with_.expressions:
            env[cte.alias.lower()] = _Cte(cte, dict(env), declared or _names_itself(cte, env))
        return env

    def _set_operation(
        self,
        node: exp.SetOperation,
        env: dict[str, _Cte],
        pushed: Sequence[exp.Expr],
        needed: frozenset[str] | None,
    ) -> None:
        names = [name.lower() for name in node.left.named_selects]
        by_name = bool(node.args.get("by_name"))
        union_all = isinstance(node, exp.Union) and node.args.get("distinct") is False
        if by_name or len(set(names)) != len(names) or not union_all:
            needed = None
        for side in (node.left, node.right):
            others = [name.lower() for name in side.named_selects]
            if by_name or len(others) != len(names):
                self.query(side, env, [], None)
                continue
            renamed = dict(zip(names, others, strict=True))
            self.query(
                side,
                env,
                [] if len(renamed) != len(names) else [_rename(c, renamed) for c in pushed],
                None if needed is None else frozenset(renamed[n] for n in needed if n in renamed),
            )

    def source(
        self,
        node: exp.Expr,
        env: dict[str, _Cte],
        conditions: Sequence[exp.Expr],
        columns: frozenset[Path] | None,
        elsewhere: bool = False,
        first: FirstRows | None = None,
    ) -> None:
        """Visit one item of FROM with the conditions on it (columns without a table)."""
        if not isinstance(node, exp.Table):
            self.query(node, env, conditions, None if columns is None else _heads(columns))
            return
        cte = env.get(node.name.lower()) if not node.args.get("db") else None
        if cte is not None:
            self._cte(cte, conditions, columns)
            return
        table = self.tables.get(node.name)
        if table is None:
            return
        if len(self.scans) >= MAX_SCANS:
            raise TooComplex
        if columns is None:
            columns = frozenset(folded(f.path) for f in table.schema.fields)
        self.scans.append(Scan(table, tuple(conditions), columns, elsewhere, first=first))

    def _cte(
        self, cte: _Cte, conditions: Sequence[exp.Expr], columns: frozenset[Path] | None
    ) -> None:
        if any(cte.node is other for other in self.open_ctes):
            return
        env = cte.env
        if cte.recursive:
            env = {**env, cte.node.alias.lower(): cte}
            conditions, columns = [], None
        self.open_ctes.append(cte.node)
        self.query(cte.node.this, env, conditions, None if columns is None else _heads(columns))
        self.open_ctes.pop()

    def column_type(
        self, sources: Sequence[Source], env: dict[str, _Cte], column: exp.Column
    ) -> str | None:
        """Return the Iceberg type of a column that passes unchanged from a table through derived
        ones."""
        for source in sources:
            if source.alias == column.table.lower():
                return self._output_type(source.node, env, column.name.lower())
        return None

    def _output_type(self, node: exp.Expr, env: dict[str, _Cte], name: str) -> str | None:
        if isinstance(node, exp.Table):
            cte = env.get(node.name.lower()) if not node.args.get("db") else None
            if cte is not None:
                return None if cte.recursive else self._output_type(cte.node.this, cte.env, name)
            table = self.tables.get(node.name)
            known = table.schema.at((name,)) if table else None
            return known.type if known else None
        env = self._with_ctes(node, env)
        if isinstance(node, exp.Subquery) and not is_decorated(node):
            return self._output_type(node.this, env, name)
        if not isinstance(node, exp.Select):
            return None
        items = [item for item in node.expressions if item.alias_or_name.lower() == name]
        plain = items[0].unalias() if len(items) == 1 else None
        if not isinstance(plain, exp.Column):
            return None
        return self.column_type(sources_of(node), env, plain)

    def everything(self, node: exp.Expr, env: dict[str, _Cte]) -> None:
        """Visit every table below a node as read whole: nothing can be derived for it."""
        if isinstance(node, (exp.Select, exp.SetOperation)):
            self.query(node, env, [], None)
            return
        if isinstance(node, exp.Table):
            self.source(node, env, [], None)
        for child in node.iter_expressions():
            self.everything(child, env)

    def nested(self, nodes: Iterable[exp.Expr], env: dict[str, _Cte]) -> None:
        """Visit subqueries inside expressions; their own conditions decide what they read."""
        for node in nodes:
            for query in _outermost_queries(node):
                exists = isinstance(query.parent, exp.Exists) and isinstance(query, exp.Select)
                plain = exists and not query.args.get("distinct")
                self.query(query, env, [], frozenset() if plain else None)


def _names_itself(cte: exp.CTE, env: Mapping[str, _Cte]) -> bool:
    """Whether a CTE is recursive without the keyword RECURSIVE, as many engines allow.

    A known table of that name has been renamed before; an earlier CTE of that name is meant
    instead.
    """
    name = cte.alias.lower()
    tables = cte.this.find_all(exp.Table)
    return name not in env and any(
        table.name.lower() == name and not table.args.get("db") for table in tables
    )


def _heads(columns: frozenset[Path]) -> frozenset[str]:
    return frozenset(path[0] for path in columns)


def _rename(condition: exp.Expr, names: dict[str, str]) -> exp.Expr:
    def visit(node: exp.Expr) -> exp.Expr:
        if isinstance(node, exp.Column) and not node.table:
            return exp.column(names[node.name.lower()])
        return node

    return condition.transform(visit)


def _outermost_queries(node: exp.Expr) -> Iterator[exp.Expr]:
    if isinstance(node, (exp.Select, exp.SetOperation, exp.Subquery)):
        yield node
        return
    for child in node.iter_expressions():
        yield from _outermost_queries(child)


_CLAUSES = ("where", "group", "having", "qualify", "order", "windows", "distribute", "sort",
            "cluster", "connect", "match", "prewhere", "distinct")  # fmt: skip


class _Block:
    """One SELECT: its sources, their joins, and the conditions that reach each of them."""

    def __init__(self, walk: _Walk, select: exp.Select, env: dict[str, _Cte]):
        self.walk, self.select, self.env = walk, select, env
        self.sources = sources_of(select)
        self.conditions = conjuncts_of(clause_of(select, "where")) + conjuncts_of(
            clause_of(select, "prewhere")
        )
        self.conditions += group_key_conditions(select)
        if any(select.args.get(name) for name in BEFORE_WHERE):
            self.conditions = []
        self.outputs = {item.alias_or_name.lower(): item for item in select.expressions}

    def run(self, pushed: Sequence[exp.Expr], needed: frozenset[str] | None) -> None:
        self.conditions += pushed_inside(self.select, self.outputs, pushed)
        self._merge_join_keys()
        joins = reduced_joins(self.sources, self.conditions)
        reaching = [self._reaching(index, joins) for index in range(len(self.sources))]
        clauses = self._clauses(needed)
        columns = self._columns(clauses)
        for index, source in enumerate(self.sources):
            conditions = [] if source.opaque else self._conditions(index, joins, reaching)
            read = columns[source.alias]
            if source.opaque:
                self.walk.everything(source.node, self.env)
            else:
                elsewhere = not conditions and self._restricted_elsewhere(source.alias)
                first = None if conditions else first_rows(self.select)
                self.walk.source(source.node, self.env, conditions, read, elsewhere, first)
        self.walk.nested(clauses, self.env)

    def _clauses(self, needed: frozenset[str] | None) -> list[exp.Expr]:
        """Return the parts of the SELECT whose columns are read, without the FROM items."""
        select = self.select
        clauses: list[exp.Expr] = []
        for name in _CLAUSES:
            clause = select.args.get(name)
            clauses += clause if isinstance(clause, list) else [clause] if clause else []
        clauses += select.args.get("laterals") or []
        clauses += [
            join.args["on"] for join in select.args.get("joins") or [] if join.args.get("on")
        ]
        if needed is None or select.args.get("distinct"):
            return clauses + list(select.expressions)
        by_alias = {
            column.name.lower()
            for clause in clauses
            for column in clause.find_all(exp.Column)
            if not column.table
        }
        generating = (exp.Explode, exp.Unnest, exp.Inline)
        for item in select.expressions:
            name = item.alias_or_name.lower()
            if name in needed or name in by_alias or not name or item.find(*generating):
                clauses.append(item)
        return clauses

    def _columns(self, clauses: Sequence[exp.Expr]) -> dict[str, frozenset[Path] | None]:
        """Return column paths by alias of this block, correlated subqueries included; None for
        all."""
        found: dict[str, set[Path]] = {source.alias: set() for source in self.sources}
        inner = [s.node for s in self.sources if s.opaque or isinstance(s.node, exp.Subquery)]
        everything = any(source.kind == "NATURAL" for source in self.sources)
        for clause in [*clauses, *inner]:
            for column in clause.find_all(exp.Column):
                table = column.table.lower()
                if table in found and not _shadowed(column, table, clause):
                    found[table].add(_path(column))
                elif not table and column.name.lower() not in self.outputs:
                    for paths in found.values():
                        paths.add(_path(column))
            everything = everything or any(
                self._own_star(star) for star in clause.find_all(exp.Star)
            )
        if everything:
            return dict.fromkeys(found)
        return {alias: frozenset(paths) for alias, paths in found.items()}

    def _own_star(self, star: exp.Star) -> bool:
        if isinstance(star.parent, exp.Count):
            return False
        return star.find_ancestor(exp.Select) is self.select

    def _merge_join_keys(self) -> None:
        """Replace COALESCE(a.k, b.k), which USING (k) creates, by a.k if ON says that a.k = b.k.

        For a RIGHT join by b.k; for a FULL join it does not change.
        """
        merged: dict[tuple[tuple[str, str], tuple[str, str]], bool] = {}
        sources = []
        for source in self.sources:
            on = tuple(with_merged_keys(condition, merged) for condition in source.on)
            sources.append(replace(source, on=on))
            if source.kind not in ("INNER", "LEFT", "RIGHT"):
                continue
            for condition in on:
                if not isinstance(condition, exp.EQ):
                    continue
                one, other = condition.this, condition.expression
                columns = isinstance(one, exp.Column) and isinstance(other, exp.Column)
                if columns and other.table.lower() == source.alias:
                    merged[name_of(one), name_of(other)] = source.kind == "RIGHT"
        self.sources = sources
        self.conditions = [with_merged_keys(one, merged) for one in self.conditions]

    def _conditions(
        self, index: int, joins: Joins, reaching: Sequence[Sequence[exp.Expr]]
    ) -> list[exp.Expr]:
        """Return what a row of source `index` must meet to matter, as columns without a table.

        A row joined by a key to a row that is never null-extended matters only if that row does.
        reaching: what `_reaching` gives for each source.
        """
        alias, own = self.sources[index].alias, reaching[index]
        beside = {
            id(condition): condition
            for other in range(len(self.sources))
            if other != index and not joins.nullable(other, joins.last)
            for condition in reaching[other]
        }
        derived = through_equalities(own, [*own, *beside.values()], alias, self._column_type)
        shares = [share_of(condition, alias) for condition in (*own, *derived)]
        return [without_table(share) for share in shares if share is not None]

    def _restricted_elsewhere(self, alias: str) -> bool:
        """Whether a condition of this block is on other sources only, or compares with a
        subquery."""
        every = [*self.conditions, *(one for source in self.sources for one in source.on)]
        return any(
            condition.find(exp.Select) is not None
            or alias not in {column.table.lower() for column in condition.find_all(exp.Column)}
            for condition in every
            if condition.find(exp.Column) is not None
        )

    def _reaching(self, index: int, joins: Joins) -> list[exp.Expr]:
        """Return the conditions that every combination of a row of source `index` must meet to
        matter."""
        reaching: list[exp.Expr] = []
        if not joins.nullable(index, joins.last) and joins.kinds[index] != "ASOF":
            reaching += self.conditions
        for level in range(1, len(self.sources)):
            if joins.on_applies(index, level):
                reaching += self.sources[level].on
        return reaching

    def _column_type(self, column: exp.Column) -> str | None:
        """Return the Iceberg type of a column of this block, None if it is computed or unknown."""
        return self.walk.column_type(self.sources, self.env, column)


def _path(column: exp.Column) -> Path:
    path = [column.name]
    node: exp.Expr = column
    while isinstance(node.parent, exp.Dot) and node.parent.this is node:
        node = node.parent
        path.append(node.expression.name)
    return folded(path)


def folded(path: Iterable[str]) -> Path:
    return tuple(name.lower() for name in path)


def _shadowed(column: exp.Column, alias: str, within: exp.Expr) -> bool:
    """Whether a subquery between the column and this block defines the same alias."""
    node = column.parent
    while node is not None and node is not within.parent:
        if isinstance(node, exp.Select) and alias in {s.alias for s in sources_of(node)}:
            return True
        node = node.parent
    return False
