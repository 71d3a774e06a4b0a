"""Deleted positions as sets, one per data file, in the driver's JVM: no Spark job reads them.

A set is Iceberg's own PositionDeleteIndex, a bitmap of about two bytes per position. Iceberg's
loader reads the delete files, as every reader's does. The number of py4j calls does not grow with
the number of positions.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from reconciler.spark.deletes.delete_files import DELETE, DeleteFile
from reconciler.spark.schedule import scan
from reconciler.spark.schedule.partitions import Place
from reconciler.spark.schedule.scan import ScanTasks
from reconciler.spark.session import iceberg, streams

LOADER = "org.apache.iceberg.data.BaseDeleteLoader"
INDEX = "org.apache.iceberg.deletes.PositionDeleteIndex"
MAP = "java.util.Map"
ENTRY = "java.util.Map$Entry"
ITERABLE = "org.apache.iceberg.io.CloseableIterable"
ROW = "org.apache.spark.sql.Row"


class PositionSets:
    """java: a java.util.Map from path (CharSequence) to PositionDeleteIndex, none of them empty."""

    def __init__(self, spark: Any, java: Any) -> None:
        self._spark, self.java = spark, java

    def cardinalities(self) -> dict[str, int]:
        """Return the number of positions by path."""
        spark = self._spark
        entries = spark._jvm.java.util.ArrayList(self.java.entrySet())
        count_of = iceberg.method(spark, INDEX, "cardinality", "long")
        paths = streams.lines(spark, entries, _entry(spark, "getKey"))
        counts = streams.lines(
            spark, entries, streams.chain(spark, _entry(spark, "getValue"), count_of)
        )
        return dict(zip(paths, map(int, counts), strict=True))

    def of(self, path: str) -> Any:
        """Return the PositionDeleteIndex of a path, None if it has none."""
        return self.java.get(path)

    def keep(self, paths: Collection[str]) -> PositionSets:
        """Return the sets of these paths."""
        kept = self._spark._jvm.java.util.HashMap(self.java)
        kept.keySet().retainAll(iceberg.java_set(self._spark, paths))
        return PositionSets(self._spark, kept)

    def without(self, paths: Collection[str]) -> PositionSets:
        left = self._spark._jvm.java.util.HashMap(self.java)
        left.keySet().removeAll(iceberg.java_set(self._spark, paths))
        return PositionSets(self._spark, left)

    def differing(self, other: PositionSets) -> frozenset[str]:
        """Return the paths of this one whose set is another one there."""
        java = self._spark._jvm.java.util
        entries = java.HashSet(self._bytes().entrySet())
        entries.removeAll(other._bytes().entrySet())
        return frozenset(
            streams.lines(self._spark, java.ArrayList(entries), _entry(self._spark, "getKey"))
        )

    def _bytes(self) -> Any:
        spark = self._spark
        entries = spark._jvm.java.util.ArrayList(self.java.entrySet())
        path_of = streams.chain(spark, _entry(spark, "getKey"), streams.text(spark))
        serialized = iceberg.method(spark, INDEX, "serialize", "java.nio.ByteBuffer")
        bytes_of = streams.chain(spark, _entry(spark, "getValue"), serialized)
        return streams.to_map(spark, entries, path_of, bytes_of)


def applied(
    spark: Any, table: Any, tasks: ScanTasks, sources: Sequence[DeleteFile]
) -> PositionSets:
    """Return the positions in committed position delete files that readers of the tasks apply.

    What names a file that is not live, that is older than the file of that path, or that is in
    another partition, deletes nothing.
    """
    held = stored(spark, table, [file.java for file in sources])
    places = scan.places(spark, table, tasks)
    for number, (file, paths) in enumerate(zip(sources, _paths(spark, held), strict=True)):
        for path in paths:
            if not applies(file, path, tasks, places):
                held.get(number).remove(path)
    return merged(spark, held)


def applies(file: DeleteFile, path: str, tasks: ScanTasks, places: Mapping[str, Place]) -> bool:
    """Whether readers of the tasks apply what a committed position delete file has of a path."""
    task = tasks.get(path)
    if task is None or task.sequence > file.sequence:
        return False
    if file.data_file:
        return path == file.data_file
    return places[path] == file.place


def stored(spark: Any, table: Any, files: Sequence[Any]) -> Any:
    """Return what each org.apache.iceberg.DeleteFile holds, committed or not: a java.util.List of
    java.util.Map as in PositionSets.

    The files are read in parallel, by Iceberg's worker pool.
    """
    jvm = spark._jvm
    core = jvm.org.apache.iceberg
    listed, found = iceberg.java_list(spark, files), jvm.java.util.concurrent.ConcurrentHashMap()
    read = _reader(spark, table)
    put = iceberg.method(spark, MAP, "put", streams.OBJECT, streams.OBJECT, streams.OBJECT)
    put = put.bindTo(found)
    noted = streams.spread(spark, DELETE, put, _identity(spark), read)
    task = iceberg.as_lambda(spark, "org.apache.iceberg.util.Tasks$Task", noted)
    work = core.util.Tasks.foreach(listed.iterator())
    work.executeWith(core.util.ThreadPools.getWorkerPool()).stopOnFailure().noRetry().run(task)
    get = iceberg.method(spark, MAP, "get", streams.OBJECT, streams.OBJECT).bindTo(found)
    return streams.mapped(spark, listed, get)


def _reader(spark: Any, table: Any) -> Any:
    """Return DeleteFile -> the sets that it holds, by path: of a vector the one of its file."""
    loader = _loader(spark, table)
    files = iceberg.private_method(spark, LOADER, "readPosDeletes", DELETE).bindTo(loader)
    vector = iceberg.private_method(spark, LOADER, "readDV", DELETE).bindTo(loader)
    alone = iceberg.static_method(
        spark, "java.util.Collections", "singletonMap", MAP, streams.OBJECT, streams.OBJECT
    )
    named = iceberg.method(spark, DELETE, "referencedDataFile", streams.STRING)
    vectors = streams.spread(spark, DELETE, alone, named, vector)
    is_vector = iceberg.static_method(
        spark, "org.apache.iceberg.util.ContentFileUtil", "isDV", "boolean", DELETE
    )
    handles = spark._jvm.java.lang.invoke.MethodHandles
    return handles.guardWithTest(is_vector, vectors, files.asType(vectors.type()))


def _loader(spark: Any, table: Any) -> Any:
    loader = spark._jvm.org.apache.iceberg.data.BaseDeleteLoader
    return loader(iceberg.as_lambda(spark, streams.FUNCTION, opened(spark, table)))


def opened(spark: Any, table: Any) -> Any:
    """Return DeleteFile -> InputFile, by the table's FileIO."""
    return iceberg.method(
        spark, "org.apache.iceberg.io.FileIO", "newInputFile", "org.apache.iceberg.io.InputFile",
        DELETE,
    ).bindTo(table.io())  # fmt: skip


def merged(spark: Any, maps: Any) -> PositionSets:
    """Return the union, path by path. maps: as `stored` returns them; they are used up."""
    jvm = spark._jvm
    handles = jvm.java.lang.invoke.MethodHandles
    index = iceberg.java_class(spark, INDEX)
    into = iceberg.method(spark, INDEX, "merge", "void", INDEX)
    kept = handles.dropArguments(handles.identity(index), 1, iceberg.java_list(spark, [index]))
    union = iceberg.as_lambda(
        spark, "java.util.function.BiFunction", handles.foldArguments(kept, into)
    )
    found = jvm.java.util.HashMap()
    merge = iceberg.method(
        spark, MAP, "merge", streams.OBJECT, streams.OBJECT, streams.OBJECT,
        "java.util.function.BiFunction",
    ).bindTo(found)  # fmt: skip
    path_of = streams.text(spark).asType(iceberg.method_type(spark, streams.OBJECT, streams.OBJECT))
    merge = handles.filterArguments(
        streams.given(spark, merge, 2, union), 0,
        iceberg.java_array(spark, "java.lang.invoke.MethodHandle", [path_of]),
    )  # fmt: skip
    each = iceberg.as_lambda(spark, "java.util.function.BiConsumer", merge)
    for_each = iceberg.method(spark, MAP, "forEach", "void", "java.util.function.BiConsumer")
    maps.forEach(
        iceberg.as_lambda(spark, streams.CONSUMER, streams.given(spark, for_each, 1, each))
    )
    return PositionSets(spark, found)


def of_rows(spark: Any, rows: Any) -> PositionSets:
    """rows: a java.util.List of Row (path, array of positions), each path once."""
    path_of = streams.given(
        spark, iceberg.method(spark, ROW, "getString", streams.STRING, "int"), 1, 0
    )
    list_of = streams.given(
        spark, iceberg.method(spark, ROW, "getList", "java.util.List", "int"), 1, 1
    )
    closeable = iceberg.static_method(
        spark, ITERABLE, "withNoopClose", ITERABLE, "java.lang.Iterable"
    )
    to_set = iceberg.static_method(
        spark, "org.apache.iceberg.deletes.Deletes", "toPositionIndex", INDEX, ITERABLE
    )
    sets = streams.to_map(spark, rows, path_of, streams.chain(spark, list_of, closeable, to_set))
    return PositionSets(spark, sets)


def _paths(spark: Any, maps: Any) -> Iterator[list[str]]:
    """Yield the paths of each of the maps."""
    keys = iceberg.method(spark, MAP, "keySet", "java.util.Set")
    join = iceberg.static_method(
        spark, streams.STRING, "join", streams.STRING, "java.lang.CharSequence",
        "java.lang.Iterable",
    )  # fmt: skip
    joined = streams.chain(spark, keys, streams.given(spark, join, 0, streams.UNIT))
    for line in streams.lines(spark, maps, joined):
        yield line.split(streams.UNIT) if line else []


def _entry(spark: Any, name: str) -> Any:
    return iceberg.method(spark, ENTRY, name, streams.OBJECT)


def _identity(spark: Any) -> Any:
    return spark._jvm.java.lang.invoke.MethodHandles.identity(
        iceberg.java_class(spark, streams.OBJECT)
    )
