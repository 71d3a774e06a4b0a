"""Recorded queries as rows of a state table: one row per table, shape and hour.

A row has what its queries have in common, and arrays of what differs: positions, times, weights,
measures and literals. Reading a table's queries is then work on a few arrays, however many queries
there are. What is written comes back unchanged; a query that was stored twice counts once, as it
was stored first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from reconciler.queries.fragment_codec import (
    fields_from_json,
    fields_to_json,
    members_from_json,
    members_to_json,
    predicate_from_json,
    predicate_to_json,
)
from reconciler.queries.fragments import Fragment
from reconciler.queries.predicate import Literal
from reconciler.queries.predicate_batch import SlotLiterals
from reconciler.queries.shape import (
    ColumnSets,
    Shape,
    in_order,
    ranked_sets,
)
from reconciler.state.state_tables import Columns, arrow_schema, shard_of
from reconciler.table.filetable import Bool, Float64, Int64
from reconciler.table.times import HOUR_MS

if TYPE_CHECKING:
    import pyarrow as pa

TABLE = "queries"

INT, FLOAT, TEXT, LIST = "i", "f", "t", "l"
"""Kinds of slots: what the literals of a slot are. A list is that of an In."""

COMMON: Columns = (
    ("shard", "int"),
    ("imported_ms", "long"),
    ("table_uuid", "string"),
    ("shape_id", "string"),
    ("hour_ms", "long"),
    ("source", "string"),
    ("engine", "string"),
    ("predicate", "string"),
    ("unbound", "string?"),
    ("full_scan", "boolean"),
    ("elsewhere", "boolean"),
    ("grouped", "boolean"),
    ("merged", "boolean"),
    ("projection", "string"),
    ("kinds", "string"),
)
"""What the queries of a row have in common. hour_ms: start of the hour of their times. kinds: the
kind of each slot of the predicate, a letter each."""

ARRAYS: Columns = (
    ("position", "long*"),
    ("event_ms", "long*"),
    ("weight", "double*"),
    ("recorded_bytes", "long*"),
    ("duration_ms", "long*"),
    ("moving", "long*"),
    ("ints", "long*"),
    ("floats", "double*"),
    ("texts", "binary*"),
    ("lists", "string*"),
)
"""What differs, query by query. The measures are empty where no query of the row has one, `moving`
where no literal moves. moving: per query the offset of each slot, null for a fixed literal. The
last four are the literals: per query those of the slots of one kind, in the order of the slots."""

QUERIES: Columns = COMMON + ARRAYS
NAMES = tuple(name for name, _ in QUERIES)
READ = tuple(name for name in NAMES if name not in ("shard", "engine", "duration_ms"))
"""What decisions need."""
KIND_OF = {"ints": INT, "floats": FLOAT, "texts": TEXT, "lists": LIST}


# Writing


def rows_of(imported: Iterable[tuple[int, Fragment]]) -> pa.Table:
    """Return the rows of these queries, each with the time of its import."""
    groups: dict[tuple[Any, ...], list[Fragment]] = {}
    for imported_ms, item in imported:
        kinds = "".join(map(_kind, item.literals))
        key = (
            imported_ms, item.table_uuid, item.event_ms // HOUR_MS, item.source, item.engine,
            item.predicate, item.unbound, item.full_scan, item.elsewhere, item.grouped,
            item.merged, item.projection, kinds,
        )  # fmt: skip
        groups.setdefault(key, []).append(item)
    members = list(groups.values())
    for queries in members:
        queries.sort(key=lambda item: (item.event_ms, item.position))
    common = [_common(key[0], key[-1], groups[key][0]) for key in groups]
    return _table(common, [_arrays(queries) for queries in members])


def _kind(value: Literal) -> str:
    if isinstance(value, tuple):
        return LIST
    if isinstance(value, bytes):
        return TEXT
    return FLOAT if isinstance(value, float) else INT


def _common(imported_ms: int, kinds: str, item: Fragment) -> dict[str, Any]:
    return {
        "shard": shard_of(item.table_uuid),
        "imported_ms": imported_ms,
        "table_uuid": item.table_uuid,
        "shape_id": item.shape_id,
        "hour_ms": item.event_ms // HOUR_MS * HOUR_MS,
        "source": item.source,
        "engine": item.engine,
        "predicate": predicate_to_json(item.predicate),
        "unbound": None if item.unbound is None else predicate_to_json(item.unbound),
        "full_scan": item.full_scan,
        "elsewhere": item.elsewhere,
        "grouped": item.grouped,
        "merged": item.merged,
        "projection": fields_to_json(item.projection),
        "kinds": kinds,
    }


def _arrays(queries: Sequence[Fragment]) -> dict[str, list[Any]]:
    literals: dict[str, list[Any]] = {kind: [] for kind in KIND_OF.values()}
    for item in queries:
        for value in item.literals:
            stored = members_to_json(value) if isinstance(value, tuple) else value
            literals[_kind(value)].append(stored)
    return {
        "position": [item.position for item in queries],
        "event_ms": [item.event_ms for item in queries],
        "weight": [item.weight for item in queries],
        "recorded_bytes": _known([item.recorded_bytes for item in queries]),
        "duration_ms": _known([item.duration_ms for item in queries]),
        "moving": _known([offset for item in queries for offset in item.moving]),
        **{name: literals[kind] for name, kind in KIND_OF.items()},
    }


def _known(values: list[Any]) -> list[Any]:
    return [] if all(value is None for value in values) else values


def _table(common: Sequence[dict[str, Any]], arrays: Sequence[dict[str, list[Any]]]) -> pa.Table:
    import pyarrow as pa

    schema = arrow_schema(QUERIES)
    columns = [
        pa.array([row[name] for row in common], schema.field(name).type) for name, _ in COMMON
    ]
    for name, _ in ARRAYS:
        kind = schema.field(name).type
        ends = _ends(np.array([len(row[name]) for row in arrays], dtype=np.int64))
        values = pa.array([value for row in arrays for value in row[name]], kind.value_type)
        columns.append(_lists(ends, values, kind))
    return pa.Table.from_arrays(columns, schema=schema)


def _ends(counts: Int64) -> Int64:
    """Return where each of the lists begins, and the end."""
    return np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(counts)))


def _lists(ends: Int64, values: Any, kind: Any) -> Any:
    import pyarrow as pa

    return pa.LargeListArray.from_arrays(pa.array(ends, pa.int64()), values, type=kind)


# Reading


def distinct(rows: pa.Table) -> pa.Table:
    """Return the rows in order, with each query once: as the row has it that was imported first.

    The same query has the same table, source and position.
    """
    rows = rows.take(_order({name: rows.column(name) for name in _KEYS}))
    position, ends = _flat(rows.column("position"))
    kept = _first(rows, _numbers(position), np.diff(ends))
    return rows if kept.all() else _kept(rows, kept)


_KEYS = ("table_uuid", "shape_id", "full_scan", "kinds", "hour_ms", "source", "imported_ms")


def _order(columns: Mapping[str, Any]) -> Int64:
    """Return the rows by table, shape and time, and those of the earlier import first."""
    return np.lexsort([_key(columns[name]) for name in reversed(_KEYS)]).astype(np.int64)


def _key(column: Any) -> npt.NDArray[Any]:
    """Return numbers that are equal where the values of a column are."""
    import pyarrow as pa

    kind = column.type
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return np.asarray(_numbers(column))
    return _coded(column)[0]


def joined(rows: pa.Table, span_ms: int) -> pa.Table:
    """Return distinct rows that agree in all that their queries have in common as one row.

    span_ms: rows stay apart that were imported in different spans of this length; 0: at different
    times. A joined row counts as imported when its first query was.
    """
    import pyarrow as pa

    imported = _numbers(rows.column("imported_ms"))
    starts = {name: _flat(rows.column(name))[1] for name, _ in ARRAYS}
    keys = [_key(rows.column(name)) for name, _ in COMMON if name != "imported_ms"]
    keys += [np.diff(starts[name]) > 0 for name in _SOME]
    keys.append(imported // max(span_ms, 1))
    order = np.lexsort(keys).astype(np.int64)
    changes = np.zeros(len(order), dtype=np.bool_)
    changes[:1] = True
    for key in keys:
        changes[1:] |= key[order][1:] != key[order][:-1]
    first = np.flatnonzero(changes)
    if len(first) == len(order):
        return rows
    rows = rows.take(pa.array(order))
    columns = []
    for field in rows.schema:
        column = rows.column(field.name)
        if field.name in starts:
            values, ends = _flat(column)
            column = _lists(np.append(ends[first], ends[-1]), values, field.type)
        elif field.name == "imported_ms":
            column = pa.array(np.minimum.reduceat(imported[order], first))
        else:
            column = column.take(pa.array(first))
        columns.append(column)
    return pa.table(columns, schema=rows.schema)


_SOME = ("recorded_bytes", "duration_ms", "moving")
"""Arrays that are empty where no query of the row has a value."""


def positions(rows: pa.Table) -> Int64:
    """Return the positions of all queries, ascending, each once."""
    return np.unique(_numbers(_flat(rows.column("position"))[0]))


def stored_positions(rows: pa.Table) -> dict[str, Int64]:
    """Return the positions of the queries of each source."""
    import pyarrow.compute as pc

    source = rows.column("source")
    names = source.unique().to_pylist()
    return {name: positions(rows.filter(pc.equal(source, name))) for name in names}


def concatenated(first: pa.Table, second: pa.Table) -> pa.Table:
    """Return the rows of both: some of the table, others made in memory."""
    import pyarrow as pa

    schema = arrow_schema(QUERIES)
    return pa.concat_tables([rows.select(NAMES).cast(schema) for rows in (first, second)])


def shapes_of(rows: pa.Table | None) -> tuple[Shape, ...]:
    """Return the queries of one table by shape, those of a shape by time."""
    if rows is None:
        return ()
    if _has_repeats(_numbers(_flat(rows.column("position"))[0])):
        rows = distinct(rows)
    known = _Rows({name: rows.column(name) for name in NAMES if name in rows.column_names})
    del rows
    return tuple(known.shape(first, end) for first, end in known.groups())


def _flat(column: Any) -> tuple[Any, Int64]:
    """Return the values of all lists of a column, and where each list begins, with the end."""
    return _flat_array(column.combine_chunks())


def _flat_array(lists: Any) -> tuple[Any, Int64]:
    return lists.flatten(), _ends(_numbers(lists.value_lengths()).astype(np.int64))


def _numbers(values: Any) -> Any:
    """Return an array of numbers without nulls."""
    return values.to_numpy(zero_copy_only=False)


def _has_repeats(numbers: Int64) -> bool:
    ordered = np.sort(numbers)
    return bool((ordered[1:] == ordered[:-1]).any())


def _first(rows: pa.Table, position: Int64, counts: Int64) -> Bool:
    """Return bool[queries]: whether no row has the query that was imported earlier."""
    first = np.ones(len(position), dtype=np.bool_)
    if not _has_repeats(position):
        return first
    logs: dict[tuple[str, str], int] = {}
    number = [
        logs.setdefault((row["table_uuid"], row["source"]), len(logs))
        for row in rows.select(["table_uuid", "source"]).to_pylist()
    ]
    log = np.repeat(np.array(number, dtype=np.int64), counts)
    imported = np.repeat(_numbers(rows.column("imported_ms")), counts)
    order = np.lexsort((imported, position, log))
    first[order[1:]] = (np.diff(position[order]) != 0) | (np.diff(log[order]) != 0)
    return first


def _kept(rows: pa.Table, kept: Bool) -> pa.Table:
    """Return the rows with only these of their queries; rows without any are left out."""
    import pyarrow as pa

    _, starts = _flat(rows.column("position"))
    counts = np.diff(starts)
    left = np.diff(_ends(kept.astype(np.int64))[starts])
    arrays = {name for name, _ in ARRAYS}
    columns = []
    for field in rows.schema:
        column = rows.column(field.name)
        if field.name in arrays:
            values, ends = _flat(column)
            per_query = np.diff(ends) // np.maximum(counts, 1)
            mask = pa.array(np.repeat(kept, np.repeat(per_query, counts)))
            column = _lists(_ends(left * per_query), values.filter(mask), field.type)
        columns.append(column)
    return pa.table(columns, schema=rows.schema).filter(pa.array(left > 0))


class _Rows:
    """The rows of one table by shape and time, with their arrays laid end to end.

    columns: by name. Each is dropped as soon as it is laid out, so that memory has all queries once
    and one column twice.
    """

    def __init__(self, columns: dict[str, Any]):
        order = _order(columns)
        self.texts = {name: _coded(columns.pop(name)) for name in _TEXTS}
        self.codes = {name: code[order] for name, (code, _) in self.texts.items()}
        self.marks = {name: _numbers(columns.pop(name))[order] for name in _MARKS}
        self.arrays: dict[str, tuple[Any, Int64]] = {}
        left = [name for name, _ in ARRAYS if name in columns]
        for name in sorted(left, key=lambda name: -columns[name].nbytes):
            self.arrays[name] = _laid_out(name, columns.pop(name), order)
        self.position, self.start = self.arrays["position"]

    def groups(self) -> list[tuple[int, int]]:
        """Return the runs of rows that have one shape, and slots of the same kinds."""
        keys = (self.codes["shape_id"], self.marks["full_scan"], self.codes["kinds"])
        changes = np.zeros(max(len(keys[0]) - 1, 0), dtype=np.bool_)
        for key in keys:
            changes |= key[1:] != key[:-1]
        edges = [0, *(np.flatnonzero(changes) + 1).tolist(), len(keys[0])]
        return [pair for pair in pairwise(edges) if pair[0] < pair[1]]

    def shape(self, first: int, end: int) -> Shape:
        queries = slice(self.start[first], self.start[end])
        kinds, unbound = self._text("kinds", first), self._text("unbound", first)
        weight = self.arrays["weight"][0][queries]
        sets, column_set = self._column_sets(first, end, weight)
        slots = len(kinds)
        moving = self._filled("moving", first, end, slots).reshape(len(weight), slots)
        return in_order(
            Shape(
                shape_id=self._text("shape_id", first),
                predicate=predicate_from_json(self._text("predicate", first)),
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

    def _text(self, name: str, row: int) -> str:
        found: str = self.texts[name][1][self.codes[name][row]]
        return found

    def _per_query(self, first: int, end: int, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return np.repeat(values, np.diff(self.start[first : end + 1]))

    def _filled(self, name: str, first: int, end: int, per_query: int) -> Float64:
        """Return `per_query` numbers of each query, NaN for those of rows without."""
        values, ends = self.arrays[name]
        found: Float64 = values[ends[first] : ends[end]]
        count = int(self.start[end] - self.start[first]) * per_query
        if len(found) == count:
            return found
        if not len(found):
            return np.broadcast_to(np.nan, count)
        every = np.full(count, np.nan)
        filled = np.diff(ends[first : end + 1]) > 0
        every[np.repeat(self._per_query(first, end, filled), per_query)] = found
        return every

    def _share(self, name: str, first: int, end: int, weight: Float64) -> float:
        marked = self.marks[name][first:end]
        if not marked.any():
            return 0.0
        own = weight[self._per_query(first, end, marked)]
        return float(own.sum()) / max(float(weight.sum()), 1e-9)

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
                values, ends = self.arrays[name]
                part = values.part(ends[first], ends[end], slots)
                by_kind[kind] = part
        return tuple(by_kind[kind].pop(0) for kind in kinds)


_TEXTS = ("shape_id", "predicate", "unbound", "projection", "kinds")
_MARKS = ("full_scan", "elsewhere", "grouped", "merged")
CODED = (*_TEXTS, "table_uuid", "source")
"""Columns that repeat few texts; they are read as a dictionary and numbers."""


def _coded(column: Any) -> tuple[Int64, list[Any]]:
    """Return each row's place among the texts of a column, and the texts; null is ""."""
    import pyarrow as pa

    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    found = column.unify_dictionaries().combine_chunks()
    texts = found.dictionary.to_pylist()
    code = _numbers(found.indices.fill_null(len(texts))).astype(np.int64)
    return code, [*texts, ""]


def _laid_out(name: str, column: Any, order: Int64) -> tuple[Any, Int64]:
    """Return the values of a column's lists in an order of the rows, and where each row begins."""
    import pyarrow as pa

    chunks = column.chunks
    del column
    if name in ("texts", "lists"):
        lists = pa.chunked_array(chunks).combine_chunks()
        values, ends = _flat_array(lists.take(pa.array(order)))
        found: Any = _Vocabulary(values, lists=name == "lists")
    else:
        found, ends = _scattered(chunks, order, floats=name in (*_SOME, "weight", "floats"))
        found = _Table(found) if name in KIND_OF else found
    pa.default_memory_pool().release_unused()  # it would keep the memory of every column
    return found, ends


def _scattered(chunks: list[Any], order: Int64, *, floats: bool) -> tuple[npt.NDArray[Any], Int64]:
    """Return numbers of lists in an order of the rows, and where each row begins.

    Each chunk is dropped when its numbers are in their places. floats: NaN for null.
    """
    lengths = np.concatenate([_numbers(chunk.value_lengths()) for chunk in chunks])
    lengths = lengths.astype(np.int64)
    ends = _ends(lengths[order])
    start = np.empty(len(order), dtype=np.int64)
    start[order] = ends[:-1]
    found = np.empty(int(ends[-1]), dtype=np.float64 if floats else np.int64)
    last = len(order)
    while chunks:
        chunk = chunks.pop()
        first, values = last - len(chunk), chunk.flatten()
        own = lengths[first:last]
        if floats:
            values = values.cast("double", safe=False).fill_null(float("nan"))
        place = np.repeat(start[first:last] - _ends(own)[:-1], own)
        found[place + np.arange(len(values))] = _numbers(values)
        last = first
    return found, ends


class _Table:
    """Literals that are numbers."""

    def __init__(self, values: npt.NDArray[Any]):
        self._values = values

    def part(self, first: int, end: int, slots: int) -> list[SlotLiterals]:
        """Return the literals of each slot, of values that lie query by query."""
        table = self._values[first:end].reshape(-1, slots)
        return [np.ascontiguousarray(table[:, slot]) for slot in range(slots)]


class _Vocabulary:
    """Literals that are texts or lists: the different ones are decoded once."""

    def __init__(self, values: Any, *, lists: bool):
        coded = values.dictionary_encode()
        self._codes = _numbers(coded.indices)
        known = coded.dictionary.to_pylist()
        self._lists: list[Any] | None = members_from_json(known) if lists else None
        self._texts = np.array([] if lists else known, dtype=object)
        self._nul = np.array([not lists and text.endswith(b"\0") for text in known], dtype=np.bool_)

    def part(self, first: int, end: int, slots: int) -> list[SlotLiterals]:
        """As _Table.part."""
        table = self._codes[first:end].reshape(-1, slots)
        return [self._slot(table[:, slot]) for slot in range(slots)]

    def _slot(self, codes: npt.NDArray[np.int32]) -> SlotLiterals:
        if self._lists is not None:
            return tuple(map(self._lists.__getitem__, codes.tolist()))
        values = self._texts[codes]
        # numpy strips trailing NULs from S; an object array keeps them (`pruning`).
        return values if self._nul[codes].any() else values.astype(np.bytes_)
