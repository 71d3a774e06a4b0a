"""`explain --query "SELECT ..."`: which files the query opens, which it skips, and why.

The query is read as an imported one would be, so that what is told here is what plans count with.
Its values, and the bounds of files, are printed with --show-literals only.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from reconciler.cli.terminal import commands, flow, plural, tabulate, wrapped
from reconciler.core.format import count, iec
from reconciler.errors import UserError

if TYPE_CHECKING:
    from reconciler.core.cost import Demand
    from reconciler.core.filetable import FileTable
    from reconciler.core.observation import Observation
    from reconciler.core.scan import ConditionEffect, Scan
    from reconciler.core.workload import Fragment
    from reconciler.loop.propose import Ports, Target

MOST_FILES = 12
MOST_FOOTERS = 1_000
_SQL = re.compile(r"^\s*(?:select|with|from)\b", re.IGNORECASE)


def is_sql(text: str) -> bool:
    """A whole query, rather than a shape's id or a part of its text."""
    return _SQL.match(text) is not None


def explain_sql(
    target: Target,
    observation: Observation,
    ports: Ports,
    sql: str,
    dialect: str,
    *,
    show_literals: bool,
    verbose: bool,
    width: int,
) -> tuple[str, tuple[str, ...]]:
    """The text, and the shapes that the query belongs to, one per scan of the table."""
    blocks, shapes = [], []
    for fragment in fragments_of_query(observation, sql, dialect):
        demand = demand_of(fragment, observation)
        blocks.append(
            render_scan(
                observation,
                fragment,
                demand,
                *_reading(target, observation, ports, demand),
                show_literals=show_literals,
                verbose=verbose,
                width=width,
            )
        )
        shapes.append(fragment.shape_id)
    return "\n\n".join(blocks), tuple(shapes)


def fragments_of_query(observation: Observation, sql: str, dialect: str) -> list[Fragment]:
    """What the query asks of the table, one per scan. Raises UserError when that is nothing."""
    from reconciler.core.workload import Fragment
    from reconciler.workload_log.sql import (
        UNKNOWN_TABLES,
        Session,
        Skipped,
        SqlReader,
        check_dialect,
    )
    from reconciler.workload_log.sql import unknown_columns as unknown
    from reconciler.workload_log.tables import KnownTable, SchemaMap

    name = (observation.catalog, *observation.identifier)
    table = KnownTable(observation.uuid, observation.name, observation.schema)
    reader = SqlReader(check_dialect(dialect), SchemaMap({name: table}))
    now = int(time.time() * 1000)
    found = reader.extract(sql, now, Session(name[:-1]))
    if isinstance(found, Skipped) or any(demand.full_scan for demand in found):
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
    return [
        Fragment(
            "query", number, demand.table.uuid, demand.predicate, demand.literals, demand.moving,
            demand.projection, 1.0, now, dialect, unbound=demand.unbound,
        )
        for number, demand in enumerate(found)
    ]  # fmt: skip


def demand_of(fragment: Fragment, observation: Observation) -> Demand:
    """The query as the cost model takes it."""
    import numpy as np

    from reconciler.core.cost import Demand
    from reconciler.core.pruning import simplify
    from reconciler.core.workload import batch_fragments

    (batch,) = batch_fragments([fragment]).shapes
    return Demand(
        shape_id=batch.shape_id,
        predicate=simplify(batch.predicate, observation.schema),
        projection=batch.projection,
        literals=batch.literals,
        weight=np.ones(1),
        executions=np.ones(1),
        moving=False,
        full_scan=False,
    )


def _reading(
    target: Target, observation: Observation, ports: Ports, demand: Demand
) -> tuple[Scan, float, str]:
    """What is opened, its projected bytes, and how they are known: exact from footers, or bound."""
    import numpy as np

    from reconciler.core.cost import read_shape, table_view
    from reconciler.core.scan import explain_scan

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


def render_scan(
    observation: Observation,
    fragment: Fragment,
    demand: Demand,
    scan: Scan,
    read_bytes: float,
    label: str,
    *,
    show_literals: bool = False,
    verbose: bool = False,
    width: int,
) -> str:
    """One scan of the table: what is read, what is skipped by which condition, and the files."""
    from reconciler.core.predicate import TRUE, render

    files = observation.files
    values = _literals(demand) if show_literals else None
    text = render(demand.predicate, observation.schema, values)
    shown = "no condition that a layout could serve" if demand.predicate == TRUE else text
    source = "exact, from footers" if label == "exact" else "at most, from the files' bounds"
    lines = wrapped(f"{observation.name}   {shown}", width, indent="    ")
    facts = [
        f"reads {count(int(scan.read.sum()))} of {plural(len(files), 'file')}",
        f"{iec(read_bytes)} of the columns it asks for ({source})",
        f"shape {fragment.shape_id}",
    ]
    lines += [f"  {line}" for line in flow(facts, width - 2)]
    if fragment.unbound is not None:
        unknown = "conditions on ? are left out: a prepared statement's values are not known"
        lines += wrapped(unknown, width, first="  ", indent="    ")
    texts = [render(one.condition, observation.schema, values) for one in scan.conditions]
    lines += _skipped(files, scan, texts, width)
    lines += _opened(observation, scan, texts, show_literals, verbose, width)
    if not show_literals and scan.read.any() and scan.conditions:
        lines += commands(["--show-literals shows values and bounds"], width, title="more:")
    return "\n".join(lines)


def _literals(demand: Demand) -> list[Any]:
    return [
        values[0]
        if isinstance(values, tuple)
        else values[0].item()
        if hasattr(values[0], "item")
        else values[0]
        for values in demand.literals
    ]


def _skipped(files: FileTable, scan: Scan, texts: Sequence[str], width: int) -> list[str]:
    """Skipped files, each counted once: under the first condition that rules it out."""
    if scan.read.all():
        return ["", "SKIPPED   none"] if len(files) else []
    rows = [["SKIPPED", "FILES", "BYTES", "BECAUSE"]]
    left = ~scan.read
    for effect, text in zip(scan.conditions, texts, strict=True):
        for mine, why in (
            (effect.by_partition & left, "the partition value cannot match"),
            (effect.by_bounds & left, "outside of the file's bounds"),
        ):
            if mine.any():
                size = iec(int(files.bytes[mine].sum()))
                rows.append([f"  {text}", count(int(mine.sum())), size, why])
            left = left & ~mine
    if left.any():
        rows.append(["  empty files", count(int(left.sum())), "-", "they hold no row"])
    return ["", *tabulate(rows, "lrrl", width)]


def _opened(
    observation: Observation,
    scan: Scan,
    texts: Sequence[str],
    show_literals: bool,
    verbose: bool,
    width: int,
) -> list[str]:
    """Files that are read, by reason, and the first of them by name."""
    files = observation.files
    opened = scan.read.nonzero()[0].tolist()
    if not opened:
        return ["", "READ   none: no file can hold a matching row"]
    reasons: dict[str, list[int]] = {}
    for row in opened:
        why = [_because(one, text, row) for one, text in zip(scan.conditions, texts, strict=True)]
        reasons.setdefault("; ".join(why) or "no condition to skip it by", []).append(row)
    rows = [["READ BECAUSE", "FILES", "BYTES"]]
    for reason, members in reasons.items():
        rows.append([f"  {reason}", count(len(members)), iec(int(files.bytes[members].sum()))])
    shown = opened if verbose else opened[:MOST_FILES]
    names = [["FILE", "ROWS", "BYTES", "BOUNDS" if show_literals else ""]]
    for row in shown:
        bounds = (
            [_bounds(observation, one, row) for one in scan.conditions] if show_literals else []
        )
        names.append([
            "  " + str(files.path[row]).rsplit("/", 1)[-1], count(int(files.records[row])),
            iec(int(files.bytes[row])), ", ".join(dict.fromkeys(filter(None, bounds))),
        ])  # fmt: skip
    lines = ["", *tabulate(rows, "lrr", width), "", *tabulate(names, "lrrl", width)]
    if len(opened) > len(shown):
        rest = int(files.bytes[opened[len(shown) :]].sum())
        lines.append(f"  {plural(len(opened) - len(shown), 'more file')}, {iec(rest)}: -v")
    return lines


def _because(effect: ConditionEffect, text: str, row: int) -> str:
    """Why this condition does not rule the file out."""
    if effect.certain[row]:
        return f"every row meets {text}"
    if effect.unbounded[row]:
        return f"no bounds to judge {text} by"
    return f"bounds do not rule out {text}"


def _bounds(observation: Observation, effect: ConditionEffect, row: int) -> str:
    from reconciler.core.predicate import fields_of
    from reconciler.core.values import show

    parts = []
    for field_id in fields_of(effect.condition):
        column, field = observation.files.columns.get(field_id), observation.schema.by_id[field_id]
        if column is not None and column.bounded[row]:
            low, high = (show(field.type, _scalar(s[row])) for s in (column.lower, column.upper))
            parts.append(f"{field.name} {low} .. {high}")
    return ", ".join(parts)


def _scalar(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else value
