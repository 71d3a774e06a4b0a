"""Conditions of a status, as kstatus reads them.

Ready always, Reconciling and Stalled only while true. Each names the generation that it describes,
and its transition time changes only with its status. Callers redact error texts.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from reconciler.api.conditions import EXPLANATIONS, ConditionType, Explanation
from reconciler.api.conditions import Status as Truth
from reconciler.operator.status_text import cut, utc

Body = dict[str, Any]


MOST_MESSAGE = 1024


@dataclass(frozen=True, slots=True)
class Condition:
    """One condition, without the fields that only the clock and the stored object give."""

    type: ConditionType
    status: Truth
    reason: str
    message: str


def merged(
    old: Iterable[Mapping[str, Any]] | None,
    new: Sequence[Condition],
    generation: int,
    now: dt.datetime,
) -> list[Body]:
    """Return the conditions as stored: lastTransitionTime changes only with the status."""
    before = {item.get("type"): item for item in old or ()}
    out = []
    for item in new:
        known = before.get(item.type.value, {})
        same = known.get("status") == item.status.value and known.get("lastTransitionTime")
        out.append(
            {
                "type": item.type.value,
                "status": item.status.value,
                "observedGeneration": generation,
                "lastTransitionTime": known["lastTransitionTime"] if same else utc(now),
                "reason": str(item.reason),
                "message": cut(item.message, MOST_MESSAGE),
            }
        )
    return out


def condition_of(status: Mapping[str, Any] | None, kind: ConditionType) -> Body:
    """Return the stored condition of a type, {} if there is none."""
    stored: list[Body] = (status or {}).get("conditions") or []
    for item in stored:
        if item.get("type") == kind.value:
            return item
    return {}


def known_condition(status: Mapping[str, Any] | None, kind: ConditionType) -> Condition | None:
    """Return the stored condition of a type as a value, None if there is none."""
    found = condition_of(status, kind)
    if not found:
        return None
    return Condition(kind, Truth(found["status"]), found["reason"], found["message"])


def explanation_of(reason: str) -> Explanation | None:
    """Return what is documented of a reason; None for one of another version."""
    return next((entry for known, entry in EXPLANATIONS.items() if known == reason), None)


def explained(reason: str, message: str = "") -> str:
    """Return a message with the remedy of the reason."""
    entry = explanation_of(reason)
    if entry is None:
        return message
    text = message or entry.cause
    return f"{text.rstrip('.')}. {entry.remedy}" if entry.remedy else text
