"""Which partition specs of a table are in use, and how far back its history shows that."""

from __future__ import annotations

import numpy as np

from reconciler.table.deletes import DeleteTable
from reconciler.table.filetable import FileTable
from reconciler.table.metadata import TableMetadata
from reconciler.table.retention import SnapshotLog


def idle_specs(
    metadata: TableMetadata, files: FileTable, deletes: DeleteTable, unused_ms: int, now_ms: int
) -> tuple[int, ...]:
    """Return the old specs (ids, ascending) without a live file, () while the history is shorter
    than `unused_ms`: it would not show a use within that time."""
    if not metadata.log.main or history_ms(metadata.log, now_ms) < unused_ms:
        return ()
    live = {*np.unique(files.spec_id).tolist(), *np.unique(deletes.spec_id).tolist()}
    return tuple(number for number in metadata.old_specs if number not in live)


def history_ms(log: SnapshotLog, now_ms: int) -> int:
    """Return for how long every commit to main is retained, 0 without a snapshot."""
    return now_ms - log.main[-1].timestamp_ms if log.main else 0
