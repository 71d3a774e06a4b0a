"""Orderings: in which order a rewrite writes rows, and what follows from that.

An ordering knows its canonical form, how sampled rows sort by it, which files must be rewritten
together for it to hold, and how people read it. A new ordering is a class here, an entry in
ORDERINGS if policies may name it, and how rows are ordered by it (`rewrite.order`,
`rewrite.leaves`, `spark.fallback.fallback`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from reconciler.plan import grouping
from reconciler.plan.grouping import Extents, Grouping
from reconciler.plan.leaf_drift import all_ends, leaves_between
from reconciler.table.cut_tree import Tree, leaves_of_ranks, tree_of
from reconciler.table.filetable import Array, FileTable, Int64
from reconciler.table.hilbert import hilbert_index
from reconciler.table.schema import Schema, SortColumn

HILBERT_BITS = 16
"""Most bits of a rank along one column; all columns together have 64."""


@dataclass(frozen=True, slots=True)
class Ordering(ABC):
    """An order of rows, and the groups of files that are put into it together."""

    key: tuple[SortColumn, ...] = ()
    """The columns that decide the order; () where none does."""

    name: ClassVar[str]
    """What policies and plans call it."""
    curve: ClassVar[bool] = False
    """Whether rows follow the Hilbert curve over the ranks of the key."""
    merges_small: ClassVar[bool] = True
    """Whether groups depend on the size of files, by which small neighbours are merged."""

    @property
    def lead(self) -> SortColumn | None:
        """The column in whose order the output files follow each other, None where none does."""
        return None

    @property
    def tree(self) -> Tree | None:
        """The tree of cuts along whose leaves rows lie, None in other orders."""
        return None

    def canonical(self) -> dict[str, Any]:
        """Return its part of an action's canonical form. That of a Lexicographic ordering is its
        key."""
        if not self.key:
            return {}
        return {"key": [{"fieldId": c.field_id, "direction": c.direction} for c in self.key]}

    def text(self, schema: Schema) -> str:
        """Return `l_shipdate`, `a, b desc` or `Hilbert(a, b)`, as plans print it."""
        return ", ".join(
            schema.name_of(column.field_id) + (" desc" if column.direction == "desc" else "")
            for column in self.key
        )

    def leaf_of(self, ranks: Sequence[Int64], distinct: Sequence[Array]) -> Int64 | None:
        """The part of the order that each row is in, where files end at parts; None without parts.
        Arguments as in `sort_keys`."""
        return None

    @abstractmethod
    def sort_keys(
        self, ranks: Sequence[Int64], distinct: Sequence[Array] = (), leaf: Int64 | None = None
    ) -> tuple[npt.NDArray[Any], ...]:
        """What rows are sorted by, the most significant first; rows of equal values stay in order
        of arrival. ranks: per key column, int64[rows]. distinct: per key column, its values by
        rank, which orders by values need. leaf: `leaf_of` the rows, if it is known."""

    def extents(self, table: FileTable) -> Extents:
        """The files of a table as `groups` takes them: by the first column of the key."""
        return grouping.extents(table, self.key)

    def groups(
        self,
        files: Extents,
        *,
        target_bytes: int,
        merge_bytes: int | None = None,
        max_bytes: int = grouping.MAX_GROUP_BYTES,
    ) -> Grouping:
        """Groups of files in key order, the files of each in order of arrival; every file is in
        exactly one.

        merge_bytes: neighbouring groups are not merged beyond it, PACK_TARGETS targets by default.
        max_bytes: a larger group is cut in order of key midpoints.
        """
        merge = grouping.PACK_TARGETS * target_bytes if merge_bytes is None else merge_bytes
        return grouping.as_arrived(self.parts(files, target_bytes, merge, max_bytes), files)

    def parts(
        self,
        files: Extents,
        target_bytes: int,
        merge_bytes: int,
        max_bytes: int = grouping.MAX_GROUP_BYTES,
    ) -> Grouping:
        """The same groups, the files of each in any order."""
        return self._parted(self._together(files, merge_bytes, target_bytes), files, max_bytes)

    def _parted(self, together: Grouping, files: Extents, max_bytes: int) -> Grouping:
        """The groups, none larger than max_bytes."""
        return grouping.bounded(together, files, max_bytes)

    @abstractmethod
    def _together(self, files: Extents, merge_bytes: int, target_bytes: int) -> Grouping:
        """The files that have to be rewritten together."""


@dataclass(frozen=True, slots=True)
class Arrival(Ordering):
    """Rows stay in the order in which they arrived: files are merged, not sorted."""

    name: ClassVar[str] = "Arrival"

    def sort_keys(
        self, ranks: Sequence[Int64], distinct: Sequence[Array] = (), leaf: Int64 | None = None
    ) -> tuple[npt.NDArray[Any], ...]:
        return ()

    def _parted(self, together: Grouping, files: Extents, max_bytes: int) -> Grouping:
        return together  # runs are bounded and in order as they are

    def _together(self, files: Extents, merge_bytes: int, target_bytes: int) -> Grouping:
        """Runs of files in order of arrival."""
        return grouping.runs(files, merge_bytes, target_bytes)


@dataclass(frozen=True, slots=True)
class Lexicographic(Ordering):
    """Sorted by the first column of the key, then by the second, and so on.

    NULLs sort first when ascending and last when descending, NaN the other way, as in Spark.
    """

    name: ClassVar[str] = "Lexicographic"

    @property
    def lead(self) -> SortColumn | None:
        return self.key[0]

    def sort_keys(
        self, ranks: Sequence[Int64], distinct: Sequence[Array] = (), leaf: Int64 | None = None
    ) -> tuple[npt.NDArray[Any], ...]:
        return tuple(
            -rank if column.direction == "desc" else rank
            for rank, column in zip(ranks, self.key, strict=True)
        )

    def _together(self, files: Extents, merge_bytes: int, target_bytes: int) -> Grouping:
        """Files whose key ranges overlap; small neighbours are merged."""
        small = min(grouping.SMALL_SHARE * target_bytes, merge_bytes)
        return grouping.merged(files.overlapping, files.bytes, merge_bytes, small)


@dataclass(frozen=True, slots=True)
class Hilbert(Ordering):
    """Along the Hilbert curve over the ranks of two or more columns.

    Over ranks, not values: columns of unequal width would let one column decide the curve alone.
    """

    name: ClassVar[str] = "Hilbert"
    curve: ClassVar[bool] = True
    merges_small: ClassVar[bool] = False

    def canonical(self) -> dict[str, Any]:
        return {**Ordering.canonical(self), "curve": self.name}

    def text(self, schema: Schema) -> str:
        return f"{self.name}({Ordering.text(self, schema)})"

    def sort_keys(
        self, ranks: Sequence[Int64], distinct: Sequence[Array] = (), leaf: Int64 | None = None
    ) -> tuple[npt.NDArray[Any], ...]:
        bits = min(HILBERT_BITS, 64 // len(self.key))
        spread = np.stack([even_ranks(rank, bits) for rank in ranks])
        return (hilbert_index(spread, bits),)

    def _together(self, files: Extents, merge_bytes: int, target_bytes: int) -> Grouping:
        """Every file may overlap every other along the curve."""
        return grouping.whole(files)


@dataclass(frozen=True, slots=True)
class CutTree(Ordering):
    """Leaf by leaf of a tree of cuts, the rows of each leaf by a column of its own.

    Its key is the columns that the tree cuts or sorts by.
    """

    tree: Tree = field(kw_only=True)
    """The tree, which plans hold once and name by its hash."""

    name: ClassVar[str] = "QdTree"
    merges_small: ClassVar[bool] = False

    def canonical(self) -> dict[str, Any]:
        return {**Ordering.canonical(self), "tree": self.tree.name}

    def text(self, schema: Schema) -> str:
        """`tree of 131 leaves, cut by distance, fare`: columns whose cuts part most leaves come
        first. `4 bands of day, each sorted by shop`, where one column is cut and another one
        sorts."""
        if self.tree.bands is not None:
            along, sorted_by = (schema.name_of(field) for field in self.tree.bands)
            return f"{self.tree.leaves} bands of {along}, each sorted by {sorted_by}"
        names = ", ".join(schema.name_of(field) for field in self.tree.by_weight)
        return f"tree of {self.tree.leaves} leaves, cut by {names}"

    def leaf_of(self, ranks: Sequence[Int64], distinct: Sequence[Array]) -> Int64:
        found = (column.field_id for column in self.key)
        known = dict(zip(found, zip(ranks, distinct, strict=True), strict=True))
        return leaves_of_ranks(self.tree, known, len(ranks[0]))

    def sort_keys(
        self, ranks: Sequence[Int64], distinct: Sequence[Array] = (), leaf: Int64 | None = None
    ) -> tuple[npt.NDArray[Any], ...]:
        leaf = self.leaf_of(ranks, distinct) if leaf is None else leaf
        sorted_by = np.asarray(self.tree.inner, dtype=np.int64)[leaf]
        inside = np.zeros(len(leaf), dtype=np.int64)
        for column, rank in zip(self.key, ranks, strict=True):
            inside = np.where(sorted_by == column.field_id, rank, inside)
        return leaf, inside

    def _together(self, files: Extents, merge_bytes: int, target_bytes: int) -> Grouping:
        """Every file may have rows of every leaf."""
        return grouping.whole(files)

    def extents(self, table: FileTable) -> Extents:
        """The files by the first and the last leaf that may have values of them; NULL and NaN count
        only in files that have nothing else."""
        known: dict[str, Extents] = table.derived.setdefault("leaf extents", {})
        if self.tree.name not in known:
            known[self.tree.name] = self._extents(table)
        return known[self.tree.name]

    def _extents(self, table: FileTable) -> Extents:
        ends = {
            field: all_ends(table.columns[field])
            for field in self.tree.of_column
            if field in table.columns
        }
        first, last = leaves_between(self.tree, ends, len(table))
        bounded = np.ones(len(table), dtype=np.bool_)
        return grouping.by_bounds(grouping.arrivals(table), table.bytes, first, last, bounded)

    def _parted(self, together: Grouping, files: Extents, max_bytes: int) -> Grouping:
        """All files, or runs of leaves where these are more than max_bytes."""
        if int(files.bytes.sum()) > max_bytes:
            return grouping.along_leaves(files, max_bytes)
        return together


def by_tree(tree: Tree) -> CutTree:
    """The ordering of a tree."""
    return CutTree(tuple(SortColumn(field_id) for field_id in tree.columns), tree=tree)


ARRIVAL = Arrival()
ORDERINGS: Mapping[str, type[Ordering]] = {
    ordering.name: ordering for ordering in (Lexicographic, Hilbert)
}
"""The orderings that a policy may name."""


def ordering_of(name: str, key: Sequence[SortColumn]) -> Ordering:
    """The ordering of that name by the key; Arrival without a key. KeyError: no such ordering."""
    return ORDERINGS[name](tuple(key)) if key else ARRIVAL


def best_of(key: Sequence[SortColumn]) -> Ordering:
    """A key of several columns is served by a Hilbert curve, one column by a sort."""
    return Hilbert(tuple(key)) if len(key) > 1 else ordering_of(Lexicographic.name, key)


def key_from_canonical(body: Mapping[str, Any]) -> tuple[SortColumn, ...]:
    """The key of a canonical form, () where it has none. Raises KeyError on a foreign document."""
    return tuple(SortColumn(c["fieldId"], c["direction"]) for c in body.get("key", []))


def ordering_from_canonical(body: Mapping[str, Any]) -> Ordering:
    """Return the ordering of a canonical form that has the text of a tree instead of its hash.
    Raises KeyError on a foreign document, ValueError for what is not a tree."""
    if "tree" in body:
        return by_tree(tree_of(body["tree"]))
    return ordering_of(body.get("curve", Lexicographic.name), key_from_canonical(body))


def order_rows(
    ordering: Ordering,
    ranks: Sequence[Int64],
    arrival: Int64,
    chunk: Int64 | None = None,
    distinct: Sequence[Array] = (),
    leaf: Int64 | None = None,
) -> Int64:
    """Row numbers in the order a rewrite writes them, int64[rows].

    ranks, distinct, leaf: as in `Ordering.sort_keys`. arrival: place of each row in order of
    arrival. chunk: the execution group of each row, in whose order the groups are written.
    """
    first = () if chunk is None else (chunk,)
    keys = ordering.sort_keys(ranks, distinct, leaf)
    return np.lexsort((arrival, *reversed(keys), *first)).astype(np.int64)


def even_ranks(ranks: Int64, bits: int) -> Int64:
    """Return ranks by row count, spread over the curve's grid; equal values stay equal."""
    least = int(ranks.min(initial=0))
    if int(ranks.max(initial=0)) - least <= 4 * len(ranks):  # dense ranks, as sampled rows have
        counts = np.bincount(ranks - least)
        place = (np.cumsum(counts) - counts)[ranks - least]
    else:
        place = np.searchsorted(np.sort(ranks), ranks, side="left")
    return (place * ((1 << bits) - 1) // max(len(ranks) - 1, 1)).astype(np.int64)
