"""Only an action knows of which kind it is; whoever carries kinds out registers by type."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import reconciler
from reconciler.plan.actions import KINDS, action_from_canonical
from reconciler.plan.ordering import ORDERINGS, Hilbert, Lexicographic

PACKAGE = Path(reconciler.__file__).parent
NAMES = {*KINDS, *ORDERINGS, "Arrival"}
HOME = ("plan/actions/", "plan/ordering.py", "spark/")
DECLARES = ("api/",)
"""Documents spell the orderings that a policy may name."""


def modules() -> list[Path]:
    every = sorted(PACKAGE.rglob("*.py"))
    return [p for p in every if not p.relative_to(PACKAGE).as_posix().startswith(HOME + DECLARES)]


def asked(tree: ast.AST) -> list[tuple[int, str]]:
    """Where a module compares something with the name or the class of a kind."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
        elif isinstance(node, ast.Call) and getattr(node.func, "id", "") == "isinstance":
            sides = [node.args[1]]
        elif isinstance(node, ast.match_case):
            sides = [node.pattern]
        else:
            continue
        for side in sides:
            for part in ast.walk(side):
                name = getattr(part, "id", None) or getattr(part, "value", None)
                if isinstance(name, str) and name in NAMES:
                    found.append((node.lineno if hasattr(node, "lineno") else 0, name))
    return found


@pytest.mark.parametrize("path", modules(), ids=lambda p: p.relative_to(PACKAGE).as_posix())
def test_no_module_asks_of_which_kind_an_action_is(path: Path) -> None:
    assert asked(ast.parse(path.read_text())) == []


def test_the_search_finds_what_it_looks_for() -> None:
    code = "if a.kind == 'BinPack': ...\nif isinstance(a, (Cluster, Hilbert)): ..."
    assert asked(ast.parse(code)) == [(1, "BinPack"), (2, "Cluster"), (2, "Hilbert")]


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_every_kind_is_listed_under_its_name_and_survives_its_canonical_form(kind: type) -> None:
    assert KINDS[kind.kind] is kind
    body = {"type": kind.kind, "properties": {"a": {"old": None, "new": "b"}}, "inputs": ["x"]}
    action = action_from_canonical(body)
    assert type(action) is kind
    assert action_from_canonical(action.canonical()) == action


def test_every_ordering_is_arranged_by_spark() -> None:
    from reconciler.spark.arrange import ARRANGED, CUTS

    assert set(ARRANGED) >= set(ORDERINGS.values())
    assert set(CUTS) == {Lexicographic, Hilbert}
