"""Typed actions: the unit of work that plan, approval, dry run and execution share.

The canonical form (definitions: Plan) is RFC 8785 JSON with default fields omitted. It holds no
floats, no predictions and no snapshot, so that an append does not change a plan's identity.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from reconciler.table.schema import SortColumn
from reconciler.table.values import Scalar


class ActionType(StrEnum):
    SET_PROPERTIES = "SetProperties"
    SET_SORT_ORDER = "SetSortOrder"
    BIN_PACK = "BinPack"
    CLUSTER = "Cluster"
    RECLUSTER = "Recluster"

    @property
    def rewrites(self) -> bool:
        return self in (ActionType.BIN_PACK, ActionType.CLUSTER, ActionType.RECLUSTER)

    @property
    def verb(self) -> str:
        """The word for it in plans, progress lines and refusals."""
        return _VERBS[self]


_VERBS = {
    ActionType.SET_PROPERTIES: "set",
    ActionType.SET_SORT_ORDER: "set",
    ActionType.BIN_PACK: "bin-pack",
    ActionType.CLUSTER: "cluster",
    ActionType.RECLUSTER: "recluster",
}


WORK_KINDS: Mapping[str, str] = {
    ActionType.BIN_PACK.value: "pack",
    ActionType.CLUSTER.value: "sort",
    ActionType.RECLUSTER.value: "sort",
}
"""Action types as the throughput model groups them; small files packed in key order are a pack."""


LEXICOGRAPHIC = "Lexicographic"
HILBERT = "Hilbert"


@dataclass(frozen=True, slots=True)
class Action:
    """One unit of planned work on one (spec id, partition), or one metadata change.

    partition: values of the spec's fields in their domain, () when unpartitioned.
    key: clustering key; empty for bin-pack without a key (rows keep their file's order).
    curve: LEXICOGRAPHIC | HILBERT (Hilbert needs two or more key columns).
    target_bytes, row_group_bytes: data file and row group size to write; 0 = the table's own.
    inputs: data file paths, the manifests' strings verbatim, sorted.
    properties_new: wanted values; properties_old: what they replace, None where unset.
    A SetSortOrder action carries its order in `key`; order_old: the order it replaces, a term per
    sort field (`sort_term`), () when unsorted.
    """

    type: ActionType
    spec_id: int = 0
    partition: tuple[Scalar | None, ...] = ()
    key: tuple[SortColumn, ...] = ()
    curve: str = LEXICOGRAPHIC
    target_bytes: int = 0
    row_group_bytes: int = 0
    inputs: tuple[str, ...] = ()
    properties_old: tuple[tuple[str, str | None], ...] = ()
    properties_new: tuple[tuple[str, str], ...] = ()
    order_old: tuple[str, ...] = ()

    def canonical(self) -> dict[str, Any]:
        """Return the form that serialises to JSON: no floats, fields equal to their default
        omitted."""
        body: dict[str, Any] = {"type": self.type.value}
        if self.type.rewrites:
            body["specId"] = self.spec_id
            if self.partition:
                body["partition"] = [encode_partition_value(v) for v in self.partition]
            body["inputs"] = sorted(self.inputs)
        if self.key:
            body["key"] = [{"fieldId": c.field_id, "direction": c.direction} for c in self.key]
        if self.curve != LEXICOGRAPHIC:
            body["curve"] = self.curve
        if self.target_bytes:
            body["targetBytes"] = self.target_bytes
        if self.row_group_bytes:
            body["rowGroupBytes"] = self.row_group_bytes
        if self.properties_new:
            body["properties"] = {
                name: {"old": dict(self.properties_old).get(name), "new": value}
                for name, value in self.properties_new
            }
        if self.order_old:
            body["orderOld"] = list(self.order_old)
        return body


def layout_of(action: Action) -> str:
    """Return an id (16 hex digits) of the layout that a rewriting action produces.

    It is equal for two actions of one partition with the same key, curve and sizes, whatever their
    inputs.
    """
    body = action.canonical()
    del body["type"], body["inputs"]
    text = json.dumps(body, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def sort_term(transform: str, field_id: int, direction: str, null_order: str) -> str:
    """Return one field of a sort order in canonical form: "bucket[16](4) asc nulls-first".

    It has field ids instead of names: renaming a column does not change the order.
    """
    nulls = null_order.lower().replace("_", "-").replace(" ", "-")
    return f"{transform}({field_id}) {direction.lower()} {nulls}"


def wanted_terms(key: Sequence[SortColumn]) -> tuple[str, ...]:
    """Return the terms of the sort order that a SetSortOrder action sets, with NULLs as Spark
    places them."""
    return tuple(
        sort_term(
            "identity", column.field_id, column.direction,
            "nulls-last" if column.direction == "desc" else "nulls-first",
        )
        for column in key
    )  # fmt: skip


def identity_columns(terms: Sequence[str]) -> tuple[tuple[str, str], ...] | None:
    """Return (field, direction) of an order of plain columns, None if a column is transformed."""
    if not all(term.startswith("identity(") for term in terms):
        return None
    parts = (term.split(" ") for term in terms)
    return tuple((field, direction) for field, direction, _ in parts)


def has_order(terms: Sequence[str], key: Sequence[SortColumn]) -> bool:
    """Whether a table with these terms is sorted by the key; the place of NULLs does not matter."""
    return identity_columns(terms) == identity_columns(wanted_terms(key))


def action_from_canonical(body: dict[str, Any]) -> Action:
    """Return the action of a canonical form. Raises KeyError or ValueError on a foreign
    document."""
    properties = body.get("properties", {})
    return Action(
        type=ActionType(body["type"]),
        spec_id=body.get("specId", 0),
        partition=tuple(decode_partition_value(v) for v in body.get("partition", [])),
        key=tuple(SortColumn(c["fieldId"], c["direction"]) for c in body.get("key", [])),
        curve=body.get("curve", LEXICOGRAPHIC),
        target_bytes=body.get("targetBytes", 0),
        row_group_bytes=body.get("rowGroupBytes", 0),
        inputs=tuple(body.get("inputs", [])),
        properties_old=tuple(sorted((k, v["old"]) for k, v in properties.items())),
        properties_new=tuple(sorted((k, v["new"]) for k, v in properties.items())),
        order_old=tuple(body.get("orderOld", [])),
    )


def encode_partition_value(value: Scalar | None) -> Any:
    """Return a partition value as JSON without floats: small ints and null as they are, others
    tagged."""
    if value is None:
        return value
    if isinstance(value, int):
        return value if abs(value) < 2**53 else {"int": str(value)}
    if isinstance(value, float):
        return {"float": value.hex()}
    return {"bytes": value.hex()}


def decode_partition_value(value: Any) -> Scalar | None:
    if isinstance(value, dict):
        if "int" in value:
            return int(value["int"])
        if "float" in value:
            return float.fromhex(value["float"])
        return bytes.fromhex(value["bytes"])
    if value is None or isinstance(value, int):
        return value
    raise ValueError(f"not a partition value: {value!r}")
