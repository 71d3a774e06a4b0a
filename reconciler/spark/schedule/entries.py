"""Manifest entries of files that `reconciler.rewrite` wrote: as Iceberg's own writer would make
them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from reconciler.commit.metrics import kept_bounds
from reconciler.engines.commit.metadata import UNSORTED
from reconciler.engines.schedule.group_rewrite import GroupRewrite
from reconciler.rewrite.files import TableShape
from reconciler.rewrite.task import Output
from reconciler.spark.fallback import uuid_bounds
from reconciler.spark.schedule.scan import ScanTasks
from reconciler.table.parquet_schema import MAGIC


def entries_of(
    spark: Any, table: Any, rewrite: GroupRewrite, shape: TableShape, files: Sequence[Output]
) -> tuple[Any, ...]:
    """Return the files as org.apache.iceberg.DataFile objects.

    table: as `stage.overridden` returns it.
    """
    into, tasks = rewrite.group.action.into, cast(ScanTasks, rewrite.tasks)
    entries = _Entries(spark, table, into, rewrite.order_id, tasks)
    made = [entries.of(file, shape) for file in files]
    return uuid_bounds.corrected(spark, table, made, {file.path: file.footer for file in files})


def output_paths(
    table: Any, spec_id: int, tasks: ScanTasks | None, names: Sequence[str], of: str = ""
) -> tuple[str, ...]:
    """Return the paths of new files, which the table's location provider chooses.

    table: as `stage.overridden` returns it. tasks: files in whose partition they are, None if they
    are in none yet. of: the file that counts, "" for any.
    """
    provider, spec = table.locationProvider(), table.specs().get(spec_id)
    if tasks is None or not spec.isPartitioned():
        return tuple(str(provider.newDataLocation(name)) for name in names)
    partition = partition_of(tasks, of)
    return tuple(str(provider.newDataLocation(spec, partition, name)) for name in names)


def partition_of(tasks: ScanTasks, of: str = "") -> Any:
    """Return the partition of one of the files. of: which, "" for any, where all are in one."""
    first = of or next(iter(tasks))
    return tasks.java_tasks([first]).get(0).file().partition()


@dataclass(frozen=True, slots=True)
class _Entries:
    """Makes the manifest entries of files that were written: as Iceberg's own writer would."""

    spark: Any
    """The session."""
    table: Any
    """The table, as `stage.overridden` returns it."""
    spec_id: int
    """Id of the files' partition spec."""
    order_id: int
    """Id of the sort order that the entries record."""
    tasks: ScanTasks
    """Their inputs, in whose partition they are unless rows moved."""

    def of(self, file: Output, shape: TableShape) -> Any:
        core, table = self.spark._jvm.org.apache.iceberg, self.table
        config = core.MetricsConfig.forTable(table)
        whole = core.inmemory.InMemoryInputFile(file.path, MAGIC + file.footer)
        metrics = core.parquet.ParquetUtil.fileMetrics(whole, config)
        if file.nans or file.bounds:
            metrics = self._completed(metrics, file, config, shape)
        spec = table.specs().get(self.spec_id)
        builder = self._builder(spec, file).withMetrics(metrics)
        builder = builder.withSplitOffsets(self._longs(file.split_offsets))
        if spec.isPartitioned():
            partition = self._moved(file) if file.partition else partition_of(self.tasks)
            builder = builder.withPartition(partition)
        if self.order_id != UNSORTED:
            builder = builder.withSortOrder(table.sortOrders().get(self.order_id))
        return builder.build()

    def _builder(self, spec: Any, file: Output) -> Any:
        made = self.spark._jvm.org.apache.iceberg.DataFiles.builder(spec)
        return made.withPath(file.path).withFormat("parquet").withFileSizeInBytes(file.size)

    def _longs(self, values: Sequence[int]) -> Any:
        """Return a java.util.List of Long: py4j makes an Integer of a small number."""
        text = ",".join(str(value) for value in values)
        parser = self.spark._jvm.org.apache.iceberg.util.JsonUtil
        node = parser.mapper().readTree(f'{{"values":[{text}]}}')
        return parser.getLongList("values", node)

    def _completed(self, metrics: Any, file: Output, config: Any, shape: TableShape) -> Any:
        """Return the metrics with what no footer says: NaN counts, and bounds of long values."""
        core = self.spark._jvm.org.apache.iceberg
        nowhere = core.PartitionSpec.unpartitioned()
        made = self._builder(nowhere, file).withMetrics(metrics).build()
        body = json.loads(str(core.ContentFileParser.toJson(made, nowhere)))
        counted = set(body.get("value-counts", {}).get("keys", ()))
        _put(body, "nan-value-counts", {i: n for i, n in file.nans.items() if i in counted})
        for field_id, ends in file.bounds.items():
            if field_id in counted:
                way = shape.ways[field_id]
                mode = str(config.columnMode(".".join(one.name for one in way)))
                bounds = kept_bounds(way[-1].type, ends, mode)
                for name, end in zip(("lower-bounds", "upper-bounds"), bounds, strict=True):
                    _put(body, name, {} if end is None else {field_id: end.hex().upper()})
        specs = self.spark._jvm.java.util.Collections.singletonMap(nowhere.specId(), nowhere)
        found = self._parsed(body, specs)
        return core.Metrics(
            found.recordCount(), found.columnSizes(), found.valueCounts(), found.nullValueCounts(),
            found.nanValueCounts(), found.lowerBounds(), found.upperBounds(),
        )  # fmt: skip

    def _moved(self, file: Output) -> Any:
        """Return the partition that the file's rows moved to."""
        body = {
            "spec-id": self.spec_id, "content": "DATA", "file-path": file.path,
            "file-format": "PARQUET", "partition": list(file.partition),
            "file-size-in-bytes": file.size, "record-count": file.rows,
        }  # fmt: skip
        return self._parsed(body, self.table.specs()).partition()

    def _parsed(self, body: Mapping[str, Any], specs: Any) -> Any:
        core = self.spark._jvm.org.apache.iceberg
        node = core.util.JsonUtil.mapper().readTree(json.dumps(body))
        return core.ContentFileParser.fromJson(node, specs)


def _put(body: dict[str, Any], name: str, values: dict[int, Any]) -> None:
    if not values:
        return
    known = body.get(name) or {"keys": [], "values": []}
    merged = dict(zip(known["keys"], known["values"], strict=True)) | values
    body[name] = {"keys": list(merged), "values": list(merged.values())}
