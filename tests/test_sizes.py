"""A file has at most 450 lines, a function 45 and 7 parameters, so that a reader can hold them."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.sources import PACKAGE, nodes, texts

MOST_LINES, MOST_FUNCTION_LINES, MOST_PARAMETERS = 450, 45, 7
LARGER = {
    "advisor/advice.py": "the values that a decision takes and gives, each field explained",
    "api/documents.py": "the values of the documents, each field explained",
}
"""Files that are larger, by the reason. An entry goes when its file is split."""
LONGER = {
    "catalog/observe.py: observe_loaded": "it names each of the 32 fields of an observation",
}
"""Functions that are longer, their signature and docstring included, by the reason."""
COMMANDS = {
    "cli/apply.py: apply",
    "cli/explain.py: explain",
    "cli/observe.py: observe",
    "cli/plan.py: plan",
    "cli/recommend.py: recommend",
    "cli/replay.py: replay",
    "cli/report.py: report",
    "cli/review.py: review",
    "cli/route.py: route",
    "cli/status.py: status",
    "cli/top.py: top",
    "cli/undo.py: undo",
    "cli/workload.py: import_",
    "cli/workload.py: show",
}
"""Functions with more parameters: each is an option of a command, which typer reads there."""


def _functions() -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Yield the functions of the package by file and name, nested ones included."""
    for path, every in nodes().items():
        for node in every:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield f"{path.relative_to(PACKAGE)}: {node.name}", node


def _parameters(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Return how many values a caller gives; `self` and `cls` are none."""
    given = node.args
    named = [*given.posonlyargs, *given.args, *given.kwonlyargs]
    open_ended = [one for one in (given.vararg, given.kwarg) if one is not None]
    return len([one for one in (*named, *open_ended) if one.arg not in ("self", "cls")])


def test_files_have_at_most_450_lines() -> None:
    larger = {
        str(path.relative_to(PACKAGE))
        for path, text in texts().items()
        if text.count("\n") > MOST_LINES
    }
    assert larger == LARGER.keys()


def test_functions_have_at_most_45_lines() -> None:
    longer = {
        name
        for name, node in _functions()
        if (node.end_lineno or 0) - node.lineno + 1 > MOST_FUNCTION_LINES
    }
    assert longer == LONGER.keys()


def test_functions_have_at_most_7_parameters() -> None:
    wider = {name for name, node in _functions() if _parameters(node) > MOST_PARAMETERS}
    assert wider == COMMANDS
