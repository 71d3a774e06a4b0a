"""Changes of a table's metadata that write no snapshot, as updates of a request."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from reconciler.commit.metadata import MAIN, Update
from reconciler.commit.table import State
from reconciler.table.statistics import under

UNSORTED = 0
"""Id of the sort order without fields."""


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


def keep_on_branch(state: State, name: str, snapshots: int) -> list[Update]:
    """Return what lets every expiry keep so many snapshots of a branch."""
    ref = {**state.refs[name], "min-snapshots-to-keep": snapshots}
    return [{"action": "set-snapshot-ref", "ref-name": name, **ref}]


def set_statistics(snapshot_id: int, document: Mapping[str, Any]) -> list[Update]:
    """Return what lists a statistics file under a snapshot."""
    return [{
        "action": "set-statistics", "snapshot-id": snapshot_id,
        "statistics": under(document, snapshot_id),
    }]  # fmt: skip


def add_spec(spec: Mapping[str, Any]) -> list[Update]:
    """Return what adds a partition spec, which writers do not follow yet."""
    return [{"action": "add-spec", "spec": dict(spec)}]


def set_spec(spec_id: int) -> list[Update]:
    return [{"action": "set-default-spec", "spec-id": spec_id}]


def remove_specs(spec_ids: Collection[int]) -> list[Update]:
    return [{"action": "remove-partition-specs", "spec-ids": sorted(spec_ids)}]


def add_column(
    state: State, schema: Mapping[str, Any], name: str, number: int, doc: str
) -> list[Update]:
    """Return what adds an optional int column to the present schema. number: its field id."""
    field = {"id": number, "name": name, "required": False, "type": "int", "doc": doc}
    newest = max(int(one["schema-id"]) for one in state.metadata["schemas"])
    wider = {**schema, "schema-id": newest + 1, "fields": [*schema["fields"], field]}
    return [
        {"action": "add-schema", "schema": wider, "last-column-id": number},
        {"action": "set-current-schema", "schema-id": -1},
    ]


def hold_counts(state: State) -> list[dict[str, Any]]:
    """Return requirements that nobody gave an id to a column or a partition field since."""
    columns, fields = (state.metadata[one] for one in ("last-column-id", "last-partition-id"))
    return [
        {"type": "assert-last-assigned-field-id", "last-assigned-field-id": columns},
        {"type": "assert-last-assigned-partition-id", "last-assigned-partition-id": fields},
    ]


def drop_branch(name: str) -> list[Update]:
    if name == MAIN:
        raise ValueError("main is not dropped")
    return [{"action": "remove-snapshot-ref", "ref-name": name}]
