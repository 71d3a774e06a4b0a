"""Which delete files a reader must apply to each data file, where Iceberg's own scan is misled.

Iceberg's Java library leaves out an equality delete whose bounds do not meet those of the data
file. It compares UUIDs as signed numbers (`uuid_bounds`), and files that it wrote itself may have
bounds that do not enclose all their UUIDs. A row whose key is a UUID is then not deleted for Spark,
although the delete file names it; rewriting what Spark sees, or removing the delete file, would
bring the row back for good. So equality deletes by UUID are applied by partition and sequence
number alone: the reader compares the values.
"""

from __future__ import annotations

from typing import Any

from reconciler.spark.fallback import uuid_bounds
from reconciler.spark.session import iceberg, streams

_INDEX = "org.apache.iceberg.DeleteFileIndex"
_BUILDER = f"{_INDEX}$Builder"
_TASK = "org.apache.iceberg.BaseFileScanTask"
_FILE_TASK = "org.apache.iceberg.FileScanTask"
_FILE = "org.apache.iceberg.ContentFile"
_DATA = "org.apache.iceberg.DataFile"
_MAP = "java.util.Map"


def by_value(spark: Any, table: Any, snapshot_id: int, tasks: Any) -> Any:
    """Return a java.util.List of FileScanTask, the snapshot's, with every delete file that may
    delete a row of theirs. The same tasks, after one call, if no column is a UUID."""
    columns = _uuid_columns(spark, table)
    if not columns or tasks.isEmpty():
        return tasks
    deletes = _every(spark, table, snapshot_id)
    keyed = streams.kept(spark, deletes, _has_keys(spark))
    keys = streams.lines(spark, keyed, _keys_of(spark), distinct=True)
    if not any(columns & set(key_ids(text)) for text in keys):
        return tasks
    return _assigned(spark, tasks, _index(spark, table, deletes))


def by_rule(spark: Any, table: Any, snapshot_id: int, tasks: Any) -> Any:
    """Return the snapshot's tasks, in another order, with every delete file that applies by
    partition and sequence number, whatever bounds say."""
    return _assigned(spark, tasks, _index(spark, table, _every(spark, table, snapshot_id)))


def _every(spark: Any, table: Any, snapshot_id: int) -> Any:
    """Return a java.util.List of all delete files of the snapshot."""
    deletes = spark._jvm.java.util.ArrayList()
    for files in live_delete_files(spark, table, snapshot_id).values():
        deletes.addAll(files)
    return deletes


def live_delete_files(spark: Any, table: Any, snapshot_id: int) -> dict[int, Any]:
    """Return the delete files that the snapshot's manifests list: a java.util.List by spec id."""
    specs, io = table.specs(), table.io()
    lists = spark._jvm.org.apache.iceberg.relocated.com.google.common.collect.Lists
    by_spec: dict[int, Any] = {}
    for manifest in iceberg.each(table.snapshot(snapshot_id).deleteManifests(io)):
        reader = spark._jvm.org.apache.iceberg.ManifestFiles.readDeleteManifest(manifest, io, specs)
        own = by_spec.setdefault(int(manifest.partitionSpecId()), lists.newArrayList())
        try:
            own.addAll(lists.newArrayList(reader.iterator()))
        finally:
            reader.close()
    return by_spec


def key_ids(text: str) -> tuple[int, ...]:
    """Return the field ids in `[1, 2]`; none in `null`, of position deletes."""
    return () if text == "null" else tuple(int(part) for part in text.strip("[]").split(","))


def _uuid_columns(spark: Any, table: Any) -> set[int]:
    """Return the ids of UUID columns of every schema: a delete file may name a dropped column."""
    to_json = iceberg.static_method(
        spark, "org.apache.iceberg.SchemaParser", "toJson", streams.STRING,
        "org.apache.iceberg.Schema",
    )  # fmt: skip
    schemas = streams.lines(spark, iceberg.java_values(table.schemas()), to_json)
    return set().union(*map(uuid_bounds.columns_of, schemas))


def _keys_of(spark: Any) -> Any:
    return iceberg.method(spark, _FILE, "equalityFieldIds", "java.util.List")


def _has_keys(spark: Any) -> Any:
    """Return DeleteFile -> whether it deletes by equality."""
    present = iceberg.static_method(
        spark, "java.util.Objects", "nonNull", "boolean", streams.OBJECT
    )
    return streams.chain(spark, _keys_of(spark), present)


def _index(spark: Any, table: Any, deletes: Any) -> Any:
    """Return Iceberg's DeleteFileIndex of the delete files, those by equality without bounds."""
    handles = spark._jvm.java.lang.invoke.MethodHandles
    bare = iceberg.method(spark, _FILE, "copyWithoutStats", streams.OBJECT)
    whole = handles.identity(iceberg.java_class(spark, _FILE)).asType(bare.type())
    chosen = handles.guardWithTest(_has_keys(spark), bare, whole)
    builder = _called(spark, _BUILDER_OF, streams.mapped(spark, deletes, chosen))
    _called(spark, _SPECS, builder, table.specs())
    _called(spark, _SCHEMAS, builder, table.schemas())
    return _called(spark, _BUILD, builder)


_BUILDER_OF = (_INDEX, "builderFor", "java.lang.Iterable")
_SPECS = (_BUILDER, "specsById", _MAP)
_SCHEMAS = (_BUILDER, "schemasById", _MAP)
_BUILD = (_BUILDER, "build")


def _called(spark: Any, method: tuple[str, ...], *values: Any) -> Any:
    handle = iceberg.private_method(spark, *method)
    return handle.invokeWithArguments(iceberg.java_list(spark, values))


def _assigned(spark: Any, tasks: Any, index: Any) -> Any:
    """Return the tasks with the delete files that the index has for their data files."""
    core, made = spark._jvm.org.apache.iceberg, spark._jvm.java.util.ArrayList()
    constructors = iceberg.java_class(spark, _TASK).getConstructors()
    task_of = spark._jvm.java.lang.invoke.MethodHandles.publicLookup().unreflectConstructor(
        constructors[0]
    )
    residual = core.expressions.ResidualEvaluator.unpartitioned(
        core.expressions.Expressions.alwaysTrue()
    )
    file_of = iceberg.method(spark, "org.apache.iceberg.ContentScanTask", "file", _FILE)
    deletes_of = streams.chain(
        spark, file_of, iceberg.private_method(spark, _INDEX, "forDataFile", _DATA).bindTo(index)
    )
    spec_of = streams.chain(spark, file_of, iceberg.method(spark, _FILE, "specId", "int"))
    for spec_id in streams.lines(spark, tasks, spec_of, distinct=True):
        wanted = streams.contained(spark, [spec_id])
        own = streams.kept(spark, tasks, streams.chain(spark, spec_of, streams.text(spark), wanted))
        schema = core.SchemaParser.toJson(own.get(0).schema())
        spec = core.PartitionSpecParser.toJson(own.get(0).spec())
        placed = streams.given(spark, task_of, 2, schema, spec, residual)
        made.addAll(
            streams.mapped(
                spark, own, streams.spread(spark, _FILE_TASK, placed, file_of, deletes_of)
            )
        )
    return made
