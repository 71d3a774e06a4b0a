"""What a plan predicted beside what was found, as plain numbers of one played table."""

from __future__ import annotations

from typing import Any

import numpy as np

from bench.tables.drawn import Drawn
from bench.tables.play import Place, Played, Read, Seen, read_of
from reconciler.plan.prediction import predictions_of, total
from reconciler.plan.rejected import merged
from reconciler.queries.rewrite_cost import CPU_OF_FIRST
from reconciler.table.filetable import Float64, Int64

Numbers = dict[str, Any]


def compared(place: Place, played: Played) -> Numbers:
    """Return the line of a table in the bench's log: numbers, reasons and labels."""
    document = played.plan.plan.document()
    evidence = document["evidence"]
    predictions = predictions_of(document["actions"])
    sums = total(predictions)
    before, after = (read_of(seen.view, played.recorded) for seen in (played.before, played.after))
    coming = tuple(read_of(seen.view, played.later) for seen in (played.before, played.end))
    lines = {line["name"]: line for line in evidence["totals"]}
    read = next((line for name, line in lines.items() if name.startswith("read /")), None)
    rho = evidence["cost"]["rhoMilli"] / 1000
    size = played.before.observation.files.total_bytes
    queries = max(played.recorded.queries, 1.0)
    return {
        "kind": played.drawn.kind,
        "seed": played.drawn.seed,
        "bytes": size,
        "files": len(played.before.observation.files),
        "queries": played.recorded.queries,
        "shapes": len(played.recorded.shapes),
        "chosen": [p.label for p in predictions],
        "rows_equal": played.rows_equal,
        "read": _span(read, after.bytes) | {"before": before.bytes},
        "per_query": {"predicted": _after(read) / queries, "found": after.bytes / queries},
        "shape_errors": _shape_errors(evidence, after),
        "file_count": _span(lines.get("data files"), len(played.after.observation.files)),
        "written": {"predicted": sums.bytes_out, "found": _written(played)},
        "seconds": {
            "predicted": evidence["cost"]["millis"] / 1000,
            "found": None if place.started is None else place.started + played.seconds,
        },
        "cpu": {
            "predicted": sums.cpu_seconds - _warm_up(place, played),
            "found": played.cpu_seconds,
        },
        "rewritten": played.rewritten,
        "cost": {
            "rho": rho,
            "nothing": coming[0].cost,
            "chosen": coming[1].cost + rho * played.rewritten,
            "saving_predicted": sums.saving,
            "saving_found": coming[0].cost - coming[1].cost,
        },
        "next": total(predictions_of(played.following.plan.document()["actions"])).bytes_in,
        "next_labels": [item.predicted.label for item in played.following.plan.actions],
        "days": played.days,
        "most_of_budget": played.most_of_budget,
        "outside": _outside(played),
        "reasons": [[line.reason, line.why] for line in merged(evidence["rejected"])],
    }


def _warm_up(place: Place, played: Played) -> float:
    """Return the predicted CPU seconds of a fresh JVM that this one, which has run other tables,
    does not need."""
    if place.started is not None:
        return 0.0
    kinds = {item.action.work for item in played.plan.plan.actions}
    return sum(CPU_OF_FIRST[kind] for kind in kinds if kind is not None)


def _span(line: Numbers | None, found: float) -> Numbers:
    """Return the line's prediction and interval with what was found."""
    if line is None:
        return {"predicted": None, "low": None, "high": None, "found": found}
    return {
        "predicted": line["after"],
        "low": line.get("low"),
        "high": line.get("high"),
        "found": found,
    }


def _after(line: Numbers | None) -> float:
    return float("nan") if line is None else float(line["after"])


def _shape_errors(evidence: Numbers, after: Read) -> list[float]:
    """Return found / predicted - 1 per shape that reads something."""
    return [
        after.shapes[shape["shapeId"]] / shape["bytesAfter"] - 1.0
        for shape in evidence["shapes"]
        if shape["bytesAfter"] and shape["shapeId"] in after.shapes
    ]


def _written(played: Played) -> int:
    """Return the bytes of the files that are new since the plan."""
    known = set(played.before.observation.files.path)
    files = played.after.observation.files
    return int(files.bytes[[path not in known for path in files.path]].sum())


def _outside(played: Played) -> Numbers | None:
    """Return the shares of the rewritten rows that no window to come asks for; None without one.

    rows: of all of them; files: of those in files of which no row is asked for. The rest is in
    files in which a window begins: they are rewritten as a whole or not at all.
    """
    drawn: Drawn = played.drawn
    if drawn.window is None or not played.plan.plan.actions:
        return None
    column, since = drawn.window
    inputs = {path for item in played.plan.plan.actions for path in item.action.inputs}
    rows = [number for number, path in enumerate(played.before.observation.files.path)
            if path in inputs]  # fmt: skip
    older, whole = _older(played.before, np.array(rows, dtype=np.int64), column, since)
    total = max(float(whole.sum()), 1.0)
    return {
        "rows": float(older.sum()) / total,
        "files": float(whole[older == whole].sum()) / total,
    }


def _older(seen: Seen, rows: Int64, column: str, since: Any) -> tuple[Float64, Float64]:
    """Return the older rows and all rows of each of these files, by footers: rows are in order of
    time there."""
    groups, owner = seen.view.row_groups, seen.view.group_file
    assert groups is not None and owner is not None
    field = next(f for f in seen.view.files.schema.fields if f.name == column)
    bounds = groups.columns[field.field_id]
    low, high = bounds.lower.astype(np.float64), bounds.upper.astype(np.float64)
    edge = float(np.datetime64(since, "us").astype(np.int64))
    share = np.clip((edge - low) / np.maximum(high - low, 1.0), 0.0, 1.0)
    older = np.bincount(owner, share * groups.records, len(seen.view.files))
    whole = np.bincount(owner, groups.records, len(seen.view.files))
    return older[rows], whole[rows]
