"""Finds what does not match the schema of a document: types, enums, bounds, patterns, required,
unknown and repeated fields.

jsonschema finds the errors (`schema_errors`); this module says them in the field's own words, with
what is allowed and a suggestion.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from reconciler.api.catalog_checks import has_user_info
from reconciler.api.catalog_properties import is_credential
from reconciler.api.expected import (
    bound,
    choose,
    closest,
    expected,
    first_sentence,
    meant_by,
    noun_of,
    quote,
    short,
)
from reconciler.api.schema import SERVER_METADATA, structural_schema, walk_schema
from reconciler.api.source import Path, RawDocument, Unclear, show_path

if TYPE_CHECKING:
    from jsonschema import ValidationError

Schema = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Finding:
    """One violation of a document's schema."""

    path: Path
    """Path of the value in the document."""
    message: str
    """What is wrong, as a clause."""
    hint: str = ""
    """What to write instead, "" if nothing can be suggested."""
    at_key: bool = False
    """Whether the caret is at the field's key instead of at its value."""
    severity: str = "error"
    """"error" or "warning"."""
    blocks: bool = True
    """Whether checks that read this value are skipped."""
    meant: Path = ()
    """Path of the field that a misspelt field probably means, () for other violations."""


def structural_findings(document: RawDocument, kind: str) -> Iterator[Finding]:
    """Yield one finding for each value that does not match, and for each repeated item."""
    from reconciler.api.schema_errors import LIST_TYPE, schema_errors

    body = document.value
    if isinstance(body, dict):  # only the operator writes the status
        body = {name: item for name, item in body.items() if name != "status"}
    by_place: dict[tuple[Path, bool], list[ValidationError]] = {}
    for error in schema_errors(kind, body):
        path = tuple(error.absolute_path)
        if path[:1] != ("metadata",) or path[1:] not in _SERVER_FIELDS:
            by_place.setdefault((path, error.validator == LIST_TYPE), []).append(error)
    words = _Words(document, kind)
    for (path, _), errors in sorted(by_place.items(), key=lambda item: item[0][1]):
        yield words.finding(path, errors)


_SERVER_FIELDS = frozenset((name,) for name in SERVER_METADATA)


class _Words:
    """Says the errors of one document."""

    def __init__(self, document: RawDocument, kind: str):
        self.positions = document.positions
        self.kind = kind

    def finding(self, path: Path, errors: Sequence[ValidationError]) -> Finding:
        """Return the finding on one value: of several errors, the first in this order."""
        by_keyword = {str(error.validator): error for error in errors}
        say: dict[str, Callable[[Path, ValidationError], Finding]] = {
            "x-kubernetes-list-type": _twice,
            "required": self._required,
            "properties": self._unknown,
            "type": self._wrong_type,
            "x-kubernetes-int-or-string": self._wrong_type,
            "maxProperties": _too_many,
            "minProperties": _too_few,
            "minItems": _too_few,
            "maxItems": _too_many,
            "enum": self._not_allowed,
            "minLength": self._too_short,
            "maxLength": self._too_long,
            "pattern": self._not_in_form,
            "minimum": self._too_small,
            "maximum": self._too_large,
        }
        keyword = next(name for name in say if name in by_keyword)
        return say[keyword](path, by_keyword[keyword])

    def _required(self, path: Path, error: ValidationError) -> Finding:
        about = _node(self.kind, path).get("description", "")
        return Finding(path, "is required", first_sentence(about), at_key=True)

    def _unknown(self, path: Path, error: ValidationError) -> Finding:
        """Return the finding on an unknown field, with a suggestion."""
        name = str(path[-1])
        names = list(_node(self.kind, path[:-1]).get("properties", {}))
        parent = show_path(path[:-1]) or "the document"
        close = closest(name, names)
        if close:
            hint = f"Did you mean {close}?"
        elif elsewhere := _homes(self.kind, name):
            hint = f"{name} belongs to {' or '.join(elsewhere)}"
        else:
            hint = f"fields: {', '.join(names)}"
        meant = (*path[:-1], close) if close else ()
        message = f"is not a field of {parent}"
        return Finding(path, message, hint, at_key=True, blocks=False, meant=meant)

    def _wrong_type(self, path: Path, error: ValidationError) -> Finding:
        schema, value = _node(self.kind, path), error.instance
        wanted = schema.get("type", "")
        if wanted == "object":
            names = ", ".join(schema.get("properties", ()))
            hint = f"fields: {names}" if names else "names and values"
            return self._wrong(path, value, "a mapping", hint)
        if wanted == "array":
            hint = "" if isinstance(value, dict) else f"[{self._text(path, value)}]"
            return self._wrong(path, value, "a list", hint)
        nouns = {"string": "text", "integer": "a whole number", "boolean": "true or false"}
        noun = nouns.get(wanted, noun_of(path, schema))
        if isinstance(value, (dict, list)) or value is None:
            return self._wrong(path, value, noun, expected(path, schema))
        return self._wrong_scalar(path, value, noun, schema)

    def _wrong_scalar(self, path: Path, value: Any, noun: str, schema: Schema) -> Finding:
        wanted, is_text = schema.get("type"), isinstance(value, str)
        if wanted == "string":
            written = self._written(path, value)
            return Finding(path, f"{written} is {_kind_of(value)}, not text", _quoting(written))
        if wanted == "integer" and is_text and re.fullmatch(r"-?[0-9]+", value):
            return Finding(path, f'"{value}" is text, not {noun}', f"without quotes: {value}")
        if wanted == "boolean" and is_text:
            return Finding(path, f"{quote(value)} is text, not {noun}", "true | false")
        message = f"{self._text(path, value)} is not {noun}"
        return Finding(path, message, expected(path, schema))

    def _wrong(self, path: Path, value: Any, wanted: str, hint: str) -> Finding:
        what = self._text(path, value)
        if isinstance(value, (dict, list)):
            what = "a mapping" if isinstance(value, dict) else "a list"
        return Finding(path, f"is {what}, not {wanted}", hint)

    def _not_allowed(self, path: Path, error: ValidationError) -> Finding:
        hint = choose(str(error.instance), _node(self.kind, path)["enum"])
        return Finding(path, f"{self._text(path, error.instance)} is not allowed", hint)

    def _too_short(self, path: Path, error: ValidationError) -> Finding:
        schema = _node(self.kind, path)
        if error.instance == "":
            return Finding(path, "is empty", expected(path, schema))
        if "pattern" in schema:  # its form says more than its length
            return self._not_in_form(path, error)
        message = f"is shorter than {error.validator_value} characters"
        return Finding(path, message, expected(path, schema))

    def _too_long(self, path: Path, error: ValidationError) -> Finding:
        message = f"is longer than {error.validator_value} characters"
        return Finding(path, message, expected(path, _node(self.kind, path)))

    def _not_in_form(self, path: Path, error: ValidationError) -> Finding:
        schema, value = _node(self.kind, path), str(error.instance)
        hint, meant = expected(path, schema), meant_by(value, schema)
        hint = f"{hint}. Did you mean {meant}?" if meant else hint
        return Finding(path, f"{self._text(path, value)} is not {noun_of(path, schema)}", hint)

    def _too_small(self, path: Path, error: ValidationError) -> Finding:
        hint = f"at least {bound(_node(self.kind, path), 'minimum')}"
        return Finding(path, f"{self._text(path, error.instance)} is too small", hint)

    def _too_large(self, path: Path, error: ValidationError) -> Finding:
        hint = f"at most {bound(_node(self.kind, path), 'maximum')}"
        return Finding(path, f"{self._text(path, error.instance)} is too large", hint)

    def _written(self, path: Path, value: Any) -> str:
        """Return a scalar as written in the file: `1.50`, not 1.5."""
        place = self.positions.get(path)
        text = place.text if place is not None and place.text is not None else _plain(value)
        return "(hidden)" if _sensitive(path, text) else short(text)

    def _text(self, path: Path, value: Any) -> str:
        if not isinstance(value, str):
            return "empty" if value is None else self._written(path, value)
        return '"(hidden)"' if _sensitive(path, value) else quote(value)


def _node(kind: str, path: Path) -> Schema:
    """Return the schema of the value at a path."""
    node: Schema = structural_schema(kind)
    for part in path:
        if isinstance(part, int):
            node = node["items"]
        else:
            properties = node.get("properties", {})
            node = properties[part] if part in properties else node["additionalProperties"]
    return node


def _twice(path: Path, error: ValidationError) -> Finding:
    return Finding(path, f"{quote(str(error.instance))} is listed twice", blocks=False)


def _too_few(path: Path, error: ValidationError) -> Finding:
    least = error.validator_value
    return Finding(path, f"needs at least {least} {'entry' if least == 1 else 'entries'}")


def _too_many(path: Path, error: ValidationError) -> Finding:
    held: Any = error.instance
    message = f"holds {len(held)} entries, at most {error.validator_value} are allowed"
    return Finding(path, message, blocks=False)


def _sensitive(path: Path, text: str) -> bool:
    named = any(isinstance(part, str) and is_credential(part) for part in path)
    return (named and "secretRef" not in path) or has_user_info(text)


def _plain(value: Any) -> str:
    if isinstance(value, Unclear):
        return value.text
    return str(value).lower() if isinstance(value, bool) else str(value)


def _kind_of(value: Any) -> str:
    if isinstance(value, Unclear):
        return value.why
    return "a boolean to YAML" if isinstance(value, bool) else "a number to YAML"


def _quoting(written: str) -> str:
    return f'quote it: "{written}"'


@cache
def _homes(kind: str, name: str) -> tuple[str, ...]:
    """Return up to two places of the spec where a field of this name exists."""
    found = [
        path.rpartition(".")[0]
        for path, _ in walk_schema(structural_schema(kind)["properties"]["spec"], "spec")
        if path.rpartition(".")[2] == name
    ]
    return tuple(found) if len(found) <= 2 else ()
