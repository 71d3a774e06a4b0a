"""Whether the files of a batch are for what they replace: checked once before anything is sent.

A delete file in another partition hides nothing there, so that deleted rows come back, and readers
may refuse the whole table. A data file under another spec, partition or sequence number is pruned
by queries that ask for its rows, or gets other deletes. Verification compares rows of files; here
is compared what their entries say of them: by typed values, never by their text.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from reconciler.engines.delete_file import Place
from reconciler.errors import InternalError
from reconciler.spark.commit.operations import MoveFiles, Operation, RewriteFiles, RowDelta
from reconciler.spark.schedule import partitions, scan
from reconciler.spark.session import iceberg

POSITIONS = "POSITION_DELETES"
MOST_SHOWN = 3


def require(spark: Any, table: Any, operation: Operation, base_snapshot_id: int) -> None:
    """Raise InternalError if a file that the operation adds does not fit what it is for."""
    found: list[str] = []
    if isinstance(operation, RewriteFiles):
        found = list(_data_files(spark, table, operation, base_snapshot_id))
    elif isinstance(operation, RowDelta):
        found = list(_delete_files(spark, table, operation))
    if found:
        raise InternalError(
            f"{table.name()}: {len(found)} of the files that were written do not fit the table",
            details=(*found[:MOST_SHOWN], "Nothing was sent to the catalog."),
            do="keep the plan and report it as a bug; no row of the table was changed",
        )


def _data_files(
    spark: Any, table: Any, operation: RewriteFiles, base_snapshot_id: int
) -> Iterator[str]:
    """Yield what is wrong with data files that take the place of others."""
    read = table.snapshot(base_snapshot_id)
    if read is not None and int(read.sequenceNumber()) != operation.sequence_number:
        yield (
            f"the sequence number {operation.sequence_number} is not that of snapshot "
            f"{base_snapshot_id}"
        )
    late = [file.path for file in operation.tasks.values()
            if file.sequence > operation.sequence_number]  # fmt: skip
    if late:
        yield f"{late[0]} is newer than the snapshot that was read"
    target = operation.spec_id if isinstance(operation, MoveFiles) else None
    wanted = set(scan.places(spark, table, operation.tasks).values()) if target is None else set()
    for file, place in _placed(spark, table, operation.added):
        path = str(file.location())
        if target is not None and place[0] != target:
            yield f"{path} has partition spec {place[0]}, not {target}"
        elif target is None and place not in wanted:
            yield f"{path} is in partition {place[1]} of spec {place[0]}, none of its inputs is"
        if int(file.recordCount()) < 1:
            yield f"{path} has no rows"


def _delete_files(spark: Any, table: Any, operation: RowDelta) -> Iterator[str]:
    """Yield what is wrong with delete files that take the place of others."""
    vectors = iceberg.format_version(table) >= 3
    places = scan.places(spark, table, operation.tasks)
    seen: set[str] = set()
    for file in operation.added:
        of = file.data_file
        if file.keys or str(file.entry.content()) != POSITIONS:
            yield f"{file.path} does not delete by position"
        elif of not in places:
            yield f"{file.path} is of {of or 'no data file'}, which was not read"
        elif file.place != places[of]:
            yield (
                f"{file.path} is in partition {file.place[1]} of spec {file.place[0]}, its data "
                f"file in {places[of][1]} of spec {places[of][0]}"
            )
        elif not 0 < file.rows <= operation.tasks[of].rows:
            yield f"{file.path} has {file.rows} positions of {operation.tasks[of].rows} rows"
        elif file.vector != vectors:
            yield f"{file.path} is {'a' if file.vector else 'no'} deletion vector"
        elif vectors and of in seen:
            yield f"{of} would get two deletion vectors"
        seen.add(of)


def _placed(spark: Any, table: Any, files: Sequence[Any]) -> Iterator[tuple[Any, Place]]:
    return zip(files, partitions.of_files(spark, table, files), strict=True)
