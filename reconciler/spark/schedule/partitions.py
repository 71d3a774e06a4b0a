"""The partition of a content file as a key: equal for equal tuples of values, and only for them.

Iceberg's path of a partition is for people. NULL and the text "null" have the same one, and so do
other values (`SingleValueParser` keeps them apart: it writes each value in JSON by its type).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from reconciler.spark.session import iceberg, streams
from reconciler.table.deletes import PartitionKey

_FILE = "org.apache.iceberg.ContentFile"
_STRUCT = "org.apache.iceberg.StructLike"


def key_of(spark: Any, spec: Any) -> Any:
    """Return partition (StructLike of the spec) -> its key, as a MethodHandle."""
    to_json = iceberg.static_method(
        spark, "org.apache.iceberg.SingleValueParser", "toJson", streams.STRING,
        "org.apache.iceberg.types.Type", streams.OBJECT,
    )  # fmt: skip
    return to_json.bindTo(spec.partitionType())


def file_key(spark: Any, spec: Any) -> Any:
    """Return ContentFile -> the key of its partition, as a MethodHandle."""
    partition_of = iceberg.method(spark, _FILE, "partition", _STRUCT)
    return streams.chain(spark, partition_of, key_of(spark, spec))


def of_files(spark: Any, table: Any, files: Sequence[Any]) -> list[PartitionKey]:
    """Return the partition key of each org.apache.iceberg.ContentFile, in their order."""
    found: dict[int, PartitionKey] = {}
    for spec_id in sorted({int(file.specId()) for file in files}):
        own = [n for n, file in enumerate(files) if int(file.specId()) == spec_id]
        listed = iceberg.java_list(spark, [files[n] for n in own])
        keys = streams.lines(spark, listed, file_key(spark, table.specs().get(spec_id)))
        found |= {n: PartitionKey(spec_id, key) for n, key in zip(own, keys, strict=True)}
    return [found[n] for n in range(len(files))]
