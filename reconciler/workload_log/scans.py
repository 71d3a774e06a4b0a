"""Finds the single-table conditions and columns of each scan of a query, for the SQL reader.

Invariant: removing from a table every row that fails the conditions of all its scans does not
change the query's result. Conditions come from WHERE, ON and HAVING, through derived tables, CTEs,
set operations and subqueries; from a disjunction over several tables each table gets its part. An
outer join gives its null-supplying side only its own ON conditions, unless a later condition
rejects the null-extended rows, which makes the join an inner one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from sqlglot import exp

from reconciler.workload_log.complexity import MAX_EXPANDED, TooComplex
from reconciler.workload_log.tables import KnownTable

MAX_SCANS = 256
MAX_QUERIES = 4096
"""SELECTs visited: CTEs that read each other twice stand for exponentially many."""


@dataclass(frozen=True, slots=True)
class Scan:
    """One read of a table. conditions: in negation normal form, columns of this table only.

    columns: paths of the columns read (lower case, dotted for struct fields).
    """

    table: KnownTable
    conditions: tuple[exp.Expr, ...]
    columns: frozenset[str]


def scans_of(query: exp.Expr, tables: dict[str, KnownTable]) -> list[Scan]:
    """Return the scans of a qualified query, in which the table nodes are named by keys of
    `tables`."""
    walk = _Walk(tables)
    walk.query(query, {}, [], None)
    return walk.scans


@dataclass(frozen=True)
class _Cte:
    node: exp.CTE
    env: dict[str, _Cte]
    recursive: bool


@dataclass(frozen=True)
class _Source:
    """An item of FROM. kind: how it is joined to the items before it.

    opaque: nothing can be derived for it (sampled, pivoted, lateral, nested joins). may_be_comma:
    whether a comma may stand before it.
    """

    alias: str
    node: exp.Expr
    kind: str
    on: tuple[exp.Expr, ...]
    opaque: bool
    may_be_comma: bool = False


@dataclass
class _Walk:
    tables: dict[str, KnownTable]
    scans: list[Scan] = field(default_factory=list)
    open_ctes: list[exp.CTE] = field(default_factory=list)
    queries: int = 0

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
            _Block(self, node, env).run(pushed, needed)
        elif isinstance(node, exp.SetOperation):
            self._set_operation(node, env, pushed, needed)
        elif isinstance(node, exp.Subquery) and not _decorated(node):
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
        columns: frozenset[str] | None,
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
            columns = frozenset(f.name.lower() for f in table.schema.fields)
        self.scans.append(Scan(table, tuple(conditions), columns))

    def _cte(
        self, cte: _Cte, conditions: Sequence[exp.Expr], columns: frozenset[str] | None
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
        self, sources: Sequence[_Source], env: dict[str, _Cte], column: exp.Column
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
            known = table.schema.find(name) if table else None
            return known.type if known else None
        env = self._with_ctes(node, env)
        if isinstance(node, exp.Subquery) and not _decorated(node):
            return self._output_type(node.this, env, name)
        if not isinstance(node, exp.Select):
            return None
        items = [item for item in node.expressions if item.alias_or_name.lower() == name]
        plain = items[0].unalias() if len(items) == 1 else None
        if not isinstance(plain, exp.Column):
            return None
        return self.column_type(_sources(node), env, plain)

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


def _decorated(node: exp.Expr) -> bool:
    return any(node.args.get(name) for name in ("joins", "sample", "pivots", "laterals"))


def _heads(columns: frozenset[str]) -> frozenset[str]:
    return frozenset(path.partition(".")[0] for path in columns)


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


_BEFORE_WHERE = ("sample", "connect", "match")
"""Clauses that see rows which WHERE removes later: USING SAMPLE, CONNECT BY, MATCH_RECOGNIZE."""


class _Block:
    """One SELECT: its sources, their joins, and the conditions that reach each of them."""

    def __init__(self, walk: _Walk, select: exp.Select, env: dict[str, _Cte]):
        self.walk, self.select, self.env = walk, select, env
        self.sources = _sources(select)
        self.conditions = _conjuncts(_clause(select, "where")) + _conjuncts(
            _clause(select, "prewhere")
        )
        self.conditions += _group_key_conditions(select)
        if any(select.args.get(name) for name in _BEFORE_WHERE):
            self.conditions = []
        self.outputs = {item.alias_or_name.lower(): item for item in select.expressions}

    def run(self, pushed: Sequence[exp.Expr], needed: frozenset[str] | None) -> None:
        self.conditions += _pushed_inside(self.select, self.outputs, pushed)
        self._merge_join_keys()
        joins = _reduced_joins(self.sources, self.conditions)
        reaching = [self._reaching(index, joins) for index in range(len(self.sources))]
        clauses = self._clauses(needed)
        columns = self._columns(clauses)
        for index, source in enumerate(self.sources):
            conditions = [] if source.opaque else self._conditions(index, joins, reaching)
            read = columns[source.alias]
            if source.opaque:
                self.walk.everything(source.node, self.env)
            else:
                self.walk.source(source.node, self.env, conditions, read)
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

    def _columns(self, clauses: Sequence[exp.Expr]) -> dict[str, frozenset[str] | None]:
        """Return column paths by alias of this block, correlated subqueries included; None for
        all."""
        found: dict[str, set[str]] = {source.alias: set() for source in self.sources}
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
            on = tuple(_with_merged_keys(condition, merged) for condition in source.on)
            sources.append(replace(source, on=on))
            if source.kind not in ("INNER", "LEFT", "RIGHT"):
                continue
            for condition in on:
                if not isinstance(condition, exp.EQ):
                    continue
                one, other = condition.this, condition.expression
                columns = isinstance(one, exp.Column) and isinstance(other, exp.Column)
                if columns and other.table.lower() == source.alias:
                    merged[_name(one), _name(other)] = source.kind == "RIGHT"
        self.sources = sources
        self.conditions = [_with_merged_keys(one, merged) for one in self.conditions]

    def _conditions(
        self, index: int, joins: _Joins, reaching: Sequence[Sequence[exp.Expr]]
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
        derived = _through_equalities(own, [*own, *beside.values()], alias, self._column_type)
        shares = [_share(condition, alias) for condition in (*own, *derived)]
        return [_without_table(share) for share in shares if share is not None]

    def _reaching(self, index: int, joins: _Joins) -> list[exp.Expr]:
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


def _sources(select: exp.Select) -> list[_Source]:
    from_ = select.args.get("from_")
    if from_ is None:
        return []
    first = from_.this
    sources = [_source(first, "FIRST", None)]
    for join in select.args.get("joins") or []:
        source = _source(join.this, _kind(join), join.args.get("on"))
        sources.append(replace(source, may_be_comma=may_be_comma(join)))
    for lateral in select.args.get("laterals") or []:
        sources.append(_Source(lateral.alias.lower(), lateral, "LEFT", (), True))
    return sources


def _source(node: exp.Expr, kind: str, on: exp.Expr | None) -> _Source:
    nested = isinstance(node, exp.Subquery) and not isinstance(
        node.this, (exp.Select, exp.SetOperation, exp.Subquery)
    )
    opaque = nested or not isinstance(node, (exp.Table, exp.Subquery)) or _decorated(node)
    return _Source(node.alias_or_name.lower(), node, kind, tuple(_conjuncts(on)), opaque)


def _kind(join: exp.Join) -> str:
    """Return INNER, LEFT, RIGHT, FULL, SEMI or ANTI; NATURAL, ASOF and OPAQUE give no
    conditions."""
    if join.method:
        return "NATURAL" if join.method.upper() == "NATURAL" else "ASOF"
    if join.args.get("using"):
        return "OPAQUE"
    kind, side = (join.kind or "").upper(), (join.side or "").upper()
    if kind in ("SEMI", "ANTI"):
        return kind if side != "RIGHT" else "OPAQUE"
    if kind not in ("", "INNER", "OUTER", "CROSS", "STRAIGHT", "STRAIGHT_JOIN"):
        return "OPAQUE"
    return side or "INNER"


_UNKNOWN = ("NATURAL", "ASOF", "OPAQUE")


def may_be_comma(join: exp.Join) -> bool:
    """Whether the join may be written as a comma: sqlglot has the same node for `a, b` as for `a
    JOIN b`, and in some dialects as for `a CROSS JOIN b`."""
    named = join.method or join.side or join.args.get("using") or join.args.get("on")
    return not named and (join.kind or "").upper() in ("", "CROSS")


@dataclass(frozen=True)
class _Joins:
    """The joins of a FROM clause. kinds: how each source is joined to those before it.

    In standard SQL the comma binds weaker than JOIN, so a join has only the sources since the last
    comma on its left. In Spark, Hive and SQLite both bind alike (in Spark a setting decides).
    Answers hold for both. starts: by source, the first one on the left of its join either way.
    """

    kinds: tuple[str, ...]
    starts: tuple[int, ...]

    @property
    def last(self) -> int:
        return len(self.kinds) - 1

    def nullable(self, index: int, level: int) -> bool:
        """Whether rows of a source may be null-extended by the joins up to a level.

        A join of unknown kind may be any outer join.
        """
        own = 1 <= index <= level and self.kinds[index] in ("LEFT", "FULL", *_UNKNOWN)
        return own or self._extended(index, level)

    def _extended(self, index: int, level: int) -> bool:
        """Whether a join after a source, up to a level, may null-extend all that stands before."""
        later = self.kinds[index + 1 : level + 1]
        return any(kind in ("RIGHT", "FULL", *_UNKNOWN) for kind in later)

    def on_applies(self, index: int, level: int) -> bool:
        """Whether rows of the source that never meet the ON of a join can be removed without
        effect."""
        kind = self.kinds[level]
        if index == level:
            return kind in ("INNER", "LEFT", "SEMI", "ANTI")
        if index > level or self.nullable(index, level - 1):
            return False
        return self.filters_left(index, level)

    def filters_left(self, index: int, level: int) -> bool:
        """Whether every row of the sources up to a level that holds source `index`, null-extended
        or not, has met the ON of the join."""
        kind = self.kinds[level]
        if index >= self.starts[level]:
            return kind in ("INNER", "RIGHT", "SEMI")
        return kind in ("INNER", "SEMI") and not self._extended(level, self.last)


def _reduced_joins(sources: Sequence[_Source], where: Sequence[exp.Expr]) -> _Joins:
    """Return the joins, with outer joins reduced if a later condition rejects their null-extended
    rows."""
    starts = [0]
    for level, source in enumerate(sources[1:], start=1):
        starts.append(level if source.may_be_comma else starts[-1])
    joins = _Joins(tuple(source.kind for source in sources), tuple(starts))
    for level in reversed(range(1, len(sources))):  # only a later join's ON can reduce a join
        kind = _reduced(level, joins, sources, where)
        joins = replace(joins, kinds=(*joins.kinds[:level], kind, *joins.kinds[level + 1 :]))
    return joins


def _reduced(
    level: int, joins: _Joins, sources: Sequence[_Source], where: Sequence[exp.Expr]
) -> str:
    kind = joins.kinds[level]
    if kind not in ("LEFT", "RIGHT", "FULL"):
        return kind
    later = list(where)
    for above in range(level + 1, len(sources)):
        if joins.filters_left(level, above):
            later += sources[above].on
    own = {sources[level].alias}
    own_rejected = kind != "RIGHT" and any(_rejects_null(condition, own) for condition in later)
    if kind == "LEFT":
        return "INNER" if own_rejected else kind
    before = {source.alias for source in sources[joins.starts[level] : level]}
    before_rejected = any(_rejects_null(condition, before) for condition in later)
    if kind == "RIGHT":
        return "INNER" if before_rejected else kind
    if own_rejected and before_rejected:
        return "INNER"
    return "RIGHT" if own_rejected else "LEFT" if before_rejected else kind


_STRICT_TESTS = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.Like, exp.StartsWith)
_STRICT_FUNCTIONS = (exp.Paren, exp.Neg, exp.Cast, exp.Lower, exp.Upper, exp.Year, exp.DateTrunc,
                     exp.TimestampTrunc, exp.TsOrDsToDate, exp.Substring)  # fmt: skip


def _rejects_null(condition: exp.Expr, aliases: set[str]) -> bool:
    """Whether the condition cannot be true if every column of any one alias is NULL.

    All aliases are null-extended together, so that rejecting one of them is enough.
    """
    if isinstance(condition, exp.Paren):
        return _rejects_null(condition.this, aliases)
    if isinstance(condition, exp.And):
        return any(_rejects_null(side, aliases) for side in condition.flatten())
    if isinstance(condition, exp.Or):
        return all(_rejects_null(side, aliases) for side in condition.flatten())
    if isinstance(condition, exp.Not):
        inner = condition.this.unnest()
        if isinstance(inner, exp.Is) and isinstance(inner.expression, exp.Null):
            return _strict(inner.this, aliases)
        if isinstance(inner, exp.In):
            return inner.args.get("query") is None and _strict(inner.this, aliases)
        return isinstance(inner, (exp.Like, exp.Column)) and _rejects_null(inner, aliases)
    if isinstance(condition, _STRICT_TESTS):
        if condition.find(exp.Query) is not None:
            return False  # NULL <> ALL (nothing) is true
        return _strict(condition.this, aliases) or _strict(condition.expression, aliases)
    if isinstance(condition, exp.In):
        return _strict(condition.this, aliases)
    return isinstance(condition, exp.Column) and _strict(condition, aliases)


def _strict(node: exp.Expr, aliases: set[str]) -> bool:
    """Whether the expression is NULL if the aliases' columns are."""
    if isinstance(node, exp.Column):
        return node.table.lower() in aliases
    if isinstance(node, (exp.Add, exp.Sub, exp.Mul, exp.Div)):
        return _strict(node.this, aliases) or _strict(node.expression, aliases)
    return isinstance(node, _STRICT_FUNCTIONS) and _strict(node.this, aliases)


# Conditions as expressions


def _clause(select: exp.Select, name: str) -> exp.Expr | None:
    clause = select.args.get(name)
    return None if clause is None else clause.this


def _conjuncts(condition: exp.Expr | None) -> list[exp.Expr]:
    if condition is None or isinstance(condition, exp.Boolean):
        return [condition] if isinstance(condition, exp.Boolean) else []
    normal = normal_form(condition)
    return list(normal.flatten()) if isinstance(normal, exp.And) else [normal]


_COMPLEMENT: dict[type[exp.Expr], type[exp.Expr]] = {
    exp.EQ: exp.NEQ, exp.NEQ: exp.EQ, exp.LT: exp.GTE, exp.GTE: exp.LT, exp.GT: exp.LTE,
    exp.LTE: exp.GT, exp.NullSafeEQ: exp.NullSafeNEQ, exp.NullSafeNEQ: exp.NullSafeEQ,
}  # fmt: skip


def normal_form(node: exp.Expr, negate: bool = False) -> exp.Expr:
    """Return the negation normal form in three-valued logic, BETWEEN split; the input does not
    change."""
    if isinstance(node, exp.Paren):
        return normal_form(node.this, negate)
    if isinstance(node, exp.Not):
        return normal_form(node.this, not negate)
    if isinstance(node, (exp.And, exp.Or)):
        sides = [normal_form(side, negate) for side in node.flatten()]
        combine = exp.and_ if isinstance(node, exp.And) != negate else exp.or_
        return combine(*sides, copy=False, wrap=True)
    written = node.this if isinstance(node, exp.Escape) else node
    if written.args.get("negate"):  # `NOT LIKE` in sqlglot's tree
        plain = node.copy()
        (plain.this if isinstance(plain, exp.Escape) else plain).set("negate", None)
        return normal_form(plain, not negate)
    if isinstance(node, exp.Between):
        low, high = node.args["low"], node.args["high"]
        within = _between(node.this, low, high)
        if node.args.get("symmetric"):
            within = exp.or_(within, _between(node.this, high, low), copy=False, wrap=True)
        return normal_form(within, negate)
    if isinstance(node, exp.EQ) and isinstance(node.expression, exp.Any):
        array = node.expression.this.unnest()
        if isinstance(array, exp.Array) and array.expressions:
            items = [item.copy() for item in array.expressions]
            return normal_form(exp.In(this=node.this.copy(), expressions=items), negate)
    if not negate:
        return node.copy()
    complement = _COMPLEMENT.get(type(node))
    if complement is not None:
        return complement(this=node.this.copy(), expression=node.expression.copy())
    return exp.Not(this=node.copy())


def _between(value: exp.Expr, low: exp.Expr, high: exp.Expr) -> exp.Expr:
    return exp.and_(
        exp.GTE(this=value.copy(), expression=low.copy()),
        exp.LTE(this=value.copy(), expression=high.copy()),
        copy=False,
    )


def _share(condition: exp.Expr, alias: str) -> exp.Expr | None:
    """Return the condition on one source that another condition implies, None if it implies
    nothing."""
    if isinstance(condition, exp.Paren):
        return _share(condition.this, alias)
    if isinstance(condition, (exp.And, exp.Or)):
        shares = [_share(side, alias) for side in condition.flatten()]
        if isinstance(condition, exp.And):
            kept = [share for share in shares if share is not None]
            return exp.and_(*kept, copy=False, wrap=True) if kept else None
        if any(share is None for share in shares):
            return None
        return exp.or_(*[s for s in shares if s is not None], copy=False, wrap=True)
    if condition.find(exp.Query) is not None:
        return None
    tables = {column.table.lower() for column in condition.find_all(exp.Column)}
    return condition.copy() if tables <= {alias} else None


def _without_table(condition: exp.Expr) -> exp.Expr:
    for column in list(condition.find_all(exp.Column)):
        column.set("table", None)
    return condition


def _with_merged_keys(
    condition: exp.Expr, merged: dict[tuple[tuple[str, str], tuple[str, str]], bool]
) -> exp.Expr:
    """Return the condition with merged columns replaced.

    merged: pairs of columns that are equal or have one NULL; whether the second one is kept.
    """

    def visit(node: exp.Expr) -> exp.Expr:
        if not isinstance(node, exp.Coalesce):
            return node
        kept, *rest = [node.this, *node.expressions]
        while rest and isinstance(kept, exp.Column) and isinstance(rest[0], exp.Column):
            second = merged.get((_name(kept), _name(rest[0])))
            if second is None:
                return node
            kept, rest = rest[0] if second else kept, rest[1:]
        return node if rest else kept.copy()

    return condition.transform(visit) if merged else condition


def _through_equalities(
    joining: Sequence[exp.Expr],
    conditions: Sequence[exp.Expr],
    alias: str,
    type_of: Callable[[exp.Column], str | None],
) -> list[exp.Expr]:
    """Return conditions on the alias implied by its join keys: `a.k = b.k AND a.k = 5` implies `b.k
    = 5`.

    joining: contains the equalities. Only between columns of one type, so that both compare with
    the constant alike.
    """
    keys: dict[tuple[str, str], exp.Column] = {}
    for condition in joining:
        if not isinstance(condition, exp.EQ):
            continue
        for one, other in ((condition.this, condition.expression),
                           (condition.expression, condition.this)):  # fmt: skip
            if not (isinstance(one, exp.Column) and isinstance(other, exp.Column)):
                continue
            if one.table.lower() == alias != other.table.lower():
                own = type_of(one)
                if own is not None and own == type_of(other):
                    keys[_name(other)] = one
    derived = []
    for condition in conditions if keys else ():
        columns = list(condition.find_all(exp.Column))
        names = {_name(column) for column in columns}
        if len(names) == 1 and condition.find(exp.Query) is None:
            key = keys.get(next(iter(names)))
            if key is not None:
                derived.append(_substituted(condition, key))
    return derived


def _substituted(condition: exp.Expr, by: exp.Column) -> exp.Expr:
    def visit(node: exp.Expr) -> exp.Expr:
        return by.copy() if isinstance(node, exp.Column) else node

    return condition.transform(visit)


# Group keys and outputs


def _group_keys(select: exp.Select) -> list[exp.Expr] | None:
    """Return the GROUP BY keys; None if there is no grouping by plain keys (rollup, cube).

    ALL means every item of the SELECT that is not an aggregate.
    """
    group = select.args.get("group")
    if group is None:
        return None
    special = ("grouping_sets", "cube", "rollup", "totals")
    every = bool(group.args.get("all"))
    if any(group.args.get(name) for name in special) or bool(group.expressions) == every:
        return None
    if every:
        items = [item.unalias() for item in select.expressions]
        return [item for item in items if item.find(exp.AggFunc, exp.Window, exp.Query) is None]
    if any(node.find(exp.Rollup, exp.Cube, exp.GroupingSets) for node in group.expressions):
        return None
    return list(group.expressions)


def _group_key_conditions(select: exp.Select) -> list[exp.Expr]:
    """Return the HAVING conditions that use only group keys, because they hold for the rows
    themselves."""
    keys = _group_keys(select)
    if keys is None:
        return []
    plain = {_name(key) for key in keys if isinstance(key, exp.Column)}
    return [
        condition
        for condition in _conjuncts(_clause(select, "having"))
        if condition.find(exp.AggFunc, exp.Query, exp.Window) is None
        and {_name(column) for column in condition.find_all(exp.Column)} <= plain
    ]


def _name(column: exp.Column) -> tuple[str, str]:
    return column.table.lower(), column.name.lower()


def _pushed_inside(
    select: exp.Select, outputs: dict[str, exp.Expr], pushed: Sequence[exp.Expr]
) -> list[exp.Expr]:
    """Return conditions on a derived table's output as conditions on its inner rows, if
    possible."""
    if not pushed or any(select.args.get(name) for name in _BEFORE_WHERE):
        return []
    distinct = select.args.get("distinct")
    if distinct is not None and distinct.args.get("on") is not None:
        return []
    passing = _passing_outputs(select, outputs)
    sizes = {name: sum(1 for _ in item.walk()) for name, item in passing.items()}
    inside = []
    for condition in pushed:
        names = {column.name.lower() for column in condition.find_all(exp.Column)}
        if names and names <= passing.keys() and _inlined_size(condition, sizes) <= MAX_EXPANDED:
            inside.append(_inlined(condition, passing))
    return inside


def _passing_outputs(select: exp.Select, outputs: dict[str, exp.Expr]) -> dict[str, exp.Expr]:
    """Return the output columns on which a filter may move below the SELECT, with their
    expressions.

    Below an aggregation these are the group keys, below window functions the columns by which every
    window is partitioned.
    """
    plain = {name: item.unalias() for name, item in outputs.items() if name}
    if len(plain) != len(select.expressions):
        return {}
    allowed: list[list[exp.Expr]] = []
    keys = _group_keys(select)
    if select.args.get("group") is not None:
        allowed.append(keys or [])
    elif any(_aggregates(item) for item in plain.values()) or select.args.get("having"):
        return {}
    qualify = select.args.get("qualify")
    if qualify is not None and qualify.find(exp.Query) is not None:
        return {}
    windows = [w for item in plain.values() for w in item.find_all(exp.Window)]
    windows += qualify.find_all(exp.Window) if qualify is not None else []
    if windows and select.args.get("windows"):
        return {}
    allowed += [window.args.get("partition_by") or [] for window in windows]
    return {
        name: item
        for name, item in plain.items()
        if all(item in keys for keys in allowed)
        and item.find(exp.Query, exp.Window, exp.Explode, exp.Unnest, exp.Rand) is None
    }


def _aggregates(item: exp.Expr) -> bool:
    """Whether the item is an aggregate of this SELECT: not of a window, nor in a subquery."""
    return any(_aggregates_here(function, item) for function in item.find_all(exp.AggFunc))


def _aggregates_here(function: exp.Expr, item: exp.Expr) -> bool:
    node = function
    while node is not item and node.parent is not None:
        node = node.parent
        if isinstance(node, (exp.Window, exp.Query)):
            return False
        if isinstance(node, exp.AggFunc):
            return True
    return True


def _inlined_size(condition: exp.Expr, sizes: Mapping[str, int]) -> int:
    """Nodes of a condition once its columns are what they stand for, which may double them at each
    level of derived tables."""
    return sum(
        sizes.get(node.name.lower(), 1) if isinstance(node, exp.Column) else 1
        for node in condition.walk()
    )


def _inlined(condition: exp.Expr, outputs: dict[str, exp.Expr]) -> exp.Expr:
    def visit(node: exp.Expr) -> exp.Expr:
        if isinstance(node, exp.Column) and not node.table:
            item = outputs[node.name.lower()].copy()
            return item if isinstance(item, (exp.Column, exp.Literal)) else exp.paren(item)
        return node

    return condition.transform(visit)


# Columns


def _path(column: exp.Column) -> str:
    path = column.name.lower()
    node: exp.Expr = column
    while isinstance(node.parent, exp.Dot) and node.parent.this is node:
        node = node.parent
        path += "." + node.expression.name.lower()
    return path


def _shadowed(column: exp.Column, alias: str, within: exp.Expr) -> bool:
    """Whether a subquery between the column and this block defines the same alias."""
    node = column.parent
    while node is not None and node is not within.parent:
        if isinstance(node, exp.Select) and alias in {s.alias for s in _sources(node)}:
            return True
        node = node.parent
    return False
