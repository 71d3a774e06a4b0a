"""Removes an attempt's leftover files: only below its own prefix, and only unreferenced ones.

Called once the attempt is fenced, or for our own attempt when none of its work is running.
"""

from __future__ import annotations

import contextlib
import re
import tempfile
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from reconciler.api.catalog_config import CatalogConfig
from reconciler.catalog import orphans
from reconciler.catalog.listing import below_directory
from reconciler.spark.fallback import stage
from reconciler.spark.session import iceberg
from reconciler.table.paths import is_local, local_of

HADOOP_IO = "org.apache.iceberg.hadoop.HadoopFileIO"
HIDDEN = re.compile(r"\..*\.crc")
"""Files of checksums, which Hadoop lists with none of the others and deletes with theirs."""
S3_IO = "org.apache.iceberg.aws.s3.S3FileIO"
PREFIX_OPERATIONS = "org.apache.iceberg.io.SupportsPrefixOperations"


class Removed(NamedTuple):
    """files, bytes: of what was removed. refused: why the rest stays, "" if it does not."""

    files: int = 0
    bytes: int = 0
    refused: str = ""


def remove_leftovers(
    spark: Any,
    table: Any,
    name: str,
    prefix: str,
    committed: Collection[str] = (),
    others: tuple[CatalogConfig, tuple[str, ...]] | None = None,
    commits: Collection[str] = (),
) -> Removed:
    """Delete files below the prefix to which nobody refers.

    committed: files that the caller knows to be referenced. If there are no others, as after nearly
    every attempt, the table's snapshots need not be searched. others: the catalog and the table's
    name in it, to ask other tables too; None for an attempt of this process, which knows that
    nobody has seen what it did not commit. commits: UUIDs of the attempt's commits.
    """
    if "/layout-" not in prefix:  # not a directory of ours
        return Removed()
    end_uploads(spark, table, prefix)
    found = listing(spark, table, prefix)
    if not found:
        remove_empty_directories(spark, table, prefix)
        return Removed()
    known = {_relative(path, prefix) for path in committed}
    if all(_relative(path, prefix) in known for path in found):
        return Removed()
    kept = referenced(spark, name, prefix) | known
    leftovers = {path: size for path, size in found.items() if _relative(path, prefix) not in kept}
    refused = ""
    if others is not None:
        uuid = str(table.operations().current().uuid())
        leftovers, refused = unclaimed(*others, uuid, stage.roots(table), leftovers, commits)
    for path in leftovers:
        table.io().deleteFile(path)
    if len(leftovers) == len(found):
        remove_empty_directories(spark, table, prefix)
    return Removed(len(leftovers), sum(leftovers.values()), refused)


def end_uploads(spark: Any, table: Any, prefix: str) -> None:
    """End uploads in parts below the prefix that a killed task has begun.

    No listing shows them, and S3 keeps their parts. A store that refuses to list uploads keeps them
    until its own rules for incomplete ones apply.
    """
    from py4j.protocol import Py4JJavaError

    io = table.io()
    if not iceberg.is_a(spark, io, S3_IO):
        return
    bucket, _, key = prefix.partition("://")[2].partition("/")
    asked = spark._jvm.software.amazon.awssdk.services.s3.model
    with contextlib.suppress(Py4JJavaError):
        client = io.client(prefix)
        request = asked.ListMultipartUploadsRequest.builder().bucket(bucket).prefix(f"{key}/")
        for page in iceberg.each(client.listMultipartUploadsPaginator(request.build())):
            for upload in iceberg.each(page.uploads()):
                ended = asked.AbortMultipartUploadRequest.builder().bucket(bucket)
                ended = ended.key(upload.key()).uploadId(upload.uploadId())
                client.abortMultipartUpload(ended.build())


def unclaimed(
    catalog: CatalogConfig,
    identifier: tuple[str, ...],
    table_uuid: str,
    roots: Sequence[str],
    files: Mapping[str, int],
    commits: Collection[str] = (),
) -> tuple[dict[str, int], str]:
    """Return those of the files, by path, to which neither another table nor another metadata file
    refers, and why none may be removed ("" if some may).

    Asked are the catalog and the storage as they are now; the table itself, as long as it is there,
    is the caller's matter. roots: locations that its files lie below. commits: UUIDs of commits
    that were never accepted; metadata files that only they wrote are returned too.
    """
    if not files:
        return {}, ""
    with tempfile.TemporaryDirectory(prefix="layout-") as cache:
        found = orphans.unclaimed(
            catalog, identifier, table_uuid, roots, list(files), Path(cache), commits=commits
        )
    return {path: files.get(path, 0) for path in sorted(found.paths)}, found.refused


def listing(spark: Any, table: Any, prefix: str) -> dict[str, int]:
    """Return the bytes by path of the files below the prefix; {} if the storage cannot list by
    prefix."""
    return {path: size for path, (size, _) in listed(spark, table, prefix).items()}


def listed(spark: Any, table: Any, prefix: str) -> dict[str, tuple[int, int]]:
    """Return the bytes, and the time of writing in ms, by path; as `listing`."""
    io = table.io()
    if not iceberg.is_a(spark, io, PREFIX_OPERATIONS):
        return {}
    if iceberg.is_a(spark, io, HADOOP_IO) and is_local(prefix):
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
    return {
        f"file:{local_of(file.path)}": (file.size, file.changed_ms)
        for file in below_directory(prefix)
        if not HIDDEN.fullmatch(file.path.rpartition("/")[2])
    }


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


def remove_empty_directories(spark: Any, table: Any, prefix: str) -> None:
    """On a file system, remove the empty prefix and its partition directories, deepest first."""
    if not iceberg.is_a(spark, table.io(), HADOOP_IO):
        return
    root = spark._jvm.org.apache.hadoop.fs.Path(prefix)
    system = root.getFileSystem(table.io().conf())
    _remove_if_empty(system, root)


def _remove_if_empty(system: Any, directory: Any) -> bool:
    if not system.exists(directory):
        return True
    below = [
        entry.isDirectory() and _remove_if_empty(system, entry.getPath())
        for entry in system.listStatus(directory)
    ]
    return bool(system.delete(directory, False)) if all(below) else False
