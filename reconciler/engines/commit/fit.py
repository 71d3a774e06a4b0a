"""Whether the files of a batch are for what they replace: checked once before anything is sent.

A delete file in another partition hides nothing there, so that deleted rows come back, and readers
may refuse the whole table. A data file under another spec, partition or sequence number is pruned
by queries that ask for its rows, or gets other deletes. Verification compares rows of files; here
is compared what their entries say of them: by typed values, never by their text.
"""

from __future__ import annotations

from collections.abc import Iterator

from reconciler.engines.commit.operations import MoveFiles, Operation, RewriteFiles, RowDelta
from reconciler.engines.delete_file import VECTORS_VERSION
from reconciler.engines.table import Table
from reconciler.errors import InternalError
from reconciler.table.deletes import PartitionKey

MOST_SHOWN = 3


def require(table: Table, operation: Operation, base_snapshot_id: int) -> None:
    """Raise InternalError if a file that the operation adds does not fit what it is for."""
    found: list[str] = []
    if isinstance(operation, RewriteFiles):
        found = list(_data_files(table, operation, base_snapshot_id))
    elif isinstance(operation, RowDelta):
        found = list(_delete_files(table, operation))
    if found:
        raise InternalError(
            f"{table.shown}: {len(found)} of the files that were written do not fit the table",
            details=(*found[:MOST_SHOWN], "Nothing was sent to the catalog."),
            do="keep the plan and report it as a bug; no row of the table was changed",
        )


def _data_files(table: Table, operation: RewriteFiles, base_snapshot_id: int) -> Iterator[str]:
    """Yield what is wrong with data files that replace others."""
    read = table.snapshot(base_snapshot_id)
    if read is not None and read.sequence_number != operation.sequence_number:
        yield (
            f"the sequence number {operation.sequence_number} is not that of snapshot "
            f"{base_snapshot_id}"
        )
    late = [file.path for file in operation.tasks.values()
            if file.sequence > operation.sequence_number]  # fmt: skip
    if late:
        yield f"{late[0]} is newer than the snapshot that was read"
    target = operation.spec_id if isinstance(operation, MoveFiles) else None
    wanted = set(table.partition_keys(operation.tasks).values()) if target is None else set()
    for file in operation.added:
        path, key = file.path, file.partition_key
        if target is not None and key.spec_id != target:
            yield f"{path} has partition spec {key.spec_id}, not {target}"
        elif target is None and key not in wanted:
            yield f"{path} is in {_named(key)}, none of its inputs is"
        if file.rows < 1:
            yield f"{path} has no rows"


def _named(key: PartitionKey) -> str:
    return f"partition {key.values} of spec {key.spec_id}"


def _delete_files(table: Table, operation: RowDelta) -> Iterator[str]:
    """Yield what is wrong with delete files that replace others."""
    vectors = table.format_version() >= VECTORS_VERSION
    keys = table.partition_keys(operation.tasks)
    seen: set[str] = set()
    for file in operation.added:
        of = file.data_file
        if file.keys:
            yield f"{file.path} does not delete by position"
        elif of not in keys:
            yield f"{file.path} is of {of or 'no data file'}, which was not read"
        elif file.partition_key != keys[of]:
            own, wanted = _named(file.partition_key), _named(keys[of])
            yield f"{file.path} is in {own}, its data file in {wanted.removeprefix('partition ')}"
        elif not 0 < file.rows <= operation.tasks[of].rows:
            yield f"{file.path} has {file.rows} positions of {operation.tasks[of].rows} rows"
        elif file.vector != vectors:
            yield f"{file.path} is {'a' if file.vector else 'no'} deletion vector"
        elif vectors and of in seen:
            yield f"{of} would get two deletion vectors"
        seen.add(of)
