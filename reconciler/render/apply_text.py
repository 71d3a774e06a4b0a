"""Renders the output of `apply`: its progress, line by line, and the closing table of predicted and
actual.

Works on plain values, so that what a run prints can be rendered without running anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from reconciler.format import cpu, duration, iec, plural
from reconciler.queries.table_view import OPEN_BYTES
from reconciler.render.terminal import WIDEST, commands, tabulate, wrapped


@dataclass(frozen=True, slots=True)
class WindowRead:
    """Bytes that the recorded queries read: before, as predicted, and by the new zone maps.

    complete: all of the plan was carried out, so that the prediction is comparable. saved: the cost
    of reading that they save, opened files counted; negative if they cost more than before.
    cost_*: of reading and opening, None if the plan is of an older version. open_bytes: the plan's
    price of opening a file.
    """

    before: int
    predicted: int
    actual: int
    complete: bool = True
    saved: int = 0
    cost_before: int | None = None
    cost_predicted: int | None = None
    cost_actual: int | None = None
    open_bytes: int = OPEN_BYTES


@dataclass(frozen=True, slots=True)
class FileCount:
    """Data files of the table: before, as predicted for a plan that was carried out, and now."""

    before: int
    predicted: int | None
    actual: int


@dataclass(frozen=True, slots=True)
class ApplySummary:
    """The result of one table's apply.

    ran: something was executed. stopped: a signal ended it early. seconds: of everything. executed:
    of them, those of executions, with the start of Spark. predicted_*, actual_*: of everything
    admitted. state: Converged or another state with its reason; message: why. following:
    commands to run next.
    """

    ran: bool
    stopped: bool
    seconds: float
    executed_seconds: float
    commits: int
    conflicts: int
    predicted_bytes: int
    actual_bytes: int
    predicted_cpu_seconds: float
    actual_cpu_seconds: float
    predicted_seconds: float
    read: WindowRead | None
    files: FileCount | None
    state: str
    message: str
    following: Sequence[str] = ()


def render_event(text: str, width: int | None) -> str:
    """Return a line of progress; wrapped on a terminal, one line per event elsewhere.

    width: the terminal's, None in a pipe.
    """
    if width is None or len(text) <= width:
        return text
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
         "with the start of Spark"],
    ]  # fmt: skip
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
    was = f"was {iec(read.cost_before)}; opening a file = {iec(read.open_bytes)}"
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
