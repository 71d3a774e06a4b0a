"""The recorded queries as a program of the version before wrote and read them: a row for each."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from reconciler.queries.fragment_codec import predicate_to_json
from reconciler.queries.fragments import Fragment
from reconciler.state.state_tables import StateTables, matching, shard_of

COLUMNS = (
    ("shard", "int"), ("imported_ms", "long"), ("source", "string"), ("position", "long"),
    ("table_uuid", "string"), ("shape_id", "string"), ("predicate", "string"),
    ("literals", "string"), ("moving", "string"), ("projection", "string"), ("weight", "double"),
    ("event_ms", "long"), ("engine", "string"), ("recorded_bytes", "long?"),
    ("duration_ms", "long?"), ("full_scan", "boolean"), ("unbound", "string?"),
    ("elsewhere", "boolean?"), ("grouped", "boolean?"), ("merged", "boolean?"),
)  # fmt: skip


def append(
    tables: StateTables, fragments: Iterable[Fragment], now_ms: int, lacks: str = ""
) -> None:
    """lacks: a column that the version did not have yet."""
    columns = tuple(column for column in COLUMNS if column[0] != lacks)
    rows = [
        {name: value for name, value in row(item, now_ms).items() if name != lacks}
        for item in fragments
    ]
    tables.append("fragments", columns, rows)


def positions(tables: StateTables, table_uuid: str) -> list[int]:
    """What the program of that version reads back, in order."""
    where = matching({"shard": shard_of(table_uuid), "table_uuid": table_uuid})
    found = tables.scan("fragments", where, ["source", "position"])
    return [] if found is None else sorted(set(found.column("position").to_pylist()))


def row(item: Fragment, now_ms: int) -> dict[str, Any]:
    return {
        "shard": shard_of(item.table_uuid),
        "imported_ms": now_ms,
        "source": item.source,
        "position": item.position,
        "table_uuid": item.table_uuid,
        "shape_id": item.shape_id,
        "predicate": predicate_to_json(item.predicate),
        "literals": json.dumps([_literal(value) for value in item.literals]),
        "moving": json.dumps(list(item.moving)),
        "projection": json.dumps(list(item.projection)),
        "weight": item.weight,
        "event_ms": item.event_ms,
        "engine": item.engine,
        "recorded_bytes": item.recorded_bytes,
        "duration_ms": item.duration_ms,
        "full_scan": item.full_scan,
        "unbound": None if item.unbound is None else predicate_to_json(item.unbound),
        "elsewhere": item.elsewhere,
        "grouped": item.grouped,
        "merged": item.merged,
    }


def _literal(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_literal(member) for member in value]
    if isinstance(value, bytes):
        return "b" + value.hex()
    return "f" + value.hex() if isinstance(value, float) else int(value)
