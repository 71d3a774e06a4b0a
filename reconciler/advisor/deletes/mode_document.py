"""Return the write modes of a table as a document: in plans, explanations and observations.

Times are milliseconds of CPU and counts of readings thousandths, as everywhere in plan documents.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from reconciler.advisor.deletes.mode import ModeChoice
from reconciler.plan.prediction import whole
from reconciler.plan.prediction_interval import Interval
from reconciler.queries.machine_speed import Speed


def modes_document(choices: Sequence[ModeChoice], notes: Sequence[str]) -> dict[str, Any]:
    """Return {} where there is nothing to say."""
    if not choices and not notes:
        return {}
    speed = {"speed": _speed(choices[0].speed)} if choices else {}
    return {"kinds": [_choice(one) for one in choices], **speed, "notes": list(notes)}


def _speed(speed: Speed) -> dict[str, Any]:
    """What all costs were multiplied with, and how many measurements say so."""
    ends = Interval(speed.low, speed.scale, speed.high, speed.label)
    return {**_milli(ends), "actions": speed.actions, "runs": speed.runs}


def _choice(one: ModeChoice) -> dict[str, Any]:
    return {
        "kind": str(one.kind),
        "engine": one.engine,
        "perDayMilli": whole(one.per_day * 1000),
        "present": str(one.present),
        "best": str(one.best),
        "changes": one.changes,
        "costs": [{"way": str(way), **_milli(cost)} for way, cost in one.costs],
        **({"gain": _milli(one.gain)} if one.gain is not None else {}),
        **({"readingsUpTo": _milli(one.even)} if one.even is not None else {}),
    }


def _milli(value: Interval) -> dict[str, Any]:
    low, mid, high = (whole(1000 * number) for number in (value.low, value.mid, value.high))
    return {"lowMilli": low, "milli": mid, "highMilli": high, "label": value.label}
