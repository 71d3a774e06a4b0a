"""Builds status.plan: what a plan does, aggregated by type of action; pure.

No value of a table or literal of a query is put here. A query is shown only as its shape, with `?`
for every literal.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from reconciler.operator.conditions import Body
from reconciler.operator.status_text import cut, short_bytes, short_duration, utc
from reconciler.plan.plan import Plan, PlannedAction
from reconciler.plan.prediction import total
from reconciler.plan.totals import Quantity, total_of
from reconciler.table.schema import Schema

MOST_LINES = 10
MOST_SLOWER = 3
MOST_TEXTS = 3
MOST_TEXT = 256


def plan_status(
    plan: Plan,
    pending: Sequence[PlannedAction],
    digest: str,
    uri: str,
    schema: Schema,
    money: str = "",
) -> Body:
    """Return status.plan of a plan with work: aggregated by type, at most ten lines, and the
    recorded shapes that read more afterwards, at most three. schema: names the key's columns.
    money: what it costs and saves, as printed, "" without prices."""
    amplification = total_of(plan.evidence, Quantity.AMPLIFICATION)
    predicted = total(item.predicted for item in pending)
    body: Body = {
        "id": plan.id,
        "digest": digest,
        "createdAt": utc(plan.created),
        "expiresAt": utc(plan.expires),
        "rewriteBytes": short_bytes(predicted.bytes_in),
        "cpuTime": short_duration(predicted.cpu_seconds),
        "actions": plan_lines(pending, schema),
        "summary": _with_money(plan_summary(pending), money),
    }
    slower = plan_slower(plan)
    if slower:
        body["slower"] = slower
    if uri:
        body["uri"] = uri
    if plan.base_snapshot_id is not None:
        body["baseSnapshotId"] = str(plan.base_snapshot_id)
    if amplification is not None and amplification.after is not None:
        body["predictedScanAmplification"] = f"{amplification.after / 1000:.2f}"
    return body


def _with_money(summary: str, money: str) -> str:
    more = f"; {money}" if money else ""
    return cut(summary, MOST_TEXT - len(more)) + more


def plan_lines(pending: Sequence[PlannedAction], schema: Schema) -> list[Body]:
    """Return a line per type of action: how many, by which keys, and why."""
    lines: list[Body] = []
    for kind, items in _by_type(pending).items():
        line: Body = {"type": kind, "count": len(items), **_extent(items)}
        keys = _distinct(item.action.key_text(schema) for item in items)
        reasons = _distinct(item.predicted.reason or "" for item in items)
        line |= {"key": keys} if keys else {}
        line |= {"reason": reasons} if reasons else {}
        lines.append(line)
    return lines[:MOST_LINES]


def plan_slower(plan: Plan) -> list[Body]:
    """Return the recorded shapes that read more after the plan, those that lose most bytes first.

    factor: bytes read after over bytes read now; absent where a shape reads nothing now.
    """
    worse = [
        shape
        for shape in plan.evidence.get("shapes", ())
        if shape.get("worse") and shape.get("bytesAfter") is not None
    ]
    worse.sort(key=lambda shape: (shape["bytesNow"] - shape["bytesAfter"], shape["shapeId"]))
    found: list[Body] = []
    for shape in worse[:MOST_SLOWER]:
        line: Body = {"shape": cut(shape["text"], MOST_TEXT), "queries": shape["queries"]}
        if shape["bytesNow"]:
            line["factor"] = f"{shape['bytesAfter'] / shape['bytesNow']:.2f}"
        found.append(line)
    return found


def plan_summary(pending: Sequence[PlannedAction]) -> str:
    """Return '2 Recluster (6400 files, 400Gi), 1 SetProperties'."""
    parts = []
    for kind, items in _by_type(pending).items():
        line = _extent(items)
        extent = f" ({line['files']} files, {line['rewriteBytes']})" if line else ""
        parts.append(f"{len(items)} {kind}{extent}")
    return ", ".join(parts)


def _by_type(pending: Sequence[PlannedAction]) -> dict[str, list[PlannedAction]]:
    by_type: dict[str, list[PlannedAction]] = {}
    for item in pending:
        by_type.setdefault(item.action.kind, []).append(item)
    return by_type


def _extent(items: Sequence[PlannedAction]) -> Body:
    """Return the input files of actions of one type and their size, {} for metadata changes."""
    files = sum(len(item.action.inputs) for item in items)
    if not files:
        return {}
    return {
        "files": files,
        "rewriteBytes": short_bytes(total(item.predicted for item in items).bytes_in),
    }


def _distinct(texts: Iterable[str]) -> str:
    """Return the first different texts, and how many more there are."""
    every = [text for text in dict.fromkeys(texts) if text]
    more = [f"{len(every) - MOST_TEXTS} more"] if len(every) > MOST_TEXTS else []
    return cut("; ".join([*every[:MOST_TEXTS], *more]), MOST_TEXT)
