"""The policy reference, docs/reference/policy.md, written from the CRDs.

    python -m reconciler.api.reference > docs/reference/policy.md

A test holds the page equal to what this prints.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any

from reconciler.api.catalog_checks import REQUIRED
from reconciler.api.catalog_properties import CATALOG_PROPERTIES, HEADER, REST
from reconciler.api.conditions import EXPLANATIONS, ConditionType
from reconciler.api.quantities import format_bytes
from reconciler.api.rules import RULES
from reconciler.api.schema import (
    CATALOG,
    KINDS,
    POLICY,
    crd,
    quantity_kind,
    version_of,
    walk_schema,
)
from reconciler.api.support import NOT_ACTED_ON, is_operators
from reconciler.api.version import API_VERSION

_HEAD = f"""\
# Policy reference

<!-- Written by `python -m reconciler.api.reference` from crds/. Change those, not this page. -->

Every field of the `{API_VERSION}` documents, with its meaning, default and bounds. This page,
`kubectl explain`, `layoutctl schema` and `layoutctl validate` are all generated from the CRDs in
`crds/`.

**How values are written.** A *size* is a whole number of bytes, or one with Ki, Mi, Gi, Ti or Pi
(`512Mi`). A *duration* is hours, minutes and seconds (`1h30m`, `168h`). A *decimal* is text in
quotes (`"1.5"`). Text that YAML 1.1 reads as a boolean or a number (`y`, `on`, `2024`) must be
quoted; `layoutctl validate` says where. An absent field and `null` mean the default.
"""


_RESULT = """\
## Validation result

`layoutctl validate -o json` and `-o yaml` print one object of kind `ValidationResult`:

| Field | Meaning |
|---|---|
| `valid` | false if any problem is an error; the exit code is then 1 |
| `files` | YAML files read |
| `skipped` | documents of other kinds, which are not checked |
| `documents[]` | each valid document: `kind`, `namespace`, `name`, `file`, `line` |
| `problems[]` | `severity` (error, warning), `file`, `line`, `column`, `field`, `message`, `hint` |

`line` and `column` count from 1 and are null if a problem has no position. `hint` may be empty.
"""


def reference() -> str:
    """The whole page."""
    parts = [_HEAD]
    for kind in (POLICY, CATALOG, *(k for k in KINDS if k not in (POLICY, CATALOG))):
        parts += _kind(kind)
    parts += [_properties(), _conditions(), _RESULT]
    return "\n".join(parts)


def _kind(kind: str) -> Iterator[str]:
    names = crd(kind)["spec"]["names"]
    version = version_of(kind)
    schema = version["schema"]["openAPIV3Schema"]
    short = ", ".join(f"`{name}`" for name in names["shortNames"])
    yield f"## {kind}\n\n{schema['description']}\n\nShort name {short}, category `lakehouse`.\n"
    yield _table("Spec", schema["properties"]["spec"], "spec")
    yield _rules(kind)
    yield _ignored(kind)
    yield _table("Status", schema["properties"]["status"], "status")
    columns = ", ".join(f"`{column['name']}`" for column in version["additionalPrinterColumns"])
    yield f"`kubectl get {names['plural']}` shows {columns}.\n"


def _table(title: str, schema: Mapping[str, Any], root: str) -> str:
    rows = [
        f"| `{path.removeprefix(root + '.')}` | {_type(node)} | {_default(node)} "
        f"| {_about(node)}{_required(path, schema, root)} |"
        for path, node in walk_schema(schema, root)
        if path != root and not _is_plain_item(path, node)
    ]
    head = "| Field | Type | Default | Meaning |\n|---|---|---|---|"
    return f"### {title}\n\n{schema['description']}\n\n{head}\n" + "\n".join(rows) + "\n"


def _is_plain_item(path: str, node: Mapping[str, Any]) -> bool:
    """Items of lists of text say nothing that their list does not."""
    return path.endswith(("[]", ".<key>")) and node.get("type") != "object"


def _type(node: Mapping[str, Any]) -> str:
    quantity = quantity_kind(node)
    if quantity:
        size = {"bytes": "size"}.get(quantity, quantity)
        return f"`Auto` or size, {_range(node)}" if _auto(node) else f"{size}{_minimum(node)}"
    if "enum" in node:
        return " \\| ".join(f"`{choice}`" for choice in node["enum"])
    kind = node.get("type")
    if kind == "integer":
        return "integer" + (f", {_range(node)}" if "minimum" in node else "")
    if kind == "array":
        return _list_type(node)
    if kind == "string":
        return "text" + (f", at most {node['maxLength']:,}" if "maxLength" in node else "")
    if "additionalProperties" in node:
        return f"map of text, at most {node['maxProperties']}"
    return str(kind)


def _auto(node: Mapping[str, Any]) -> bool:
    return str(node.get("pattern", "")).startswith("^(Auto")


def _minimum(node: Mapping[str, Any]) -> str:
    low = node.get("minimum")
    return f", at least {format_bytes(low)}" if low else ""


def _range(node: Mapping[str, Any]) -> str:
    low, high = node["minimum"], node.get("maximum")
    if quantity_kind(node):
        return f"at least {format_bytes(low)}"
    return f"{low:,} to {high:,}" if high is not None else f"at least {low:,}"


def _list_type(node: Mapping[str, Any]) -> str:
    item = "objects" if node["items"].get("type") == "object" else "texts"
    kind = {"set": "set", "map": "list"}.get(node.get("x-kubernetes-list-type", ""), "list")
    keys = node.get("x-kubernetes-list-map-keys")
    by = f" by `{keys[0]}`" if keys else ""
    return f"{kind} of {item}{by}, {node.get('minItems', 0)} to {node['maxItems']:,}"


def _default(node: Mapping[str, Any]) -> str:
    default = node.get("default")
    if default is None or "properties" in node:
        return "-"
    if isinstance(default, bool):
        return f"`{str(default).lower()}`"
    if isinstance(default, list):
        return f"`[{', '.join(default)}]`"
    if isinstance(default, dict):
        return "`{" + ", ".join(f"{key}: {value}" for key, value in default.items()) + "}`"
    return f"`{default}`"


def _about(node: Mapping[str, Any]) -> str:
    return str(node.get("description", "")).replace("|", "\\|")


def _required(path: str, schema: Mapping[str, Any], root: str) -> str:
    """ " Required." where the parent demands the field."""
    parent, _, name = path.rpartition(".")
    for other, candidate in walk_schema(schema, root):
        if other == parent:
            return " **Required.**" if name in candidate.get("required", ()) else ""
    return ""


def _rules(kind: str) -> str:
    lines = [f"- `{rule.path}`: {rule.message}." for rule in RULES if rule.kind == kind]
    return "### Rules\n\n" + "\n".join(lines) + "\n"


def _ignored(kind: str) -> str:
    def lines(operators: bool) -> str:
        chosen = [item for item in NOT_ACTED_ON[kind] if is_operators(kind, item[0]) is operators]
        return "\n".join(f"- `{path}`: {instead}." for path, instead in chosen)

    parts = [
        "### Only for the operator\n\nThe operator acts on these fields; layoutctl does not. "
        f"`plan` and `validate` name each one that differs from its default.\n\n{lines(True)}"
    ]
    if lines(False):
        parts.insert(
            0,
            "### Not acted on yet\n\nThese fields are checked and kept, but this version does not "
            "act on them. `plan` and `validate` name each one that differs from its default, and "
            f"Automatic approval refuses a policy that sets one.\n\n{lines(False)}",
        )
    return "\n\n".join(parts) + "\n"


def _properties() -> str:
    rows = [
        f"| `{entry.name}` | {', '.join(sorted(entry.types))} "
        f"| {'Secret' if entry.secret else 'properties'} | {entry.description}"
        f"{_required_for(entry.name)} |"
        for entry in CATALOG_PROPERTIES
    ]
    rows.append(
        f"| `{HEADER}<name>` | {REST} | Secret if the name says that it is one | Header of every "
        "request to the catalog's server, such as a realm or a project. The client's own headers "
        "(`Host`, `Content-Type`, ...) cannot be set. |"
    )
    return (
        "## Catalog properties\n\nThe properties that are allowed in `spec.properties` of an "
        "IcebergCatalog, and in the Secret that `spec.secretRef` names. All others are refused.\n\n"
        "| Property | Types | Belongs in | Meaning |\n|---|---|---|---|\n" + "\n".join(rows) + "\n"
    )


def _required_for(name: str) -> str:
    types = sorted(kind for kind, names in REQUIRED.items() if name in names)
    return f" **Required for {' and '.join(types)}.**" if types else ""


def _conditions() -> str:
    sections = ["## Conditions\n"]
    for kind in ConditionType:
        rows = [
            f"| `{reason.value}` | {entry.cause} | {entry.remedy or '-'} |"
            for reason, entry in EXPLANATIONS.items()
            if kind in entry.types
        ]
        head = "| Reason | Cause | What to do |\n|---|---|---|"
        sections.append(f"### {kind.value}\n\n{head}\n" + "\n".join(rows) + "\n")
    return "\n".join(sections)


if __name__ == "__main__":
    sys.stdout.write(reference())
