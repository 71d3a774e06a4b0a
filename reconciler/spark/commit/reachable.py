"""Which files a table's metadata refers to, as frames of Spark.

Two written paths are compared as `table.paths` says: a file is rather taken for a needed one than
deleted. Spark leaves out what cannot be meant, and Python compares the rest.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from reconciler.catalog.listing import Resolver
from reconciler.spark.commit import metadata
from reconciler.spark.fallback import stage
from reconciler.table.orphans import Candidates, Listed
from reconciler.table.paths import is_local, key_of

SCHEME = "^([A-Za-z][A-Za-z0-9+.-]*:(//[^/]*)?)?/*"
"""Regular expression of Java: what two plain spellings of one path differ in."""
ODD = "%|//|/[.]|[^\\x00-\\x7F]"
"""Regular expression of Java: a path, without its scheme, that is not in its plain spelling."""


def files(spark: Any, table: Any) -> Any:
    """Return a frame (path, size, key) of all files that the table's snapshots refer to: content
    files, manifests, manifest lists and statistics; key: the path as it is compared."""
    from pyspark.sql import functions as f

    content = stage.all_files(spark, table).select(
        f.col("file_path").alias("path"), f.col("file_size_in_bytes").alias("size")
    )
    manifests = stage.metadata_table(spark, table, "ALL_MANIFESTS").select(
        "path", f.col("length").alias("size")
    )
    lists = spark.createDataFrame(
        [(path, size) for path, size in _listed(spark, table).items()], "path string, size bigint"
    )
    every = content.unionByName(manifests).unionByName(lists)
    key = f.regexp_replace("path", SCHEME, "")
    return every.withColumn("key", key).dropDuplicates(["path"])


def _listed(spark: Any, table: Any) -> dict[str, int]:
    """Return the files that the metadata itself names: manifest lists and statistics files."""
    body = metadata.document(spark, table.operations().current())
    found = {
        str(item["manifest-list"]): -1
        for item in body.get("snapshots") or ()
        if item.get("manifest-list")
    }
    for kind in ("statistics", "partition-statistics"):
        for item in body.get(kind) or ():
            found[str(item["statistics-path"])] = int(item.get("file-size-in-bytes", -1))
    return found


def unneeded(spark: Any, before: Any, after: Any, roots: Collection[str]) -> dict[str, int]:
    """Return the files that `before` refers to and `after` does not: bytes by path, -1 where no
    metadata holds them.

    before, after: the same table, at two times. roots: locations that its files lie below.
    """
    now = files(spark, after)
    rows = files(spark, before).join(now.select("key").distinct(), "key", "left_anti").collect()
    gone = {row.path: int(row["size"]) for row in rows}
    left = Candidates([Listed(path, size, 0) for path, size in gone.items()], *roots)
    Resolver().strike(left, written(spark, now, gone, str(after.location())))
    return {file.path: file.size for file in left.oldest()}


def written(spark: Any, found: Any, wanted: Collection[str], location: str) -> list[str]:
    """Return the paths of the frame that may mean a wanted file: those with its name, and those in
    an unusual spelling; all on a local file system, where links give a file other names."""
    from pyspark.sql import functions as f

    if not wanted:
        return []
    if not is_local(location):
        names = {key_of(path).rpartition("/")[2] for path in wanted}
        known = spark.createDataFrame([(name,) for name in names], "name string")
        found = found.withColumn("name", f.lower(f.element_at(f.split("key", "/"), -1)))
        odd = found.where(f.col("key").rlike(ODD)).select("path")
        found = found.join(known, "name", "left_semi").select("path").unionByName(odd)
    return [row.path for row in found.select("path").distinct().collect()]
