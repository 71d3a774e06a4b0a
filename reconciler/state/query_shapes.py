"""Makes shapes of the rows of `query_rows`: column by column, never query by query.

Rows of tables come in, the shapes of each table go out. Each column is copied in the order of the
shapes and then dropped, so that a million queries take little more memory than their arrays.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from reconciler.queries.fragment_codec import (
    fields_from_json,
    members_from_json,
    predicate_from_json,
)
from reconciler.queries.predicate_batch import SlotLiterals
from reconciler.queries.shape import ColumnSets, Shape, in_order, ranked_sets, share_of
from reconciler.state.query_rows import (
    ARRAYS,
    KIND_OF,
    NAMES,
    SOMETIMES,
    coded,
    distinct,
    edges_of,
    flat,
    flat_array,
    has_repeats,
    numbers,
    row_order,
)
from reconciler.table.filetable import Float64, Int64

if TYPE_CHECKING:
    import pyarrow as pa

READ = tuple(name for name in NAMES if name not in ("shard", "engine", "duration_ms"))
"""What decisions need."""

_TEXTS = ("table_uuid", "shape_id", "predicate", "unbound", "projection", "kinds")
_MARKS = ("full_scan", "elsewhere", "grouped", "merged")
CODED = (*_TEXTS, "source")
"""Columns that repeat few texts; they are read as a dictionary and numbers."""


def shapes_of(rows: pa.Table | None) -> dict[str, tuple[Shape, ...]]:
    """Return the queries of each table that has some, by uuid: by shape, those of a shape by
    time."""
    if rows is None or not rows.num_rows:
        return {}
    if has_repeats(numbers(flat(rows.column("position"))[0])):
        rows = distinct(rows)
    known = _Rows({name: rows.column(name) for name in NAMES if name in rows.column_names})
    del rows
    found: dict[str, list[Shape]] = {}
    for first, end in known.groups():
        found.setdefault(known.text("table_uuid", first), []).append(known.shape(first, end))
    return {table_uuid: tuple(shapes) for table_uuid, shapes in found.items()}


class _Rows:
    """The rows of tables by table, shape and time, with their arrays laid end to end.

    columns: by name. Each is dropped as soon as it is laid out, so that memory has all queries once
    and one column twice.
    """

    def __init__(self, columns: dict[str, Any]):
        order = row_order(columns)
        self.texts = {name: coded(columns.pop(name)) for name in _TEXTS}
        self.codes = {name: code[order] for name, (code, _) in self.texts.items()}
        self.marks = {name: numbers(columns.pop(name))[order] for name in _MARKS}
        self.arrays: dict[str, tuple[Any, Int64]] = {}
        left = [name for name, _ in ARRAYS if name in columns]
        for name in sorted(left, key=lambda name: -columns[name].nbytes):
            self.arrays[name] = _laid_out(name, columns.pop(name), order)
        self.position, self.start = self.arrays["position"]

    def groups(self) -> list[tuple[int, int]]:
        """Return the runs of rows that have one table and shape, and slots of the same kinds."""
        codes, scans = self.codes, self.marks["full_scan"]
        keys = (codes["table_uuid"], codes["shape_id"], scans, codes["kinds"])
        changes = np.zeros(max(len(keys[0]) - 1, 0), dtype=np.bool_)
        for key in keys:
            changes |= key[1:] != key[:-1]
        edges = [0, *(np.flatnonzero(changes) + 1).tolist(), len(keys[0])]
        return [pair for pair in pairwise(edges) if pair[0] < pair[1]]

    def shape(self, first: int, end: int) -> Shape:
        queries = slice(self.start[first], self.start[end])
        kinds, unbound = self.text("kinds", first), self.text("unbound", first)
        weight = self.arrays["weight"][0][queries]
        sets, column_set = self._column_sets(first, end, weight)
        slots = len(kinds)
        moving = self._filled("moving", first, end, slots).reshape(len(weight), slots)
        return in_order(
            Shape(
                shape_id=self.text("shape_id", first),
                predicate=predicate_from_json(self.text("predicate", first)),
                column_sets=sets,
                literals=self._literals(first, end, kinds),
                offsets=tuple(moving[:, slot] for slot in range(slots)),
                weight=weight,
                executions=weight,
                event_ms=self.arrays["event_ms"][0][queries],
                recorded_bytes=self._filled("recorded_bytes", first, end, 1),
                position=self.position[queries],
                column_set=column_set,
                full_scan=bool(self.marks["full_scan"][first]),
                unbound=predicate_from_json(unbound) if unbound else None,
                elsewhere=self._share("elsewhere", first, end, weight),
                grouped=self._share("grouped", first, end, weight),
                merged=self._share("merged", first, end, weight),
            )
        )

    def text(self, name: str, row: int) -> str:
        found: str = self.texts[name][1][self.codes[name][row]]
        return found

    def _per_query(self, first: int, end: int, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return np.repeat(values, np.diff(self.start[first : end + 1]))

    def _filled(self, name: str, first: int, end: int, per_query: int) -> Float64:
        """Return `per_query` numbers of each query, NaN for those of rows without."""
        values, edges = self.arrays[name]
        found: Float64 = values[edges[first] : edges[end]]
        count = int(self.start[end] - self.start[first]) * per_query
        if len(found) == count:
            return found
        if not len(found):
            return np.broadcast_to(np.nan, count)
        every = np.full(count, np.nan)
        filled = np.diff(edges[first : end + 1]) > 0
        every[np.repeat(self._per_query(first, end, filled), per_query)] = found
        return every

    def _share(self, name: str, first: int, end: int, weight: Float64) -> float:
        marked = self.marks[name][first:end]
        if not marked.any():
            return 0.0
        return share_of(weight, self._per_query(first, end, marked))

    def _column_sets(
        self, first: int, end: int, weight: Float64
    ) -> tuple[ColumnSets, npt.NDArray[np.int32]]:
        known, place = np.unique(self.codes["projection"][first:end], return_inverse=True)
        texts = self.texts["projection"][1]
        column_set = self._per_query(first, end, place.reshape(-1).astype(np.int32))
        sets = [fields_from_json(texts[code]) for code in known.tolist()]
        return ranked_sets(sets, column_set, weight)

    def _literals(self, first: int, end: int, kinds: str) -> tuple[SlotLiterals, ...]:
        by_kind: dict[str, list[SlotLiterals]] = {}
        for name, kind in KIND_OF.items():
            slots = kinds.count(kind)
            if slots:
                values, edges = self.arrays[name]
                part = values.part(edges[first], edges[end], slots)
                by_kind[kind] = part
        return tuple(by_kind[kind].pop(0) for kind in kinds)


def _laid_out(name: str, column: Any, order: Int64) -> tuple[Any, Int64]:
    """Return the values of a column's lists in an order of the rows, and where each row begins."""
    import pyarrow as pa

    chunks = column.chunks
    del column
    if name in ("texts", "lists"):
        lists = pa.chunked_array(chunks).combine_chunks()
        values, edges = flat_array(lists.take(pa.array(order)))
        found: Any = _CodedLiterals(values, lists=name == "lists")
    else:
        found, edges = _scattered(chunks, order, floats=name in (*SOMETIMES, "weight", "floats"))
        found = _NumberLiterals(found) if name in KIND_OF else found
    pa.default_memory_pool().release_unused()  # it would keep the memory of every column
    return found, edges


def _scattered(chunks: list[Any], order: Int64, *, floats: bool) -> tuple[npt.NDArray[Any], Int64]:
    """Return numbers of lists in an order of the rows, and where each row begins.

    Each chunk is dropped when its numbers are in their places. floats: NaN for null.
    """
    lengths = np.concatenate([numbers(chunk.value_lengths()) for chunk in chunks])
    lengths = lengths.astype(np.int64)
    edges = edges_of(lengths[order])
    start = np.empty(len(order), dtype=np.int64)
    start[order] = edges[:-1]
    found = np.empty(int(edges[-1]), dtype=np.float64 if floats else np.int64)
    last = len(order)
    while chunks:
        chunk = chunks.pop()
        first, values = last - len(chunk), chunk.flatten()
        own = lengths[first:last]
        if floats:
            values = values.cast("double", safe=False).fill_null(float("nan"))
        place = np.repeat(start[first:last] - edges_of(own)[:-1], own)
        found[place + np.arange(len(values))] = numbers(values)
        last = first
    return found, edges


class _NumberLiterals:
    """Literals that are numbers."""

    def __init__(self, values: npt.NDArray[Any]):
        self._values = values

    def part(self, first: int, end: int, slots: int) -> list[SlotLiterals]:
        """Return the literals of each slot, of values that lie query by query."""
        table = self._values[first:end].reshape(-1, slots)
        return [np.ascontiguousarray(table[:, slot]) for slot in range(slots)]


class _CodedLiterals:
    """Literals that are texts or lists: the different ones are decoded once."""

    def __init__(self, values: Any, *, lists: bool):
        coded = values.dictionary_encode()
        self._codes = numbers(coded.indices)
        known = coded.dictionary.to_pylist()
        self._lists: list[Any] | None = members_from_json(known) if lists else None
        self._texts = np.array([] if lists else known, dtype=object)
        self._nul = np.array([not lists and text.endswith(b"\0") for text in known], dtype=np.bool_)

    def part(self, first: int, end: int, slots: int) -> list[SlotLiterals]:
        """As _NumberLiterals.part."""
        table = self._codes[first:end].reshape(-1, slots)
        return [self._slot(table[:, slot]) for slot in range(slots)]

    def _slot(self, codes: npt.NDArray[np.int32]) -> SlotLiterals:
        if self._lists is not None:
            return tuple(map(self._lists.__getitem__, codes.tolist()))
        values = self._texts[codes]
        # numpy strips trailing NULs from S; an object array keeps them (`pruning`).
        return values if self._nul[codes].any() else values.astype(np.bytes_)
