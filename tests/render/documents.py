"""Plan documents for the tests of the report: the shape that `plan.plan.Plan.document` gives."""

from __future__ import annotations

from typing import Any

from reconciler.queries.coverage import RECORDED


def action(number: int, label: str = "recluster by l_shipdate") -> dict[str, Any]:
    return {
        "id": f"a{number:02d}",
        "type": "Recluster",
        "specId": 0,
        "key": [{"fieldId": 11, "direction": "asc"}],
        "inputs": [f"file:/wh/data/{number}-{i}.parquet" for i in range(4)],
        "deletes": {"files": 0, "positionRows": 0, "equalityFiles": 0},
        "predicted": {
            "label": label,
            "filesIn": 4,
            "filesOut": 2,
            "groups": 1,
            "bytesIn": 64 << 20,
            "cpuMillis": 12_000,
            "millis": 6_000,
        },
    }


def shape(text: str, worse: bool = False) -> dict[str, Any]:
    return {
        "shapeId": "0" * 16,
        "text": text,
        "queries": 12,
        "bytesNow": 1 << 30,
        "bytesAfter": (2 << 30) if worse else (200 << 20),
        "filesNowMilli": 55_000,
        "filesAfterMilli": 3_000,
        "worse": worse,
    }


def plan(
    actions: int = 2,
    shapes: int = 2,
    rejected: int = 1,
    table: tuple[str, ...] = ("sales", "lineitem"),
) -> dict[str, Any]:
    return {
        "apiVersion": "layout.lakehouse.dev/v1alpha1",
        "kind": "LayoutPlan",
        "planId": "p-3f9a1c0b77de4c21a0be",
        "catalog": "warehouse",
        "table": list(table),
        "tableUuid": "7c9f",
        "policyHash": "00",
        "policy": "sales-facts (layouts/lineitem.yaml:1)",
        "baseSnapshotId": "17",
        "createdAt": "2026-11-20T10:00:00Z",
        "expiresAt": "2026-11-27T10:00:00Z",
        "actions": [action(number) for number in range(1, actions + 1)],
        "evidence": {
            "workload": {
                "queries": 1204,
                "shapes": shapes,
                "sinceMs": 0,
                "untilMs": 86_400_000,
                "until": "2026-11-20",
                "coveragePercent": 91,
                "coverageBasis": RECORDED,
                "skipped": 38,
                "warning": "",
            },
            "totals": [
                {"name": "data files", "unit": "count", "now": 1184, "after": 579, "low": 575,
                 "high": 590, "objective": "<= 100000   met"},
                {"name": "read / 1 day", "unit": "bytes", "now": 44 << 40, "after": 11 << 40,
                 "low": 10 << 40, "high": 13 << 40, "note": "-74 %"},
                {"name": "scan amplification", "unit": "milli", "now": 5290, "after": 1390,
                 "low": 1250, "high": 1660},
                {"name": "storage", "unit": "bytes", "now": 212 << 30, "after": 328 << 30,
                 "note": "back to about 212.0 GiB when old snapshots expire"},
            ],
            "shapes": [shape(f"l_c{n} BETWEEN ? AND ?", worse=n == 1) for n in range(shapes)],
            "cost": {"tableBytes": 212 << 30, "cpuMillis": 24_000, "millis": 12_000, "cores": 2,
                     "rhoMilli": 4200, "rhoLabel": "measured", "paybackMillis": 18_000_000},
            "trust": "after 9 actions here, actual against predicted: bytes read +3 % (median)",
            "rejected": [{"what": f"candidate {n}", "why": "saves 0.4x its cost"}
                         for n in range(rejected)],
            "budgets": ["daily: needs 128.0 MiB; 500.0 of 500.0 GiB left in 24 h"],
            "notActedOn": ["spec.deletes.compaction"],
            "emptyBecause": "" if actions else "Nothing is above threshold: the layout serves.",
        },
    }  # fmt: skip
