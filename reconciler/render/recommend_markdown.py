"""A recommendation as the text of a pull request, from its document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from reconciler.format import count, cpu, duration, iec
from reconciler.render.markdown_text import code_span, comment_text, escaped
from reconciler.render.recommend_text import costs_more, priced, saves

Document = Mapping[str, Any]
MAX_CHARACTERS = 60_000
MOST_ENTRIES = 200


def render(body: Document) -> str:
    """Return Markdown of at most MAX_CHARACTERS; the marker lets CI update one comment."""
    name = comment_text(body["table"])
    lines = [f"<!-- layoutctl:recommend {name} -->", f"### {_headline(body)}", ""]
    lines += _layouts(body)
    lines += _worse(body)
    lines += _warnings(body)
    lines += _evidence(body)
    lines += _sensitivity(body)
    lines += _folded("Why the others were not chosen", body["fell"])
    lines += _folded("Not simulated", body["refused"])
    text = "\n".join(lines) + "\n"
    return text if len(text) <= MAX_CHARACTERS else text[: MAX_CHARACTERS - 2] + "…\n"


def _headline(body: Document) -> str:
    if body["chosen"] is None:
        return f"{code_span(body['table'])}: keep the present layout"
    chosen = next(item for item in body["layouts"] if item["name"] == body["chosen"])
    return f"{code_span(body['table'])}: {escaped(chosen['what'])}, {saves(body)} read"


def _layouts(body: Document) -> list[str]:
    lines = [f"Keep what you have: {body['keep']}.", ""] if body["keep"] else []
    ahead = duration(body["objective"]["horizonSeconds"])
    lines += [
        f"| layout | read in the next {ahead} | interval | files | row groups | rewritten | CPU |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    for item in body["layouts"]:
        read, today = item["readAhead"], item["name"] == "today"
        span = "-" if today else f"{iec(read['low'])} - {iec(read['high'])}"
        groups = "-" if item["rowGroups"] is None else count(item["rowGroups"])
        mark = "**" if item["name"] == body["chosen"] else ""
        lines.append(
            f"| {mark}{item['name']}: {escaped(item['what'])}{mark} | "
            f"{priced(item, 'readAhead', read['bytes'])} "
            f"| {span} "
            f"| {count(item['files'])} | {groups} "
            f"| {priced(item, 'rewrite', item['rewrite']['bytes'])} "
            f"| {cpu(item['rewrite']['cpuSeconds'])} |"
        )
    return [*lines, ""]


def _worse(body: Document) -> list[str]:
    if body["chosen"] is None:
        return []
    chosen = next(item for item in body["layouts"] if item["name"] == body["chosen"])
    if not chosen["worse"]:
        return ["No recorded shape reads 1 % more than today.", ""]
    return [
        "Slower afterwards:",
        "",
        *(
            f"- {code_span(item['text'])}: {count(item['queries'])} queries, "
            f"{iec(item['bytesNow'])} to {iec(item['bytesAfter'])}"
            for item in chosen["worse"]
        ),
        "",
    ]


def _warnings(body: Document) -> list[str]:
    if not body["warnings"]:
        return []
    return ["Before you merge this:", "", *(f"- {warning}" for warning in body["warnings"]), ""]


def _evidence(body: Document) -> list[str]:
    work, sample, costs = body["workload"], body["sample"], body["objective"]
    return [
        f"{count(work['queries'])} queries of {work['days']:g} days; {count(sample['rows'])} "
        f"sampled rows ({sample['rowsPerSmallestRowGroup']:.0f} per smallest row group); costs "
        f"`{costs['costs']}`, rewriting 1 byte counts as reading {costs['rho']:g}, over "
        f"{duration(costs['horizonSeconds'])}. Predicted from the sample; `layoutctl plan` shows "
        "the work."
    ]


def _sensitivity(body: Document) -> list[str]:
    if not body["sensitivity"]:
        return []
    return [
        "",
        "With other evidence, the choice would be:",
        "",
        *(
            f"- by {item['evidence']}: {escaped(item['layout'])}, which {costs_more(item)}"
            for item in body["sensitivity"]
        ),
    ]


def _folded(title: str, entries: Sequence[Mapping[str, str]]) -> list[str]:
    if not entries:
        return []
    lines = [
        f"- {escaped(item['what'])}: {escaped(item['why'])}" for item in entries[:MOST_ENTRIES]
    ]
    return [
        "",
        f"<details><summary>{title} ({len(entries)})</summary>",
        "",
        *lines,
        "",
        "</details>",
    ]
