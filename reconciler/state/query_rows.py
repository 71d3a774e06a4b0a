"""Recorded queries as rows of a state table: one row per table, shape and hour.

A row has what its queries have in common, and arrays of what differs: positions, times, weights,
measures and literals. Reading a table's queries is then work on a few arrays, however many queries
there are. What is written comes back unchanged; a query that was stored twice counts once, as it
was stored first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from reconciler.queries.fragment_codec import (
    fields_to_json,
    members_to_json,
    predicate_to_json,
)
from reconciler.queries.fragments import Fragment
from reconciler.queries.predicate import Literal
from reconciler.state.state_tables import shard_of
from reconciler.state.table_columns import Columns, arrow_schema
from reconciler.table.filetable import Bool, Int64
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
KIND_OF = {"ints": INT, "floats": FLOAT, "texts": TEXT, "lists": LIST}


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
        "recorded_bytes": _unless_all_null([item.recorded_bytes for item in queries]),
        "duration_ms": _unless_all_null([item.duration_ms for item in queries]),
        "moving": _unless_all_null([offset for item in queries for offset in item.moving]),
        **{name: literals[kind] for name, kind in KIND_OF.items()},
    }


def _unless_all_null(values: list[Any]) -> list[Any]:
    """Return the values, none at all where each is None."""
    return [] if all(value is None for value in values) else values


def _table(common: Sequence[dict[str, Any]], arrays: Sequence[dict[str, list[Any]]]) -> pa.Table:
    import pyarrow as pa

    schema = arrow_schema(QUERIES)
    columns = [
        pa.array([row[name] for row in common], schema.field(name).type) for name, _ in COMMON
    ]
    for name, _ in ARRAYS:
        kind = schema.field(name).type
        edges = edges_of(np.array([len(row[name]) for row in arrays], dtype=np.int64))
        values = pa.array([value for row in arrays for value in row[name]], kind.value_type)
        columns.append(_lists(edges, values, kind))
    return pa.Table.from_arrays(columns, schema=schema)


def edges_of(counts: Int64) -> Int64:
    """Return where each of the lists begins if they lie end to end, and where the last one ends:
    int64[lists + 1]. counts: int64[lists], their lengths."""
    return np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(counts)))


def _lists(edges: Int64, values: Any, kind: Any) -> Any:
    import pyarrow as pa

    return pa.LargeListArray.from_arrays(pa.array(edges, pa.int64()), values, type=kind)


def distinct(rows: pa.Table) -> pa.Table:
    """Return the rows in order, with each query once: as the row has it that was imported first.

    The same query has the same table, source and position.
    """
    rows = rows.take(row_order({name: rows.column(name) for name in _KEYS}))
    position, edges = flat(rows.column("position"))
    kept = _first(rows, numbers(position), np.diff(edges))
    return rows if kept.all() else _kept(rows, kept)


_KEYS = ("table_uuid", "shape_id", "full_scan", "kinds", "hour_ms", "source", "imported_ms")


def row_order(columns: Mapping[str, Any]) -> Int64:
    """Return the rows by table, shape and time, and those of the earlier import first."""
    return np.lexsort([_key(columns[name]) for name in reversed(_KEYS)]).astype(np.int64)


def _key(column: Any) -> npt.NDArray[Any]:
    """Return numbers that are equal where the values of a column are."""
    import pyarrow as pa

    kind = column.type
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return np.asarray(numbers(column))
    return coded(column)[0]


def joined(rows: pa.Table, span_ms: int) -> pa.Table:
    """Return distinct rows that agree in all that their queries have in common as one row.

    span_ms: rows stay apart that were imported in different spans of this length; 0: at different
    times. A joined row counts as imported when its first query was.
    """
    import pyarrow as pa

    imported = numbers(rows.column("imported_ms"))
    starts = {name: flat(rows.column(name))[1] for name, _ in ARRAYS}
    keys = [_key(rows.column(name)) for name, _ in COMMON if name != "imported_ms"]
    keys += [np.diff(starts[name]) > 0 for name in SOMETIMES]
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
            values, edges = flat(column)
            column = _lists(np.append(edges[first], edges[-1]), values, field.type)
        elif field.name == "imported_ms":
            column = pa.array(np.minimum.reduceat(imported[order], first))
        else:
            column = column.take(pa.array(first))
        columns.append(column)
    return pa.table(columns, schema=rows.schema)


SOMETIMES = ("recorded_bytes", "duration_ms", "moving")
"""Arrays that are empty where no query of the row has a value."""


def positions(rows: pa.Table) -> Int64:
    """Return the positions of all queries, ascending, each once."""
    return np.unique(numbers(flat(rows.column("position"))[0]))


class Imports(NamedTuple):
    """Stored queries of one table and source. A query that was stored twice is there twice."""

    positions: Int64
    """int64[queries]: the positions in ascending order, of equal ones the older import first."""
    imported_ms: Int64
    """int64[queries]: when each was imported, in epoch milliseconds."""


def imports_of(rows: pa.Table) -> dict[tuple[str, str], Imports]:
    """Return the stored queries of the rows by table UUID and source."""
    found: dict[tuple[str, str], list[Imports]] = {}
    own, edges = flat(rows.column("position"))
    at = np.repeat(numbers(rows.column("imported_ms")), np.diff(edges))
    held, start = numbers(own), 0
    names = zip(
        rows.column("table_uuid").to_pylist(), rows.column("source").to_pylist(), strict=True
    )
    for name, end in zip(names, edges[1:].tolist(), strict=True):
        found.setdefault(name, []).append(Imports(held[start:end], at[start:end]))
        start = end
    return {name: _ascending(parts) for name, parts in found.items()}


def _ascending(parts: Sequence[Imports]) -> Imports:
    held, at = (np.concatenate(one) for one in zip(*parts, strict=True))
    order = np.lexsort((at, held))
    return Imports(held[order], at[order])


def concatenated(first: pa.Table, second: pa.Table) -> pa.Table:
    """Return the rows of both: some of the table, others made in memory."""
    import pyarrow as pa

    schema = arrow_schema(QUERIES)
    return pa.concat_tables([rows.select(NAMES).cast(schema) for rows in (first, second)])


def flat(column: Any) -> tuple[Any, Int64]:
    """Return the values of all lists of a column, and where each list begins, with the end."""
    return flat_array(column.combine_chunks())


def flat_array(lists: Any) -> tuple[Any, Int64]:
    return lists.flatten(), edges_of(numbers(lists.value_lengths()).astype(np.int64))


def numbers(values: Any) -> Any:
    """Return an array of numbers without nulls."""
    return values.to_numpy(zero_copy_only=False)


def has_repeats(values: Int64) -> bool:
    """Whether two of the values are equal."""
    ordered = np.sort(values)
    return bool((ordered[1:] == ordered[:-1]).any())


def _first(rows: pa.Table, position: Int64, counts: Int64) -> Bool:
    """Return bool[queries]: whether no row has the query that was imported earlier."""
    first = np.ones(len(position), dtype=np.bool_)
    if not has_repeats(position):
        return first
    logs: dict[tuple[str, str], int] = {}
    number = [
        logs.setdefault((row["table_uuid"], row["source"]), len(logs))
        for row in rows.select(["table_uuid", "source"]).to_pylist()
    ]
    log = np.repeat(np.array(number, dtype=np.int64), counts)
    imported = np.repeat(numbers(rows.column("imported_ms")), counts)
    order = np.lexsort((imported, position, log))
    first[order[1:]] = (np.diff(position[order]) != 0) | (np.diff(log[order]) != 0)
    return first


def _kept(rows: pa.Table, kept: Bool) -> pa.Table:
    """Return the rows with only these of their queries; rows without any are left out."""
    import pyarrow as pa

    _, starts = flat(rows.column("position"))
    counts = np.diff(starts)
    left = np.diff(edges_of(kept.astype(np.int64))[starts])
    arrays = {name for name, _ in ARRAYS}
    columns = []
    for field in rows.schema:
        column = rows.column(field.name)
        if field.name in arrays:
            values, edges = flat(column)
            per_query = np.diff(edges) // np.maximum(counts, 1)
            mask = pa.array(np.repeat(kept, np.repeat(per_query, counts)))
            column = _lists(edges_of(left * per_query), values.filter(mask), field.type)
        columns.append(column)
    return pa.table(columns, schema=rows.schema).filter(pa.array(left > 0))


def coded(column: Any) -> tuple[Int64, list[Any]]:
    """Return each row's place among the texts of a column, and the texts; null is ""."""
    import pyarrow as pa

    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    found = column.unify_dictionaries().combine_chunks()
    texts = found.dictionary.to_pylist()
    code = numbers(found.indices.fill_null(len(texts))).astype(np.int64)
    return code, [*texts, ""]
