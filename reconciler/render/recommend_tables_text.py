"""The ranking of several tables' recommendations as text for a terminal, from its document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from reconciler.format import cpu, duration, iec, part_of, plural
from reconciler.render.recommend_text import priced
from reconciler.render.terminal import blocks, commands, tabulate, wrapped

Document = Mapping[str, Any]


def render(body: Document, width: int, *, following: Sequence[str] = ()) -> str:
    """Return the text. following: commands to run next."""
    better = [item for item in body["items"] if item["rank"] is not None]
    kept = [item for item in body["items"] if item["rank"] is None]
    lines = [*_head(body, better, width), *_ranked(better, width)]
    if kept:
        rows = [[item["table"], item["recommendation"]["keep"]] for item in kept]
        lines += ["", "KEEP THE PRESENT LAYOUT", *tabulate(rows, "ll", width, indent="  ")]
    if body["errors"]:
        rows = [[item["table"], item["error"]] for item in body["errors"]]
        lines += ["", "NOT RECOMMENDED", *tabulate(rows, "ll", width, indent="  ")]
    lines += _budgets(body["budgets"], width)
    if following:
        lines += ["", *commands(following, width)]
    return "\n".join(lines)


def _head(body: Document, better: Sequence[Document], width: int) -> list[str]:
    total = len(body["items"]) + len(body["errors"])
    text = f"{plural(total, 'table')}, {len(better) or 'none'} with a better layout"
    if not better:
        return wrapped(text, width)
    fits = sum(item["fits"] for item in better)
    seconds = better[0]["recommendation"]["objective"]["horizonSeconds"]
    text += (
        f", {fits} of them within the budget; ranked by net saving over {duration(seconds)} per "
        "byte rewritten"
    )
    return wrapped(text, width)


def _ranked(better: Sequence[Document], width: int) -> list[str]:
    if not better:
        return []
    heads = ["#  TABLE", "READ", "NET SAVING", "REWRITE", "CPU", "PER BYTE", "BUDGET"]
    rows = [
        heads,
        *(
            [
                f"{item['rank']}  {item['table']}",
                _read(item["recommendation"]),
                priced(item, "netSaving", item["netSavingBytes"]),
                priced(item, "rewrite", item["rewriteBytes"]),
                cpu(item["cpuSeconds"]),
                per_byte(item),
                "fits" if item["fits"] else "waits",
            ]
            for item in better
        ),
    ]
    first, *others = blocks(rows, "lrrrrrl", width)
    lines = ["", *first]
    for item, entry in zip(better, others, strict=True):
        lines += entry
        lines += wrapped(f"declare: {item['what']}", width, first="   ", indent="     ")
        if item["waits"]:
            lines += wrapped(f"waits: {item['waits']}", width, first="   ", indent="     ")
    return lines


def _read(recommendation: Document) -> str:
    return f"{0 - recommendation['savesPercent']:+.0f} %"


def per_byte(item: Document) -> str:
    """Return the net saving per byte rewritten; "-" if nothing has to be rewritten."""
    found = item["savingPerByte"]
    return "-" if found is None else f"{found:,.1f}x"


def _budgets(budgets: Sequence[Document], width: int) -> list[str]:
    if not budgets:
        return []
    lines = ["", "BUDGETS"]
    for budget in budgets:
        text = f"{budget['policy']}, {budget['name']}: {budget_text(budget)}"
        lines += wrapped(text, width, first="  ", indent="    ")
    return lines


def budget_text(budget: Document) -> str:
    """Return what the tables that fit use of what is left."""
    if budget["error"]:
        return f"{budget['error']}; it allows nothing"
    parts = []
    if budget["maxRewriteBytes"] is not None:
        used = part_of(iec(budget["plannedBytes"]), iec(budget["leftBytes"]))
        parts.append(f"{used} left (limit {iec(budget['maxRewriteBytes'])})")
    if budget["maxCpuSeconds"] is not None:
        used = part_of(cpu(budget["plannedCpuSeconds"]), cpu(budget["leftCpuSeconds"]))
        parts.append(f"{used} left (limit {cpu(budget['maxCpuSeconds'])})")
    return "uses " + ", ".join(parts)
