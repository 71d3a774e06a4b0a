"""Text for a terminal: its width, and tables, sentences and commands that fit it.

Every verb calls `width` once and renders with these functions, so that no printed line is longer
than the terminal's; in a pipe a line has 100 columns. What does not fit continues below. It is
never cut, except for query shapes and reasons in a summary, which end in an ellipsis.
"""

from __future__ import annotations

import os
import re
import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TextIO

from reconciler.format import printable

WIDEST = 100
NARROWEST = 60
UNLIMITED = 10_000
"""Width of `-o wide`: nothing is wrapped."""


_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f]")
"""Characters below the blank that are no tab and no end of a line. JSON and YAML have none."""
_OBEYED = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""Characters that a terminal obeys, or that turn the direction of the text after them around."""


class Shown:
    """A stream of text on which names, messages and other words of other people command nothing:
    their control characters are shown as U+FFFD."""

    def __init__(self, stream: TextIO) -> None:
        """stream: where the text goes."""
        self.plain = stream
        self._hidden = _OBEYED if stream.isatty() else _CONTROLS

    def write(self, text: str) -> int:
        return self.plain.write(self._hidden.sub("\ufffd", text))

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.plain, name)


@contextmanager
def harmless_output() -> Iterator[None]:
    """Let no text that is printed command the terminal, or the reader of a log."""
    both = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (one and Shown(one) for one in both)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = both


def width(stream: TextIO | None = None) -> int:
    """Return the columns to print for: the terminal's, at least 60 and at most 100; 100 in a
    pipe."""
    stream = stream or sys.stdout
    if not stream.isatty():
        return WIDEST
    try:
        columns = int(os.environ.get("COLUMNS", "0")) or os.get_terminal_size(stream.fileno())[0]
    except (ValueError, OSError):
        columns = WIDEST
    return max(NARROWEST, min(WIDEST, columns or WIDEST))


def progress(text: str, *, quiet: bool) -> None:
    """Print one line on a terminal, overwritten by the next and removed by ""; nothing in a
    pipe."""
    if not quiet and sys.stderr.isatty():
        getattr(sys.stderr, "plain", sys.stderr).write("\r\x1b[K")
        sys.stderr.write(text[: width(sys.stderr) - 1])
        sys.stderr.flush()


def bar(share: float, cells: int = 20) -> str:
    """Return a bar that is filled to this share, with the share in percent."""
    full = min(cells, max(0, int(share * cells)))
    return f"[{'#' * full}{'.' * (cells - full)}] {100.0 * share:3.0f} %"


def wrapped(
    text: str, width: int, *, first: str = "", indent: str = "", whole: bool = False
) -> list[str]:
    """Return the text on lines of at most `width`, broken between words if possible.

    whole: a word longer than a line is not broken: names and paths, to be copied.
    """
    return textwrap.wrap(
        printable(text), width, initial_indent=first, subsequent_indent=indent,
        break_on_hyphens=False, break_long_words=not whole,
    )  # fmt: skip


def flow(parts: Sequence[str], width: int, gap: str = "   ") -> list[str]:
    """Return the parts side by side, on as few lines as they need."""
    lines: list[str] = []
    for part in map(printable, parts):
        if lines and len(lines[-1]) + len(gap) + len(part) <= width:
            lines[-1] += gap + part
        else:
            lines += wrapped(part, width)
    return lines


def commands(
    entries: Sequence[str], width: int, *, title: str = "next:", indent: str = "  "
) -> list[str]:
    """Return commands to copy, side by side or one per line. One that is too long is not broken."""
    if not entries:
        return []
    start = f"{indent}{title} "
    entries = [printable(entry) for entry in entries]
    line = start + "      ".join(entries)
    if len(line) <= width:
        return [line]
    lead = " " * len(start)
    return [(lead if number else start) + entry for number, entry in enumerate(entries)]


def clip(text: str, width: int) -> str:
    """Return the text in at most `width` characters, with an ellipsis if it was cut."""
    text = printable(text)
    return text if len(text) <= width else text[: width - 1] + "…"


def shortened(name: str, width: int) -> str:
    """Return a long name without its middle, because both ends distinguish columns."""
    name = printable(name)
    if len(name) <= width:
        return name
    tail = (width - 1) // 2
    return name[: width - 1 - tail] + "…" + name[len(name) - tail :]


def align(
    rows: Sequence[Sequence[str]], sides: str, *, indent: str = "", gap: str = "  "
) -> list[str]:
    """Return rows as aligned columns of any width; sides: one of l, r per column."""
    return tabulate(rows, sides, UNLIMITED, indent=indent, gap=gap)


def tabulate(
    rows: Sequence[Sequence[str]],
    sides: str,
    width: int,
    *,
    indent: str = "",
    gap: str = "  ",
    least: int = 14,
) -> list[str]:
    """Return rows as aligned columns within `width`; sides: one of l, r per column.

    Two columns may give way: the first column, whose long cells get lines of their own above the
    rest of their row, and a left-aligned last column, which is wrapped to no fewer than `least`
    characters.
    """
    return [line for lines in blocks(rows, sides, width, indent, gap, least) for line in lines]


def blocks(
    rows: Sequence[Sequence[str]],
    sides: str,
    width: int,
    indent: str = "",
    gap: str = "  ",
    least: int = 14,
) -> list[list[str]]:
    """Return the lines of `tabulate`, per row: for tables with remarks between their rows."""
    rows = [[printable(cell) for cell in row] for row in rows]
    measured = [max(len(row[column]) for row in rows) for column in range(len(sides))]
    first, middle, last = measured[0], sum(measured[1:-1]), measured[-1]
    room = width - len(indent) - len(gap) * (len(sides) - 1) - middle
    if sides[-1] == "l" and first + last > room:
        word = max(len(word) for row in rows for word in (row[-1].split() or [""]))
        last = min(last, max(room - first, word, least))
    first = min(first, max(room - last, 0))
    widths = [first, *measured[1:-1], last]
    return [_row(row, sides, widths, width, indent, gap) for row in rows]


def _row(
    row: Sequence[str], sides: str, widths: Sequence[int], width: int, indent: str, gap: str
) -> list[str]:
    lines, cells = [], list(row)
    if len(cells[0]) > widths[0]:
        text = cells[0].lstrip()
        start = indent + " " * (len(cells[0]) - len(text))
        lines = wrapped(text, width, first=start, indent=start + "    ", whole=True)
        if not any(cells[1:]):
            return lines
        cells[0] = ""
    pieces = [""]
    if len(cells) > 1 and sides[-1] == "l":
        pieces = wrapped(cells[-1], max(widths[-1], 1)) or [""]
        cells[-1] = pieces[0]
    aligned = [
        cell.ljust(size) if side == "l" else cell.rjust(size)
        for cell, size, side in zip(cells, widths, sides, strict=True)
    ]
    lines.append((indent + gap.join(aligned)).rstrip())
    left = len(indent) + sum(widths[:-1]) + len(gap) * (len(widths) - 1)
    return lines + [" " * left + piece for piece in pieces[1:]]
