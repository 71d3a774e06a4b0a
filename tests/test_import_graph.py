"""The import graph of the package has no circle: imports in functions and for type checks count."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

from tests.sources import nodes, texts

ROOT = Path(__file__).parents[1]


def modules() -> dict[str, Path]:
    found = {}
    for path in texts():
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imported(path: Path, known: dict[str, Path]) -> Iterator[str]:
    """Modules of the package that a file imports, wherever in it the import stands."""
    for node in nodes()[path]:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom) and node.module in known:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield inner if inner in known else str(node.module)


def circles(graph: dict[str, set[str]]) -> list[set[str]]:
    """The sets of modules that import each other, directly or through others."""
    reached: dict[str, set[str]] = {}
    for start in graph:
        seen: set[str] = set()
        waiting = [start]
        while waiting:
            for name in graph[waiting.pop()] - seen:
                seen.add(name)
                waiting.append(name)
        reached[start] = seen
    found = []
    for name in sorted(graph):
        circle = {other for other in reached[name] if name in reached[other]}
        if circle and circle not in found:
            found.append(circle)
    return found


def test_no_module_imports_one_that_imports_it() -> None:
    known = modules()
    graph = {name: set(imported(path, known)) - {name} for name, path in known.items()}
    assert len(graph) > 200
    assert circles(graph) == []


def test_a_circle_is_found() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a", "d2"}, "d2": set()}
    assert circles(graph) == [{"b", "c"}]


MODULE_OF = {"pyyaml": "yaml"}
READ_AS_DATA = {"tzdata"}
"""Dependencies without a module that anything imports: zoneinfo finds the files."""


def test_each_base_dependency_is_imported() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    names = {re.split(r"[^a-z0-9-]", text)[0] for text in project["dependencies"]}
    tops = set()
    for path in modules().values():
        for node in nodes()[path]:
            if isinstance(node, ast.Import):
                tops |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                tops.add(str(node.module).partition(".")[0])
    assert {MODULE_OF.get(name, name) for name in names - READ_AS_DATA} <= tops
