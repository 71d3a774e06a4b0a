"""Edits a policy in a YAML file so that the difference touches only the changed fields.

Text is replaced and inserted at the positions of the YAML nodes: comments, order, quotes,
indentation, line ends and other documents stay as they are. Every edit is checked by parsing the
result: a file that cannot be edited so is not changed, and the caller prints the fields instead.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import yaml

from reconciler.api.source import Path, parse_yaml

Changes = Mapping[Path, Any]
"""New values (scalars, lists, flat mappings) by path in the document; None removes the field."""

_SAFE = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_WORDS = frozenset(("yes", "no", "on", "off", "y", "n", "true", "false", "null", "none"))
"""Read as other values by some YAML tools; `None` is a mode of ours and is written as it is."""


class CannotEditError(Exception):
    """The file cannot be edited without touching other text; the message says why."""


def edited(text: str, document: int, changes: Changes) -> str:
    """Return the text of the file with the changes in its n-th document, counted from 0.

    Raises CannotEditError if the result would differ in anything but the changed paths.
    """
    before, failure = parse_yaml(text, "")
    if failure is not None or document >= len(before):
        raise CannotEditError("it is not valid YAML")
    wanted = _with(before[document].value, changes)
    out = text
    for path, value in changes.items():
        if _at(before[document].value, path) != value:
            out = _one(out, document, path, value)
    after, failure = parse_yaml(out, "")
    same = failure is None and len(after) == len(before)
    for number, (old, new) in enumerate(zip(before, after, strict=same)):
        same = same and new.value == (wanted if number == document else old.value)
    if not same:
        raise CannotEditError("its structure cannot be edited in place")
    return out


def block(changes: Changes, indent: str = "") -> str:
    """Return the changes as YAML, to be merged by hand."""
    tree = _with({}, changes)
    return "\n".join(_lines(tree, indent))


def _lines(tree: Mapping[str, Any], indent: str) -> list[str]:
    lines = []
    for key, value in tree.items():
        if isinstance(value, dict) and any(isinstance(v, dict) for v in value.values()):
            lines += [f"{indent}{key}:", *_lines(value, indent + "  ")]
        else:
            lines.append(f"{indent}{key}: {flow(value)}")
    return lines


def flow(value: Any) -> str:
    """Return a value on one line, quoted if a plain scalar could be read as something else."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(flow(item) for item in value) + "]"
    if isinstance(value, str):
        plain = _SAFE.fullmatch(value) and (value.lower() not in _WORDS or value == "None")
        sized = re.fullmatch(r"[1-9][0-9]*(Ki|Mi|Gi|Ti)", value)
        return value if plain or sized else json.dumps(value, ensure_ascii=False)
    return json.dumps(value)


def _writer(text: str) -> Callable[[Any], str]:
    """Return what writes a value in the style of the file: a file of JSON has to stay JSON."""
    try:
        json.loads(text)
    except ValueError:
        return flow
    return lambda value: json.dumps(value, ensure_ascii=False)


def _at(value: Any, path: Path) -> Any:
    for part in path:
        value = value.get(part) if isinstance(value, dict) else None
    return value


def _with(value: Any, changes: Changes) -> Any:
    copy: Any = json.loads(json.dumps(value)) if value is not None else {}
    for path, new in changes.items():
        here = copy
        for part in path[:-1]:
            inner = here.get(part)
            if not isinstance(inner, dict):
                inner = here[part] = {}
            here = inner
        if new is None:
            here.pop(path[-1], None)
        else:
            here[path[-1]] = new
    return copy


def _one(text: str, document: int, path: Path, value: Any) -> str:
    """Return the text with one path changed."""
    nodes = list(yaml.compose_all(text, Loader=yaml.SafeLoader))
    node, rest, write = nodes[document], list(path), _writer(text)
    _refuse_aliases(text)
    while rest:
        if not isinstance(node, yaml.MappingNode):
            return _in_place(text, node, write(_nested(rest, value)))
        found = next(((k, v) for k, v in node.value if k.value == rest[0]), None)
        if found is None:
            return text if value is None else _inserted(text, node, rest, value, write)
        parent, (key, node) = node, found
        rest = rest[1:]
    if value is None:
        return _removed(text, parent, key, node)
    return _in_place(text, node, write(value))


def _refuse_aliases(text: str) -> None:
    """A node behind an alias is text of another place."""
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        if isinstance(event, yaml.AliasEvent):
            raise CannotEditError("it uses aliases")


def _nested(rest: Sequence[Any], value: Any) -> Any:
    for part in reversed(rest):
        value = {part: value}
    return value


def _in_place(text: str, node: Any, written: str) -> str:
    start, end = node.start_mark.index, _end(node)
    if isinstance(node, yaml.ScalarNode) and start == end:  # a key without a value
        return text[:start].rstrip(" ") + " " + written + text[end:]
    if isinstance(node, yaml.CollectionNode) and not node.flow_style:
        colon = text.rindex(":", 0, start)
        return text[: colon + 1] + " " + written + text[end:]
    return text[:start] + written + text[end:]


def _end(node: Any) -> int:
    """Return where the last scalar or bracket of a node ends; a block's own mark is far below."""
    if isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
        last = node.value[-1]
        return _end(last[1] if isinstance(last, tuple) else last)
    return int(node.end_mark.index)


def _inserted(
    text: str, node: Any, rest: Sequence[Any], value: Any, write: Callable[[Any], str]
) -> str:
    """Insert a field behind the last one of a mapping, in its style."""
    if node.flow_style:
        end = int(node.end_mark.index) - 1
        head = text[:end].rstrip()
        comma = "" if not node.value else " " if head.endswith(",") else ", "
        added = f"{write(rest[0])}: {write(_nested(rest[1:], value))}"
        return head + comma + added + text[end:]
    newline = "\r\n" if "\r\n" in text else "\n"
    indent = " " * node.value[0][0].start_mark.column
    end = _end(node)
    line_end = text.find("\n", end)
    at = len(text) if line_end < 0 else line_end - (text[line_end - 1] == "\r")
    lines = _lines({rest[0]: _nested(rest[1:], value)}, indent)
    return text[:at] + newline + newline.join(lines) + text[at:]


def _removed(text: str, parent: Any, key: Any, node: Any) -> str:
    """Remove a field: its lines from a block, or its part of a flow mapping."""
    start, end = int(key.start_mark.index), _end(node)
    if len(parent.value) == 1:
        raise CannotEditError("a field cannot be removed without its parent")
    if not parent.flow_style:
        first = text.rfind("\n", 0, start) + 1
        last = text.find("\n", end)
        if text[first:start].strip():
            raise CannotEditError("a field shares its line with a list item")
        return text[:first] + ("" if last < 0 else text[last + 1 :])
    number = next(i for i, (k, _) in enumerate(parent.value) if k is key)
    if number:
        before = _end(parent.value[number - 1][1])
        return text[:before] + text[end:]
    return text[:start] + text[int(parent.value[1][0].start_mark.index) :]
