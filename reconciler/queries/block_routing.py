"""Decides which block ids a query has to read (Yang et al., "Qd-tree", section 3.3).

An id may be left out only if no live file can hold a matching row with it. A file whose bounds or
partition rule the query out holds none. In a file that we wrote by a tree, ids are those of its
leaves, so that the description of a leaf decides; in every other file an id says nothing about its
rows (an UPDATE copies the id of the row that it replaces), and all ids of its range stay.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from reconciler.format import plural
from reconciler.queries.predicate import Predicate, by_pairs, fields_of, push_not
from reconciler.queries.predicate_batch import SlotLiterals
from reconciler.queries.pruning import may_match, partitions_of, simplify
from reconciler.table.block_ids import BlockIds, BlockTree, base_of
from reconciler.table.cut_tree import Cut, Tree
from reconciler.table.filetable import UNKNOWN, Array, Bool, ColumnBounds, FileTable, Int64
from reconciler.table.pairs import TYPES, Pair
from reconciler.table.schema import Schema
from reconciler.table.values import Kind

Range = tuple[int, int]
"""The first and the last of consecutive ids."""


@dataclass(frozen=True, slots=True)
class IdsToRead:
    """The ids that a query has to read. Arrays have shape [files]."""

    ids: tuple[Range, ...]
    """Ascending, apart from each other by at least one id."""
    before: Bool
    """bool[files]: whether the bounds and the partition of the file admit the query."""
    after: Bool
    """bool[files]: whether the file then has to be read with these ids."""
    leaves_out: bool
    """Whether some id that live files hold is left out."""
    notes: tuple[str, ...] = ()
    """What keeps ids in that might be left out otherwise, for people."""


@dataclass(frozen=True, slots=True)
class Unroutable:
    """No block id can be left out of the query."""

    why: str
    """The reason, for people."""


@dataclass(frozen=True, slots=True)
class _HeldIds:
    """What is known of the ids in each file."""

    low: Int64
    """int64[files]: the least id that a row may have, meaningless where `none` or `unknown`."""
    high: Int64
    """int64[files]: the greatest one, likewise."""
    none: Bool
    """bool[files]: whether every row has NULL."""
    nulls: Bool
    """bool[files]: whether a row may have NULL."""
    unknown: Bool
    """bool[files]: whether any row may have any id."""


def ids_to_read(
    files: FileTable,
    blocks: BlockIds,
    predicate: Predicate,
    literals: Sequence[SlotLiterals],
) -> IdsToRead | Unroutable:
    """Return the ids for one query. literals: per slot an array (In: a tuple) of one query."""
    wanted = simplify(push_not(predicate), files.schema)
    held = _held(files, blocks)
    admitted = _admitted(files, wanted, literals)
    if (admitted & held.unknown).any():
        number = int((admitted & held.unknown).sum())
        return Unroutable(
            f"{number} of the files that the query may read do not say which block ids they hold"
        )
    notes: list[str] = []
    trees = _TreeLeaves(files.schema, blocks, wanted, literals, notes)
    found = _of_rewrites_to_come(blocks, _TreeLeaves(files.schema, blocks, wanted, literals, []))
    for keys, rows in _by_proof(files, blocks, admitted & ~held.none):
        low, high = held.low[rows], held.high[rows]
        if not keys or any(key not in blocks.trees for key in keys):
            found += zip(low.tolist(), high.tolist(), strict=True)
            notes.append(_why_all(blocks, keys, len(rows)))
            continue
        own = np.zeros(len(rows), dtype=np.bool_)
        for key in keys:
            leaves, base = trees.leaves(key), base_of(key)
            inside = (low >= base) & (high < base + len(leaves))
            found += _matching(leaves, base, low[inside], high[inside])
            own |= inside
        if not own.all():  # no file of ours has ids of two trees, or of none: not our column
            found += zip(low[~own].tolist(), high[~own].tolist(), strict=True)
            notes.append(f"{plural(int((~own).sum()), 'file')} may hold ids of no tree of theirs")
    ids = _merged(found)
    some = ~held.none & ~held.unknown
    kept = _meet(ids, held.low, held.high) & some
    whole = all(_covers(ids, low, high) for low, high in _merged(
        list(zip(held.low[some].tolist(), held.high[some].tolist(), strict=True))
    ))  # fmt: skip
    after = admitted & (held.nulls | kept)
    return IdsToRead(ids, admitted, after, not whole, tuple(dict.fromkeys(notes)))


def _of_rewrites_to_come(blocks: BlockIds, trees: _TreeLeaves) -> list[Range]:
    """Return the ids that merging may give to rows, so that a query which is routed now still has
    these rows then: by any tree that the table holds, because which one is the newest may change
    when snapshots expire."""
    found: list[Range] = []
    for key in sorted(blocks.trees):
        ids = np.flatnonzero(trees.leaves(key)) + base_of(key)
        found += [(one, one) for one in ids.tolist()]
    return found


def admitted(files: FileTable, predicate: Predicate, literals: Sequence[SlotLiterals]) -> Bool:
    """Return whether bounds and partition of each file admit one query, bool[files]."""
    return _admitted(files, simplify(push_not(predicate), files.schema), literals)


def _why_all(blocks: BlockIds, keys: tuple[str, ...], files: int) -> str:
    unread = [f"{key}: {blocks.unread[key]}" for key in keys if key in blocks.unread]
    some = f"{plural(files, 'file')} may hold any id of a range"
    if unread:
        return f"{some}: tree {unread[0]}"
    if keys:
        return f"{some}: the table does not hold tree {keys[0]}"
    return f"{some}: nothing proves that layoutctl wrote the ids"


def _held(files: FileTable, blocks: BlockIds) -> _HeldIds:
    count = len(files)
    column = files.columns.get(blocks.field_id)
    added = files.file_sequence
    older = np.zeros(count, dtype=np.bool_) if added is None else added <= blocks.since
    if column is None:
        nothing = np.zeros(count, dtype=np.int64)
        return _HeldIds(nothing, nothing, older, older, ~older)
    every = (column.nulls == files.records) & (files.records >= 0)
    silent = ~column.bounded & (column.values == UNKNOWN) & (column.nulls == UNKNOWN)
    none = every | (silent & older)
    return _HeldIds(
        column.lower.astype(np.int64), column.upper.astype(np.int64), none,
        none | (column.nulls != 0), ~none & ~column.bounded,
    )  # fmt: skip


def _snapshots(files: FileTable) -> Int64:
    if files.snapshot_id is None:
        return np.full(len(files), UNKNOWN, dtype=np.int64)
    return files.snapshot_id


def _by_proof(
    files: FileTable, blocks: BlockIds, chosen: Bool
) -> list[tuple[tuple[str, ...], Int64]]:
    """Return the rows of chosen files by the keys of the trees by which their ids are proven."""
    added, found = _snapshots(files), dict[tuple[str, ...], list[int]]()
    for row in np.flatnonzero(chosen).tolist():
        keys = tuple(sorted(blocks.proofs.get(int(added[row]), ())))
        found.setdefault(keys, []).append(row)
    return [(keys, np.array(rows, dtype=np.int64)) for keys, rows in sorted(found.items())]


def _admitted(files: FileTable, wanted: Predicate, literals: Sequence[SlotLiterals]) -> Bool:
    """Return whether each file may hold a matching row, bool[files].

    Bounds leave NaN out, which engines take for greater than every number: such a file has no upper
    bound here, although Iceberg may skip it.
    """
    floats = {one for one in fields_of(wanted) if _is_float(files.schema, one)}
    columns = {
        field: _with_nan(column) if field in floats else column
        for field, column in files.columns.items()
    }
    partitions = None if floats else partitions_of(files)
    return may_match(
        wanted, literals, columns, files.records,
        partitions=partitions, schema=files.schema, queries=1,
    )[0]  # fmt: skip


def _is_float(schema: Schema, field_id: int) -> bool:
    field = schema.by_id.get(field_id)
    return field is None or field.kind is Kind.FLOAT


def _with_nan(column: ColumnBounds) -> ColumnBounds:
    nan = column.nans != 0
    return replace(
        column, has_upper=column.has_upper & ~nan, nans=np.where(nan, UNKNOWN, column.nans)
    )


def _matching(leaves: Bool, base: int, low: Int64, high: Int64) -> list[Range]:
    """Return the ids of matching leaves that some range of ids holds. leaves: bool[leaves]."""
    count = len(leaves)
    step = np.zeros(count + 1, dtype=np.int64)
    np.add.at(step, np.clip(low - base, 0, count), 1)
    np.add.at(step, np.clip(high - base + 1, 0, count), -1)
    ids = np.flatnonzero((np.cumsum(step)[:count] > 0) & leaves) + base
    return [(one, one) for one in ids.tolist()]


@dataclass(frozen=True)
class _TreeLeaves:
    """What the leaves of each tree hold, by the columns that the table still has."""

    schema: Schema
    """The table's columns."""
    blocks: BlockIds
    """Its trees."""
    wanted: Predicate
    """What the query asks."""
    literals: Sequence[SlotLiterals]
    """The query's literals."""
    notes: list[str]
    """What is said of them is added."""

    def leaves(self, key: str) -> Bool:
        """Return which leaves of a tree may hold a matching row, bool[leaves]."""
        tree = self.blocks.trees[key]
        columns, pairs = {}, dict[Pair, int]()
        for field_id in tree.tree.of_column:
            pair = tree.tree.pair_of(field_id)
            if pair is not None:
                if self._unchanged(tree, pair):
                    pairs[pair] = field_id
                    columns[field_id] = described(tree.tree, field_id, Kind.INT)
                continue
            field = self.schema.by_id.get(field_id)
            if field is None or field.type != tree.types.get(field_id):
                name = self.schema.name_of(field_id)
                self.notes.append(f"cuts of tree {key} by {name} do not count: it has changed")
            elif field.kind is not None:
                columns[field_id] = described(tree.tree, field_id, field.kind)
        records = np.full(tree.tree.leaves, 1 << 40, dtype=np.int64)
        wanted = by_pairs(self.wanted, pairs)
        return may_match(wanted, self.literals, columns, records, schema=self.schema, queries=1)[0]

    def _unchanged(self, tree: BlockTree, pair: Pair) -> bool:
        """Return whether two columns still compare as they did when ids were written."""
        known = {tree.types.get(one) for one in pair.fields}
        for one in pair.fields:
            field = self.schema.by_id.get(one)
            known.add(None if field is None else field.type)
        if len(known) == 1 and known <= set(TYPES):
            return True
        names = " and ".join(self.schema.name_of(one) for one in pair.fields)
        self.notes.append(f"cuts by {names} do not count: a column has changed")
        return False


def described(tree: Tree, field_id: int, kind: Kind) -> ColumnBounds:
    """Return what the leaves of a tree may hold of a column, as bounds of files would say it (the
    paper's "semantic description")."""
    low, high = tree.boxes[field_id]
    cuts = tree.of_column[field_id]
    least = [None if at == 0 else cuts[at - 1] for at in low.tolist()]
    most = [None if at == len(cuts) else cuts[at] for at in high.tolist()]
    lower, has_lower = _ends(least, kind, upper=False)
    upper, has_upper = _ends(most, kind, upper=True)
    floats = kind is Kind.FLOAT
    only_nan = np.array([one is not None and one.place[0] > 0 for one in least], dtype=np.bool_)
    if floats:
        lower[only_nan], has_lower[only_nan] = np.inf, True
    only_null = np.array([one is not None and one.place[0] < 0 for one in most], dtype=np.bool_)
    count = np.full(len(least), 1 << 40, dtype=np.int64)
    nulls = np.where(only_null, count, np.where(low == 0, UNKNOWN, 0))
    nan = np.array([one is None for one in most], dtype=np.bool_) & floats
    return ColumnBounds(
        field_id, kind, lower, upper, has_lower, has_upper, nulls,
        np.where(nan, UNKNOWN, 0), count, np.full(len(least), UNKNOWN, dtype=np.int64),
        np.ones(len(least), dtype=np.bool_),
    )  # fmt: skip


def _ends(cuts: Sequence[Cut | None], kind: Kind, *, upper: bool) -> tuple[Array, Bool]:
    """Return the bounds that thresholds give, and where there are some."""
    known = np.array([one is not None and one.place[0] == 0 for one in cuts], dtype=np.bool_)
    values = [_end(one, kind, upper=upper) if one is not None else None for one in cuts]
    if kind is Kind.BYTES:
        return np.array([one or b"" for one in values], dtype=np.bytes_), known
    dtype = np.float64 if kind is Kind.FLOAT else np.int64
    return np.array([0 if one is None else one for one in values], dtype=dtype), known


def _end(cut: Cut, kind: Kind, *, upper: bool) -> int | float | bytes | None:
    """Return the least value above a threshold, or the greatest below it, as far as the type has
    one; numpy strips a trailing NUL, which would lower an upper bound."""
    if cut.place[0]:
        return None
    if isinstance(cut.value, bytes):
        return cut.value + b"\x01" if upper and cut.value.endswith(b"\0") else cut.value
    if kind is Kind.INT and isinstance(cut.value, int):
        value = cut.value - (upper and not cut.inclusive) + (not upper and cut.inclusive)
        return min(max(value, -(1 << 63)), (1 << 63) - 1)
    return cut.value


def _merged(ranges: Sequence[Range]) -> tuple[Range, ...]:
    found: list[Range] = []
    for low, high in sorted(ranges):
        if found and low <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(found[-1][1], high))
        else:
            found.append((low, high))
    return tuple(found)


def _meet(ids: Sequence[Range], low: Int64, high: Int64) -> Bool:
    """Return whether each range of ids has one of these."""
    firsts = np.array([one for one, _ in ids], dtype=np.int64)
    lasts = np.array([one for _, one in ids], dtype=np.int64)
    found: Bool = np.searchsorted(lasts, low, side="left") < np.searchsorted(
        firsts, high, side="right"
    )
    return found


def _covers(ids: Sequence[Range], low: int, high: int) -> bool:
    return any(first <= low and high <= last for first, last in ids)
