"""A table's metadata as values, read without a JVM (`engines.table.History`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from reconciler.commit.manifest import schema_of
from reconciler.commit.metadata import ids_of, latest_ms
from reconciler.commit.table import LiveTable, Snapshot, State
from reconciler.engines.snapshots import SnapshotInfo
from reconciler.engines.table import PartitionField
from reconciler.plan.actions.set_sort_order import sort_term
from reconciler.plan.actions.state import Facts
from reconciler.table.metadata import TableMetadata
from reconciler.table.retention import Ref, SnapshotLog, snapshot_log
from reconciler.table.schema import SpecField, spec_terms


class LocalHistory:
    """Reads the metadata of a live table as last refreshed."""

    def __init__(self, table: LiveTable) -> None:
        self.table = table
        self.name = table.name
        self.shown = ".".join((table.config.name, *table.identifier))

    @property
    def state(self) -> State:
        return self.table.state

    def refresh(self) -> None:
        self.table.refresh()

    def uuid(self) -> str:
        return self.state.uuid

    def format_version(self) -> int:
        return self.state.version

    def schema_id(self) -> int:
        return int(self.state.metadata["current-schema-id"])

    def head(self) -> int | None:
        return self.state.head()

    def snapshot(self, snapshot_id: int) -> SnapshotInfo | None:
        found = self.state.snapshots.get(snapshot_id)
        return None if found is None else snapshot_info(found)

    def snapshots(self) -> Iterable[SnapshotInfo]:
        return [snapshot_info(one) for one in self.state.snapshots.values()]

    def added_since(self, base: int) -> Iterator[SnapshotInfo]:
        """Yield the snapshots of every branch added after `base`, newest first; all if it
        expired."""
        for one in reversed(self.state.snapshots.values()):
            if int(one["snapshot-id"]) == base:
                return
            yield snapshot_info(one)

    def ancestors(self) -> Iterator[SnapshotInfo]:
        return (snapshot_info(one) for one in self.state.line(self.head()))

    def main_log(self) -> list[int]:
        return [int(one["snapshot-id"]) for one in self.state.metadata.get("snapshot-log") or ()]

    def is_ancestor(self, head: int, snapshot_id: int) -> bool:
        return any(int(one["snapshot-id"]) == snapshot_id for one in self.state.line(head))

    def refs(self) -> Mapping[str, Ref]:
        return {ref.name: ref for ref in self.log().refs}

    def properties(self) -> Mapping[str, str]:
        return self.state.properties

    def facts(self) -> Facts:
        """Return what actions that change metadata are judged by."""
        body = self.state.metadata
        schema = schema_of(body)
        return Facts(
            metadata=TableMetadata(
                dict(self.properties()),
                self.sort_orders()[int(body["default-sort-order-id"])],
                self.format_version(),
                {int(one["spec-id"]): _terms(one) for one in body["partition-specs"]},
                int(body["default-spec-id"]),
                self.log(),
                columns=frozenset(ids_of(schema)),
            ).with_schema(schema)
        )

    def log(self) -> SnapshotLog:
        return snapshot_log(self.state.metadata)

    def latest_ms(self) -> int:
        """Return the newest time in the metadata, in epoch milliseconds."""
        return latest_ms(self.state.metadata)

    def schema(self) -> dict[str, Any]:
        return dict(schema_of(self.state.metadata))

    def schemas(self) -> list[dict[str, Any]]:
        return [dict(one) for one in self.state.metadata["schemas"]]

    def statistics(self) -> dict[int, dict[str, Any]]:
        listed = self.state.metadata.get("statistics") or ()
        return {int(one["snapshot-id"]): dict(one) for one in listed}

    def sort_orders(self) -> Mapping[int, tuple[str, ...]]:
        """Return the terms (`plan.actions.set_sort_order.sort_term`) of each sort order by its
        id."""
        return {
            int(order["order-id"]): tuple(_term(one) for one in order["fields"])
            for order in self.state.metadata["sort-orders"]
        }

    def spec_fields(self, spec_id: int) -> tuple[SpecField, ...] | None:
        found = self.specs().get(spec_id)
        if found is None:
            return None
        return tuple(
            SpecField(one.source_id, one.transform) for one in found if one.transform != "void"
        )

    def specs(self) -> Mapping[int, tuple[PartitionField, ...]]:
        return {
            int(spec["spec-id"]): tuple(
                PartitionField(int(one["field-id"]), int(one["source-id"]), str(one["name"]),
                               str(one["transform"]))
                for one in spec["fields"]
            )
            for spec in self.state.metadata["partition-specs"]
        }  # fmt: skip

    def metadata_log(self) -> list[str]:
        log = self.state.metadata.get("metadata-log") or ()
        return [self.state.location, *(str(one["metadata-file"]) for one in log)]

    def columns_unknown_to_spark(self) -> list[str]:
        """Return []: nothing writes in this engine's place."""
        return []


def _term(one: Mapping[str, Any]) -> str:
    return sort_term(
        str(one["transform"]), int(one["source-id"]), str(one["direction"]).upper(),
        str(one["null-order"]),
    )  # fmt: skip


def snapshot_info(body: Snapshot) -> SnapshotInfo:
    summary = dict(body.get("summary") or {})
    parent, schema = body.get("parent-snapshot-id"), body.get("schema-id")
    return SnapshotInfo(
        int(body["snapshot-id"]),
        None if parent is None else int(parent),
        str(summary.pop("operation", "")),
        summary,
        int(body.get("sequence-number") or 0),
        int(body["timestamp-ms"]),
        None if schema is None else int(schema),
        str(body.get("manifest-list") or ""),
    )


def _terms(spec: Mapping[str, Any]) -> tuple[str, ...]:
    return spec_terms(
        SpecField(int(one["source-id"]), str(one["transform"]))
        for one in spec["fields"]
        if one["transform"] != "void"
    )
