"""Renders the text of `layoutctl explain` from the document that `-o json` prints. Decides
nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from reconciler.format import count, iec, plural
from reconciler.plan.money import beside, money_text, plan_money_text
from reconciler.plan.rejected import merged
from reconciler.render.modes_text import modes_section
from reconciler.render.plan_text import opening_price
from reconciler.render.terminal import commands, flow, tabulate, wrapped

MOST_FILES = 12
Document = Mapping[str, Any]

MOST = 12
INDENT = "  "


def render(
    body: Document, width: int, *, show_literals: bool = False, verbose: bool = False
) -> str:
    """Return the requested part: a file, a query or shapes; by default the candidates."""
    files, parts = body["dataFiles"], []
    if "file" in body:
        parts.append(render_file(body["file"], width))
    if "query" in body:
        scans = (
            render_scan(
                body["table"], scan, files, width, show_literals=show_literals, verbose=verbose
            )
            for scan in body["query"]
        )
        parts.append("\n\n".join(scans))
        if body["shapes"]:
            parts += [
                "\nRECORDED QUERIES OF THIS SHAPE",
                render_shapes(body["shapes"], files, width),
            ]
    elif "trees" in body:
        shown = [render_tree(tree, width) for tree in body["trees"]]
        parts += shown or ["No tree is planned, and none was written."]
        parts += [f"{why}." for why in body["notCut"]]
    elif "shapes" in body:
        parts.append(render_shapes(body["shapes"], files, width))
    return "\n".join(parts or [render_table(body, width)])


def render_tree(tree: Document, width: int) -> str:
    """Return the first cuts of a tree: rows for which a cut is true go to the first node below it,
    all others to the second."""
    rows = [["CUT", "LEAVES"]]
    rows += [[INDENT * node["depth"] + node["text"], count(node["leaves"])]
             for node in tree["nodes"]]  # fmt: skip
    head = f"tree {tree['tree'][:12]}, {plural(tree['leaves'], 'leaf', 'leaves')}"
    found = ["", *tabulate(rows, "lr", width, indent=INDENT)]
    if "action" in tree:
        return "\n".join([f"{tree['action']}  {head}", *found])
    outside, files = tree["filesOutside"], plural(tree["files"], "file")
    where = f"{count(outside)} of {files} outside" if outside else f"all of {files} in"
    shapes = [["WHO READS", "LEAVES/QUERY", "FILES/QUERY", "READ/QUERY"]]
    shapes += [[shape["text"], f"{shape['leavesPerQuery']:,.1f}", f"{shape['filesPerQuery']:,.1f}",
                iec(shape["bytesPerQuery"])] for shape in tree["shapes"][:MOST]]  # fmt: skip
    place = f" of {tree['partition']}" if tree["partition"] else ""
    head = f"{head}, written before{place}; {where} its leaves"
    return "\n".join([head, *found, "", *tabulate(shapes, "lrrr", width, indent=INDENT)])


def _weights(rates: Document) -> str:
    """Return which forecasts count, and how well each predicted the last weeks; "" where none was
    judged."""
    parts = []
    for what, percent, loss in (
        ("columns", "percent", "lossMilliBits"),
        ("values", "valuesPercent", "valuesLossMilliBits"),
    ):
        judged = [(one.get(percent, 0), one.get(loss, 0), one["method"])
                  for one in rates.get("forecasts") or ()]  # fmt: skip
        if any(lost > 0 for _, lost, _ in judged):
            each = [
                f"{method} {weight} % ({lost / 1000:.1f})"
                for weight, lost, method in sorted(judged, key=lambda one: (-one[0], one[1:]))
            ]
            parts.append(f"{what} {', '.join(each)}")
    if not parts:
        return ""
    return f"; weight of each forecast (and its error, in bits a query): {'; '.join(parts)}"


def render_table(body: Document, width: int) -> str:
    """Return every candidate with its numbers: those chosen and those rejected."""
    lines = [*wrapped(body["table"], width), ""]
    if body["rates"]:
        lines += [*wrapped(f"Rates: {body['rates']['text']}{_weights(body['rates'])}", width), ""]
    if body["chosen"]:
        rows = [["CHOSEN", "FILES", "COST", "SAVES", "AT LEAST", "ESTIMATE"]]
        for item in body["chosen"]:
            rows.append([
                item["label"], count(item["files"]), iec(item["costBytes"]),
                iec(item["savingBytes"]), iec(item["savingLowBytes"]), item["estimate"],
            ])  # fmt: skip
        lines += [*tabulate(rows, "lrrrrl", width, indent="  "), ""]
    else:
        lines += ["Nothing is planned.", ""]
    if body["considered"]:
        refused = [
            [line.what, f"{line.reason}: {line.why}"]
            for line in merged(_entries(body["considered"]))
        ]
        lines += [
            "CONSIDERED, NOT DONE",
            *tabulate(refused, "ll", width, indent="  ", least=36),
            "",
        ]
    if modes := modes_section(body.get("writeModes"), width):
        lines += [*modes, ""]
    unit = (
        "Cost and savings cover 7 days at the query rates of the workload's end, in bytes read; "
        f"{opening_price(body)}."
    )
    if money := body.get("money"):
        unit += f" The plan: {plan_money_text(money)}, by the prices of the catalog."
    return "\n".join([*lines, *wrapped(unit, width)])


def _entries(considered: Sequence[Document]) -> list[dict[str, Any]]:
    return [
        {
            "what": item["title"],
            "partition": item["partition"],
            "reason": item["reason"],
            "why": item["message"],
            "parts": item.get("parts"),
        }
        for item in considered
    ]


def render_file(file: Document, width: int) -> str:
    """Return the file's text, with the whole path on a line of its own, to be copied."""
    facts = ", ".join([
        iec(file["bytes"]),
        plural(file["rows"], "row"),
        f"sequence number {file['sequenceNumber']}",
        f"{plural(file['deleteFiles'], 'delete file')} on it",
    ])  # fmt: skip
    texts = [facts, *_decision(file["decision"])]
    lines = [line for text in texts for line in wrapped(text, width, first="  ", indent="    ")]
    return "\n".join([file["path"], *lines])


def _decision(decision: Document) -> list[str]:
    if decision["rewritten"]:
        others = plural(decision["files"] - 1, "other")
        return [f"rewritten: {decision['action']} with {others}; {decision['message']}"]
    if decision["reasons"]:
        return [f"not rewritten: {why['title']}: {why['message']}" for why in decision["reasons"]]
    return [
        "not rewritten: no candidate includes it; it is not small, it is in the order of its key, "
        "and no recorded query reads only a part of it"
    ]


def render_shapes(shapes: Sequence[Document], files: int, width: int) -> str:
    """Return what each shape reads now and why, and what the plan changes."""
    blocks: list[list[str]] = []
    for shape in shapes[:MOST]:
        queries = plural(shape["queries"], "query", "queries")
        texts = [
            f"{queries}, {iec(shape['bytesPerQuery'])} each now, "
            f"{iec(shape['bytesPerQueryAfter'])} after the plan",
            f"{shape['filesPerQuery']:,.1f} of {plural(files, 'file')} each now, "
            f"{shape['filesPerQueryAfter']:,.1f} after",
            _shape_money(shape),
            "the plan makes it slower" if shape["worse"] else "",
        ]
        lines = wrapped(shape["text"], width, indent="    ")
        for text in texts:
            lines += wrapped(text, width, first="  ", indent="    ") if text else []
        lines += _median(shape["medianQuery"], files, width) if "medianQuery" in shape else []
        blocks.append(lines)
    if len(shapes) > MOST:
        more = f"{plural(len(shapes) - MOST, 'more shape')}: give more of its text"
        blocks.append([more])
    gap = [""] if any("medianQuery" in shape for shape in shapes) else []
    return "\n".join(
        line for number, lines in enumerate(blocks) for line in [*(gap if number else []), *lines]
    )


def _shape_money(shape: Document) -> str:
    money = shape.get("money")
    if money is None:
        return ""
    now, after = (money_text(money[key], money["currency"]) for key in ("reading", "readingAfter"))
    return f"{now} for all of them now, {after} after"


def _median(scan: Document, files: int, width: int) -> list[str]:
    opened = f"the median query reads {count(scan['filesRead'])} of {plural(files, 'file')}"
    return [
        *wrapped(opened, width, first="  ", indent="    "),
        *_skipped(scan, width, "    "),
        *_read(scan, width, "    "),
    ]


def render_scan(
    name: str,
    scan: Document,
    files: int,
    width: int,
    *,
    show_literals: bool = False,
    verbose: bool = False,
) -> str:
    """Return one scan of the table: what is read, what each condition skips, and the files."""
    shown = scan["condition"] or "no condition that can skip files"
    exact = scan["estimate"] == "exact"
    source = "exact, from footers" if exact else "at most, from file bounds"
    lines = wrapped(f"{name}   {shown}", width, indent="    ")
    money = scan.get("money")
    cost = money_text(money["reading"], money["currency"]) if money else ""
    facts = [
        f"reads {count(scan['filesRead'])} of {plural(files, 'file')}",
        f"{beside(iec(scan['readBytes']), cost)} of the projected columns ({source})",
        f"shape {scan['shapeId']}",
    ]
    lines += [f"  {line}" for line in flow(facts, width - 2)]
    if scan["valuesUnknown"]:
        unknown = "conditions on ? are ignored: the values of a prepared statement are unknown"
        lines += wrapped(unknown, width, first="  ", indent="    ")
    skipped = _skipped(scan, width)
    lines += ["", *skipped] if skipped else []
    lines += ["", *_read(scan, width)]
    if scan["files"]:
        lines += ["", *_files(scan["files"], width, show_literals, verbose)]
    if not show_literals and scan["files"] and scan["condition"]:
        lines += commands(["--show-literals shows values and bounds"], width, title="more:")
    return "\n".join(lines)


def _skipped(scan: Document, width: int, indent: str = "") -> list[str]:
    if not scan["skipped"]:
        return [f"{indent}SKIPPED   none"] if scan["filesRead"] else []
    rows = [["SKIPPED", "FILES", "BYTES", "BECAUSE"]]
    for item in scan["skipped"]:
        size = iec(item["bytes"]) if item["condition"] else "-"
        condition = item["condition"] or "empty files"
        rows.append([f"  {condition}", count(item["files"]), size, item["because"]])
    return tabulate(rows, "lrrl", width, indent=indent)


def _read(scan: Document, width: int, indent: str = "") -> list[str]:
    if not scan["read"]:
        return [f"{indent}READ   none: no file can hold a matching row"]
    rows = [["READ BECAUSE", "FILES", "BYTES"]]
    for item in scan["read"]:
        rows.append([f"  {item['because']}", count(item["files"]), iec(item["bytes"])])
    return tabulate(rows, "lrr", width, indent=indent)


def _files(files: Sequence[Document], width: int, show_literals: bool, verbose: bool) -> list[str]:
    """Return the first files that are read, by name."""
    shown = files if verbose else files[:MOST_FILES]
    rows = [["FILE", "ROWS", "BYTES", "BOUNDS" if show_literals else ""]]
    for file in shown:
        bounds = (f"{b['column']} {b['lower']} .. {b['upper']}" for b in file.get("bounds", ()))
        rows.append([
            "  " + file["path"].rsplit("/", 1)[-1], count(file["rows"]), iec(file["bytes"]),
            ", ".join(bounds),
        ])  # fmt: skip
    lines = tabulate(rows, "lrrl", width)
    if len(files) > len(shown):
        rest = sum(file["bytes"] for file in files[len(shown) :])
        lines.append(f"  {plural(len(files) - len(shown), 'more file')}, {iec(rest)}: -v")
    return lines
