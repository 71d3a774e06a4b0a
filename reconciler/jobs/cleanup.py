"""Removes what an attempt left behind: only below its own prefix, only what nothing references.

Called once the attempt is fenced, or while it is our own and nothing of it is under way.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from reconciler.jobs import iceberg, stage

PREFIX_OPERATIONS = "org.apache.iceberg.io.SupportsPrefixOperations"


def remove_leftovers(
    spark: Any, table: Any, name: str, prefix: str, committed: Collection[str] = ()
) -> tuple[int, int]:
    """Deletes unreferenced files below the prefix; how many, and their bytes.

    committed: files that the caller knows to be referenced. Where they are all there is, which is
    how nearly every attempt ends, the table's snapshots need not be searched.
    """
    if "/layout-" not in prefix:  # not a directory of ours
        return 0, 0
    found = listing(spark, table, prefix)
    if not found:
        _remove_empty_directories(spark, table, prefix)
        return 0, 0
    known = {_relative(path, prefix) for path in committed}
    if all(_relative(path, prefix) in known for path in found):
        return 0, 0
    kept = referenced(spark, name, prefix) | known
    leftovers = {path: size for path, size in found.items() if _relative(path, prefix) not in kept}
    for path in leftovers:
        table.io().deleteFile(path)
    if len(leftovers) == len(found):
        _remove_empty_directories(spark, table, prefix)
    return len(leftovers), sum(leftovers.values())


def listing(spark: Any, table: Any, prefix: str) -> dict[str, int]:
    """Bytes by path of the files below the prefix; {} if the storage cannot list by prefix."""
    io = table.io()
    if not iceberg.is_a(spark, io, PREFIX_OPERATIONS):
        return {}
    try:
        found = io.listPrefix(prefix + "/").iterator()
        files = {}
        while found.hasNext():
            file = found.next()
            files[str(file.location())] = int(file.size())
    except Exception as error:
        if _missing(error):
            return {}
        raise
    return files


def _missing(error: Exception) -> bool:
    """A prefix that was never written to is an error on file systems, an empty list elsewhere."""
    text = f"{getattr(error, 'java_exception', '')} {getattr(error, '_origin', '')} {error}"
    return "FileNotFoundException" in text or "NotFoundException" in text


def referenced(spark: Any, name: str, prefix: str) -> set[str]:
    """Files below the prefix, relative to it, that any snapshot of any branch or tag references."""
    from pyspark.sql import functions as f

    marker = "/" + prefix.rpartition("/")[2] + "/"
    files = stage.all_files(spark, iceberg.load(spark, name))
    rows = files.where(f.col("file_path").contains(marker)).select("file_path").distinct()
    return {_relative(row.file_path, prefix) for row in rows.collect()}


def _relative(path: str, prefix: str) -> str:
    """The part below the prefix: `file:/x` and `file:///x` are the same place."""
    marker = "/" + prefix.rpartition("/")[2] + "/"
    return path.partition(marker)[2]


def _remove_empty_directories(spark: Any, table: Any, prefix: str) -> None:
    """On a file system, the prefix itself and its partition directories, deepest first."""
    if not iceberg.is_a(spark, table.io(), "org.apache.iceberg.hadoop.HadoopFileIO"):
        return
    root = spark._jvm.org.apache.hadoop.fs.Path(prefix)
    system = root.getFileSystem(spark._jsc.hadoopConfiguration())
    _remove_if_empty(system, root)


def _remove_if_empty(system: Any, directory: Any) -> bool:
    if not system.exists(directory):
        return True
    below = [
        entry.isDirectory() and _remove_if_empty(system, entry.getPath())
        for entry in system.listStatus(directory)
    ]
    return bool(system.delete(directory, False)) if all(below) else False
