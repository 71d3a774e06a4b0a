"""Every field of a document and every setting changes what runs: some code reads it."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import textwrap
import typing
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any

import pytest
import typer

from reconciler.api.document_codec import document_fields
from reconciler.api.documents import CatalogSpec, PolicySpec, TableLayoutSpec
from reconciler.api.schema import CATALOG, POLICY, TABLE_LAYOUT
from reconciler.api.support import OPERATORS, instead
from reconciler.cli.main import build
from reconciler.operator.settings import OPTIONS
from tests.sources import PACKAGE, nodes, trees

PARSING = (PACKAGE / "api", PACKAGE / "operator" / "settings.py")
ACTING = (PACKAGE / "api" / "table_patterns.py",)
SPECS = ((POLICY, PolicySpec), (TABLE_LAYOUT, TableLayoutSpec), (CATALOG, CatalogSpec))


@cache
def read_by_code() -> frozenset[str]:
    """Names that some module reads, outside of those that parse and check documents: attributes,
    alone and behind the last name before them, and keys of documents as texts."""
    found: set[str] = set()
    for path, every in nodes().items():
        if path in ACTING or not any(path.is_relative_to(place) for place in PARSING):
            found.update(names_read(every))
    return frozenset(found)


def names_read(every: Iterable[ast.AST]) -> Iterator[str]:
    for node in every:
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            yield node.attr
            owner = node.value
            before = getattr(owner, "attr", None) or getattr(owner, "id", None)
            yield f"{before}.{node.attr}"
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield f'"{node.value}"'


def fields(cls: Any, path: str = "spec") -> Iterator[tuple[str, str]]:
    """(path in the document, attribute) of every field, those inside others after them."""
    for attribute, key, _, hint in document_fields(cls):
        yield f"{path}.{key}", attribute
        for inner in (hint, *typing.get_args(hint)):
            if dataclasses.is_dataclass(inner):
                yield from fields(inner, f"{path}.{key}")


def unacted(kind: str, path: str) -> bool:
    """Whether `validate` says that neither layoutctl nor the operator acts on the field."""
    operators = any(path == field or path.startswith(f"{field}.") for field in OPERATORS[kind])
    return bool(instead(kind, path)) and not operators


DOCUMENT_FIELDS = [
    (path, attribute)
    for kind, cls in SPECS
    for path, attribute in fields(cls)
    if not unacted(kind, path)
]


@pytest.mark.parametrize(("path", "attribute"), DOCUMENT_FIELDS)
def test_a_field_of_a_document_is_read(path: str, attribute: str) -> None:
    """A quantity that several parents have, such as retention_seconds, must be read of each."""
    *_, parent, key = path.split(".")
    wanted = {attribute, f'"{key}"'}
    alike = [other for _, other in DOCUMENT_FIELDS if other == attribute]
    if len(alike) > 1 and attribute.endswith(("_seconds", "_bytes")):
        wanted = {f"{parent}.{attribute}"}
    assert wanted & read_by_code(), f"no code acts on {path}"


@pytest.mark.parametrize("name", [option.name for option in OPTIONS])
def test_a_setting_of_the_operator_is_read(name: str) -> None:
    assert name in read_by_code(), f"no code acts on {name}"


def commands(app: typer.Typer) -> Iterator[Any]:
    for command in app.registered_commands:
        yield command.callback
    for group in app.registered_groups:
        if group.typer_instance is not None:
            yield from commands(group.typer_instance)


def test_a_parameter_of_a_command_is_used() -> None:
    unused = []
    for function in commands(build()):
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
        names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        declared = next(node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)).args
        given = [*declared.posonlyargs, *declared.args, *declared.kwonlyargs]
        unused += [f"{function.__name__} --{item.arg}" for item in given if item.arg not in names]
    assert not unused


def test_public_functions_of_the_operator_have_a_caller() -> None:
    used = {
        node.attr if isinstance(node, ast.Attribute) else node.id
        for every in nodes().values()
        for node in every
        if isinstance(node, (ast.Attribute, ast.Name))
    }
    uncalled = [
        f"{path.name}:{node.name}"
        for path, tree in trees().items()
        for node in tree.body
        if path.parent.name == "operator" and isinstance(node, ast.FunctionDef)
        if not node.name.startswith("_") and node.name not in used
    ]
    assert not uncalled
