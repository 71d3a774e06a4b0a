"""`explain --query "SELECT ..."`: which files the query opens, which it skips, and why.

The query is read like an imported one, so that the explanation uses the same numbers as plans. Its
values, and the bounds of files, are in the documents only with --show-literals.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from reconciler.errors import UserError

if TYPE_CHECKING:
    from reconciler.loop.ports import Ports, Target
    from reconciler.queries.explain_scan import ConditionEffect, ExplainedScan
    from reconciler.queries.fragments import Fragment
    from reconciler.queries.shape import Shape
    from reconciler.table.filetable import Bool, FileTable
    from reconciler.table.observation import Observation

MOST_FOOTERS = 1_000
_SQL = re.compile(r"^\s*(?:select|with|from)\b", re.IGNORECASE)


def is_sql(text: str) -> bool:
    """Whether the text is a whole query, not a shape's id or a part of its text."""
    return _SQL.match(text) is not None


def explain_sql(
    target: Target,
    observation: Observation,
    ports: Ports,
    sql: str,
    dialect: str,
    *,
    show_literals: bool,
) -> list[dict[str, Any]]:
    """Return a document per scan of the table."""
    documents = []
    for fragment in fragments_of_query(observation, sql, dialect):
        demand = demand_of(fragment, observation)
        reading = _reading(target, observation, ports, demand)
        documents.append(
            scan_document(observation, fragment, demand, *reading, show_literals=show_literals)
        )
    return documents


def fragments_of_query(observation: Observation, sql: str, dialect: str) -> list[Fragment]:
    """Return the query's fragments on the table, one per scan. Raises UserError if there is
    none."""
    from dataclasses import replace

    from reconciler.workload_log.dialects import check_dialect
    from reconciler.workload_log.skip_reasons import UNKNOWN_TABLES
    from reconciler.workload_log.sql import Session, Skipped, SqlReader
    from reconciler.workload_log.tables import KnownTable, SchemaMap
    from reconciler.workload_log.unknown_columns import unknown_columns as unknown

    name = (observation.catalog, *observation.identifier)
    table = KnownTable(observation.uuid, observation.name, observation.schema)
    reader = SqlReader(check_dialect(dialect), SchemaMap({name: table}))
    now = int(time.time() * 1000)
    found = reader.extract(sql, now, Session(name[:-1]))
    if isinstance(found, Skipped) or any(read.note for read in found):
        why = found.reason if isinstance(found, Skipped) else found[0].note
        why = "it does not read this table" if why == UNKNOWN_TABLES else why
        raise UserError(
            f"the query cannot be explained for {observation.name}: {why}",
            do=f"write SELECT ... FROM {observation.name} WHERE ...; --dialect is {dialect}",
        )
    missing = unknown(sql, reader.dialect, observation.schema)
    if missing:
        columns = ", ".join(field.name for field in observation.schema.fields[:12])
        raise UserError(
            f'{observation.name} has no column "{missing[0]}"',
            details=(f"It has {columns}.",),
            do="name columns of the table in the query",
        )
    return [replace(read.fragment, position=number) for number, read in enumerate(found)]


def demand_of(fragment: Fragment, observation: Observation) -> Shape:
    """Return the query in the form of the cost model."""
    from reconciler.queries.fragments import workload_of_fragments

    (batch,) = workload_of_fragments([fragment]).shapes
    return _demand(batch, observation)


def _demand(batch: Shape, observation: Observation) -> Shape:
    from dataclasses import replace

    from reconciler.queries.pruning import simplify

    return replace(batch, predicate=simplify(batch.predicate, observation.schema))


def median_query(observation: Observation, batch: Shape, show_literals: bool) -> dict[str, Any]:
    """Return what the shape's median query, by the number of files, opens and skips, and why."""
    from reconciler.queries.explain_scan import explain_scan, median_of

    demand = median_of(observation.files, _demand(batch, observation))
    scan = explain_scan(observation.files, demand.predicate, demand.literals)
    texts = _conditions(observation, demand, scan, show_literals)
    return _effects(observation.files, scan, texts)


def _reading(
    target: Target, observation: Observation, ports: Ports, demand: Shape
) -> tuple[ExplainedScan, float, str]:
    """Return what is opened, its projected bytes, and their source: exact from footers, or
    bound."""
    import numpy as np

    from reconciler.queries.explain_scan import explain_scan
    from reconciler.queries.read_cost import read_shape
    from reconciler.queries.table_view import table_view

    files = observation.files
    scan = explain_scan(files, demand.predicate, demand.literals)
    opened = np.flatnonzero(scan.read)
    if not len(opened):
        return scan, 0.0, "exact"
    groups = None
    if len(opened) <= MOST_FOOTERS:
        groups = ports.footers(target, observation, opened)
    view = table_view(files, groups, None, 128 << 20).take(opened)
    return scan, float(read_shape(view, demand).bytes[0]), view.label


def scan_document(
    observation: Observation,
    fragment: Fragment,
    demand: Shape,
    scan: ExplainedScan,
    read_bytes: float,
    label: str,
    *,
    show_literals: bool,
) -> dict[str, Any]:
    """Return one scan of the table: what is read, what each condition skips, and the files.

    condition: None if no layout could help it. estimate: "exact" from footers, or "bound".
    """
    from reconciler.queries.predicate import TRUE
    from reconciler.queries.shape_text import condition_text

    files, schema = observation.files, observation.schema
    shown = demand.predicate != TRUE
    texts = _conditions(observation, demand, scan, show_literals)
    opened = []
    for row in scan.read.nonzero()[0].tolist():
        opened.append({
            "path": str(files.path[row]),
            "rows": int(files.records[row]),
            "bytes": int(files.bytes[row]),
        })  # fmt: skip
        if show_literals:
            opened[-1]["bounds"] = _bounds(observation, scan, row)
    return {
        "shapeId": fragment.shape_id,
        "condition": condition_text(demand, schema, show_literals=show_literals) if shown else None,
        "valuesUnknown": fragment.unbound is not None,
        "readBytes": round(read_bytes),
        "estimate": label,
        **_effects(files, scan, texts),
        "files": opened,
    }


def _conditions(
    observation: Observation, demand: Shape, scan: ExplainedScan, show_literals: bool
) -> list[str]:
    from reconciler.queries.predicate import render
    from reconciler.queries.shape_text import latest_literals

    values = latest_literals(demand) if show_literals else None
    return [render(one.condition, observation.schema, values) for one in scan.conditions]


def _effects(files: FileTable, scan: ExplainedScan, texts: Sequence[str]) -> dict[str, Any]:
    read = int(scan.read.sum())
    return {
        "filesRead": read,
        "filesSkipped": len(files) - read,
        "skipped": _skipped(files, scan, texts),
        "read": _read(files, scan, texts),
    }


def _skipped(files: FileTable, scan: ExplainedScan, texts: Sequence[str]) -> list[dict[str, Any]]:
    """Return skipped files, each counted once: under the first condition that excludes it."""
    found: list[dict[str, Any]] = []

    def add(condition: str | None, because: str, mine: Bool) -> None:
        if mine.any():
            number, size = int(mine.sum()), int(files.bytes[mine].sum())
            found.append(
                {"condition": condition, "because": because, "files": number, "bytes": size}
            )

    left = ~scan.read
    for effect, text in zip(scan.conditions, texts, strict=True):
        add(text, "the partition value cannot match", effect.by_partition & left)
        left = left & ~effect.by_partition
        add(text, "outside of the file's bounds", effect.by_bounds & left)
        left = left & ~effect.by_bounds
    add(None, "they hold no row", left)
    return found


def _read(files: FileTable, scan: ExplainedScan, texts: Sequence[str]) -> list[dict[str, Any]]:
    """Return files that are read, by reason."""
    reasons: dict[str, list[int]] = {}
    for row in scan.read.nonzero()[0].tolist():
        why = [_because(one, text, row) for one, text in zip(scan.conditions, texts, strict=True)]
        reasons.setdefault("; ".join(why) or "no condition can skip it", []).append(row)
    return [
        {"because": reason, "files": len(rows), "bytes": int(files.bytes[rows].sum())}
        for reason, rows in reasons.items()
    ]


def _because(effect: ConditionEffect, text: str, row: int) -> str:
    """Return why this condition does not exclude the file."""
    if effect.certain[row]:
        return f"all rows match {text}"
    if effect.unbounded[row]:
        return f"no bounds to judge {text} by"
    return f"bounds do not rule out {text}"


def _bounds(observation: Observation, scan: ExplainedScan, row: int) -> list[dict[str, str]]:
    """Return the file's bounds of the columns in the query's conditions, if it has bounds."""
    from reconciler.queries.predicate import fields_of
    from reconciler.table.values import show

    found = []
    asked = (fields_of(one.condition) for one in scan.conditions)
    for field_id in dict.fromkeys(field_id for fields in asked for field_id in fields):
        column, field = observation.files.columns.get(field_id), observation.schema.by_id[field_id]
        if column is not None and column.bounded[row]:
            low, high = (show(field.type, s[row].item()) for s in (column.lower, column.upper))
            found.append({"column": field.name, "lower": low, "upper": high})
    return found
