"""Writes every parameter of a statement as `?`, which the parser reads in each dialect.

Statements of a log may hold parameters instead of values: those that were prepared, and those whose
literals a gateway has replaced. They come in the spelling of a driver ($1, :1, %s, %(day)s), and
behind the word for a type (TIMESTAMP ?). The parser rejects some of these or takes them for names,
and the whole statement would count as a full scan.
"""

from __future__ import annotations

import re

from sqlglot.dialects.dialect import Dialect
from sqlglot.tokenizer_core import Token, TokenType

_TYPE = r"DATE|DATETIME|TIME|TIMESTAMP\w{0,8}|UUID|DECIMAL|NUMERIC"
_MAYBE = re.compile(
    rf"\$\d|:\d|%s|%\(|\?\s*+::|\b(?:{_TYPE})\s++[?:@$%]",
    re.IGNORECASE,
)
_TYPES = re.compile(_TYPE, re.IGNORECASE)
_NAMES = (TokenType.STRING, TokenType.NUMBER, TokenType.IDENTIFIER, TokenType.VAR)
_ENDS = (
    *_NAMES, TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.PLACEHOLDER, TokenType.DOT,
    TokenType.END,
)  # fmt: skip
"""Tokens that end a value, and the dot of a name. Behind them `%` is a remainder, `:` a path or the
end of a slice, and `$1` a column of a staged file."""
_STARTS = (*_NAMES, TokenType.L_PAREN, TokenType.PLACEHOLDER)
_PARAMETER = re.compile(r"\$\d{1,5}|:\w{1,64}|@\w{1,64}|%s|%\(\w{1,64}\)s")
_MOST_TOKENS = 5
"""Of one parameter: %(day)s."""


def with_question_marks(text: str, dialect: str) -> str:
    """Return the statement with `?` for each parameter, and without a type before it. Raises
    SqlglotError."""
    if _MAYBE.search(text) is None:
        return text
    tokens = Dialect.get_or_raise(dialect or None).tokenize(text)
    pieces, done, at = [], 0, 0
    while at < len(tokens):
        typed = _typed(tokens, at)
        length = _length(tokens, at + typed, text)
        if not length or (typed and _is_operator(tokens, at)):
            at += 1
            continue
        last = tokens[at + typed + length - 1]
        cast = text[last.end + 1 : last.end + 3] == "::"  # "?::" would be another operator
        mark = "? ::" if last.token_type == TokenType.QDCOLON else "? " if cast else "?"
        pieces += [text[done : tokens[at].start], mark]
        done = last.end + 1
        at += typed + length
    return "".join([*pieces, text[done:]])


def _typed(tokens: list[Token], at: int) -> int:
    """Return 1 for a type with a blank behind it, else 0: date:x is a path into a column."""
    kind, after = tokens[at], tokens[at + 1 : at + 2]
    quoted = kind.token_type in (TokenType.STRING, TokenType.IDENTIFIER)
    apart = bool(after) and after[0].start > kind.end + 1
    return int(apart and not quoted and _TYPES.fullmatch(kind.text) is not None)


def _is_operator(tokens: list[Token], at: int) -> bool:
    """Whether what follows the type is PostgreSQL's `?`, which asks for a key of a JSON object."""
    after = tokens[at + 2 : at + 3]
    asks = tokens[at + 1].token_type == TokenType.PLACEHOLDER
    return asks and bool(after) and after[0].token_type in _STARTS


def _length(tokens: list[Token], at: int, text: str) -> int:
    """Return how many tokens the parameter at this place has, 0 if there is none."""
    if at >= len(tokens):
        return 0
    first = tokens[at]
    if first.token_type in (TokenType.PLACEHOLDER, TokenType.QDCOLON):
        return int(first.text.startswith("?"))
    before = tokens[at - 1].token_type if at else TokenType.WHERE
    if (
        before in _ENDS
        or before == TokenType.L_BRACKET
        or re.match(r"\w:", text[first.start - 1 :])
        # a stage, or a variable that is a table
        or (before in (TokenType.FROM, TokenType.JOIN) and text[first.start] == "@")
    ):
        return 0
    for count in range(1, _MOST_TOKENS + 1):
        part = tokens[at : at + count]
        if len(part) == count and _PARAMETER.fullmatch(text[first.start : part[-1].end + 1]):
            return count
    return 0
