"""Which files a table's metadata refers to, and which of them only expired snapshots did.

Two written paths are compared as `table.paths` says: a file is rather taken for a needed one than
deleted. Spark leaves out what cannot be meant, and Python compares the rest.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
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
    now = files(spark, after)
    rows = files(spark, before).join(now.select("key").distinct(), "key", "left_anti").collect()
    gone = {row.path: int(row["size"]) for row in rows}
    left = Candidates([Listed(path, size, 0) for path, size in gone.items()], *stage.roots(after))
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


def frozen(spark: Any, table: Any) -> Any:
    """Return a copy of the table as it is now, which no commit changes."""
    return stage.overridden(spark, table, {})


def own(table: Any, paths: Mapping[str, int]) -> dict[str, int]:
    """Return those of the files that lie below the table's own directories.

    A file elsewhere, such as one that was registered with `add_files`, may belong to another table.
    """
    places, resolver = stage.roots(table), Resolver()

    def below(path: str, root: str) -> bool:
        """Whether the path is below the root as written, and still is with `..` and links followed:
        neither another bucket nor what a link leads to is the table's."""
        real, real_root = resolver.real(path), resolver.real(root)
        return (
            _place(path).startswith(_place(root).rstrip("/") + "/")
            and key_of(path).startswith(f"{key_of(root)}/".lstrip("/"))
            and key_of(real).startswith(f"{key_of(real_root)}/".lstrip("/"))
        )

    return {path: size for path, size in paths.items() if any(below(path, it) for it in places)}


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
