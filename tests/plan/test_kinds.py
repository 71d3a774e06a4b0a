"""Only an action knows of which kind it is; whoever carries kinds out registers by type."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterable, Iterator

import pytest

from reconciler.plan.actions import KINDS, action_from_canonical
from reconciler.plan.actions.base import Action
from reconciler.plan.ordering import ORDERINGS
from tests.sources import PACKAGE, nodes

FAMILIES = {
    parent.__name__
    for kind in KINDS.values()
    for parent in inspect.getmro(kind)
    if issubclass(parent, Action) and parent is not Action
}
NAMES = {*KINDS, *ORDERINGS, *FAMILIES, "Arrival"}
HOME = ("plan/actions/", "plan/ordering.py", "engines/actions/__init__.py",
        "spark/commit/metadata_changes.py", "commit/metadata_changes.py")  # fmt: skip
DECLARES = ("api/",)
"""Documents spell the orderings that a policy may name."""


def modules() -> dict[str, list[ast.AST]]:
    named = {path.relative_to(PACKAGE).as_posix(): every for path, every in nodes().items()}
    return {name: every for name, every in named.items() if not name.startswith(HOME + DECLARES)}


def orders(key: ast.expr) -> bool:
    """Whether the key of a table is the class of an ordering: who sorts registers by it."""
    return isinstance(key, ast.Name) and key.id in {one.__name__ for one in ORDERINGS.values()}


def sides(node: ast.AST) -> Iterator[ast.AST]:
    """What a node compares, or looks up by text or by class."""
    if isinstance(node, ast.Compare):
        yield from (node.left, *node.comparators)
    elif isinstance(node, ast.Call) and getattr(node.func, "id", "") in (
        "isinstance",
        "issubclass",
    ):
        yield node.args[1]
    elif isinstance(node, ast.match_case):
        yield node.pattern
    elif isinstance(node, ast.Dict):
        yield from (key for key in node.keys if key is not None and not orders(key))
    elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        yield node.slice
    elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") in ("get", "register"):
        yield from node.args[:1]


def decided_by(node: ast.AST) -> Iterator[ast.AST]:
    """What a node decides by."""
    if isinstance(node, ast.If | ast.IfExp | ast.While | ast.Assert):
        yield node.test
    elif isinstance(node, ast.comprehension):
        yield from node.ifs
    elif isinstance(node, ast.BoolOp):
        yield from node.values
    elif isinstance(node, ast.UnaryOp):
        yield node.operand
    elif isinstance(node, ast.Compare):
        yield from (node.left, *node.comparators)
    elif isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("any", "all", "bool"):
        yield from (getattr(part, "elt", part) for part in node.args)


def asked(every: Iterable[ast.AST]) -> list[tuple[int, str]]:
    """Where a module switches on the name, the class or the work of a kind."""
    found = []
    for node in every:
        for side in sides(node):
            for part in ast.walk(side):
                name = getattr(part, "id", None) or getattr(part, "value", None)
                if isinstance(name, str) and name in NAMES:
                    found.append((getattr(part, "lineno", 0), name))
        for test in decided_by(node):
            if isinstance(test, ast.Attribute) and test.attr == "work":
                found.append((test.lineno, "work"))
    return sorted(set(found))


def test_no_module_asks_of_which_kind_an_action_is() -> None:
    found = {name: asked(every) for name, every in modules().items()}
    assert {name: places for name, places in found.items() if places} == {}


def test_the_search_finds_what_it_looks_for() -> None:
    code = "\n".join(
        (
            "if a.kind == 'BinPack': ...",
            "if isinstance(a, (Cluster, Hilbert)): ...",
            "x = {SetProperties: 1}['Recluster']",
            "if a.work: ...",
            "y = [a for a in b if not a.work]",
            "z = any(a.work for a in b) or a.work == 'sort'",
            "issubclass(a, Rewrite)",
            "run.register(SetSortOrder)",
        )
    )
    assert asked(ast.walk(ast.parse(code))) == [
        (1, "BinPack"), (2, "Cluster"), (2, "Hilbert"), (3, "Recluster"), (3, "SetProperties"),
        (4, "work"), (5, "work"), (6, "work"), (7, "Rewrite"), (8, "SetSortOrder"),
    ]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_every_kind_is_listed_under_its_name_and_survives_its_canonical_form(kind: type) -> None:
    assert KINDS[kind.kind] is kind
    body = {"type": kind.kind, "properties": {"a": {"old": None, "new": "b"}}, "inputs": ["x"]}
    action = action_from_canonical(body)
    assert type(action) is kind
    assert action_from_canonical(action.canonical()) == action


def test_every_kind_has_an_executor() -> None:
    from reconciler.engines.actions import EXECUTORS

    assert set(EXECUTORS) == set(KINDS.values())
    assert not any(inspect.isabstract(executor) for executor in EXECUTORS.values())
