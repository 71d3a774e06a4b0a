"""Rewrites of manifests in the JVM: which manifests a commit replaces, the group of each data file,
and the live entries, which must be the same before and after."""

from __future__ import annotations

from typing import Any

from reconciler.engines.commit.operations import NewManifests
from reconciler.spark.fallback import stage
from reconciler.spark.session import iceberg, streams

COMPARED = (
    "content", "file_path", "spec_id", "record_count", "file_size_in_bytes", "content_offset",
    "referenced_data_file", "first_row_id", "sort_order_id", "equality_ids",
)  # fmt: skip
"""Fields of a data file that tell entries apart; the partition is compared as text."""


def fill(spark: Any, update: Any, operation: NewManifests) -> None:
    """Name the manifests that the operation replaces, and the group of each live data file."""
    path = _handle(spark, "org.apache.iceberg.ManifestFile", "path")
    chosen = iceberg.java_set(spark, operation.inputs)
    contains = iceberg.method(spark, "java.util.Set", "contains", "boolean", "java.lang.Object")
    listed = _then(spark, path, contains.bindTo(chosen), "boolean")
    file = _handle(spark, "org.apache.iceberg.ContentFile", "location")
    get = iceberg.method(spark, "java.util.Map", "get", "java.lang.Object", "java.lang.Object")
    group = _then(spark, file, get.bindTo(operation.groups), "java.lang.Object")
    update.rewriteIf(iceberg.as_lambda(spark, "java.util.function.Predicate", listed))
    update.clusterBy(iceberg.as_lambda(spark, "java.util.function.Function", group))


def _handle(spark: Any, owner: str, name: str) -> Any:
    return iceberg.method(spark, owner, name, "java.lang.String")


def _then(spark: Any, first: Any, second: Any, returns: str) -> Any:
    """Return `second` after `first`, which gives it a text."""
    typed = second.asType(iceberg.method_type(spark, returns, "java.lang.String"))
    return spark._jvm.java.lang.invoke.MethodHandles.filterReturnValue(first, typed)


def live_manifests(table: Any) -> dict[str, int]:
    """Return the bytes of each manifest of the current snapshot by its path."""
    snapshot = table.currentSnapshot()
    if snapshot is None:
        return {}
    return {
        str(manifest.path()): int(manifest.length())
        for manifest in iceberg.each(snapshot.allManifests(table.io()))
    }


def grouped(spark: Any, table: Any, groups: int) -> Any:
    """Return a java.util.Map from each live data file to its group: runs of equal length in the
    order of the partitions."""
    from pyspark.sql import functions as f

    files = stage.metadata_table(spark, table, "FILES").where(f.col("content") == 0)
    order = ["spec_id", *(["partition"] if "partition" in files.columns else []), "file_path"]
    rows = files.orderBy(*order).select("file_path").collect()
    paths = list(dict.fromkeys(row.file_path for row in rows))  # a file may be in two entries
    share = groups / max(len(paths), 1)
    return streams.numbers(spark, {path: int(n * share) for n, path in enumerate(paths)})


def live_entries(spark: Any, table: Any, snapshot: Any) -> tuple[int, str]:
    """Return the number of live entries and a sum of their hashes, which does not depend on their
    order.

    snapshot: one that is not committed, in place of the head; None for the head.
    """
    from pyspark.sql import functions as f

    seen = table if snapshot is None else _with_head(spark, table, snapshot)
    entries = stage.metadata_table(spark, seen, "ENTRIES").where(f.col("status") < 2)
    fields = set(entries.select("data_file.*").columns)
    columns = [
        f.col("snapshot_id"), f.col("sequence_number"), f.col("file_sequence_number"),
        *(f.col(f"data_file.{name}") for name in COMPARED if name in fields),
        *([f.to_json("data_file.partition")] if "partition" in fields else []),
    ]  # fmt: skip
    known = [f.coalesce(column.cast("string"), f.lit("-")) for column in columns]
    hashed = f.xxhash64(f.concat_ws("|", *known)).cast("decimal(38,0)")
    row = entries.agg(f.count("*").alias("n"), f.sum(hashed).alias("sum")).collect()[0]
    return int(row.n), str(row["sum"])


def _with_head(spark: Any, table: Any, snapshot: Any) -> Any:
    """Return a copy of the table in which the snapshot is main's head."""
    core = spark._jvm.org.apache.iceberg
    current = table.operations().current()
    metadata = core.TableMetadata.buildFrom(current).setBranchSnapshot(snapshot, "main").build()
    operations = core.StaticTableOperations(metadata, table.io(), table.locationProvider())
    return core.BaseTable(operations, table.name())
