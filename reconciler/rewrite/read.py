"""Reads footers and deletes of data files by Arrow, for `opened`, which reads their live rows.

The deletes of a file are those that Iceberg's own scan found for it, while the witness follows
rules of its own. Position files and keys are decoded by Arrow here and by DuckDB there, vectors by
code of each side (both unpack their bitmaps by CRoaring), so that an error of one side shows.
"""

from __future__ import annotations

import contextlib
import json
import struct
import threading
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow.fs import LocalFileSystem

from reconciler.catalog.parquet import require_plain_file
from reconciler.rewrite import arrow
from reconciler.rewrite.columns import (
    PATH_COLUMN,
    POSITION_COLUMN,
    POSITION_MAPPING,
    Column,
    Unreadable,
)
from reconciler.rewrite.deletes import VECTOR, Delete, Positions
from reconciler.rewrite.equal_rows import Mask
from reconciler.rewrite.files import LAST_UPDATED, ROW_ID, DataFile, TableShape
from reconciler.rewrite.storage import Scratch
from reconciler.table.parquet_schema import TAIL_BYTES, TRAILER_BYTES

LINEAGE = (Column(ROW_ID, "_row_id", "long"),
           Column(LAST_UPDATED, "_last_updated_sequence_number", "long"))  # fmt: skip
POSITION_ROWS = 1 << 20
"""Positions that are decoded at a time."""
KEY_ROWS, KEPT_KEYS = 4_000_000, 128 << 20
"""Keys that rows are compared with at a time, and bytes of keys that are kept for other files."""
CHUNK_MARGIN = 128
"""Bytes that some writers leave out when they count a column's."""
LOCAL = LocalFileSystem()
"""Given to pyarrow, which else looks for the file system of each path that it opens."""

Keys = tuple[pa.ChunkedArray, ...]
"""Columns of the keys of equality deletes."""


class Damaged(Exception):
    """A file that cannot be read, or does not hold what its manifest entry says.

    detail: a clause without values of the table. column: in which this shows, "" if it concerns the
    file as a whole. said: what the decoder said.
    """

    def __init__(self, path: str, detail: str, column: str = "", said: str = "") -> None:
        super().__init__(f"{path}: {detail}")
        self.path, self.detail, self.column, self.said = path, detail, column, said


@contextlib.contextmanager
def decoding(path: str, column: Callable[[], str] = lambda: "") -> Iterator[None]:
    """Raise Damaged for whatever a decoder raises about the file.

    A lack of memory passes, and so does an error of the storage, which has a number (`errno`).
    column: returns which column cannot be decoded.
    """
    try:
        yield
    except MemoryError:
        raise
    except Unreadable as error:
        raise Damaged(path, error.detail, error.column) from error
    except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
        if isinstance(error, OSError) and error.errno:
            raise
        raise Damaged(path, "it cannot be decoded", column(), _why(error)) from error


def columns_of(table: TableShape) -> tuple[Column, ...]:
    """Return the columns that files of the table hold, those of row lineage last."""
    return (*arrow.held(table.columns), *(LINEAGE if table.lineage else ()))


class Reader:
    """Opens the files of a task; keeps what several data files need of delete files."""

    def __init__(self, table: TableShape, scratch: Scratch) -> None:
        self.table, self.scratch = table, scratch
        self.columns = columns_of(table)
        self.mapping = None if table.mapping is None else json.loads(table.mapping)
        self._footers: dict[str, tuple[Any, Mapping[Any, int]]] = {}
        self._positions: dict[str, dict[str, Positions]] = {}
        self._shared = threading.RLock()
        """Held where delete files are read and kept: several threads read data files of a task,
        and each delete file is read once."""
        self._keys: dict[str, Keys] = {}
        self._together: tuple[tuple[str, ...], Keys] = (), ()
        self.kept: dict[tuple[str, int], Mask | None] = {}
        """Which rows of a row group are live, by file and number; None if all of them are. Columns
        of a file are read one after another, its deletes once."""

    def footer(self, location: str) -> tuple[Any, Mapping[Any, int]]:
        """Return the footer of a data file, and the field ids of its columns by path."""
        known = self._footers.get(location)
        if known is None:
            with decoding(location), self.parquet(location) as opened:
                known = opened.metadata, arrow.ids_of(opened.schema_arrow, self.mapping)
            self._footers[location] = known
        return known

    def parquet(
        self, location: str, dictionaries: Sequence[str] = (), footer: Any = None
    ) -> pq.ParquetFile:
        path = self.scratch.path(location)
        with decoding(location):
            file = pq.ParquetFile(
                path,
                filesystem=LOCAL,
                metadata=footer,
                read_dictionary=list(dictionaries),
                page_checksum_verification=True,
                pre_buffer=False,
            )
            if footer is None:
                require_plain_file(path, file.metadata)
            return file

    def positions(self, file: DataFile) -> Positions:
        """Return the rows that position deletes and vectors hide, ascending."""
        parts = [self._of_file(one, file.path) for one in file.deletes if not one.keys]
        if not parts:
            return np.zeros(0, dtype=np.int64)
        return np.unique(np.concatenate(parts))

    def _of_file(self, one: Delete, path: str) -> Positions:
        if one.vector:
            return self.vector(one, path)
        with self._shared:
            known = self._positions.get(one.path)
            if known is None:
                parts: dict[str, list[Positions]] = {}
                for named, rows in self.stored_positions(one):
                    parts.setdefault(named, []).append(rows)
                known = {named: np.concatenate(rows) for named, rows in parts.items()}
                self._positions[one.path] = known
        return known.get(path, np.zeros(0, dtype=np.int64))

    def vector(self, one: Delete, path: str) -> Positions:
        """Return the rows of a deletion vector of the data file."""
        with self.scratch.path(one.path).open("rb") as opened:
            opened.seek(one.offset)
            return vector_rows(opened.read(one.length), one.path, path)

    def stored_positions(self, one: Delete) -> Iterator[tuple[str, Positions]]:
        """Yield data files and rows of a position delete file as it is stored, batch by batch."""
        with decoding(one.path):
            with self.parquet(one.path) as opened:
                footer, ids = opened.metadata, arrow.ids_of(opened.schema_arrow, POSITION_MAPPING)
            paths, rows = _way_to(PATH_COLUMN, ids), _way_to(POSITION_COLUMN, ids)
            names = [paths[0], rows[0]]
        with decoding(one.path), self.parquet(one.path, [paths[0]], footer) as opened:
            for batch in opened.iter_batches(POSITION_ROWS, columns=names, use_threads=False):
                named = arrow.encoded(batch.column(paths[0]), PATH_COLUMN, ids, paths)
                yield from _by_data_file(
                    named, arrow.fitted(batch.column(rows[0]), POSITION_COLUMN, ids, rows)
                )

    def keys(self, ids: tuple[int, ...], files: Sequence[Delete]) -> Iterator[Keys]:
        """Yield the key columns of equality delete files with the same keys, of many rows at a
        time."""
        together = self._all_of(tuple(one.path for one in files))
        if together:
            yield together
            return
        held: list[Keys] = []
        for number, one in enumerate(files):
            with self._shared:
                held.append(self._keys_of(ids, one))
            if number == len(files) - 1 or sum(len(part[0]) for part in held) >= KEY_ROWS:
                yield _one_below_the_other(held)
                held.clear()

    def _all_of(self, name: tuple[str, ...]) -> Keys:
        """Return the keys of these files in one piece; () if they are not kept so."""
        with self._shared:
            if self._together[0] != name and all(path in self._keys for path in name):
                self._together = name, self._put_together([self._keys[path] for path in name])
            return self._together[1] if self._together[0] == name else ()

    def _put_together(self, parts: Sequence[Keys]) -> Keys:
        """Return the keys in one piece, for all row groups with the same deletes; () if they are
        too many to be kept twice."""
        size = sum(column.nbytes for part in parts for column in part)
        kept = sum(column.nbytes for part in self._keys.values() for column in part)
        if kept + size > KEPT_KEYS or sum(len(part[0]) for part in parts) > KEY_ROWS:
            return ()
        whole = _one_below_the_other(parts)
        return tuple(pa.chunked_array([arrow.one_piece(column)]) for column in whole)

    def _keys_of(self, ids: tuple[int, ...], one: Delete) -> Keys:
        """Return the key columns of one file, which several data files need; as many files are kept
        as there is room for."""
        known = self._keys.get(one.path)
        if known is None:
            columns = [self.key_column(field_id, one) for field_id in ids]
            found = self._delete_columns(one, columns)
            known = tuple(
                pa.chunked_array(part, arrow.type_of(column))
                for part, column in zip(found, columns, strict=True)
            )
            held = sum(part.nbytes for kept in self._keys.values() for part in kept)
            if held + sum(part.nbytes for part in known) <= KEPT_KEYS:
                self._keys[one.path] = known
        return known

    def key_column(self, field_id: int, one: Delete) -> Column:
        """Return a column that an equality delete file names. Raises Damaged."""
        way = self.table.ways.get(field_id)
        if way is None:
            raise Damaged(one.path, f"it deletes by field {field_id}, which no schema has")
        return way[-1]

    def _delete_columns(self, one: Delete, columns: Sequence[Column]) -> list[list[pa.Array]]:
        """Return the chunks of columns of a Parquet delete file, by field id. Raises Damaged."""
        with decoding(one.path), self.parquet(one.path) as file:
            return _chunks_of(file.read(use_threads=False), columns, self.mapping)

    def fetch(self, file: DataFile, wanted: Set[int]) -> None:
        """Fetch of a data file of another store only its footer and the columns of these ids."""
        with self.scratch.in_parts(file.path, file.size) as fetch:
            if fetch is None:
                return
            tail = min(file.size, TAIL_BYTES)
            fetch(file.size - tail, tail)
            with self.scratch.path(file.path).open("rb") as opened:
                opened.seek(max(0, file.size - TRAILER_BYTES))
                footer = int.from_bytes(opened.read(4), "little") + TRAILER_BYTES
            if tail < footer <= file.size:
                fetch(file.size - footer, footer)
            for first, end in sorted(self._chunks(file, wanted)):
                fetch(first, min(end, file.size) - first)

    def _chunks(self, file: DataFile, wanted: Set[int]) -> Iterator[tuple[int, int]]:
        """Yield where columns begin and end in each row group."""
        footer, ids = self.footer(file.path)
        names = {path[0] for path, field_id in ids.items() if len(path) == 1 and field_id in wanted}
        for leaf in range(footer.num_columns):
            path = footer.schema.column(leaf).path
            if path in names or any(path.startswith(f"{name}.") for name in names):
                for number in range(footer.num_row_groups):
                    chunk = footer.row_group(number).column(leaf)
                    starts = chunk.data_page_offset, chunk.dictionary_page_offset
                    first = min(at for at in starts if at)
                    yield first, first + chunk.total_compressed_size + CHUNK_MARGIN

    def forget(self, location: str) -> None:
        """Free what is held of a data file."""
        self._footers.pop(location, None)
        self.scratch.forget(location)


def _one_below_the_other(parts: Sequence[Keys]) -> Keys:
    return tuple(
        pa.chunked_array([chunk for column in columns for chunk in column.chunks], columns[0].type)
        for columns in zip(*parts, strict=True)
    )


def _way_to(column: Column, ids: Mapping[Any, int]) -> tuple[str, ...]:
    """Return the path of a column of a file. Raises Unreadable."""
    for path, field_id in ids.items():
        if field_id == column.field_id:
            return path  # type: ignore[no-any-return]
    raise Unreadable(column.name, "the file lacks it")


def _by_data_file(paths: pa.DictionaryArray, rows: pa.Array) -> Iterator[tuple[str, Positions]]:
    """Yield each path with its rows, in their order; NULL names no row."""
    if paths.null_count or rows.null_count:
        whole = pc.and_(paths.is_valid(), rows.is_valid())
        paths, rows = paths.filter(whole), rows.filter(whole)
    numbers = paths.indices.to_numpy()
    at = rows.to_numpy()
    if len(paths.dictionary) > 1:
        order = np.argsort(numbers, kind="stable")
        numbers, at = numbers[order], at[order]
    ends = np.searchsorted(numbers, np.arange(len(paths.dictionary) + 1))
    for number, path in enumerate(paths.dictionary.to_pylist()):
        if ends[number] < ends[number + 1]:
            yield path, at[ends[number] : ends[number + 1]]


def _chunks_of(table: pa.Table, columns: Sequence[Column], mapping: Any) -> list[list[pa.Array]]:
    """Raises Unreadable for a column that the table lacks, or holds as another type."""
    ids = arrow.ids_of(table.schema, mapping)
    found = []
    for column in columns:
        path = _way_to(column, ids)
        chunks = table.column(table.column_names.index(path[0])).chunks
        for name in path[1:]:
            chunks = [arrow.child_of(chunk, name) for chunk in chunks]
        found.append([arrow.fitted(chunk, column, ids, path) for chunk in chunks])
    return found


def vector_rows(body: bytes, path: str, data_file: str) -> Positions:
    """Return the rows of a stored deletion vector. Raises Damaged."""
    from pyroaring import BitMap

    if len(body) < 20 or body[4:8] != VECTOR:
        raise Damaged(path, f"no deletion vector of {data_file} begins there")
    (size,) = struct.unpack(">I", body[:4])
    if size != len(body) - 8 or zlib.crc32(body[4:-4]) != struct.unpack(">I", body[-4:])[0]:
        raise Damaged(path, f"the deletion vector of {data_file} has a wrong length or checksum")
    (count,) = struct.unpack("<Q", body[8:16])
    at, parts = 16, []
    for _ in range(count):
        (high,) = struct.unpack("<I", body[at : at + 4])
        bitmap = BitMap.deserialize(body[at + 4 : -4])
        at += 4 + len(bitmap.serialize())
        parts.append(np.array(bitmap.to_array(), dtype=np.int64) + (high << 32))
    return np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)


def _why(error: Exception) -> str:
    return str(error).split("\n", 1)[0][:300]
