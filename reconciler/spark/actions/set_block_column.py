"""Adds the column of block ids, and sets the properties of its trees, in one commit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from reconciler.plan.actions.set_block_column import SetBlockColumn, holds
from reconciler.plan.actions.state import ActionState, Facts
from reconciler.spark.actions.metadata_change import MetadataExecutor
from reconciler.spark.session import iceberg
from reconciler.table import block_ids
from reconciler.table.block_ids import BlockTree
from reconciler.table.metadata import tops_of


class BlockColumnExecutor(MetadataExecutor[SetBlockColumn]):
    def state(self, action: SetBlockColumn, facts: Facts) -> ActionState:
        return action.judge(replace(facts, metadata=facts.metadata.with_schema(self._schema())))

    def _schema(self) -> dict[str, Any]:
        """Return the schema of the table as last refreshed."""
        return iceberg.schema_document(self.run.spark, self.run.table.schema())

    def changed(self, base: Any, action: SetBlockColumn) -> Any:
        core, properties = self.run.spark._jvm.org.apache.iceberg, dict(base.properties())
        builder = core.TableMetadata.buildFrom(base)
        body = self._schema()
        owned = properties.get(block_ids.COLUMN)
        wanted = dict[str, str]()
        if str(owned) not in {str(number) for number, _ in tops_of(body).values()}:
            kind = core.types.Types.IntegerType.get()
            update = self.run.table.updateSchema()
            schema = update.addColumn(action.column, kind, block_ids.DOC).apply()
            field_id = int(schema.findField(action.column).fieldId())
            builder.setCurrentSchema(schema, max(int(base.lastColumnId()), field_id))
            wanted[block_ids.COLUMN] = str(field_id)
            wanted[block_ids.SINCE] = str(base.lastSequenceNumber())
            wanted[block_ids.METRICS + action.column] = "full"
        types = _types(body["fields"])
        for tree in action.kept:
            if not holds(properties, tree):
                text = BlockTree(tree, {one: types[one] for one in tree.of_column}).text
                wanted[block_ids.TREE + block_ids.key_of(tree)] = text
        gone = self.run.spark._jvm.java.util.HashSet()
        for key in action.dropped:
            gone.add(block_ids.TREE + key)
            gone.add(block_ids.SNAPSHOTS + key)
        changes = self.run.spark._jvm.java.util.HashMap()
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


def _types(fields: Any) -> dict[int, str]:
    """Return the types of all columns that are not in lists or maps, by field id."""
    found = dict[int, str]()
    for one in fields:
        if isinstance(one["type"], str):
            found[int(one["id"])] = one["type"]
        elif one["type"]["type"] == "struct":
            found |= _types(one["type"]["fields"])
    return found
