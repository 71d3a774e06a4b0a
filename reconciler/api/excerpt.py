"""Renders problems for people: file, line, field, the line itself, a caret and what is allowed.

Lines of a document can hold credentials and terminal control characters; both are masked.
"""

from __future__ import annotations

import re
import textwrap
import unicodedata
from collections.abc import Iterable, Mapping

from reconciler.api.source import split_lines
from reconciler.errors import Problem
from reconciler.format import printable

WIDTH = 100
_GUTTER = 8  # "   14 | "
_LONG = 8_000
_CREDENTIAL = re.compile(
    r"(?i)\b(?!secretRef\b)[\w.\-]*(?:token|credential|secret|passw|passphrase|private[-_.]?key|"
    r"access[-_.]?key|account[-_.]?key|api[-_.]?key|sas|authorization|cookie)[\w.\-]*[\"']?\s*[:=]"
)
_USER_INFO = re.compile(r"(?<=//)[^/@\s]+(?=@)")


def render_problems(problems: Iterable[Problem], sources: Mapping[str, str]) -> str:
    """Return all problems, each with its excerpt; sources: text of each file by the problem's
    name."""
    lines = {file: split_lines(text) for file, text in sources.items()}
    return "\n".join(render_problem(problem, lines.get(problem.file, [])) for problem in problems)


def render_problem(problem: Problem, lines: list[str]) -> str:
    place = f"{problem.file}:{problem.line}" if problem.line else problem.file
    where = f"{place}: {problem.field}" if problem.field else place
    head = f"{problem.severity}: {printable(where)}: {printable(problem.message)}"
    if not 0 < problem.line <= len(lines):
        return f"{head}\n  {printable(problem.hint)}" if problem.hint else head
    text, caret = _excerpt(lines[problem.line - 1], max(problem.column, 1) - 1)
    below = _caret_and_hint(caret, printable(problem.hint))
    return "\n".join([head, f"{problem.line:5d} | {text}".rstrip(), *below])


def _caret_and_hint(caret: int, hint: str) -> list[str]:
    """Return the hint beside the caret if it fits on the page, else on lines of its own."""
    beside = f"      | {' ' * caret}^ {hint}".rstrip()
    if width(beside) <= WIDTH:
        return [beside]
    wrapped = textwrap.wrap(hint, WIDTH - _GUTTER - 2, break_on_hyphens=False)
    return [f"      | {' ' * caret}^", *(f"      |   {line}" for line in wrapped)]


def _excerpt(line: str, at: int) -> tuple[str, int]:
    """Return the masked line, cut to the page, and the caret's column."""
    if len(line) > _LONG:  # a document on one line
        cut = max(0, at - _LONG // 2)
        line, at = line[cut : cut + _LONG], at - cut
    masked = mask(line)
    before = line[:at]
    if not masked.startswith(before):
        before = masked[: min(at, len(masked))]
    start = 0
    room = WIDTH - _GUTTER
    if width(before) > room - 20:
        start = len(before) - (room // 2)
    text = printable(masked[start:])
    prefix = "..." if start else ""
    shown = prefix + text
    while width(shown) > room:
        shown = shown[:-1]
    return shown, width(prefix + printable(before[start:]))


def mask(line: str) -> str:
    """Return the line with user info in URIs and everything after a credential's name replaced."""
    found = _CREDENTIAL.search(line)
    if found is not None and line[found.end() :].strip():
        line = line[: found.end()] + " ***"
    return _USER_INFO.sub("***", line)


def width(text: str) -> int:
    """Return the terminal columns of printable text."""
    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1
        for c in text
    )
