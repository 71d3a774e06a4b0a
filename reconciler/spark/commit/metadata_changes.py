"""Changes of a table's metadata by Iceberg's library: what each kind of action asks for."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from reconciler.engines.answers import ACCEPTED, Answer
from reconciler.errors import VerificationError
from reconciler.plan.actions.base import Action
from reconciler.plan.actions.expire_snapshots import ExpireSnapshots
from reconciler.plan.actions.partition_specs import AddSpec, SwitchSpec
from reconciler.plan.actions.remove_specs import RemoveSpecs
from reconciler.plan.actions.roll_back import RollBack
from reconciler.plan.actions.set_block_column import SetBlockColumn
from reconciler.plan.actions.set_properties import SetProperties
from reconciler.plan.actions.set_sort_order import SetSortOrder
from reconciler.plan.actions.upgrade_format import UpgradeFormat
from reconciler.spark.commit import metadata, specs
from reconciler.spark.commit.java_commit import answer_of
from reconciler.spark.session import iceberg
from reconciler.table import block_ids
from reconciler.table.block_ids import COLUMN, remembering
from reconciler.table.metadata import tops_of
from reconciler.table.replica import RECORD, kept_record
from reconciler.table.retention import MAIN


@dataclass(frozen=True, slots=True)
class JavaMetadataChange:
    """A change as `table.MetadataChange`."""

    table: Any
    """The JavaTable."""
    base: Any
    """The org.apache.iceberg.TableMetadata that it replaces."""
    wanted: Any
    """The org.apache.iceberg.TableMetadata after it."""
    before: Mapping[str, str]
    """What it changes, by name, as people write it."""
    after: Mapping[str, str]
    """The same as it is afterwards."""

    def send(self) -> Answer:
        try:
            self.table.java.operations().commit(self.base, self.wanted)
        except Exception as error:
            return answer_of(self.table.spark, error)
        return ACCEPTED


def asked_by(table: Any, action: Action) -> JavaMetadataChange:
    """Return the change that an action asks for, from the metadata as last refreshed. table: a
    JavaTable."""
    kind, base = CHANGES[type(action)](table), table.metadata
    wanted = kind.changed(base, action)
    return JavaMetadataChange(
        table, base, wanted, kind.values(base, action), kind.values(wanted, action)
    )


def without(
    table: Any, heads: Mapping[str, int | None], snapshots: Collection[int]
) -> JavaMetadataChange:
    """Return the removal of branches, or of their newest snapshots, and of snapshots."""
    spark, base = table.spark, table.metadata
    core = spark._jvm.org.apache.iceberg
    builder = core.TableMetadata.buildFrom(base)
    # A snapshot that is removed takes every ref with it that somebody moves to it meanwhile: main,
    # if a person publishes the branch by hand and this request arrives after that.
    metadata.hold(spark, base, builder, refs_of(base))
    for name, head in heads.items():
        if head is None:
            builder.removeRef(name)
        else:
            builder.setRef(name, core.SnapshotRef.branchBuilder(head).build())
    gone = [base.snapshot(one) for one in snapshots]
    builder.removeSnapshots(iceberg.java_list(spark, gone))
    return JavaMetadataChange(table, base, builder.build(), {}, {})


def with_statistics(
    table: Any, snapshot_id: int, document: Mapping[str, Any]
) -> JavaMetadataChange:
    """Return the listing of a statistics file, which the table lists already, under another
    snapshot."""
    spark, base = table.spark, table.metadata
    core = spark._jvm.org.apache.iceberg
    known = next(
        one
        for one in iceberg.each(base.statisticsFiles())
        if int(one.snapshotId()) == int(document["snapshot-id"])
    )
    listed = core.GenericStatisticsFile(
        snapshot_id, known.path(), known.fileSizeInBytes(), known.fileFooterSizeInBytes(),
        known.blobMetadata(),
    )  # fmt: skip
    builder = core.TableMetadata.buildFrom(base)
    metadata.hold(spark, base, builder)
    return JavaMetadataChange(table, base, builder.setStatistics(listed).build(), {}, {})


def refs_of(metadata: Any) -> dict[str, int]:
    """Return the snapshot of each branch and tag. metadata: org.apache.iceberg.TableMetadata."""
    return {
        str(entry.getKey()): int(entry.getValue().snapshotId())
        for entry in iceberg.each(metadata.refs().entrySet())
    }


class ChangeOf(ABC):
    """What one kind of action changes. table: a JavaTable."""

    def __init__(self, table: Any) -> None:
        self.table, self.spark = table, table.spark

    @abstractmethod
    def changed(self, base: Any, action: Any) -> Any:
        """Return the metadata (org.apache.iceberg.TableMetadata) after the action."""

    @abstractmethod
    def values(self, metadata: Any, action: Any) -> dict[str, str]:
        """Return what the action changes, by name, as people write it."""


class Properties(ChangeOf):
    def changed(self, base: Any, action: SetProperties) -> Any:
        wanted = self.spark._jvm.java.util.HashMap(base.properties())
        for name, value in action.new:
            wanted.put(name, value)
        return base.replaceProperties(wanted)

    def values(self, metadata: Any, action: SetProperties) -> dict[str, str]:
        now = metadata.properties()
        return {name: str(now.get(name) or "(unset)") for name, _ in action.new}


class SortOrder(ChangeOf):
    def changed(self, base: Any, action: SetSortOrder) -> Any:
        core = self.spark._jvm.org.apache.iceberg
        order = core.SortOrder.builderFor(base.schema())
        for part in action.key:
            name = base.schema().findColumnName(part.field_id)
            if part.direction == "desc":
                order.desc(name, core.NullOrder.NULLS_LAST)
            else:
                order.asc(name, core.NullOrder.NULLS_FIRST)
        return base.replaceSortOrder(order.build())

    def values(self, metadata: Any, action: SetSortOrder) -> dict[str, str]:
        return {"sort order": _shown(metadata)}


class Upgrade(ChangeOf):
    def changed(self, base: Any, action: UpgradeFormat) -> Any:
        builder = self.spark._jvm.org.apache.iceberg.TableMetadata.buildFrom(base)
        metadata.hold(self.spark, base, builder)
        return builder.upgradeFormatVersion(action.new).build()

    def values(self, metadata: Any, action: UpgradeFormat) -> dict[str, str]:
        return {"format version": str(metadata.formatVersion())}


class BlockColumn(ChangeOf):
    def changed(self, base: Any, action: SetBlockColumn) -> Any:
        core, properties = self.spark._jvm.org.apache.iceberg, dict(base.properties())
        builder = core.TableMetadata.buildFrom(base)
        body = self.table.schema()
        owned = properties.get(block_ids.COLUMN)
        wanted = dict[str, str]()
        if str(owned) not in {str(number) for number, _ in tops_of(body).values()}:
            kind = core.types.Types.IntegerType.get()
            update = self.table.java.updateSchema()
            schema = update.addColumn(action.column, kind, block_ids.DOC).apply()
            field_id = int(schema.findField(action.column).fieldId())
            builder.setCurrentSchema(schema, max(int(base.lastColumnId()), field_id))
            wanted[block_ids.COLUMN] = str(field_id)
            wanted[block_ids.SINCE] = str(base.lastSequenceNumber())
            wanted[block_ids.METRICS + action.column] = "full"
        wanted |= block_ids.tree_properties(properties, body, action.kept)
        gone = self.spark._jvm.java.util.HashSet()
        for key in action.dropped:
            gone.add(block_ids.TREE + key)
            gone.add(block_ids.SNAPSHOTS + key)
        changes = self.spark._jvm.java.util.HashMap()
        for name, value in wanted.items():
            changes.put(name, value)
        return builder.setProperties(changes).removeProperties(gone).build()

    def values(self, metadata: Any, action: SetBlockColumn) -> dict[str, str]:
        names = [str(name) for name in dict(metadata.properties())]
        return {
            f'column "{action.column}"': "absent"
            if metadata.schema().findField(action.column) is None
            else "int",
            "trees": str(sum(name.startswith(block_ids.TREE) for name in names)),
        }


class AddedSpec(ChangeOf):
    def changed(self, base: Any, action: AddSpec) -> Any:
        return specs.added(self.spark, self.table.java, base, action.fields)

    def values(self, metadata: Any, action: AddSpec) -> dict[str, str]:
        spec = metadata.spec(action.spec_id)
        return {f"spec {action.spec_id}": "none" if spec is None else specs.text(spec)}


class SwitchedSpec(ChangeOf):
    def changed(self, base: Any, action: SwitchSpec) -> Any:
        core = self.spark._jvm.org.apache.iceberg
        return core.TableMetadata.buildFrom(base).setDefaultPartitionSpec(action.spec_id).build()

    def values(self, metadata: Any, action: SwitchSpec) -> dict[str, str]:
        return {"default spec": specs.text(metadata.spec())}


class Expiry(ChangeOf):
    def changed(self, base: Any, action: ExpireSnapshots) -> Any:
        """Return the metadata without the snapshots. Raises VerificationError if more than these
        would go."""
        java = self.spark._jvm
        asked = [base.snapshot(one) for one in action.snapshots]
        found = [one for one in asked if one is not None]
        listed = iceberg.java_list(self.spark, found)
        builder = java.org.apache.iceberg.TableMetadata.buildFrom(base)
        metadata.hold(self.spark, base, builder, refs_of(base))
        builder.setProperties(self._remembered(base, found))
        wanted = builder.removeSnapshots(listed).build()
        lost = refs_of(base) != refs_of(wanted)
        fewer = base.snapshots().size() - wanted.snapshots().size()
        if lost or fewer != listed.size():
            raise VerificationError(
                f"could not expire snapshots of {self.table.shown}: the change would remove more "
                "than was planned",
                details=("Nothing was changed.",),
                do="report this; expire the snapshots with another tool until it is fixed",
            )
        return wanted

    def _remembered(self, base: Any, expired: Sequence[Any]) -> Any:
        """Return the properties that keep what the snapshots prove of block ids and of the
        replica."""
        properties = {str(name): str(value) for name, value in dict(base.properties()).items()}
        changes = self.spark._jvm.java.util.HashMap()
        if COLUMN in properties:
            infos = [iceberg.snapshot_info(one) for one in expired]
            summaries = [(one.id, one.summary) for one in infos]
            for name, value in remembering(properties, summaries).items():
                changes.put(name, value)
        if RECORD in properties:
            gone = {int(one.snapshotId()) for one in expired}
            for name, value in kept_record(properties, self.table.log().main, gone).items():
                changes.put(name, value)
        return changes

    def values(self, metadata: Any, action: ExpireSnapshots) -> dict[str, str]:
        return {"snapshots": str(metadata.snapshots().size())}


class RolledBack(ChangeOf):
    def changed(self, base: Any, action: RollBack) -> Any:
        """Return the metadata with the older snapshot as main's. A request that sets a ref requires
        the snapshot that the ref has in `base` (org.apache.iceberg.UpdateRequirements)."""
        builder = self.spark._jvm.org.apache.iceberg.TableMetadata.buildFrom(base)
        return builder.setBranchSnapshot(action.snapshot_id, MAIN).build()

    def values(self, metadata: Any, action: RollBack) -> dict[str, str]:
        return {"main": f"snapshot {metadata.currentSnapshot().snapshotId()}"}


class RemovedSpecs(ChangeOf):
    def changed(self, base: Any, action: RemoveSpecs) -> Any:
        """Return the metadata without the specs. Raises VerificationError if other specs would
        change."""
        java = self.spark._jvm
        known = {str(spec.specId()): str(spec) for spec in iceberg.each(base.specs())}
        going = [number for number in action.specs if str(number) in known]
        ids = java.java.util.HashSet(iceberg.java_list(self.spark, going))
        builder = java.org.apache.iceberg.TableMetadata.buildFrom(base)
        metadata.hold(self.spark, base, builder)  # a commit to main may be under one of them
        update = java.org.apache.iceberg.MetadataUpdate.RemovePartitionSpecs(ids)
        update.applyTo(builder)
        wanted = builder.build()
        left = {str(spec.specId()): str(spec) for spec in iceberg.each(wanted.specs())}
        kept = {number: text for number, text in known.items() if int(number) not in action.specs}
        if left != kept or wanted.defaultSpecId() != base.defaultSpecId():
            raise VerificationError(
                f"could not remove partition specs of {self.table.shown}: the change would remove "
                "others than planned",
                details=("Nothing was changed.",),
                do="report this; remove spec.maintenance.removeSpecs until it is fixed",
            )
        return wanted

    def values(self, metadata: Any, action: RemoveSpecs) -> dict[str, str]:
        ids = sorted(int(spec.specId()) for spec in iceberg.each(metadata.specs()))
        return {"partition specs": ", ".join(map(str, ids))}


CHANGES: Mapping[type[Action], type[ChangeOf]] = {
    SetProperties: Properties,
    SetSortOrder: SortOrder,
    UpgradeFormat: Upgrade,
    SetBlockColumn: BlockColumn,
    AddSpec: AddedSpec,
    SwitchSpec: SwitchedSpec,
    ExpireSnapshots: Expiry,
    RemoveSpecs: RemovedSpecs,
    RollBack: RolledBack,
}


def _shown(metadata: Any) -> str:
    """Return the sort order as people write it."""
    schema, parts = metadata.schema(), []
    for part in metadata.sortOrder().fields():
        column = str(schema.findColumnName(part.sourceId()))
        transform = str(part.transform().toString())
        name = column if transform == "identity" else f"{transform}({column})"
        parts.append(f"{name} {str(part.direction().name()).lower()}")
    return ", ".join(parts) or "unsorted"
