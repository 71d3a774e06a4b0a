"""Delete files committed by pyiceberg's own snapshot producer: pyiceberg has no call for them."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestWriterV2,
)
from pyiceberg.schema import Schema
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.update.snapshot import _FastAppendFiles
from pyiceberg.typedef import Record
from pyiceberg.types import IntegerType, ListType, NestedField, StructType

_EQUALITY_IDS = 135
"""Field of a manifest entry."""


class _DeleteManifest(ManifestWriterV2):
    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}

    def _with_partition(self, format_version: Any) -> Schema:
        """With ids of columns as ints, as the specification has them: pyiceberg 0.12 writes longs,
        which Iceberg's Java library does not read."""
        return Schema(*map(_with_int_keys, super()._with_partition(format_version).fields))


def _with_int_keys(one: NestedField) -> NestedField:
    kind = one.field_type
    if one.field_id == _EQUALITY_IDS:
        kind = ListType(_EQUALITY_IDS + 1, IntegerType(), element_required=True)
    elif isinstance(kind, StructType):
        kind = StructType(*map(_with_int_keys, kind.fields))
    return one.model_copy(update={"field_type": kind})


class _Deletes(_FastAppendFiles):
    def new_manifest_writer(self, spec: Any) -> Any:
        metadata = self._transaction.table_metadata
        output = self.new_manifest_output()
        return _DeleteManifest(spec, metadata.schema(), output, self._snapshot_id, "gzip")


def commit_deletes(
    table: Any,
    content: DataFileContent,
    rows: pa.Table,
    *,
    spec_id: int = 0,
    partition: Sequence[Any] = (),
    **entry: Any,
) -> None:
    """Write and commit one delete file, with the requirement on the head that every writer has.
    entry: more of its entry. Raises CommitFailedException if another commit came first."""
    place = f"{table.location()}/data/delete-{uuid.uuid4().hex}.parquet"
    local = Path(place.removeprefix("file://"))
    local.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows, local)
    file = DataFile.from_args(
        content=content,
        file_path=place,
        file_format=FileFormat.PARQUET,
        partition=Record(*partition),
        record_count=len(rows),
        file_size_in_bytes=local.stat().st_size,
        spec_id=spec_id,
        **entry,
    )
    with table.transaction() as transaction:
        made = _Deletes(Operation.DELETE, transaction, table.io)
        made.append_data_file(file)
        made.commit()


def delete_equal(table: Any, column: str, values: Sequence[int], **entry: Any) -> None:
    """Commit one equality delete file over the rows with these values of a column of longs. entry:
    as in `commit_deletes`."""
    key = table.schema().find_field(column).field_id
    field = pa.field(column, pa.int64(), metadata={"PARQUET:field_id": str(key)})
    rows = pa.table([pa.array(values, pa.int64())], pa.schema([field]))
    commit_deletes(table, DataFileContent.EQUALITY_DELETES, rows, equality_ids=[key], **entry)


def delete_positions(table: Any, file: str, positions: Sequence[int]) -> None:
    """Commit one position delete file over rows of one data file."""
    schema = pa.schema(
        [
            pa.field("file_path", pa.string(), False, {"PARQUET:field_id": "2147483546"}),
            pa.field("pos", pa.int64(), False, {"PARQUET:field_id": "2147483545"}),
        ]
    )
    rows = pa.table([pa.array([file] * len(positions)), pa.array(positions, pa.int64())], schema)
    bound = {2147483546: file.encode()}
    commit_deletes(
        table, DataFileContent.POSITION_DELETES, rows, lower_bounds=bound, upper_bounds=bound
    )
