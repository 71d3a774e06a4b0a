"""What benches take from the package and from the tests is there, and takes what they pass.

Benches run seldom: a renamed function or a new argument would be found by the person who needs the
figure. Nothing of a bench is run here.
"""

from __future__ import annotations

import ast
import importlib
import inspect
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).parents[1]
OURS = ("reconciler", "tests", "bench", "charts")
MISSING = object()


def named(module: str, name: str) -> Any:
    """Return what `from module import name` gives, MISSING if it fails."""
    try:
        found = importlib.import_module(module)
        if hasattr(found, name):
            return getattr(found, name)
        return importlib.import_module(f"{module}.{name}")
    except ImportError:
        return MISSING


def imported(tree: ast.AST) -> Iterator[tuple[int, str, str, Any]]:
    """Yield (line, text, name in the module, what it is) of each import of our own code."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in OURS:
            for one in node.names:
                text = f"{node.module}.{one.name}"
                yield node.lineno, text, one.asname or one.name, named(node.module or "", one.name)


def bound(tree: ast.AST) -> set[str]:
    """Return the names that the module binds in another way: they may be something else."""
    found = {node.id for node in ast.walk(tree)
             if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}  # fmt: skip
    found |= {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    kinds = (ast.FunctionDef, ast.ClassDef)
    return found | {node.name for node in ast.walk(tree) if isinstance(node, kinds)}


def stale(source: str) -> Iterator[str]:
    """Yield what a module of a bench takes from our code that is not there, or not like this."""
    tree, known = ast.parse(source), {}
    for line, text, name, found in imported(tree):
        if found is MISSING:
            yield f"{line}: {text} is not there"
        known[name] = found
    known = {name: known[name] for name in known.keys() - bound(tree)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            owner = known.get(node.value.id)
            if isinstance(owner, ModuleType) and not hasattr(owner, node.attr):
                yield f"{node.lineno}: {node.value.id}.{node.attr} is not there"
        elif isinstance(node, ast.Call):
            yield from wrong_call(node, target(node.func, known))


def target(called: ast.expr, known: dict[str, Any]) -> Any:
    if isinstance(called, ast.Name):
        return known.get(called.id)
    if isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name):
        owner = known.get(called.value.id)
        return getattr(owner, called.attr, None) if isinstance(owner, ModuleType | type) else None
    return None


def wrong_call(node: ast.Call, called: Any) -> Iterator[str]:
    """Yield that the arguments do not fit, where all of them are written out."""
    spread = any(isinstance(one, ast.Starred) for one in node.args)
    if spread or any(one.arg is None for one in node.keywords):
        return
    if not (inspect.isfunction(called) or inspect.isclass(called)) or called is MISSING:
        return
    try:
        signature = inspect.signature(called)
    except (TypeError, ValueError):
        return
    try:
        signature.bind(*node.args, **{str(one.arg): one for one in node.keywords})
    except TypeError as error:
        yield f"{node.lineno}: {ast.unparse(node.func)}: {error}"


def test_what_is_stale_is_found() -> None:
    source = (
        "from reconciler.format import iec, gone\nfrom reconciler.plan import reasons\n"
        "iec(1)\niec(1, 2, 3, 4)\nreasons.NO_SAMPLE\nreasons.NOWHERE\n"
    )
    assert [text.partition(":")[0] for text in stale(source)] == ["1", "4", "6"]


def test_benches_use_what_is_there() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{text}"
        for path in sorted((ROOT / "bench").rglob("*.py"))
        for text in stale(path.read_text())
    ]
    assert found == []
