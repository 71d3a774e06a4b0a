"""What Java says of one scan task, as MethodHandles from FileScanTask."""

from __future__ import annotations

from typing import Any

from reconciler.spark.schedule import partitions
from reconciler.spark.session import iceberg, streams

OBJECT = "java.lang.Object"
TASK = "org.apache.iceberg.ContentScanTask"
FILE_TASK = "org.apache.iceberg.FileScanTask"
FILE = "org.apache.iceberg.ContentFile"
SPEC = "org.apache.iceberg.PartitionSpec"
PARSER = "org.apache.iceberg.ContentFileParser"
STRING = "java.lang.String"


def task_path(spark: Any) -> Any:
    """Return FileScanTask -> path, as a MethodHandle."""
    file_of = iceberg.method(spark, TASK, "file", FILE)
    path_of = iceberg.method(spark, FILE, "location", STRING)
    return spark._jvm.java.lang.invoke.MethodHandles.filterReturnValue(file_of, path_of)


def delete_stream(spark: Any) -> Any:
    """Return FileScanTask -> stream of its delete files, as a MethodHandle."""
    list_of = iceberg.method(spark, FILE_TASK, "deletes", "java.util.List")
    stream_of = iceberg.method(
        spark, "java.util.Collection", "stream", "java.util.stream.Stream"
    ).asType(iceberg.method_type(spark, "java.util.stream.Stream", "java.util.List"))
    return spark._jvm.java.lang.invoke.MethodHandles.filterReturnValue(list_of, stream_of)


def function(spark: Any, handle: Any) -> Any:
    return iceberg.as_lambda(spark, streams.FUNCTION, handle)


def copy_json(spark: Any) -> Any:
    """Return FileScanTask -> JSON of its file as if it were of no partition."""
    handles = spark._jvm.java.lang.invoke.MethodHandles
    builder, data_file = "org.apache.iceberg.DataFiles$Builder", "org.apache.iceberg.DataFile"
    nowhere = spark._jvm.org.apache.iceberg.PartitionSpec.unpartitioned()
    begun = iceberg.static_method(
        spark, "org.apache.iceberg.DataFiles", "builder", builder, SPEC
    ).bindTo(nowhere)
    copied = handles.foldArguments(
        iceberg.method(spark, builder, "copy", builder, data_file), begun
    )
    copy = handles.filterReturnValue(copied, iceberg.method(spark, builder, "build", data_file))
    file_of = iceberg.method(spark, TASK, "file", FILE)
    copy_of = handles.filterReturnValue(
        file_of, copy.asType(iceberg.method_type(spark, data_file, FILE))
    )
    printed = iceberg.static_method(spark, PARSER, "toJson", STRING, FILE, SPEC)
    where = iceberg.java_array(spark, OBJECT, [nowhere])
    to_json = handles.insertArguments(printed, 1, where)
    return handles.filterReturnValue(
        copy_of, to_json.asType(iceberg.method_type(spark, STRING, data_file))
    )


def task_is_bare(spark: Any) -> Any:
    """Return FileScanTask -> whether no delete file applies to it."""
    list_of = iceberg.method(spark, FILE_TASK, "deletes", "java.util.List")
    is_empty = iceberg.method(spark, "java.util.List", "isEmpty", "boolean")
    return spark._jvm.java.lang.invoke.MethodHandles.filterReturnValue(list_of, is_empty)


def task_has_no_deletes(spark: Any) -> Any:
    """Return FileScanTask -> "true" or "false"."""
    text_of = iceberg.static_method(spark, STRING, "valueOf", STRING, "boolean")
    handles = spark._jvm.java.lang.invoke.MethodHandles
    return handles.filterReturnValue(task_is_bare(spark), text_of)


def task_sequence(spark: Any) -> Any:
    """Return FileScanTask -> data sequence number as text."""
    handles, long = spark._jvm.java.lang.invoke.MethodHandles, "java.lang.Long"
    file_of = iceberg.method(spark, TASK, "file", FILE)
    number_of = iceberg.method(spark, FILE, "dataSequenceNumber", long)
    text_of = iceberg.method(spark, long, "toString", STRING)
    return handles.filterReturnValue(handles.filterReturnValue(file_of, number_of), text_of)


def task_spec(spark: Any) -> Any:
    """Return FileScanTask -> id of its file's partition spec as text."""
    handles = spark._jvm.java.lang.invoke.MethodHandles
    file_of = iceberg.method(spark, TASK, "file", FILE)
    number_of = iceberg.method(spark, FILE, "specId", "int")
    text_of = iceberg.static_method(spark, STRING, "valueOf", STRING, "int")
    return handles.filterReturnValue(handles.filterReturnValue(file_of, number_of), text_of)


def task_json(spark: Any) -> Any:
    """Return FileScanTask -> JSON: of the whole task if it has deletes, else of its file (much
    shorter).

    One line each: Iceberg prints JSON without line breaks.
    """
    handles = spark._jvm.java.lang.invoke.MethodHandles
    whole = iceberg.static_method(
        spark, "org.apache.iceberg.ScanTaskParser", "toJson", STRING,
        FILE_TASK,
    )  # fmt: skip
    return handles.guardWithTest(task_is_bare(spark), file_json(spark), whole)


def file_json(spark: Any) -> Any:
    """Return FileScanTask -> JSON of its file."""
    file_json = iceberg.static_method(spark, PARSER, "toJson", STRING, FILE, SPEC)
    file_of = iceberg.method(spark, TASK, "file", FILE)
    spec_of = iceberg.method(spark, "org.apache.iceberg.PartitionScanTask", "spec", SPEC)
    return streams.spread(spark, FILE_TASK, file_json, file_of, spec_of)


def task_is_of_spec(spark: Any, spec_id: int) -> Any:
    """Return FileScanTask -> whether its file's spec has the id."""
    wanted = streams.contained(spark, [str(spec_id)])
    return streams.chain(spark, task_spec(spark), wanted)


def task_age(spark: Any, spec: Any) -> Any:
    """Return FileScanTask -> "sequence number, space, key of its partition"."""
    file_of = iceberg.method(spark, TASK, "file", FILE)
    place = streams.chain(spark, file_of, partitions.file_key(spark, spec))
    joined = iceberg.method(spark, STRING, "concat", STRING, STRING)
    sequence = streams.chain(spark, task_sequence(spark), streams.given(spark, joined, 1, " "))
    return streams.spread(spark, FILE_TASK, joined, sequence, place)
