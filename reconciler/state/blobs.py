"""Stores file tables and row samples as compact bytes for the state tables: arrays and a JSON
header.

No pickle: reading a blob must never run code. The form is persisted; change it only additively.
"""

from __future__ import annotations

import io
import json
import logging
import zipfile
import zlib
from dataclasses import asdict
from typing import Any

import numpy as np
import numpy.typing as npt

from reconciler.catalog import bounds
from reconciler.catalog.archives import arrays_of
from reconciler.errors import ReconcilerError, first_line
from reconciler.table.filetable import UNKNOWN, ColumnBounds, FileTable
from reconciler.table.schema import Field, PartitionField, PartitionSpec, Schema
from reconciler.table.values import Kind, decode_partition_value, encode_partition_value

log = logging.getLogger(__name__)

Array = npt.NDArray[Any]

_PER_FILE = (
    "spec_id", "partition", "records", "bytes", "sequence", "added_ms", "layout_written",
    "sort_order_id", "parquet", "encrypted", "position_deleted", "delete_files", "delete_bytes",
    "equality_deletes",
)  # fmt: skip
NEWEST_DELETE = "newest_delete"
"""Missing in what earlier versions stored."""
_BOUNDS = (
    "lower", "upper", "has_lower", "has_upper", "nulls", "nans", "values", "sizes", "truncated",
)  # fmt: skip


def pack(header: Any, arrays: dict[str, Array]) -> bytes:
    """Return a JSON header and named arrays as one compressed blob."""
    buffer = io.BytesIO()
    text = np.frombuffer(json.dumps(header, separators=(",", ":")).encode(), dtype=np.uint8)
    np.savez_compressed(buffer, allow_pickle=False, **{"header": text, **arrays})
    return buffer.getvalue()


def unpack(blob: bytes) -> tuple[Any, dict[str, Array]]:
    """Return header and arrays: the inverse of `pack`. Raises TooLargeError."""
    bounds.require_archive(blob, "a stored block of arrays")
    arrays = arrays_of(io.BytesIO(blob))
    return json.loads(arrays.pop("header").tobytes()), arrays


def files_to_blob(files: FileTable) -> bytes:
    """Return a file table, usually the inputs of one action, as a blob."""
    used = sorted({int(number) for number in files.partition})
    renumber = {old: new for new, old in enumerate(used)}
    header = {
        "schema": asdict(files.schema),
        "specs": [asdict(spec) for spec in files.specs.values()],
        "defaultSpecId": files.default_spec_id,
        "paths": files.path.tolist(),
        "partitions": [
            [files.partitions[i][0], [encode_partition_value(v) for v in files.partitions[i][1]]]
            for i in used
        ],
        "kinds": {key: column.kind.value for key, column in files.columns.items()},
    }
    arrays = {name: getattr(files, name) for name in (*_PER_FILE, NEWEST_DELETE)}
    arrays["partition"] = np.array(
        [renumber[int(number)] for number in files.partition], dtype=np.int32
    )
    for key, column in files.columns.items():
        arrays |= {f"{key}.{name}": getattr(column, name) for name in _BOUNDS}
    arrays |= {f"{key}.column_size": sizes for key, sizes in files.column_sizes.items()}
    return pack(header, arrays)


def files_from_blob(blob: bytes) -> FileTable:
    """Return the file table of a blob: the inverse of `files_to_blob`."""
    header, arrays = unpack(blob)
    path = np.empty(len(header["paths"]), dtype=object)
    path[:] = header["paths"]
    schema = header["schema"]
    return FileTable(
        schema=Schema(schema["schema_id"], tuple(map(_field, schema["fields"]))),
        specs={spec["spec_id"]: _spec(spec) for spec in header["specs"]},
        default_spec_id=header["defaultSpecId"],
        path=path,
        partitions=tuple(
            (spec, tuple(decode_partition_value(value) for value in values))
            for spec, values in header["partitions"]
        ),
        columns={
            int(key): ColumnBounds(
                int(key), Kind(kind), **{name: arrays[f"{key}.{name}"] for name in _BOUNDS}
            )
            for key, kind in header["kinds"].items()
        },
        column_sizes={
            int(name.partition(".")[0]): array
            for name, array in arrays.items()
            if name.endswith(".column_size")
        },
        newest_delete=arrays.get(NEWEST_DELETE, np.full(len(path), UNKNOWN, dtype=np.int64)),
        **{name: arrays[name] for name in _PER_FILE},
    )


def _field(body: dict[str, Any]) -> Field:
    return Field(**{**body, "levels": tuple(body.get("levels", ()))})


def readable_files(blob: Any) -> FileTable | None:
    """Return the file table of a blob, None with a warning if it cannot be read: it only says what
    was saved."""
    try:
        return files_from_blob(blob)
    except (
        ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError, OSError,
        EOFError, zipfile.BadZipFile, zlib.error, ReconcilerError,
    ) as error:  # fmt: skip
        log.warning("the files before an action cannot be read: %s", first_line(error))
        return None


def _spec(body: dict[str, Any]) -> PartitionSpec:
    return PartitionSpec(
        body["spec_id"], tuple(PartitionField(**field) for field in body["fields"])
    )
