"""What a plan document must look like, field by field, before any value of it is used.

`problem` names the first field that is wrong, so that a document that someone edited, cut off or
made up ends as one message. Of `evidence`, what plans and reports print is described; further
fields may stand beside it.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from reconciler.api.version import API_VERSION
from reconciler.plan.actions import KINDS
from reconciler.plan.ordering import ORDERINGS
from reconciler.plan.totals import MEASURES

MAX_DEPTH = 40
"""Levels of a plan document: its evidence holds a policy's document."""

_TEXT = {"type": "string"}
_COUNT = {"type": "integer", "minimum": 0, "maximum": 2**63 - 1}
_INTEGER = {"type": "integer", "minimum": -(2**63), "maximum": 2**63 - 1}
_TIME = {
    "type": "string",
    "pattern": r"^[0-9]{4}-[01][0-9]-[0-3][0-9]T[0-2][0-9](:[0-5][0-9]){2}Z$",
}
_TAGGED = [
    {"required": [name], "additionalProperties": False, "properties": {name: value}}
    for name, value in {
        "int": {"type": "string", "pattern": "^-?[0-9]{1,19}$"},
        "float": {"type": "string", "maxLength": 40},
        "bytes": {"type": "string", "pattern": "^([0-9a-f]{2})*$"},
    }.items()
]
_ACTION = {
    "type": "object",
    "required": ["id", "type", "deletes", "predicted"],
    "properties": {
        "id": {"type": "string", "minLength": 1, "maxLength": 20},
        "type": {"enum": list(KINDS)},
        "specId": {"type": "integer", "minimum": 0, "maximum": 2**31 - 1},
        "partition": {
            "type": "array",
            "items": {
                "anyOf": [
                    {"type": "null"},
                    _INTEGER,
                    {"type": "object", "oneOf": _TAGGED},
                ]
            },
        },
        "outputSpecId": {"type": "integer", "minimum": 0, "maximum": 2**31 - 1},
        "specOld": {"type": "integer", "minimum": 0, "maximum": 2**31 - 1},
        "accepted": {"type": "array", "items": _TEXT},
        "fields": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["sourceId", "transform"],
                "properties": {"sourceId": _INTEGER, "transform": _TEXT},
            },
        },
        "restored": {"type": "array"},  # as the inputs
        "inputs": {"type": "array"},  # its items: _not_a_path, a plan may have 100,000
        "key": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["fieldId", "direction"],
                "properties": {"fieldId": _INTEGER, "direction": {"enum": ["asc", "desc"]}},
            },
        },
        "curve": {"enum": list(ORDERINGS)},
        "tree": {"type": "string", "pattern": "^[0-9a-f]{64}$"},
        "trees": {"type": "array", "items": {"type": "string", "pattern": "^[0-9a-f]{64}$"}},
        "treesDropped": {"type": "array", "items": _TEXT},
        "blockColumn": _TEXT,
        "replica": {"type": "string", "pattern": "^[A-Za-z_][A-Za-z0-9_]*$"},
        "source": {"type": "string", "pattern": "^[0-9]{1,19}$"},
        "budgetBytes": _COUNT,
        "appends": {"type": "boolean"},
        "keptMs": _COUNT,
        "lost": {"type": "string", "pattern": "^-?[0-9]{1,19}$"},
        "targetBytes": _COUNT,
        "rowGroupBytes": _COUNT,
        "properties": {
            "type": "object",
            "additionalProperties": {
                "type": "object",
                "required": ["old", "new"],
                "properties": {"old": {"type": ["string", "null"]}, "new": _TEXT},
            },
        },
        "formatVersion": {
            "type": "object",
            "required": ["old", "new"],
            "properties": {"old": _COUNT, "new": _COUNT},
        },
        "orderOld": {"type": "array", "items": _TEXT},
        "snapshots": {
            "type": "array",
            "items": {"type": "string", "pattern": "^-?[0-9]{1,19}$"},
        },
        "branch": _TEXT,
        "manifests": _COUNT,
        "retention": {
            "type": "object",
            "required": ["maxAgeMs", "least"],
            "properties": {"maxAgeMs": _COUNT, "least": _COUNT},
        },
        "deletes": {
            "type": "object",
            "required": ["files", "positionRows", "equalityFiles"],
            "properties": dict.fromkeys(("files", "positionRows", "equalityFiles"), _COUNT),
        },
        "predicted": {
            "type": "object",
            "additionalProperties": {"anyOf": [_INTEGER, _TEXT]},
            "dependentRequired": {
                "filesIn": ["filesOut", "groups", "bytesIn", "cpuMillis", "millis"]
            },
            "properties": dict.fromkeys(
                ("filesIn", "filesOut", "groups", "bytesIn", "bytesOut", "writtenMilli",
                 "cpuMillis", "millis", "readNow", "readAfter", "removedFiles", "removedBytes",
                 "targetBytes"),
                _INTEGER,
            ) | {"bySpark": _TEXT},
        },
    },
}  # fmt: skip


def _object(required: tuple[str, ...] = (), **properties: Any) -> dict[str, Any]:
    return {
        "type": ["object", "null"], "required": list(required), "properties": properties,
    }  # fmt: skip


def _list(item: Any) -> dict[str, Any]:
    return {"type": "array", "items": item}


def _row(required: tuple[str, ...], **properties: Any) -> dict[str, Any]:
    return {"type": "object", "required": list(required), "properties": properties}


_MAYBE = {"type": ["integer", "null"], "minimum": -(2**63), "maximum": 2**63 - 1}
_NOTE = {"type": ["string", "null"]}
_FLAG = {"type": ["boolean", "null"]}
_MILLI: dict[str, Any] = dict.fromkeys(("lowMilli", "milli", "highMilli"), _INTEGER)
_UNITS = {"enum": ["count", "bytes", "milli", "percent"]}
_EVIDENCE = {
    "type": "object",
    "properties": {
        "policyDocument": {"type": "object"},
        "policyFile": _NOTE,
        "workload": _object(
            ("queries", "shapes", "sinceMs", "untilMs", "until", "coveragePercent",
             "coverageBasis"),
            queries=_INTEGER, shapes=_INTEGER, sinceMs=_INTEGER, untilMs=_INTEGER, until=_TEXT,
            coveragePercent=_INTEGER, coverageBasis=_TEXT, skipped=_INTEGER, warning=_NOTE,
            skippedBy={"type": "object", "additionalProperties": _INTEGER},
            rates=_object(method=_TEXT, presentSinceMs=_INTEGER, changes=_INTEGER,
                          presentPercent=_INTEGER, text=_TEXT,
                          forecasts=_list(_row(("method", "percent"), method=_TEXT,
                                               percent=_INTEGER, lossMilliBits=_INTEGER,
                                               valuesPercent=_INTEGER,
                                               valuesLossMilliBits=_INTEGER))),
        ),
        "totals": _list(
            _row(("name", "unit", "now"), name=_TEXT, measure={"enum": list(MEASURES.values())},
                 unit=_UNITS, now=_MAYBE, after=_MAYBE, low=_MAYBE, high=_MAYBE, atLeast=_FLAG,
                 note=_NOTE, objective=_NOTE, label=_NOTE)
        ),
        "objectives": _list(
            _row(("name", "state", "message"), name=_TEXT, state=_TEXT, message=_TEXT,
                 limitMilli=_MAYBE, nowMilli=_MAYBE, afterMilli=_MAYBE, atLeast=_FLAG)
        ),
        "shapes": _list(
            _row(("shapeId", "text", "queries", "bytesNow", "filesNowMilli"), shapeId=_TEXT,
                 text=_TEXT, queries=_INTEGER, bytesNow=_INTEGER, bytesAfter=_MAYBE,
                 filesNowMilli=_INTEGER, filesAfterMilli=_MAYBE, worse=_FLAG)
        ),
        "cost": _object(
            ("cpuMillis", "millis", "cores", "rhoMilli", "rhoLabel"),
            tableBytes=_MAYBE, cpuMillis=_INTEGER, millis=_INTEGER, cores=_INTEGER,
            rhoMilli=_INTEGER, rhoLabel=_TEXT, throughputLabel=_NOTE, paybackMillis=_MAYBE,
            yearlyRead=_MAYBE, openBytes=_INTEGER, openings=_INTEGER, openedMs=_INTEGER,
        ),
        "writeModes": _object(
            ("kinds", "notes"),
            kinds=_list(
                _row(("kind", "perDayMilli", "present", "best", "changes", "costs"), kind=_TEXT,
                     perDayMilli=_INTEGER, present=_TEXT, best=_TEXT, changes=_FLAG,
                     costs=_list(_row(("way", *_MILLI), way=_TEXT, **_MILLI)),
                     readingsUpTo=_row(tuple(_MILLI), **_MILLI))
            ),
            speed=_row((*_MILLI, "actions", "runs"), actions=_INTEGER, runs=_INTEGER, **_MILLI),
            notes=_list(_TEXT),
        ),
        "rejected": _list(
            _row(("what", "why"), what=_TEXT, partition=_NOTE, reason=_TEXT, why=_TEXT,
                 files=_MAYBE, bytes=_MAYBE,
                 parts=_object(what=_list(_TEXT), why=_list(_TEXT)))
        ),
        "waiting": _object(text=_TEXT),
        "undo": _row(("plan", "why"), plan=_TEXT, why=_TEXT, stays=_list(_TEXT)),
        "trial": _row(("plan", "held", "text"), plan=_TEXT, held={"type": "boolean"}, text=_TEXT,
                      before=_INTEGER, predicted=_INTEGER, found=_INTEGER),
        "snapshot": _object(id=_NOTE, time=_NOTE, files=_MAYBE, bytes=_MAYBE),
        "trust": _NOTE,
        "statistics": _NOTE,
        "refused": _NOTE,
        "checked": _NOTE,
        "unread": _NOTE,
        "emptyBecause": _NOTE,
        "notActedOn": _list(_TEXT),
        "budgets": _list(_TEXT),
    },
}  # fmt: skip
SCHEMA: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "required": [
        "apiVersion", "kind", "planId", "catalog", "table", "tableUuid", "policyHash", "policy",
        "baseSnapshotId", "createdAt", "expiresAt", "actions", "evidence",
    ],
    "properties": {
        "apiVersion": {"const": API_VERSION},
        "kind": {"const": "LayoutPlan"},
        "planId": {"type": "string", "pattern": "^p-[0-9a-f]{20}$"},
        "catalog": {"type": "string", "minLength": 1},
        "table": {"type": "array", "minItems": 1, "items": {"type": "string", "minLength": 1}},
        "tableUuid": _TEXT,
        "policyHash": _TEXT,
        "policy": _TEXT,
        "baseSnapshotId": {
            "anyOf": [{"type": "null"}, {"type": "string", "pattern": "^-?[0-9]{1,19}$"}]
        },
        "createdAt": _TIME,
        "expiresAt": _TIME,
        "actions": {"type": "array", "items": _ACTION},
        "trees": {"type": "object", "additionalProperties": _TEXT},
        "evidence": _EVIDENCE,
        "digest": {"type": "string", "pattern": "^sha256:[0-9a-f]{64}$"},
    },
}  # fmt: skip


def problem(body: Any) -> str:
    """The first thing that is wrong with a plan document, "" where nothing is: `actions[0].inputs:
    7 is not of type 'array'`."""
    if _too_deep(body):
        return f"it is nested deeper than {MAX_DEPTH} levels"
    for error in sorted(_validator().iter_errors(body), key=lambda found: len(found.path)):
        path = "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in error.absolute_path)
        where = path.removeprefix(".")
        message = error.message if len(error.message) <= 200 else f"{error.message[:200]} ..."
        return f"{where}: {message}" if where else message
    return _not_a_path(body)


def _not_a_path(body: Any) -> str:
    """The first path that is not text: a validator takes seven microseconds for each of them."""
    for number, action in enumerate(body["actions"]):
        for name in ("inputs", "restored"):
            for place, path in enumerate(action.get(name, ())):
                if not isinstance(path, str):
                    wrong = f"{path!r:.200} is not of type 'string'"
                    return f"actions[{number}].{name}[{place}]: {wrong}"
    return ""


def _too_deep(body: Any) -> bool:
    level = [body]
    for _ in range(MAX_DEPTH):
        containers = [item for item in level if isinstance(item, (dict, list))]
        if not containers:
            return False
        level = [
            child
            for item in containers
            for child in (item.values() if isinstance(item, dict) else item)
        ]
    return any(isinstance(item, (dict, list)) for item in level)


@cache
def _validator() -> Any:
    from jsonschema import Draft202012Validator

    return Draft202012Validator(SCHEMA)
