"""Renders the output of `apply`: its progress, line by line, and the closing table of predicted and
actual.

Works on plain values, so that what a run prints can be rendered without running anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from reconciler.format import cpu, duration, iec
from reconciler.render.terminal import WIDEST, commands, plural, tabulate, wrapped


@dataclass(frozen=True, slots=True)
class WindowRead:
    """Bytes that the recorded queries read: before, as predicted, and by the new zone maps.

    complete: all of the plan was carried out, so that the prediction is comparable. saved: the cost
    of reading that they save, opened files counted; negative if they cost more than before.
    """

    before: int
    predicted: int
    actual: int
    complete: bool = True
    saved: int = 0


@dataclass(frozen=True, slots=True)
class FileCount:
    """Data files of the table: before, as predicted for a plan that was carried out, and now."""

    before: int
    predicted: int | None
    actual: int


@dataclass(frozen=True, slots=True)
class Told:
    """The result of one table's apply.

    ran: something was executed. stopped: a signal ended it early. predicted_*, actual_*: of
    everything admitted. state: Converged or another state with its reason; message: why. following:
    commands to run next.
    """

    ran: bool
    stopped: bool
    seconds: float
    commits: int
    conflicts: int
    predicted_bytes: int
    actual_bytes: int
    predicted_cpu_seconds: float
    actual_cpu_seconds: float
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


def render_told(told: Told, width: int = WIDEST) -> str:
    """Return the closing lines of a table's apply, without a trailing newline."""
    if told.ran:
        end = "Stopped after" if told.stopped else "Done in"
        lines = wrapped(
            f"{end} {duration(told.seconds)}. {plural(told.commits, 'commit')}, "
            f"{plural(told.conflicts, 'conflict')}. "
            f"Observed again: {told.message}, {told.state}.",
            width,
        )
        lines += _comparison(told, width)
        lines += _harm(told, width)
    else:
        end = "Stopped before anything was done" if told.stopped else "Nothing was done"
        lines = wrapped(f"{end}: {told.message}. {told.state}.", width)
    return "\n".join([*lines, *(commands(told.following, width) if told.following else [])])


def _comparison(told: Told, width: int) -> list[str]:
    lost = "including the cost of conflicts" if told.conflicts else ""
    rows = [
        ["", "PREDICTED", "ACTUAL", ""],
        ["rewritten", iec(told.predicted_bytes), iec(told.actual_bytes), lost],
        ["CPU", cpu(told.predicted_cpu_seconds), cpu(told.actual_cpu_seconds), ""],
    ]
    if told.files is not None:
        foreseen = "-" if told.files.predicted is None else f"{told.files.predicted:,}"
        rows.append(["files", foreseen, f"{told.files.actual:,}", f"was {told.files.before:,}"])
    if told.read is not None:
        was = f"was {iec(told.read.before)}; same queries against the new zone maps"
        predicted = iec(told.read.predicted)
        if not told.read.complete:
            was += f"; whole plan predicted {predicted}; this run was part of it"
            predicted = "-"
        rows.append(["read by the window", predicted, iec(told.read.actual), was])
    return tabulate(rows, "lrrl", width, indent="  ")


def _harm(told: Told, width: int) -> list[str]:
    """Return the warning that queries now cost more, empty if they do not."""
    if told.read is None or told.read.saved >= 0:
        return []
    more = iec(-told.read.saved)
    return wrapped(
        f"HARM: opened files counted, the recorded queries now cost {more} more to read than "
        "before. layoutctl report shows which; layoutctl suspend prevents further rewrites.",
        width,
    )
