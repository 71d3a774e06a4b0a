"""Reads documents: YAML text into plain values with the position of each, and values as they are.

Values are built from parser events, not by a constructor: that keeps line and column of every
field, finds duplicate keys, and bounds nesting and aliases, so that no file can exhaust memory or
the stack. Scalars that YAML 1.1 and 1.2 tools read differently become `Unclear`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml

from reconciler.errors import Problem, first_line

Path = tuple[str | int, ...]
MAX_DEPTH = 64
MAX_VALUES = 50_000
"""Maximum values of one document after its aliases are expanded."""

_TAG = "tag:yaml.org,2002:"
_DECIMAL_INT = re.compile(r"[-+]?(0|[1-9][0-9]{0,29})")
_LETTER_BOOLEANS = frozenset("yYnN")
_RESOLVER = yaml.resolver.Resolver()
_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")


@dataclass(frozen=True, slots=True)
class Unclear:
    """A plain scalar that YAML tools read differently. why: completes "text is ..."."""

    text: str
    why: str


@dataclass(frozen=True, slots=True)
class Position:
    """Place of a value and of its key in a YAML file."""

    line: int
    """Line of the value, from 1."""
    column: int
    """Column of the value, from 1."""
    key_line: int
    """Line of the value's key, from 1."""
    key_column: int
    """Column of the value's key, from 1."""
    text: str | None = None
    """A scalar as written in a file; None for lists, mappings and values without a file."""
    plain: bool = False
    """Whether the value is a scalar without quotes."""


@dataclass
class RawDocument:
    """One YAML document with the place of each of its values."""

    file: str
    """Name of the file."""
    line: int
    """First line of the document in the file, from 1."""
    value: Any = None
    """The parsed document: a mapping, a list, a scalar or None."""
    positions: dict[Path, Position] = field(default_factory=dict)
    """The place of each value, by its path in the document."""
    problems: list[Problem] = field(default_factory=list)
    """What the parser found wrong."""
    repeated: list[Path] = field(default_factory=list)
    """Paths of keys that are given twice; the first one's value counts."""

    def problem(
        self,
        path: Path,
        message: str,
        hint: str = "",
        *,
        at_key: bool = False,
        severity: str = "error",
    ) -> Problem:
        """Return a problem at the value of `path` (or its key), or at the nearest known
        ancestor."""
        known = path
        while known and known not in self.positions:
            known, at_key = known[:-1], True
        place = self.positions.get(known)
        if place is None:
            return Problem(self.file, self.line, 1, show_path(path), message, hint, severity)
        line, column = place.line, place.column
        if at_key:
            line, column = place.key_line, place.key_column
        return Problem(self.file, line, column, show_path(path), message, hint, severity)


def part_of(value: Any, path: Path) -> Any:
    """Return the value of nested mappings at the path, None if they do not reach that far."""
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def show_path(path: Path) -> str:
    """Return `spec.budgets[0].per`, keys with dots or spaces quoted in brackets."""
    out = ""
    for part in path:
        if isinstance(part, int):
            out += f"[{part}]"
        elif _PLAIN_KEY.fullmatch(part):
            out += f".{part}" if out else part
        else:
            out += f'["{part}"]'
    return out


def document_of(value: Any, file: str) -> tuple[RawDocument, Problem | None]:
    """Return a document that is a value already, such as an object of the API server, and why it
    cannot be checked, None if it can.

    Its positions count the values, so that problems keep the order of the document.
    """
    document = RawDocument(file, 1, value)
    open_values: list[tuple[Path, Any]] = [((), value)]
    while open_values:
        path, found = open_values.pop()
        number = len(document.positions)
        if len(path) > MAX_DEPTH:
            return document, Problem(file, 1, 1, "", f"nested deeper than {MAX_DEPTH} levels")
        if number >= MAX_VALUES:
            return document, Problem(file, 1, 1, "", f"holds more than {MAX_VALUES:,} values")
        document.positions[path] = Position(1, 2 * number + 2, 1, 2 * number + 1)
        if isinstance(found, (dict, list)):
            pairs = list(found.items() if isinstance(found, dict) else enumerate(found))
            open_values += [((*path, name), item) for name, item in reversed(pairs)]
    return document, None


def parse_yaml(text: str, file: str) -> tuple[list[RawDocument], Problem | None]:
    """Return all documents before the first syntax error, and that error if there is one."""
    documents: list[RawDocument] = []
    events: list[Any] = []
    error = None
    try:
        for event in _events(text):
            if isinstance(event, yaml.DocumentStartEvent):
                events = []
            elif isinstance(event, yaml.DocumentEndEvent):
                documents.append(_build_document(events, file))
            else:
                events.append(event)
    except _Unreadable as unreadable:
        error = unreadable.problem(file)
    except yaml.MarkedYAMLError as failure:
        mark = failure.problem_mark or failure.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (0, 0)
        what = " ".join(part for part in (failure.problem, failure.context) if part)
        error = Problem(file, line, column, "", f"not valid YAML: {what}", _syntax_hint(text, line))
    except yaml.YAMLError as failure:
        error = Problem(file, 0, 0, "", f"not valid YAML: {first_line(failure)}")
    return documents, error


class _Unreadable(Exception):
    def __init__(self, message: str, event: Any):
        super().__init__(message)
        self.mark = event.start_mark

    def problem(self, file: str) -> Problem:
        return Problem(file, self.mark.line + 1, self.mark.column + 1, "", str(self))


def _events(text: str) -> Iterator[Any]:
    """Yield parser events with bounded nesting. The C parser itself is iterative; its composer is
    not."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    depth = 0
    for event in yaml.parse(text, Loader=loader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > MAX_DEPTH:
                raise _Unreadable(f"nested deeper than {MAX_DEPTH} levels", event)
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        yield event


def _syntax_hint(text: str, line: int) -> str:
    lines = split_lines(text)
    written = lines[line - 1] if 0 < line <= len(lines) else ""
    if "\t" in written[: len(written) - len(written.lstrip())]:
        return "indent with spaces, not tabs"
    if re.search(r":\s*[*&%@`!]", written) or re.search(r"[\[,]\s*[*&%@`!]", written):
        return "quote a value that begins with a special character"
    return ""


def split_lines(text: str) -> list[str]:
    """Return lines as YAML 1.1 counts them."""
    return re.split("\r\n|[\n\r\x85\u2028\u2029]", text)


def _build_document(events: list[Any], file: str) -> RawDocument:
    document = RawDocument(file, events[0].start_mark.line + 1 if events else 1)
    if events:
        builder = _Builder(events, document)
        document.value, _ = builder.build(0, (), None)
    return document


class _Builder:
    """Reads one document's events by index, so that an alias replays the events of its anchor."""

    def __init__(self, events: list[Any], document: RawDocument):
        self.events = events
        self.document = document
        self.positions = document.positions
        self.anchors: dict[str, int] = {}
        self.open: list[int] = []
        self.built = 0

    def build(self, at: int, path: Path, key: Any) -> tuple[Any, int]:
        """Return the value that begins at event `at`, and the index after it. key: event of its
        key."""
        event = self.events[at]
        self.built += 1
        if self.built > MAX_VALUES:
            raise _Unreadable(f"expands to more than {MAX_VALUES:,} values", event)
        if len(path) > MAX_DEPTH:
            raise _Unreadable(f"aliases nest deeper than {MAX_DEPTH} levels", event)
        if isinstance(event, yaml.AliasEvent):
            return self._alias(event, path, key), at + 1
        if event.anchor:
            self.anchors[event.anchor] = at
        self._locate(event, path, key)
        if isinstance(event, yaml.ScalarEvent):
            return self._scalar(event, path), at + 1
        if event.tag not in (None, "!", f"{_TAG}map", f"{_TAG}seq"):
            self._problem_at(event, path, f"the tag {event.tag} is not allowed")
        self.open.append(at)
        reader = self._sequence if isinstance(event, yaml.SequenceStartEvent) else self._mapping
        value, after = reader(at + 1, path)
        self.open.pop()
        return value, after

    def _alias(self, event: Any, path: Path, key: Any) -> Any:
        target = self.anchors.get(event.anchor)
        if target is None:
            raise _Unreadable(f"the alias *{event.anchor} has no anchor", event)
        if target in self.open:
            raise _Unreadable(f"the alias *{event.anchor} contains itself", event)
        return self.build(target, path, key)[0]

    def _locate(self, event: Any, path: Path, key: Any) -> None:
        value_mark, key_mark = event.start_mark, (key or event).start_mark
        scalar = isinstance(event, yaml.ScalarEvent)
        self.positions[path] = Position(
            value_mark.line + 1,
            value_mark.column + 1,
            key_mark.line + 1,
            key_mark.column + 1,
            event.value if scalar else None,
            scalar and not event.style and event.tag is None,
        )

    def _problem_at(self, event: Any, path: Path, message: str, hint: str = "") -> None:
        mark: Any = event.start_mark
        place = (self.document.file, mark.line + 1, mark.column + 1, show_path(path))
        self.document.problems.append(Problem(*place, message, hint))

    def _sequence(self, at: int, path: Path) -> tuple[list[Any], int]:
        items: list[Any] = []
        while not isinstance(self.events[at], yaml.SequenceEndEvent):
            value, at = self.build(at, (*path, len(items)), None)
            items.append(value)
        return items, at + 1

    def _mapping(self, at: int, path: Path) -> tuple[dict[str, Any], int]:
        out: dict[str, Any] = {}
        merges: list[int] = []
        while not isinstance(self.events[at], yaml.MappingEndEvent):
            key = self.events[at]
            if not isinstance(key, yaml.ScalarEvent):
                raise _Unreadable("a key must be text", key)
            name = self._key(key, path)
            if key.anchor:
                self.anchors[key.anchor] = at
            at += 1
            if name == "<<" and not key.style:
                merges.append(at)
                at = self._skip(at)
                continue
            child = (*path, name)
            if name in out:
                first = self.positions[child].key_line
                self.document.repeated.append(child)
                self._problem_at(key, child, f"{name} is given twice", f"first on line {first}")
                at = self._skip(at)
                continue
            out[name], at = self.build(at, child, key)
        for merge in merges:
            self._merge(merge, path, out)
        return out, at + 1

    def _key(self, event: Any, path: Path) -> str:
        text: str = event.value
        if not event.style and event.tag is None:
            tag = _implied_tag(text)
            if tag not in (f"{_TAG}str", f"{_TAG}merge", f"{_TAG}value") or (
                text in _LETTER_BOOLEANS
            ):
                message = f"the key {text or 'null'} is not text to YAML"
                self._problem_at(event, (*path, text), message, f'quote it: "{text}"')
        return text

    def _skip(self, at: int) -> int:
        """Return the index after the value that begins at `at`; its anchors are known from then
        on."""
        depth = 0
        while True:
            event = self.events[at]
            if getattr(event, "anchor", None) and not isinstance(event, yaml.AliasEvent):
                self.anchors[event.anchor] = at
            if isinstance(event, yaml.CollectionStartEvent):
                depth += 1
            elif isinstance(event, yaml.CollectionEndEvent):
                depth -= 1
            at += 1
            if depth == 0:
                return at

    def _merge(self, at: int, path: Path, out: dict[str, Any]) -> None:
        """Merge `<<: *anchor` or a list of them: existing keys take precedence."""
        saved = self.positions
        found: dict[Path, Position] = {}
        self.positions = found
        try:
            value, _ = self.build(at, path, None)
        finally:
            self.positions = saved
        parts = value if isinstance(value, list) else [value]
        for number, part in enumerate(parts):
            if not isinstance(part, dict):
                raise _Unreadable("<< takes a mapping or a list of mappings", self.events[at])
            base = (*path, number) if isinstance(value, list) else path
            for name in part.keys() - out.keys():
                out[name] = part[name]
                for place, position in found.items():
                    if place[: len(base) + 1] == (*base, name):
                        saved[(*path, *place[len(base) :])] = position

    def _scalar(self, event: Any, path: Path) -> Any:
        text: str = event.value
        if event.style:
            tag = event.tag or f"{_TAG}str"
        else:
            tag = event.tag if event.tag not in (None, "!") else _implied_tag(text)
        kind = tag.removeprefix(_TAG)
        if kind in ("str", "timestamp", "value", "merge", "!"):
            # Kubernetes reads unquoted times as text too.
            unclear = text in _LETTER_BOOLEANS and not event.style and event.tag is None
            return Unclear(text, "a boolean to some YAML tools") if unclear else text
        if kind == "null":
            return None
        if kind == "bool" and text.lower() in yaml.SafeLoader.bool_values:
            return yaml.SafeLoader.bool_values[text.lower()]
        if kind == "int":
            if _DECIMAL_INT.fullmatch(text):
                return int(text)
            return Unclear(text, "a number that YAML tools read differently")
        if kind == "float":
            return _float(text)
        self._problem_at(event, path, f"the tag {tag} is not allowed")
        return None


def _implied_tag(text: str) -> str:
    """Return the tag that YAML 1.1 gives an unquoted scalar."""
    tag: str = _RESOLVER.resolve(yaml.ScalarNode, text, (True, False))  # type: ignore[no-untyped-call]
    return tag


def _float(text: str) -> float | Unclear:
    try:
        return float(text.replace("_", ""))
    except ValueError:  # .inf, .nan, sexagesimal
        return Unclear(text, "a number that YAML tools read differently")
