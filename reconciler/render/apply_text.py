"""Renders the output of `apply`: its progress, line by line, and the closing table of predicted and
actual.

Works on plain values, so that what a run prints can be rendered without running anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from reconciler.format import cpu, duration, iec, plural, printable
from reconciler.plan.money import money_text
from reconciler.queries.table_view import OPEN_BYTES
from reconciler.render.terminal import WIDEST, commands, tabulate, wrapped


@dataclass(frozen=True, slots=True)
class WindowRead:
    """What the recorded queries read before a plan, as predicted, and by the new files' bounds."""

    before: int
    """Bytes before."""
    predicted: int
    """Bytes that the plan predicted."""
    actual: int
    """Bytes afterwards."""
    complete: bool = True
    """Whether all of the plan was carried out, so that the prediction is comparable."""
    saved: int = 0
    """Cost of reading that the queries save, in bytes, opened files counted; negative if they cost
    more than before."""
    cost_before: int | None = None
    """Cost of reading and opening files before, in bytes; None for a plan of an older version."""
    cost_predicted: int | None = None
    """Cost that the plan predicted, in bytes; None for a plan of an older version."""
    cost_actual: int | None = None
    """Cost afterwards, in bytes; None for a plan of an older version."""
    open_bytes: int = OPEN_BYTES
    """Cost of opening a file by the plan, in bytes."""


@dataclass(frozen=True, slots=True)
class FileCount:
    """Numbers of data files of the table."""

    before: int
    """Before the plan."""
    predicted: int | None
    """As the plan predicted; None if it was not carried out."""
    actual: int
    """Now."""


@dataclass(frozen=True, slots=True)
class ApplySummary:
    """The result of one table's apply."""

    ran: bool
    """Whether something was executed."""
    stopped: bool
    """Whether a signal ended it early."""
    seconds: float
    """Wall-clock seconds of everything."""
    executed_seconds: float
    """Seconds of the executions, with the start of Java if one was started."""
    started: bool
    """Whether a JVM was started for it."""
    commits: int
    """Number of batches that were committed."""
    conflicts: int
    """Number of conflicts with other writers."""
    predicted_bytes: int
    """Predicted bytes to rewrite, of everything admitted."""
    actual_bytes: int
    """Bytes rewritten."""
    predicted_cpu_seconds: float
    """Predicted CPU seconds of everything admitted."""
    actual_cpu_seconds: float
    """CPU seconds used."""
    predicted_seconds: float
    """Predicted wall-clock seconds of everything admitted."""
    read: WindowRead | None
    """What the recorded queries read before and after; None without recorded queries."""
    files: FileCount | None
    """Number of data files before and after; None if it was not counted."""
    state: str
    """Converged, or another state with its reason."""
    message: str
    """Why the table is in that state."""
    following: Sequence[str] = ()
    """Commands to run next."""
    declined: bool = False
    """Whether the person who was asked did not approve, so that nothing ran."""
    money: Mapping[str, Any] | None = None
    """What carrying it out was predicted to cost and has cost (`plan.money.run_money`); None
    without prices."""


def render_event(text: str, width: int | None) -> str:
    """Return a line of progress; wrapped on a terminal, one line per event elsewhere.

    width: the terminal's, None in a pipe.
    """
    if width is None or len(text) <= width:
        return printable(text)
    return "\n".join(wrapped(text, width, indent=" " * 15))


def render_summary(summary: ApplySummary, width: int = WIDEST) -> str:
    """Return the closing lines of a table's apply, without a trailing newline."""
    if summary.ran:
        end = "Stopped after" if summary.stopped else "Done in"
        lines = wrapped(
            f"{end} {duration(summary.seconds)}. {plural(summary.commits, 'commit')}, "
            f"{plural(summary.conflicts, 'conflict')}. "
            f"Observed again: {summary.message}, {summary.state}.",
            width,
        )
        lines += _comparison(summary, width)
        lines += _harm(summary, width)
    elif summary.declined:
        lines = ["You did not approve. Nothing was done."]
    else:
        end = "Stopped before anything was done" if summary.stopped else "Nothing was done"
        lines = wrapped(f"{end}: {summary.message}. {summary.state}.", width)
    return "\n".join([*lines, *(commands(summary.following, width) if summary.following else [])])


def _comparison(summary: ApplySummary, width: int) -> list[str]:
    lost = "including the cost of conflicts" if summary.conflicts else ""
    rows = [
        ["", "PREDICTED", "ACTUAL", ""],
        ["rewritten", iec(summary.predicted_bytes), iec(summary.actual_bytes), lost],
        ["CPU", cpu(summary.predicted_cpu_seconds), cpu(summary.actual_cpu_seconds), ""],
        ["time", duration(summary.predicted_seconds), duration(summary.executed_seconds),
         "with the start of Java" if summary.started else ""],
    ]  # fmt: skip
    if summary.money is not None:
        amounts = [money_text(summary.money[k], summary.money["currency"])
                   for k in ("predicted", "actual")]  # fmt: skip
        rows.append(["in money", *amounts, "by the prices of the catalog"])
    if summary.files is not None:
        foreseen = "-" if summary.files.predicted is None else f"{summary.files.predicted:,}"
        rows.append(
            ["files", foreseen, f"{summary.files.actual:,}", f"was {summary.files.before:,}"]
        )
    if summary.read is not None:
        was = f"was {iec(summary.read.before)}; same queries, by the new files' bounds"
        predicted = iec(summary.read.predicted)
        if not summary.read.complete:
            was += f"; predicted once the whole plan is done: {predicted}"
            predicted = "-"
        rows.append(["read by queries", predicted, iec(summary.read.actual), was])
        rows += _cost_row(summary.read)
    return tabulate(rows, "lrrl", width, indent="  ")


def _cost_row(read: WindowRead) -> list[list[str]]:
    if read.cost_actual is None:
        return []
    predicted = iec(read.cost_predicted) if read.complete else "-"
    was = f"was {iec(read.cost_before)}; opening a file counts as reading {iec(read.open_bytes)}"
    return [["with files opened", predicted, iec(read.cost_actual), was]]


def _harm(summary: ApplySummary, width: int) -> list[str]:
    """Return the warning that queries now cost more, empty if they do not."""
    if summary.read is None or summary.read.saved >= 0:
        return []
    more = iec(-summary.read.saved)
    return wrapped(
        f"HARM: opened files counted, the recorded queries now cost {more} more to read than "
        "before. layoutctl report shows which; layoutctl suspend prevents further rewrites.",
        width,
    )
