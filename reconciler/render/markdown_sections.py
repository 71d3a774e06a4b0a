"""The sections of one plan in Markdown: headline, actions, totals, cost, evidence, identity.

Reads only plan documents (plan.plan.Plan.document). `limit` is the maximum number of rows of a
table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from reconciler.format import count, cpu, duration, iec, percent, plural
from reconciler.plan.money import plan_money_text
from reconciler.plan.prediction import Total, label_of, predictions_of, saved_text, total
from reconciler.plan.rejected import merged
from reconciler.plan.totals import Quantity, harm_of, total_of
from reconciler.render.markdown_text import code_span, escaped, table
from reconciler.render.plan_text import (
    FilesOf,
    files_of,
    files_per_query,
    harm_text,
    opening_price,
)
from reconciler.render.totals_text import total_text, without_rewrite

Document = Mapping[str, Any]


def labels(document: Document) -> list[str]:
    """Return what the plan does, each kind of action once, in plan order."""
    kinds: dict[str, int] = {}
    for item in document["actions"]:
        label = label_of(item)
        kinds[label] = kinds.get(label, 0) + 1
    return [label if number == 1 else f"{label} ({number}x)" for label, number in kinds.items()]


def headline(document: Document) -> str:
    if not document["actions"]:
        return "nothing to do now" if document["evidence"].get("waiting") else "nothing to do"
    read = total_of(document["evidence"], Quantity.READ)
    rewritten = rewritten_bytes(document)
    if not rewritten:
        return "metadata only, no data file is rewritten"
    gain = ""
    if read and read.note and read.after is not None:
        gain = f", recorded queries read {iec(read.now)} -> {iec(read.after)} ({read.note})"
    return f"rewrite {iec(rewritten)}{gain}"


def body(document: Document, limit: int) -> list[str]:
    evidence = document["evidence"]
    if not document["actions"]:
        why = evidence.get("emptyBecause") or "Nothing is above threshold."
        return [_waiting(evidence), escaped(why), _rejected(evidence, limit)]
    return [
        _begun(document),
        _waiting(evidence),
        _refused(evidence),
        _checked(evidence),
        _unread(evidence),
        _actions(document, limit),
        _totals(evidence),
        _slower(evidence, limit),
        _storage(document),
        _cost(document),
        _budgets(evidence, limit),
    ]


def _begun(document: Document) -> str:
    """Return what is already done of a plan that was carried out in part."""
    done = document.get("done") or ()
    if not done:
        return ""
    every = len(done) + len(document["actions"])
    return (
        f"**Partly applied:** {count(len(done))} of {plural(every, 'action')} done. "
        "Figures below cover the remaining actions."
    )


def _waiting(evidence: Mapping[str, Any]) -> str:
    """Return what only the quiet period holds back."""
    text = (evidence.get("waiting") or {}).get("text", "")
    return f"**Waiting:** {escaped(text)}." if text else ""


def _refused(evidence: Mapping[str, Any]) -> str:
    """Return why the table's own state prevents all of it."""
    text = evidence.get("refused", "")
    return f"**Refused:** {escaped(text)}." if text else ""


def _checked(evidence: Mapping[str, Any]) -> str:
    """Return how many inputs the plan has checked, where it has not checked all of them."""
    text = evidence.get("checked", "")
    return f"**Inputs:** {escaped(text)}." if text else ""


def _unread(evidence: Mapping[str, Any]) -> str:
    """Return which of the table's properties are not followed."""
    text = evidence.get("unread", "")
    return f"**Properties:** {escaped(text)}." if text else ""


def _actions(document: Document, limit: int) -> str:
    rows, items = [], document["actions"]
    for item, predicted in zip(items, predictions_of(items), strict=True):
        label = escaped(label_of(item))
        if not predicted.rewrites:
            rows.append([item["id"], label, without_rewrite(predicted), "", "", ""])
            continue
        sums = total([predicted])
        rows.append([
            item["id"], label, f"{count(sums.files_in)} -> {count(sums.files_out)}",
            iec(sums.bytes_in), cpu(sums.cpu_seconds), duration(sums.millis / 1000),
        ])  # fmt: skip
    return table(("", "Action", "Files", "Rewritten", "CPU", "Time"), "llrrrr", rows, limit)


def _totals(evidence: Mapping[str, Any]) -> str:
    rows = []
    for line in evidence.get("totals", ()):
        note = " ".join(escaped(str(line[key])) for key in ("objective", "note") if line.get(key))
        rows.append([
            escaped(line["name"]), *(total_text(line, key) for key in ("now", "after")),
            _interval(line), note,
        ])  # fmt: skip
    heads = ("", "Now", "After", "80 % interval", "Objective, note")
    return table(heads, "lrrrl", rows, len(rows)) if rows else ""


def _interval(line: Mapping[str, Any]) -> str:
    low, high = total_text(line, "low"), total_text(line, "high")
    return "" if "-" in (low, high) else low if low == high else f"{low} - {high}"


def _slower(evidence: Mapping[str, Any], limit: int) -> str:
    shapes = evidence.get("shapes") or []
    losers = [shape for shape in shapes if shape.get("worse")]
    if not shapes:
        return "**Slower afterwards:** not known, no queries were imported for this table."
    if not losers:
        return "**Slower afterwards:** none of the recorded query shapes."
    return "**Slower afterwards**\n\n" + _shape_table(losers, limit, files_of(evidence))


def _shape_table(shapes: Sequence[Mapping[str, Any]], limit: int, of: FilesOf) -> str:
    rows = []
    for shape in shapes:
        rows.append([
            code_span(shape["text"]), count(shape["queries"]), iec(shape["bytesNow"]),
            iec(shape.get("bytesAfter")), files_per_query(shape, of),
            "worse" if shape.get("worse") else "",
        ])  # fmt: skip
    heads = ("Query shape", "Queries", "Read now", "After", "Files a query", "")
    return table(heads, "lrrrrl", rows, limit)


def _storage(document: Document) -> str:
    line = total_of(document["evidence"], Quantity.STORAGE)
    if line is None or line.after is None or line.after <= line.now:
        return ""
    more = iec(line.after - line.now)
    return f"**Storage** grows by {more} until old snapshots expire."


def _cost(document: Document) -> str:
    evidence = document["evidence"]
    cost = evidence.get("cost") or {}
    rewritten = rewritten_bytes(document)
    if not rewritten:
        return "**Cost** none: metadata only, no data file is rewritten."
    if not cost:
        return f"**Cost** {iec(rewritten)} rewritten."
    total = cost.get("tableBytes") or 0
    share = f" ({percent(rewritten / total, 1)} of the table)" if total else ""
    text = (
        f"**Cost** {iec(rewritten)} rewritten{share}, {cpu(cost['cpuMillis'] / 1000)}. "
        f"Rewriting 1 byte counts as reading {cost['rhoMilli'] / 1000:.1f} ({cost['rhoLabel']}); "
        f"{opening_price(cost)}"
    )
    after = payback(cost)
    text += f"; pays back in about {after}." if after != "-" else "."
    saved_by = sums_of(document).saved_by
    text = f"{text} Saves {saved_text(saved_by)}." if saved_by else text
    if money := evidence.get("money"):
        text += f" **Money** {plan_money_text(money)}, by the prices of the catalog."
    harm = harm_of(evidence)
    return f"{text} **HARM**: {harm_text(harm)}." if harm else text


def _budgets(evidence: Mapping[str, Any], limit: int) -> str:
    """Return what the policy's budgets leave for this plan, one line each."""
    lines = evidence.get("budgets") or ()
    shown = [f"**Budget** {escaped(line)}." for line in lines[:limit]]
    if len(lines) > limit:
        shown.append(f"{count(len(lines) - limit)} more budget lines cut.")
    return "\n\n".join(shown)


def identity(document: Document, approval: str) -> str:
    """Return what identifies the plan for approval: its id and the digest of its document."""
    if not document["actions"]:
        return ""
    digest = document.get("digest")
    plan = f"Plan `{document['planId']}`" + (f", digest `{digest}`" if digest else "")
    return f"{plan}. {escaped(approval)}".rstrip()


def payback(cost: Mapping[str, Any]) -> str:
    millis = cost.get("paybackMillis")
    return "-" if millis is None else duration(millis / 1000)


def details(document: Document, limit: int) -> list[str]:
    evidence = document["evidence"]
    inside = [_workload(evidence)]
    if evidence.get("trust"):
        inside.append(f"How past predictions held: {escaped(evidence['trust'])}.")
    if evidence.get("statistics"):
        inside.append(f"Statistics {escaped(evidence['statistics'])}.")
    shapes = evidence.get("shapes") or []
    if shapes:
        when = "Who paid when planned" if evidence.get("shapesWhenPlanned") else "Who pays today"
        inside.append(f"**{when}**\n\n" + _shape_table(shapes, limit, files_of(evidence)))
    if document["actions"]:
        inside.append(_rejected(evidence, limit))
    if evidence.get("notActedOn"):
        fields = ", ".join(code_span(field) for field in evidence["notActedOn"])
        inside.append(f"Not acted on yet by this version: {fields}.")
    inside.append(_provenance(document))
    text = "\n\n".join(part for part in inside if part)
    title = "Evidence, uncertainty and what was considered"
    return [f"<details><summary>{title}</summary>\n\n{text}\n\n</details>"]


def _workload(evidence: Mapping[str, Any]) -> str:
    work = evidence.get("workload")
    if not work or not work["queries"]:
        return "Workload: none imported; only what the policy declares is planned."
    text = (
        f"Workload: {plural(work['queries'], 'query', 'queries')} to {work['until']}, "
        f"{plural(work['shapes'], 'shape')}, explains {work['coveragePercent']} % of "
        f"{escaped(work['coverageBasis'])}"
    )
    if work.get("skipped"):
        text += f"; {count(work['skipped'])} skipped"
    return text + (f"; {escaped(work['warning'])}." if work.get("warning") else ".")


def _rejected(evidence: Mapping[str, Any], limit: int) -> str:
    lines = merged(evidence.get("rejected") or [])
    if not lines:
        return ""
    rows = [[escaped(line.what), escaped(line.why)] for line in lines]
    return "**Considered, not done**\n\n" + table(("What", "Why"), "ll", rows, limit)


def _provenance(document: Document) -> str:
    inputs = sum(len(item.get("inputs", ())) for item in document["actions"])
    text = f"Policy {escaped(document['policy'])}, made {document['createdAt']}, "
    text += f"expires {document['expiresAt']}."
    if inputs:
        text += (
            f" Valid while its {count(inputs)} input files are live; appends do not invalidate it."
        )
    return text


def rewritten_bytes(document: Document) -> int:
    return sums_of(document).bytes_in


def sums_of(document: Document) -> Total:
    return total(predictions_of(document["actions"]))
