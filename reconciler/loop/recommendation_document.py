"""The document of a recommendation: what `-o json` prints, and what text and Markdown are made of.

Sizes are bytes, times seconds or ISO, shares percent. It has no values of queries.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from reconciler.advisor.migration.risks import risks
from reconciler.advisor.pto.fallen import described as in_words
from reconciler.advisor.pto.methods.registry import PREDICATE_ORDER, UNDECLARABLE
from reconciler.advisor.pto.recommendation import DeclaredLayout, FrontPoint, LayoutReading
from reconciler.advisor.pto.space import SURE_ROWS
from reconciler.api.choices import ClusteringMode
from reconciler.api.quantities import format_bytes
from reconciler.api.version import API_VERSION
from reconciler.errors import InternalError
from reconciler.format import plural, utc
from reconciler.loop.migration import migration_to
from reconciler.loop.recommend import Recommended, not_cut
from reconciler.plan.money import Usage, cost_of, reading
from reconciler.queries.shape_text import marked_text
from reconciler.table.damage import damage_of
from reconciler.table.filetable import UNKNOWN
from reconciler.table.observation import Observation
from reconciler.table.schema import PartitionSpec, Schema
from reconciler.table.times import DAY_MS
from reconciler.table.unwritable import unwritable

KIND = "TableRecommendation"
MOST_NAMED = 3
"""Columns that a warning names."""


def _columns(made: Recommended) -> list[dict[str, Any]]:
    return [
        {
            "column": made.observation.schema.name_of(use.field_id),
            "queriesPercent": round(use.frequency * 100, 1),
            "selectivityPercent": round(use.selectivity * 100, 3),
        }
        for use in made.recommendation.usage.uses
    ]


def recommendation_document(made: Recommended) -> dict[str, Any]:
    """Return the document."""
    seen, answer = made.observation, made.recommendation
    chosen = answer.chosen
    layouts = [answer.today, *([chosen] if chosen else []), *answer.others]
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "table": seen.name,
        "snapshotId": str(seen.snapshot_id),
        "time": utc(made.made.timestamp() * 1000),
        "method": made.options.method,
        "chosen": chosen.name if chosen else None,
        "keep": answer.keep,
        "savesPercent": _saves(answer.today, chosen),
        "workload": _workload(made),
        "sample": _sample(made),
        "objective": _objective(made),
        "layouts": [_layout(layout, made) for layout in layouts],
        "policy": policy_of(chosen, made) if chosen else None,
        "warnings": [*warnings(chosen, made), *not_cut(made)] if chosen else [],
        "columns": _columns(made),
        "refused": [{"what": item.what, "why": item.why} for item in answer.refused],
        "front": [_front(point) for point in answer.front],
        "shapes": []
        if chosen is None
        else [_shape(number, chosen, made) for number in range(len(made.given.demands))],
        "fell": [{"what": what, "why": why} for what, why in answer.fell],
        "sensitivity": [
            {
                "evidence": item.what,
                "layout": described(item.layout, seen.schema),
                "costsMorePercent": round(item.regret * 100, 2),
            }
            for item in answer.sensitivity
        ],
        "candidates": answer.candidates,
        "labelled": answer.labelled,
        "finer": answer.finer,
    }


def _saves(today: DeclaredLayout, chosen: DeclaredLayout | None) -> float:
    """Return the share of the bytes read by the recorded queries that is saved, in percent."""
    if chosen is None or not today.recorded.bytes:
        return 0.0
    return round((1.0 - chosen.recorded.bytes / today.recorded.bytes) * 100, 1)


def _workload(made: Recommended) -> dict[str, Any]:
    workload, coverage = made.queries.workload, made.queries.coverage
    return {
        "queries": round(workload.queries),
        "shapes": len(workload.shapes),
        "simulatedQueries": sum(len(demand) for demand in made.given.demands),
        "since": utc(workload.since_ms),
        "until": utc(workload.until_ms),
        "days": round((workload.until_ms - workload.since_ms) / DAY_MS, 1),
        "coveragePercent": int(coverage.share * 100),
        "coverageBasis": coverage.basis,
    }


def _sample(made: Recommended) -> dict[str, Any]:
    answer = made.recommendation
    return {
        "rows": answer.sampled,
        "files": made.sample.files,
        "filesSampledBefore": made.sample.reused,
        "bytesRead": made.sample.bytes_read,
        "budgetBytes": made.options.sample_bytes,
        "takenAt": utc(made.sample.taken_ms),
        "rowsPerSmallestRowGroup": round(answer.sampled_rows, 1),
    }


def _objective(made: Recommended) -> dict[str, Any]:
    costs = made.given.costs
    return {
        "costs": costs.name,
        "costsSource": costs.source,
        "fileBytes": round(costs.file),
        "rowGroupBytes": round(costs.group),
        "rowGroupColumnBytes": round(costs.group_column),
        "footerBytes": round(costs.footer.fixed),
        "rowGroupFooterBytes": round(costs.footer.per_group),
        "rho": round(made.given.rho, 2),
        "horizonSeconds": made.options.horizon_ms // 1000,
        "ingestBytesPerDay": round(made.given.ingest.bytes),
        "ingestCommitsPerDay": round(made.given.ingest.commits, 1),
    }


def described(layout: DeclaredLayout, schema: Schema) -> str:
    """Return `by month(ts), sorted by a, b`."""
    return in_words(layout.spec, layout.ordering, schema)


def _what(layout: DeclaredLayout, made: Recommended) -> str:
    """Return the layout in words. The order of a method that cannot be declared has no columns."""
    words = described(layout, made.observation.schema)
    if layout.name == "best" and made.options.method in UNDECLARABLE:
        return words.removesuffix("unsorted") + PREDICATE_ORDER
    return words


def _cpu_seconds(layout: DeclaredLayout, made: Recommended, size: float) -> float:
    """Return the CPU seconds of rewriting so many bytes into the layout."""
    if not size:
        return 0.0
    work, files = "sort" if layout.ordering.key else "pack", len(made.observation.files)
    return round(made.throughput.cpu_seconds(work, round(size), files), 1)


def _layout(layout: DeclaredLayout, made: Recommended) -> dict[str, Any]:
    seen = made.observation
    today = layout.name == "today"
    what = "as it is" if today else _what(layout, made)
    body: dict[str, Any] = {
        "name": layout.name,
        "what": what,
        "partitioning": _fields(layout.spec, seen.schema),
        "keys": [seen.schema.name_of(column.field_id) for column in layout.ordering.key],
        "curve": layout.ordering.name if layout.ordering.key else None,
        "targetBytes": layout.target_bytes,
        "files": round(layout.files),
        "rowGroups": None if layout.row_groups != layout.row_groups else round(layout.row_groups),
        "filesOpened": round(layout.recorded.opened),
        "read": _reading(layout.recorded),
        "readAhead": {**_reading(layout.ahead), "filesOpened": round(layout.ahead.opened)},
        "readingCostBytes": round(layout.reading),
        "totalCostBytes": round(layout.total),
        "rewrite": {
            "bytes": round(layout.rewrite_bytes),
            "firstBytes": round(layout.first_rewrite_bytes),
            "cpuSeconds": _cpu_seconds(layout, made, layout.first_rewrite_bytes),
        },
        "paretoFront": layout.front or today,
        "worse": [_shape(number, layout, made) for number in layout.worse],
        **_money(layout, made),
    }
    if layout.row_group is not None:
        body["rowGroup"] = {
            "bytes": layout.row_group.bytes,
            "rows": layout.row_group.rows,
        }
        body["sampledRowsPerRowGroup"] = round(layout.sampled_rows, 1)
    if layout.commit is not None:
        body["commitFiles"] = {
            "scattered": round(layout.commit.scattered),
            "hashed": round(layout.commit.hashed),
        }
    return body


def _money(layout: DeclaredLayout, made: Recommended) -> dict[str, Any]:
    """Return what reading and rewriting over the horizon cost, and the first rewrite, or {}."""
    prices = made.target.catalog.prices
    if prices is None:
        return {}
    ahead = cost_of(prices, reading(layout.ahead.bytes, layout.ahead.opened))
    amounts, first = {"readAhead": round(ahead, 6)}, layout.first_rewrite_bytes
    for name, size in (("rewrite", layout.rewrite_bytes), ("firstRewrite", first)):
        used = Usage(size, 0.0, _cpu_seconds(layout, made, size))
        amounts[name] = round(cost_of(prices, used), 6)
    return {"money": {"currency": prices.currency, **amounts}}


def _reading(reading: LayoutReading) -> dict[str, int]:
    return {
        "bytes": round(reading.bytes),
        "low": round(reading.low),
        "high": round(reading.high),
        "footerBytes": round(reading.footers),
    }


def _shape(number: int, layout: DeclaredLayout, made: Recommended) -> dict[str, Any]:
    demand, today = made.given.demands[number], made.recommendation.today
    return {
        "text": marked_text(demand, made.observation.schema),
        "moving": demand.moving,
        "queries": round(float(demand.weight.sum())),
        "bytesNow": round(float(today.by_demand[number])),
        "bytesAfter": round(float(layout.by_demand[number])),
    }


def _front(point: FrontPoint) -> dict[str, Any]:
    sizes = point.sizes
    return {
        "what": point.what,
        "targetBytes": None if sizes is None else sizes.target_bytes,
        "rowGroupBytes": None if sizes is None else sizes.row_group_bytes,
        "readingCostBytes": round(point.reading),
        "rewriteBytes": round(point.rewrite_bytes),
    }


def _fields(spec: PartitionSpec, schema: Schema) -> list[dict[str, str]]:
    return [
        {"column": schema.name_of(field.source_id), "transform": field.transform}
        for field in spec.fields
        if field.transform != "void"
    ]


def changes_spec(layout: DeclaredLayout, seen: Observation) -> bool:
    """Whether the layout partitions the table in another way than today."""
    present = seen.files.specs[seen.files.default_spec_id]
    return _fields(layout.spec, seen.schema) != _fields(present, seen.schema)


def policy_of(layout: DeclaredLayout, made: Recommended) -> dict[str, Any] | None:
    """Return spec.layout of a policy that declares the layout, None if none can."""
    if made.options.method in UNDECLARABLE:
        return None
    assert layout.row_group is not None
    seen = made.observation
    body: dict[str, Any] = {}
    if changes_spec(layout, seen):
        fields = _fields(layout.spec, seen.schema)
        body["partitioning"] = {"mode": "Declared", "fields": fields}
    if layout.ordering.tree is not None:
        leaves = {"leastRows": layout.leaf_rows}
        body["clustering"] = {"mode": "QdTree", "qdTree": leaves}
    elif layout.ordering.key:
        keys = [seen.schema.name_of(column.field_id) for column in layout.ordering.key]
        body["clustering"] = {"mode": "Declared", "keys": keys, "curve": layout.ordering.name}
    else:
        # No key is worth declaring for the whole table; in some partitions, or for queries to come,
        # clustering may still pay.
        body["clustering"] = {"mode": "WorkloadAware"}
    body["files"] = {
        "targetSize": format_bytes(layout.target_bytes),
        "rowGroupSize": format_bytes(layout.row_group.bytes),
    }
    if layout.hashes:
        body["files"]["distributionMode"] = "Hash"
    return body


def policy_changes(
    policy: Mapping[str, Any], present: ClusteringMode | None = None
) -> dict[tuple[str | int, ...], Any]:
    """Return the fields of a policy document that declare the layout, by their paths. present: the
    document's mode of clustering, if it is known. A layout without an order does not switch on what
    mode None switches off."""
    here: tuple[str | int, ...] = ("spec", "layout")
    found: dict[tuple[str | int, ...], Any] = {}
    keyless = "keys" not in policy["clustering"]
    for part, body in policy.items():
        for name, value in body.items():
            found[(*here, part, name)] = value
    if keyless:
        found[(*here, "clustering", "keys")] = None
        found[(*here, "clustering", "curve")] = None
    if policy["clustering"]["mode"] != ClusteringMode.QD_TREE.value:
        found[(*here, "clustering", "qdTree")] = None
    if policy["clustering"]["mode"] == "WorkloadAware" and present is ClusteringMode.NONE:
        return {path: value for path, value in found.items() if "clustering" not in path}
    return found


def warnings(layout: DeclaredLayout, made: Recommended) -> list[str]:
    """Return what a reviewer must know before the policy is changed, each with its evidence."""
    seen = made.observation
    refusal = damage_of(seen) or unwritable(seen.schema, seen.properties)
    found = [f"apply cannot carry this out: {refusal}"] if refusal else []
    rows = made.recommendation.sampled_rows
    if rows < SURE_ROWS:
        found.append(
            f"{rows:.0f} sampled rows per smallest row group: the order of close candidates is "
            f"uncertain below {SURE_ROWS}; a larger --sample-rows settles it"
        )
    if unsized := _unsized(seen):
        found.append(
            f"the manifests do not say what every file stores of {unsized}: how much these columns "
            "shrink or grow in a layout is not simulated"
        )
    if layout.hashes and layout.commit is not None:
        found.append(
            f"a commit would write {plural(round(layout.commit.scattered), 'file')} over these "
            f"partitions, and {round(layout.commit.hashed)} with distributionMode: Hash, which the "
            "policy declares; writers shuffle rows for that"
        )
    if not changes_spec(layout, seen):
        return found
    migration = migration_to(layout.spec.own_fields, seen, made.queries.workload)
    now_ms = int(made.made.timestamp() * 1000)
    against = risks(seen.files, seen.delete_files, seen.format_version, migration, now_ms)
    return [*found, *(f"the migration waits: {risk.text()}" for risk in against)]


def _unsized(seen: Observation) -> str:
    """Return the columns whose stored size is not known of every file, "" if there are none."""
    sizes = seen.files.column_sizes
    names = [
        f'"{field.name}"'
        for field in seen.schema.fields
        if field.field_id not in sizes or (sizes[field.field_id] == UNKNOWN).any()
    ]
    more = len(names) - MOST_NAMED
    shown = ", ".join(names[:MOST_NAMED])
    return f"{shown} and {plural(more, 'other column')}" if more > 0 else shown


_TEXT, _NUMBER = {"type": "string"}, {"type": "number"}
_NAMED = {
    "type": "array",
    "items": {
        "type": "object",
        "required": ["what", "why"],
        "properties": {"what": _TEXT, "why": _TEXT},
    },
}
_READING = {
    "type": "object",
    "required": ["bytes", "low", "high", "footerBytes"],
    "additionalProperties": {"type": "integer", "minimum": 0},
}
RECOMMENDATION_SCHEMA: Mapping[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": KIND,
    "type": "object",
    "required": [
        "apiVersion", "kind", "table", "snapshotId", "time", "method", "chosen", "keep",
        "savesPercent", "workload", "sample", "objective", "layouts", "policy",
        "warnings", "columns", "refused", "fell", "front", "shapes", "sensitivity", "candidates",
        "labelled", "finer",
    ],
    "additionalProperties": False,
    "properties": {
        "apiVersion": {"const": API_VERSION},
        "kind": {"const": KIND},
        "table": _TEXT,
        "snapshotId": _TEXT,
        "time": _TEXT,
        "method": _TEXT,
        "chosen": {"type": ["string", "null"]},
        "keep": _TEXT,
        "savesPercent": _NUMBER,
        "workload": {"type": "object"},
        "sample": {"type": "object", "additionalProperties": {"type": ["number", "string"]}},
        "objective": {"type": "object", "additionalProperties": {"type": ["number", "string"]}},
        "layouts": {
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "object",
                "required": ["name", "what", "partitioning", "keys", "files", "read", "readAhead",
                             "rewrite"],
                "properties": {
                    "name": _TEXT,
                    "what": _TEXT,
                    "files": {"type": "integer", "minimum": 0},
                    "read": _READING,
                    "readAhead": _READING,
                },
            },
        },
        "policy": {"type": ["object", "null"]},
        "warnings": {"type": "array", "items": _TEXT},
        "columns": {"type": "array"},
        "refused": _NAMED,
        "fell": _NAMED,
        "front": {"type": "array"},
        "shapes": {"type": "array"},
        "sensitivity": {"type": "array"},
        "candidates": {"type": "integer"},
        "labelled": {"type": "integer"},
        "finer": {"type": "integer"},
    },
}  # fmt: skip


def stored_form(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the document as a reader gets it from the store.

    Raises InternalError for one that would be refused there, before it is stored.
    """
    try:
        body = json.loads(json.dumps(document, allow_nan=False))
        wrong = problem(body)
    except (ValueError, TypeError) as error:
        wrong = str(error)
    if wrong:
        raise InternalError(
            "the recommendation cannot be read back, so it was not stored",
            details=(wrong,),
            do="report this with the detail above",
        )
    return dict(body)


def problem(body: Any) -> str:
    """Return what is wrong with a recommendation document, "" if it is valid."""
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import best_match

    error = best_match(Draft202012Validator(RECOMMENDATION_SCHEMA).iter_errors(body))
    return "" if error is None else f"{error.json_path}: {error.message[:200]}"
