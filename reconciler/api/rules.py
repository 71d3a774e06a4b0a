"""The Python twin of each CEL rule of the CRDs: same place, same message, same verdict.

Offline validation runs these on a document with its defaults filled in, as the API server runs
CEL after defaulting. Only the API server can evaluate the rules of immutable fields: they compare
with the stored object. A test holds the table equal to the CRDs' x-kubernetes-validations.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from reconciler.api import places
from reconciler.api.catalog_properties import REST, SQL
from reconciler.api.quantities import parse_bytes, parse_duration
from reconciler.api.schema import AUDITED_TABLE, CATALOG, POLICY, TABLE_LAYOUT

Object = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule of a CRD in Python."""

    kind: str
    """The kind of document that the rule belongs to."""
    path: str
    """The place of the rule in the document, with `[]` for the items of a list."""
    field: str
    """The field that the rule is about, below `path`."""
    message: str
    """The message of a violation, as in the CRD."""
    holds: Callable[[Object], bool] | None
    """Returns whether the value at `path` meets the rule; None for an immutable field, which only
    the API server can check."""
    reads: tuple[str, ...] = ()
    """Fields below `path` that `holds` reads, with `[]` for items. If one of them is broken, the
    rule is not evaluated."""
    asks: tuple[str, ...] = ()
    """Fields below `path` that `holds` only tests for presence. If one of them is broken, the rule
    is not evaluated."""
    hint: str = ""
    """What to write instead."""


def _property_is(spec: Object, name: str, holds: Callable[[str], bool]) -> bool:
    properties = spec["properties"]
    return name not in properties or holds(properties[name])


def _is_whole(source: Object) -> bool:
    """Whether a source with a format or a map says where the text and the time are."""
    return "format" in source or {"sql", "timestamp"} <= source["map"].keys()


MAX_TIMEOUT_SECONDS = 300
"""Of spec.timeout: a call that hangs holds one of its catalog's few threads for so long."""

MAX_ROW_GROUP_BYTES = 2**31 - 1
"""Of spec.layout.files.rowGroupSize: Iceberg's Java library reads the property as an int, and its
writers raise at a greater number."""

RULES: tuple[Rule, ...] = (
    Rule(
        POLICY, "spec", "approval.mode", "Automatic approval needs at least one budget",
        lambda spec: spec["approval"]["mode"] != "Automatic" or bool(spec.get("budgets")),
        reads=("approval.mode", "budgets"),
        hint="add spec.budgets, or use mode Manual",
    ),
    Rule(
        POLICY, "spec.layout.partitioning", "fields",
        "fields are given exactly when mode is Declared",
        lambda it: (it["mode"] == "Declared") == ("fields" in it),
        reads=("mode",), asks=("fields",),
        hint="mode: Declared with fields, or neither",
    ),
    Rule(
        POLICY, "spec.layout.partitioning", "accept", "accept needs mode Declared",
        lambda it: it["mode"] == "Declared" or "accept" not in it,
        reads=("mode",), asks=("accept",),
    ),
    Rule(
        POLICY, "spec.layout.partitioning", "trial", "trial needs mode Declared",
        lambda it: it["mode"] == "Declared" or "trial" not in it,
        reads=("mode",), asks=("trial",),
    ),
    Rule(
        POLICY, "spec.layout.clustering", "keys",
        "keys are given exactly when mode is Declared",
        lambda it: (it["mode"] == "Declared") == ("keys" in it),
        reads=("mode",), asks=("keys",),
        hint="mode: Declared with keys, or neither",
    ),
    Rule(
        POLICY, "spec.layout.clustering", "keys", "each key is named once",
        lambda it: len(set(it.get("keys", ()))) == len(it.get("keys", ())),
        reads=("keys[]",),
    ),
    Rule(
        POLICY, "spec.layout.clustering", "curve", "a Hilbert curve needs at least two keys",
        lambda it: it["curve"] != "Hilbert" or "keys" not in it or len(it["keys"]) >= 2,
        reads=("curve", "keys"),
        hint="name a second key, or use Lexicographic",
    ),
    Rule(
        POLICY, "spec.layout.clustering", "applyToWrites", "applyToWrites needs mode Declared",
        lambda it: not it["applyToWrites"] or it["mode"] == "Declared",
        reads=("applyToWrites", "mode"),
    ),
    Rule(
        POLICY, "spec.layout.clustering", "qdTree", "qdTree needs mode QdTree",
        lambda it: "qdTree" not in it or it["mode"] == "QdTree",
        reads=("mode",), asks=("qdTree",),
    ),
    Rule(
        POLICY, "spec.layout.clustering.qdTree", "replica",
        "a table with block ids has no replica",
        lambda it: "replica" not in it or "blockColumn" not in it,
        asks=("replica", "blockColumn"),
        hint="name blockColumn or replica, not both",
    ),
    Rule(
        POLICY, "spec.layout.files", "rowGroupSize", "rowGroupSize is less than 2Gi",
        lambda it: it.get("rowGroupSize", "Auto") == "Auto"
        or parse_bytes(it["rowGroupSize"]) <= MAX_ROW_GROUP_BYTES,
        reads=("rowGroupSize",),
        hint="Iceberg's writers read the table's property as an int of 32 bits",
    ),
    Rule(
        POLICY, "spec.budgets[]", "duration", "schedule and duration go together",
        lambda it: ("schedule" in it) == ("duration" in it),
        asks=("schedule", "duration"),
    ),
    Rule(
        POLICY, "spec.budgets[]", "per", "a budget has either per or schedule",
        lambda it: ("per" in it) != ("schedule" in it),
        asks=("per", "schedule"),
        hint="per: 24h, or schedule with duration",
    ),
    Rule(
        POLICY, "spec.budgets[]", "timeZone", "timeZone needs a schedule",
        lambda it: "timeZone" not in it or "schedule" in it,
        asks=("timeZone", "schedule"),
    ),
    Rule(
        POLICY, "spec.budgets[]", "maxRewriteBytes",
        "a budget limits maxRewriteBytes, maxCpuTime or both",
        lambda it: "maxRewriteBytes" in it or "maxCpuTime" in it,
        asks=("maxRewriteBytes", "maxCpuTime"),
    ),
    Rule(
        POLICY, "spec.safety", "branch",
        "branch goes together with check or with approval: Required",
        lambda it: ("branch" in it) == ("check" in it or it.get("approval") == "Required"),
        reads=("approval",), asks=("branch", "check"),
    ),
    Rule(
        POLICY, "spec.safety", "branch", "branch is not main",
        lambda it: it.get("branch") != "main", reads=("branch",),
    ),
    Rule(
        POLICY, "spec.safety", "check", "check reads {table}",
        lambda it: AUDITED_TABLE in it.get("check", AUDITED_TABLE), reads=("check",),
    ),
    Rule(
        POLICY, "spec.approval", "mode", "approvedPlans and automaticUpTo need mode Manual",
        lambda it: it["mode"] == "Manual" or not ({"approvedPlans", "automaticUpTo"} & it.keys()),
        reads=("mode",), asks=("approvedPlans", "automaticUpTo"),
        hint="Automatic is limited by budgets instead",
    ),
    Rule(TABLE_LAYOUT, "spec", "table", "catalogRef and table cannot be changed", holds=None),
    Rule(CATALOG, "spec", "catalogName", "type and catalogName cannot be changed", holds=None),
    Rule(
        CATALOG, "spec", "timeout", "timeout is at most 5m",
        lambda it: parse_duration(it["timeout"]) <= MAX_TIMEOUT_SECONDS,
        reads=("timeout",),
    ),
    Rule(
        CATALOG, "spec", "properties.uri", places.REST_URI_RULE,
        lambda it: it["type"] != REST or _property_is(it, "uri", places.is_rest_uri),
        reads=("type", "properties.uri"),
    ),
    Rule(
        CATALOG, "spec", "properties.uri", places.SQL_URI_RULE,
        lambda it: it["type"] != SQL or _property_is(it, "uri", places.is_sql_uri),
        reads=("type", "properties.uri"),
    ),
    Rule(
        CATALOG, "spec", "properties.warehouse", places.WAREHOUSE_RULE,
        lambda it: it["type"] != REST or _property_is(it, "warehouse", places.is_rest_warehouse),
        reads=("type", "properties.warehouse"),
    ),
    Rule(
        CATALOG, "spec", "properties.warehouse", places.LOCATION_RULE,
        lambda it: it["type"] != SQL or _property_is(it, "warehouse", places.is_location),
        reads=("type", "properties.warehouse"),
    ),
    Rule(
        CATALOG, "spec.system.plans", "uri", places.LOCATION_RULE,
        lambda it: "uri" not in it or places.is_location(it["uri"]),
        reads=("uri",),
    ),
    Rule(
        CATALOG, "spec.workload.sources[]", "uri", places.LOCATION_RULE,
        lambda it: places.is_location(it["uri"]),
        reads=("uri",),
    ),
    Rule(
        CATALOG, "spec.workload.sources[]", "map",
        "a format or a map is of a SqlLog, and a map without a format names sql and timestamp",
        lambda it: not {"format", "map"} & it.keys()
        or (it["type"] == "SqlLog" and _is_whole(it)),
        reads=("type", "map"), asks=("format",),
        hint="map: {sql: query_text, timestamp: start_time}",
    ),
    Rule(
        CATALOG, "spec.properties", "", "no property may name a class to load",
        lambda it: not any(key.endswith("impl") for key in it),
        hint="remove it; file systems are chosen by the URI",
    ),
)  # fmt: skip

Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Violation:
    """at: path of the object that the rule belongs to; field: path of what it concerns."""

    rule: Rule
    at: Path
    field: Path


def violations(
    kind: str, body: Object, broken: Collection[Path], meant: Collection[Path] = ()
) -> Iterator[Violation]:
    """Yield the rules that a defaulted document breaks, unless what they read is itself broken.

    meant: absent fields that a misspelt field probably means. The API server evaluates no rule
    while anything is broken; a person who corrects one fault at a time would find these later.
    """
    for rule in RULES:
        if rule.kind != kind or rule.holds is None:
            continue
        for at, value in _values(body, rule.path):
            if _can_be_judged(rule, at, broken, meant) and not rule.holds(value):
                yield Violation(rule, at, _field(rule, at))


def _can_be_judged(rule: Rule, at: Path, broken: Collection[Path], meant: Collection[Path]) -> bool:
    reads = [(*at, *name.removesuffix("[]").split(".")) for name in rule.reads]
    items = [path for path, name in zip(reads, rule.reads, strict=True) if name.endswith("[]")]
    asks = [(*at, *name.split(".")) for name in rule.asks]
    return not (
        any(_within(path, fault) for path in (at, *reads) for fault in broken)
        or any(_within(fault, path) for path in items for fault in broken)
        or any(path in meant for path in (*reads, *asks))
    )


def _within(path: Path, other: Path) -> bool:
    return path[: len(other)] == other


def _field(rule: Rule, at: Path) -> Path:
    return (*at, *rule.field.split(".")) if rule.field else at


def _values(body: Object, path: str) -> Iterator[tuple[Path, Object]]:
    """Yield (path, object) of each existing place that a rule's path matches."""
    places: list[tuple[Path, Any]] = [((), body)]
    for part in path.split("."):
        name = part.removesuffix("[]")
        places = [
            ((*at, name), value[name])
            for at, value in places
            if isinstance(value, dict) and name in value
        ]
        if part.endswith("[]"):
            places = [
                ((*at, number), item)
                for at, value in places
                if isinstance(value, list)
                for number, item in enumerate(value)
            ]
    for at, value in places:
        if isinstance(value, dict):
            yield at, value
