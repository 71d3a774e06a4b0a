"""Queries of one template recognised by their text, so that each template is parsed once.

The literals that stand beside a comparison, in an IN list, after BETWEEN, LIKE, DATE or TIMESTAMP
are replaced by sentinels; all other text (LIMIT, intervals, types) stays part of the template.
Lifting is by tokens only and may be wrong for exotic text: the reader checks that every sentinel
arrived in the parsed tree as a literal, and reads the query as it stands if not.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from reconciler.workload_log.fold import Const, number

_TOKEN = re.compile(
    r"""(?P<space>\s+)
      | (?P<comment>--[^\n]*|/\*.*?\*/)
      | (?P<name>"(?:[^"]|"")*"|`[^`]*`|[^\W\d]\w*)
      | (?P<string>'(?:[^']|'')*')
      | (?P<number>(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)
      | (?P<operator><=>|<=|>=|<>|!=|==|=|<|>)
      | (?P<other>.)""",
    re.VERBOSE | re.DOTALL,
)
_BEFORE_LITERAL = {"LIKE", "BETWEEN", "DATE", "TIMESTAMP"}
_STRING_MARK = "\x01lit"
_NUMBER_MARK = "73020150"


@dataclass(frozen=True, slots=True)
class Lifted:
    """template: the text with sentinels; literals: their values by sentinel."""

    template: str
    literals: dict[str, Const]


def lift(sql: str) -> Lifted:
    """The template of a query; the query itself where its text could be misread."""
    if "\\" in sql or "$" in sql or "#" in sql or _NUMBER_MARK in sql or _STRING_MARK in sql:
        return Lifted(sql, {})
    out: list[str] = []
    literals: dict[str, Const] = {}
    context = _Context()
    end_of_last, last_kind = 0, ""
    for match in _TOKEN.finditer(sql):
        kind, text = str(match.lastgroup), match.group()
        glued = match.start() == end_of_last and last_kind in ("name", "number", "string")
        if kind in ("string", "number") and context.liftable and not glued:
            follower = sql[match.end() : match.end() + 1]
            if not (follower.isalnum() or follower in "_.'"):
                text = _sentinel(kind, text, literals)
        out.append(text)
        if kind not in ("space", "comment"):
            context.see(kind, match.group())
            end_of_last, last_kind = match.end(), kind
    return Lifted("".join(out), literals)


def _sentinel(kind: str, text: str, literals: dict[str, Const]) -> str:
    if kind == "number":
        mark = f"{_NUMBER_MARK}{len(literals):06d}"
        literals[mark] = number(text)
        return mark
    mark = f"{_STRING_MARK}{len(literals)}"
    literals[mark] = Const(text[1:-1].replace("''", "'"))
    return f"'{mark}'"


class _Context:
    """Whether the next literal stands where a comparison's constant stands."""

    def __init__(self) -> None:
        self.liftable = False
        self._between = 0
        self._in_list = 0
        self._previous = ""

    def see(self, kind: str, text: str) -> None:
        word = text.upper() if kind == "name" else text
        if self._in_list:
            self._in_list += {"(": 1, ")": -1}.get(word, 0)
            self.liftable = self._in_list == 1 and word in ("(", ",")
        elif word == "(" and self._previous == "IN":
            self._in_list, self.liftable = 1, True
        elif word == "AND" and self._between:
            self._between -= 1
            self.liftable = True
        else:
            self._between += word == "BETWEEN"
            unary = word == "-" and self.liftable
            self.liftable = kind == "operator" or word in _BEFORE_LITERAL or unary
        if self._in_list and word in ("DATE", "TIMESTAMP"):
            self.liftable = True
        self._previous = word
