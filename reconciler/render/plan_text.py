"""Renders a plan as text for a terminal: what would change, its saving, which queries get slower,
and what was refused.

Reads only the plan document (plan.plan.Plan.document), so that a plan file printed months later
shows what its reviewer saw. Shapes have no literals unless the plan was made with them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from reconciler.advisor.advice import MISSED
from reconciler.format import count, cpu, duration, iec, percent, plural, utc
from reconciler.plan.money import beside, plan_money_text
from reconciler.plan.prediction import (
    SKIPPING,
    Prediction,
    label_of,
    predictions_of,
    saved_text,
    total,
)
from reconciler.plan.reasons import MIGRATION_REFUSED, REFUSED_FILES
from reconciler.plan.rejected import Line, merged
from reconciler.plan.totals import Quantity, harm_of, total_of
from reconciler.queries.table_view import OPEN_BYTES
from reconciler.render.modes_text import modes_section
from reconciler.render.terminal import WIDEST, clip, commands, flow, tabulate, wrapped
from reconciler.render.totals_text import total_text, without_rewrite
from reconciler.table.times import DAY_MS

INDENT = "  "
MOST_ACTIONS = 24
MOST_SHAPES = 6
MOST_REJECTED = 8
"""Maximum lines of a summary; the rest is summed up, -v shows all."""


def render_plan(
    document: Mapping[str, Any],
    *,
    width: int = WIDEST,
    preview: bool = True,
    approval: str = "",
    verbose: bool = False,
    ending: bool = True,
    following: Sequence[str] = (),
) -> str:
    """Return the whole text, without a trailing newline. approval: a line about who may approve.

    ending: print how long it is valid and the next commands. following: those commands.
    """
    evidence = document["evidence"]
    name = ".".join([document["catalog"], *document["table"]])
    sections = [
        _headline(document, name, preview, width),
        _actions(document, verbose, width),
        _totals(evidence, width) if document["actions"] else _missed(evidence, width),
        _shapes(evidence, verbose, width),
        modes_section(evidence.get("writeModes"), width),
        _cost(document, evidence, width) if document["actions"] else [],
        _rejected(evidence, verbose, width),
        _not_acted_on(evidence, width),
        _ending(document, approval, width, following) if ending else [],
    ]
    return "\n\n".join("\n".join(lines) for lines in sections if lines)


def _headline(document: Mapping[str, Any], name: str, preview: bool, width: int) -> list[str]:
    evidence, done = document["evidence"], len(document.get("done", ()))
    waits = (evidence.get("waiting") or {}).get("text", "")
    title = f"plan {document['planId']}" if document["actions"] else "nothing to do"
    kind = " (preview)" if preview and document["actions"] else ""
    if waits and not document["actions"]:
        title = "nothing to do now"
    parts = [name, f"{title}{kind}", f"policy {document['policy']}"]
    lines = flow(parts, width, "      ")
    if done:
        every = plural(done + len(document["actions"]), "action")
        left = f"Partly applied: {done} of {every} done. Figures below cover the remaining actions."
        lines += wrapped(left, width, indent=INDENT)
    if waits:
        lines += wrapped(f"Waiting: {waits}", width, indent=INDENT)
    if undo := evidence.get("undo"):
        lines += wrapped(undo_text(undo), width, indent=INDENT)
    if evidence.get("refused"):
        lines += wrapped(f"Refused: {evidence['refused']}", width, indent=INDENT)
    if evidence.get("checked"):
        lines += wrapped(f"Inputs: {evidence['checked']}", width, indent=INDENT)
    if evidence.get("unread"):
        lines += wrapped(f"Properties: {evidence['unread']}", width, indent=INDENT)
    lines += wrapped(_workload_line(evidence), width, indent=INDENT)
    rates = ((evidence.get("workload") or {}).get("rates") or {}).get("text", "")
    return lines + (wrapped(f"Rates: {rates}", width, indent=INDENT) if rates else [])


def undo_text(undo: Mapping[str, Any]) -> str:
    """`Takes plan p-... back; nothing else was committed since. Not taken back: set ...`"""
    stays = undo.get("stays") or []
    rest = f". Not taken back: {', '.join(stays)}" if stays else ""
    return f"Takes plan {undo['plan']} back; {undo['why']}{rest}"


def _workload_line(evidence: Mapping[str, Any]) -> str:
    work = evidence.get("workload")
    if not work or not work["queries"]:
        return "Workload: none imported; only what the policy declares is planned"
    days = max(1, round((work["untilMs"] - work["sinceMs"]) / DAY_MS))
    parts = [
        f"Workload: {plural(work['queries'], 'query', 'queries')}",
        f"{plural(days, 'day')} to {work['until']}",
        plural(work["shapes"], "shape"),
        f"explains {work['coveragePercent']} % of {work['coverageBasis']}",
    ]
    skipped = f"; {count(work['skipped'])} skipped" if work.get("skipped") else ""
    stale = f"; {work['warning']}" if work.get("warning") else ""
    return ", ".join(parts) + skipped + stale


def _actions(document: Mapping[str, Any], verbose: bool, width: int) -> list[str]:
    """Return metadata changes as sentences, rewrites in columns below them; beyond a screen, a
    sum."""
    items = document["actions"]
    pairs = list(zip(items, predictions_of(items), strict=True))
    metadata = [pair for pair in pairs if not pair[1].rewrites]
    rewrites = [
        (_title(item, predicted), predicted) for item, predicted in pairs if predicted.rewrites
    ]
    lines = _done(document.get("done") or (), len(items), verbose, width)
    for item, predicted in metadata:
        text = f"~ {label_of(item)}   {without_rewrite(predicted)}"
        lines += wrapped(text, width, first=INDENT, indent=INDENT * 3)
    if not rewrites:
        return lines
    shown = rewrites if verbose or len(rewrites) <= MOST_ACTIONS else rewrites[: MOST_ACTIONS - 1]
    rows = [_action_row(f"~ {label}", [predicted]) for label, predicted in shown]
    rest = [predicted for _, predicted in rewrites[len(shown) :]]
    if rest:
        rows.append(_action_row(f"~ {plural(len(rest), 'more action')} (plan -v)", rest))
    return lines + tabulate(rows, "l" + "r" * 6, width, indent=INDENT)


def _title(item: Mapping[str, Any], predicted: Prediction) -> str:
    """Return the label; an order of rows that does not pay by skipping data says what pays."""
    parts = total([predicted]).saved_by
    if parts is None or not item.get("key") or parts[0][1] == SKIPPING:
        return label_of(item)
    return f"{label_of(item)} (saves most by {parts[0][1]})"


def _done(items: Sequence[Mapping[str, Any]], left: int, verbose: bool, width: int) -> list[str]:
    """Return what was already carried out, marked; if it does not fit on a screen, the number."""
    if not items:
        return []
    if not verbose and len(items) + left > MOST_ACTIONS:
        texts = [plural(len(items), "action") + " (plan -v)"]
    else:
        texts = [label_of(item) for item in items]
    return [
        line
        for text in texts
        for line in wrapped(f"done: {text}", width, first=INDENT, indent=INDENT * 3)
    ]


def _action_row(label: str, predicted: Sequence[Prediction]) -> list[str]:
    """Return files, bytes, groups, CPU and time of one action, or of several together."""
    sums = total(predicted)
    return [
        label,
        plural(sums.files_in, "file"),
        iec(sums.bytes_in),
        f"-> {plural(sums.files_out, 'file')}",
        plural(sums.groups, "group"),
        cpu(sums.cpu_seconds),
        duration(sums.millis / 1000),
    ]


def _totals(evidence: Mapping[str, Any], width: int) -> list[str]:
    rows = [["", "NOW", "AFTER", "80 % INTERVAL", "OBJECTIVE"]]
    for line in evidence.get("totals", ()):
        note = "   ".join(str(line[key]) for key in ("objective", "note") if line.get(key))
        rows.append(
            [line["name"], *(total_text(line, key) for key in ("now", "after")), _interval(line),
             note or "-"]
        )  # fmt: skip
    return tabulate(rows, "lrrrl", width, indent=INDENT, gap="   " if width >= WIDEST else "  ")


def _missed(evidence: Mapping[str, Any], width: int) -> list[str]:
    """Return objectives that fail, or that cannot be judged, although nothing is planned."""
    rows = [
        [item["name"], item["message"]]
        for item in evidence.get("objectives", ())
        if item["state"] in MISSED
    ]
    return ["OBJECTIVES MISSED", *tabulate(rows, "ll", width, indent=INDENT)] if rows else []


def _interval(line: Mapping[str, Any]) -> str:
    if line.get("low") is None or line.get("high") is None:
        return ""
    low, high = total_text(line, "low"), total_text(line, "high")
    if low == high:
        return low
    if line["unit"] == "bytes" and low.split()[-1] == high.split()[-1]:
        low = low.split()[0]
    return f"{low} - {high}"


def _shapes(evidence: Mapping[str, Any], verbose: bool, width: int) -> list[str]:
    """Return the shapes that read most, and every one that gets worse."""
    shapes = evidence.get("shapes") or []
    if not shapes:
        return []
    shown = [
        shape
        for number, shape in enumerate(shapes)
        if verbose or number < MOST_SHAPES or shape.get("worse")
    ]
    rest = [shape for shape in shapes if not any(shape is other for other in shown)]
    heads = ("WHO PAYS TODAY", "READ NOW")
    if evidence.get("shapesWhenPlanned"):
        heads = ("WHO PAID WHEN PLANNED", "READ THEN")
    rows = [[heads[0], "QUERIES", heads[1], "AFTER", "FILES/QUERY", ""]]
    rows += [_shape_row(shape, verbose, width, files_of(evidence)) for shape in shown]
    if rest:
        after = [shape.get("bytesAfter") for shape in rest]
        rows.append([
            f"{INDENT}{plural(len(rest), 'other shape')}",
            count(sum(shape["queries"] for shape in rest)),
            iec(sum(shape["bytesNow"] for shape in rest)),
            iec(sum(after)) if None not in after else "-",
            "",
            "",
        ])  # fmt: skip
    return tabulate(rows, "lrrrrl", width)


def _shape_row(shape: Mapping[str, Any], verbose: bool, width: int, table: FilesOf) -> list[str]:
    text = shape["text"] if verbose else clip(shape["text"], width - len(INDENT))
    return [
        INDENT + text,
        count(shape["queries"]),
        iec(shape["bytesNow"]),
        iec(shape["bytesAfter"]) if shape.get("bytesAfter") is not None else "-",
        files_per_query(shape, table),
        "worse" if shape.get("worse") else "",
    ]


@dataclass(frozen=True, slots=True)
class FilesOf:
    """Data files of the table, now and after the plan; None where unknown."""

    now: int | None
    after: int | None


def files_of(evidence: Mapping[str, Any]) -> FilesOf:
    line = total_of(evidence, Quantity.FILES)
    return FilesOf(None, None) if line is None else FilesOf(line.now, line.after)


def files_per_query(shape: Mapping[str, Any], table: FilesOf) -> str:
    """`45 -> 12`; `all 45 -> all 37` where queries open every file, so that nothing is skipped."""
    now = _opened(shape["filesNowMilli"], table.now)
    if shape.get("filesAfterMilli") is None:
        return now
    return f"{now} -> {_opened(shape['filesAfterMilli'], table.after)}"


def _opened(milli: int, of: int | None) -> str:
    files = round(milli / 1000)
    return f"all {count(files)}" if of and of > 1 and files >= of else count(files)


def _cost(document: Mapping[str, Any], evidence: Mapping[str, Any], width: int) -> list[str]:
    cost = evidence.get("cost") or {}
    rewritten = total(predictions_of(document["actions"])).bytes_in
    rows = [("Cost", text) for text in _cost_texts(cost, rewritten)]
    saved_by = total(predictions_of(document["actions"])).saved_by
    if saved_by:
        rows.append(("Saves", saved_text(saved_by)))
    if money := evidence.get("money"):
        rows.append(("Money", f"{plan_money_text(money)}, by the prices of the catalog"))
    if harm := harm_of(evidence):
        rows.append(("HARM", harm_text(harm)))
    rows += [("Budget", str(line)) for line in evidence.get("budgets", ())]
    if evidence.get("engine"):
        rows.append(("Engine", str(evidence["engine"])))
    if evidence.get("statistics"):
        rows.append(("Stats", str(evidence["statistics"])))
    if rewritten and evidence.get("trust"):
        rows.append(("Trust", str(evidence["trust"])))
    lines, before = [], ""
    for title, text in rows:
        first = f"{'' if title == before else title:<7}"
        lines += wrapped(text, width, first=first, indent=" " * 7)
        before = title
    return lines


def harm_text(harm: int) -> str:
    return f"the recorded queries will cost {iec(harm)} more to read, opened files counted"


def _cost_texts(cost: Mapping[str, Any], rewritten: int) -> list[str]:
    if not rewritten:
        return ["metadata only, no data file is rewritten"]
    if not cost:
        return [f"{iec(rewritten)} rewritten"]
    table = cost.get("tableBytes") or 0
    share = f" ({percent(rewritten / table, 1)} of the table)" if table else ""
    spent = (
        f"{iec(rewritten)} rewritten{share}, {cpu(cost['cpuMillis'] / 1000)}, "
        f"about {duration(cost['millis'] / 1000)} on {plural(cost['cores'], 'core')}"
    )
    payback = cost.get("paybackMillis")
    ratio = f"rewriting 1 byte counts as reading {cost['rhoMilli'] / 1000:.1f} ({cost['rhoLabel']})"
    if payback is None:
        return [spent, f"{ratio}; no payback claimed"]
    when = f"pays back in about {duration(payback / 1000)} ({opening_price(cost)})"
    return [spent, f"{ratio}; {when}"]


def opening_price(cost: Mapping[str, Any]) -> str:
    """`opening a file counts as reading 4.0 MiB: measured on 24 files, 2026-11-20`; the preset in
    plans of older versions."""
    count, price = cost.get("openings", 0), cost.get("openBytes", OPEN_BYTES)
    day = utc(cost.get("openedMs", 0))[:10]
    source = f"measured on {plural(count, 'file')}, {day}" if count else "preset"
    return f"opening a file counts as reading {iec(price)}: {source}"


def _rejected(evidence: Mapping[str, Any], verbose: bool, width: int) -> list[str]:
    every = merged(evidence.get("rejected") or [])
    if not every:
        return []
    shown = every if verbose else every[:MOST_REJECTED]
    rows = [[line.what, line.why if verbose else _brief(line)] for line in shown]
    lines = ["CONSIDERED, NOT DONE", *tabulate(rows, "ll", width, indent=INDENT, least=36)]
    if len(every) > len(shown):
        lines.append(f"{INDENT}{len(every) - len(shown)} more: plan -v")
    return lines


def _brief(line: Line) -> str:
    """Return the reason in two lines; in full where it ends with the way round: of a declared spec
    that is not reached, and of refused files, which have long names."""
    whole = line.reason in (MIGRATION_REFUSED, REFUSED_FILES)
    return line.why if whole else clip(line.why, 160)


def _not_acted_on(evidence: Mapping[str, Any], width: int) -> list[str]:
    fields = evidence.get("notActedOn") or []
    if not fields:
        return []
    text = ", ".join(fields)
    return wrapped(text, width, first="NOT ACTED ON YET BY THIS VERSION   ", indent=INDENT)


def _ending(
    document: Mapping[str, Any], approval: str, width: int, following: Sequence[str]
) -> list[str]:
    if not document["actions"]:
        return wrapped(_empty_because(document["evidence"]), width)
    inputs = sum(len(item.get("inputs", ())) for item in document["actions"])
    live = f"its {count(inputs)} input files are" if inputs != 1 else "its one input file is"
    valid = f"Valid while {live} live; appends do not invalidate it."
    if document["evidence"].get("undo") and not total(predictions_of(document["actions"])).files_in:
        valid = "Valid until anything else is committed to the table."
    elif not inputs:
        valid = "Valid until someone else changes what it changes."
    lines = wrapped(valid + (f" Approval: {approval}." if approval else ""), width)
    return [*lines, *commands(following, width, title="", indent=" ")] if following else lines


def _empty_because(evidence: Mapping[str, Any]) -> str:
    if (evidence.get("snapshot") or {}).get("files") == 0:
        return "The table has no data files."
    return evidence.get("emptyBecause") or "Nothing is above threshold."


PAYBACK = (
    "payback = until queries have saved what the rewrite costs; it counts opened files, too, which "
    "read/day does not"
)


@dataclass(frozen=True, slots=True)
class TableLine:
    """The plan of one table in a list of many."""

    name: str
    """The table's name."""
    actions: int
    """Number of pending actions."""
    rewrite_bytes: int
    """Bytes that they rewrite."""
    cpu_millis: int
    """CPU time that they take, in milliseconds."""
    saved_per_day: float
    """Bytes of reading saved per day; negative if no query is known."""
    payback_millis: int | None
    """Milliseconds until the savings have paid for the cost; None if nothing is pending or it never
    pays back."""
    state: str
    """The state of the table, as printed."""
    cost: str = ""
    """What carrying out the actions costs in money, as printed; "" without prices."""
    saved: str = ""
    """What a day's saved reading costs in money, as printed; "" without prices."""


def render_lines(lines: Sequence[TableLine], converged: int, width: int = WIDEST) -> str:
    """Return many tables, one line each in the given order; converged ones as one count."""
    rows = [["TABLE", "ACTIONS", "REWRITE", "CPU", "READ/DAY", "PAYBACK", "STATE"]]
    rows += [_table_row(line) for line in lines]
    text = tabulate(rows, "lrrrrrl", width) if lines else []
    if len(lines) > 1:
        size = iec(sum(line.rewrite_bytes for line in lines))
        actions = plural(sum(line.actions for line in lines), "action")
        text += wrapped(f"{plural(len(lines), 'table')}, {actions}, {size} to rewrite.", width)
    if any(line.payback_millis is not None for line in lines):
        text += wrapped(PAYBACK, width)
    if converged:
        text.append(f"{plural(converged, 'table is', 'tables are')} converged.")
    return "\n".join(text)


def _table_row(line: TableLine) -> list[str]:
    return [
        line.name,
        count(line.actions),
        beside(iec(line.rewrite_bytes), line.cost) if line.actions else "-",
        cpu(line.cpu_millis / 1000) if line.actions else "-",
        beside(_less(line.saved_per_day), line.saved),
        "-" if line.payback_millis is None else duration(line.payback_millis / 1000),
        line.state,
    ]


def _less(saved: float) -> str:
    """Return the saved reading as a change."""
    return f"-{iec(saved)}" if saved > 0 else "-" if saved < 0 else iec(0)
