"""The present state of a frozen plan: what of it is done, and the cost and effect of the rest.

The plan itself (its id, its digest, what is stored) never changes. This document is shown to people
after a part of the plan was carried out, and a budget or a signal ended the run early.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from reconciler.loop.evidence import change, total_lines, whole, workload_document
from reconciler.loop.propose import Proposal, files_of
from reconciler.loop.waiting import refused, waiting
from reconciler.plan.actions.state import ActionState, Validity
from reconciler.plan.ledger import trust
from reconciler.plan.plan import PlannedAction, written_share
from reconciler.plan.prediction_interval import FilesTold, files_after

SUMS = ("filesOut", "groups", "bytesOut", "rows", "cpuMillis", "millis", "saving", "cost")
"""Predictions of an action that shrink with its inputs."""


def shown_document(proposal: Proposal) -> dict[str, Any]:
    """Return the plan's document, with `done` beside `actions` if some are done.

    `actions` then holds the remaining ones, each with its live inputs, and the evidence is present:
    totals, cost and what the queries read now. What they will read afterwards remains as planned.
    """
    document = proposal.plan.document()
    evidence = dict(document["evidence"])
    held = waiting(proposal.advice, proposal.observation, proposal.policy)
    evidence.pop("waiting", None)
    if held is not None:
        evidence["waiting"] = held.document() | {"text": held.text()}
    refusal = refused(proposal.observation, proposal.policy) if proposal.pending else ""
    if refusal:
        evidence["refused"] = refusal
    document["evidence"] = evidence
    if not proposal.frozen:
        return document
    evidence["trust"] = trust(proposal.history.entries, proposal.history.checks)
    states = proposal.states
    if not begun(states):
        return document
    pairs = list(zip(proposal.plan.actions, document["actions"], strict=True))
    document["done"] = [body for item, body in pairs if states[item.id].validity is Validity.DONE]
    document["actions"] = [
        left_of(proposal, item, body, states[item.id])
        for item, body in pairs
        if states[item.id].validity is Validity.PENDING
    ]
    evidence |= _evidence_left(proposal, evidence, document["actions"])
    return document


def progress(proposal: Proposal) -> dict[str, Any]:
    """Return the ids of done and of remaining actions; {} for a plan not begun."""
    states = proposal.states
    if not (proposal.frozen and begun(states)):
        return {}
    ids = {
        name: [item.id for item in proposal.plan.actions if states[item.id].validity is validity]
        for name, validity in (("done", Validity.DONE), ("left", Validity.PENDING))
    }
    return {"progress": ids}


def begun(states: Mapping[str, ActionState]) -> bool:
    """Whether a part of the plan has been committed."""
    return any(state.begun for state in states.values())


def left_of(
    proposal: Proposal, item: PlannedAction, body: Mapping[str, Any], state: ActionState
) -> dict[str, Any]:
    """Return the action on those of its inputs that are still live."""
    inputs = item.action.inputs
    if len(state.standing) == len(inputs):
        return dict(body)
    live = files_of(item, proposal.observation.files)
    told = dict(item.predicted)
    share = live.total_bytes / max(int(told["bytesIn"]), 1)
    told |= {key: math.ceil(told[key] * share) for key in SUMS if told.get(key, -1) >= 0}
    told |= {
        "label": f"{told['label']} ({len(live)} of its {len(inputs)} files are left)",
        "filesIn": len(live),
        "bytesIn": live.total_bytes,
    }
    return {**body, "inputs": sorted(str(path) for path in live.path), "predicted": told}


def _evidence_left(
    proposal: Proposal, planned: Mapping[str, Any], left: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    told = [item["predicted"] for item in left]
    now = workload_document(proposal.evidence.workload, proposal.evidence.coverage)
    same = all(now[key] == planned["workload"][key] for key in ("queries", "sinceMs", "untilMs"))
    return {
        "totals": _totals(proposal, planned, told, same),
        "shapes": _shapes(proposal, planned, same),
        "shapesWhenPlanned": not same,
        "cost": _cost(proposal, planned["cost"], told),
    }


def _totals(
    proposal: Proposal,
    planned: Mapping[str, Any],
    told: Sequence[Mapping[str, Any]],
    same: bool,
) -> list[dict[str, Any]]:
    """Return the totals. NOW is as observed; AFTER has files and storage of the remaining actions.

    The other values of AFTER are as planned; with other queries than the plan's they are not
    comparable.
    """
    was = {line["name"]: line for line in planned["totals"]}
    lines = []
    for line in total_lines(proposal.advice, proposal.evidence.workload):
        before = was.get(line["name"], {})
        line = {key: line[key] for key in _known_now(line) if key in line}
        if line["name"] == "data files":
            lines.append({**before, **line, **_files_after(line["now"], told)})
        elif line["name"] == "storage":
            after = line["now"] + sum(int(item.get("bytesOut", 0)) for item in told)
            lines.append({**before, **line, "after": after})
        elif same and before:
            again = {**before, **line}
            if line["name"].startswith("read /"):
                again["note"] = change(line["now"], again["after"])
            lines.append(again)
        else:
            lines.append(line)
    return lines


def _known_now(line: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the values of a line that the present table replaces; a share that is a lower bound
    now is not better known afterwards, whatever the plan expected."""
    always = ("name", "unit", "now", "label")
    return (*always, "atLeast", "objective", "after") if line.get("atLeast") else always


def _files_after(now: int, told: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    rewrites = [
        FilesTold(
            int(item["filesIn"]), int(item["filesOut"]), int(item["groups"]),
            by_size=written_share(item) == 1.0,
        )
        for item in told
        if "filesIn" in item
    ]  # fmt: skip
    found = files_after(now, rewrites)
    return {"after": int(found.mid), "low": int(found.low), "high": int(found.high)}


def _shapes(proposal: Proposal, planned: Mapping[str, Any], same: bool) -> list[dict[str, Any]]:
    """Return what each shape reads now, and what it reads once all of the plan is done."""
    shapes = [dict(shape) for shape in planned["shapes"]]
    if not same:
        return shapes
    effects = {effect.shape_id: effect for effect in proposal.advice.shapes}
    for shape in shapes:
        effect = effects.get(shape["shapeId"])
        if effect is not None:
            shape |= {
                "bytesNow": whole(effect.bytes_now),
                "filesNowMilli": whole(effect.files_now * 1000),
            }
    return sorted(shapes, key=lambda shape: (-shape["bytesNow"], shape["shapeId"]))


def _cost(
    proposal: Proposal, planned: Mapping[str, Any], told: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    return {
        **planned,
        "tableBytes": proposal.observation.files.total_bytes,
        "cpuMillis": sum(int(item.get("cpuMillis", 0)) for item in told),
        "millis": sum(int(item.get("millis", 0)) for item in told),
        "paybackMillis": _payback(proposal, planned.get("paybackMillis"), told),
    }


def _payback(
    proposal: Proposal, planned: int | None, told: Sequence[Mapping[str, Any]]
) -> int | None:
    """Return the payback time, from cost and saving of the remaining actions."""
    cost, saving = (
        sum(int(item.predicted.get(key, 0)) for item in proposal.plan.actions)
        for key in ("cost", "saving")
    )
    cost_left, saving_left = (
        sum(int(item.get(key, 0)) for item in told) for key in ("cost", "saving")
    )
    if planned is None or min(cost, saving, cost_left, saving_left) <= 0:
        return None
    return round(planned * (cost_left / saving_left) * (saving / cost))
