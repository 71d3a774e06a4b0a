"""Trees of cuts: which leaf a row belongs to, and what a leaf may hold (Yang et al., "Qd-tree:
Learning Data Layouts for Big Data Analytics", sections 3 and 3.2).

An inner node holds a cut, `column < value`: rows for which it is true go left, all others right.
Every cut is a threshold in the total order of its column, NULL first, then values, NaN last, so
that the rows of a leaf are a range of every column: what bounds in manifests and footers can
express. A tree may also cut by conditions between two columns (section 6.1: advanced cuts), each
like a column of truth values. Files have no bounds of these: only block ids skip by them. A tree is
written once, as text, and named by the hash of that text.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import math
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from reconciler.table.filetable import Array, Int64
from reconciler.table.pairs import TRUTHS, Pair, pair_number, ranked, sound
from reconciler.table.values import Scalar, decode_partition_value, encode_partition_value

VERSION = 2
"""Version of the text of a tree with pairs. A later one is refused."""
PLAIN_VERSION = 1
"""Version of the text of a tree without pairs, which earlier releases read too."""
PREFIX = "cut-tree:"
LEAF = -1
"""Marks a leaf among the nodes of a tree."""
MOST_BYTES = 16 << 20
"""Most bytes of a tree's unpacked text: a longer one is no tree of ours."""
MOST_LEAVES = 1 << 16
MOST_BOXES = 1 << 24
"""Most leaves times columns: who reads a tree holds two numbers of each."""


class NotATree(ValueError):
    """The text is not a tree, or one of a later version; the reason follows."""


@dataclass(frozen=True, slots=True)
class Cut:
    """Parts the rows of a column at a threshold."""

    field_id: int
    """Field id of the column; -1 for the first pair of the tree, -2 for the second."""
    value: Scalar | None
    """The threshold, in the column's domain (`values`). None parts NULL from everything else, and
    NaN parts everything else from NaN."""
    inclusive: bool = False
    """Whether rows that are equal to the value go left too."""

    @property
    def place(self) -> tuple[int, Any, bool]:
        """Return what cuts of one column are ordered by."""
        if self.value is None:
            return -1, 0, False
        if isinstance(self.value, float) and math.isnan(self.value):
            return 1, 0, False
        return 0, self.value, self.inclusive


@dataclass(frozen=True, eq=False)
class Tree:
    """A tree of cuts. Trees that do the same are equal."""

    cuts: tuple[Cut, ...]
    """The distinct cuts, by field id and then in the order of their thresholds."""
    nodes: tuple[int, ...]
    """The nodes, each before its left and then its right subtree: the index of its cut, or LEAF."""
    inner: tuple[int, ...]
    """Per leaf, from left to right: field id of the column by which its rows are sorted, 0 if they
    stay in order of arrival."""
    pairs: tuple[Pair, ...] = ()
    """The conditions between two columns that it cuts by."""

    def __hash__(self) -> int:
        return hash(self.name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tree) and self.name == other.name

    @property
    def leaves(self) -> int:
        return len(self.inner)

    @cached_property
    def columns(self) -> tuple[int, ...]:
        """Return the field ids of all columns that decide a row's place, ascending."""
        return tuple(sorted({*self.cut_columns, *self.inner} - {0}))

    @cached_property
    def cut_columns(self) -> tuple[int, ...]:
        """Return the field ids of all columns that decide a row's leaf, ascending."""
        return tuple(sorted({one for cut in self.cuts for one in self.columns_of(cut)}))

    def columns_of(self, cut: Cut) -> tuple[int, ...]:
        """Return the field ids of the columns that a cut compares."""
        pair = self.pair_of(cut.field_id)
        return (cut.field_id,) if pair is None else pair.fields

    def pair_of(self, field_id: int) -> Pair | None:
        """Return the pair that is cut like a column, None for a column of the table."""
        return None if field_id > 0 else self.pairs[pair_number(field_id)]

    @cached_property
    def of_column(self) -> Mapping[int, tuple[Cut, ...]]:
        """Return the cuts of each column or pair that is cut, in the order of their thresholds."""
        found: dict[int, list[Cut]] = {}
        for cut in self.cuts:
            found.setdefault(cut.field_id, []).append(cut)
        return {field: tuple(own) for field, own in found.items()}

    @cached_property
    def _body(self) -> bytes:
        """Return the tree as canonical JSON."""
        body: dict[str, Any] = {
            "cuts": [
                [cut.field_id, encode_partition_value(cut.value), int(cut.inclusive)]
                for cut in self.cuts
            ],
            "inner": list(self.inner),
            "nodes": list(self.nodes),
        }
        if self.pairs:
            body["pairs"] = [[one.left, one.test, one.right] for one in self.pairs]
        return json.dumps(body, sort_keys=True, separators=(",", ":")).encode()

    @cached_property
    def text(self) -> str:
        """Return the tree as text, which `tree_of` reads."""
        version = VERSION if self.pairs else PLAIN_VERSION
        return f"{PREFIX}{version}:{base64.b64encode(zlib.compress(self._body, 9)).decode()}"

    @cached_property
    def name(self) -> str:
        """Return the SHA-256 of what the tree does, hex: equal for equal trees, however packed."""
        return hashlib.sha256(self._body).hexdigest()

    @cached_property
    def _right(self) -> tuple[int, ...]:
        """Return the right child of each node, itself for a leaf. The left one is the next node."""
        right, open_at = list(range(len(self.nodes))), list[int]()
        for at in range(len(self.nodes) - 1, -1, -1):
            if self.nodes[at] == LEAF:
                open_at.append(at)
            else:
                left = open_at.pop()
                right[at] = open_at.pop()
                assert left == at + 1
                open_at.append(at)
        return tuple(right)

    @cached_property
    def _first_leaf(self) -> tuple[int, ...]:
        """Return the number of leaves before each node."""
        found, seen = [], 0
        for node in self.nodes:
            found.append(seen)
            seen += node == LEAF
        return tuple(found)

    @cached_property
    def _number(self) -> tuple[int, ...]:
        """Return the place of each cut among the cuts of its column."""
        return tuple(
            number for own in self.of_column.values() for number in range(len(own))
        )  # cuts are ordered by column

    def leaf_of(self, codes: Mapping[int, npt.NDArray[np.integer[Any]]], rows: int) -> Int64:
        """Return the leaf of each row, int64[rows].

        codes: per column that is cut, how many of its thresholds are at or below each row: a row is
        left of cut k of its column if its code is at most k.
        """
        found = np.zeros(rows, dtype=np.int64)
        left: list[tuple[int, Int64 | None]] = [(0, None)]
        while left:
            at, own = left.pop()
            node = self.nodes[at]
            if node == LEAF:
                if own is None:
                    found[:] = self._first_leaf[at]
                else:
                    found[own] = self._first_leaf[at]
                continue
            known = codes[self.cuts[node].field_id]
            goes_left = (known if own is None else known[own]) <= self._number[node]
            chosen = np.flatnonzero(goes_left), np.flatnonzero(~goes_left)
            for child, some in zip((at + 1, self._right[at]), chosen, strict=True):
                if len(some):
                    left.append((child, some if own is None else own[some]))
        return found

    @cached_property
    def boxes(self) -> Mapping[int, tuple[Int64, Int64]]:
        """Return, per column that is cut, the least and the greatest code that each leaf may hold,
        int64[leaves] each."""
        most = {field: len(own) for field, own in self.of_column.items()}
        low = {field: np.zeros(self.leaves, dtype=np.int64) for field in most}
        high = {field: np.full(self.leaves, end, dtype=np.int64) for field, end in most.items()}
        for at, node in enumerate(self.nodes):
            if node == LEAF:
                continue
            field, number = self.cuts[node].field_id, self._number[node]
            start, middle = self._first_leaf[at], self._first_leaf[self._right[at]]
            end = self._end_leaf[at]
            np.minimum(high[field][start:middle], number, out=high[field][start:middle])
            np.maximum(low[field][middle:end], number + 1, out=low[field][middle:end])
        return {field: (low[field], high[field]) for field in most}

    @cached_property
    def partings(self) -> Int64:
        """Return how deep in the tree each leaf parts from the next, int64[leaves - 1]: 0 at the
        first cut."""
        found = np.zeros(max(self.leaves - 1, 0), dtype=np.int64)
        for at, (depth, node, _) in enumerate(self.walk()):
            if node != LEAF:
                found[self._first_leaf[self._right[at]] - 1] = depth
        return found

    @cached_property
    def _end_leaf(self) -> tuple[int, ...]:
        """Return the number of leaves before and in the subtree of each node."""
        found = [first + 1 for first in self._first_leaf]
        for at in range(len(self.nodes) - 1, -1, -1):
            found[at] = found[self._right[at]]
        return tuple(found)

    @property
    def by_weight(self) -> tuple[int, ...]:
        """Return the field ids of the columns that are cut, that of the first cut first, then those
        whose cuts have most leaves below them."""
        below: dict[int, int] = {}
        for _, node, leaves in self.walk():
            if node != LEAF:
                for field in self.columns_of(self.cuts[node]):
                    below[field] = below.get(field, 0) + leaves
        return tuple(sorted(below, key=lambda field: (-below[field], field)))

    @property
    def bands(self) -> tuple[int, int] | None:
        """Return the only column that is cut, and the other one that all leaves are sorted by; None
        for another tree."""
        fields = {cut.field_id for cut in self.cuts}
        if self.pairs or len(fields) != 1 or len(set(self.inner)) != 1 or self.inner[0] in fields:
            return None
        return (self.cuts[0].field_id, self.inner[0]) if self.inner[0] else None

    def leaves_left_of(self, at: int) -> int:
        """Return the number of leaves left of the cut of node `at`, which is no leaf."""
        return self._first_leaf[self._right[at]] - self._first_leaf[at]

    def walk(self) -> Iterator[tuple[int, int, int]]:
        """Yield each node as (depth, its cut's index or LEAF, leaves below it), parents first."""
        depth: list[int] = [0]
        for at, node in enumerate(self.nodes):
            own = depth.pop()
            yield own, node, self._end_leaf[at] - self._first_leaf[at]
            if node != LEAF:
                depth += [own + 1, own + 1]


def tree_of(text: str) -> Tree:
    """Return the tree of a text. Raises NotATree."""
    if not text.startswith(PREFIX):
        raise NotATree("the tree does not begin as one")
    version, _, packed = text.removeprefix(PREFIX).partition(":")
    if version not in (str(PLAIN_VERSION), str(VERSION)):
        raise NotATree(f"the tree has version {version[:20]!r}, and this release reads {VERSION}")
    try:
        stream = zlib.decompressobj()
        raw = stream.decompress(base64.b64decode(packed, validate=True), MOST_BYTES)
        if not stream.eof:
            raise NotATree("the tree is cut off, or too large")
        body = json.loads(raw)
        cuts = tuple(
            Cut(_whole(field), decode_partition_value(value), bool(inclusive))
            for field, value, inclusive in body["cuts"]
        )
        pairs = tuple(
            Pair(_whole(left), str(test), _whole(right))
            for left, test, right in body.get("pairs", [])
        )
        nodes, inner = (tuple(map(_whole, body[name])) for name in ("nodes", "inner"))
        found = Tree(cuts, nodes, inner, pairs)
    except (zlib.error, binascii.Error, ValueError, KeyError, TypeError, RecursionError) as error:
        if isinstance(error, NotATree):
            raise
        raise NotATree("the tree cannot be unpacked") from error
    _require_sound(found)
    if (version == str(VERSION)) != bool(found.pairs):
        raise NotATree("the tree has another version than its cuts")
    return found


def _whole(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise NotATree("the tree has a number that is not whole")
    return value


def _require_sound(tree: Tree) -> None:
    """Raise NotATree if the nodes are not one tree, or cuts are out of order."""
    if tree.leaves > MOST_LEAVES:
        raise NotATree(f"the tree has more than {MOST_LEAVES} leaves")
    pending, leaves = 1, 0
    for node in tree.nodes:
        if pending == 0 or not LEAF <= node < len(tree.cuts):
            raise NotATree("the nodes are not those of one tree")
        pending += -1 if node == LEAF else 1
        leaves += node == LEAF
    if pending or leaves != tree.leaves:
        raise NotATree("the nodes are not those of one tree")
    fields = [cut.field_id for cut in tree.cuts]
    if fields != sorted(fields):
        raise NotATree("the cuts are not in the order of their columns")
    if len(tree.of_column) * tree.leaves > MOST_BOXES:
        raise NotATree("the tree has too many columns for its leaves")
    for own in tree.of_column.values():
        kinds = {type(cut.value) for cut in own if cut.value is not None}
        if len(kinds) > 1 or any(not one.place < two.place for one, two in pairwise(own)):
            raise NotATree("the cuts of a column are not in order")
    _require_sound_pairs(tree)


def _require_sound_pairs(tree: Tree) -> None:
    """Raise NotATree if pairs are none, or are not those that the tree cuts by."""
    used = {cut.field_id for cut in tree.cuts if cut.field_id <= 0}
    known = {-1 - number for number in range(len(tree.pairs))}
    twice = len(set(tree.pairs)) < len(tree.pairs)
    if used != known or twice or not all(map(sound, tree.pairs)) or min(tree.inner) < 0:
        raise NotATree("the conditions between columns are not those of the cuts")
    if any(cut.value not in (None, 0, 1) for cut in tree.cuts if cut.field_id < 0):
        raise NotATree("a condition between columns is cut at what is no truth value")


def made(root: Any, inner: Sequence[int], pairs: Sequence[Pair] = ()) -> Tree:
    """Return the tree of nested nodes: a leaf is None, another is (cut, left, right). inner: per
    leaf. pairs: those that cuts name by -1, -2 and so on; the tree has the ones that it cuts by."""
    found: list[Cut | None] = []
    left = [root]
    while left:
        node = left.pop()
        if node is None:
            found.append(None)
            continue
        cut, low, high = node
        found.append(cut)
        left += [high, low]
    used = sorted({cut.field_id for cut in found if cut is not None and cut.field_id < 0})[::-1]
    number_of = {field: -1 - number for number, field in enumerate(used)}
    found = [
        cut if cut is None or cut.field_id > 0 else replace(cut, field_id=number_of[cut.field_id])
        for cut in found
    ]
    cuts = sorted({cut for cut in found if cut is not None}, key=lambda c: (c.field_id, c.place))
    index = {cut: number for number, cut in enumerate(cuts)}
    nodes = tuple(LEAF if cut is None else index[cut] for cut in found)
    return Tree(tuple(cuts), nodes, tuple(inner), tuple(pairs[pair_number(one)] for one in used))


def codes_of(cuts: Sequence[Cut], places: Int64, distinct: Any) -> Int64:
    """Return how many thresholds of one column are at or below each row, int64[rows].

    places: of the rows' values in `distinct`, which ascends; -1 for NULL, len(distinct) for NaN.
    """
    thresholds = thresholds_of(cuts, distinct)
    return np.searchsorted(thresholds, places, side="right").astype(np.int64)


def codes_of_values(cuts: Sequence[Cut], values: Array) -> Int64:
    """Return the codes of values that are neither NULL nor NaN, int64[values], as `codes_of` does.

    values: in the column's domain.
    """
    found = np.full(len(values), sum(cut.value is None for cut in cuts), dtype=np.int64)
    own = [cut for cut in cuts if cut.place[0] == 0]
    sides: tuple[tuple[bool, Literal["left", "right"]], ...] = ((False, "right"), (True, "left"))
    for inclusive, side in sides:
        at = [cut.value for cut in own if cut.inclusive == inclusive]
        if at:
            found += np.searchsorted(np.array(at), values, side=side)
    return found


def leaves_of_ranks(tree: Tree, known: Mapping[int, tuple[Int64, Any]], rows: int) -> Int64:
    """Return the leaf of each row, int64[rows].

    known: by the field id of each column that is cut, the rows' places in its distinct values, and
    these values, as `codes_of` takes them.
    """
    codes = {}
    for field, cuts in tree.of_column.items():
        pair = tree.pair_of(field)
        if pair is None:
            codes[field] = codes_of(cuts, *known[field])
        else:
            sides = (known[one] for one in pair.fields)
            codes[field] = codes_of(cuts, ranked(pair, *sides), TRUTHS)
    return tree.leaf_of(codes, rows)


def thresholds_of(cuts: Sequence[Cut], distinct: Any) -> Int64:
    """Return the first place at or above each cut of one column, int64[cuts]; -1 is NULL's."""
    found = np.empty(len(cuts), dtype=np.int64)
    for number, cut in enumerate(cuts):
        kind = cut.place[0]
        if kind:
            found[number] = 0 if kind < 0 else len(distinct)
        else:
            side: Literal["left", "right"] = "right" if cut.inclusive else "left"
            found[number] = np.searchsorted(distinct, np.asarray(cut.value), side=side)
    return found
