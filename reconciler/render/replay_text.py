"""A replay as a table for people, and as a document."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from reconciler.api.version import API_VERSION
from reconciler.format import duration, iec, plural, utc
from reconciler.plan.money import cost_of, money_text, reading, rewriting
from reconciler.render.terminal import tabulate, wrapped

if TYPE_CHECKING:
    from reconciler.api.prices import Prices
    from reconciler.replay.result import Replayed, Result

EARLY_BATCHES = 3
"""Batches before which a ratio of costs so far says little: the first decision has no past."""


def render(found: Replayed, width: int, prices: Prices | None = None) -> str:
    """Return the costs of each policy, and what they are based on."""
    head = ["POLICY", "READ", "READ + OPEN", "REWRITTEN", "COST", "VS NONE", "WORST", "FILES",
            "REWRITES"]  # fmt: skip
    rows = [head, *(_row(result) for result in found.results)]
    if prices is not None:
        sums = [sum(_money(prices, one, found.open_bytes)) for one in found.results]
        money = [money_text(amount, prices.currency) for amount in sums]
        rows = [[*row, text] for row, text in zip(rows, ["MONEY", *money], strict=True)]
    batches, asked = len(found.ends_ms), sum(found.queries)
    every = (found.ends_ms[-1] - found.since_ms) / max(batches, 1) / 1000
    title = (
        f"{found.table}: {plural(asked, 'query', 'queries')} of {utc(found.since_ms)} to "
        f"{utc(found.ends_ms[-1])} in {plural(batches, 'batch', 'batches')} of {duration(every)}, "
        f"a decision after each; {plural(found.files_before, 'file')} at the start, "
        f"{found.files_arrived:,} arrived later"
    )
    rho = found.results[0].rho
    legend = (
        f"COST = READ + OPEN + {rho:.2f} x REWRITTEN, in bytes of reading; opening a file counts "
        f"{iec(found.open_bytes)}. VS NONE: the cost beside that of doing nothing; WORST: the "
        "greatest such ratio of the costs so far after any batch from the fourth on. Plans run as "
        "soon as budgets allow, without waiting for an approval. The table was not changed."
    )
    if prices is not None:
        legend += " MONEY: of reading, opening and rewriting, by the prices of the catalog."
    lines = [
        *wrapped(title, width),
        "",
        *tabulate(rows, "l" + "r" * (len(rows[0]) - 1), width),
        "",
        *wrapped(legend, width),
    ]
    for note in found.notes:
        lines += wrapped(f"{note}.", width, first="Note: ", indent="  ")
    return "\n".join(lines)


def _row(result: Result) -> list[str]:
    run = result.replay
    return [
        result.name, iec(float(run.read_bytes.sum())), iec(float(run.read.sum())),
        iec(float(run.rewritten_bytes.sum())), iec(float(run.cost.sum())), _ratio(run.ratio),
        _ratio(run.worst_ratio(EARLY_BATCHES)),
        f"{int(run.files[-1]):,}",
        f"{int(run.actions.sum()):,}",
    ]  # fmt: skip


def _ratio(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def _money(prices: Prices, result: Result, open_bytes: int) -> tuple[float, float]:
    """Return what reading and rewriting cost. Of the cost of reading, what is no byte read is
    openings of files."""
    run = result.replay
    size = float(run.read_bytes.sum())
    opened = (float(run.read.sum()) - size) / open_bytes if open_bytes else 0.0
    return (
        cost_of(prices, reading(size, opened)),
        cost_of(prices, rewriting(float(run.rewritten_bytes.sum()), result.rho)),
    )


def document(found: Replayed, prices: Prices | None = None) -> dict[str, Any]:
    """Return the replay with the costs of every batch, in bytes; those of all batches in money too
    if there are prices."""
    body = _document(found)
    if prices is not None:
        for one, result in zip(body["policies"], found.results, strict=True):
            read, rewritten = _money(prices, result, found.open_bytes)
            one["money"] = {
                "currency": prices.currency,
                "reading": round(read, 6),
                "rewriting": round(rewritten, 6),
            }
    return body


def _document(found: Replayed) -> dict[str, Any]:
    return {
        "apiVersion": API_VERSION,
        "kind": "TableReplay",
        "table": found.table,
        "tableUuid": found.uuid,
        "since": utc(found.since_ms),
        "until": utc(found.ends_ms[-1]),
        "openBytes": found.open_bytes,
        "filesAtStart": found.files_before,
        "filesArrived": found.files_arrived,
        "notes": list(found.notes),
        "policies": [_policy(found, result) for result in found.results],
    }


def _policy(found: Replayed, result: Result) -> dict[str, Any]:
    run = result.replay
    return {
        "name": result.name,
        "rho": round(result.rho, 4),
        "readBytes": _whole(run.read_bytes.sum()),
        "readCostBytes": _whole(run.read.sum()),
        "rewrittenBytes": _whole(run.rewritten_bytes.sum()),
        "costBytes": _whole(run.cost.sum()),
        "ratio": _rounded(run.ratio),
        "worstRatio": _rounded(run.worst_ratio(EARLY_BATCHES)),
        "files": int(run.files[-1]),
        "rewrites": int(run.actions.sum()),
        "batches": [
            {
                "until": utc(end),
                "queries": _whole(asked),
                "readBytes": _whole(run.read_bytes[number]),
                "readCostBytes": _whole(run.read[number]),
                "rewrittenBytes": _whole(run.rewritten_bytes[number]),
                "files": int(run.files[number]),
                "rewrites": int(run.actions[number]),
            }
            for number, (end, asked) in enumerate(zip(found.ends_ms, found.queries, strict=True))
        ],
    }


def _whole(value: float | np.floating[Any]) -> int:
    return round(float(value))
