"""The CRDs themselves: structural, bounded, documented, and the only source of what is known."""

from __future__ import annotations

import dataclasses
import re
import shutil
import subprocess
import sys
import types
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from reconciler.api import documents
from reconciler.api.conditions import CONVERGED_ORDER, EXPLANATIONS, Reason, first_reason
from reconciler.api.document_codec import document_fields
from reconciler.api.reference import reference
from reconciler.api.rules import RULES
from reconciler.api.schema import (
    CATALOG,
    KINDS,
    POLICY,
    TABLE_LAYOUT,
    crd,
    crd_directory,
    editor_schema,
    editor_schema_of_all,
    spec_schema,
    version_of,
    walk_schema,
    with_defaults,
)

Node = dict[str, Any]


def raw(kind: str) -> Node:
    schema: Node = version_of(kind)["schema"]["openAPIV3Schema"]
    return schema


def nodes() -> Iterator[tuple[str, Node]]:
    for kind in KINDS:
        for path, node in walk_schema(raw(kind), kind):
            if path.partition(".")[2] not in ("apiVersion", "kind", "metadata"):  # Kubernetes' own
                yield path, dict(node)


def test_every_node_has_a_type_and_a_description() -> None:
    for path, node in nodes():
        assert node.get("type") or node.get("x-kubernetes-int-or-string"), path
        assert len(node.get("description", "")) > 3, path
        assert node["description"].rstrip().endswith(".")


def test_every_text_list_and_map_is_bounded() -> None:
    for path, node in nodes():
        if node.get("type") == "string" and "enum" not in node:
            assert "maxLength" in node, path
        if node.get("x-kubernetes-int-or-string"):
            assert {"maxLength", "minimum", "pattern"} <= node.keys(), path
        if node.get("type") == "array":
            assert "maxItems" in node and "x-kubernetes-list-type" in node, path
        if "additionalProperties" in node:
            assert "maxProperties" in node and "properties" not in node, path
        if node.get("type") == "integer":
            assert "minimum" in node and "format" in node, path


def test_map_keys_of_lists_are_required() -> None:
    for path, node in nodes():
        for key in node.get("x-kubernetes-list-map-keys", ()):
            assert key in node["items"]["required"], path


ABSENT = (
    "spec.recommend", "spec.maintenance", "spec.maintenance.expireSnapshots",
    "spec.maintenance.removeOrphans", "spec.maintenance.removeSpecs",
)  # fmt: skip
"""Objects whose absence means that nothing is done, whatever their fields' defaults."""


def test_objects_with_nested_defaults_are_defaulted_themselves() -> None:
    """Otherwise the API server would not reach the nested defaults of an absent object."""
    for kind in KINDS:
        spec = spec_schema(kind)
        for path, node in walk_schema(spec, "spec"):
            for name, child in node.get("properties", {}).items():
                nested = any("default" in deep for _, deep in _below(child))
                meant = f"{path}.{name}" in ABSENT or name in node.get("required", ())
                if nested and not meant:
                    assert "default" in child, f"{path}.{name}"


def _below(node: Any) -> Iterator[tuple[str, Any]]:
    for name, child in node.get("properties", {}).items():
        yield name, child
        yield from _below(child)


def test_nothing_that_yaml_turns_into_a_boolean_is_a_value_or_key() -> None:
    words = re.compile(r"(?i)y|n|yes|no|on|off|true|false|null|~|[0-9.]+")
    for path, node in nodes():
        if path.rpartition(".")[2] == "status" and "enum" in node:
            continue  # the status of a condition, "True" or "False", as in all of Kubernetes
        for choice in node.get("enum", ()):
            assert not words.fullmatch(choice), path
        for name in node.get("properties", {}):
            assert not words.fullmatch(name), path
        assert node.get("type") != "number", path


def test_patterns_are_understood_by_go_and_javascript_too() -> None:
    for path, node in nodes():
        for part in [node, *node.get("allOf", ())]:
            pattern = part.get("pattern", "")
            re.compile(pattern)
            assert "(?" not in pattern and "\\Z" not in pattern, path


def test_defaults_are_valid() -> None:
    for kind in KINDS:
        schema = editor_schema(kind)["properties"]["spec"]
        for path, node in walk_schema(schema, "spec"):
            if "default" in node:
                value = with_defaults(node["default"], node)
                jsonschema.Draft202012Validator(dict(node)).validate(value)
                assert value is not None, path


def test_the_rules_and_their_twins_are_the_same() -> None:
    def places(schema: Node) -> Iterator[tuple[str, Node]]:
        for path, node in walk_schema(schema):
            for rule in node.get("x-kubernetes-validations", ()):
                yield path, rule

    written = {
        (kind, path, rule.get("fieldPath", "").removeprefix("."), rule["message"], immutable(rule))
        for kind in KINDS
        for path, rule in places(raw(kind))
    }
    twins = {(r.kind, r.path, r.field, r.message, r.holds is None) for r in RULES}
    assert written == twins
    assert len(RULES) < 32


def test_a_default_satisfies_its_rules_as_it_is_written() -> None:
    """The API server evaluates them on the default alone, before nested defaults are filled in."""
    for rule in RULES:
        nodes_by_path = dict(walk_schema(raw(rule.kind)))
        default = nodes_by_path[rule.path].get("default")
        if default is not None and rule.holds is not None:
            assert rule.holds(default), rule


def immutable(rule: Node) -> bool:
    return "oldSelf" in rule["rule"]


@pytest.mark.parametrize(
    ("kind", "plural", "short"),
    [
        (POLICY, "tablelayoutpolicies", "tlp"),
        (TABLE_LAYOUT, "tablelayouts", "tl"),
        (CATALOG, "icebergcatalogs", "icat"),
    ],
)
def test_names_scope_status_and_columns(kind: str, plural: str, short: str) -> None:
    spec = crd(kind)["spec"]
    assert crd(kind)["metadata"]["name"] == f"{plural}.layout.lakehouse.dev"
    assert spec["names"]["shortNames"] == [short]
    assert spec["names"]["categories"] == ["lakehouse"]
    assert spec["scope"] == "Namespaced"
    assert version_of(kind)["subresources"] == {"status": {}}
    assert raw(kind)["properties"]["status"]["default"] == {"observedGeneration": -1}
    columns = {
        column["name"]: column["jsonPath"]
        for column in version_of(kind)["additionalPrinterColumns"]
    }
    assert {"Ready", "Age"} <= columns.keys()


SPECS = {
    POLICY: documents.PolicySpec,
    TABLE_LAYOUT: documents.TableLayoutSpec,
    CATALOG: documents.CatalogSpec,
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_typed_values_hold_every_field_and_no_other(kind: str) -> None:
    def compare(cls: Any, schema: Node, path: str) -> None:
        hints = {key: hint for _, key, _, hint in document_fields(cls)}
        assert hints.keys() == schema["properties"].keys(), path
        for key, hint in hints.items():
            child = schema["properties"][key]
            target = child["items"] if child.get("type") == "array" else child
            if "properties" in target and not _is_kubernetes(hint):
                compare(_dataclass_of(hint), target, f"{path}.{key}")

    compare(SPECS[kind], spec_schema(kind), "spec")


def _is_kubernetes(hint: Any) -> bool:
    """Kept as it is written: an affinity is passed on, not read."""
    return typing.get_origin(hint) is Mapping


def _dataclass_of(hint: Any) -> Any:
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is tuple:
        return _dataclass_of(typing.get_args(hint)[0])
    assert dataclasses.is_dataclass(hint)
    return hint


@pytest.mark.parametrize("kind", KINDS)
def test_enums_of_the_typed_values_are_those_of_the_schema(kind: str) -> None:
    def compare(cls: Any, schema: Node) -> None:
        for _, key, _, hint in document_fields(cls):
            child = schema["properties"][key]
            target = child["items"] if child.get("type") == "array" else child
            if "properties" in target:
                if not _is_kubernetes(hint):
                    compare(_dataclass_of(hint), target)
            elif "enum" in child and hint not in (str, str | None):
                (enum,) = (one for one in typing.get_args(hint) or (hint,) if one is not type(None))
                assert [item.value for item in enum] == child["enum"], key

    compare(SPECS[kind], spec_schema(kind))


@pytest.mark.parametrize("schema", [*(editor_schema(k) for k in KINDS), editor_schema_of_all()])
def test_editor_schemas_are_json_schema_without_kubernetes_extensions(schema: Node) -> None:
    jsonschema.Draft202012Validator.check_schema(schema)
    assert "x-kubernetes" not in str(schema)


def test_the_editor_schema_of_all_chooses_by_kind() -> None:
    validator = jsonschema.Draft202012Validator(editor_schema_of_all())
    body = {
        "apiVersion": "layout.lakehouse.dev/v1alpha1",
        "kind": POLICY,
        "metadata": {"name": "p"},
        "spec": {"catalogRef": {"name": "w"}, "tables": {"include": ["a.b"]}},
    }
    assert validator.is_valid(body)
    assert not validator.is_valid({**body, "kind": CATALOG})
    assert not validator.is_valid({**body, "spec": {**body["spec"], "nonsense": 1}})


def test_the_crds_of_a_checkout_lie_at_its_top() -> None:
    assert crd_directory() == Path(__file__).parents[2] / "crds"


def test_the_reference_page_is_current() -> None:
    page = Path(__file__).parents[2] / "docs" / "reference" / "policy.md"
    assert page.read_text(encoding="utf-8") == reference()


def test_every_reason_is_explained_and_every_obstacle_has_a_remedy() -> None:
    assert EXPLANATIONS.keys() == set(Reason)
    for reason, entry in EXPLANATIONS.items():
        assert entry.types and entry.cause.endswith(".")
        stalls = any(kind.value == "Stalled" for kind in entry.types)
        assert entry.remedy or not stalls, reason


def test_the_one_reason_of_converged_is_the_first_that_applies() -> None:
    assert first_reason({Reason.OVER_BUDGET, Reason.SUSPENDED}) is Reason.SUSPENDED
    assert first_reason(set()) is Reason.NOTHING_TO_DO
    assert CONVERGED_ORDER[-1] is Reason.OBJECTIVE_UNREACHABLE


def test_an_installed_package_finds_the_crds_beside_its_modules(tmp_path: Path) -> None:
    top = Path(__file__).parents[2]
    installed = tmp_path / "site" / "reconciler"
    shutil.copytree(top / "reconciler" / "api", installed / "api")
    shutil.copytree(top / "crds", installed / "api" / "crds")
    for name in ("__init__.py", "errors.py", "format.py"):
        shutil.copy(top / "reconciler" / name, installed / name)
    script = (
        "from reconciler.api.schema import crd, crd_directory, KINDS\n"
        "print(crd_directory(), [crd(kind)['kind'] for kind in KINDS])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True, text=True, timeout=60, cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path / "site")},
    )  # fmt: skip
    assert done.stdout.startswith(f"{installed / 'api' / 'crds'} ["), done.stderr
