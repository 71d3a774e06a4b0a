"""Iceberg's Java API as the jobs need it: tables, snapshots, scan tasks, the staging caches.

Work over many files is done inside the JVM (streams over method handles), not by one py4j call a
file. Used by `stage`, `commit`, `fence` and `cleanup`; nothing here decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from reconciler.core.execution import CatalogConfig

PLAN_ID = "layout.plan-id"
ACTION_IDS = "layout.action-ids"
ATTEMPT_ID = "layout.attempt-id"
BATCH = "layout.batch"
FENCE = "layout.fence"


def qualified(catalog: CatalogConfig, table: tuple[str, ...]) -> str:
    """The table's name in Spark SQL, every level quoted."""
    return ".".join("`" + level.replace("`", "``") + "`" for level in (catalog.name, *table))


def load(spark: Any, name: str) -> Any:
    """A fresh org.apache.iceberg.Table by its qualified name."""
    bridge = spark._jvm.org.apache.iceberg.spark.Spark3Util
    return bridge.loadIcebergTable(spark._jsparkSession, name)


def java_class(spark: Any, name: str) -> Any:
    """A class by name through the loader that knows the runtime jar."""
    return spark._jvm.java.lang.Thread.currentThread().getContextClassLoader().loadClass(name)


def is_a(spark: Any, value: Any, class_name: str) -> bool:
    return bool(java_class(spark, class_name).isInstance(value))


def table_cache(spark: Any) -> Any:
    """SparkTableCache.get(), by reflection: its name is ambiguous for py4j."""
    java, gateway = spark._jvm, spark.sparkContext._gateway
    found = java_class(spark, "org.apache.iceberg.spark.SparkTableCache")
    method = found.getMethod("get", gateway.new_array(java.java.lang.Class, 0))
    return method.invoke(None, gateway.new_array(java.java.lang.Object, 0))


def task_set_manager(spark: Any) -> Any:
    return spark._jvm.org.apache.iceberg.spark.ScanTaskSetManager.get()


def rewrite_coordinator(spark: Any) -> Any:
    return spark._jvm.org.apache.iceberg.spark.FileRewriteCoordinator.get()


def java_list(spark: Any, values: Iterable[Any]) -> Any:
    collected = spark._jvm.java.util.ArrayList()
    for value in values:
        collected.add(value)
    return collected


def java_set(spark: Any, texts: Iterable[str]) -> Any:
    """A java.util.Set of strings in a few calls, however many there are."""
    java = spark._jvm.java.util
    lines = java.regex.Pattern.compile("\n").splitAsStream("\n".join(texts))
    return lines.collect(java.stream.Collectors.toSet())


def scan_tasks(
    spark: Any, table: Any, snapshot_id: int, paths: Iterable[str], stats: bool = False
) -> dict[str, Any]:
    """FileScanTask by path, for those of `paths` that are live in the snapshot."""
    scan = table.newScan().useSnapshot(snapshot_id)
    if stats:
        scan = scan.includeColumnStats()
    planned = scan.planFiles()
    try:
        lists = spark._jvm.org.apache.iceberg.relocated.com.google.common.collect.Lists
        tasks = lists.newArrayList(planned.iterator())
    finally:
        planned.close()
    collectors = spark._jvm.java.util.stream.Collectors
    identity = spark._jvm.java.util.function.Function.identity()
    by_path = tasks.stream().collect(collectors.toMap(_task_path(spark), identity))
    by_path.keySet().retainAll(java_set(spark, paths))
    return {entry.getKey(): entry.getValue() for entry in by_path.entrySet()}


def _task_path(spark: Any) -> Any:
    """FileScanTask -> path as a java.util.function.Function that runs in the JVM."""
    invoke = spark._jvm.java.lang.invoke
    lookup = invoke.MethodHandles.publicLookup()
    content_file = java_class(spark, "org.apache.iceberg.ContentFile")
    file_of = lookup.findVirtual(
        java_class(spark, "org.apache.iceberg.ContentScanTask"),
        "file",
        invoke.MethodType.methodType(content_file),
    )
    path_of = lookup.findVirtual(
        content_file,
        "location",
        invoke.MethodType.methodType(java_class(spark, "java.lang.String")),
    )
    return invoke.MethodHandleProxies.asInterfaceInstance(
        java_class(spark, "java.util.function.Function"),
        invoke.MethodHandles.filterReturnValue(file_of, path_of),
    )


@dataclass(frozen=True, slots=True)
class Deletes:
    """Delete files that apply to one data file: (path, offset) pairs; equality: any of them is."""

    positions: frozenset[tuple[str, int]]
    equality: frozenset[str]


def deletes_of(task: Any) -> Deletes:
    positions, equality = set(), set()
    for delete in task.deletes():
        if delete.content().name() == "EQUALITY_DELETES":
            equality.add(delete.location())
        else:
            positions.add((delete.location(), int(delete.contentOffset() or 0)))
    return Deletes(frozenset(positions), frozenset(equality))


@dataclass(frozen=True, slots=True)
class SnapshotInfo:
    """One snapshot of the ancestry. summary: only our own keys and the counts we report."""

    id: int
    parent: int | None
    operation: str
    summary: Mapping[str, str]

    def is_batch(self, attempt_id: str, batch: int) -> bool:
        return self.summary.get(ATTEMPT_ID) == attempt_id and self.summary.get(BATCH) == str(batch)


def snapshot_info(snapshot: Any) -> SnapshotInfo:
    parent = snapshot.parentId()
    return SnapshotInfo(
        int(snapshot.snapshotId()),
        None if parent is None else int(parent),
        str(snapshot.operation() or ""),
        dict(snapshot.summary()) if snapshot.summary() is not None else {},
    )


def ancestors(table: Any) -> Iterator[SnapshotInfo]:
    """From the head of main back to the root, or to where the history has expired."""
    snapshot = table.currentSnapshot()
    while snapshot is not None:
        info = snapshot_info(snapshot)
        yield info
        snapshot = None if info.parent is None else table.snapshot(info.parent)


def ancestors_until(table: Any, base: int) -> tuple[list[SnapshotInfo], bool]:
    """Ancestors newer than `base`, newest first; False if the walk did not reach it."""
    newer: list[SnapshotInfo] = []
    for info in ancestors(table):
        if info.id == base:
            return newer, True
        newer.append(info)
    return newer, False


def jvm_pid(spark: Any) -> int | None:
    process = getattr(spark.sparkContext._gateway, "proc", None)
    return process.pid if process is not None else None


def short(snapshot_id: int | None) -> str:
    """A snapshot id as progress shows it: 7318…221."""
    text = str(snapshot_id)
    return text if len(text) <= 8 else f"{text[:4]}…{text[-3:]}"
