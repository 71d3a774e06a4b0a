"""Sets the table's sort order."""

from __future__ import annotations

from typing import Any

from reconciler.plan.actions.set_sort_order import SetSortOrder
from reconciler.spark.actions.metadata_change import MetadataExecutor


class SortOrderExecutor(MetadataExecutor[SetSortOrder]):
    def changed(self, base: Any, action: SetSortOrder) -> Any:
        core = self.run.spark._jvm.org.apache.iceberg
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


def _shown(metadata: Any) -> str:
    """Return the sort order as people write it."""
    schema, parts = metadata.schema(), []
    for part in metadata.sortOrder().fields():
        column = str(schema.findColumnName(part.sourceId()))
        transform = str(part.transform().toString())
        name = column if transform == "identity" else f"{transform}({column})"
        parts.append(f"{name} {str(part.direction().name()).lower()}")
    return ", ".join(parts) or "unsorted"
