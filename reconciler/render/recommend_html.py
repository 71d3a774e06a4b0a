"""A recommendation as a self-contained HTML page with plots, from its document."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from reconciler.format import count, duration, iec
from reconciler.render import plots
from reconciler.render.html import Section, page, table
from reconciler.render.recommend_text import costs_more, differs, priced, saves, simulated
from reconciler.render.report_model import QueryBytes, ShapeBytes

Document = Mapping[str, Any]
NAMED_LAYOUTS = 5
"""Layouts with a name in the plot; the table below it has all."""


def render(body: Document) -> str:
    """Return the page. Raises UserError if the extra `report` is not installed."""
    sections = [_layouts(body), _shapes(body), _evidence(body), _not_chosen(body)]
    shown = [section for section in sections if section is not None]
    return page(f"Recommendation for {body['table']}", body["time"], _facts(body), shown, "")


def _facts(body: Document) -> list[tuple[str, str]]:
    work, sample, costs = body["workload"], body["sample"], body["objective"]
    found = [
        ("Queries", f"{count(work['queries'])} in {work['days']:g} days to {work['until'][:10]}"),
        ("Sample", f"{count(sample['rows'])} rows, {iec(sample['bytesRead'])} read now, "
                   f"{sample['rowsPerSmallestRowGroup']:.0f} rows per smallest row group"),
        ("Costs", f"{costs['costs']}; rewriting 1 byte counts as reading {costs['rho']:g}; over "
                  f"{duration(costs['horizonSeconds'])}"),
        ("Method", f"{body['method']}: {simulated(body)}"),
    ]  # fmt: skip
    return found + [("Warning", warning) for warning in body["warnings"]]


def _layouts(body: Document) -> Section:
    layouts = body["layouts"]
    svg = plots.reading_and_rewriting(
        [(point["rewriteBytes"], point["readingCostBytes"]) for point in body["front"]],
        [
            (item["name"], item["rewrite"]["bytes"], item["readingCostBytes"])
            for item in layouts[:NAMED_LAYOUTS]
        ],
    )
    rows = [
        [f"{item['name']}: {item['what']}",
         priced(item, "readAhead", item["readAhead"]["bytes"]), _interval(item),
         count(item["files"]), priced(item, "rewrite", item["rewrite"]["bytes"]),
         iec(item["totalCostBytes"])]
        for item in layouts
    ]  # fmt: skip
    heads = ["layout", "read over the horizon", "interval", "files", "rewritten", "cost"]
    return (
        _finding(body),
        "What does each layout read, and what does it cost?",
        svg,
        table(heads, rows),
    )


def _finding(body: Document) -> str:
    if body["chosen"] is None:
        return f"Keep what you have: {body['keep']}"
    chosen = next(item for item in body["layouts"] if item["name"] == body["chosen"])
    return f"{chosen['what']}: {saves(body)} read"


def _interval(item: Mapping[str, Any]) -> str:
    read = item["readAhead"]
    return "-" if item["name"] == "today" else f"{iec(read['low'])} - {iec(read['high'])}"


def _shapes(body: Document) -> Section | None:
    """Return what each shape reads before and after, None if nothing is to be declared."""
    if not body["shapes"]:
        return None
    shapes = tuple(
        ShapeBytes(
            item["text"], float(item["queries"]), float(item["bytesNow"]), float(item["bytesAfter"])
        )
        for item in body["shapes"]
    )
    worse = sum(shape.after > 1.01 * shape.before for shape in shapes)
    rows = [
        [
            str(number),
            shape.text,
            count(round(shape.executions)),
            iec(shape.before),
            iec(shape.after),
        ]
        for number, shape in enumerate(shapes, start=1)
    ]
    return (
        "No query loses" if not worse else f"{worse} of {len(shapes)} shapes of queries lose",
        "Which queries gain, and which lose?",
        plots.query_bytes(QueryBytes(shapes, "predicted")),
        table(["", "query", "executions", "now", "after"], rows, text=(0, 1)),
    )


def _evidence(body: Document) -> Section | None:
    if not body["sensitivity"]:
        return None
    rows = [[item["evidence"], item["layout"], costs_more(item)] for item in body["sensitivity"]]
    others = sum(differs(item) for item in body["sensitivity"])
    return (
        "Other evidence would choose the same"
        if not others
        else f"Other evidence would choose another layout in {others} of {len(rows)} cases",
        "How does the choice change with the window and the sample?",
        "",
        table(["evidence", "choice", "by all evidence, it"], rows, text=(0, 1, 2)),
    )


def _not_chosen(body: Document) -> Section | None:
    rows = [[item["what"], item["why"]] for item in (*body["fell"], *body["refused"])]
    if not rows:
        return None
    return (
        f"{len(rows)} other layouts were considered", "Why were they not chosen?", "",
        table(["layout", "why not"], rows, text=(0, 1)),
    )  # fmt: skip
