"""Stages exactly these input files and table properties, through Iceberg's set ids.

A set id names a set of scan tasks for reading, and a rewrite for writing. The table cached under it
has overridden properties, so that output prefix, row-group size and codec apply to the rewrite
while the real table's properties do not change.
Properties of the table that name a class (api.served_properties) are not among the cached
table's, so that Iceberg loads none.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from reconciler.api.served_properties import names_code, staged_properties
from reconciler.engines.commit.metadata import UNSORTED
from reconciler.spark.session import iceberg
from reconciler.table.schema import UNKNOWN_TO_SPARK

DEFAULTS = ("initial-default", "write-default")
"""Of a column, in the JSON of a schema."""
WHOLE_FILE = 1 << 40
"""More bytes than any file or the inputs of a task have."""


def overridden(spark: Any, table: Any, changes: Mapping[str, str]) -> Any:
    """Return the present table with changed properties, for staging only; nothing is committed."""
    core = spark._jvm.org.apache.iceberg
    merged = spark._jvm.java.util.HashMap()
    given = table.properties()
    found = {name: given.get(name) for name in _names(spark, given)}
    kept = staged_properties({name: value for name, value in found.items() if value is not None})
    for name, value in {**kept, **changes}.items():
        merged.put(name, value)
    locations = core.LocationProviders.locationsFor(table.location(), merged)
    current = table.operations().current()
    metadata = current.replaceProperties(merged)
    _locate(spark, metadata, current.metadataFileLocation())
    operations = core.StaticTableOperations(metadata, table.io(), locations)
    return core.BaseTable(operations, table.name())


def _locate(spark: Any, metadata: Any, location: Any) -> None:
    """Let changed metadata name the file that they were read from.

    A reader loads older schemas from there, for an equality delete on a dropped column.
    """
    kind = iceberg.java_class(spark, "org.apache.iceberg.TableMetadata")
    field = kind.getDeclaredField("metadataFileLocation")
    field.setAccessible(True)
    field.set(metadata, location)


def without_code(spark: Any, table: Any) -> Any:
    """The table, or a copy of it as of now for reading, if its properties name a class."""
    named = any(names_code(name) for name in _names(spark, table.properties()))
    return overridden(spark, table, {}) if named else table


def all_files(spark: Any, table: Any) -> Any:
    """A frame of the files of all snapshots: the metadata table of that name."""
    return metadata_table(spark, table, "ALL_FILES")


def metadata_table(spark: Any, table: Any, kind: str) -> Any:
    """A frame of a metadata table (org.apache.iceberg.MetadataTableType), also of a table with
    columns of types that Spark does not have."""
    from pyspark.sql import DataFrame

    core = spark._jvm.org.apache.iceberg
    found = core.spark.SparkTableUtil.loadMetadataTable(
        spark._jsparkSession,
        _shown(spark, without_code(spark, table)),
        getattr(core.MetadataTableType, kind),
    )
    return DataFrame(found, spark.spark)


def _shown(spark: Any, table: Any) -> Any:
    """The table, or a copy of it as of now for its metadata tables, which have columns of its
    columns' types: those that Spark does not have are replaced by ones with equal bounds and
    partition values."""
    schemas = [iceberg.schema_document(spark, it) for it in iceberg.java_values(table.schemas())]
    if schemas == [_known(one) for one in schemas]:
        return table
    core = spark._jvm.org.apache.iceberg
    current = table.operations().current()
    body = json.loads(str(core.TableMetadataParser.toJson(current)))
    changed = {name: _known(body[name]) for name in ("schema", "schemas") if name in body}
    location = current.metadataFileLocation()
    metadata = core.TableMetadataParser.fromJson(location, json.dumps({**body, **changed}))
    operations = core.StaticTableOperations(metadata, table.io(), table.locationProvider())
    return core.BaseTable(operations, table.name())


def _known(schema: Any) -> Any:
    """Return a schema, or a part of one, in JSON, with types that Spark has."""
    if isinstance(schema, list):
        return [_known(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    kinds = {
        key: UNKNOWN_TO_SPARK.get(str(schema[key]).partition("(")[0])
        for key in ("type", "element", "key", "value")
        if isinstance(schema.get(key), str)
    }
    found = {key: kinds.get(key) or _known(value) for key, value in schema.items()}
    if kinds.get("type"):
        found = {key: value for key, value in found.items() if key not in DEFAULTS}
    return found


def _names(spark: Any, properties: Any) -> list[str]:
    return str(spark._jvm.java.lang.String.join("\n", properties.keySet())).split("\n")


@contextlib.contextmanager
def staged(spark: Any, table: Any, set_id: str, tasks: Any) -> Iterator[str]:
    """Register a java.util.List of scan tasks under `set_id`, to be read."""
    table = without_code(spark, table)
    cache = iceberg.table_cache(spark)
    tasks_of = iceberg.task_set_manager(spark)
    cache.add(set_id, table)
    try:
        tasks_of.stageTasks(table, set_id, tasks)
        yield set_id
    finally:
        cache.remove(set_id)
        tasks_of.removeTasks(table, set_id)


@contextlib.contextmanager
def rewriting(spark: Any, table: Any, set_id: str) -> Iterator[Any]:
    """Register `set_id` as a rewrite to write to; yields a function that lists the new files.

    table: as `overridden` returns it.
    """
    cache, rewrites = iceberg.table_cache(spark), iceberg.rewrite_coordinator(spark)
    cache.add(set_id, table)
    try:
        yield lambda: list(iceberg.each(rewrites.fetchNewFiles(table, set_id)))
    finally:
        cache.remove(set_id)
        rewrites.clearRewrite(table, set_id)


def read(spark: Any, set_id: str, split_bytes: int = 0) -> Any:
    """Return the rows of a staged set, deletes applied; with row lineage columns from format 3 on.

    split_bytes: bytes that one task reads; 0 uses the table's properties. Only a single task reads
    files in staged order: with two open splits Iceberg closes the larger first.
    """
    reader = spark.read.format("iceberg")
    if split_bytes:
        reader = reader.option("split-size", str(split_bytes))
    return reader.load(set_id)


@contextlib.contextmanager
def without_sidecars(spark: Any) -> Iterator[None]:
    """Let Hadoop write local files without a checksum file beside each, in this JVM.

    It starts a `chmod` process for every file that it creates, which takes as long as to write a
    few thousand rows. Parquet pages have checksums of their own. While another thread leaves this
    block, a file may get its checksum file: both kinds are read alike.
    """
    conf = spark.sparkContext._jsc.hadoopConfiguration()
    local = spark._jvm.org.apache.hadoop.fs.FileSystem.get(
        spark._jvm.java.net.URI.create("file:///"), conf
    )
    local.setWriteChecksum(False)
    try:
        yield
    finally:
        local.setWriteChecksum(True)


def write(frame: Any, set_id: str, spec_id: int, roll_bytes: int, order_id: int = UNSORTED) -> None:
    """Write a frame as a rewrite, one task per partition.

    spec_id: of the outputs; rows of a task are clustered by its partitions. roll_bytes: file size
    at which a task begins its next file. order_id: the sort order that files record.
    """
    writer = (
        frame.write.format("iceberg")
        .option("use-table-distribution-and-ordering", "false")
        .option("fanout-enabled", "false")
        .option("target-file-size-bytes", str(roll_bytes))
        .option("output-spec-id", str(spec_id))
        .option("write-format", "parquet")
        .mode("append")
    )
    if order_id != UNSORTED:
        writer = writer.option("output-sort-order-id", str(order_id))
    with without_sidecars(frame.sparkSession):
        writer.save(set_id)


def union(frames: Sequence[Any]) -> Any:
    """Return the frames' partitions one after the other."""
    joined = frames[0]
    for frame in frames[1:]:
        joined = joined.union(frame)
    return joined
