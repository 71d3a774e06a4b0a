"""An observation as a JSON document: one table in full, or one line of many."""

from __future__ import annotations

from typing import Any

import numpy as np

from reconciler.api.prices import Prices
from reconciler.catalog.metadata import spec_text
from reconciler.plan.money import cost_of, storing
from reconciler.render.deletes_text import (
    deletes_document,
    modes_of,
    operations_document,
)
from reconciler.render.observe_text import TableSummary, WorkloadSummary, summarise
from reconciler.render.specs_text import specs_document
from reconciler.table.observation import Observation
from reconciler.table.overlap_depth import ColumnDepth, rank_columns


def document(seen: Observation, workload: WorkloadSummary) -> dict[str, Any]:
    """Return the observation for -o json|yaml: raw bytes, milliseconds, no values of the table."""
    summary = summarise(seen)
    return {
        "name": seen.name,
        "catalog": seen.catalog,
        "table": list(seen.identifier),
        "uuid": seen.uuid,
        "formatVersion": seen.format_version,
        "snapshotId": None if seen.snapshot_id is None else str(seen.snapshot_id),
        "snapshotTimeMillis": seen.snapshot_ms,
        "partitioning": spec_text(seen.files.specs[seen.files.default_spec_id], seen.schema),
        "partitionSpecs": specs_document(seen),
        "sortOrder": seen.sort_order_text,
        "dataFiles": summary.files,
        "bytes": summary.bytes,
        "rows": summary.rows,
        "partitions": len(np.unique(seen.files.partition)),
        "targetFileBytes": summary.target,
        "smallFiles": summary.small,
        "filesToPack": summary.to_pack,
        "deletes": deletes_document(seen),
        "operations": operations_document(seen.operations, workload.per_day),
        "writeModes": modes_of(seen, workload.per_day) or None,
        "clustering": [_column_document(line) for line in rank_columns(seen.files)],
        "workload": {
            "queries": workload.queries,
            "until": workload.until or None,
            "filteredColumns": {name: round(share, 4) for name, share in workload.columns},
        },
        "recentWrites": [
            {
                "snapshotId": str(write.snapshot_id),
                "timeMillis": write.timestamp_ms,
                "operation": write.operation,
                "partitions": len(write.partitions),
            }
            for write in seen.recent_writes
        ],
        "manifests": seen.manifests,
        "manifestsRead": seen.manifests_read,
        "bytesRead": seen.bytes_read,
        "seconds": round(seen.seconds, 3),
    }


def _column_document(line: ColumnDepth) -> dict[str, Any]:
    body: dict[str, Any] = {"fieldId": line.field_id, "column": line.name, "judged": line.judged}
    if not line.judged:
        return {**body, "reason": line.reason}
    return {
        **body,
        "meanDepth": round(line.mean, 3),
        "maxDepth": line.maximum,
        "shareOfFiles": round(line.share, 6),
        "filesWithBounds": line.bounded,
        "filesWithTruncatedBounds": line.truncated,
    }


def summary_document(table: TableSummary, prices: Prices | None = None) -> dict[str, Any]:
    """Return one table among many for -o json|yaml. prices: of the catalog, None without any."""
    money = {} if prices is None else {
        "currency": prices.currency,
        "storedMoneyPerMonth": round(cost_of(prices, storing(table.bytes)), 6),
    }  # fmt: skip
    return {
        "name": table.name,
        "dataFiles": table.files,
        "bytes": table.bytes,
        "rows": table.rows,
        "targetFileBytes": table.target,
        "smallFiles": table.small,
        "filesToPack": table.to_pack,
        "dataFilesWithDeletes": table.with_deletes,
        "bestClustered": None if table.best is None else table.best.name,
        **money,
    }
