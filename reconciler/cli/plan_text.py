"""A plan as text for a terminal: what would change, what it saves, who loses, what was refused.

Reads only the plan document (core.plan.Plan.document), so that a plan file printed months later
shows what its reviewer saw. Shapes come without literals unless the plan was made with them.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from reconciler.core.format import count, cpu, duration, iec, percent

INDENT = "  "
WIDTH = 100


def render_plan(
    document: Mapping[str, Any],
    *,
    preview: bool = True,
    approval: str = "",
    verbose: bool = False,
    ending: bool = True,
) -> str:
    """The whole text, without a trailing newline. approval: a line about who may approve.

    ending: with how long it is valid and the next commands.
    """
    evidence = document["evidence"]
    name = ".".join([document["catalog"], *document["table"]])
    sections = [
        _headline(document, name, preview),
        _actions(document),
        _totals(evidence) if document["actions"] else "",
        _shapes(evidence, verbose),
        _cost(document, evidence) if document["actions"] else "",
        _rejected(evidence, verbose),
        _not_acted_on(evidence),
        _ending(document, name, approval) if ending else "",
    ]
    return "\n\n".join(section for section in sections if section)


def _headline(document: Mapping[str, Any], name: str, preview: bool) -> str:
    title = f"plan {document['planId']}" if document["actions"] else "nothing to do"
    kind = " (preview)" if preview and document["actions"] else ""
    lines = fit([f"{name}      {title}{kind}", f"policy {document['policy']}"], "      ")
    work = textwrap.wrap(_workload_line(document["evidence"]), WIDTH, subsequent_indent="  ")
    return "\n".join([*lines, *work])


def fit(parts: Sequence[str], gap: str, width: int = WIDTH) -> list[str]:
    """The parts on one line when they fit, else one a line."""
    line = gap.join(parts)
    return [line] if len(line) <= width else list(parts)


def _workload_line(evidence: Mapping[str, Any]) -> str:
    work = evidence.get("workload")
    if not work or not work["queries"]:
        return "Workload: none imported; only what the policy declares is planned"
    days = max(1, round((work["untilMs"] - work["sinceMs"]) / 86_400_000))
    parts = [
        f"Workload: {count(work['queries'])} queries",
        f"{days} {'day' if days == 1 else 'days'} to {work['until']}",
        f"{work['shapes']} {'shape' if work['shapes'] == 1 else 'shapes'}",
        f"explains {work['coveragePercent']} % of {work['coverageBasis']}",
    ]
    skipped = f"; {count(work['skipped'])} skipped" if work.get("skipped") else ""
    stale = f"; {work['warning']}" if work.get("warning") else ""
    return ", ".join(parts) + skipped + stale


def _actions(document: Mapping[str, Any]) -> str:
    """Metadata changes as sentences, rewrites in columns below them."""
    items = document["actions"]
    metadata = [item for item in items if "filesIn" not in item["predicted"]]
    rows = [_action_row(item) for item in items if "filesIn" in item["predicted"]]
    lines = [f"{INDENT}~ {_label(item)}   metadata only" for item in metadata]
    return "\n".join(lines + (align(rows, "l" + "r" * 6, indent=INDENT, gap="  ") if rows else []))


def _label(item: Mapping[str, Any]) -> str:
    return str(item["predicted"].get("label", item["type"]))


def _action_row(item: Mapping[str, Any]) -> list[str]:
    told = item["predicted"]
    return [
        f"~ {clip(_label(item), 46)}",
        f"{count(told['filesIn'])} files",
        iec(told["bytesIn"]),
        f"-> {count(told['filesOut'])} {'file' if told['filesOut'] == 1 else 'files'}",
        f"{count(told['groups'])} {'group' if told['groups'] == 1 else 'groups'}",
        cpu(told["cpuMillis"] / 1000),
        duration(told["millis"] / 1000),
    ]


def _totals(evidence: Mapping[str, Any]) -> str:
    rows = [["", "NOW", "AFTER", "80 % INTERVAL", "OBJECTIVE"]]
    for line in evidence.get("totals", ()):
        rows.append(
            [line["name"], *(_value(line, key) for key in ("now", "after")), _interval(line),
             line.get("objective", "-") + ("   " + line["note"] if line.get("note") else "")]
        )  # fmt: skip
    return "\n".join(align(rows, "lrrrl", indent=INDENT, gap="   "))


def _value(line: Mapping[str, Any], key: str) -> str:
    value = line.get(key)
    if value is None:
        return "-"
    if line["unit"] == "bytes":
        return iec(value)
    if line["unit"] == "milli":
        return f"{value / 1000:.2f}"
    if line["unit"] == "percent":
        return f"{value} %"
    return count(value)


def _interval(line: Mapping[str, Any]) -> str:
    if line.get("low") is None or line.get("high") is None:
        return ""
    low, high = _value(line, "low"), _value(line, "high")
    if low == high:
        return low
    if line["unit"] == "bytes" and low.split()[-1] == high.split()[-1]:
        low = low.split()[0]
    return f"{low} - {high}"


def _shapes(evidence: Mapping[str, Any], verbose: bool) -> str:
    shapes = evidence.get("shapes") or []
    if not shapes:
        return ""
    shown = list(shapes) if verbose else list(shapes[:6])
    rows = [["WHO PAYS TODAY", "QUERIES", "READ NOW", "AFTER", "FILES/QUERY", ""]]
    for shape in shown:
        changed = shape.get("bytesAfter") is not None
        rows.append([
            INDENT + clip(shape["text"], 44),
            count(shape["queries"]),
            iec(shape["bytesNow"]),
            iec(shape["bytesAfter"]) if changed else "-",
            _files_per_query(shape),
            "worse" if shape.get("worse") else "",
        ])  # fmt: skip
    rest = list(shapes[len(shown) :])
    if rest:
        after = [shape.get("bytesAfter") for shape in rest]
        rows.append([
            f"{INDENT}{len(rest)} other shapes",
            count(sum(shape["queries"] for shape in rest)),
            iec(sum(shape["bytesNow"] for shape in rest)),
            iec(sum(after)) if None not in after else "-",
            "",
            "some worse" if any(shape.get("worse") for shape in rest) else "",
        ])  # fmt: skip
    return "\n".join(align(rows, "lrrrrl"))


def _files_per_query(shape: Mapping[str, Any]) -> str:
    now = count(round(shape["filesNowMilli"] / 1000))
    if shape.get("filesAfterMilli") is None:
        return now
    return f"{now} -> {count(round(shape['filesAfterMilli'] / 1000))}"


def _cost(document: Mapping[str, Any], evidence: Mapping[str, Any]) -> str:
    cost = evidence.get("cost") or {}
    rewritten = sum(item["predicted"].get("bytesIn", 0) for item in document["actions"])
    if not rewritten:
        return "Cost   metadata only, no data file is rewritten"
    total = cost.get("tableBytes") or 0
    share = f" ({percent(rewritten / total, 1)} of the table)" if total else ""
    lines = [
        f"Cost   {iec(rewritten)} rewritten{share}, {cpu(cost['cpuMillis'] / 1000)}, "
        f"about {duration(cost['millis'] / 1000)} on {cost['cores']} "
        f"{'core' if cost['cores'] == 1 else 'cores'}"
    ]
    payback = cost.get("paybackMillis")
    ratio = f"       1 byte rewritten = {cost['rhoMilli'] / 1000:.1f} read ({cost['rhoLabel']})"
    if payback is not None:
        ratio += f"; pays back in about {duration(payback / 1000)}, a file opened counted as 1 MiB"
    else:
        ratio += "; no payback claimed"
    lines.append(ratio)
    lines += [f"Budget {line}" for line in evidence.get("budgets", ())]
    if evidence.get("trust"):
        lines.append(f"Trust  {evidence['trust']}")
    return "\n".join(lines)


def _rejected(evidence: Mapping[str, Any], verbose: bool) -> str:
    items = evidence.get("rejected") or []
    if not items:
        return ""
    shown = items if verbose else items[:6]
    rows = [[INDENT + clip(item["what"], 42), clip(item["why"], 110)] for item in shown]
    lines = ["CONSIDERED, NOT DONE", *wrap_last(rows)]
    if len(items) > len(shown):
        lines.append(f"{INDENT}{len(items) - len(shown)} more with -v")
    return "\n".join(lines)


def _not_acted_on(evidence: Mapping[str, Any]) -> str:
    fields = evidence.get("notActedOn") or []
    return f"NOT ACTED ON YET BY THIS VERSION       {', '.join(fields)}" if fields else ""


def _ending(document: Mapping[str, Any], name: str, approval: str) -> str:
    if not document["actions"]:
        why = document["evidence"].get("emptyBecause")
        return why or "Nothing is above threshold."
    inputs = sum(len(item.get("inputs", ())) for item in document["actions"])
    valid = f"Valid while its {count(inputs)} input files are live; appends do not void it."
    if not inputs:
        valid = "Valid until someone else changes these properties."
    lines = [valid + (f" Approval: {approval}." if approval else "")]
    save, run = f"layoutctl plan {name} --out plan.json", "layoutctl apply plan.json"
    lines.append(f"{INDENT}save:  {save}      run:  {run}")
    return "\n".join(lines)


def clip(text: str, width: int) -> str:
    """The text in at most `width` characters, an ellipsis where it was cut."""
    return text if len(text) <= width else text[: width - 1] + "…"


def align(
    rows: Sequence[Sequence[str]], sides: str, *, indent: str = "", gap: str = "  "
) -> list[str]:
    """Rows as aligned columns; sides: one of l, r per column. Short rows leave the rest empty."""
    columns = len(sides)
    full = [list(row) + [""] * (columns - len(row)) for row in rows]
    # A short row is a remark: it must not widen the columns of the numbers below it.
    measured = [row for row, given in zip(full, rows, strict=True) if len(given) == columns] or full
    widths = [max(len(row[column]) for row in measured) for column in range(columns)]
    widths[0] = max(len(row[0]) for row in full)
    lines = []
    for row in full:
        cells = [
            cell.ljust(width) if side == "l" else cell.rjust(width)
            for cell, width, side in zip(row, widths, sides, strict=True)
        ]
        lines.append((indent + gap.join(cells)).rstrip())
    return lines


def wrap_last(rows: Sequence[tuple[str, str] | list[str]], width: int = WIDTH) -> list[str]:
    """Two columns; the second is wrapped at `width` and continued below itself."""
    left = max(len(row[0]) for row in rows)
    lines = []
    for first, second in rows:
        pieces = textwrap.wrap(second, max(20, width - left - 2)) or [""]
        lines.append(f"{first.ljust(left)}  {pieces[0]}")
        lines += [" " * (left + 2) + piece for piece in pieces[1:]]
    return lines
