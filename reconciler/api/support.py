"""The table of fields that are part of the API but that this version does not act on yet.

`validate` and `plan` list them if they differ from their default, and Automatic approval refuses a
policy that sets one: nobody may rely on a limit or a mode that is not enforced. Fields that only
the operator acts on are marked as such.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from reconciler.api.document_codec import to_document
from reconciler.api.documents import Document
from reconciler.api.schema import (
    CATALOG,
    POLICY,
    TABLE_LAYOUT,
    canonical_scalar,
    spec_schema,
    structural_schema,
    with_defaults,
)
from reconciler.api.source import Path

NOT_ACTED_ON: dict[str, tuple[tuple[str, str], ...]] = {
    POLICY: (
        ("spec.interval", "layoutctl observes a table when a command needs it"),
        ("spec.recommend", "layoutctl recommend TABLE recommends when it is called"),
        ("spec.engine.driver", "plans run on this machine, with what it has"),
        ("spec.engine.executors", "plans run on this machine, with what it has"),
        ("spec.engine.maxConcurrentJobs", "layoutctl carries out one plan at a time"),
    ),
    TABLE_LAYOUT: (
        ("spec.suspend", "only the operator reads TableLayouts"),
        ("spec.approvedPlan", "only the operator reads TableLayouts"),
    ),
    CATALOG: (
        ("spec.secretRef", "credentials come from pyiceberg's configuration and environment"),
        ("spec.interval", "catalogs are listed when layoutctl is called"),
        ("spec.timeout", "--timeout limits a call to the catalog"),
        ("spec.system.plans.retention", "only the operator removes published plans"),
        ("spec.jobs", "plans run on this machine"),
        ("spec.workload", "layoutctl workload import reads queries"),
    ),
}
"""Kind -> (field, what applies instead). A field includes everything below it."""

OPERATORS: dict[str, tuple[str, ...]] = {
    POLICY: tuple(field for field, _ in NOT_ACTED_ON[POLICY]),
    TABLE_LAYOUT: ("spec.suspend", "spec.approvedPlan"),
    CATALOG: tuple(field for field, _ in NOT_ACTED_ON[CATALOG]),
}
"""Kind -> fields of the table above that the operator acts on.

Ignoring them in layoutctl makes nothing less safe: Automatic approval is not refused for them.
"""


def instead(kind: str, path: str) -> str:
    """Return what applies instead of a field that is not acted on, "" for any other."""
    return next((text for field, text in NOT_ACTED_ON[kind] if _covers(field, path)), "")


def is_operators(kind: str, path: str) -> bool:
    """Whether the operator acts on the field."""
    return any(_covers(field, path) for field in OPERATORS[kind])


def unheld(fields: Iterable[str]) -> list[str]:
    """Return those of a policy's fields ignored by layoutctl that the operator ignores too."""
    return [path for path in fields if not is_operators(POLICY, path)]


def _covers(field: str, path: str) -> bool:
    return path == field or path.startswith(f"{field}.")


def not_acted_on(document: Document) -> list[str]:
    """Return the paths of the fields that this version ignores although they are not at their
    default."""
    body = to_document(document)
    return _ignored(body["kind"], body["spec"])


def ignored_of(kind: str, body: Mapping[str, Any], broken: Iterable[Path]) -> list[str]:
    """Return the same for a document with faults, as far as it can be read."""
    spec = with_defaults(body, structural_schema(kind)).get("spec")
    holder = {"spec": spec} if isinstance(spec, dict) else {}
    for path in broken:
        _drop(holder, path)
    return _ignored(kind, holder["spec"]) if holder.get("spec") else []


def _ignored(kind: str, spec: Mapping[str, Any]) -> list[str]:
    return [path for path in _differing(spec, spec_schema(kind), "spec") if instead(kind, path)]


def _drop(value: Any, path: Path) -> None:
    """Remove the value at the path; of a list with a fault in it, the whole list."""
    for number, part in enumerate(path):
        if not isinstance(value, dict) or part not in value:
            return
        if number == len(path) - 1 or isinstance(value[part], list):
            del value[part]
            return
        value = value[part]


def _differing(value: Mapping[str, Any], schema: Mapping[str, Any], path: str) -> Iterator[str]:
    """Yield the paths of leaves and lists that differ from the defaults of an empty parent."""
    defaults = with_defaults({}, schema)
    for name, child in schema["properties"].items():
        if name not in value:
            continue
        here = f"{path}.{name}"
        if "properties" in child and name in defaults:
            yield from _differing(value[name], child, here)
        elif not equal_to_default(value[name], defaults.get(name), child):
            yield here


def equal_to_default(value: Any, default: Any, schema: Mapping[str, Any]) -> bool:
    """Whether a leaf or list means the same as its default ("60m" is "1h")."""
    if default is None or isinstance(value, (list, dict)):
        return bool(value == default or (not value and default is None and value == []))
    return bool(canonical_scalar(value, schema) == canonical_scalar(default, schema))
