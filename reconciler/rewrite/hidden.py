"""Writes the rows of data files that deletes hide as positions: a position delete file for each
data file, or, from format 3 on, a deletion vector.

A compaction opens no data file, a conversion reads the columns of keys. Rows are kept as bitmaps,
of about two bytes each. The deletes of a file are those that Iceberg's own scan found for it; the
witness follows rules of its own.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import struct
import time
import zlib
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from reconciler.rewrite.columns import FIELD_ID, PATH_COLUMN, POSITION_COLUMNS
from reconciler.rewrite.deletes import VECTOR, Delete, Positions
from reconciler.rewrite.failures import Stopped
from reconciler.rewrite.files import DataFile, TableShape
from reconciler.rewrite.opened import Opened
from reconciler.rewrite.outputs import Outputs
from reconciler.rewrite.read import Damaged, Reader
from reconciler.rewrite.storage import Opening, Scratch
from reconciler.rewrite.write import tail_of

if TYPE_CHECKING:
    from pyroaring import BitMap64

PUFFIN = b"PFA1"
"""Magic bytes of a Puffin file (Puffin specification)."""
ROW_POSITION = 2147483645
"""Reserved field id of a row's position, which a vector is about."""
SAMPLE = 16
"""Rows of a new file that are asked for when another reader reads it back."""
NOTED = {
    "delete-type": "position",
    "iceberg.schema": json.dumps({
        "type": "struct", "schema-id": 0, "fields": [
            {"id": one.field_id, "name": one.name, "required": True, "type": one.type}
            for one in POSITION_COLUMNS
        ],
    }),
}  # fmt: skip
"""Metadata that Iceberg's writers give position delete files."""


@dataclass(frozen=True, slots=True)
class Target:
    """A data file whose hidden rows get one delete file."""

    file: DataFile
    """The data file, with the deletes that hide rows of it."""
    own: frozenset[tuple[str, int]] = frozenset()
    """Path and offset of those that stay where they alone hide the same rows; none where all are
    replaced."""
    known: bytes | None = None
    """Its hidden rows as a portable bitmap, if they were found before."""


@dataclass(frozen=True, slots=True)
class Group:
    """Data files that share delete files, which are read once for all of them."""

    targets: tuple[Target, ...]
    """The data files."""
    path: str
    """Path of their delete files. NUMBER and ATTEMPT in it are replaced by the file's number and
    the attempt's name."""


@dataclass(frozen=True, slots=True)
class Task:
    """What is found and written together."""

    table: TableShape
    """Columns of the table, present and past."""
    groups: tuple[Group, ...]
    """Data files, by the deletes that they share."""
    vectors: str = ""
    """Path of the Puffin file to write, in which ATTEMPT becomes the attempt's name; "" for
    position delete files."""
    codec: str = "zstd"
    """Compression of position delete files, as pyarrow names it."""
    level: int | None = None
    """None for the codec's default."""
    kept_bytes: int = 0
    """Most bytes of bitmaps that are handed back."""


@dataclass(frozen=True, slots=True)
class Written:
    """A new delete file, or one vector of it."""

    data_file: str
    """Location of the data file whose rows it hides."""
    path: str
    """Location of the file."""
    rows: int
    """Rows that it hides."""
    size: int
    """Bytes of the file."""
    sample: tuple[int, ...]
    """Some of its rows."""
    footer: bytes = field(default=b"", repr=False)
    """The end of a Parquet file, from its footer on."""
    offset: int = 0
    """Where a vector begins in its file."""
    length: int = 0
    """Bytes of a vector."""


@dataclass(frozen=True, slots=True)
class Found:
    """What a task hands back."""

    files: tuple[Written, ...]
    """Delete files that were written."""
    rows: Mapping[str, bytes]
    """The hidden rows of data files, as far as they were to be kept."""
    cpu_seconds: float
    """CPU seconds of the task."""


def found(
    task: Task,
    opening: Opening | None,
    stopping: Callable[[], bool] = lambda: False,
    attempt: str = "0",
) -> Found:
    """Find and write what a task says; no file is left if it fails.

    attempt: names this run of the task among others. Raises Stopped, read.Damaged,
    FileNotFoundError.
    """
    started = time.thread_time()
    with Scratch(opening) as scratch, Outputs(scratch, attempt) as outputs:
        run = _Run(task, Reader(task.table, scratch), stopping, outputs)
        run.carry_out()
    return Found(tuple(run.files), run.rows, time.thread_time() - started)


@dataclass(slots=True)
class _Run:
    task: Task
    """What is found and written."""
    reader: Reader
    """Opens data files and delete files."""
    stopping: Callable[[], bool]
    """Whether it is to stop."""
    outputs: Outputs
    """The files that it writes."""
    files: list[Written] = field(default_factory=list)
    """Delete files that were written so far."""
    rows: dict[str, bytes] = field(default_factory=dict)
    """Hidden rows to hand back, by data file."""
    kept: int = 0
    """Bytes of `rows`."""
    counted: set[str] = field(default_factory=set)
    """Data files whose footer has the number of rows that their entry says."""

    def carry_out(self) -> None:
        if not self.task.vectors:
            for path, target, rows in self._changed():
                self._write(path, target.file.path, rows)
            return
        with contextlib.ExitStack() as opened:
            puffin = None
            for _, target, rows in self._changed():
                if puffin is None:
                    staged = self.outputs.begin(self.task.vectors)
                    file = opened.enter_context(staged.path.open("wb"))
                    puffin = Puffin(staged.location, file)
                self.files.append(puffin.add(target.file.path, rows))
            size = 0 if puffin is None else puffin.end()
        self.files = [replace(one, size=size) for one in self.files]
        for staged in self.outputs.files:
            self.outputs.store(staged)

    def _changed(self) -> Iterator[tuple[str, Target, BitMap64]]:
        """Yield the data files that need a new delete file, with all rows that it hides."""
        for group in self.task.groups:
            own, every = self._by_position(group.targets)
            for target in group.targets:
                alone, rows = own.pop(target.file.path), every.pop(target.file.path)
                rows |= alone
                for some in self._by_key(target):
                    rows.update(_as_array(some))
                self._keep(target.file.path, rows)
                if rows and not (target.own and rows == alone):
                    yield group.path, target, rows

    def _by_position(
        self, targets: Sequence[Target]
    ) -> tuple[dict[str, BitMap64], dict[str, BitMap64]]:
        """Return the rows that position deletes hide: those of a data file's own ones, and of
        others. Each delete file is read once."""
        from pyroaring import BitMap64

        files = {one.file.path: one.file for one in targets}
        own: dict[str, BitMap64] = {path: BitMap64() for path in files}
        every = {path: BitMap64() for path in files}
        known: dict[tuple[str, int], Delete] = {}
        users: dict[tuple[str, int], dict[str, BitMap64]] = {}
        for one in targets:
            if one.known is not None:
                every[one.file.path] = BitMap64.deserialize(one.known)
            for delete in one.file.deletes:
                name = delete.path, delete.offset
                mine = name in one.own
                if not delete.keys and (mine or one.known is None):
                    into = own if mine else every
                    known[name] = delete
                    users.setdefault(name, {})[one.file.path] = into[one.file.path]
        for location, names in itertools.groupby(sorted(users), key=lambda name: name[0]):
            for name in names:
                self._go_on()
                for path, rows in self._stored(known[name]):
                    if path in users[name]:
                        users[name][path].update(_as_array(self._inside(files[path], rows)))
            self.reader.scratch.forget(location)
        return own, every

    def _inside(self, file: DataFile, rows: Positions) -> Positions:
        """Return the positions that the file has: a writer may name others.

        Raises Damaged if the file has another number of rows than its entry says. What lies beyond
        the entry's number then hides a row, and the witness knows the entry alone.
        """
        inside: Positions = rows[(rows >= 0) & (rows < file.rows)]
        if len(inside) < len(rows) and file.path not in self.counted:
            self.reader.fetch(file, set())
            held = int(self.reader.footer(file.path)[0].num_rows)
            self.reader.forget(file.path)
            if held != file.rows:
                says = f"{held:,} rows, where the table's metadata says {file.rows:,}"
                raise Damaged(file.path, says)
            self.counted.add(file.path)
        return inside

    def _stored(self, one: Delete) -> Iterator[tuple[str, Positions]]:
        if not one.vector:
            return self.reader.stored_positions(one)
        return iter([(one.data_file, self.reader.vector(one, one.data_file))])

    def _by_key(self, target: Target) -> Iterator[Positions]:
        """Yield the rows that equality deletes hide."""
        keyed = tuple(one for one in target.file.deletes if one.keys)
        if not keyed or target.known is not None:
            return
        ways = self.task.table.ways
        ids = {field_id for one in keyed for field_id in one.keys}
        self.reader.fetch(target.file, {ways[key][0].field_id for key in ids if key in ways})
        opened = Opened(self.reader, replace(target.file, deletes=keyed))
        try:
            for rows in opened.hidden():
                self._go_on()
                yield rows
        finally:
            opened.close()
            self.reader.forget(target.file.path)

    def _keep(self, path: str, rows: BitMap64) -> None:
        if self.kept < self.task.kept_bytes:
            body = rows.serialize()
            self.kept += len(body)
            if self.kept <= self.task.kept_bytes:
                self.rows[path] = body

    def _go_on(self) -> None:
        if self.stopping():
            raise Stopped

    # Writing

    def _write(self, path: str, data_file: str, rows: BitMap64) -> None:
        staged = self.outputs.begin(path)
        footer = write_positions(staged.path, data_file, rows, self.task.codec, self.task.level)
        size = staged.path.stat().st_size
        self.outputs.store(staged)
        self.files.append(
            Written(data_file, staged.location, len(rows), size, _sample(rows), footer)
        )


def _as_array(rows: Positions) -> array[int]:
    """Return rows as what a bitmap takes without a call for each."""
    made = array("Q")
    made.frombytes(rows.astype(np.uint64).tobytes())
    return made


def _sample(rows: BitMap64) -> tuple[int, ...]:
    return tuple(rows[at] for at in range(0, len(rows), -(-len(rows) // SAMPLE)))


def write_positions(
    file: Path, data_file: str, rows: BitMap64, codec: str, level: int | None
) -> bytes:
    """Write a position delete file with what readers of any age know: version 1 pages, plain
    positions. Return its footer."""
    same = pa.array(np.zeros(len(rows), dtype=np.int32))
    paths = pa.DictionaryArray.from_arrays(same, pa.array([data_file]))
    fields = [
        pa.field(one.name, kind, nullable=False, metadata={FIELD_ID: str(one.field_id)})
        for one, kind in zip(POSITION_COLUMNS, (paths.type, pa.int64()), strict=True)
    ]
    at = np.array(rows.to_array(), dtype=np.int64)
    table = pa.Table.from_arrays([paths, pa.array(at)], schema=pa.schema(fields))
    with pq.ParquetWriter(
        file, table.schema, use_dictionary=[PATH_COLUMN.name], compression=codec,
        compression_level=level, store_schema=False, write_page_checksum=True,
    ) as writer:  # fmt: skip
        writer.write_table(table, row_group_size=len(rows))
        writer.add_key_value_metadata(NOTED)
    return tail_of(file, pq.read_metadata(file).serialized_size)


class Puffin:
    """A Puffin file of deletion vectors, as the specifications of Puffin and of Iceberg say."""

    def __init__(self, location: str, file: BinaryIO) -> None:
        self._location, self._file = location, file
        self._file.write(PUFFIN)
        self._blobs: list[dict[str, Any]] = []

    def add(self, data_file: str, rows: BitMap64) -> Written:
        """Append the rows of a data file."""
        rows.run_optimize()
        body = VECTOR + rows.serialize()
        blob = struct.pack(">I", len(body)) + body + struct.pack(">I", zlib.crc32(body))
        offset = self._file.tell()
        self._file.write(blob)
        self._blobs.append({
            "type": "deletion-vector-v1", "fields": [ROW_POSITION], "snapshot-id": -1,
            "sequence-number": -1, "offset": offset, "length": len(blob),
            "properties": {"referenced-data-file": data_file, "cardinality": str(len(rows))},
        })  # fmt: skip
        return Written(
            data_file, self._location, len(rows), 0, _sample(rows),
            offset=offset, length=len(blob),
        )  # fmt: skip

    def end(self) -> int:
        """Return the bytes of the complete file."""
        payload = json.dumps({"blobs": self._blobs}).encode()
        self._file.write(PUFFIN + payload + struct.pack("<I", len(payload)) + bytes(4) + PUFFIN)
        return self._file.tell()
