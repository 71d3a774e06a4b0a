"""Plan documents and what surrounds them, made of numbers alone, for golden files."""

from __future__ import annotations

import datetime as dt
from typing import Any

import numpy as np

from reconciler.advisor.advice import Advice, Rejected, ScoredAction
from reconciler.advisor.measure.credit import Credit
from reconciler.advisor.measure.past_plan import PastPlan
from reconciler.plan.actions.rewrite import Recluster
from reconciler.plan.execution import Outcome
from reconciler.plan.ledger import LedgerEntry, ReadCheck
from reconciler.plan.ordering import Lexicographic
from reconciler.plan.prediction import Prediction
from reconciler.plan.prediction_interval import Interval
from reconciler.plan.sentence import sentence
from reconciler.queries.coverage import MODELLED, RECORDED
from reconciler.render.apply_text import ApplySummary, FileCount, WindowRead
from reconciler.render.plan_text import TableLine
from reconciler.table.observation import Observation
from reconciler.table.schema import SortColumn

GIB = 1 << 30
TIB = 1 << 40
PLAN_ID = "p-3f9a1c0b77de4c21a0be"


FOLLOWING = (
    "save:  layoutctl plan warehouse.sales.lineitem --out plan.json",
    "run:  layoutctl apply plan.json",
)


def rewrite(
    number: int, label: str, files: int, size: int, out: int, groups: int
) -> dict[str, Any]:
    return {
        "id": f"a{number:02d}",
        "type": "Recluster",
        "inputs": [f"s3://lake/t/data/{number}-{n}.parquet" for n in range(files)],
        "predicted": {
            "label": label,
            "filesIn": files,
            "filesOut": out,
            "groups": groups,
            "bytesIn": size,
            "cpuMillis": size // 13_000,
            "millis": size // 200_000,
        },
    }


def shape(text: str, queries: int, now: int, after: int, files: tuple[int, int]) -> dict[str, Any]:
    return {
        "shapeId": f"{abs(queries):016x}",
        "text": text,
        "queries": queries,
        "bytesNow": now,
        "bytesAfter": after,
        "filesNowMilli": files[0] * 1000,
        "filesAfterMilli": files[1] * 1000,
        "worse": after > now,
    }


def single() -> dict[str, Any]:
    """One table: a property, long actions, shapes that gain and lose, budgets, refusals."""
    actions = [
        {
            "id": "a01",
            "type": "SetProperties",
            "predicted": {
                "label": "set write.target-file-size-bytes 134217728 -> 536870912, "
                "write.parquet.row-group-size-bytes (unset) -> 134217728"
            },
        },
        rewrite(2, "recluster by l_shipdate", 388, 105 * GIB, 210, 7),
        rewrite(
            3,
            "recluster by Hilbert(l_shipdate, l_orderkey), ingested_at_month=2026-09, country=de",
            58, 15 * GIB, 29, 1,
        ),
        rewrite(4, "bin-pack", 468, 12 * GIB, 41, 3),
    ]  # fmt: skip
    return {
        "planId": PLAN_ID,
        "catalog": "warehouse",
        "table": ["sales", "lineitem"],
        "policy": "sales-facts (layouts/lineitem.yaml:1)",
        "createdAt": "2026-11-20T10:00:00Z",
        "expiresAt": "2026-11-27T10:00:00Z",
        "actions": actions,
        "evidence": {
            "workload": {
                "queries": 1204, "shapes": 8, "sinceMs": 0, "untilMs": 14 * 86_400_000,
                "until": "2026-11-20", "coveragePercent": 91, "coverageBasis": RECORDED,
                "skipped": 38, "warning": "",
                "rates": {
                    "method": "regime", "presentSinceMs": 11 * 86_400_000, "changes": 1,
                    "presentPercent": 84,
                    "forecasts": [
                        {"method": "regime", "percent": 97, "lossMilliBits": 910,
                         "valuesPercent": 20, "valuesLossMilliBits": 2_410},
                        {"method": "decay", "percent": 3, "lossMilliBits": 1_240,
                         "valuesPercent": 80, "valuesLossMilliBits": 2_390},
                    ],
                    "text": "the queries in the log changed 3 days before its end (2026-11-17); "
                    "the new mix is expected for 84 % of the next 7 days, the mix of the whole log "
                    "for the rest, by the regime forecast (97 %)",
                },
            },
            "totals": [
                {"name": "data files", "measure": "dataFiles",
                 "unit": "count", "now": 1184, "after": 579, "low": 575,
                 "high": 590, "objective": "<= 100000   met"},
                {"name": "read / 14 days", "measure": "readBytes",
                 "unit": "bytes", "now": 44 * TIB, "after": 11 * TIB,
                 "low": 10 * TIB, "high": 13 * TIB, "note": "-75 %"},
                {"name": "read + open / 14 days", "measure": "readCost",
                 "unit": "bytes", "now": 45 * TIB, "after": 12 * TIB,
                 "low": 11 * TIB, "high": 14 * TIB,
                 "note": "-73 %"},
                {"name": "scan amplification", "measure": "scanAmplification",
                 "unit": "milli", "now": 5290, "after": 1390,
                 "low": 1250, "high": 1660, "objective": "<= 1.5   uncertain: see interval"},
                {"name": "storage", "measure": "storageBytes",
                 "unit": "bytes", "now": 212 * GIB, "after": 328 * GIB,
                 "note": "until old snapshots expire"},
                {"name": "small files", "measure": "smallFilesPercent",
                 "unit": "percent", "now": 26, "after": 3,
                 "objective": "<= 10 %   met"},
            ],
            "shapes": [
                shape("l_shipdate BETWEEN ? AND ?", 612, 33 * TIB, 7 * TIB, (308, 31)),
                shape("l_shipdate >= ? (moving)", 288, 8 * TIB, 2 * TIB, (170, 22)),
                shape("l_returnflag = ? AND l_shipdate >= ? AND l_shipdate < ? AND l_discount "
                      "BETWEEN ? AND ? AND l_quantity < ? AND l_shipmode IN (?)", 41, TIB, TIB // 2,
                      (120, 60)),
                shape("no filter", 12, TIB // 2, TIB // 2, (1184, 579)),
                shape("l_partkey = ?", 9, TIB // 3, TIB // 4, (1100, 540)),
                shape("l_suppkey = ?", 8, TIB // 3, TIB // 4, (1100, 540)),
                shape("l_linenumber = ?", 7, TIB // 4, TIB // 5, (1100, 540)),
                shape("l_orderkey = ?", 227, TIB // 9, TIB // 3, (2, 4)),
            ],
            "cost": {"tableBytes": 212 * GIB, "cpuMillis": 10_800_000, "millis": 760_000,
                     "cores": 16, "rhoMilli": 4200, "rhoLabel": "measured",
                     "openBytes": 4 << 20, "openings": 24, "openedMs": 1_795_132_800_000,
                     "paybackMillis": 18_000_000},
            "budgets": [
                "daily: needs 132.0 GiB; 500.0 of 500.0 GiB left in 24 h",
                "office-hours: inactive until 2026-11-23T07:00:00Z",
            ],
            "trust": "after 9 actions here, actual against predicted: bytes read +3 %, CPU +14 % "
            "(median)",
            "rejected": [
                {"what": "97 more boundary files", "why": "saves 0.4x its cost "
                 "(WAIR Eq. 4, alpha 1)"},
                {"what": "recluster by Hilbert(l_shipdate, l_orderkey, l_partkey)",
                 "why": "12.9 TiB read, 38 % more CPU; would keep order-key lookups"},
                {"what": "bin-pack", "why": "139 small files in 31 partitions: fewer than "
                 "minInputFiles 5 in each"},
            ],
            "notActedOn": ["spec.deletes.compaction", "spec.layout.partitioning"],
            "emptyBecause": "",
            "snapshot": {"files": 1184, "bytes": 212 * GIB},
        },
    }  # fmt: skip


def harmful() -> dict[str, Any]:
    """A declared key that the recorded queries do not ask for."""
    document = single()
    for line in document["evidence"]["totals"][1:3]:
        line |= {"after": 90 * TIB, "low": 80 * TIB, "high": 99 * TIB, "note": "+100 %"}
    document["evidence"]["cost"]["paybackMillis"] = None
    return document


def fewer_files() -> dict[str, Any]:
    """Two sorts: one pays by skipping data, the other nearly only because fewer files are
    opened."""
    document = single()
    _, by_date, by_both, _ = document["actions"]
    for action, opening in ((by_date, GIB), (by_both, 19 * GIB)):
        action["key"] = [{"column": "l_shipdate", "direction": "asc"}]
        action["predicted"] |= {"saving": 20 * GIB, "savingOpening": opening, "savingDenser": 0}
    by_date["predicted"]["bySpark"] = "the table's codec is lz4"
    return document


def many_actions() -> dict[str, Any]:
    """A plan over more partitions than a screen holds."""
    document = single()
    document["actions"] = [
        rewrite(n, f"cluster by l_shipdate, ingested_at_month={month}", 10 + n, n * GIB // 8, 4, 1)
        for n, month in enumerate((f"{2021 + m // 12}-{m % 12 + 1:02d}" for m in range(40)), 1)
    ]
    predictions = [item["predicted"] for item in document["actions"]]
    document["evidence"]["cost"] |= {
        key: sum(one[key] for one in predictions) for key in ("cpuMillis", "millis")
    }
    return document


def in_part() -> dict[str, Any]:
    """A plan of which a part was carried out, and beside which something waits."""
    document = single()
    done, left = document["actions"][:2], document["actions"][2:]
    document |= {"actions": left, "done": done}
    document["evidence"]["waiting"] = WAITING
    return document


def empty() -> dict[str, Any]:
    """Nothing to do, with the reasons."""
    document = single()
    document["actions"] = []
    document["evidence"] |= {
        "emptyBecause": "Nothing is above threshold; the reasons are listed above.",
        "shapes": document["evidence"]["shapes"][:2],
        "rejected": [
            {"what": "recluster by l_shipdate", "why": "the queries match nearly every row: no "
             "layout can skip anything"},
            {"what": "recluster by event_time", "why": "the queries stop reading this "
             "data before a rewrite has paid for itself"},
            {"what": "bin-pack", "why": "too few: 3 small files, minInputFiles is 5"},
        ],
    }  # fmt: skip
    return document


WAITING = {
    "rewrites": 1, "files": 12, "bytes": 3 * GIB, "from": "2026-11-20T12:14:03Z",
    "until": "2026-11-20T12:14:03Z", "conflicts": 0,
    "text": "1 rewrite of 12 files (3.0 GiB) waits until 2026-11-20T12:14:03Z, for the quiet "
    "period after another writer's change",
}  # fmt: skip


def waits() -> dict[str, Any]:
    """Nothing to do before the quiet period has passed."""
    document = empty()
    document["evidence"] |= {"waiting": WAITING, "rejected": []}
    return document


def table_lines() -> list[TableLine]:
    return [
        TableLine("warehouse.sales.lineitem", 4, 132 * GIB, 10_800_000, 2.4 * TIB, 18_000_000,
                  "AwaitingApproval"),
        TableLine("warehouse.web_analytics.sessions_by_country_and_device", 12, 41 * GIB,
                  3_600_000, 0.2 * TIB, 180_000_000, "may run now"),
        TableLine("warehouse.sales.orders", 1, 5 * GIB, 400_000, -1.0, None, "OverBudget"),
        TableLine("warehouse.sales.small", 1, 0, 0, 0.0, None, "Suspended"),
    ]  # fmt: skip


def applied(**changes: Any) -> ApplySummary:
    values: dict[str, Any] = {
        "ran": True, "stopped": False, "seconds": 760.0, "commits": 10, "conflicts": 1,
        "predicted_bytes": 116 * GIB, "actual_bytes": 131 * GIB, "predicted_cpu_seconds": 7900.0,
        "actual_cpu_seconds": 8300.0, "predicted_seconds": 702.0, "executed_seconds": 744.0,
        "started": True,
        "read": WindowRead(
            44 * TIB, 11 * TIB, 12 * TIB, saved=32 * TIB, cost_before=45 * TIB,
            cost_predicted=11 * TIB, cost_actual=13 * TIB,
        ),
        "files": FileCount(1_204, 230, 236),
        "state": "Converged", "message": "nothing above threshold",
    }  # fmt: skip
    return ApplySummary(**{**values, **changes})


EVENTS = (
    "recluster 1/7  58 files 15.1 GiB  reading in at most 1.9 GiB of memory",
    "recluster 1/7  58 files 15.1 GiB  read ok  sort ok  verify rows 256,114,202 = 256,114,202, "
    "hash equal  commit 7318…0221",
    "recluster 5/7  56 files 15.0 GiB  CONFLICT: a MERGE (snapshot 7319…0540) replaced 2 of its "
    "files",
    "removed 30 files this run wrote (14.9 GiB); table unchanged; planned again: 54 files",
    "the outcome of a commit is unknown; waiting 60 s, then an empty append makes sure that it "
    "cannot arrive late",
)


def status_rows() -> list[dict[str, Any]]:
    base = {"policy": "p", "budgetBytes": 500 * GIB, "spentBytes": 0, "planId": None,
            "scanAmplificationObjective": "1.5", "exitCode": 0}  # fmt: skip
    return [
        {**base, "table": "warehouse.sales.lineitem", "state": "Converged", "reason": "",
         "message": "nothing above threshold", "scanAmplification": 1.45, "pendingBytes": 0,
         "spentBytes": 131 * GIB, "since": "2026-11-20T07:00:00Z"},
        {**base, "table": "warehouse.sales.orders", "state": "Blocked",
         "reason": "AwaitingApproval", "message": "nobody has approved p-71be09c2a0b1c2d3e4f5 yet",
         "planId": "p-71be09c2a0b1c2d3e4f5", "scanAmplification": 3.8,
         "pendingBytes": 41 * GIB, "since": "2026-11-18T10:00:00Z"},
        {**base, "table": "warehouse.web.sessions_by_country_and_device_of_all_time",
         "state": "Idle", "reason": "ObjectiveUnreachable", "message": "maxScanAmplification 1.5 "
         "is not reachable at a profit", "scanAmplification": 2.1, "pendingBytes": 0,
         "budgetBytes": None, "since": "2026-11-14T10:00:00Z"},
        {"table": "warehouse.web.lost", "state": "Unknown", "reason": "CatalogUnavailable",
         "message": 'catalog "warehouse" cannot be reached', "error": "error: …", "exitCode": 5},
    ]  # fmt: skip


def short_status_rows() -> list[dict[str, Any]]:
    """Rows that fit beside their reasons at 100 columns."""
    return [{**row, "table": f"rec.s.t{number}"} for number, row in enumerate(status_rows())]


NOW = dt.datetime(2026, 11, 20, 10, tzinfo=dt.UTC)


def past_plans() -> list[PastPlan]:
    def entry(plan: str, action: str, day: int, state: str, size: int, cpu: float) -> LedgerEntry:
        outcome = Outcome("x", 1, action, state, 1, size, size, 1000, 10, 2, cpu, 60.0)
        label = "recluster by Hilbert(l_shipdate, l_orderkey), ingested_at_month=2026-09"
        predicted = Prediction(
            kind="Recluster", cpu_millis=900_000, saving=3 * TIB, bytes_in=15 * GIB,
            label=label if action == "a01" else "bin-pack",
        )  # fmt: skip
        at = int(dt.datetime(2026, 11, day, 9, tzinfo=dt.UTC).timestamp() * 1000)
        return LedgerEntry("uuid", plan, at, outcome, predicted)

    first = (
        entry("p-71be09c2a0b1c2d3e4f5", "a01", 2, "committed", 15 * GIB, 980.0),
        entry("p-71be09c2a0b1c2d3e4f5", "a02", 2, "conflict", GIB, 0.0),
    )
    second = (entry(PLAN_ID, "a02", 19, "committed", 11 * GIB, 300.0),)
    late = first[0].at_ms + 10 * 86_400_000
    return [
        PastPlan(
            "p-71be09c2a0b1c2d3e4f5",
            first,
            Credit(
                20.0 * GIB, 20.0 * GIB, 20.0 * GIB, 20.0 * GIB, 900.0, 0.0, first[0].at_ms, late
            ),
            4.0,
            1 << 20,
        ),
        PastPlan(
            PLAN_ID,
            second,
            Credit(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, second[0].at_ms, second[0].at_ms),
            4.0,
            1 << 20,
            ReadCheck(
                PLAN_ID,
                late,
                44 * TIB,
                11 * TIB,
                43 * TIB,
                True,
                -TIB,
                45 * TIB,
                12 * TIB,
                46 * TIB,
                1_204,
                230,
                412,
            ),
        ),
    ]


def advice(seen: Observation) -> Advice:
    """Two files are rewritten, one is refused, the others are not spoken of."""
    path = [str(name) for name in seen.files.path]
    action = Recluster(
        inputs=tuple(path[:2]), partition=(600,), ordering=Lexicographic((SortColumn(2),))
    )
    predicted = Prediction(
        label=action.label(seen.files.schema, seen.files.specs),
        reason="saves 21x its cost", files_in=2, files_out=1, groups=1, bytes_in=18 << 20,
        bytes_out=18 << 20, rows=6_098_000, cpu_millis=3_000, millis=1_500, read_now=9 * GIB,
        read_after=15 * GIB // 2, saving=3 * GIB // 2, saving_low=round(1.1 * GIB), cost=72 << 20,
        estimate="sampled",
        evidence="workload",
    )  # fmt: skip
    refused = Rejected(
        sentence("recluster by l_partkey"), "BelowCost",
        sentence("saves 0.4x its cost: 97 files, 31.0 GiB"), 1, 9 << 20,
        inputs=(path[2],),
    )  # fmt: skip
    nothing = Interval(0.0, 0.0, 0.0)
    return Advice(
        (ScoredAction(action, predicted),), (refused,), (), 9.0 * GIB, nothing, 9.0 * GIB, nothing,
        len(path), nothing, 0, 0, 5.0, nothing, "sampled", (), 3.0, 72.0 * (1 << 20), 3.0, 1.5, 0.0,
        np.empty(0, dtype=np.int64),
    )  # fmt: skip


def recorded_shapes() -> list[dict[str, Any]]:
    return list(single()["evidence"]["shapes"])


def imported() -> dict[str, Any]:
    """`workload import` of two logs with bad lines."""
    return {
        "files": [
            {"path": "trino/2026-11-19.jsonl.gz", "format": "sql",
             "read": 1204, "kept": 1166, "skipped": 38,
             "earlier": 0, "repeated": 12, "fragments": 1200,
             "damaged": True, "otherFormats": {"snowflake": 3},
             "skippedLines": {"not valid JSON": [3, 17, 31, 801, 1002], "our own job": [7]}},
            {"path": "trino/2026-11-20.jsonl.gz", "format": "sql",
             "read": 12, "kept": 11, "skipped": 1,
             "earlier": 500, "repeated": 0, "fragments": 11,
             "damaged": False, "otherFormats": {},
             "skippedLines": {"not valid JSON": [501]}},
        ],
        "tables": [
            {"table": "warehouse.sales.lineitem", "queries": 1100, "weight": 5204.0},
            {"table": "warehouse.sales.orders", "queries": 77, "weight": 77.0},
        ],
        "skipped": {"not valid JSON": 30, "our own job": 9},
        "fullScans": {"not parsable": 3},
        "examples": {"not parsable": "line 17: Expecting ) at line 1, column 40 of it"},
        "withoutValues": 20,
        "timesWithoutZone": {"count": 1215, "readAs": "UTC"},
        "unknownColumns": [
            {"table": "warehouse.sales.lineitem", "column": "l_shipdat", "conditions": 12}
        ],
        "since": "2026-11-06T00:00:00Z",
        "until": "2026-11-20T09:00:00Z",
    }  # fmt: skip


def workload() -> dict[str, Any]:
    """`workload show` of one table with a long condition."""
    shapes = [
        {"condition": "l_shipdate BETWEEN ? AND ?", "moving": True, "valuesUnknown": False,
         "columnSets": 1, "columnsMean": 2.0, "weight": 5000.0,
         "sharePercent": 96.1, "ratePerDay": 350.0,
         "lastSeen": "2026-11-20T09:00:00Z"},
        {"condition": single()["evidence"]["shapes"][2]["text"], "moving": False,
         "valuesUnknown": True, "columnSets": 31, "columnsMean": 3.4, "weight": 204.0,
         "sharePercent": 3.9, "ratePerDay": 14.2,
         "lastSeen": "2026-11-19T09:00:00Z"},
    ]  # fmt: skip
    return {
        "items": [
            {"table": "warehouse.sales.lineitem", "queries": 5204.0, "recorded": 1100,
             "since": "2026-11-06T00:00:00Z", "until": "2026-11-20T09:00:00Z", "stale": False,
             "coveragePercent": 91, "coverageBasis": MODELLED,
             "skipped": {"not parsable": 3}, "shapes": shapes},
            {"table": "warehouse.sales.gone", "error": 'table "sales.gone" not found in catalog '
             '"warehouse" (sql, .pyiceberg.yaml)', "shapes": []},
        ],
        "skipped": {"not valid JSON": 30, "our own job": 9},
    }  # fmt: skip
