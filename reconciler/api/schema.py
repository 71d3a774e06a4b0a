"""The documents' schema, read from the CRDs: the only source of fields, defaults and bounds.

Validation reads `structural_schema`, editors read `editor_schema`, parsing applies `with_defaults`.
The CRDs are beside this module in an installed wheel and in crds/ in a checkout.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from reconciler.api.quantities import (
    decimal_units,
    parse_bytes,
    parse_decimal,
    parse_duration,
)
from reconciler.api.version import API_VERSION, GROUP, VERSION
from reconciler.errors import InternalError

POLICY, TABLE_LAYOUT, CATALOG = "TableLayoutPolicy", "TableLayout", "IcebergCatalog"
AUDITED_TABLE, MAIN_TABLE = "{table}", "{main}"
"""What stands in spec.safety.check for the table with a rewrite and for the table without it."""

_FILES = {
    POLICY: "tablelayoutpolicies.yaml",
    TABLE_LAYOUT: "tablelayouts.yaml",
    CATALOG: "icebergcatalogs.yaml",
}
KINDS = tuple(_FILES)

NAME_PATTERN = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
NAMESPACE_PATTERN = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
_TEXT_MAP = {"type": "object", "maxProperties": 1024, "additionalProperties": {"type": "string"}}
_METADATA: dict[str, Any] = {
    # ObjectMeta is defined by Kubernetes; these are the parts that people write.
    "type": "object",
    "description": "Name, namespace, labels and annotations, as of every Kubernetes object.",
    "required": ["name"],
    "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": 253, "pattern": NAME_PATTERN},
        "namespace": {
            "type": "string",
            "minLength": 1,
            "maxLength": 63,
            "pattern": NAMESPACE_PATTERN,
        },
        "labels": _TEXT_MAP,
        "annotations": _TEXT_MAP,
    },
}
SERVER_METADATA = frozenset(
    {
        "creationTimestamp",
        "deletionGracePeriodSeconds",
        "deletionTimestamp",
        "finalizers",
        "generateName",
        "generation",
        "managedFields",
        "ownerReferences",
        "resourceVersion",
        "selfLink",
        "uid",
    }
)
"""Fields of ObjectMeta that a printed object contains and that are not checked."""


def crd_directory() -> Path:
    """Return the directory of the CRDs: in the package if installed, at the top of the tree in a
    checkout."""
    here = Path(__file__).resolve().parent
    for directory in (here / "crds", here.parents[1] / "crds"):
        if (directory / _FILES[POLICY]).is_file():
            return directory
    raise InternalError(
        "the CRDs are missing from this installation",
        details=(f"looked in {here / 'crds'} and {here.parents[1] / 'crds'}",),
        do="install the package again",
    )


@cache
def crd(kind: str) -> dict[str, Any]:
    """Return the CustomResourceDefinition of one of KINDS, as loaded. Read-only."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    text = (crd_directory() / _FILES[kind]).read_text(encoding="utf-8")
    loaded: dict[str, Any] = yaml.load(text, Loader=loader)
    return loaded


def version_of(kind: str) -> dict[str, Any]:
    """Return the v1alpha1 entry of the CRD: schema, printer columns, subresources."""
    return next(v for v in crd(kind)["spec"]["versions"] if v["name"] == VERSION)


@cache
def structural_schema(kind: str) -> dict[str, Any]:
    """Return the structural schema of the whole document, with metadata filled in. Read-only."""
    schema: dict[str, Any] = copy.deepcopy(version_of(kind)["schema"]["openAPIV3Schema"])
    schema["properties"]["metadata"] = _METADATA
    schema["required"] = ["apiVersion", "kind", "metadata", *schema["required"]]
    schema["properties"]["apiVersion"]["enum"] = [API_VERSION]
    schema["properties"]["kind"]["enum"] = [kind]
    return schema


def spec_schema(kind: str) -> dict[str, Any]:
    schema: dict[str, Any] = structural_schema(kind)["properties"]["spec"]
    return schema


_BOUNDS = ("minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems", "maxProperties")
_KEPT = frozenset(
    {"type", "description", "default", "enum", "pattern", "required", "allOf", *_BOUNDS}
)


def _json_schema(node: Mapping[str, Any]) -> dict[str, Any]:
    """Return the standard JSON Schema of a structural schema. Unknown fields fail."""
    out: dict[str, Any] = {key: value for key, value in node.items() if key in _KEPT}
    if node.get("x-kubernetes-int-or-string"):
        out["type"] = ["integer", "string"]
    if node.get("x-kubernetes-list-type") == "set":
        out["uniqueItems"] = True
    if "items" in node:
        out["items"] = _json_schema(node["items"])
    if "properties" in node:
        out["properties"] = {
            name: _json_schema(child) for name, child in node["properties"].items()
        }
        out["additionalProperties"] = False
    if isinstance(node.get("additionalProperties"), dict):
        child = node["additionalProperties"]
        out["additionalProperties"] = _json_schema(child)
    return out


def editor_schema(kind: str) -> dict[str, Any]:
    """Return the schema for editors and other tools: standard JSON Schema that also refuses unknown
    fields."""
    schema = _json_schema(copy.deepcopy(structural_schema(kind)))
    for name in sorted(SERVER_METADATA):
        schema["properties"]["metadata"]["properties"][name] = {}
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": kind}
    return head | schema


def editor_schema_of_all() -> dict[str, Any]:
    """Return one schema for files with several kinds: `kind` selects."""
    branches = [
        {
            "if": {"properties": {"kind": {"const": kind}}, "required": ["kind"]},
            "then": {key: value for key, value in editor_schema(kind).items() if key != "$schema"},
        }
        for kind in KINDS
    ]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": GROUP,
        "type": "object",
        "required": ["apiVersion", "kind"],
        "properties": {"kind": {"enum": list(KINDS)}},
        "allOf": branches,
    }


def with_defaults(value: Any, schema: Mapping[str, Any]) -> Any:
    """Return a copy of `value` as the API server would store it.

    Nulls are dropped, defaults filled in, unknown fields pruned. Values of a wrong type do not
    change.
    """
    if isinstance(value, dict):
        return _mapping_with_defaults(value, schema)
    if isinstance(value, list):
        return [with_defaults(item, schema.get("items", {})) for item in value]
    return value


def _mapping_with_defaults(value: dict[Any, Any], schema: Mapping[str, Any]) -> dict[Any, Any]:
    properties = schema.get("properties")
    if properties is None:
        child = schema.get("additionalProperties")
        schema_of_child = child if isinstance(child, dict) else {}
        present = {key: item for key, item in value.items() if item is not None}
        return {key: with_defaults(item, schema_of_child) for key, item in present.items()}
    out: dict[Any, Any] = {}
    for name, child in properties.items():
        if value.get(name) is not None:
            out[name] = with_defaults(value[name], child)
        elif "default" in child:
            out[name] = with_defaults(copy.deepcopy(child["default"]), child)
    return out


def canonical_scalar(value: Any, schema: Mapping[str, Any]) -> Any:
    """Return a leaf as it is compared and hashed: quantities as whole numbers, the rest
    unchanged."""
    kind = quantity_kind(schema)
    if kind == "bytes":
        return value if value == "Auto" else parse_bytes(value)
    if kind == "duration":
        return parse_duration(value)
    if kind == "decimal":
        return decimal_units(parse_decimal(value))
    return value


_DURATION_PATTERN = r"^([0-9]+h)?([0-9]+m)?([0-9]+s)?$"
_DECIMAL_TAIL = r"(\.[0-9]{1,4})?$"


def quantity_kind(schema: Mapping[str, Any]) -> str | None:
    """Return "bytes", "duration" or "decimal" for a leaf that is a quantity, else None."""
    if schema.get("x-kubernetes-int-or-string"):
        return "bytes"
    pattern = schema.get("pattern", "")
    if pattern == _DURATION_PATTERN:
        return "duration"
    return "decimal" if pattern.endswith(_DECIMAL_TAIL) else None


def walk_schema(
    schema: Mapping[str, Any], path: str = ""
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield every node as (path, node); list items as `path[]`, values of a map as `path.<key>`."""
    yield path, schema
    for name, child in schema.get("properties", {}).items():
        yield from walk_schema(child, f"{path}.{name}" if path else name)
    if "items" in schema:
        yield from walk_schema(schema["items"], f"{path}[]")
    if isinstance(schema.get("additionalProperties"), dict):
        yield from walk_schema(schema["additionalProperties"], f"{path}.<key>")
