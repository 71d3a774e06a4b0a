"""Converts advice into the evidence of a plan document: what a reader sees, as integers and
strings.

A plan document has no floats (it is hashed), so ratios are in thousandths and times in
milliseconds; `render.plan_text` and `report` format them for people.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from reconciler.advisor.advice import (
    Advice,
    ObjectiveJudgement,
    Settings,
    ShapeEffect,
)
from reconciler.advisor.deletes.mode_document import modes_document
from reconciler.api.document_codec import to_document
from reconciler.api.documents import TableLayoutPolicy
from reconciler.format import count, plural, utc
from reconciler.loop.advised import Advised
from reconciler.loop.waiting import quiet_ends, waiting
from reconciler.plan.ledger import trust
from reconciler.plan.plan import Plan
from reconciler.plan.prediction import millis, whole
from reconciler.plan.prediction_interval import Interval
from reconciler.plan.reasons import QUIET_PERIOD
from reconciler.plan.rejected import partitions_of, parts
from reconciler.plan.totals import Quantity, named
from reconciler.queries.coverage import Coverage
from reconciler.queries.rates import Outlook, Score
from reconciler.queries.shape import Workload
from reconciler.queries.shape_text import marked_text
from reconciler.table.filetable import FileTable
from reconciler.table.numbers import unread
from reconciler.table.observation import Observation
from reconciler.table.times import DAY_MS, HOUR_MS


def under_policy(
    plan: Plan, policy: TableLayoutPolicy, name: str, not_acted_on: Sequence[str]
) -> Plan:
    """Return the plan with the budgets, windows and checks of `policy`.

    A plan id depends on what is done, not on budgets: a plan that was first proposed under another
    policy, or before a change of budgets, still carries the old ones.
    """
    governed = {**_policy(policy), "notActedOn": list(not_acted_on)}
    return replace(plan, policy=name, evidence={**plan.evidence, **governed})


def _policy(policy: TableLayoutPolicy) -> dict[str, Any]:
    """Return the policy, and the file that it was read from, if any."""
    return {"policyDocument": to_document(policy), "policyFile": policy.origin.file or None}


def evidence_document(
    found: Advised,
    policy: TableLayoutPolicy,
    *,
    cores: int,
    not_acted_on: Sequence[str],
    show_literals: bool = False,
) -> dict[str, Any]:
    """Return everything that `plan` prints beside the actions, and the policy it was made under.

    The policy is part of the plan, so that a saved plan runs within exactly the budgets, windows
    and checks that its reviewer saw.
    """
    advice, observation, settings = found.advice, found.observation, found.settings
    workload, history = found.queries.workload, found.history
    waits = waiting(advice, observation, settings)
    return {
        **_policy(policy),
        "workload": workload_document(workload, found.queries.coverage)
        | {"rates": rates_document(advice.outlook, workload)},
        "totals": total_lines(advice, workload),
        "objectives": [_objective(item) for item in advice.objectives],
        "shapes": _shapes(found, show_literals),
        "cost": _cost(found, cores),
        "writeModes": modes_document(advice.modes, advice.notes) or None,
        "trust": trust(history.entries, history.checks),
        "rejected": rejected_documents(
            advice, observation.files, quiet_ends(advice.rejected, observation, settings)
        ),
        **({"waiting": waits.document()} if waits else {}),
        **_statistics(observation),
        **_unread(observation),
        **_checked(advice),
        **_trial(settings),
        "notActedOn": list(not_acted_on),
        "emptyBecause": _empty_because(advice, workload),
        "snapshot": {
            "id": _snapshot_id(observation),
            "time": utc(observation.snapshot_ms),
            "files": len(observation.files),
            "bytes": observation.files.total_bytes,
        },
    }


def _statistics(observation: Observation) -> dict[str, Any]:
    """Return what becomes of the statistics of engines, where there are some."""
    known = len(observation.metadata.analyzed)
    if not known:
        return {}
    of = plural(known, "column")
    return {"statistics": f"of {of}, which engines collected, stay for readers"}


def _unread(observation: Observation) -> dict[str, Any]:
    """Return which of the table's properties are not followed, where there are some."""
    text = unread(observation.properties)
    return {"unread": text} if text else {}


def _cost(found: Advised, cores: int) -> dict[str, Any]:
    """Return what the plan costs, and by which prices that was computed."""
    advice, settings = found.advice, found.settings
    return {
        "tableBytes": found.observation.files.total_bytes,
        "cpuMillis": millis(advice.cpu_seconds),
        "millis": millis(advice.seconds),
        "cores": cores,
        "rhoMilli": whole(settings.rho.value * 1000),
        "rhoLabel": settings.rho.label,
        "openBytes": settings.open_bytes,
        "openings": settings.openings,
        "openedMs": settings.opened_ms,
        "throughputLabel": settings.throughput.label,
        "paybackMillis": _payback(advice.payback_hours),
        "yearlyRead": whole(advice.yearly_read),
    }


def _checked(advice: Advice) -> dict[str, Any]:
    """Return how many footers of inputs were read, where a look did not read all of them."""
    if not advice.files_unchecked:
        return {}
    read = count(advice.files_read - advice.files_unchecked)
    return {
        "checked": f"footers of {read} of {plural(advice.files_read, 'input file')} were checked; "
        "the rest is checked before anything is written"
    }


def _trial(settings: Settings) -> dict[str, Any]:
    tried = settings.migration.tried if settings.migration is not None else None
    return {} if tried is None else {"trial": tried.document()}


def _snapshot_id(observation: Observation) -> str | None:
    """Return the id of the snapshot that was looked at, as text: readers of JSON round such
    numbers."""
    return None if observation.snapshot_id is None else str(observation.snapshot_id)


def rejected_documents(
    advice: Advice, files: FileTable, ends: Sequence[int | None] = ()
) -> list[dict[str, Any]]:
    """Return an entry per candidate that is not planned, with its partition, if it has one.

    ends: per candidate, when the period that it waits for ends.
    """
    places = partitions_of(files, [item.inputs for item in advice.rejected])
    whys = [
        item.why if end is None else item.why + f"; it may run from {utc(end)}"
        for item, end in zip(advice.rejected, ends or [None] * len(places), strict=True)
    ]
    return [
        {
            "what": str(item.what),
            "partition": place,
            "reason": item.reason,
            "why": str(why),
            "files": item.files,
            "bytes": item.bytes,
            **parts(item.what, why),
        }
        for item, place, why in zip(advice.rejected, places, whys, strict=True)
    ]


def _payback(hours: float | None) -> int | None:
    return None if hours is None or not math.isfinite(hours) else whole(hours * HOUR_MS)


def workload_document(workload: Workload, coverage: Coverage) -> dict[str, Any]:
    return {
        "queries": whole(workload.queries),
        "shapes": len(workload.shapes),
        "sinceMs": workload.since_ms,
        "untilMs": workload.until_ms,
        "until": utc(workload.until_ms)[:10],
        "coveragePercent": math.floor(coverage.share * 100),
        "coverageBasis": coverage.basis,
        "skipped": sum(number for _, number in workload.skipped),
        "skippedBy": dict(workload.skipped),
        "warning": "",
    }


def rates_document(outlook: Outlook, workload: Workload) -> dict[str, Any]:
    """Return why the rates are what they are; {} without queries."""
    if workload.empty:
        return {}
    return {
        "method": outlook.method,
        "presentSinceMs": outlook.since_ms,
        "changes": outlook.changes,
        "presentPercent": whole(100.0 * outlook.present_share),
        "forecasts": [
            {
                "method": score.method,
                "percent": whole(100.0 * score.weight),
                "lossMilliBits": _milli_bits(score.loss),
                "valuesPercent": whole(100.0 * score.values_weight),
                "valuesLossMilliBits": _milli_bits(score.values_loss),
            }
            for score in outlook.scores
        ],
        "text": _mix_text(outlook),
    }


def _milli_bits(nats: float) -> int:
    return whole(1000.0 * nats / math.log(2.0))


def _mix_text(outlook: Outlook) -> str:
    """Return what is expected of the mix, and by which forecast. The share of the horizon is that
    of the regime forecast alone, whose weight in the mixture may be 0."""
    if not outlook.scores and outlook.method == "window":
        since = utc(outlook.since_ms)[:10]
        return f"the last queries of the log, those since {since}, are expected once more"
    if not outlook.changes:
        return "queries go on as often as in the last days; the log shows no change in the mix"
    days = round((outlook.until_ms - outlook.since_ms) / DAY_MS)
    ago = f"{days} days before its end" if days > 1 else "a day before its end"
    ago = ago if days else "on its last day"
    times = "" if outlook.changes == 1 else f" for the {_ordinal(outlook.changes)} time"
    share = f"{100.0 * outlook.present_share:.0f} %"
    return (
        f"the queries in the log changed {ago} ({utc(outlook.since_ms)[:10]}){times}; the new mix "
        f"is expected for {share} of the next 7 days, the mix of the whole log for the rest"
        + _counted(outlook.scores)
    )


def _counted(scores: Sequence[Score]) -> str:
    """Return how much of the mixture expects that; "" where there is no mixture."""
    weights = [100.0 * score.weight for score in scores if score.method == "regime"]
    return f", by the regime forecast ({weights[0]:.0f} %)" if weights else ""


def _ordinal(number: int) -> str:
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{'th' if number % 100 in (11, 12, 13) else ending}"


def total_lines(advice: Advice, workload: Workload) -> list[dict[str, Any]]:
    judged = {item.name: item for item in advice.objectives}
    lines = [
        _line(Quantity.FILES, "count", advice.files_now, advice.files_after,
              judged.get("maxFileCount")),
    ]  # fmt: skip
    if not workload.empty:
        days = max(1, round((workload.until_ms - workload.since_ms) / DAY_MS))
        span = plural(days, "day")
        for quantity, now, after in (
            (Quantity.READ, advice.read_now, advice.read_after),
            (Quantity.COST, advice.cost_now, advice.cost_after),
        ):
            lines.append(_line(quantity, "bytes", now, after, None, span))
            lines[-1]["note"] = change(now, after.mid)
        lines.append(
            _line(Quantity.AMPLIFICATION, "milli", advice.amplification_now * 1000,
                  _scaled(advice.amplification_after, 1000), judged.get("maxScanAmplification"))
        )  # fmt: skip
        lines[-1]["label"] = advice.amplification_label
    storage = _line(Quantity.STORAGE, "bytes", advice.storage_now, advice.storage_after, None)
    if advice.storage_after > advice.storage_now:
        storage["note"] = "until old snapshots expire"
    lines.append(storage)
    for name in ("maxSmallFilePercent", "maxDeletedRowsPercent"):
        if name in judged:
            lines.append(_percent_line(name, judged[name]))
    return lines


def _scaled(interval: Interval, factor: float) -> Interval:
    return Interval(interval.low * factor, interval.mid * factor, interval.high * factor)


def _line(
    quantity: Quantity,
    unit: str,
    now: float,
    after: Interval | float,
    objective: ObjectiveJudgement | None,
    window: str = "",
) -> dict[str, Any]:
    body = {**named(quantity, window), "unit": unit, "now": whole(now)}
    if isinstance(after, Interval):
        body |= {"after": whole(after.mid), "low": whole(after.low), "high": whole(after.high)}
    else:
        body["after"] = whole(after)
    if objective is not None:
        body["objective"] = f"<= {objective.limit:g}   {_verdict(objective)}"
    return body


def _percent_line(name: str, objective: ObjectiveJudgement) -> dict[str, Any]:
    quantity = {
        "maxSmallFilePercent": Quantity.SMALL_FILES,
        "maxDeletedRowsPercent": Quantity.DELETED_ROWS,
    }[name]
    return {
        **named(quantity),
        "unit": "percent",
        "now": _percent(objective.now, objective.at_least),
        "after": _percent(objective.after, objective.at_least),
        "objective": f"<= {objective.limit:g} %   {_verdict(objective)}",
        **({"atLeast": True} if objective.at_least else {}),
    }


def _percent(value: float, at_least: bool) -> int | None:
    """Return the percentage as an integer; None if it is unknown: "at least 0 %" says nothing."""
    if not at_least:
        return whole(value)
    return (math.floor(value) or None) if math.isfinite(value) else None


_UNREACHABLE = {"maxDeletedRowsPercent": "missed"}
"""Verdicts that say nothing of a profit: the message says why the objective is missed."""


def _verdict(objective: ObjectiveJudgement) -> str:
    words = {
        "met": "met",
        "failing": "failing",
        "probably": "uncertain: see interval",
        "unreachable": _UNREACHABLE.get(objective.name, "not reachable at a profit"),
        "unknown": "unknown (equality deletes)",
    }
    return words[objective.state]


def change(now: float, after: float) -> str:
    if now <= 0 or not math.isfinite(after):
        return ""
    return f"{(after - now) / now * 100:+.0f} %"


def _objective(item: ObjectiveJudgement) -> dict[str, Any]:
    return {
        "name": item.name,
        "limitMilli": whole(item.limit * 1000),
        "nowMilli": whole(item.now * 1000),
        "afterMilli": whole(item.after * 1000),
        "state": item.state,
        "message": item.message,
        **({"atLeast": True} if item.at_least else {}),
    }


def _shapes(found: Advised, show_literals: bool) -> list[dict[str, Any]]:
    schema = found.observation.schema
    texts = {
        shape.shape_id: marked_text(shape, schema, show_literals=show_literals)
        for shape in found.queries.workload.shapes
    }
    effects = sorted(found.advice.shapes, key=lambda s: (-s.bytes_now, s.shape_id))
    return [_shape(effect, texts) for effect in effects]


def _shape(shape: ShapeEffect, texts: Mapping[str, str]) -> dict[str, Any]:
    return {
        "shapeId": shape.shape_id,
        "text": texts.get(shape.shape_id, shape.shape_id),
        "queries": whole(shape.queries),
        "bytesNow": whole(shape.bytes_now),
        "bytesAfter": whole(shape.bytes_after),
        "filesNowMilli": whole(shape.files_now * 1000),
        "filesAfterMilli": whole(shape.files_after * 1000),
        "worse": shape.worse,
    }


def _empty_because(advice: Advice, workload: Workload) -> str:
    if advice.actions:
        return ""
    if any(item.reason == QUIET_PERIOD for item in advice.rejected):
        return "All work waits for the quiet period; see the reasons above."
    if advice.rejected:
        return "Nothing is above threshold; the reasons are listed above."
    if workload.empty:
        return "No drift from what is declared, and no queries are known that a layout could serve."
    return "Nothing is above threshold: the layout already serves the recorded queries."
