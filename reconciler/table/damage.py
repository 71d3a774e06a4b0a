"""Recognises a table that no reader can read any more: two deletion vectors for one data file.

It comes from a compaction of position deletes beside a DELETE, on a table that was upgraded from
format 2 to 3. Readers stop with "Can't index multiple DVs".
"""

from __future__ import annotations

import numpy as np

from reconciler.format import plural
from reconciler.table.deletes import Scope
from reconciler.table.observation import Observation


def damage_of(seen: Observation) -> str:
    """Return what is wrong with the table and what to do, "" for a sound one."""
    doubled = seen.doubled_vectors
    if not doubled:
        return ""
    files = plural(len(doubled), "data file")
    return (
        f"the table is damaged: two deletion vectors for {files}, for example {doubled[0]}; every "
        f"read of it fails. {_remedy(seen)}"
    )


def _remedy(seen: Observation) -> str:
    before = last_good_snapshot(seen)
    if before is None:
        return "The snapshot before the damage has expired: restore the table from a backup."
    table = ".".join(seen.identifier)
    call = f"CALL {seen.catalog}.system.rollback_to_snapshot('{table}', {before})"
    return f"Roll back to the snapshot before it, and run again what was committed since: {call}"


def last_good_snapshot(seen: Observation) -> int | None:
    """Return the newest retained ancestor in which no data file has two vectors, None if it is
    gone."""
    deletes, row_of = seen.delete_files, seen.files.row_of
    vectors = deletes.of(Scope.VECTOR)
    seconds = [
        int(np.sort(deletes.sequence[vectors & (deletes.data_row == row_of[path])])[1])
        for path in seen.doubled_vectors
    ]
    older = (item for item in seen.ancestry if item.sequence_number < min(seconds))
    found = next(older, None)
    return None if found is None else found.snapshot_id
