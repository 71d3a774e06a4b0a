"""A table's metadata as last loaded or refreshed (`engines.table.History`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from reconciler.engines.snapshots import SnapshotInfo
from reconciler.engines.table import PartitionField
from reconciler.plan.actions.state import Facts
from reconciler.spark.commit import metadata, specs
from reconciler.spark.session import iceberg
from reconciler.spark.session.translate import java_exception
from reconciler.table.retention import BRANCH, Ref, SnapshotLog, snapshot_log
from reconciler.table.schema import SpecField


class JavaHistory:
    """Reads the metadata of the table as last refreshed."""

    spark: Any
    name: str
    shown: str
    java: Any

    @property
    def metadata(self) -> Any:
        """Return the org.apache.iceberg.TableMetadata."""
        return self.java.operations().current()

    def refresh(self) -> None:
        self.java.refresh()

    def uuid(self) -> str:
        return str(self.metadata.uuid())

    def format_version(self) -> int:
        return int(self.metadata.formatVersion())

    def schema_id(self) -> int:
        return int(self.metadata.currentSchemaId())

    def head(self) -> int | None:
        snapshot = self.java.currentSnapshot()
        return None if snapshot is None else int(snapshot.snapshotId())

    def snapshot(self, snapshot_id: int) -> SnapshotInfo | None:
        found = self.java.snapshot(snapshot_id)
        return None if found is None else iceberg.snapshot_info(found)

    def snapshots(self) -> Iterator[SnapshotInfo]:
        return map(iceberg.snapshot_info, iceberg.each(self.java.snapshots()))

    def added_since(self, base: int) -> Iterator[SnapshotInfo]:
        return map(iceberg.snapshot_info, iceberg.added_since(self.metadata, base))

    def ancestors(self) -> Iterator[SnapshotInfo]:
        return iceberg.ancestors(self.java)

    def main_log(self) -> list[int]:
        return [int(one.snapshotId()) for one in iceberg.each(self.java.history())]

    def is_ancestor(self, head: int, snapshot_id: int) -> bool:
        util = self.spark._jvm.org.apache.iceberg.util.SnapshotUtil
        return bool(util.isAncestorOf(self.java, head, snapshot_id))

    def refs(self) -> dict[str, Ref]:
        found = {}
        for entry in iceberg.each(self.metadata.refs().entrySet()):
            name, ref = str(entry.getKey()), entry.getValue()
            kind = BRANCH if ref.isBranch() else "tag"
            found[name] = Ref(name, kind, int(ref.snapshotId()))
        return found

    def properties(self) -> dict[str, str]:
        return iceberg.properties_of(self.spark, self.java)

    def facts(self) -> Facts:
        return metadata.facts(self.java)

    def log(self) -> SnapshotLog:
        return snapshot_log(metadata.document(self.spark, self.metadata))

    def latest_ms(self) -> int:
        history = self.java.history()
        latest = [int(history.get(history.size() - 1).timestampMillis())] if history.size() else []
        return max(*latest, int(self.metadata.lastUpdatedMillis()), 0)

    def metadata_log(self) -> list[str]:
        current = self.metadata
        log = metadata.document(self.spark, current).get("metadata-log") or ()
        return [str(current.metadataFileLocation()), *(str(one["metadata-file"]) for one in log)]

    def schema(self) -> dict[str, Any]:
        return iceberg.schema_document(self.spark, self.java.schema())

    def schemas(self) -> Sequence[dict[str, Any]]:
        every = iceberg.java_values(self.java.schemas())
        return [iceberg.schema_document(self.spark, one) for one in every]

    def spec_fields(self, spec_id: int) -> tuple[SpecField, ...] | None:
        spec = self.java.specs().get(spec_id)
        return None if spec is None else specs.fields_of(spec)

    def specs(self) -> dict[int, tuple[PartitionField, ...]]:
        return {
            int(spec.specId()): tuple(
                PartitionField(
                    int(one.fieldId()), int(one.sourceId()), str(one.name()),
                    str(one.transform().toString()),
                )
                for one in iceberg.each(spec.fields())
            )
            for spec in iceberg.java_values(self.java.specs())
        }  # fmt: skip

    def statistics(self) -> dict[int, dict[str, Any]]:
        if self.java.statisticsFiles().isEmpty():
            return {}
        listed = metadata.document(self.spark, self.metadata).get("statistics") or ()
        return {int(one["snapshot-id"]): dict(one) for one in listed}

    def sort_orders(self) -> Mapping[int, tuple[str, ...]]:
        orders = iceberg.java_values(self.java.sortOrders())
        return {int(order.orderId()): metadata.terms_of(order) for order in orders}

    def columns_unknown_to_spark(self) -> list[str]:
        spark, schema = self.spark, self.java.schema()
        if _known_to_spark(spark, schema):
            return []
        fields = list(iceberg.each(schema.columns()))
        alone = [schema.select(iceberg.java_list(spark, [field.name()])) for field in fields]
        return [
            f"{field.name()} ({field.type().toString()})"
            for field, projected in zip(fields, alone, strict=True)
            if not _known_to_spark(spark, projected)
        ]


def _known_to_spark(spark: Any, schema: Any) -> bool:
    try:
        spark._jvm.org.apache.iceberg.spark.SparkSchemaUtil.convert(schema)
    except Exception as error:
        thrown = java_exception(error)
        unknown = "java.lang.UnsupportedOperationException"
        if thrown is None or not iceberg.is_a(spark, thrown, unknown):
            raise
        return False
    return True
