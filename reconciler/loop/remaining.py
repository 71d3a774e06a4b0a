"""The present state of a frozen plan: what of it is done, and the cost and effect of the rest.

The plan itself (its id, its digest, what is stored) never changes. This document is shown to people
after a part of the plan was carried out, and a budget or a signal ended the run early.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from reconciler.loop.evidence import change, total_lines, workload_document
from reconciler.loop.propose import Proposal
from reconciler.loop.waiting import refused, waiting
from reconciler.plan.actions.state import ActionState, Validity
from reconciler.plan.ledger import trust
from reconciler.plan.plan import PlannedAction, action_document
from reconciler.plan.prediction import Prediction, Total, millis, total, whole
from reconciler.plan.prediction_interval import files_after
from reconciler.plan.totals import Quantity, is_of


def shown_document(proposal: Proposal) -> dict[str, Any]:
    """Return the plan's document, with `done` beside `actions` if some are done.

    `actions` then holds the remaining ones, each with its live inputs, and the evidence is present:
    totals, cost and what the queries read now. What they will read afterwards remains as planned.
    """
    document = proposal.plan.document()
    evidence = dict(document["evidence"])
    held = waiting(proposal.advice, proposal.observation, proposal.settings)
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
    actions = proposal.plan.actions
    left = [left_of(proposal, item, states[item.id]) for item in proposal.pending]
    document["done"] = [
        action_document(item) for item in actions if states[item.id].validity is Validity.DONE
    ]
    document["actions"] = [action_document(item) for item in left]
    evidence |= _evidence_left(proposal, evidence, [item.predicted for item in left])
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


def left_of(proposal: Proposal, item: PlannedAction, state: ActionState) -> PlannedAction:
    """Return the action on those of its inputs that are still live."""
    inputs, standing = item.action.inputs, state.standing
    if len(standing) == len(inputs):
        return item
    row_of = proposal.observation.files.row_of
    rows = [row_of[path] for path in standing if path in row_of]
    size = int(proposal.observation.files.bytes[rows].sum())
    if not rows:  # delete files
        size = item.predicted.rewrite_bytes * len(standing) // max(len(inputs), 1)
    return replace(
        item,
        action=item.action.on(standing),
        predicted=item.predicted.left(len(standing), size, of=len(inputs)),
    )


def _evidence_left(
    proposal: Proposal, planned: Mapping[str, Any], left: Sequence[Prediction]
) -> dict[str, Any]:
    now = workload_document(proposal.queries.workload, proposal.queries.coverage)
    same = all(now[key] == planned["workload"][key] for key in ("queries", "sinceMs", "untilMs"))
    return {
        "totals": _totals(proposal, planned, left, same),
        "shapes": _shapes(proposal, planned, same),
        "shapesWhenPlanned": not same,
        "cost": _cost(proposal, planned["cost"], total(left)),
    }


def _totals(
    proposal: Proposal,
    planned: Mapping[str, Any],
    left: Sequence[Prediction],
    same: bool,
) -> list[dict[str, Any]]:
    """Return the totals. NOW is as observed; AFTER has files and storage of the remaining actions.

    The other values of AFTER are as planned; with other queries than the plan's they are not
    comparable.
    """
    was = {line["name"]: line for line in planned["totals"]}
    lines = []
    for line in total_lines(proposal.advice, proposal.queries.workload):
        before = was.get(line["name"], {})
        line = {key: line[key] for key in _known_now(line) if key in line}
        if is_of(line, Quantity.FILES):
            lines.append({**before, **line, **_files_after(line["now"], left)})
        elif is_of(line, Quantity.STORAGE):
            after = line["now"] + total(left).bytes_out
            lines.append({**before, **line, "after": after})
        elif same and before:
            again = {**before, **line}
            if is_of(line, Quantity.READ) or is_of(line, Quantity.COST):
                again["note"] = change(line["now"], again["after"])
            lines.append(again)
        else:
            lines.append(line)
    return lines


def _known_now(line: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the values of a line that the present table replaces; a share that is a lower bound
    now is not better known afterwards, even if the plan expected so."""
    always = ("name", "measure", "unit", "now", "label")
    return (*always, "atLeast", "objective", "after") if line.get("atLeast") else always


def _files_after(now: int, left: Sequence[Prediction]) -> dict[str, int]:
    found = files_after(now, left)
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


def _cost(proposal: Proposal, planned: Mapping[str, Any], left: Total) -> dict[str, Any]:
    return {
        **planned,
        "tableBytes": proposal.observation.files.total_bytes,
        "cpuMillis": left.cpu_millis,
        "millis": millis(left.seconds(proposal.settings.throughput)),
        "paybackMillis": _payback(proposal, planned.get("paybackMillis"), left),
    }


def _payback(proposal: Proposal, planned: int | None, left: Total) -> int | None:
    """Return the payback time, from cost and saving of the remaining actions."""
    whole_plan = proposal.plan.predicted
    sums = (whole_plan.cost, whole_plan.saving, left.cost, left.saving)
    if planned is None or min(sums) <= 0:
        return None
    return round(planned * (left.cost / left.saving) * (whole_plan.saving / whole_plan.cost))
