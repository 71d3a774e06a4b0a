"""What the manifests of a table say, read in the JVM (`engines.manifests.Manifests`)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, cast

from reconciler.engines.commit import locations
from reconciler.engines.delete_file import Ages, DeleteFile
from reconciler.engines.manifests import Content, Tasks, WrittenFile
from reconciler.spark.commit import manifests, reachable
from reconciler.spark.deletes import delete_files
from reconciler.spark.fallback import stage
from reconciler.spark.schedule import partitions, scan
from reconciler.spark.schedule.scan import ScanTasks
from reconciler.spark.session import iceberg, streams
from reconciler.table.deletes import PartitionKey

OUR_DIRECTORY = "/layout-[^/]+/"
"""Pattern in the path of every file that we wrote."""
DELETED = 2
"""A manifest entry's status: the file was removed by the entry's snapshot."""
MANIFEST = "org.apache.iceberg.ManifestFile"


class JavaManifests:
    """The table's manifests, read in the JVM."""

    spark: Any
    java: Any
    name: str

    def tasks(
        self,
        snapshot_id: int,
        paths: Iterable[str],
        columns: Collection[int] = (),
        bare: bool = False,
    ) -> ScanTasks:
        return scan.scan_tasks(self.spark, self.java, snapshot_id, paths, columns, bare)

    def tasks_under(
        self, snapshot_id: int, deletes: Iterable[str], columns: Collection[int] = ()
    ) -> ScanTasks:
        return scan.tasks_under(self.spark, self.java, snapshot_id, deletes, columns)

    def partition_keys(self, tasks: Tasks) -> dict[str, PartitionKey]:
        return scan.partition_keys(self.spark, self.java, cast(ScanTasks, tasks))

    def ages(self, snapshot_id: int, paths: Iterable[str]) -> Ages:
        return scan.ages(self.spark, self.java, snapshot_id, paths)

    def touched_by(self, tasks: Tasks, sequences: Collection[int]) -> frozenset[str]:
        return scan.touched_by(self.spark, cast(ScanTasks, tasks), sequences)

    def applied(self, tasks: Tasks, files: Sequence[DeleteFile]) -> dict[str, list[DeleteFile]]:
        by_path = {file.path: file for file in files if not file.vector}
        vectors = {(file.path, file.data_file): file for file in files if file.vector}
        every = (
            cast(ScanTasks, tasks).java_tasks(list(tasks))
            if tasks
            else iceberg.java_list(self.spark, [])
        )
        found = scan.delete_paths(self.spark, every, {file.path for file in files})
        return {
            path: [by_path.get(one) or vectors[one, path] for one in sorted(own)]
            for path, own in found.items()
        }

    def delete_files(self, snapshot_id: int) -> list[DeleteFile]:
        return delete_files.live(self.spark, self.java, snapshot_id)

    def require_once(self, files: Iterable[DeleteFile]) -> None:
        delete_files.require_once(self.java, files)

    def partitioned_equality(self, snapshot_id: int) -> int:
        return delete_files.partitioned_equality(self.java, snapshot_id)

    def manifests(self, snapshot_id: int) -> dict[str, int]:
        listed = self.java.snapshot(snapshot_id).allManifests(self.java.io())
        row = streams.row(
            self.spark, MANIFEST,
            iceberg.method(self.spark, MANIFEST, "path", streams.STRING),
            iceberg.method(self.spark, MANIFEST, "snapshotId", streams.LONG),
        )  # fmt: skip
        lines = streams.lines(self.spark, listed, row)
        found = (line.rpartition(streams.UNIT) for line in lines)
        return {path: 0 if number == "null" else int(number) for path, _, number in found}

    def manifest_sizes(self) -> dict[str, int]:
        return manifests.live_manifests(self.java)

    def grouped(self, groups: int) -> Any:
        """Return a java.util.Map from each live data file to its group."""
        return manifests.grouped(self.spark, self.java, groups)

    def entries(self) -> tuple[int, str]:
        return manifests.live_entries(self.spark, self.java, None)

    def content_of(self, snapshot_id: int) -> Content:
        spark, java, io = self.spark, self.java, self.java.io()
        snapshot = java.snapshot(snapshot_id)
        added = list(iceberg.each(snapshot.addedDataFiles(io)))
        removed = [str(file.location()) for file in iceberg.each(snapshot.removedDataFiles(io))]
        new, gone = (
            delete_files.written(spark, java, list(iceberg.each(files)))
            for files in (snapshot.addedDeleteFiles(io), snapshot.removedDeleteFiles(io))
        )
        return Content(written_files(spark, java, added), removed, new, gone)

    def added_paths(self, snapshot_id: int) -> list[str]:
        snapshot, io = self.java.snapshot(snapshot_id), self.java.io()
        return [
            *(str(file.location()) for file in iceberg.each(snapshot.addedDataFiles(io))),
            *(str(file.location()) for file in iceberg.each(snapshot.addedDeleteFiles(io))),
        ]

    def referenced(self, prefix: str) -> set[str]:
        from pyspark.sql import functions as f

        marker = "/" + prefix.rpartition("/")[2] + "/"
        files = stage.all_files(self.spark, iceberg.load(self.spark, self.name))
        rows = files.where(f.col("file_path").contains(marker)).select("file_path").distinct()
        return {row.file_path.partition(marker)[2] for row in rows.collect()}

    def added_by(self, paths: Collection[str]) -> Iterator[int]:
        from pyspark.sql import functions as f

        entries = stage.metadata_table(
            self.spark, iceberg.load(self.spark, self.name), "ALL_ENTRIES"
        )
        added = entries.where(
            (f.col("status") != DELETED) & f.col("data_file.file_path").rlike(OUR_DIRECTORY)
        )
        for row in added.select("snapshot_id", "data_file.file_path").collect():
            if row.file_path in paths:
                yield int(row.snapshot_id)

    def used_specs(self) -> frozenset[int]:
        listed = stage.metadata_table(self.spark, self.frozen(), "ALL_MANIFESTS")
        rows = listed.select("partition_spec_id").distinct().collect()
        return frozenset(int(row.partition_spec_id) for row in rows)

    def frozen(self, expiring: Collection[int] = ()) -> Any:
        """Return an org.apache.iceberg.Table, which no commit changes. Nothing is read yet."""
        return stage.overridden(self.spark, self.java, {})

    def unneeded(self, before: Any) -> dict[str, int]:
        now = self.frozen()
        properties = iceberg.properties_of(self.spark, self.java)
        roots = locations.roots(str(self.java.location()), properties)
        return reachable.unneeded(self.spark, before, now, roots)

    def mentioned(self, paths: Collection[str]) -> list[str]:
        found = reachable.files(self.spark, self.frozen())
        return reachable.written(self.spark, found, paths, str(self.java.location()).rstrip("/"))


def written_files(spark: Any, java: Any, files: Sequence[Any]) -> tuple[WrittenFile, ...]:
    """Return org.apache.iceberg.DataFile objects as values. java: the org.apache.iceberg.Table."""
    keys = partitions.of_files(spark, java, files)
    return tuple(
        WrittenFile(f, str(f.location()), int(f.recordCount()), int(f.fileSizeInBytes()), key)
        for f, key in zip(files, keys, strict=True)
    )
