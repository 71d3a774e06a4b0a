"""The ranking of several tables' recommendations as Markdown, from its document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from reconciler.format import cpu, duration, plural
from reconciler.render.markdown_text import code_span, escaped, table
from reconciler.render.recommend_tables_text import budget_text, per_byte
from reconciler.render.recommend_text import priced

Document = Mapping[str, Any]
MAX_CHARACTERS = 60_000
LIMITS = (100, 50, 20, 5)
"""Rows of each list that are tried in turn; five always fit, because cells are clipped."""


def render(body: Document) -> str:
    """Return Markdown of at most MAX_CHARACTERS; the marker on its first line lets CI update one
    comment. Lists that do not fit are cut, and what was cut is counted."""
    texts = (_text(body, limit) for limit in LIMITS)
    return next(text for text in texts if len(text) <= MAX_CHARACTERS)


def _text(body: Document, limit: int) -> str:
    better = [item for item in body["items"] if item["rank"] is not None]
    kept = [item for item in body["items"] if item["rank"] is None]
    lines = ["<!-- layoutctl:recommend -->", f"### {_headline(body, better)}"]
    if better:
        seconds = better[0]["recommendation"]["objective"]["horizonSeconds"]
        lines += [
            "",
            _ranked(better, limit),
            "",
            f"Ranked by net saving over {duration(seconds)} per byte rewritten.",
        ]
    waiting = [[code_span(item["table"]), escaped(item["waits"])] for item in better]
    waiting = [row for row, item in zip(waiting, better, strict=True) if item["waits"]]
    lines += _listed("Beyond the budget", waiting, limit)
    lines += _listed(
        "Keep the present layout",
        [[code_span(it["table"]), escaped(it["recommendation"]["keep"])] for it in kept],
        limit,
    )
    lines += _listed(
        "Not recommended",
        [[code_span(it["table"]), escaped(it["error"])] for it in body["errors"]],
        limit,
    )
    lines += _listed(
        "Budgets",
        [
            [f"{escaped(it['policy'])}, {escaped(it['name'])}", escaped(budget_text(it))]
            for it in body["budgets"]
        ],
        limit,
    )
    return "\n".join(lines) + "\n"


def _headline(body: Document, better: Sequence[Document]) -> str:
    total = len(body["items"]) + len(body["errors"])
    if not better:
        return f"{plural(total, 'table')}, none with a better layout"
    fits = sum(item["fits"] for item in better)
    return f"{plural(total, 'table')}, {len(better)} with a better layout, {fits} within the budget"


def _ranked(better: Sequence[Document], limit: int) -> str:
    heads = (
        "#", "table", "declare", "read", "net saving", "rewritten", "CPU", "per byte", "budget",
    )  # fmt: skip
    rows = [
        (
            str(item["rank"]),
            code_span(item["table"]),
            escaped(item["what"]),
            f"{0 - item['recommendation']['savesPercent']:+.0f} %",
            priced(item, "netSaving", item["netSavingBytes"]),
            priced(item, "rewrite", item["rewriteBytes"]),
            cpu(item["cpuSeconds"]),
            per_byte(item),
            "fits" if item["fits"] else "waits",
        )
        for item in better
    ]
    return table(heads, "rllrrrrrl", rows, limit)


def _listed(title: str, rows: Sequence[Sequence[str]], limit: int) -> list[str]:
    if not rows:
        return []
    lines = [f"- {name}: {text}" for name, text in rows[:limit]]
    more = len(rows) - limit
    return ["", f"**{title}**", "", *lines, *([f"- {more:,} more"] if more > 0 else [])]
