"""Renders plans as Markdown for pull requests: one comment that CI finds by its first line and
replaces.

Reads only plan documents (plan.plan.Plan.document). The text stays below GitHub's limit for a
comment: tables are cut and the omitted rows counted; the headline is never cut.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from reconciler.format import count, cpu, duration, iec, percent
from reconciler.plan.prediction import label_of, predictions_of, total
from reconciler.plan.rejected import merged
from reconciler.render.against import Against, Change

MAX_CHARACTERS = 60_000
_ROW_LIMITS = (10_000, 300, 100, 40, 15, 5)
_CELL = 300
_TABLES = (500, 200, 80, 25)

Document = Mapping[str, Any]


def render_plan(document: Document, approval: str = "", against: Against | None = None) -> str:
    """Return one plan. document: with its `digest`, and with the lines of its budgets as evidence;
    approval: who may approve it, one sentence; against: how it differs from the base's plan."""
    for limit in _ROW_LIMITS:
        text = _plan(document, approval, against, limit)
        if len(text) <= MAX_CHARACTERS:
            return text
    return _plan(document, approval, against, 1, details=False)


def render_plans(
    documents: Sequence[Document],
    failed: Sequence[tuple[str, str]] = (),
    approvals: Sequence[str] = (),
    against: Against | None = None,
) -> str:
    """Return many plans: a table with a line each, the largest first; converged ones as one count.

    failed: (table, message) of tables that could not be planned. approvals: per document. against:
    how the plans differ from those of the base, if a base is given.
    """
    told = dict(zip((document["planId"] for document in documents), approvals, strict=False))
    if len(documents) == 1 and not failed and not (against and against.elsewhere(documents)):
        return render_plan(documents[0], told.get(documents[0]["planId"], ""), against)
    busy = sorted(
        (document for document in documents if document["actions"]),
        key=lambda document: (-_rewritten(document), table_name(document)),
    )
    converged = len(documents) - len(busy)
    for limit, tables in zip(_ROW_LIMITS[1:], (*_TABLES, 5), strict=True):
        text = _plans(busy, told, converged, failed, against, limit, tables)
        if len(text) <= MAX_CHARACTERS:
            return text
    return _plans(busy, told, converged, failed, against, 1, 5, details=False)


def table_name(document: Document) -> str:
    return ".".join([document["catalog"], *document["table"]])


def _plan(
    document: Document, approval: str, against: Against | None, limit: int, details: bool = True
) -> str:
    name, digest = table_name(document), document.get("digest", "")
    marker = f"<!-- layoutctl:plan {_comment(_clip(name))} {document['planId']} {digest}".rstrip()
    parts = [f"{marker} -->", f"### {_text(name)}: {_headline(document)}"]
    if against is not None:
        parts.append(f"**Against the base:** {_AGAINST[against.of(document)]}.")
    parts += _body(document, limit)
    if details:
        parts += _details(document, limit)
    parts += [_identity(document, approval), _ids([document] if document["actions"] else [], 1)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _plans(
    busy: Sequence[Document],
    approvals: Mapping[str, str],
    converged: int,
    failed: Sequence[tuple[str, str]],
    against: Against | None,
    limit: int,
    tables: int,
    details: bool = True,
) -> str:
    changed = f"{count(len(busy))} {_plural(len(busy), 'table')} to change"
    parts = [
        f"<!-- layoutctl:plan tables={len(busy) + converged + len(failed)} -->",
        f"### Layout plan: {changed}, {count(converged)} with nothing to do"
        + (f", {count(len(failed))} failed" if failed else ""),
    ]
    if busy:
        parts.append(_sums(busy, len(busy) + converged + len(failed)))
    if against is not None:
        parts.append(_against(busy, against, tables))
    if busy:
        rows = [_table_row(document, against) for document in busy]
        heads: tuple[str, ...] = (
            "Table",
            "Actions",
            "Rewrite",
            "CPU",
            "Reads",
            "Pays back in",
            "Plan",
        )
        sides = "llrrrrl"
        if against is not None:
            heads, sides = ("Table", "Against base", *heads[1:]), "l" + sides
        parts.append(_table(heads, sides, rows, tables))
        parts.append(_ids(busy, tables))
    if failed:
        rows = [[_text(name), _text(message)] for name, message in failed]
        parts.append(_table(("Not planned", "Why"), "ll", rows, tables))
    if details:
        parts += [
            _folded(document, approvals.get(document["planId"], ""), limit)
            for document in busy[:tables]
        ]
    return "\n\n".join(parts) + "\n"


def _folded(document: Document, approval: str, limit: int) -> str:
    parts = [*_body(document, limit), *_details(document, limit), _identity(document, approval)]
    body = "\n\n".join(part for part in parts if part)
    title = f"{table_name(document)}: {_headline(document)}"
    return f"<details><summary>{_plain(title)}</summary>\n\n{body}\n\n</details>"


_AGAINST: Mapping[Change, str] = {
    Change.NEW: "new, the base plans nothing here",
    Change.CHANGED: "changed, the base plans other work here",
    Change.SAME: "same as the base",
    Change.GONE: "gone, only the base plans work here",
    Change.NOTHING: "nothing to do on either side",
    Change.UNKNOWN: "unknown, the base could not be planned here",
}


def _against(busy: Sequence[Document], against: Against, limit: int) -> str:
    """Return how many tables the change affects, and the names of those whose work it removes."""
    gone = against.gone
    found = [against.of(document) for document in busy] + [Change.GONE] * len(gone)
    parts = [f"{count(found.count(each))} {each.value}" for each in Change if each in found]
    text = f"**Against the base:** {', '.join(parts) or 'nothing to do on either side'}."
    if not gone:
        return text
    rows = [[_text(name), iec(size) if size else "metadata only"] for name, size in gone]
    return text + "\n\n" + _table(("Gone: only the base plans it", "Rewrite"), "lr", rows, limit)


def _sums(busy: Sequence[Document], tables: int) -> str:
    """Return the totals over all plans. Reads are summed where recorded queries give them."""
    predicted = total(predictions_of(item for document in busy for item in document["actions"]))
    reads = [line for line in (_total(document, "read /") for document in busy) if line]
    known = [line for line in reads if line.get("after") is not None]
    read = "-"
    if known:
        read = " -> ".join(iec(sum(line[key] for line in known)) for key in ("now", "after"))
        if len(known) < len(busy):
            read += f" (known for {count(len(known))} of {count(len(busy))} tables)"
    heads = ("Tables with changes", "Files", "Rewrite", "CPU", "Recorded queries read")
    files = f"{count(predicted.files_in)} -> {count(predicted.files_out)}"
    row = [
        f"{count(len(busy))} of {count(tables)}",
        files if predicted.files_in else "-",
        iec(predicted.bytes_in) if predicted.files_in else "metadata only",
        cpu(predicted.cpu_seconds),
        read,
    ]
    return _table(heads, "rrrrr", [row], 1)


def _ids(busy: Sequence[Document], limit: int) -> str:
    """Return the plan ids as one block that can be pasted into a policy."""
    if not busy:
        return ""
    shown = [
        f"- {document['planId']}  # {_line(table_name(document))}" for document in busy[:limit]
    ]
    block = "\n".join(("```yaml", "approvedPlans:", *shown, "```"))
    text = f"To approve, put under `spec.approval` of the policy:\n\n{block}"
    if len(busy) > limit:
        text += f"\n\n{count(len(busy) - limit)} more {_plural(len(busy) - limit, 'row')} cut."
    return text


def _table_row(document: Document, against: Against | None) -> list[str]:
    cost = document["evidence"].get("cost") or {}
    read = _total(document, "read /")
    marked = [] if against is None else [against.of(document).value]
    return [
        _text(table_name(document)),
        *marked,
        _text("; ".join(_labels(document))),
        iec(_rewritten(document)) if _rewritten(document) else "metadata only",
        cpu((cost.get("cpuMillis") or 0) / 1000),
        (read or {}).get("note") or "-",
        _payback(cost),
        f"`{document['planId']}`",
    ]


def _labels(document: Document) -> list[str]:
    """Return what the plan does, each kind of action once, in plan order."""
    kinds: dict[str, int] = {}
    for item in document["actions"]:
        label = label_of(item)
        kinds[label] = kinds.get(label, 0) + 1
    return [label if number == 1 else f"{label} ({number}x)" for label, number in kinds.items()]


def _headline(document: Document) -> str:
    if not document["actions"]:
        return "nothing to do now" if document["evidence"].get("waiting") else "nothing to do"
    read = _total(document, "read /")
    rewritten = _rewritten(document)
    if not rewritten:
        return "metadata only, no data file is rewritten"
    gain = ""
    if read and read.get("note") and read.get("after") is not None:
        gain = f", recorded queries read {iec(read['now'])} -> {iec(read['after'])}"
        gain += f" ({read['note']})"
    return f"rewrite {iec(rewritten)}{gain}"


def _body(document: Document, limit: int) -> list[str]:
    evidence = document["evidence"]
    if not document["actions"]:
        why = evidence.get("emptyBecause") or "Nothing is above threshold."
        return [_waiting(evidence), _text(why), _rejected(evidence, limit)]
    return [
        _begun(document),
        _waiting(evidence),
        _refused(evidence),
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
        f"**Partly applied:** {count(len(done))} of {count(every)} "
        f"{_plural(every, 'action')} done. Figures below cover the remaining actions."
    )


def _waiting(evidence: Mapping[str, Any]) -> str:
    """Return what only the quiet period holds back."""
    text = (evidence.get("waiting") or {}).get("text", "")
    return f"**Waiting:** {_text(text)}." if text else ""


def _refused(evidence: Mapping[str, Any]) -> str:
    """Return why the table's own state prevents all of it."""
    text = evidence.get("refused", "")
    return f"**Refused:** {_text(text)}." if text else ""


def _actions(document: Document, limit: int) -> str:
    rows, items = [], document["actions"]
    for item, predicted in zip(items, predictions_of(items), strict=True):
        label = _text(label_of(item))
        if not predicted.rewrites:
            rows.append([item["id"], label, "metadata only", "", "", ""])
            continue
        sums = total([predicted])
        rows.append([
            item["id"], label, f"{count(sums.files_in)} -> {count(sums.files_out)}",
            iec(sums.bytes_in), cpu(sums.cpu_seconds), duration(sums.millis / 1000),
        ])  # fmt: skip
    return _table(("", "Action", "Files", "Rewritten", "CPU", "Time"), "llrrrr", rows, limit)


def _totals(evidence: Mapping[str, Any]) -> str:
    rows = []
    for line in evidence.get("totals", ()):
        note = " ".join(_text(str(line[key])) for key in ("objective", "note") if line.get(key))
        rows.append([
            _text(line["name"]), _value(line, "now"), _value(line, "after"), _interval(line), note
        ])  # fmt: skip
    heads = ("", "Now", "After", "80 % interval", "Objective, note")
    return _table(heads, "lrrrl", rows, len(rows)) if rows else ""


def _value(line: Mapping[str, Any], key: str) -> str:
    value = line.get(key)
    if value is None or value < 0:
        return "-"
    if line["unit"] == "bytes":
        return iec(value)
    if line["unit"] == "milli":
        return f"{value / 1000:.2f}"
    if line["unit"] == "percent":
        return f"{'at least ' if line.get('atLeast') else ''}{value} %"
    return count(value)


def _interval(line: Mapping[str, Any]) -> str:
    low, high = _value(line, "low"), _value(line, "high")
    return "" if "-" in (low, high) else low if low == high else f"{low} - {high}"


def _slower(evidence: Mapping[str, Any], limit: int) -> str:
    shapes = evidence.get("shapes") or []
    losers = [shape for shape in shapes if shape.get("worse")]
    if not shapes:
        return "**Slower afterwards:** not known, no queries were imported for this table."
    if not losers:
        return "**Slower afterwards:** none of the recorded query shapes."
    return "**Slower afterwards**\n\n" + _shape_table(losers, limit)


def _shape_table(shapes: Sequence[Mapping[str, Any]], limit: int) -> str:
    rows = []
    for shape in shapes:
        files = count(round(shape["filesNowMilli"] / 1000))
        if shape.get("filesAfterMilli") is not None:
            files += f" -> {count(round(shape['filesAfterMilli'] / 1000))}"
        rows.append([
            _code(shape["text"]), count(shape["queries"]), iec(shape["bytesNow"]),
            iec(shape.get("bytesAfter")), files, "worse" if shape.get("worse") else "",
        ])  # fmt: skip
    heads = ("Query shape", "Queries", "Read now", "After", "Files a query", "")
    return _table(heads, "lrrrrl", rows, limit)


def _storage(document: Document) -> str:
    line = _total(document, "storage")
    if line is None or line["after"] <= line["now"]:
        return ""
    more = iec(line["after"] - line["now"])
    return f"**Storage** grows by {more} until old snapshots expire."


def _cost(document: Document) -> str:
    evidence = document["evidence"]
    cost = evidence.get("cost") or {}
    rewritten = _rewritten(document)
    if not rewritten:
        return "**Cost** none: metadata only, no data file is rewritten."
    if not cost:
        return f"**Cost** {iec(rewritten)} rewritten."
    total = cost.get("tableBytes") or 0
    share = f" ({percent(rewritten / total, 1)} of the table)" if total else ""
    text = (
        f"**Cost** {iec(rewritten)} rewritten{share}, {cpu(cost['cpuMillis'] / 1000)}. "
        f"1 byte rewritten = {cost['rhoMilli'] / 1000:.1f} read ({cost['rhoLabel']})"
    )
    payback = _payback(cost)
    return text + (f"; pays back in about {payback}." if payback != "-" else ".")


def _budgets(evidence: Mapping[str, Any], limit: int) -> str:
    """Return what the policy's budgets leave for this plan, one line each."""
    lines = evidence.get("budgets") or ()
    shown = [f"**Budget** {_text(line)}." for line in lines[:limit]]
    if len(lines) > limit:
        shown.append(f"{count(len(lines) - limit)} more budget lines cut.")
    return "\n\n".join(shown)


def _identity(document: Document, approval: str) -> str:
    """Return what identifies the plan for approval: its id and the digest of its document."""
    if not document["actions"]:
        return ""
    digest = document.get("digest")
    plan = f"Plan `{document['planId']}`" + (f", digest `{digest}`" if digest else "")
    return f"{plan}. {_text(approval)}".rstrip()


def _payback(cost: Mapping[str, Any]) -> str:
    millis = cost.get("paybackMillis")
    return "-" if millis is None else duration(millis / 1000)


def _details(document: Document, limit: int) -> list[str]:
    evidence = document["evidence"]
    inside = [_workload(evidence)]
    if evidence.get("trust"):
        inside.append(f"How past predictions held: {_text(evidence['trust'])}.")
    shapes = evidence.get("shapes") or []
    if shapes:
        when = "Who paid when planned" if evidence.get("shapesWhenPlanned") else "Who pays today"
        inside.append(f"**{when}**\n\n" + _shape_table(shapes, limit))
    if document["actions"]:
        inside.append(_rejected(evidence, limit))
    if evidence.get("notActedOn"):
        fields = ", ".join(_code(field) for field in evidence["notActedOn"])
        inside.append(f"Not acted on yet by this version: {fields}.")
    inside.append(_provenance(document))
    body = "\n\n".join(part for part in inside if part)
    title = "Evidence, uncertainty and what was considered"
    return [f"<details><summary>{title}</summary>\n\n{body}\n\n</details>"]


def _workload(evidence: Mapping[str, Any]) -> str:
    work = evidence.get("workload")
    if not work or not work["queries"]:
        return "Workload: none imported; only what the policy declares is planned."
    text = (
        f"Workload: {count(work['queries'])} queries to {work['until']}, {count(work['shapes'])} "
        f"{_plural(work['shapes'], 'shape')}, explains {work['coveragePercent']} % of "
        f"{_text(work['coverageBasis'])}"
    )
    if work.get("skipped"):
        text += f"; {count(work['skipped'])} skipped"
    return text + (f"; {_text(work['warning'])}." if work.get("warning") else ".")


def _rejected(evidence: Mapping[str, Any], limit: int) -> str:
    lines = merged(evidence.get("rejected") or [])
    if not lines:
        return ""
    rows = [[_text(line.what), _text(line.why)] for line in lines]
    return "**Considered, not done**\n\n" + _table(("What", "Why"), "ll", rows, limit)


def _provenance(document: Document) -> str:
    inputs = sum(len(item.get("inputs", ())) for item in document["actions"])
    text = f"Policy {_text(document['policy'])}, made {document['createdAt']}, "
    text += f"expires {document['expiresAt']}."
    if inputs:
        text += (
            f" Valid while its {count(inputs)} input files are live; appends do not invalidate it."
        )
    return text


def _rewritten(document: Document) -> int:
    return total(predictions_of(document["actions"])).bytes_in


def _total(document: Document, prefix: str) -> Mapping[str, Any] | None:
    lines = document["evidence"].get("totals", ())
    return next((line for line in lines if line["name"].startswith(prefix)), None)


def _table(heads: Sequence[str], sides: str, rows: Sequence[Sequence[str]], limit: int) -> str:
    """Return a GFM table of at most `limit` rows, with the number of omitted ones below it."""
    rule = ["---:" if side == "r" else "---" for side in sides]
    shown = [heads, rule, *rows[:limit]]
    lines = ["| " + " | ".join(row) + " |" for row in shown]
    if len(rows) > limit:
        lines += ["", f"{count(len(rows) - limit)} more {_plural(len(rows) - limit, 'row')} cut."]
    return "\n".join(lines)


def _plural(number: int, noun: str) -> str:
    return noun if number == 1 else noun + "s"


def _text(text: str) -> str:
    """Return text on one line that Markdown and HTML do not change. Paired backticks stay a code
    span."""
    parts = _SPAN.split(_line(text))
    return "".join(
        part if number % 2 else "".join(_ESCAPES.get(letter, letter) for letter in part)
        for number, part in enumerate(parts)
    )


_SPAN = re.compile(r"(`[^`|<>&\\]+`)")
_ESCAPES: Mapping[str, str] = {
    "&": "&amp;", "<": "&lt;", ">": "&gt;", "`": "&#96;",
    **{letter: "\\" + letter for letter in "\\|*_[]~@#$"},
}  # fmt: skip


def _plain(text: str) -> str:
    """Return text for a `<summary>`, where HTML is read and Markdown is not."""
    return html.escape(_line(text), quote=False)


def _line(text: str) -> str:
    return " ".join(_clip(text).split())


def _code(text: str) -> str:
    """Return text in a code span for a table cell: pipes escaped, backticks fenced by longer
    ones."""
    line = _line(text).replace("|", "\\|")
    fence = "`" * (1 + max(_runs(line), default=0))
    pad = " " if "`" in line or not line else ""
    return f"{fence}{pad}{line}{pad}{fence}"


def _runs(line: str) -> Iterable[int]:
    """Yield the lengths of the runs of backticks."""
    length = 0
    for letter in line + " ":
        if letter == "`":
            length += 1
        elif length:
            yield length
            length = 0


def _clip(text: str) -> str:
    return text if len(text) <= _CELL else text[: _CELL - 1] + "…"


def _comment(text: str) -> str:
    """Return a name for an HTML comment, where two hyphens or `>` would end the comment."""
    return " ".join(text.split()).replace("--", "-\u2010").replace(">", "\u203a")
