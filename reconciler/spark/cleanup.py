"""Removes an attempt's leftover files: only below its own prefix, and only unreferenced ones.

Called once the attempt is fenced, or for our own attempt when none of its work is running.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Collection
from pathlib import Path
from typing import Any

from reconciler.spark import iceberg, stage

HADOOP_IO = "org.apache.iceberg.hadoop.HadoopFileIO"
LOCAL = re.compile("^(file:(//)?)?/+(?!/)")
"""Begins a path of the local file system."""
HIDDEN = re.compile(r"\..*\.crc")
"""Files of checksums, which Hadoop lists with none of the others and deletes with theirs."""
PREFIX_OPERATIONS = "org.apache.iceberg.io.SupportsPrefixOperations"


def remove_leftovers(
    spark: Any, table: Any, name: str, prefix: str, committed: Collection[str] = ()
) -> tuple[int, int]:
    """Delete unreferenced files below the prefix; return their number and bytes.

    committed: files that the caller knows to be referenced. If there are no others, as after nearly
    every attempt, the table's snapshots need not be searched.
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
    """Return the bytes by path of the files below the prefix; {} if the storage cannot list by
    prefix."""
    return {path: size for path, (size, _) in listed(spark, table, prefix).items()}


def listed(spark: Any, table: Any, prefix: str) -> dict[str, tuple[int, int]]:
    """Return the bytes, and the time of writing in ms, by path; as `listing`."""
    io = table.io()
    if not iceberg.is_a(spark, io, PREFIX_OPERATIONS):
        return {}
    if iceberg.is_a(spark, io, HADOOP_IO) and LOCAL.match(prefix):
        return _listed_locally(prefix)
    try:
        found = io.listPrefix(prefix + "/").iterator()
        files = {}
        while found.hasNext():
            file = found.next()
            files[str(file.location())] = int(file.size()), int(file.createdAtMillis())
    except Exception as error:
        if _missing(error):
            return {}
        raise
    return files


def _listed_locally(prefix: str) -> dict[str, tuple[int, int]]:
    """Return the same of the local file system, where Hadoop starts a process for each file to read
    its permissions. Python runs beside the JVM."""
    root = Path("/" + LOCAL.sub("", prefix))
    files = {}
    for path in root.rglob("*"):
        if path.is_file() and not HIDDEN.fullmatch(path.name):
            with contextlib.suppress(FileNotFoundError):  # removed meanwhile
                found = path.stat()
                files[f"file:{path}"] = found.st_size, found.st_mtime_ns // 1_000_000
    return files


def _missing(error: Exception) -> bool:
    """Whether the prefix was never written to: an error on file systems, an empty list
    elsewhere."""
    text = f"{getattr(error, 'java_exception', '')} {getattr(error, '_origin', '')} {error}"
    return "FileNotFoundException" in text or "NotFoundException" in text


def referenced(spark: Any, name: str, prefix: str) -> set[str]:
    """Return files below the prefix, relative to it, that a snapshot of any branch or tag
    references."""
    from pyspark.sql import functions as f

    marker = "/" + prefix.rpartition("/")[2] + "/"
    files = stage.all_files(spark, iceberg.load(spark, name))
    rows = files.where(f.col("file_path").contains(marker)).select("file_path").distinct()
    return {_relative(row.file_path, prefix) for row in rows.collect()}


def _relative(path: str, prefix: str) -> str:
    """Return the part below the prefix: `file:/x` and `file:///x` are the same place."""
    marker = "/" + prefix.rpartition("/")[2] + "/"
    return path.partition(marker)[2]


def _remove_empty_directories(spark: Any, table: Any, prefix: str) -> None:
    """On a file system, remove the empty prefix and its partition directories, deepest first."""
    if not iceberg.is_a(spark, table.io(), HADOOP_IO):
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
