"""The delete files of a snapshot, read from its manifests: also those that apply to nothing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from reconciler.engines.delete_file import DeleteFile
from reconciler.spark.deletes import delete_scope
from reconciler.spark.schedule import partitions, scan
from reconciler.spark.session import iceberg, streams
from reconciler.table.deletes import PartitionKey

DELETE = "org.apache.iceberg.DeleteFile"
FILE = "org.apache.iceberg.ContentFile"
EQUALITY = "EQUALITY_DELETES"


def live(spark: Any, table: Any, snapshot_id: int) -> list[DeleteFile]:
    """Return the delete files that the snapshot's manifests list."""
    return [
        file
        for spec_id, files in delete_scope.live_delete_files(spark, table, snapshot_id).items()
        for file in _described(spark, files, table.specs().get(spec_id))
    ]


def written(spark: Any, table: Any, files: Sequence[Any]) -> list[DeleteFile]:
    """Return new org.apache.iceberg.DeleteFile objects as values; their sequence number is 0 until
    they are committed."""
    found: list[DeleteFile] = []
    for spec_id in sorted({int(file.specId()) for file in files}):
        own = iceberg.java_list(spark, [file for file in files if int(file.specId()) == spec_id])
        found += _described(spark, own, table.specs().get(spec_id))
    return found


def require_once(table: Any, files: Iterable[DeleteFile]) -> None:
    """Raise UnsupportedError if one of the delete files is in two manifest entries."""
    entries: dict[tuple[str, int], list[Any]] = {}
    for file in files:
        entries.setdefault(file.identity, []).append(file.entry)
    for identity in sorted(one for one, own in entries.items() if len(own) > 1):
        raise scan.listed_twice(table, identity[0], entries[identity])


def _described(spark: Any, files: Any, spec: Any) -> list[DeleteFile]:
    """files: a java.util.List of DeleteFile, of one spec."""
    keys_of = streams.lines(spark, files, partitions.file_key(spark, spec))
    rows = streams.lines(spark, files, iceberg.once(spark, "delete row", lambda: _row(spark)))
    spec_id, everywhere = int(spec.specId()), bool(spec.isUnpartitioned())
    found = []
    for java, key, row in zip(iceberg.each(files), keys_of, rows, strict=True):
        path, offset, length, sequence, named, keys, kind, count, size = row.split(streams.UNIT)
        found.append(
            DeleteFile(
                java, path, _number(offset), PartitionKey(spec_id, key), everywhere,
                _number(sequence),
                "" if named == "null" else named, delete_scope.key_ids(keys), kind,
                int(count), _number(length) or int(size),
            )
        )  # fmt: skip
    return found


def _row(spark: Any) -> Any:
    """Return DeleteFile -> its values in one text."""
    names_of = iceberg.static_method(
        spark, "org.apache.iceberg.util.ContentFileUtil", "referencedDataFileLocation",
        streams.STRING, DELETE,
    )  # fmt: skip
    return streams.row(
        spark, DELETE,
        iceberg.method(spark, FILE, "location", streams.STRING),
        iceberg.method(spark, DELETE, "contentOffset", streams.LONG),
        iceberg.method(spark, DELETE, "contentSizeInBytes", streams.LONG),
        iceberg.method(spark, FILE, "dataSequenceNumber", streams.LONG),
        names_of,
        iceberg.method(spark, FILE, "equalityFieldIds", "java.util.List"),
        iceberg.method(spark, FILE, "format", "org.apache.iceberg.FileFormat"),
        iceberg.method(spark, FILE, "recordCount", "long"),
        iceberg.method(spark, FILE, "fileSizeInBytes", "long"),
    )  # fmt: skip


def _number(text: str) -> int:
    return 0 if text == "null" else int(text)


def partitioned_equality(table: Any, snapshot_id: int) -> int:
    """Return the number of equality delete files of partitioned specs that the snapshot added; a
    spec that was removed since counts as partitioned."""
    specs = table.specs()
    added = iceberg.each(table.snapshot(snapshot_id).addedDeleteFiles(table.io()))
    of = [specs.get(f.specId()) for f in added if str(f.content().toString()) == EQUALITY]
    return sum(spec is None or bool(spec.isPartitioned()) for spec in of)
