"""Tables and escaped text of GitHub-flavoured Markdown.

Names of tables, columns and literals of queries are other people's text: nothing in them may end a
table cell, a code span, an HTML comment or a tag.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Mapping, Sequence

from reconciler.format import plural, printable

_CELL = 300
"""Maximum characters of a cell; longer text is cut."""


def table(heads: Sequence[str], sides: str, rows: Sequence[Sequence[str]], limit: int) -> str:
    """Return a GFM table of at most `limit` rows, with the number of omitted ones below it."""
    rule = ["---:" if side == "r" else "---" for side in sides]
    shown = [heads, rule, *rows[:limit]]
    lines = ["| " + " | ".join(row) + " |" for row in shown]
    if len(rows) > limit:
        lines += ["", f"{plural(len(rows) - limit, 'more row')} cut."]
    return "\n".join(lines)


def escaped(text: str) -> str:
    """Return text on one line that Markdown and HTML do not change. Paired backticks stay a code
    span."""
    pieces = _SPAN.split(one_line(text))
    return "".join(
        part if number % 2 else "".join(_ESCAPES.get(letter, letter) for letter in part)
        for number, part in enumerate(pieces)
    )


_SPAN = re.compile(r"(`[^`|<>&\\]+`)")
_ESCAPES: Mapping[str, str] = {
    "&": "&amp;", "<": "&lt;", ">": "&gt;", "`": "&#96;",
    **{letter: "\\" + letter for letter in "\\|*_[]~@#$"},
}  # fmt: skip


def summary_text(text: str) -> str:
    """Return text for a `<summary>`, where HTML is read and Markdown is not."""
    return html.escape(one_line(text), quote=False)


def one_line(text: str) -> str:
    return printable(" ".join(clipped(text).split()))


def code_span(text: str) -> str:
    """Return text in a code span for a table cell: pipes escaped, backticks fenced by longer
    ones."""
    line = one_line(text).replace("|", "\\|")
    fence = "`" * (1 + max(_runs(line), default=0))
    pad = " " if "`" in line or not line else ""
    return f"{fence}{pad}{line}{pad}{fence}"


def _runs(line: str) -> Iterable[int]:
    """Yield the lengths of the runs of backticks."""
    length = 0
    for letter in line + " ":
        if letter == "`":
            length += 1
        elif length:
            yield length
            length = 0


def clipped(text: str) -> str:
    return text if len(text) <= _CELL else text[: _CELL - 1] + "…"


def comment_text(text: str) -> str:
    """Return a name for an HTML comment, where two hyphens or `>` would end the comment."""
    return printable(" ".join(text.split())).replace("--", "-\u2010").replace(">", "\u203a")
