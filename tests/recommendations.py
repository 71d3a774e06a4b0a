"""The JSON Schema of a TableRecommendationList."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from reconciler.api.version import API_VERSION
from reconciler.loop.recommend_tables import KIND

_TEXT, _BYTES = {"type": "string"}, {"type": "integer", "minimum": 0}
_MAYBE = {"type": ["number", "null"]}
RECOMMENDATIONS_SCHEMA: Mapping[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": KIND,
    "type": "object",
    "required": ["apiVersion", "kind", "items", "budgets", "errors"],
    "additionalProperties": False,
    "properties": {
        "apiVersion": {"const": API_VERSION},
        "kind": {"const": KIND},
        "items": {
            "type": "array",
            "items": {
                "type": "object",
                "required": [
                    "rank", "table", "policy", "what", "netSavingBytes", "rewriteBytes",
                    "cpuSeconds", "savingPerByte", "fits", "waits", "recommendation",
                ],
                "additionalProperties": False,
                "properties": {
                    "rank": {"type": ["integer", "null"], "minimum": 1},
                    "table": _TEXT,
                    "policy": _TEXT,
                    "what": _TEXT,
                    "netSavingBytes": {"type": "integer"},
                    "rewriteBytes": _BYTES,
                    "cpuSeconds": {"type": "number", "minimum": 0},
                    "savingPerByte": _MAYBE,
                    "fits": {"type": ["boolean", "null"]},
                    "waits": _TEXT,
                    "money": {
                        "type": "object",
                        "required": ["currency", "netSaving", "rewrite"],
                        "additionalProperties": False,
                        "properties": {
                            "currency": _TEXT,
                            "netSaving": {"type": "number"},
                            "rewrite": {"type": "number", "minimum": 0},
                        },
                    },
                    "recommendation": {"type": "object"},
                },
            },
        },
        "budgets": {
            "type": "array",
            "items": {
                "type": "object",
                "required": [
                    "policy", "name", "maxRewriteBytes", "leftBytes", "plannedBytes",
                    "maxCpuSeconds", "leftCpuSeconds", "plannedCpuSeconds", "error",
                ],
                "additionalProperties": False,
                "properties": {
                    "policy": _TEXT,
                    "name": _TEXT,
                    "maxRewriteBytes": _MAYBE,
                    "leftBytes": _MAYBE,
                    "plannedBytes": _BYTES,
                    "maxCpuSeconds": _MAYBE,
                    "leftCpuSeconds": _MAYBE,
                    "plannedCpuSeconds": {"type": "number", "minimum": 0},
                    "error": _TEXT,
                },
            },
        },
        "errors": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["table", "error", "do"],
                "additionalProperties": False,
                "properties": {"table": _TEXT, "error": _TEXT, "do": _TEXT},
            },
        },
    },
}  # fmt: skip
