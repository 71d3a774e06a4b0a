"""What plain JSON Schema says of a document: the published schema, read by jsonschema's own class.

It knows nothing of Kubernetes' keywords, so it is checked against a document without nulls. Unknown
fields are left out, because nulls of them are errors too.
"""

from __future__ import annotations

import copy
from functools import cache
from typing import Any

import jsonschema

from reconciler.api.schema import editor_schema


def _is_integer(checker: Any, value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


Validator = jsonschema.validators.extend(
    jsonschema.Draft202012Validator,
    type_checker=jsonschema.Draft202012Validator.TYPE_CHECKER.redefine("integer", _is_integer),
)


@cache
def plain_validator(kind: str) -> Any:
    schema = _open(copy.deepcopy(editor_schema(kind)))
    del schema["properties"]["status"]
    return Validator(schema)


def _open(node: Any) -> Any:
    r"""Allow unknown fields, and end patterns in \Z: Python's $ also matches before a newline."""
    if isinstance(node, list):
        return [_open(item) for item in node]
    if not isinstance(node, dict):
        return node
    kept = {name: _open(item) for name, item in node.items()}
    if kept.get("additionalProperties") is False:
        del kept["additionalProperties"]
    pattern = kept.get("pattern")
    if isinstance(pattern, str) and pattern.endswith("$"):
        kept["pattern"] = pattern[:-1] + r"\Z"
    return kept


def without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    return [without_nulls(item) for item in value] if isinstance(value, list) else value
