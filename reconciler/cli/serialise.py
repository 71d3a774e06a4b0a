"""JSON and YAML of results, in one place, so that all verbs print them in the same form."""

from __future__ import annotations

import json
from json.encoder import encode_basestring
from typing import Any

from reconciler.cli.options import Output


def serialise(body: Any, output: Output) -> str:
    """Return the text with its final newline; key order as given."""
    if output is Output.JSON:
        return _indented(body, "\n") + "\n"
    import yaml

    text: str = yaml.safe_dump(body, sort_keys=False, allow_unicode=True)
    return text


def _indented(value: Any, line: str) -> str:
    """Return what `json.dumps(value, indent=2, ensure_ascii=False)` returns, in a third of its
    time. line: a line feed and the indentation of the value."""
    kind = type(value)
    if kind is str:
        return encode_basestring(value)
    if kind is int:
        return int.__repr__(value)
    inner = line + "  "
    if kind is dict and value:
        pairs = [f"{_name(key)}: {_indented(item, inner)}" for key, item in value.items()]
        return "{" + inner + ("," + inner).join(pairs) + line + "}"
    if (kind is list or kind is tuple) and value:
        return "[" + inner + ("," + inner).join([_indented(v, inner) for v in value]) + line + "]"
    return json.dumps(value, indent=2, ensure_ascii=False).replace("\n", line)


def _name(key: Any) -> str:
    """Return a key as JSON has it: text, whatever it is here."""
    if type(key) is str:
        return encode_basestring(key)
    return json.dumps({key: 0}, ensure_ascii=False)[1:-4]
