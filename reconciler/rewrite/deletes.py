"""Which rows of a data file are deleted, by rules and readers of the witness's own.

The rules are those of the specification ("Scan Planning"): a vector stands alone for its file; else
position deletes of at least the file's sequence number apply, and equality deletes of a higher one.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import numpy.typing as npt

from reconciler.rewrite.columns import FIELD_ID
from reconciler.table.deletes import PartitionKey

Positions = npt.NDArray[np.int64]
"""Numbers of rows in a data file: ascending, each once."""

VECTOR = b"\xd1\xd3\x39\x64"
"""Magic bytes of a vector (Puffin specification)."""
FRAME = 8
"""Bytes of a stored vector around its magic number and bitmap: length and checksum."""


@dataclass(frozen=True, slots=True)
class Delete:
    """A delete file, or one vector of a Puffin file."""

    path: str
    """Location of the file, as the manifest spells it."""
    format: str
    """Its format, in capitals."""
    sequence: int
    """Data sequence number; of a file that is not committed yet, the one that it will get."""
    partition_key: PartitionKey
    """Its partition."""
    everywhere: bool
    """Whether its spec is unpartitioned."""
    rows: int = 0
    """Number of deleted rows that its manifest entry says."""
    data_file: str = ""
    """The only data file that it applies to, "" for a wider scope."""
    keys: tuple[int, ...] = ()
    """Field ids of an equality delete."""
    offset: int = 0
    """First byte of a vector in its file."""
    length: int = 0
    """Stored bytes of the vector, or of the file if it is no vector."""

    @property
    def vector(self) -> bool:
        return self.format == "PUFFIN"

    @property
    def shared(self) -> bool:
        """Whether it may apply to several data files."""
        return bool(self.keys) or not self.data_file


class Deletes:
    """Delete files by what they apply to."""

    def __init__(self, files: Iterable[Delete]) -> None:
        self._of_file: dict[str, list[Delete]] = {}
        self._of_partition: dict[PartitionKey, list[Delete]] = {}
        self._everywhere: list[Delete] = []
        for file in files:
            if file.data_file:
                self._of_file.setdefault(file.data_file, []).append(file)
            elif file.keys and file.everywhere:
                self._everywhere.append(file)
            else:
                self._of_partition.setdefault(file.partition_key, []).append(file)

    def of(self, path: str, sequence: int, key: PartitionKey) -> tuple[Delete, ...]:
        """Return those that a reader of the data file applies."""
        wide = [*self._of_partition.get(key, ()), *self._everywhere]
        own = [one for one in self._of_file.get(path, ()) if one.sequence >= sequence]
        vectors = [one for one in own if one.vector]
        positions = vectors or [
            *own, *(one for one in wide if not one.keys and one.sequence >= sequence)
        ]  # fmt: skip
        return (*positions, *(one for one in wide if one.keys and one.sequence > sequence))


def vector_positions(file: Path, offset: int, length: int) -> Positions:
    """Return the rows of a vector. Raises ValueError where its frame or checksum is wrong."""
    from pyroaring import BitMap64

    with file.open("rb") as opened:
        opened.seek(offset)
        body = opened.read(length)
    if len(body) < FRAME + len(VECTOR) or body[4:8] != VECTOR:
        raise ValueError("no deletion vector begins there")
    (size,) = struct.unpack(">I", body[:4])
    if size != length - FRAME:
        raise ValueError(f"the vector has {size} bytes, its manifest entry {length - FRAME}")
    (checksum,) = struct.unpack(">I", body[-4:])
    if zlib.crc32(body[4:-4]) != checksum:
        raise ValueError("the vector's checksum is wrong")
    rows = BitMap64.deserialize(body[8:-4])
    return np.fromiter(rows, dtype=np.int64, count=len(rows))


def to_parquet(file: Path, kind: str, to: Path) -> None:
    """Store the rows of an ORC or Avro delete file as Parquet, with their field ids: DuckDB reads
    neither as it is shipped. Raises ValueError for another format."""
    import pyarrow.parquet as pq

    if kind == "ORC":
        from pyarrow import orc

        found = orc.read_table(str(file))
        found = found.cast(_numbered(found.schema))
    elif kind == "AVRO":
        found = _avro_rows(file)
    else:
        raise ValueError(f"a delete file of format {kind}")
    pq.write_table(found, to, store_schema=False)


def _numbered(schema: Any) -> Any:
    """Return the schema of an ORC file with its ids where Parquet's writer looks for them."""
    import pyarrow as pa

    def field(one: Any) -> Any:
        kind = one.type
        if pa.types.is_struct(kind):
            kind = pa.struct([field(kind.field(i)) for i in range(kind.num_fields)])
        known = (one.metadata or {}).get(b"iceberg.id")
        marks = None if known is None else {FIELD_ID: known}
        return pa.field(one.name, kind, one.nullable, marks)

    return pa.schema([field(one) for one in schema])


def _avro_rows(file: Path) -> Any:
    """Return the rows of an Avro file as an Arrow table, by pyiceberg's reader."""
    import pyarrow as pa
    from pyiceberg.avro.file import AvroFile
    from pyiceberg.io.pyarrow import PyArrowFileIO, schema_to_pyarrow

    opened: AvroFile[Any] = AvroFile(PyArrowFileIO().new_input(str(file)))
    with opened as reader:
        wanted = reader.schema
        rows = [_values(wanted.as_struct(), row) for row in reader]
    return pa.Table.from_pylist(rows, schema=schema_to_pyarrow(wanted))


def _values(kind: Any, record: Any) -> dict[str, Any]:
    """Return a record of pyiceberg as a dict."""
    found = {}
    for at, field in enumerate(kind.fields):
        value = record[at]
        if value is not None and field.field_type.is_struct:
            value = _values(field.field_type, value)
        elif isinstance(value, UUID):
            value = value.bytes
        found[field.name] = value
    return found


def union(parts: Sequence[Positions]) -> Positions:
    if not parts:
        return np.zeros(0, dtype=np.int64)
    return np.unique(np.concatenate(parts))
