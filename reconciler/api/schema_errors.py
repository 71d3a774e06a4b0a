"""Validates a document with jsonschema as the API server does.

The schema is the CRD's structural schema; the validator knows the keywords that Kubernetes adds to
JSON Schema or reads differently.

Imported when the first document is checked, because importing jsonschema takes 0.08 s.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from jsonschema import Draft202012Validator, ValidationError
from jsonschema.protocols import Validator
from jsonschema.validators import extend

from reconciler.api.schema import structural_schema

LIST_TYPE = "x-kubernetes-list-type"
INT_OR_STRING = "x-kubernetes-int-or-string"

Errors = Iterator[ValidationError]


def schema_errors(kind: str, body: Any) -> Errors:
    """Yield each place of a document where it does not match the schema of its kind.

    Errors on missing, unknown and repeated parts are at the path of that part.
    """
    return _validator(kind).iter_errors(body)


@cache
def _validator(kind: str) -> Validator:
    dialect = extend(  # type: ignore[no-untyped-call]
        Draft202012Validator,
        {
            "properties": _properties,
            "additionalProperties": _values,
            "required": _required,
            "pattern": _pattern,
            INT_OR_STRING: _int_or_string,
            LIST_TYPE: _repeated,
        },
        type_checker=Draft202012Validator.TYPE_CHECKER.redefine("integer", _is_integer),
    )
    return dialect(structural_schema(kind))


def _is_integer(checker: Any, value: Any) -> bool:
    """JSON Schema also counts 1.0 as an integer."""
    return isinstance(value, int) and not isinstance(value, bool)


def _properties(validator: Any, properties: Any, instance: Any, schema: Any) -> Errors:
    """The API server drops nulls of known fields; unknown fields are errors."""
    if not isinstance(instance, dict):
        return
    for name, item in instance.items():
        if name not in properties:
            yield ValidationError("is not a field", path=(name,), instance=item)
        elif item is not None:
            yield from validator.descend(item, properties[name], path=name, schema_path=name)


def _values(validator: Any, of_value: Any, instance: Any, schema: Any) -> Errors:
    """Check the values of a map. A structural schema has no object with fields and a map."""
    for name, item in instance.items() if isinstance(instance, dict) else ():
        if item is not None:
            yield from validator.descend(item, of_value, path=name)


def _required(validator: Any, required: Any, instance: Any, schema: Any) -> Errors:
    for name in required if isinstance(instance, dict) else ():
        if instance.get(name) is None:
            yield ValidationError("is required", path=(name,))


def _pattern(validator: Any, pattern: str, instance: Any, schema: Any) -> Errors:
    if isinstance(instance, str) and not _compiled(pattern).search(instance):
        yield ValidationError(f"does not match {pattern}")


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    """Compile a pattern: Go's $ matches only at the very end, Python's also before a last
    newline."""
    return re.compile(pattern[:-1] + r"\Z" if pattern.endswith("$") else pattern)


def _int_or_string(validator: Any, either: bool, instance: Any, schema: Any) -> Errors:
    if either and not (isinstance(instance, str) or _is_integer(None, instance)):
        yield ValidationError("is neither a whole number nor text")


def _repeated(validator: Any, list_type: str, instance: Any, schema: Mapping[str, Any]) -> Errors:
    """Yield repeated items of sets and repeated keys of list-maps."""
    if list_type not in ("set", "map") or not isinstance(instance, list):
        return
    key = schema.get("x-kubernetes-list-map-keys", [None])[0]
    seen: set[str] = set()
    for number, item in enumerate(instance):
        identity = item.get(key) if list_type == "map" and isinstance(item, dict) else item
        if not isinstance(identity, str):
            continue
        if identity in seen:
            yield ValidationError("is listed twice", path=(number,), instance=identity)
        seen.add(identity)
