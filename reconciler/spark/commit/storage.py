"""The table's files, through Iceberg's FileIO (`engines.table.Storage`)."""

from __future__ import annotations

import contextlib
import re
from typing import Any

from reconciler.catalog.listing import below_directory
from reconciler.spark.session import iceberg
from reconciler.table.paths import is_local, local_of

HADOOP_IO = "org.apache.iceberg.hadoop.HadoopFileIO"
HIDDEN = re.compile(r"\..*\.crc")
"""Files of checksums, which Hadoop lists with none of the others and deletes with theirs."""
S3_IO = "org.apache.iceberg.aws.s3.S3FileIO"
PREFIX_OPERATIONS = "org.apache.iceberg.io.SupportsPrefixOperations"


class JavaStorage:
    """The table's files, by Iceberg's FileIO."""

    spark: Any
    java: Any

    def location(self) -> str:
        return str(self.java.location())

    def metadata_directory(self) -> str:
        return str(self.java.operations().metadataFileLocation("x")).rpartition("/")[0]

    def delete_file(self, path: str) -> None:
        try:
            self.java.io().deleteFile(path)
        except Exception as error:
            if not _missing(error):
                raise

    def has_file(self, path: str) -> bool:
        return bool(self.java.io().newInputFile(path).exists())

    def listed(self, directory: str) -> dict[str, tuple[int, int | None]]:
        io = self.java.io()
        if not iceberg.is_a(self.spark, io, PREFIX_OPERATIONS):
            return {}
        if iceberg.is_a(self.spark, io, HADOOP_IO) and is_local(directory):
            return _listed_locally(directory)
        try:
            found = io.listPrefix(directory + "/").iterator()
            files = {}
            while found.hasNext():
                file = found.next()
                changed = int(file.createdAtMillis()) or None
                files[str(file.location())] = int(file.size()), changed
        except Exception as error:
            if _missing(error):
                return {}
            raise
        return files

    def end_uploads(self, prefix: str) -> None:
        """S3 keeps the parts. A store that refuses to list uploads keeps them until its own rules
        for incomplete ones apply."""
        from py4j.protocol import Py4JJavaError

        io = self.java.io()
        if not iceberg.is_a(self.spark, io, S3_IO):
            return
        bucket, _, key = prefix.partition("://")[2].partition("/")
        asked = self.spark._jvm.software.amazon.awssdk.services.s3.model
        with contextlib.suppress(Py4JJavaError):
            client = io.client(prefix)
            request = asked.ListMultipartUploadsRequest.builder().bucket(bucket).prefix(f"{key}/")
            for page in iceberg.each(client.listMultipartUploadsPaginator(request.build())):
                for upload in iceberg.each(page.uploads()):
                    ended = asked.AbortMultipartUploadRequest.builder().bucket(bucket)
                    ended = ended.key(upload.key()).uploadId(upload.uploadId())
                    client.abortMultipartUpload(ended.build())

    def remove_empty_directories(self, prefix: str) -> None:
        io = self.java.io()
        if not iceberg.is_a(self.spark, io, HADOOP_IO):
            return
        root = self.spark._jvm.org.apache.hadoop.fs.Path(prefix)
        _remove_if_empty(root.getFileSystem(io.conf()), root)


def _listed_locally(prefix: str) -> dict[str, tuple[int, int | None]]:
    """Return the same of the local file system, where Hadoop starts a process for each file to read
    its permissions. Python runs beside the JVM."""
    return {
        f"file:{local_of(file.path)}": (file.size, file.changed_ms)
        for file in below_directory(prefix)
        if not HIDDEN.fullmatch(file.path.rpartition("/")[2])
    }


def _missing(error: Exception) -> bool:
    """Whether the file is gone, or the prefix was never written to: an error on file systems, none
    elsewhere."""
    text = f"{getattr(error, 'java_exception', '')} {getattr(error, '_origin', '')} {error}"
    return "FileNotFoundException" in text or "NotFoundException" in text


def _remove_if_empty(system: Any, directory: Any) -> bool:
    if not system.exists(directory):
        return True
    below = [
        entry.isDirectory() and _remove_if_empty(system, entry.getPath())
        for entry in system.listStatus(directory)
    ]
    return bool(system.delete(directory, False)) if all(below) else False
