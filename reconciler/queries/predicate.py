"""Predicates over one table: the tree, its shape, and how it prints.

A tree holds no literals, only slots: the same tree with other literals is the same *shape*, so
that a thousand queries of one template are one tree and an array per slot. Literals live in the
column's domain (`values`) and are kept beside the tree, in slot order. `pruning` evaluates a tree
over bounds, `row_filter` over rows; `fragments` groups queries by shape.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from reconciler.table.pairs import Pair, pair_of
from reconciler.table.schema import Schema
from reconciler.table.values import Scalar, show

Literal = Scalar | tuple[Scalar, ...]
"""The value of a slot: a scalar, or for In a tuple of distinct scalars."""


@dataclass(frozen=True, slots=True)
class Ref:
    """What a condition is on, by a column and a transform. There are five kinds:

    - the column itself ("identity");
    - an Iceberg partition transform of it ("month", "bucket[16]", ...);
    - the truth of a comparison with another column ("less[7]": less than column 7; `table.pairs`);
    - the truth of LIKE a pattern beyond a prefix ("like");
    - the truth of a condition that computes with the column ("expression"), such as lower(c) = 'x'.

    Bounds say nothing of the last three.
    """

    field_id: int
    """Field id of the column."""
    transform: str = "identity"
    """Name of the transform or of the condition; "identity" for the column itself."""

    @property
    def pair(self) -> Pair | None:
        """Return the condition between two columns, None for what is of one column."""
        return pair_of(self.field_id, self.transform)

    @property
    def unbounded(self) -> bool:
        """Whether it is the truth of a condition that no bound says anything of."""
        return self.transform in (LIKE, EXPRESSION) or self.pair is not None


@dataclass(frozen=True, slots=True)
class Comparison:
    """A comparison of a column with a literal. NULL and NaN never match, except NaN under "!="."""

    ref: Ref
    """The column."""
    op: str
    """One of < <= = != > >=."""
    slot: int
    """Slot of the literal."""


@dataclass(frozen=True, slots=True)
class In:
    """A column whose value is one of a list. NOT IN is Not(In); like != it does not match NULL."""

    ref: Ref
    """The column."""
    slot: int
    """Slot of the list."""


@dataclass(frozen=True, slots=True)
class StartsWith:
    """A string column that begins with slot's bytes; NOT LIKE 'x%' is Not(StartsWith)."""

    ref: Ref
    """The column."""
    slot: int
    """Slot of the prefix, in bytes."""


LIKE = "like"
"""The transform of a text that is compared with a pattern beyond a prefix."""
EXPRESSION = "expression"
"""The transform of the first column in a condition that no engine turns into one on columns."""


@dataclass(frozen=True, slots=True)
class IsNull:
    ref: Ref


@dataclass(frozen=True, slots=True)
class IsNaN:
    ref: Ref


@dataclass(frozen=True, slots=True)
class First:
    """The rows that come first in the order of a column: ORDER BY ref LIMIT rows.

    Which values these are depends on the table: `first_rows` replaces it by a comparison. Until
    then it is true for every row, so that it never claims that a query reads less than it does.
    """

    ref: Ref
    """The column by which rows are ordered."""
    descending: bool
    """Whether the greatest values come first."""
    rows: int
    """Number of rows that the query asks for."""


@dataclass(frozen=True, slots=True)
class Not:
    child: Predicate


@dataclass(frozen=True, slots=True)
class And:
    children: tuple[Predicate, ...]


@dataclass(frozen=True, slots=True)
class Or:
    children: tuple[Predicate, ...]


@dataclass(frozen=True, slots=True)
class Always:
    """TRUE or FALSE, e.g. a condition that cannot be pushed down is Always(True)."""

    value: bool


Predicate = Comparison | In | StartsWith | IsNull | IsNaN | First | Not | And | Or | Always
TRUE = Always(True)
FALSE = Always(False)


def walk(predicate: Predicate) -> Iterator[Predicate]:
    """Yield the tree's nodes, parents before children, left to right."""
    yield predicate
    if isinstance(predicate, Not):
        yield from walk(predicate.child)
    elif isinstance(predicate, (And, Or)):
        for child in predicate.children:
            yield from walk(child)


def slots_of(predicate: Predicate) -> tuple[int, ...]:
    """Return the slots in the order of the walk; a well-formed tree has 0..n-1, each once."""
    return tuple(
        node.slot for node in walk(predicate) if isinstance(node, (Comparison, In, StartsWith))
    )


@lru_cache(maxsize=4096)
def fields_of(predicate: Predicate) -> tuple[int, ...]:
    """Return the distinct field ids that the predicate reads, ascending."""
    refs = _refs_of(predicate)
    pairs = (ref.pair for ref in refs if ref.transform != "identity")
    other = {pair.right for pair in pairs if pair is not None}
    return tuple(sorted({ref.field_id for ref in refs} | other))


@lru_cache(maxsize=4096)
def bounded_fields_of(predicate: Predicate) -> tuple[int, ...]:
    """Return the distinct field ids whose bounds may rule the predicate out, ascending."""
    return tuple(sorted({ref.field_id for ref in _refs_of(predicate) if not ref.unbounded}))


def _refs_of(predicate: Predicate) -> set[Ref]:
    leaves = (Comparison, In, StartsWith, IsNull, IsNaN, First)
    return {node.ref for node in walk(predicate) if isinstance(node, leaves)}


def could_skip(predicate: Predicate) -> bool:
    """Whether files, row groups or rows could be skipped by the predicate. TRUE skips nothing, nor
    does a condition of which bounds say nothing."""
    if isinstance(predicate, And):
        return any(could_skip(child) for child in predicate.children)
    if isinstance(predicate, Or):
        return all(could_skip(child) for child in predicate.children)
    if isinstance(predicate, Comparison):
        return not predicate.ref.unbounded
    return predicate != TRUE


def uncut_of(predicate: Predicate) -> frozenset[Ref]:
    """Return the conditions of a predicate that no bound says anything of."""
    refs = (node.ref for node in walk(predicate) if isinstance(node, Comparison))
    return frozenset(ref for ref in refs if ref.unbounded)


def pairs_of(predicate: Predicate) -> frozenset[Pair]:
    """Return the conditions between two columns in a predicate."""
    found = (node.ref.pair for node in walk(predicate) if isinstance(node, Comparison))
    return frozenset(pair for pair in found if pair is not None)


def by_pairs(predicate: Predicate, known: Mapping[Pair, int]) -> Predicate:
    """Return the predicate with these pairs as columns of truth values. known: field ids of such
    columns."""
    if isinstance(predicate, Not):
        return Not(by_pairs(predicate.child, known))
    if isinstance(predicate, (And, Or)):
        return type(predicate)(tuple(by_pairs(child, known) for child in predicate.children))
    if isinstance(predicate, Comparison):
        pair = predicate.ref.pair
        if pair is not None and pair in known:
            return replace(predicate, ref=Ref(known[pair]))
    return predicate


def only_null_tests(predicate: Predicate) -> bool:
    """Whether the predicate only asks if columns are NULL, as joins do of their keys."""
    leaves = [node for node in walk(predicate) if not isinstance(node, And | Or | Not)]
    return bool(leaves) and all(isinstance(leaf, IsNull) for leaf in leaves)


def push_not(predicate: Predicate, negate: bool = False) -> Predicate:
    """Return the predicate with negations moved onto the leaves, by De Morgan.

    A negated leaf becomes Not(leaf), comparisons too. Logic is three-valued, so that neither the
    leaf nor its negation matches NULL; IsNull and IsNaN are two-valued. `predicate_batch.leaf_of`
    turns Not(leaf) into the complement. negate: whether the negation of the predicate is wanted.
    """
    if isinstance(predicate, Not):
        return push_not(predicate.child, not negate)
    if isinstance(predicate, (And, Or)):
        children = tuple(push_not(child, negate) for child in predicate.children)
        conjunction = isinstance(predicate, And) != negate
        return And(children) if conjunction else Or(children)
    if isinstance(predicate, Always):
        return Always(predicate.value != negate)
    return Not(predicate) if negate else predicate


def render(predicate: Predicate, schema: Schema, literals: Sequence[Literal] | None = None) -> str:
    """Return the predicate as SQL-like text; literals as `?` unless they are given.

    Values are customers' data: pass literals only if the user asked for --show-literals.
    """
    return _render(predicate, schema, literals, parent="")


def _render(
    node: Predicate, schema: Schema, literals: Sequence[Literal] | None, parent: str
) -> str:
    if isinstance(node, Always):
        return "TRUE" if node.value else "FALSE"
    if isinstance(node, Not):
        if isinstance(node.child, (IsNull, IsNaN, In, StartsWith)):
            return _render_leaf(node.child, schema, literals, "NOT ")
        return f"NOT ({_render(node.child, schema, literals, '')})"
    if isinstance(node, (And, Or)):
        word = " AND " if isinstance(node, And) else " OR "
        text = word.join(_render_children(node, schema, literals, word))
        return f"({text})" if parent and parent != word else text
    return _render_leaf(node, schema, literals, "")


def _render_leaf(
    node: Comparison | In | StartsWith | IsNull | IsNaN | First,
    schema: Schema,
    literals: Sequence[Literal] | None,
    negation: str,
) -> str:
    """Return one leaf as text. negation: "" or "NOT ", where SQL puts it: `c IS NOT NULL`, `c NOT
    IN (?)`."""
    name = _ref_name(node.ref, schema)
    if isinstance(node, IsNull):
        return f"{name} IS {negation}NULL"
    if isinstance(node, IsNaN):
        return f"{name} IS {negation}NAN"
    if isinstance(node, First):
        return f"{'last' if node.descending else 'first'} {node.rows} by {name}"
    pair = node.ref.pair
    if pair is not None and isinstance(node, Comparison):
        sign = pair.sign if node.op == ">=" else pair.opposite
        return f"{name} {sign} {schema.name_of(pair.right)}"
    if node.ref.transform == LIKE and isinstance(node, Comparison):
        return f"{name} {'' if node.op == '>=' else 'NOT '}LIKE ?"
    if node.ref.transform == EXPRESSION:
        return name
    value = _slot_text(node, schema, literals)
    if isinstance(node, In):
        return f"{name} {negation}IN ({value})"
    if isinstance(node, StartsWith):
        return f"{name} {negation}LIKE {value}%"
    return f"{name} {node.op} {value}"


def _render_children(
    node: And | Or, schema: Schema, literals: Sequence[Literal] | None, word: str
) -> list[str]:
    """Return the children as text; adjacent `c >= ? AND c <= ?` print as BETWEEN, as people write
    them."""
    texts: list[str] = []
    children = list(node.children)
    while children:
        first = children.pop(0)
        second = children[0] if children else None
        if (
            isinstance(node, And)
            and isinstance(first, Comparison)
            and isinstance(second, Comparison)
            and (first.op, second.op) == (">=", "<=")
            and first.ref == second.ref
        ):
            children.pop(0)
            low, high = (_slot_text(leaf, schema, literals) for leaf in (first, second))
            texts.append(f"{_ref_name(first.ref, schema)} BETWEEN {low} AND {high}")
        else:
            texts.append(_render(first, schema, literals, word))
    return texts


def _ref_name(ref: Ref, schema: Schema) -> str:
    name = schema.name_of(ref.field_id)
    if ref.transform in ("identity", LIKE) or ref.pair is not None:
        return name
    if ref.transform == EXPRESSION:
        return f"expression of {name}"
    function, _, argument = ref.transform.partition("[")
    return f"{function}({argument.rstrip(']')}, {name})" if argument else f"{function}({name})"


def _slot_text(
    leaf: Comparison | In | StartsWith, schema: Schema, literals: Sequence[Literal] | None
) -> str:
    if literals is None:
        return "?"
    field = schema.by_id.get(leaf.ref.field_id)
    kind = field.type if field and leaf.ref.transform == "identity" else "int"
    value = literals[leaf.slot]
    values = value if isinstance(value, tuple) else (value,)
    return ", ".join(show(kind, item) for item in values)
