"""Which files a table's metadata refers to, and which of them only expired snapshots did.

Paths are compared without scheme and authority: `s3://b/x` and `s3a://b/x`, `file:/x` and
`file:///x` are the same file, and a file is rather taken for a needed one than deleted.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from reconciler.spark import metadata, stage
from reconciler.table.orphans import SCHEME

PLACE = re.compile(r"(?:([A-Za-z][A-Za-z0-9+.-]*):)?(?://([^/]*))?/*(.*)")
ALIKE = {"s3a": "s3", "s3n": "s3", "abfss": "abfs", "wasbs": "wasb"}
"""Schemes of one store."""


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


def unneeded(spark: Any, before: Any, after: Any) -> dict[str, int]:
    """Return the files that `before` refers to and `after` does not: bytes by path, -1 where no
    metadata holds them.

    before, after: the same table, at two times.
    """
    now = files(spark, after).select("key").distinct()
    gone = files(spark, before).join(now, "key", "left_anti")
    return {row.path: int(row["size"]) for row in gone.collect()}


def frozen(spark: Any, table: Any) -> Any:
    """Return a copy of the table as it is now, which no commit changes."""
    return stage.overridden(spark, table, {})


def own(table: Any, paths: Mapping[str, int]) -> dict[str, int]:
    """Return those of the files that lie below the table's own directories.

    A file elsewhere, such as one that was registered with `add_files`, may belong to another table.
    """
    roots = [_place(root).rstrip("/") + "/" for root in _roots(table)]
    return {
        path: size
        for path, size in paths.items()
        if any(_place(path).startswith(root) for root in roots)
    }


def _roots(table: Any) -> list[str]:
    properties = table.properties()
    named = [properties.get(name) for name in (stage.DATA_PATH, "write.metadata.path")]
    return [str(table.location()), *(str(path) for path in named if path)]


def _place(path: str) -> str:
    """Return the path in one spelling, with its authority: unlike `SCHEME`, this must not take two
    places for one."""
    found = PLACE.fullmatch(path)
    assert found is not None  # every part is optional
    scheme, authority, rest = found.groups()
    return f"{ALIKE.get(scheme, scheme or 'file')}://{authority or ''}/{rest}"


def delete(table: Any, paths: Mapping[str, int]) -> tuple[int, int]:
    """Delete the files; return the number and the bytes of those that were deleted."""
    removed = size = 0
    for path, of_file in paths.items():
        try:
            table.io().deleteFile(path)
        except Exception:  # the file stays, and a later search for orphans finds it
            continue
        removed, size = removed + 1, size + max(of_file, 0)
    return removed, size
