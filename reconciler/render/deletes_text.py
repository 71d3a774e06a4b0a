"""Renders the deletes and the row-level operations of an observation: text and JSON.

What metadata cannot tell is shown as a range or as `-`, never as 0: the rows under an equality
delete are known only by reading the data.
"""

from __future__ import annotations

from typing import Any

from reconciler.advisor.deletes.mode import CostInputs, mode_choices
from reconciler.advisor.deletes.mode_document import modes_document
from reconciler.format import count, duration, iec, percent, plural
from reconciler.plan.prediction_interval import PRIOR_CALIBRATION
from reconciler.queries.rewrite_cost import PRIOR_THROUGHPUT
from reconciler.render.modes_text import modes_section
from reconciler.render.terminal import tabulate, wrapped
from reconciler.table.damage import damage_of
from reconciler.table.deletes import DeleteTable, Scope, live_rows
from reconciler.table.observation import Observation
from reconciler.table.operations import Encoding, Kind, KindSummary, Operations

WHOLE = (
    "Each imported query counts as a reading of the whole table here; plan counts what it reads."
)
UPSERTS = (
    "A copy-on-write delete without an engine's name may be an upsert of pyiceberg, which commits "
    "it as a delete and an append."
)
MAX_KINDS = 6
"""Maximum lines of OPERATIONS."""

SCOPES = {
    Scope.VECTOR: "deletion vectors",
    Scope.FILE: "positions, one data file each",
    Scope.PARTITION: "positions of a partition",
    Scope.EQUALITY: "equality, of a partition",
    Scope.GLOBAL: "equality, whole table",
}


def rows_text(seen: Observation) -> str:
    """Return "20,200 rows", and of a table with deletes "20,200 rows stored, 15,000 live", or
    "about 15,000 live (9,000 to 20,000)" where metadata does not tell."""
    stored = seen.files.total_records
    if not len(seen.delete_files):
        return f"{count(stored)} rows"
    live = live_rows(seen.files, seen.delete_files)
    if live.exact:
        return f"{count(stored)} rows stored, {count(live.most)} live"
    between = f"{count(live.least)} to {count(live.most)}"
    return f"{count(stored)} rows stored, about {count(live.estimate)} live ({between})"


def damage_text(seen: Observation, width: int) -> list[str]:
    """Return what is wrong with a table that cannot be read, and what to do."""
    found = damage_of(seen)
    return wrapped(f"DAMAGED   {found}", width) if found else []


def deletes_section(seen: Observation, width: int) -> list[str]:
    """Return the delete files by scope, and how many data files a reader applies them to."""
    deletes = seen.delete_files
    if not len(deletes):
        return []
    rows = [["DELETES", "FILES", "ROWS", "BYTES", "DANGLING"]]
    for scope, title in SCOPES.items():
        own = deletes.of(scope)
        if own.any():
            keys = scope in (Scope.EQUALITY, Scope.GLOBAL)
            rows.append(
                [
                    f"  {title}",
                    count(int(own.sum())),
                    f"{count(int(deletes.records[own].sum()))}{' keys' if keys else ''}",
                    iec(int(deletes.bytes[own].sum())),
                    count(int((own & deletes.dangling).sum())),
                ]
            )
    return [*tabulate(rows, "lrrrr", width, gap="  "), *wrapped(_reach(seen, deletes), width)]


def _reach(seen: Observation, deletes: DeleteTable) -> str:
    files = seen.files
    touched = int((files.delete_files > 0).sum())
    parts = [f"a reader applies deletes to {touched:,} of {plural(len(files), 'data file')}"]
    worst = int(files.delete_files.max(initial=0))
    if worst > 1:
        parts.append(f"up to {worst:,} delete files for one")
    if deletes.dangling.any():
        parts.append("dangling = applies to no live data file")
    hidden = int((files.equality_deletes > 0).sum())
    if hidden:
        parts.append(
            f"equality deletes are in scope of {plural(hidden, 'file')}: only reading them shows "
            "how many of their rows are deleted (the estimate is that each key deletes one row)"
        )
    return "; ".join(parts) + "."


def operations_section(seen: Observation, queries_per_day: float | None, width: int) -> list[str]:
    """Return row-level operations by kind, with rates, from the retained history."""
    operations = seen.operations
    if not operations.every:
        return []
    rows = [["OPERATIONS", "PER DAY", "ROWS", "OF TABLE", "FILES", "PARTITIONS", "ENGINE"]]
    stored = seen.files.total_records
    rows += [_operation_row(one, stored) for one in operations.summaries()[:MAX_KINDS]]
    return [
        *tabulate(rows, "lrrrrrl", width, gap="  "),
        *wrapped(_span(operations, queries_per_day), width),
        *(wrapped(UPSERTS, width) if _may_be_upserts(operations) else []),
    ]


def _may_be_upserts(operations: Operations) -> bool:
    return any(
        one.kind is Kind.DELETE and one.encoding is Encoding.COPY_ON_WRITE and not one.engine
        for one in operations.every
    )


def _operation_row(one: KindSummary, stored: int) -> list[str]:
    known = one.rows is not None
    prefix = "<= " if one.at_most else ""
    share = percent(min(1.0, (one.rows or 0) / stored), 2) if known and stored else "-"
    return [
        f"  {one.kind}, {one.encoding}",
        f"{one.per_day:,.1f}",
        f"{prefix}{count(one.rows or 0)}" if known else "unknown",
        f"{prefix}{share}" if known else "-",
        "-" if one.files is None else count(one.files),
        "-" if one.partitions is None else count(one.partitions),
        one.engine or "-",
    ]


def _span(operations: Operations, queries_per_day: float | None) -> str:
    covered = operations.covered_ms
    over = duration((operations.span_ms if covered is None else covered) / 1000)
    text = f"medians per operation over {plural(len(operations.every), 'operation')} in {over}"
    if covered is not None:
        text += "; less than a day shows no rate, so PER DAY counts them as those of one day"
    if queries_per_day is None:
        return f"{text}; import queries to know how often it is read between two of them."
    between = queries_per_day / operations.per_day
    return f"{text}; {between:,.1f} reads between two of them."


def modes_lines(seen: Observation, queries_per_day: float | None, width: int) -> list[str]:
    """Return WRITE MODES."""
    return modes_section(modes_of(seen, queries_per_day), width)


def modes_of(seen: Observation, queries_per_day: float | None) -> dict[str, Any]:
    """Return the write modes with their costs, before anything of this table was measured."""
    inputs = CostInputs(
        files=seen.files,
        format_version=seen.format_version,
        properties=seen.properties,
        reads_per_day=queries_per_day,
        throughput=PRIOR_THROUGHPUT,
        rewriting=PRIOR_CALIBRATION,
    )
    choices = mode_choices(inputs, seen.operations)
    return modes_document(choices, [WHOLE] if any(one.costs for one in choices) else [])


def deletes_document(seen: Observation) -> dict[str, Any]:
    """Return the deletes for -o json|yaml. Bounds, where a number is not known."""
    load, deletes, files = seen.deletes, seen.delete_files, seen.files
    live, stored = live_rows(files, deletes), files.total_records
    return {
        "positionFiles": load.position_files,
        "positionFilesOfPartitions": load.partition_files,
        "positionRows": load.position_rows,
        "vectors": load.vectors,
        "vectorRows": load.vector_rows,
        "equalityFiles": load.equality_files,
        "equalityKeys": load.equality_rows,
        "dangling": load.dangling,
        "bytes": load.bytes,
        "dataFilesWithDeletes": int(
            ((files.delete_files > 0) | (files.equality_deletes > 0)).sum()
        ),
        "dataFilesUnderEqualityDeletes": int((files.equality_deletes > 0).sum()),
        "liveRows": {"atLeast": live.least, "estimate": live.estimate, "atMost": live.most},
        "deletedRows": {
            "atLeast": stored - live.most,
            "estimate": stored - live.estimate,
            "atMost": stored - live.least,
        },
        "dataFilesWithTwoVectors": list(seen.doubled_vectors),
        "damage": damage_of(seen),
    }


def operations_document(operations: Operations, queries_per_day: float | None) -> dict[str, Any]:
    reads = None
    if queries_per_day is not None and operations.every:
        reads = round(queries_per_day / operations.per_day, 2)
    return {
        "count": len(operations.every),
        "spanMillis": operations.span_ms,
        "readsBetween": reads,
        "kinds": [_kind_document(one) for one in operations.summaries()],
    }


def _kind_document(one: KindSummary) -> dict[str, Any]:
    return {
        "kind": str(one.kind),
        "encoding": str(one.encoding),
        "engine": one.engine or None,
        "count": one.count,
        "perDay": round(one.per_day, 3),
        "rows": one.rows,
        "rowsAreAtMost": one.at_most,
        "dataFiles": one.files,
        "partitions": one.partitions,
        "addedFiles": one.added_files,
    }
