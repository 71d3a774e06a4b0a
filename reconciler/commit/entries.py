"""Manifest entries of files that `reconciler.rewrite` wrote, as Iceberg's own writer makes them."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from reconciler.commit import fields, manifest, metrics, partitions
from reconciler.commit.fields import PartitionField, unpartitioned
from reconciler.commit.manifest import DATA, POSITION_DELETES, File
from reconciler.commit.snapshot import AddedFile
from reconciler.rewrite.columns import POSITION_COLUMNS
from reconciler.rewrite.hidden import Written
from reconciler.rewrite.task import Output
from reconciler.table.metrics_modes import modes
from reconciler.table.parquet_schema import MAGIC
from reconciler.table.schema import Field, Schema

NOTHING_MORE = metrics.WriterMetrics({}, {})
"""A delete file has neither floats nor long values that its footer leaves out."""
ORDERED = ("identity", "truncate", "year", "month", "day", "hour")
"""Transforms of a sort order that keep the order of a column's values."""


@dataclass(frozen=True)
class Entries:
    """Makes entries for files of one partition spec."""

    metadata: Mapping[str, Any]
    """The table's metadata in JSON."""
    properties: Mapping[str, str]
    """The table's properties, or those that the files were written by."""
    spec_id: int
    """Id of the files' partition spec."""
    order_id: int
    """Id of the sort order that the entries record, 0 for none."""

    def of(self, output: Output, partition: Mapping[int, Any]) -> AddedFile:
        """Return the entry of a file. partition: its values by field id, as Avro stores them."""
        import pyarrow.parquet as pq

        footer = pq.read_metadata(io.BytesIO(MAGIC + output.footer))
        known = metrics.WriterMetrics(output.nans, output.bounds)
        found = metrics.of_footer(footer, self._types, self._modes, known)
        values = {
            fields.CONTENT: DATA,
            fields.PATH: output.path,
            fields.FORMAT: "PARQUET",
            fields.PARTITION: partition,
            fields.RECORDS: found.rows,
            fields.SIZE: output.size,
            fields.COLUMN_SIZES: found.sizes,
            fields.VALUES: found.values,
            fields.NULLS: found.nulls,
            fields.NANS: found.nans,
            fields.LOWER: found.lower,
            fields.UPPER: found.upper,
            fields.SPLITS: list(output.split_offsets),
            fields.SORT_ORDER: self.order_id,
        }
        return AddedFile(self.spec_id, File(values))

    def of_positions(self, made: Written, partition: Mapping[int, Any]) -> AddedFile:
        """Return the entry of a position delete file of one data file. partition: as in `of`."""
        import pyarrow.parquet as pq

        footer = pq.read_metadata(io.BytesIO(MAGIC + made.footer))
        types = {one.field_id: one.type for one in POSITION_COLUMNS}
        found = metrics.of_footer(footer, types, dict.fromkeys(types, metrics.FULL), NOTHING_MORE)
        values = {
            fields.CONTENT: POSITION_DELETES,
            fields.PATH: made.path,
            fields.FORMAT: "PARQUET",
            fields.PARTITION: partition,
            fields.RECORDS: made.rows,
            fields.SIZE: made.size,
            fields.COLUMN_SIZES: found.sizes,
            fields.VALUES: found.values,
            fields.NULLS: found.nulls,
            fields.LOWER: found.lower,
            fields.UPPER: found.upper,
            fields.REFERENCED: made.data_file,
        }
        return AddedFile(self.spec_id, File(values))

    def partition_of(self, values: Sequence[Any]) -> dict[int, Any]:
        """Return a partition by field id. values: in the order of the spec, as the specification
        writes single values in JSON; () will do for a spec whose fields are all void."""
        if self.unpartitioned:
            return {one.field_id: None for one in self._partition}
        return {
            one.field_id: None if value is None else partitions.from_json(one.type, value)
            for one, value in zip(self._partition, values, strict=True)
        }

    def key(self, values: Mapping[int, Any]) -> str:
        """Return the key of a partition. values: as in `of`: what the entry says is compared."""
        pairs = ((one.type, values[one.field_id]) for one in self._partition)
        found = (None if own is None else partitions.to_json(kind, own) for kind, own in pairs)
        return partitions.text_of(self._partition, found)

    @property
    def unpartitioned(self) -> bool:
        return unpartitioned(self._partition)

    @cached_property
    def _partition(self) -> tuple[PartitionField, ...]:
        return manifest.layout(self.metadata, self.spec_id).partition

    @cached_property
    def _schema(self) -> Schema:
        return plain_schema(manifest.schema_of(self.metadata))

    @cached_property
    def _types(self) -> dict[int, str]:
        return {one.field_id: one.type for one in self._schema.fields}

    @cached_property
    def _modes(self) -> dict[int, str]:
        order = self.metadata["default-sort-order-id"]
        sort = next(one for one in self.metadata["sort-orders"] if one["order-id"] == order)
        leading = {
            int(one["source-id"]) for one in sort["fields"]
            if str(one["transform"]).partition("[")[0] in ORDERED
        }  # fmt: skip
        return modes(self._schema, self.properties, leading)


def plain_schema(body: Mapping[str, Any]) -> Schema:
    """Return the leaf columns of a schema in JSON."""
    found: list[Field] = []

    def walk(kind: Any, field_id: int, path: tuple[str, ...], repeated: bool) -> None:
        if isinstance(kind, str):
            levels = path if any("." in name for name in path) else ()
            found.append(Field(field_id, ".".join(path), kind, False, repeated, levels))
            return
        for one in kind.get("fields", ()):
            walk(one["type"], int(one["id"]), (*path, str(one["name"])), repeated)
        for part in ("element", "key", "value"):
            if part in kind:
                walk(kind[part], int(kind[f"{part}-id"]), (*path, part), True)

    walk(body, 0, (), False)
    return Schema(int(body.get("schema-id", 0)), tuple(found))
