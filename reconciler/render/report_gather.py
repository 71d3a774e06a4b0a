"""Builds the data of the HTML report from an observation, its workload, its advice and its ledger.

Pure: the CLI has read everything. The table as it was before our first rewrite is put together from
the old zone maps in the ledger: its present files that we did not write, and the inputs of our
actions that we had not written either.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from reconciler.advisor.advice import Advice, AdviceInput, Rejected, Settings
from reconciler.advisor.measure.credit import Credit
from reconciler.advisor.measure.past_plan import PastPlan, past_plans
from reconciler.advisor.situation import situation_of
from reconciler.advisor.wair.cut import best_prefix
from reconciler.api.prices import Prices
from reconciler.format import count, iec, saved_text, utc
from reconciler.plan.ledger import LedgerEntry, ReadCheck
from reconciler.plan.prediction import label_of, predictions_of, total
from reconciler.plan.prediction_interval import UNCALIBRATED
from reconciler.plan.rejected import in_partitions, merged, partitions_of
from reconciler.plan.totals import Quantity, total_of
from reconciler.queries.predicate import And, Comparison, In, Predicate, bounded_fields_of
from reconciler.queries.shape import Shape, Workload
from reconciler.queries.shape_text import marked_text
from reconciler.render.leaf_boxes import leaf_map
from reconciler.render.report_axis import Axis
from reconciler.render.report_credit import credit_facts
from reconciler.render.report_model import (
    CutCurve,
    FileSizes,
    Forecast,
    Investment,
    JudgedRewrite,
    KeyFiles,
    LeafMap,
    Payoff,
    QueryBytes,
    ReportData,
    ShapeBytes,
    Spans,
)
from reconciler.table.cut_tree import Tree
from reconciler.table.filetable import FileTable, Float64
from reconciler.table.observation import Observation
from reconciler.table.sample import RowSample

MOST_KEYS = 2
Document = Mapping[str, Any]


@dataclass(frozen=True)
class Sources:
    """The input of the report."""

    observation: Observation
    """The table as it was observed."""
    workload: Workload
    """The recorded queries."""
    advice: Advice
    """What was decided, with the candidates that were rejected."""
    settings: Settings
    """The settings of the decision."""
    plan: Document
    """The document of the present proposal."""
    entries: tuple[LedgerEntry, ...]
    """Outcomes of executed actions, each with its prediction."""
    checks: tuple[ReadCheck, ...]
    """What the recorded queries read before and after each plan."""
    executed: Mapping[str, Document]
    """Documents of the plans in the ledger, by plan id."""
    old_files: tuple[FileTable, ...]
    """Inputs of executed actions as they were, one table per action."""
    now_ms: int
    """Time of the report in epoch milliseconds."""
    credits: Mapping[str, Credit] = field(default_factory=dict)
    """What later queries did not read, by plan id."""
    show_literals: bool = False
    """Whether values of the table may be shown."""
    tree: Tree | None = None
    """The tree of cuts that is planned, else the one that was written last; None if there is
    neither."""
    prices: Prices | None = None
    """Prices of the catalog; None without any."""
    sample: RowSample | None = None
    """Rows of the table over the columns that the tree cuts; None without any."""


def gather(sources: Sources) -> ReportData:
    """Return the data of the page; for each part that cannot be shown, why."""
    missing: dict[str, str] = {}
    before = files_before(sources.observation.files, sources.old_files)
    return ReportData(
        table=sources.observation.name,
        generated=utc(sources.now_ms),
        facts=_facts(sources),
        key_files=_key_files(sources, before, missing),
        sizes=_sizes(sources, before, missing),
        queries=_queries(sources, missing),
        prices=sources.prices,
        rho=sources.settings.rho.value,
        payoff=_payoff(sources, missing),
        forecasts=_forecasts(sources, missing),
        cut=_cut(sources, missing),
        refused=tuple(merged(sources.plan["evidence"].get("rejected") or ())),
        leaves=_leaves(sources, missing),
        missing=missing,
    )


def files_before(now: FileTable, old: Sequence[FileTable]) -> tuple[FileTable, ...]:
    """Return the parts of the table as it was before our first rewrite; () if there was none."""
    originals = [table.take(~table.layout_written) for table in old]
    if not any(len(table) for table in originals):
        return ()
    return (now.take(~now.layout_written), *originals)


def _facts(sources: Sources) -> tuple[tuple[str, str], ...]:
    seen, work = sources.observation, sources.plan["evidence"].get("workload") or {}
    queries = (
        f"{count(work['queries'])} to {work['until']}, explaining {work['coveragePercent']} % of "
        f"{work['coverageBasis']}"
        if work.get("queries")
        else "none imported"
    )
    refused = sources.plan["evidence"].get("refused")
    return (
        ("Snapshot", f"{seen.snapshot_id or 'none'}, {utc(seen.snapshot_ms)}"),
        ("Data files", f"{count(len(seen.files))}, {iec(seen.files.total_bytes)}"),
        ("Policy", str(sources.plan["policy"])),
        ("Recorded queries", queries),
        ("Expected queries", (work.get("rates") or {}).get("text", "") or "-"),
        *credit_facts(
            sources.settings.debt, sources.advice.room, rho=sources.settings.rho.value,
            exact=all(one.exact for one in sources.credits.values()), prices=sources.prices,
        ),
        ("Plan", sources.plan["planId"] if sources.plan["actions"] else "nothing to do"),
        *((("Refused", refused),) if refused else ()),
    )  # fmt: skip


def _key_files(
    sources: Sources, before: tuple[FileTable, ...], missing: dict[str, str]
) -> tuple[KeyFiles, ...]:
    parts = []
    for field_id in _keys(sources):
        part = _files_over_key(sources, before, field_id)
        if part is not None:
            parts.append(part)
    if not parts:
        missing["key_files"] = (
            "no column that queries filter on has bounds in the manifests"
            if not sources.workload.empty
            else "no queries are known and no clustering key is declared or was used"
        )
    return tuple(parts[:MOST_KEYS])


def _keys(sources: Sources) -> list[int]:
    """Return the clustering keys in use or planned, then the columns that queries filter on, by
    bytes read."""
    documents = [sources.plan, *reversed(list(sources.executed.values()))]
    used = [
        column["fieldId"]
        for document in documents
        for item in document["actions"]
        for column in item.get("key", ())
    ]
    weight: dict[int, float] = {}
    now = {shape.shape_id: shape.bytes_now for shape in sources.advice.shapes}
    for shape in sources.workload.shapes:
        for field_id in bounded_fields_of(shape.predicate):
            weight[field_id] = weight.get(field_id, 0.0) + now.get(shape.shape_id, 0.0)
    by_bytes = sorted(weight, key=lambda field_id: (-weight[field_id], field_id))
    key = (column.field_id for column in sources.settings.ordering.key)
    return list(dict.fromkeys([*used, *key, *by_bytes]))


def _files_over_key(
    sources: Sources, before: tuple[FileTable, ...], field_id: int
) -> KeyFiles | None:
    now = sources.observation.files.columns.get(field_id)
    field = sources.observation.schema.by_id.get(field_id)
    if field is None or now is None or not now.bounded.any():
        return None
    old = [table.columns[field_id] for table in before if field_id in table.columns]
    axis = Axis.over([now, *old])
    low, high, weight = _queried(sources.workload, field_id, axis)
    return KeyFiles(
        column=field.name,
        after=axis.spans([now]),
        before=axis.spans(old) if old else None,
        queried=Spans(low, high),
        weight=weight,
        ticks=axis.ticks(field.type) if sources.show_literals else (),
    )


def _queried(workload: Workload, field_id: int, axis: Axis) -> tuple[Float64, Float64, Float64]:
    """Return the ranges of the column in recorded queries, as positions, with their executions."""
    lows, highs, weights = [], [], []
    for shape in workload.shapes:
        found = _range(shape, field_id, axis)
        if found is not None:
            lows.append(found[0])
            highs.append(found[1])
            weights.append(shape.weight)
    if not lows:
        return np.empty(0), np.empty(0), np.empty(0)
    low, high = np.concatenate(lows), np.concatenate(highs)
    return low, np.maximum(low, high), np.concatenate(weights)


def _range(shape: Shape, field_id: int, axis: Axis) -> tuple[Float64, Float64] | None:
    """Return the interval that a shape's top-level conditions give for the column; None without
    one."""
    low, high = np.zeros(len(shape)), np.ones(len(shape))
    bounded = False
    for node in _conditions(shape.predicate):
        if node.ref.field_id != field_id or node.ref.transform != "identity":
            continue
        values = shape.literals[node.slot]
        if isinstance(node, In):
            least = np.array([min(item) for item in values])
            most = np.array([max(item) for item in values])
            low = np.maximum(low, axis.position(least))
            high = np.minimum(high, axis.position(most))
            bounded = True
            continue
        place = axis.position(np.asarray(values))
        if node.op in ("=", ">", ">="):
            low, bounded = np.maximum(low, place), True
        if node.op in ("=", "<", "<="):
            high, bounded = np.minimum(high, place), True
    return (low, high) if bounded else None


def _conditions(predicate: Predicate) -> list[Comparison | In]:
    children = predicate.children if isinstance(predicate, And) else (predicate,)
    return [child for child in children if isinstance(child, (Comparison, In))]


def _sizes(
    sources: Sources, before: tuple[FileTable, ...], missing: dict[str, str]
) -> FileSizes | None:
    files = sources.observation.files
    if not len(files):
        missing["sizes"] = "the table has no data files"
        return None
    old = np.concatenate([table.bytes for table in before]) if before else None
    return FileSizes(files.bytes, old, sources.settings.target_bytes)


def _queries(sources: Sources, missing: dict[str, str]) -> QueryBytes | None:
    shapes = sources.advice.shapes
    if not shapes:
        missing["queries"] = "no queries were imported for this table"
        return None
    schema, literals = sources.observation.schema, sources.show_literals
    texts = {
        shape.shape_id: marked_text(shape, schema, show_literals=literals)
        for shape in sources.workload.shapes
    }
    if sources.executed:
        then = _first_reading(sources.executed)
        rows = [
            ShapeBytes(
                texts[shape.shape_id], shape.queries, then[shape.shape_id] * shape.queries,
                shape.bytes_now,
            )
            for shape in shapes
            if shape.shape_id in then and shape.queries > 0
        ]  # fmt: skip
        if rows:
            return QueryBytes(tuple(rows), "the same shapes, by the present files' bounds")
    if not sources.plan["actions"]:
        missing["queries"] = "nothing was carried out here and nothing is planned"
        return None
    return QueryBytes(
        tuple(
            ShapeBytes(texts[s.shape_id], s.queries, s.bytes_now, s.bytes_after)
            for s in shapes
            if s.queries > 0
        ),
        "predicted by the plan",
    )


def _first_reading(executed: Mapping[str, Document]) -> dict[str, float]:
    """Return, per shape, the bytes that a query read before the first plan that knew it."""
    found: dict[str, float] = {}
    for document in executed.values():
        for shape in document["evidence"].get("shapes") or ():
            if shape["queries"] > 0:
                found.setdefault(shape["shapeId"], shape["bytesNow"] / shape["queries"])
    return found


def _payoff(sources: Sources, missing: dict[str, str]) -> Payoff | None:
    span = sources.workload.span_ms
    settings = sources.settings
    plans = past_plans(
        sources.entries, sources.checks, sources.credits, settings.rho.value, settings.open_bytes
    )
    investments = [
        Investment(plan.plan_id, plan.at_ms, plan.cost, *_saved(plan, span), plan.harm)
        for plan in plans
        if plan.read_bytes
    ]
    if not investments:
        missing["payoff"] = "nothing was rewritten here yet"
        return None
    investments.sort(key=lambda item: item.at_ms)
    measured = [one.until_ms for one in sources.credits.values() if not one.none_ran]
    until = max(measured, default=investments[-1].at_ms)
    return Payoff(tuple(investments), until)


def _saved(plan: PastPlan, span_ms: int) -> tuple[float, str, float]:
    """Return the rate of a plan's saving in bytes a millisecond, and what it saved so far: as text,
    and at least so many bytes.

    Before a day of later queries is known, the rate is that of the recorded ones.
    """
    seen, rate = plan.measured, 0.0
    if seen is not None:
        rate = seen.least / max(seen.until_ms - seen.since_ms, 1)
    if plan.too_early and plan.check is not None:
        rate = plan.check.saving / span_ms
    if seen is not None:
        return rate, saved_text(seen.least, seen.exact), float(seen.least)
    if plan.realised is not None:
        return rate, "no query since", 0.0
    return 0.0, "unknown" if any(entry.written for entry in plan.entries) else "-", 0.0


def _by_plan(entries: Sequence[LedgerEntry]) -> dict[str, list[LedgerEntry]]:
    grouped: dict[str, list[LedgerEntry]] = {}
    for entry in entries:
        grouped.setdefault(entry.plan_id, []).append(entry)
    return grouped


def _forecasts(sources: Sources, missing: dict[str, str]) -> tuple[Forecast, ...]:
    found = []
    for check in sources.checks:
        if check.complete and check.predicted > 0:
            document = sources.executed.get(check.plan_id)
            for name, unit, quantity, foreseen, seen in (
                ("bytes read", "bytes", Quantity.READ, check.predicted, check.actual),
                (
                    "cost of reading",
                    "bytes",
                    Quantity.COST,
                    check.cost_predicted,
                    check.cost_actual,
                ),
                ("data files", "count", Quantity.FILES, check.files_predicted, check.files_actual),
            ):
                if foreseen is not None and seen is not None:
                    low, high = _interval_of(document, quantity, foreseen)
                    label = f"{name}, {check.plan_id[:8]}"
                    found.append(Forecast(label, unit, foreseen, low, high, seen))
    for plan_id, entries in _by_plan(sources.entries).items():
        done = [e for e in entries if e.committed and e.predicted.cpu_millis]
        if not done:
            continue
        predicted = total({e.outcome.action_id: e.predicted for e in done}.values())
        for name, unit, expected, actual in (
            ("CPU", "cpu", predicted.cpu_seconds, sum(e.outcome.cpu_seconds for e in done)),
            ("time", "seconds", predicted.millis / 1000, sum(e.outcome.seconds for e in done)),
        ):
            low, high = (expected * factor for factor in UNCALIBRATED)
            found.append(Forecast(f"{name}, {plan_id[:8]}", unit, expected, low, high, actual))
    if not found:
        missing["forecasts"] = "no plan was carried out here yet"
    return tuple(found)


def _interval_of(
    document: Document | None, quantity: Quantity, predicted: float
) -> tuple[float, float]:
    found = total_of((document or {}).get("evidence", {}), quantity)
    if found is not None and found.low is not None and found.high is not None:
        return float(found.low), float(found.high)
    return predicted * UNCALIBRATED[0], predicted * UNCALIBRATED[1]


def _cut(sources: Sources, missing: dict[str, str]) -> CutCurve | None:
    """Return Algorithm 2's curve of the present files, and the decision on each of its
    candidates."""
    if sources.workload.empty:
        missing["cut"] = "no queries were imported for this table"
        return None
    files = sources.observation.files
    situation = situation_of(AdviceInput(files, sources.workload, sources.settings))
    saving = situation.expected.savings.saving
    found = best_prefix(saving, situation.cost, situation.alpha, limit=float("inf"))
    if not len(found.net):
        missing["cut"] = "no file is only partly needed: there is nothing to cut"
        return None
    return CutCurve(found.net, len(found.chosen), len(files), _candidates(sources))


def _leaves(sources: Sources, missing: dict[str, str]) -> LeafMap | None:
    if sources.tree is None:
        missing["leaves"] = "no tree is planned, and none was written"
        return None
    if sources.workload.empty:
        missing["leaves"] = "no queries were imported for this table"
        return None
    return leaf_map(sources.tree, sources.observation.files, sources.sample, sources.workload)


def _candidates(sources: Sources) -> tuple[JudgedRewrite, ...]:
    chosen = [
        JudgedRewrite(label_of(item), sums.files_in, sums.saving_low, sums.cost, True)
        for item in sources.plan["actions"]
        if (sums := total(predictions_of([item]))).cost > 0
    ]
    return (*chosen, *_not_done(sources))


def _not_done(sources: Sources) -> list[JudgedRewrite]:
    """Return the rejected candidates; those with one title and reason in several partitions are
    summed up."""
    rejected = sources.advice.rejected
    places = partitions_of(sources.observation.files, [item.inputs for item in rejected])
    alike: dict[tuple[str, ...], list[tuple[Rejected, str]]] = {}
    for number, (item, place) in enumerate(zip(rejected, places, strict=True)):
        if item.files and item.cost > 0 and np.isfinite(item.saving_low):
            by_itself = "" if place else str(number)
            alike.setdefault((str(item.what), item.reason, by_itself), []).append((item, place))
    return [
        JudgedRewrite(
            in_partitions(title, {place for _, place in found if place}),
            sum(item.files for item, _ in found),
            sum(item.saving_low for item, _ in found),
            sum(item.cost for item, _ in found),
            False,
        )
        for (title, *_), found in alike.items()
    ]
