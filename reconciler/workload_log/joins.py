"""Names what a SELECT reads and how it is joined.

An outer join becomes an inner one if a later condition rejects its null-extended rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from reconciler.workload_log.conjuncts import conjuncts_of


@dataclass(frozen=True)
class Source:
    """An item of FROM."""

    alias: str
    """The name that columns are qualified by."""
    node: exp.Expr
    """The item's expression."""
    kind: str
    """How it is joined to the items before it."""
    on: tuple[exp.Expr, ...]
    """The conjuncts of its ON clause."""
    opaque: bool
    """Whether nothing can be derived for it, because it is sampled, pivoted, lateral or a nested
    join."""
    may_be_comma: bool = False
    """Whether a comma may stand before it."""


def is_decorated(node: exp.Expr) -> bool:
    return any(node.args.get(name) for name in ("joins", "sample", "pivots", "laterals"))


def sources_of(select: exp.Select) -> list[Source]:
    from_ = select.args.get("from_")
    if from_ is None:
        return []
    first = from_.this
    sources = [_source(first, "FIRST", None)]
    for join in select.args.get("joins") or []:
        source = _source(join.this, _kind(join), join.args.get("on"))
        sources.append(replace(source, may_be_comma=may_be_comma(join)))
    for lateral in select.args.get("laterals") or []:
        sources.append(Source(lateral.alias.lower(), lateral, "LEFT", (), True))
    return sources


def _source(node: exp.Expr, kind: str, on: exp.Expr | None) -> Source:
    nested = isinstance(node, exp.Subquery) and not isinstance(
        node.this, (exp.Select, exp.SetOperation, exp.Subquery)
    )
    opaque = nested or not isinstance(node, (exp.Table, exp.Subquery)) or is_decorated(node)
    return Source(node.alias_or_name.lower(), node, kind, tuple(conjuncts_of(on)), opaque)


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
class Joins:
    """The joins of a FROM clause.

    In standard SQL the comma binds weaker than JOIN, so a join has only the sources since the last
    comma on its left. In Spark, Hive and SQLite both bind alike (in Spark a setting decides).
    Answers hold for both.
    """

    kinds: tuple[str, ...]
    """How each source is joined to those before it."""
    starts: tuple[int, ...]
    """By source, the first source on the left of its join, whichever way the comma binds."""

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


def reduced_joins(sources: Sequence[Source], where: Sequence[exp.Expr]) -> Joins:
    """Return the joins, with outer joins reduced if a later condition rejects their null-extended
    rows."""
    starts = [0]
    for level, source in enumerate(sources[1:], start=1):
        starts.append(level if source.may_be_comma else starts[-1])
    joins = Joins(tuple(source.kind for source in sources), tuple(starts))
    for level in reversed(range(1, len(sources))):  # only a later join's ON can reduce a join
        kind = _reduced(level, joins, sources, where)
        joins = replace(joins, kinds=(*joins.kinds[:level], kind, *joins.kinds[level + 1 :]))
    return joins


def _reduced(level: int, joins: Joins, sources: Sequence[Source], where: Sequence[exp.Expr]) -> str:
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
