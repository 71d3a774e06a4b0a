"""Renders plans as Markdown for pull requests: one comment that CI finds by its first line and
replaces.

Reads only plan documents (plan.plan.Plan.document). The text stays below GitHub's limit for a
comment: tables are cut and the omitted rows counted; the headline is never cut.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from reconciler.format import count, cpu, iec, plural
from reconciler.plan.prediction import predictions_of, total
from reconciler.plan.totals import Quantity, total_of
from reconciler.render.against import Against, Change
from reconciler.render.markdown_sections import (
    body,
    details,
    headline,
    identity,
    labels,
    payback,
    rewritten_bytes,
)
from reconciler.render.markdown_text import (
    clipped,
    comment_text,
    escaped,
    one_line,
    summary_text,
    table,
)

MAX_CHARACTERS = 60_000
_ROW_LIMITS = (10_000, 300, 100, 40, 15, 5)
_TABLES = (500, 200, 80, 25)

Document = Mapping[str, Any]


def render_plan(document: Document, approval: str = "", against: Against | None = None) -> str:
    """Return one plan. document: with its `digest`, and with the lines of its budgets as evidence;
    approval: who may approve it, one sentence; against: how it differs from the base's plan."""
    for limit in _ROW_LIMITS:
        text = _plan(document, approval, against, limit)
        if len(text) <= MAX_CHARACTERS:
            return text
    return _plan(document, approval, against, 1, with_details=False)


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
    approved_by = dict(zip((document["planId"] for document in documents), approvals, strict=False))
    if len(documents) == 1 and not failed and not (against and against.elsewhere(documents)):
        return render_plan(documents[0], approved_by.get(documents[0]["planId"], ""), against)
    busy = sorted(
        (document for document in documents if document["actions"]),
        key=lambda document: (-rewritten_bytes(document), table_name(document)),
    )
    many = Many(busy, approved_by, len(documents) - len(busy), failed, against)
    for limit, tables in zip(_ROW_LIMITS[1:], (*_TABLES, 5), strict=True):
        text = _plans(many, limit, tables)
        if len(text) <= MAX_CHARACTERS:
            return text
    return _plans(many, 1, 5, with_details=False)


def table_name(document: Document) -> str:
    return ".".join([document["catalog"], *document["table"]])


def _plan(
    document: Document,
    approval: str,
    against: Against | None,
    limit: int,
    with_details: bool = True,
) -> str:
    name, digest = table_name(document), document.get("digest", "")
    marker = (
        f"<!-- layoutctl:plan {comment_text(clipped(name))} {document['planId']} {digest}".rstrip()
    )
    parts = [f"{marker} -->", f"### {escaped(name)}: {headline(document)}"]
    if against is not None:
        parts.append(f"**Against the base:** {_AGAINST[against.of(document)]}.")
    parts += body(document, limit)
    if with_details:
        parts += details(document, limit)
    parts += [identity(document, approval), _ids([document] if document["actions"] else [], 1)]
    return "\n\n".join(part for part in parts if part) + "\n"


@dataclass(frozen=True, slots=True)
class Many:
    """The plans of many tables."""

    busy: Sequence[Document]
    """Plans with work, the largest first."""
    approvals: Mapping[str, str]
    """How each is approved, by plan id."""
    converged: int
    """Number of tables without work."""
    failed: Sequence[tuple[str, str]]
    """(table, message) of tables that could not be planned."""
    against: Against | None
    """How the plans differ from those of the base; None without one."""


def _plans(many: Many, limit: int, tables: int, with_details: bool = True) -> str:
    busy, converged, failed, against = many.busy, many.converged, many.failed, many.against
    changed = f"{plural(len(busy), 'table')} to change"
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
        parts.append(table(heads, sides, rows, tables))
        parts.append(_ids(busy, len(busy) if with_details else tables))
    if failed:
        rows = [[escaped(name), escaped(message)] for name, message in failed]
        parts.append(table(("Not planned", "Why"), "ll", rows, tables))
    if with_details:
        parts += [
            _folded(document, many.approvals.get(document["planId"], ""), limit)
            for document in busy[:tables]
        ]
    return "\n\n".join(parts) + "\n"


def _folded(document: Document, approval: str, limit: int) -> str:
    parts = [*body(document, limit), *details(document, limit), identity(document, approval)]
    inside = "\n\n".join(part for part in parts if part)
    title = f"{table_name(document)}: {headline(document)}"
    return f"<details><summary>{summary_text(title)}</summary>\n\n{inside}\n\n</details>"


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
    rows = [[escaped(name), iec(size) if size else "metadata only"] for name, size in gone]
    return text + "\n\n" + table(("Gone: only the base plans it", "Rewrite"), "lr", rows, limit)


def _sums(busy: Sequence[Document], tables: int) -> str:
    """Return the totals over all plans. Reads are summed where recorded queries give them."""
    predicted = total(predictions_of(item for document in busy for item in document["actions"]))
    reads = (total_of(document["evidence"], Quantity.READ) for document in busy)
    known = [(line.now, line.after) for line in reads if line and line.after is not None]
    read = "-"
    if known:
        read = " -> ".join(iec(sum(values)) for values in zip(*known, strict=True))
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
    return table(heads, "rrrrr", [row], 1)


def _ids(busy: Sequence[Document], limit: int) -> str:
    """Return the plan ids as one block that can be pasted into a policy."""
    if not busy:
        return ""
    shown = [
        f"- {document['planId']}  # {one_line(table_name(document))}" for document in busy[:limit]
    ]
    block = "\n".join(("```yaml", "approvedPlans:", *shown, "```"))
    text = f"To approve, put under `spec.approval` of the policy:\n\n{block}"
    if len(busy) > limit:
        text += f"\n\n{plural(len(busy) - limit, 'more row')} cut."
    return text


def _table_row(document: Document, against: Against | None) -> list[str]:
    cost = document["evidence"].get("cost") or {}
    read = total_of(document["evidence"], Quantity.READ)
    marked = [] if against is None else [against.of(document).value]
    return [
        escaped(table_name(document)),
        *marked,
        escaped("; ".join(labels(document))),
        iec(rewritten_bytes(document)) if rewritten_bytes(document) else "metadata only",
        cpu((cost.get("cpuMillis") or 0) / 1000),
        (read.note if read else "") or "-",
        payback(cost),
        f"`{document['planId']}`",
    ]
