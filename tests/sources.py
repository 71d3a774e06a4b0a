"""The parsed modules of the package, for the tests that read its source."""

from __future__ import annotations

import ast
import gc
from collections.abc import Mapping
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "reconciler"


@cache
def texts() -> Mapping[Path, str]:
    """Return the source of each module of the package, by its path, in order."""
    return {path: path.read_text(encoding="utf-8") for path in sorted(PACKAGE.rglob("*.py"))}


@cache
def trees() -> Mapping[Path, ast.Module]:
    """Return each module of the package, parsed once for all tests of a process.

    Nobody changes a tree. Garbage collection would visit the million nodes made so far again and
    again: with it parsing took six times as long.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        return {path: ast.parse(text) for path, text in texts().items()}
    finally:
        gc.freeze()
        if collects:
            gc.enable()


@cache
def nodes() -> Mapping[Path, list[ast.AST]]:
    """Return all nodes of each module of the package, in the order of `ast.walk`."""
    return {path: list(ast.walk(tree)) for path, tree in trees().items()}
