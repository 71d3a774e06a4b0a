"""Rights as sets of (API group, resource, verb): of roles, of the docs, and of what code calls."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from reconciler.kube import kinds
from reconciler.kube.kinds import Kind
from reconciler.operator.process.watch import WATCHED

Right = tuple[str, str, str]

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "operations" / "rbac.md"

VERBS = {
    "get": ("get",),
    "get_metadata": ("get",),
    "list": ("list",),
    "list_at": ("list",),
    "create": ("create",),
    "apply": ("create", "patch"),
    "patch": ("patch",),
    "replace": ("update",),
    "put_status": ("update",),
    "delete": ("delete",),
}
"""Method of reconciler.kube.api.Api -> verbs that the API server checks."""


def granted(rules: Iterable[Mapping[str, Any]]) -> set[Right]:
    return {
        (group, resource, verb)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def documented(section: str) -> set[Right]:
    """The tables of one section of the page."""
    text = PAGE.read_text().partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| ([a-z0-9.]+) \| ([a-z/]+) \| ([a-z, ]+) \|", text, re.MULTILINE)
    return {
        ("" if group == "core" else group, resource, verb)
        for group, resource, verbs in rows
        for verb in verbs.split(", ")
    }


def called() -> set[Right]:
    """What the operator's code calls, where the kind stands in the call; and what kopf watches."""
    found = {(kind.group, kind.plural, verb) for kind in WATCHED for verb in ("list", "watch")}
    for package in ("kube", "operator"):
        for path in sorted((ROOT / "reconciler" / package).rglob("*.py")):
            found |= set(_calls(ast.parse(path.read_text())))
    return found


def _calls(tree: ast.AST) -> Iterator[Right]:
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args):
            continue
        if not _is_api(node.func.value):
            continue
        method, first = node.func.attr, node.args[0]
        kind = getattr(kinds, first.id, None) if isinstance(first, ast.Name) else None
        if method in VERBS and isinstance(kind, Kind):
            resource = kind.plural + ("/status" if method == "put_status" else "")
            yield from ((kind.group, resource, verb) for verb in VERBS[method])


def _is_api(receiver: ast.expr) -> bool:
    """`api`, `self._api`, `runtime.api`; within Api itself, `self`."""
    if isinstance(receiver, ast.Name):
        return receiver.id in ("api", "self")
    return isinstance(receiver, ast.Attribute) and receiver.attr in ("api", "_api")
