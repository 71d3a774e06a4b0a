"""Rows in the order of a tree of cuts: leaf by leaf, those of each leaf by a column of its own; and
where files and row groups end then (Yang et al., "Qd-tree", section 3.1)."""

from __future__ import annotations

import bisect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from reconciler.rewrite import arrow
from reconciler.rewrite.block_ids import Blocks
from reconciler.rewrite.columns import Column
from reconciler.rewrite.order import (
    EXACT_DIGITS,
    floats_of,
    numbers_of,
    sort_parts,
    stable_order,
    values_of,
)
from reconciler.rewrite.task import Unfit
from reconciler.table import cut_tree
from reconciler.table.cut_tree import Cut, Tree
from reconciler.table.leaf_files import file_units, row_group_units
from reconciler.table.pairs import TRUTHS, Pair
from reconciler.table.row_group_bytes import even_row_groups
from reconciler.table.values import EXACT, encode_wide_decimal

Int64 = npt.NDArray[np.int64]
Codes = npt.NDArray[np.integer[Any]]
"""Whole numbers of any width."""

Ways = Mapping[int, Sequence[Column]]
"""The way to each column of a table, by field id (`TableShape.ways`)."""
DENSE = 4
"""The greatest slot, per row, up to which all slots are counted in one array."""
TABLE_BITS = 16
"""Numbers of a table by which codes are looked up, as a power of two."""


def leaf_of(tree: Tree, values: Mapping[int, pa.ChunkedArray], rows: int) -> Int64:
    """Return the leaf of each row. values: of the columns that the tree cuts, by field id."""
    codes: dict[int, Codes] = {}
    for field, cuts in tree.of_column.items():
        pair = tree.pair_of(field)
        if pair is None:
            codes[field] = codes_of(cuts, values[field])
        else:
            codes[field] = codes_of_pair(cuts, pair, *(values[one] for one in pair.fields))
    return tree.leaf_of(codes, rows)


@dataclass(frozen=True, slots=True)
class Counted:
    """How many rows there are of each leaf that has some.

    Where rows move to partitions, each partition has all leaves of the tree. A slot is one leaf of
    one partition: the number of the partition times the leaves of the tree, plus the leaf.
    """

    slots: Int64
    """int64[used slots], ascending: the slots that have rows."""
    rows: Int64
    """int64[used slots]: rows of each."""

    @property
    def total(self) -> int:
        return int(self.rows.sum())

    def of_partition(self, number: int, leaves: int) -> tuple[Int64, Int64]:
        """Return the leaves of a partition that have rows, and how many. leaves: of the tree."""
        begin, end = np.searchsorted(self.slots, (number * leaves, (number + 1) * leaves))
        return self.slots[begin:end] - number * leaves, self.rows[begin:end]


def counted(slot: npt.NDArray[Any]) -> Counted:
    """Return the rows of each slot. slot: of each row, as in `Counted`."""
    if int(slot.max(initial=0)) <= DENSE * len(slot):
        every = np.bincount(slot)
        slots = np.flatnonzero(every)
        return Counted(slots.astype(np.int64), every[slots].astype(np.int64))
    slots, rows = np.unique(slot, return_counts=True)
    return Counted(slots.astype(np.int64), rows.astype(np.int64))


def ids_of(
    table: pa.Table, blocks: Blocks, ways: Ways, leaf: npt.NDArray[Any] | None = None
) -> pa.Array:
    """Return the block id of each row of a table that has the columns which the ids' tree cuts.

    leaf: of each row in this tree, None if that is not known yet.
    """
    tree = blocks.tree
    if tree is None:
        return pa.nulls(len(table), pa.int32())
    if leaf is None:
        fields = list(tree.cut_columns)
        values = values_of(fields, ways, table)
        leaf = leaf_of(tree, dict(zip(fields, values, strict=True)), len(table))
    return pa.array((leaf.astype(np.int64) + blocks.base).astype(np.int32))


def permutation(
    tree: Tree, values: Mapping[int, pa.ChunkedArray], leaf: Int64, first: Sequence[Int64] = ()
) -> Int64:
    """Return the numbers of the rows in the order in which they are written.

    values: of the columns that these leaves are sorted by, by field id. leaf: of each row. first:
    numbers that come before the leaf. Rows of one leaf that its column does not part stay in order
    of arrival.
    """
    order = stable_order([*first, leaf], len(leaf))
    new = np.zeros(len(order), dtype=bool)
    for number in (*first, leaf):
        new |= np.diff(number[order], prepend=-1) != 0
    begins = np.flatnonzero(new)
    used = {tree.inner[one] for one in leaf[order[begins]].tolist()} - {0}
    parts = {field: sort_parts(values[field], descending=False) for field in used}
    for begin, end in pairwise([*begins.tolist(), len(order)]):
        own = order[begin:end]
        field = tree.inner[int(leaf[own[0]])]
        if field:
            within = stable_order([part[own] for part in parts[field]], len(own))
            order[begin:end] = own[within]
    return order


def codes_of(cuts: Sequence[Cut], values: pa.ChunkedArray) -> Codes:
    """Return how many of a column's thresholds are at or below each row, a number each.

    NULL is below all values and NaN above, so that a row is left of cut k if its code is at most k.
    """
    whole = arrow.one_piece(values)
    kinds = np.array([cut.place[0] for cut in cuts])
    null_cuts, nan_cuts = int((kinds < 0).sum()), int((kinds > 0).sum())
    found = _codes_of_values([cut for cut in cuts if not cut.place[0]], whole)
    if null_cuts:
        found = found + null_cuts
    if pa.types.is_floating(whole.type):
        nan = np.isnan(floats_of(whole))
        found = np.where(nan, len(cuts), np.minimum(found, len(cuts) - nan_cuts))
    if whole.null_count:
        found = np.where(whole.is_null().to_numpy(zero_copy_only=False), 0, found)
    return found.astype(np.min_scalar_type(len(cuts)))  # rows are routed faster by narrow ones


def codes_of_pair(
    cuts: Sequence[Cut], pair: Pair, left: pa.ChunkedArray, right: pa.ChunkedArray
) -> Codes:
    """Return how many thresholds at truth values are at or below each row's, a number each."""
    first, second = (arrow.one_piece(one) for one in (left, right))
    null = pc.or_(first.is_null(), second.is_null()).to_numpy(zero_copy_only=False)
    places = pair.places(numbers_of(first), numbers_of(second), null)
    return cut_tree.codes_of(cuts, places, TRUTHS).astype(np.min_scalar_type(len(cuts)))


def _codes_of_values(cuts: Sequence[Cut], whole: pa.Array) -> Codes:
    """Return the codes by cuts at values; of NULL and NaN any."""
    if not cuts:
        return np.zeros(len(whole), dtype=np.int64)
    if isinstance(cuts[0].value, bytes) != _are_bytes(whole.type):
        raise Unfit("a tree that cuts a column which has another type now")
    if isinstance(cuts[0].value, bytes):
        return _codes_of_bytes(cuts, whole)
    floating = pa.types.is_floating(whole.type)
    rows: Any = floats_of(whole) if floating else numbers_of(whole)
    if floating or len(rows) < 1 << TABLE_BITS:
        return _searched(cuts, rows)
    return _looked_up(cuts, rows)


def _are_bytes(kind: pa.DataType) -> bool:
    """Whether the domain of a column is bytes: of texts, bytes, UUIDs and long decimals."""
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    if pa.types.is_decimal(kind):
        return bool(kind.precision > EXACT_DIGITS)
    numbers = pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind)
    return not (numbers or pa.types.is_temporal(kind))


def _looked_up(cuts: Sequence[Cut], rows: Int64) -> Codes:
    """Return the codes of whole numbers by tables of ranges of numbers, where one search for each
    row would take longer: only rows of a range in which there is a cut are searched."""
    low, high = int(rows.min()), int(rows.max())
    shift = max(0, (high - low).bit_length() - TABLE_BITS)
    first = [low + (number << shift) for number in range(((high - low) >> shift) + 1)]
    codes = _searched(cuts, np.array(first, dtype=np.int64)).astype(np.uint16)
    at = ((rows.view(np.uint64) - np.uint64(low % (1 << 64))) >> np.uint64(shift)).view(np.int64)
    found = codes[at]
    if shift:
        last = [min(one + (1 << shift) - 1, high) for one in first]
        mixed = codes != _searched(cuts, np.array(last, dtype=np.int64))
        some = np.flatnonzero(mixed[at])
        found[some] = _searched(cuts, rows[some])
    return found


def _searched(cuts: Sequence[Cut], rows: Any) -> Int64:
    """Return the codes of numbers by a search for each."""
    plain = np.array([cut.value for cut in cuts])
    # A row equal to an inclusive cut is left of it, one equal to an exclusive cut right of it.
    below = np.searchsorted(plain, rows, side="left")
    if all(not cut.inclusive for cut in cuts):
        return np.asarray(np.searchsorted(plain, rows, side="right"), dtype=np.int64)
    exclusive = np.array([not cut.inclusive for cut in cuts])
    at = np.minimum(below, len(plain) - 1)
    found: Int64 = below + ((below < len(plain)) & (plain[at] == rows) & exclusive[at])
    return found


def _codes_of_bytes(cuts: Sequence[Cut], whole: pa.Array) -> Int64:
    """Return the codes of texts, bytes, UUIDs and long decimals, once per distinct value."""
    if not pa.types.is_dictionary(whole.type):
        whole = pc.dictionary_encode(whole)
    thresholds = [(cut.value, cut.inclusive) for cut in cuts]
    codes = np.array(
        [
            0 if value is None else bisect.bisect_right(thresholds, (_plain(value), False))
            for value in whole.dictionary.to_pylist()
        ],
        dtype=np.int64,
    )
    at = whole.indices.fill_null(0).to_numpy(zero_copy_only=False)
    return codes[at] if len(codes) else np.zeros(len(whole), dtype=np.int64)


def _plain(value: Any) -> bytes:
    """Return a value in the domain of its column (`table.values`)."""
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytes):
        return value
    if hasattr(value, "bytes"):  # a UUID
        return bytes(value.bytes)
    return encode_wide_decimal(int(value.scaleb(-value.as_tuple().exponent, EXACT)))


def files_at(
    tree: Tree, leaf: Int64, rows: Int64, file_rows: float, group_rows: int
) -> list[list[int]]:
    """Return the rows of each row group of each file. leaf: the leaves that have rows, ascending;
    rows: of each. group_rows: most rows of a row group."""
    found = []
    for unit in file_units(tree, leaf, rows, file_rows):
        mine = rows[unit.first : unit.end]
        if not unit.shared:
            found += even_row_groups(int(mine[0]), unit.files, group_rows)
            continue
        groups: list[int] = []
        for begin, end in row_group_units(mine, group_rows):
            (each,) = even_row_groups(int(mine[begin:end].sum()), 1, group_rows)
            groups += each
        found.append(groups)
    return found
