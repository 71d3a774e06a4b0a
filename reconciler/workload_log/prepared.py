"""Resolves statements that run text from elsewhere: EXECUTE, EXECUTE IMMEDIATE, EXPLAIN ANALYZE,
UNLOAD.

For the SQL log reader, which needs the query that runs with its values. A PREPARE is remembered by
its name within one log, and within one user or session if the log names them.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable

from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import SqlglotError
from sqlglot.tokenizer_core import Token, TokenType

from reconciler.workload_log import skip_reasons
from reconciler.workload_log.complexity import MAX_SQL

MAX_STATEMENTS = 20_000
MAX_TEXT = 16 << 20
"""Maximum prepared statements remembered, and their characters; the oldest are forgotten first."""


_START = r"(?>(?:\s|--[^\r\n]*[\r\n]|/\*(?s:.*?)\*/)*)"
_NAME = r"(?P<name>\"[^\"]++\"|`[^`]++`|\w++)"
_STRING = r"[^']*+(?>(?:''[^']*+)*)"
_END = " \t\r\n\f\v;"
"""What may end a statement. Patterns do not allow for it: each follows text of any kind."""
_PREPARE = re.compile(
    rf"{_START}PREPARE\s++{_NAME}\s*+(?:\([^()]*+(?>(?:\([^()]*+\)[^()]*+)*)\)\s*+)?"
    r"(?:FROM|AS)\b\s*+(?P<query>.*)",
    re.IGNORECASE | re.DOTALL,
)
_EXECUTE = re.compile(
    rf"{_START}EXECUTE\s++(?!IMMEDIATE\b){_NAME}"
    r"(?:\s++USING\s++(?P<using>.*)|\s*+\((?P<list>.*)\))?",
    re.IGNORECASE | re.DOTALL,
)
_DEALLOCATE = re.compile(
    rf"{_START}(?:DEALLOCATE|DROP)\s++(?:PREPARE\s++)?{_NAME}", re.IGNORECASE | re.DOTALL
)
_IMMEDIATE = re.compile(
    rf"{_START}EXECUTE\s++IMMEDIATE\s++'(?P<query>{_STRING})'\s*+"
    r"(?:USING\s++(?P<values>.*))?",
    re.IGNORECASE | re.DOTALL,
)
_ANALYZE = re.compile(
    rf"{_START}EXPLAIN\s++(?:ANALY[ZS]E\b\s*+(?:VERBOSE\b\s*+)?"
    r"|\((?=[^()]*+\))[^()]*?\bANALY[ZS]E\b[^()]*+\)\s*+)"
    r"(?P<query>.*)",
    re.IGNORECASE | re.DOTALL,
)
_UNLOAD = re.compile(
    rf"{_START}UNLOAD\s*+\(\s*+(?P<query>.*)\)\s*+TO\s*+'.*", re.IGNORECASE | re.DOTALL
)
_QUOTED = re.compile(rf"'(?P<text>{_STRING})'", re.DOTALL)
_CONCERNS = re.compile(rb"prepare|deallocate", re.IGNORECASE)


class PreparedStatements:
    """The statements that one log has prepared so far."""

    def __init__(self, dialect: str) -> None:
        self.dialect = dialect
        self._texts: OrderedDict[tuple[str | None, str], str] = OrderedDict()
        self._size = 0

    @staticmethod
    def concerned(line: bytes) -> bool:
        """Whether an already imported line of the log may still define what a name means."""
        return _CONCERNS.search(line) is not None

    def executed(self, sql: str, session: str) -> tuple[str, str]:
        """Return the text of the query that a statement executes, and "" or why there is none. A
        PREPARE or DEALLOCATE is remembered for the statements after it.

        session: of the user or connection, "" if the log has none.
        """
        if len(sql) > MAX_SQL:
            return sql, ""
        found = _PREPARE.fullmatch(sql)
        if found is not None:
            self._remember(_name(found), session, _unquoted(found["query"]))
            return "", skip_reasons.PREPARES
        ended = sql.rstrip(_END)
        found = _EXECUTE.fullmatch(ended)
        if found is not None:
            text = self._text(_name(found), session)
            if text is None:
                return "", skip_reasons.UNPREPARED
            return with_values(text, found["using"] or found["list"] or "", self.dialect), ""
        found = _DEALLOCATE.fullmatch(ended)
        if found is not None:
            for key in (session, None):
                self._forget((key, _name(found)))
        return sql, ""

    def _remember(self, name: str, session: str, text: str) -> None:
        for key in (session, None):
            self._forget((key, name))
            self._texts[key, name] = text
            self._size += len(text)
        while len(self._texts) > 2 * MAX_STATEMENTS or self._size > 2 * MAX_TEXT:
            self._forget(next(iter(self._texts)))

    def _forget(self, key: tuple[str | None, str]) -> None:
        self._size -= len(self._texts.pop(key, ""))

    def _text(self, name: str, session: str) -> str | None:
        """Return the session's text; the log's last one if the log does not name sessions."""
        if session:
            own = self._texts.get((session, name))
            return own if own is not None else self._texts.get(("", name))
        return self._texts.get((None, name))


def _name(found: re.Match[str]) -> str:
    return found["name"].strip('"`').lower()


def _unquoted(text: str) -> str:
    """Return the text without quotes: MySQL prepares from a string."""
    text = text.rstrip(_END)
    found = _QUOTED.fullmatch(text)
    return found["text"].replace("''", "'") if found else text


def immediate(sql: str, dialect: str) -> str:
    """Return the query that EXECUTE IMMEDIATE, EXPLAIN ANALYZE or UNLOAD runs; other text
    unchanged."""
    if len(sql) > MAX_SQL:
        return sql
    found = _IMMEDIATE.fullmatch(sql.rstrip(_END))
    if found is not None:
        return with_values(found["query"].replace("''", "'"), found["values"] or "", dialect)
    found = _ANALYZE.fullmatch(sql) or _UNLOAD.fullmatch(sql)
    return sql if found is None else _unquoted(found["query"].strip())


def with_values(query: str, values: str, dialect: str) -> str:
    """Return the query with values in place of ? or $1; unchanged if their numbers differ."""
    try:
        tokenize = Dialect.get_or_raise(dialect or None).tokenize
        listed = _listed(values, tokenize)
        tokens = tokenize(query)
    except SqlglotError:
        return query
    marks = _marks(tokens)
    if {number for _, _, number in marks} != set(range(len(listed))):
        return query
    pieces, done = [], 0
    for start, end, number in marks:
        pieces += [query[done:start], listed[number]]
        done = end + 1
    return "".join([*pieces, query[done:]])


def _marks(tokens: list[Token]) -> list[tuple[int, int, int]]:
    """Return start, end and number of each parameter, from 0: ? by order, $1 by its number."""
    marks: list[tuple[int, int, int]] = []
    for index, token in enumerate(tokens):
        if token.token_type == TokenType.PLACEHOLDER and token.text == "?":
            marks.append((token.start, token.end, len(marks)))
        elif token.token_type == TokenType.VAR and re.fullmatch(r"\$\d{1,5}", token.text):
            marks.append((token.start, token.end, int(token.text[1:]) - 1))
        elif token.token_type == TokenType.PARAMETER and token.text == "$":
            after = tokens[index + 1] if index + 1 < len(tokens) else token
            if after.start == token.end + 1 and re.fullmatch(r"\d{1,5}", after.text):
                marks.append((token.start, after.end, int(after.text) - 1))
    return marks


def _listed(text: str, tokenize: Callable[[str], list[Token]]) -> list[str]:
    """Return the values of a list, in brackets if one is more than a literal with its type."""
    items: list[list[Token]] = [[]]
    depth = 0
    for token in tokenize(text):
        depth += (token.token_type == TokenType.L_PAREN) - (token.token_type == TokenType.R_PAREN)
        if token.token_type == TokenType.COMMA and not depth:
            items.append([])
        else:
            items[-1].append(token)
    spans = [(text[i[0].start : i[-1].end + 1], len(i)) for i in items if i]
    return [span if tokens <= 2 else f"({span})" for span, tokens in spans]
