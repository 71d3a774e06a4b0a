"""Every class with five fields or more says under each field what it holds.

A field without such a line, or a class docstring that lists its fields as "name: fragment", makes a
reader look for the code that fills the field.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from tests.sources import PACKAGE, nodes

MANY = 5
PATHS = (
    "advisor", "commit", "loop", "operator", "plan", "queries", "render", "replay", "spark",
    "state", "workload_log",
)  # fmt: skip
"""Folders on the ways of a query and of a reconcile: there, no class describes a field in its own
docstring, however few fields it has."""


def is_text(node: ast.stmt | None) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def has_help(value: ast.expr | None) -> bool:
    """Whether the default is an option with a help text, which says the same to people."""
    return isinstance(value, ast.Call) and getattr(value.func, "id", "") == "_option"


def fields_of(node: ast.ClassDef) -> Iterator[tuple[str, bool]]:
    """The names of a class's fields, and whether a text follows. Constants of a class are none."""
    for statement, after in zip(node.body, [*node.body[1:], None], strict=True):
        if not isinstance(statement, ast.AnnAssign) or not isinstance(statement.target, ast.Name):
            continue
        if "ClassVar" not in ast.unparse(statement.annotation):
            yield statement.target.id, is_text(after) or has_help(statement.value)


def unexplained(every: Iterable[ast.AST]) -> Iterator[str]:
    """Return the fields without a text of their own, as "Class.field"."""
    for node in every:
        if not isinstance(node, ast.ClassDef):
            continue
        fields = list(fields_of(node))
        listed = f" {ast.get_docstring(node) or ''}".replace("\n", " ")
        if len(fields) >= MANY:
            yield from (
                f"{node.name}.{name}"
                for name, explained in fields
                if not explained or f" {name}: " in listed
            )


def test_no_class_on_the_ways_of_the_map_describes_its_fields_in_its_own_docstring() -> None:
    found = [
        f"{path.relative_to(PACKAGE)}: {node.name}.{name}"
        for path, every in nodes().items()
        if path.relative_to(PACKAGE).parts[0] in PATHS
        for node in every
        if isinstance(node, ast.ClassDef)
        for name, _ in fields_of(node)
        if f" {name}: " in f" {ast.get_docstring(node) or ''}".replace("\n", " ")
    ]
    assert found == []


def test_every_field_of_a_class_with_many_fields_has_a_text() -> None:
    found: dict[str, list[str]] = {}
    for path, every in nodes().items():
        place = path.relative_to(PACKAGE)
        names = list(unexplained(every))
        if names:
            found.setdefault(place.parts[0], []).extend(f"{place}: {name}" for name in names)
    assert found == {}


def test_fields_without_a_text_are_found() -> None:
    source = '''
class A:
    """The point. d: in metres."""

    a: int
    """Its first number."""
    b: int
    c: ClassVar[int] = 0
    d: int = 0
    """Its distance."""
    e: int = 0
    """Its fifth."""
    f: int = 0
    """Its sixth."""
'''
    assert list(unexplained(ast.walk(ast.parse(source)))) == ["A.b", "A.d"]
    assert not list(unexplained(ast.walk(ast.parse("class A:\n    a: int\n    b: int\n"))))
