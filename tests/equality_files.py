"""Equality deletes committed without a JVM: pyiceberg reads their metadata and writes none."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq


def delete_equal(table: Any, column: str, values: Sequence[int]) -> None:
    """Commit one file, for a table without partitions, that deletes the rows with these values."""
    from pyiceberg.manifest import (
        DataFile,
        DataFileContent,
        FileFormat,
        ManifestContent,
        ManifestWriterV2,
    )
    from pyiceberg.table.snapshots import Operation
    from pyiceberg.table.update.snapshot import _FastAppendFiles
    from pyiceberg.typedef import Record

    class OfDeletes(ManifestWriterV2):
        def content(self) -> ManifestContent:
            return ManifestContent.DELETES

        @property
        def _meta(self) -> dict[str, str]:
            return {**super()._meta, "content": "deletes"}

    class RowDelta(_FastAppendFiles):
        def new_manifest_writer(self, spec: Any) -> OfDeletes:
            output = self.new_manifest_output()
            return OfDeletes(spec, self.schema(), output, self.snapshot_id, self._compression)

    key = table.schema().find_field(column)
    field = pa.field(column, pa.int64(), metadata={"PARQUET:field_id": str(key.field_id)})
    path = f"{table.location()}/data/equality-{len(table.history())}.parquet"
    local = Path(path.removeprefix("file://"))
    local.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table([pa.array(values, pa.int64())], pa.schema([field])), local)
    file = DataFile.from_args(
        content=DataFileContent.EQUALITY_DELETES,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=len(values),
        file_size_in_bytes=local.stat().st_size,
        equality_ids=[key.field_id],
    )
    file.spec_id = table.spec().spec_id
    with table.transaction() as transaction:
        delta = RowDelta(Operation.OVERWRITE, transaction, table.io)
        delta.append_data_file(file)
        delta.commit()
