"""Scan tasks of a snapshot: JVM objects for staging and commits, and their manifest entries.

An action may have a hundred thousand inputs. They cross from the JVM as a few large texts, and
operations on many tasks run inside the JVM: the number of py4j calls does not grow with the number
of files.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from reconciler.engines.delete_file import Ages
from reconciler.engines.manifests import Tasks
from reconciler.engines.task_file import TaskFile, task_file
from reconciler.errors import UnsupportedError
from reconciler.spark.deletes import delete_scope
from reconciler.spark.schedule import handles
from reconciler.spark.session import iceberg, streams
from reconciler.spark.session.translate import java_exception
from reconciler.table.deletes import PartitionKey

CHUNK = 2_000
"""Number of tasks described by one text."""
MOST_ENTRIES = 3
"""Manifest entries of one file that an error names."""


class ScanTasks(Tasks):
    """Files by path, in order of path, with their org.apache.iceberg.FileScanTask in the JVM."""

    def __init__(self, spark: Any, tasks: Any, files: Mapping[str, TaskFile]) -> None:
        super().__init__(files)
        self._spark, self._tasks = spark, tasks

    def subset(self, paths: Iterable[str]) -> ScanTasks:
        """Return the tasks of those paths that are present."""
        chosen = {path: self._files[path] for path in sorted(set(paths)) if path in self._files}
        tasks = self._spark._jvm.java.util.HashMap(self._tasks)
        tasks.keySet().retainAll(iceberg.java_set(self._spark, chosen))
        return ScanTasks(self._spark, tasks, chosen)

    def java_tasks(self, paths: Sequence[str]) -> Any:
        """Return a java.util.List of the tasks of these paths, in this order."""
        lines = iceberg.java_lines(self._spark, paths)
        lookup = iceberg.method(
            self._spark, "java.util.Map", "get", "java.lang.Object", handles.OBJECT
        )
        of_path = handles.function(self._spark, lookup.bindTo(self._tasks))
        return lines.map(of_path).collect(self._spark._jvm.java.util.stream.Collectors.toList())

    def require_in(self, update: Any) -> None:
        """Let a RowDelta fail if one of the files is not in the table any more."""
        update.validateDataFilesExist(iceberg.java_set(self._spark, self._files))

    def remove_in(self, update: Any) -> None:
        """Name every file, and every delete file of it alone, as replaced by a RewriteFiles."""
        spark = self._spark
        rewrite = "org.apache.iceberg.RewriteFiles"
        tasks = iceberg.java_values(self._tasks)
        file_of = iceberg.method(spark, handles.TASK, "file", handles.FILE)
        remove = iceberg.method(
            spark, rewrite, "deleteFile", rewrite, "org.apache.iceberg.DataFile"
        ).bindTo(update)
        tasks.stream().map(handles.function(spark, file_of)).forEach(
            iceberg.as_lambda(spark, _CONSUMER, remove)
        )
        if not any(file.deletes.positions for file in self._files.values()):
            return
        remove_deletes = iceberg.method(
            spark, rewrite, "deleteFile", rewrite, "org.apache.iceberg.DeleteFile"
        ).bindTo(update)
        scoped = iceberg.static_method(
            spark, "org.apache.iceberg.util.ContentFileUtil", "isFileScoped", "boolean",
            "org.apache.iceberg.DeleteFile",
        )  # fmt: skip
        deletes = tasks.stream().flatMap(handles.function(spark, handles.delete_stream(spark)))
        deletes.filter(iceberg.as_lambda(spark, _PREDICATE, scoped)).forEach(
            iceberg.as_lambda(spark, _CONSUMER, remove_deletes)
        )


_CONSUMER = "java.util.function.Consumer"
_PREDICATE = "java.util.function.Predicate"


def scan_tasks(
    spark: Any,
    table: Any,
    snapshot_id: int,
    paths: Iterable[str],
    columns: Collection[int] = (),
    bare: bool = False,
) -> ScanTasks:
    """Return the tasks of those of `paths` that are live in the snapshot.

    columns: ids of the columns whose statistics to read. bare: without their deletes.
    """
    tasks = planned_tasks(spark, table, snapshot_id, columns)
    return _with_files(spark, table, tasks, paths, bare)


def every_task(spark: Any, table: Any, snapshot_id: int) -> ScanTasks:
    """Return the tasks of all live data files of the snapshot, with their deletes."""
    return _with_files(spark, table, planned_tasks(spark, table, snapshot_id, ()))


def planned_tasks(spark: Any, table: Any, snapshot_id: int, columns: Collection[int]) -> Any:
    """Return a java.util.List of the snapshot's tasks, with all deletes that a reader must
    apply."""
    scan = _with_statistics(spark, table, snapshot_id, columns)
    return delete_scope.by_value(spark, table, snapshot_id, planned(spark, scan))


def _with_statistics(spark: Any, table: Any, snapshot_id: int, columns: Collection[int]) -> Any:
    scan = table.newScan().useSnapshot(snapshot_id)
    schema = scan.schema()  # the snapshot's own: a column may be renamed or new since
    names = [name for name in map(schema.findColumnName, sorted(columns)) if name is not None]
    return scan.includeColumnStats(iceberg.java_list(spark, names)) if names else scan


def tasks_under(
    spark: Any,
    table: Any,
    snapshot_id: int,
    deletes: Iterable[str],
    columns: Collection[int] = (),
) -> ScanTasks:
    """Return the tasks of the live data files to which one of these delete files applies.

    Their deletes are not described: each of a thousand data files may have a thousand of them.
    """
    path_of = iceberg.method(spark, handles.FILE, "location", handles.STRING)
    wanted = streams.chain(spark, path_of, streams.contained(spark, deletes))
    under = streams.any_of(spark, handles.delete_stream(spark), wanted)
    tasks = streams.kept(spark, planned_tasks(spark, table, snapshot_id, columns), under)
    return _with_files(spark, table, tasks, bare=True)


def _joined(spark: Any, text_of: Any, separator: str, chosen: Any = None) -> Any:
    """Return FileScanTask -> the sorted texts of its delete files. chosen: DeleteFile -> whether it
    counts, None for all."""
    kept = iceberg.method(spark, streams.STREAM, "filter", streams.STREAM, streams.PREDICATE)
    some = (
        []
        if chosen is None
        else [streams.given(spark, kept, 1, iceberg.as_lambda(spark, streams.PREDICATE, chosen))]
    )
    mapped = iceberg.method(spark, streams.STREAM, "map", streams.STREAM, streams.FUNCTION)
    collector = "java.util.stream.Collector"
    collect = iceberg.method(spark, streams.STREAM, "collect", handles.OBJECT, collector)
    return streams.chain(
        spark,
        handles.delete_stream(spark),
        *some,
        streams.given(spark, mapped, 1, handles.function(spark, text_of)),
        iceberg.method(spark, streams.STREAM, "sorted", streams.STREAM),
        streams.given(spark, collect, 1, spark._jvm.java.util.stream.Collectors.joining(separator)),
    )


def of_files(spark: Any, tasks: Any, paths: Iterable[str]) -> Any:
    """Return a java.util.List of the tasks of these paths. tasks: a java.util.List."""
    own = streams.chain(spark, handles.task_path(spark), streams.contained(spark, paths))
    return streams.kept(spark, tasks, own)


def delete_paths(spark: Any, tasks: Any, wanted: Collection[str]) -> dict[str, frozenset[str]]:
    """Return which of the wanted delete files apply to each file. tasks: a java.util.List of
    FileScanTask.

    Each of a thousand data files may have a thousand of them: they cross as numbers.
    """
    if tasks.isEmpty():
        return {}
    paths = sorted(set(wanted))
    lookup = iceberg.method(spark, "java.util.Map", "get", handles.OBJECT, handles.OBJECT)
    numbers = streams.numbers(spark, {path: number for number, path in enumerate(paths)})
    number_of = lookup.bindTo(numbers)
    location = iceberg.method(spark, handles.FILE, "location", handles.STRING)
    chosen = streams.chain(spark, location, streams.contained(spark, paths))
    joined = _joined(spark, streams.chain(spark, location, number_of), " ", chosen)
    lines = streams.lines(spark, tasks, joined)
    of = (frozenset(paths[int(number, 16)] for number in line.split()) for line in lines)
    return dict(zip(streams.lines(spark, tasks, handles.task_path(spark)), of, strict=True))


def touched_by(spark: Any, tasks: ScanTasks, sequences: Collection[int]) -> frozenset[str]:
    """Return the files that a snapshot of one of these sequence numbers wrote, or deleted rows of
    by position."""
    content = iceberg.method(spark, handles.FILE, "content", "org.apache.iceberg.FileContent")
    number = iceberg.method(spark, handles.FILE, "dataSequenceNumber", "java.lang.Long")
    wanted = {f"POSITION_DELETES{streams.UNIT}{sequence}" for sequence in sequences}
    every = tasks.java_tasks(list(tasks)) if tasks else iceberg.java_list(spark, [])
    of_deletes = _joined(spark, streams.row(spark, handles.FILE, content, number), "\x1e")
    paths = streams.lines(spark, every, handles.task_path(spark))
    texts = streams.lines(spark, every, of_deletes)
    return frozenset(
        path
        for path, text in zip(paths, texts, strict=True)
        if tasks[path].sequence in sequences or not wanted.isdisjoint(text.split("\x1e"))
    )


def ages(spark: Any, table: Any, snapshot_id: int, paths: Iterable[str]) -> Ages:
    tasks = planned(spark, table.newScan().useSnapshot(snapshot_id))
    oldest: dict[PartitionKey, int] = {}
    specs = table.specs()
    for spec_id in streams.lines(spark, tasks, handles.task_spec(spark), distinct=True):
        own = streams.kept(spark, tasks, handles.task_is_of_spec(spark, int(spec_id)))
        spec = specs.get(int(spec_id))
        for line in streams.lines(spark, own, handles.task_age(spark, spec), distinct=True):
            sequence, values = line.split(" ", 1)
            key = PartitionKey(int(spec_id), values)
            oldest[key] = min(int(sequence), oldest.get(key, int(sequence)))
    named = of_files(spark, tasks, paths)
    found = streams.lines(spark, named, handles.task_path(spark))
    if len(set(found)) < len(found):
        raise _repeated(spark, table, named)
    sequences = streams.lines(spark, named, handles.task_sequence(spark))
    return Ages(oldest, dict(zip(found, map(int, sequences), strict=True)))


def partition_keys(spark: Any, table: Any, tasks: ScanTasks) -> dict[str, PartitionKey]:
    """Return the partition key of each file."""
    found: dict[str, PartitionKey] = {}
    for spec_id in {file.spec_id for file in tasks.values()}:
        own = tasks.java_tasks([path for path, file in tasks.items() if file.spec_id == spec_id])
        paths = streams.lines(spark, own, handles.task_path(spark))
        aged = streams.lines(spark, own, handles.task_age(spark, table.specs().get(spec_id)))
        keys = (PartitionKey(spec_id, line.split(" ", 1)[1]) for line in aged)
        found |= dict(zip(paths, keys, strict=True))
    return found


def planned(spark: Any, scan: Any) -> Any:
    """Return a java.util.List of a scan's tasks, one per file."""
    planned = scan.planFiles()
    try:
        lists = spark._jvm.org.apache.iceberg.relocated.com.google.common.collect.Lists
        return lists.newArrayList(planned.iterator())
    finally:
        planned.close()


def _with_files(
    spark: Any, table: Any, tasks: Any, paths: Iterable[str] | None = None, bare: bool = False
) -> ScanTasks:
    """Return the tasks with their files' manifest entries; paths: of which files, None for all.

    bare: without their deletes. Raises UnsupportedError for a file in two manifest entries.
    """
    itself = spark._jvm.java.lang.invoke.MethodHandles.identity(
        iceberg.java_class(spark, handles.OBJECT)
    )
    by_path = streams.to_map(spark, tasks, handles.task_path(spark), itself)
    if int(by_path.size()) < int(tasks.size()):
        raise _repeated(spark, table, tasks)
    if paths is not None:
        by_path.keySet().retainAll(iceberg.java_set(spark, paths))
    files = {file.path: file for file in _described(spark, by_path, bare)}
    return ScanTasks(spark, by_path, {path: files[path] for path in sorted(files)})


def _repeated(spark: Any, table: Any, tasks: Any) -> UnsupportedError:
    """Return the error for the first file that two of the tasks have."""
    paths = streams.lines(spark, tasks, handles.task_path(spark))
    (path, _), *_ = sorted(one for one in Counter(paths).items() if one[1] > 1)
    file_of = iceberg.method(spark, handles.TASK, "file", handles.FILE)
    own = streams.mapped(spark, of_files(spark, tasks, [path]), file_of)
    return listed_twice(table, path, iceberg.each(own))


def listed_twice(table: Any, path: str, files: Iterable[Any]) -> UnsupportedError:
    """files: the manifest entries of the path, as org.apache.iceberg.ContentFile."""
    entries = [
        f"entry {int(file.pos())} of {file.manifestLocation()}, data sequence number "
        f"{int(file.dataSequenceNumber())}"
        for file in files
    ]
    return UnsupportedError(
        f"{table.name()} has {path} in {len(entries)} manifest entries",
        details=(
            *entries[:MOST_ENTRIES],
            "A replacement names a path, so that it replaces all of them. Nothing was changed.",
        ),
        do="let a writer of the table remove the file, which removes all of its entries, and add "
        "it once",
    )


def _described(spark: Any, by_path: Any, bare: bool) -> Iterator[TaskFile]:
    """Yield every task from Iceberg's own JSON of its file, and of its deletes if it has some and
    they are wanted.

    The sequence number and the partition spec are read separately: the JSON lacks the one, and
    copies lack the other.
    """
    lists = spark._jvm.org.apache.iceberg.relocated.com.google.common.collect.Lists
    tasks = spark._jvm.java.util.ArrayList(iceberg.java_values(by_path))
    to_sequence = iceberg.once(
        spark, "sequence", lambda: handles.function(spark, handles.task_sequence(spark))
    )
    to_spec = iceberg.once(spark, "spec", lambda: handles.function(spark, handles.task_spec(spark)))
    chunks = lists.partition(tasks, CHUNK)
    for number in range(int(chunks.size())):
        chunk = chunks.get(number)
        specs, sequences = _lines(spark, chunk, to_spec), _lines(spark, chunk, to_sequence)
        for body, spec_id, sequence in zip(
            _bodies(spark, chunk, bare), specs, sequences, strict=True
        ):
            yield task_file(body, int(spec_id), int(sequence))


def _lines(spark: Any, chunk: Any, to_text: Any) -> list[str]:
    """Return one line of text per task, transferred together."""
    joining = spark._jvm.java.util.stream.Collectors.joining("\n")
    # Not splitlines(): Iceberg's JSON does not escape U+0085, U+2028 and similar.
    return str(chunk.stream().map(to_text).collect(joining)).split("\n")


def _bodies(spark: Any, chunk: Any, bare: bool) -> list[dict[str, Any]]:
    """Return Iceberg's JSON of each task.

    Iceberg cannot serialise files of a partition spec whose fields were all dropped (a table of
    format version 1 keeps them, as void), or of a spec whose column was dropped. The partition is
    not needed here, so copies without a partition are serialised instead.
    """
    printed = handles.file_json if bare else handles.task_json
    to_json = iceberg.once(spark, printed.__name__, lambda: handles.function(spark, printed(spark)))
    try:
        return [json.loads(line) for line in _lines(spark, chunk, to_json)]
    except Exception as error:
        if java_exception(error) is None:
            raise
        return _bodies_of_copies(spark, chunk, bare)


def _bodies_of_copies(spark: Any, chunk: Any, bare: bool) -> list[dict[str, Any]]:
    core = spark._jvm.org.apache.iceberg
    nowhere = core.PartitionSpec.unpartitioned()
    to_json = iceberg.once(
        spark, "copied json", lambda: handles.function(spark, handles.copy_json(spark))
    )
    bodies = [{"data-file": json.loads(line)} for line in _lines(spark, chunk, to_json)]
    if bare:
        return bodies
    is_whole = iceberg.once(
        spark, "whole", lambda: handles.function(spark, handles.task_has_no_deletes(spark))
    )
    for number, whole in enumerate(_lines(spark, chunk, is_whole)):
        if whole == "false":
            copies = [
                core.FileMetadata.deleteFileBuilder(nowhere).copy(file).build()
                for file in iceberg.each(chunk.get(number).deletes())
            ]
            bodies[number]["delete-files"] = [
                json.loads(core.ContentFileParser.toJson(copy, nowhere)) for copy in copies
            ]
    return bodies
