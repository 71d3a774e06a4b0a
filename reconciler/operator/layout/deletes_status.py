"""Builds status.deletes of a TableLayout: how deletes are encoded and what they cost readers; pure.

Counts are those of `layoutctl observe`. Rows under equality deletes are known only by reading them,
so that live and deleted rows are then bounds with an estimate between them.
"""

from __future__ import annotations

from reconciler.advisor.deletes.mode import DECLARED, EAGER, MODE_PROPERTIES
from reconciler.operator.conditions import Body
from reconciler.operator.status_text import short_bytes
from reconciler.render.deletes_text import deletes_document
from reconciler.table.observation import Observation

MODES = {value: name for name, value in DECLARED.items()}


def deletes_status(seen: Observation) -> Body | None:
    """Return status.deletes, None for a table without live delete files."""
    if not len(seen.delete_files):
        return None
    found = deletes_document(seen)
    return {
        "mode": write_mode(seen),
        "storedRows": seen.files.total_records,
        "liveRows": found["liveRows"],
        "deletedRows": found["deletedRows"],
        "positionFiles": found["positionFiles"],
        "equalityFiles": found["equalityFiles"],
        "vectors": found["vectors"],
        "dangling": found["dangling"],
        "load": {
            "dataFiles": found["dataFilesWithDeletes"],
            "underEqualityDeletes": found["dataFilesUnderEqualityDeletes"],
            "bytes": short_bytes(found["bytes"]),
        },
    }


def write_mode(seen: Observation) -> str:
    """Return what the table asks of Spark for DELETE, UPDATE and MERGE: one mode, or Mixed."""
    asked = {seen.properties.get(name, EAGER) for name in MODE_PROPERTIES.values()}
    return MODES.get(asked.pop(), "Unknown") if len(asked) == 1 else "Mixed"
