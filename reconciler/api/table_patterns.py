"""Matches tables with policies' patterns, and chooses the policy of a table.

A pattern is namespace levels and a name joined by dots. `*` matches any characters within a level,
`**` also crosses levels (as a level of its own it may match none: `a.**.b` matches `a.b`), and
backticks quote a level literally, a doubled backtick being one. Matching is case-sensitive.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache

from reconciler.api.documents import TableLayoutPolicy, TableSelector
from reconciler.errors import UserError

_LEVEL = re.compile(r"`((?:[^`]|``)+)`|([^.`\s]+)")
_SEPARATOR = "\x00"
_ANYTHING = "\x01"
_WITHIN, _ACROSS, _ENTER = "*", "**", ""


@dataclass(frozen=True)
class _Compiled:
    """tokens: one character each or, where `wild`, _WITHIN, _ACROSS or _ENTER.

    _ENTER comes before a `**` that is a level of its own with a level after it: it matches no
    character, and the level may be skipped from there (but not once a part of it has been matched).
    """

    tokens: tuple[str, ...]
    wild: tuple[bool, ...]

    @property
    def exact(self) -> bool:
        return not any(self.wild)

    @cached_property
    def beginning(self) -> str:
        """The characters before the first wildcard."""
        end = next((at for at, wild in enumerate(self.wild) if wild), len(self.tokens))
        return "".join(self.tokens[:end])

    @cached_property
    def literals(self) -> dict[str, int]:
        """Positions (as bits) at which the pattern has the character."""
        found: dict[str, int] = {}
        for at, (token, wild) in enumerate(zip(self.tokens, self.wild, strict=True)):
            if not wild:
                found[token] = found.get(token, 0) | 1 << at
        return found

    @cached_property
    def across(self) -> int:
        """Positions of `**`, which takes any character."""
        return self._wild(_ACROSS)

    @cached_property
    def stars(self) -> int:
        """Positions of `*` and `**`, which take any character but a separator."""
        return self._wild(_WITHIN) | self.across

    @cached_property
    def _enter(self) -> int:
        return self._wild(_ENTER)

    def _wild(self, kind: str) -> int:
        at = range(len(self.tokens))
        return sum(1 << n for n in at if self.wild[n] and self.tokens[n] == kind)

    def reached(self, positions: int) -> int:
        """With the positions that follow when wildcards take nothing more."""
        while True:
            passing = positions & (self.stars | self._enter)
            skipping = positions & self._enter  # also past the `**` and the separator after it
            following = positions | passing << 1 | skipping << 3
            if following == positions:
                return positions
            positions = following


def split_identifier(text: str) -> tuple[str, ...]:
    """Return the levels of `a.b.c` with backticks removed. Raises ValueError if it is malformed."""
    levels, at = [], 0
    while True:
        match = _LEVEL.match(text, at)
        if match is None:
            raise ValueError(f"{text!r} is not a table name")
        levels.append(match[2] if match[1] is None else match[1].replace("``", "`"))
        at = match.end()
        if at == len(text):
            return tuple(levels)
        if text[at] != ".":
            raise ValueError(f"{text!r} is not a table name")
        at += 1


def quote_identifier(levels: Iterable[str]) -> str:
    """Return the pattern that matches exactly these levels."""
    return ".".join(_quote(level) for level in levels)


def _quote(level: str) -> str:
    if re.fullmatch(r"[^.`\s*]+", level):
        return level
    return "`" + level.replace("`", "``") + "`"


def is_exact(pattern: str) -> bool:
    """Whether the pattern names one table only."""
    return _compile(pattern).exact


def same_tables(pattern: str) -> tuple[object, ...]:
    """Return a key that is equal for two spellings of one pattern: `a`.* and a.*"""
    compiled = _compile(pattern)
    return (compiled.tokens, compiled.wild)


def covers(pattern: str, other: str) -> bool:
    """Whether the pattern matches every table that `other` does.

    It is matched with names made from `other`: each star becomes a character that no name has, each
    `**` no level, one level and two levels.
    """
    names = (_filled(_compile(other), levels) for levels in range(3))
    return all(matches(pattern, tuple(name.split(_SEPARATOR))) for name in names)


def _filled(compiled: _Compiled, levels: int) -> str:
    """Return a name made from the pattern, with `levels` levels for each `**`.

    One level is used where `**` cannot match none.
    """
    across = _SEPARATOR.join([_ANYTHING] * max(levels, 1))
    out, at = "", 0
    while at < len(compiled.tokens):
        token = compiled.tokens[at]
        if not compiled.wild[at]:
            out += token
        elif token == _ENTER:
            at += 0 if levels else 2
        else:
            out += _ANYTHING if token == _WITHIN else across
        at += 1
    return out


def literal_beginning(pattern: str) -> tuple[str, bool]:
    """Return the literal prefix of every matching name, its levels joined by a NUL; whether that is
    all."""
    compiled = _compile(pattern)
    return compiled.beginning, compiled.exact


def matches(pattern: str, table: tuple[str, ...]) -> bool:
    """Whether the pattern matches a table, given as its levels, the name last.

    Follows all positions in the pattern at once, as the bits of one integer: a few operations per
    character of the name, however many stars there are.
    """
    compiled = _compile(pattern)
    name = _SEPARATOR.join(table)
    if compiled.exact:
        return "".join(compiled.tokens) == name
    if not name.startswith(compiled.beginning):
        return False
    positions = compiled.reached(1 << len(compiled.beginning))
    for character in name[len(compiled.beginning) :]:
        staying = compiled.across if character == _SEPARATOR else compiled.stars
        passed = positions & compiled.literals.get(character, 0)
        positions = compiled.reached((positions & staying) | passed << 1)
        if not positions:
            return False
    return bool(positions >> len(compiled.tokens) & 1)


@lru_cache(maxsize=4096)
def _compile(pattern: str) -> _Compiled:
    tokens: list[str] = []
    wild: list[bool] = []
    levels = list(_LEVEL.finditer(pattern))
    if not levels or ".".join(match[0] for match in levels) != pattern:
        raise ValueError(f"{pattern!r} is not a table name or pattern")
    for number, level in enumerate(levels):
        last = number == len(levels) - 1
        if level[2] == _ACROSS and not last:
            tokens.append(_ENTER)
            wild.append(True)
        for token, is_wild in _level_tokens(level):
            tokens.append(token)
            wild.append(is_wild)
        if not last:
            tokens.append(_SEPARATOR)
            wild.append(False)
    return _Compiled(tuple(tokens), tuple(wild))


def _level_tokens(level: re.Match[str]) -> list[tuple[str, bool]]:
    if level[1] is not None:
        return [(character, False) for character in level[1].replace("``", "`")]
    parts: list[str] = re.findall(r"\*+|[^*]", level[2])
    return [(part[:2], part[0] == "*") for part in parts]


def selects(tables: TableSelector, table: tuple[str, ...]) -> bool:
    """Whether a policy's include and exclude select the table."""
    return any(matches(pattern, table) for pattern in tables.include) and not any(
        matches(pattern, table) for pattern in tables.exclude
    )


def policies_for(
    table: tuple[str, ...], catalog: str, policies: Iterable[TableLayoutPolicy]
) -> tuple[TableLayoutPolicy, ...]:
    """Return the policies that select a table of the IcebergCatalog `catalog`, the winner first.

    An exact name beats a pattern, then the older policy wins, then the first by name. A policy read
    from a file has no creation time and counts as newer than any stored one.
    """
    found = [
        policy
        for policy in policies
        if policy.spec.catalog.name == catalog and selects(policy.spec.tables, table)
    ]
    return tuple(sorted(found, key=lambda policy: _precedence(policy, table)))


def _precedence(policy: TableLayoutPolicy, table: tuple[str, ...]) -> tuple[object, ...]:
    include = policy.spec.tables.include
    exact = any(is_exact(pattern) and matches(pattern, table) for pattern in include)
    return (not exact, not policy.created, policy.created, policy.name, policy.namespace)


def choose_policy(
    table: tuple[str, ...], catalog: str, policies: Iterable[TableLayoutPolicy]
) -> TableLayoutPolicy | None:
    """Return the policy that applies to the table, None if no policy selects it.

    Raises UserError if two policies name the table exactly: neither can win.
    """
    found = policies_for(table, catalog, policies)
    named = [policy for policy in found if not _precedence(policy, table)[0]]
    if len(named) > 1 and not any(policy.created for policy in named):
        raise UserError(
            f"table {quote_identifier(table)} has {len(named)} policies that name it",
            details=tuple(f"{policy.name} ({policy.origin})" for policy in named),
            do="keep its name in one of them; patterns may overlap, exact names may not",
        )
    return found[0] if found else None
