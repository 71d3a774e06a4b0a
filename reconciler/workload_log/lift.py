"""Recognises queries of one template by their text, so that each template is parsed once.

Literals after a comparison, in an IN list, after BETWEEN, LIKE, DATE, TIMESTAMP or UUID are
replaced by sentinels: DECIMAL '1.5' by a number, X'0aff' by another binary literal. Comments are
left out. All other text (LIMIT, intervals, types) remains part of the template. Lifting looks only
at the text and may be wrong for unusual text: the reader checks that every sentinel is a literal in
the parsed tree, and otherwise parses the original query. Comments that were left out are not
checked, so they stay where quotes could be misread.
Patterns take linear time: they are possessive where two parts could match the same characters.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from itertools import pairwise

from sqlglot.dialects.dialect import Dialect
from sqlglot.tokenizer_core import TokenType

from reconciler.workload_log.constants import Const, number, text_literal

MAX_DIGITS = 60

_STRING = r"'[^']*+(?>(?:''[^']*+)*)'"
_NUMBER = r"(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?"
PLAIN_DECIMAL = r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)"
_DECIMAL = rf"\b(?:DECIMAL|NUMERIC)\s*+'{PLAIN_DECIMAL}'"
_HEX = r"\bX'(?>(?:[0-9a-f]{2})*)'"
_VALUE = rf"(?:-\s*+)?(?:{_DECIMAL}|{_HEX}|{_STRING}|{_NUMBER})(?![\w.'])"
_TYPED = rf"(?:(?:DATE|TIMESTAMP|UUID)\s*+)?{_VALUE}"
_STEP = re.compile(
    rf"""(?=[-/"`<=>!']|(?<!\w)\w)
     (?:(?P<skip>--[^\r\n]*|/\*.*?(?:\*/|\Z)|"[^"]*+(?>(?:""[^"]*+)*)"|`[^`]*`)
      | (?:<=>|<=|>=|<>|!=|==|=|<|>|\bLIKE\b|\b(?:DATE|TIMESTAMP|UUID)\b)\s*+{_TYPED}
      | \bBETWEEN\s++{_TYPED}\s++AND\s++{_TYPED}
      | \bIN\s*+\(\s*+{_TYPED}(?>(?:\s*+,\s*+{_TYPED})*)\s*+\)
      | (?P<string>(?:(?<!\w)\w++)?{_STRING}))""",
    re.VERBOSE | re.DOTALL | re.IGNORECASE,
)
"""Begins at a sign or at the start of a word: at most characters nothing else is tried then."""
_LITERAL = re.compile(
    rf"(?P<decimal>{_DECIMAL})|(?P<hex>{_HEX})|(?P<string>{_STRING})|(?P<number>{_NUMBER})",
    re.IGNORECASE,
)
_STRING_MARK = "\x01lit"
_NUMBER_MARK = "73020150"
_HEX_MARK = "7302015e"
_MISREAD = re.compile(rf"[\\$#]|{_NUMBER_MARK}|{_HEX_MARK}|{_STRING_MARK}", re.IGNORECASE)
"""Escapes, dollar quotes and other comments, which the patterns above do not cover."""

_REMARK = re.compile(r"--(?:\s[^\n]*)?|/\*(?![+!])(?>(?:(?!/\*|\*/).)*)\*/", re.DOTALL)
"""Comments of every dialect, which often hold an id of the query, and no two would have one
template. Not hints, what MySQL executes, and comments inside of comments. MySQL reads 5--3 as a
sum."""
_UNSURE = re.compile(
    r"""//|'''|\"\"\"|[qQ]'|\[\w[^\[\]']*+'|/\*(?:(?!\*/).)*?/\*|\r(?!\n)""", re.DOTALL
)
"""Comments of Snowflake and comments inside of comments, in which an apostrophe may stand; quotes
of three, of Oracle, and in brackets: what looks like a comment behind them may be text. And ends of
lines at which a comment ends in some dialects only."""


@dataclass(frozen=True, slots=True)
class Lifted:
    """A query whose literals were taken out of its text."""

    template: str
    """The text with sentinels in place of literals."""
    literals: dict[str, Const]
    """Values of the literals, by sentinel."""


def lift(sql: str) -> Lifted:
    """Return the template of a query; the query itself if its text could be misread."""
    literals: dict[str, Const] = {}
    if _MISREAD.search(sql):
        return Lifted(sql, literals)
    sure: bool | None = None

    def sentinel(match: re.Match[str]) -> str:
        text = match.group()
        if match.lastgroup == "hex":
            mark = f"{_HEX_MARK}{len(literals):06d}"
            literals[mark] = Const(bytes.fromhex(text[2:-1]))
            return f"X'{mark}'"
        if match.lastgroup != "string":
            if len(text) > MAX_DIGITS:
                return text
            mark = f"{_NUMBER_MARK}{len(literals):06d}"
            typed = match.lastgroup == "decimal"
            literals[mark] = Const(Decimal(text.split("'")[1])) if typed else number(text)
            return mark
        mark = f"{_STRING_MARK}{len(literals)}"
        literals[mark] = text_literal(text[1:-1].replace("''", "'"))
        return f"'{mark}'"

    def step(match: re.Match[str]) -> str:
        nonlocal sure
        text = match.group()
        if match.lastgroup is None:
            return _LITERAL.sub(sentinel, text)
        if text[0] not in "-/" or _REMARK.fullmatch(text) is None:
            return text
        if sure is None:
            sure = _UNSURE.search(sql) is None
        return " " if sure else text

    return Lifted(_STEP.sub(step, sql), literals)


def decimals_as_numbers(text: str, dialect: str) -> str:
    """Replace DECIMAL '-1.5' by (-1.5), its value: the type follows from the digits.

    sqlglot's tree does not distinguish it from CAST('-1.5' AS DECIMAL), whose scale is zero in most
    engines. Raises SqlglotError.
    """
    if _MAYBE_DECIMAL.search(text) is None:
        return text
    pieces, done = [], 0
    tokens = Dialect.get_or_raise(dialect or None).tokenize(text)
    for kind, value in pairwise(tokens):
        typed = kind.token_type == TokenType.DECIMAL and value.token_type == TokenType.STRING
        if typed and _PLAIN_DECIMAL.fullmatch(value.text):
            pieces += [text[done : kind.start], f"({value.text})"]
            done = value.end + 1
    return "".join([*pieces, text[done:]])


_MAYBE_DECIMAL = re.compile(r"\b(?:DECIMAL|NUMERIC)\s*'", re.IGNORECASE)
_PLAIN_DECIMAL = re.compile(PLAIN_DECIMAL)
