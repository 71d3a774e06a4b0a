"""Changes of a table's metadata that write no snapshot, as updates of a request."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from reconciler.commit.metadata import MAIN, Update
from reconciler.commit.table import State
from reconciler.table.schema import SpecField
from reconciler.table.statistics import under

UNSORTED = 0
"""Id of the sort order without fields."""
FIRST_PARTITION_FIELD = 1000
"""Id of the first field of a partition spec."""


def set_properties(wanted: Mapping[str, str], dropped: Collection[str] = ()) -> list[Update]:
    found: list[Update] = []
    if wanted:
        found.append({"action": "set-properties", "updates": dict(wanted)})
    if dropped:
        found.append({"action": "remove-properties", "removals": sorted(dropped)})
    return found


def set_sort_order(state: State, wanted: Sequence[Mapping[str, Any]]) -> list[Update]:
    """Return what makes an order the table's. wanted: its fields as the specification writes them
    in JSON."""
    orders = state.metadata["sort-orders"]
    known = [one["order-id"] for one in orders if list(one["fields"]) == list(wanted)]
    if not wanted:
        known = known or [UNSORTED]
    if known and any(one["order-id"] == known[0] for one in orders):
        return [{"action": "set-default-sort-order", "sort-order-id": known[0]}]
    number = UNSORTED if not wanted else 1 + max(one["order-id"] for one in orders)
    order = {"order-id": number, "fields": [dict(one) for one in wanted]}
    return [
        {"action": "add-sort-order", "sort-order": order},
        {"action": "set-default-sort-order", "sort-order-id": -1},
    ]


def add_spec(state: State, wanted: Sequence[SpecField], names: Sequence[str]) -> list[Update]:
    """Return what adds a partition spec beside the present ones; writers keep the default one.

    names: of its fields. A field that another spec has keeps its id, as the specification asks.
    """
    specs = state.metadata["partition-specs"]
    known = {
        (int(one["source-id"]), str(one["transform"])): one
        for spec in specs
        for one in spec["fields"]
    }
    last = int(state.metadata.get("last-partition-id") or FIRST_PARTITION_FIELD - 1)
    made = []
    for one, name in zip(wanted, names, strict=True):
        field = known.get((one.source_id, one.transform))
        if field is None:
            last += 1
            field = {"source-id": one.source_id, "field-id": last, "transform": one.transform}
        made.append({**field, "name": name})
    number = 1 + max(int(spec["spec-id"]) for spec in specs)
    return [{"action": "add-spec", "spec": {"spec-id": number, "fields": made}}]


def set_default_spec(spec_id: int) -> list[Update]:
    return [{"action": "set-default-spec", "spec-id": spec_id}]


def add_column(state: State, name: str, kind: str, doc: str | None = None) -> list[Update]:
    """Return what adds an optional column at the end of the schema."""
    current = state.metadata["current-schema-id"]
    schemas = state.metadata["schemas"]
    schema = next(one for one in schemas if one["schema-id"] == current)
    number = int(state.metadata["last-column-id"]) + 1
    field = {"id": number, "name": name, "required": False, "type": kind}
    if doc:
        field["doc"] = doc
    made = {
        **schema,
        "schema-id": 1 + max(int(one["schema-id"]) for one in schemas),
        "fields": [*schema["fields"], field],
    }
    return [
        {"action": "add-schema", "schema": made, "last-column-id": number},
        {"action": "set-current-schema", "schema-id": -1},
    ]


def expire(snapshots: Collection[int], remembered: Mapping[str, str]) -> list[Update]:
    """Return what removes snapshots. remembered: properties that keep what they prove."""
    return [
        *set_properties(remembered),
        {"action": "remove-snapshots", "snapshot-ids": sorted(snapshots)},
    ]


def hold(state: State, branches: Collection[str]) -> list[dict[str, Any]]:
    """Return requirements that a branch or tag has the snapshot that it has now."""
    return [
        {"type": "assert-ref-snapshot-id", "ref": name, "snapshot-id": state.head(name)}
        for name in sorted(branches)
    ]


def set_branch(state: State, name: str, snapshot_id: int) -> list[Update]:
    """Return what points a branch at a snapshot: a new one, or one that is moved forward."""
    known = {key: value for key, value in state.refs.get(name, {}).items() if key != "snapshot-id"}
    ref = {"type": "branch", **known, "snapshot-id": snapshot_id}
    return [{"action": "set-snapshot-ref", "ref-name": name, **ref}]


def set_statistics(snapshot_id: int, document: Mapping[str, Any]) -> list[Update]:
    """Return what lists a statistics file under a snapshot."""
    return [{
        "action": "set-statistics", "snapshot-id": snapshot_id,
        "statistics": under(document, snapshot_id),
    }]  # fmt: skip


def drop_branch(name: str) -> list[Update]:
    if name == MAIN:
        raise ValueError("main is not dropped")
    return [{"action": "remove-snapshot-ref", "ref-name": name}]
