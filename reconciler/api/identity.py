"""Returns the parts of a policy that determine a plan: the canonical inputs of policyHash
(docs/design/definitions.md#plan).

Only objectives, layout, recluster, deletes and maintenance: adding a table, a budget or an
approval must not void a reviewed plan. Fields equal to their default are left out, sets are sorted,
quantities are whole numbers, so that an explicit default, "60m" for "1h", or another order give the
same hash.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from reconciler.api.document_codec import policy_document
from reconciler.api.documents import PolicySpec, TableLayoutPolicy
from reconciler.api.schema import POLICY, canonical_scalar, spec_schema, with_defaults

HASHED = ("objectives", "layout", "recluster", "deletes", "maintenance")


def hash_inputs(policy: TableLayoutPolicy | PolicySpec | Mapping[str, Any]) -> dict[str, Any]:
    """Return canonical {objectives, layout, recluster, deletes, maintenance} of a policy, its spec,
    or a spec as read.

    {} for a policy that sets none of them.
    """
    spec = policy if isinstance(policy, Mapping) else policy_document(policy)
    schema = spec_schema(POLICY)
    found = {name: _canonical(spec.get(name), schema["properties"][name]) for name in HASHED}
    return {name: value for name, value in found.items() if value not in (None, {})}


def _canonical(value: Any, schema: Mapping[str, Any]) -> Any:
    """Return the canonical value, None if it is absent or equals its default."""
    if value is None:
        return None
    if "properties" in schema:
        return _object(value, schema)
    if "items" in schema:
        items = [_item(item, schema["items"]) for item in value]
        return sorted(items) if schema.get("x-kubernetes-list-type") == "set" else items
    return canonical_scalar(value, schema)


def _object(value: Mapping[str, Any], schema: Mapping[str, Any]) -> dict[str, Any]:
    out = {}
    defaults = with_defaults({}, schema)
    for name, child in schema["properties"].items():
        canonical = _canonical(value.get(name), child)
        if canonical in (None, []) or (canonical == {} and name in defaults):
            continue
        if name not in defaults or canonical != _canonical(defaults[name], child):
            out[name] = canonical
    return out


def _item(value: Any, schema: Mapping[str, Any]) -> Any:
    return _object(value, schema) if "properties" in schema else canonical_scalar(value, schema)
