"""Reads the live rows of data files by Arrow: in the table's columns, without deleted rows.

The deletes of a file are those that Iceberg's own scan found for it, while the witness follows
rules of its own. Position files and keys are decoded by Arrow here and by DuckDB there, vectors by
code of each side (both unpack their bitmaps by CRoaring), so that an error of one side shows.
"""

from __future__ import annotations

import contextlib
import json
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow.fs import LocalFileSystem

from reconciler.rewrite import arrow
from reconciler.rewrite.columns import Column, Unreadable
from reconciler.rewrite.deletes import PATH_ID, POSITION_ID, Delete
from reconciler.rewrite.files import LAST_UPDATED, ROW_ID, DataFile, Table
from reconciler.rewrite.storage import Scratch

LINEAGE = (Column(ROW_ID, "_row_id", "long"),
           Column(LAST_UPDATED, "_last_updated_sequence_number", "long"))  # fmt: skip
POSITION_COLUMNS = (Column(PATH_ID, "file_path", "string"), Column(POSITION_ID, "pos", "long"))
POSITION_MAPPING = [{"field-id": one.field_id, "names": [one.name]} for one in POSITION_COLUMNS]
"""Of position delete files that were written without field ids."""
MOST_CODES = 1 << 62
"""Numbers that combinations of values may have before they are numbered anew: 64 bits hold them."""

POSITION_ROWS = 1 << 20
"""Positions that are decoded at a time."""
KEY_ROWS, KEPT_KEYS = 4_000_000, 128 << 20
"""Keys that rows are compared with at a time, and bytes of keys that are kept for other files."""
TAIL_BYTES, TRAILER_BYTES, CHUNK_MARGIN = 64 << 10, 8, 128
"""Bytes that are fetched of a file's end first; of what follows its footer; and that some writers
leave out when they count a column's."""
LOCAL = LocalFileSystem()
"""Given to pyarrow, which else looks for the file system of each path that it opens."""
BATCH_ROWS = 1_024
"""Rows that are decoded at a time where those of a row group do not fit one array."""

Mask = npt.NDArray[np.bool_]
Positions = npt.NDArray[np.int64]
Raw = dict[str, pa.ChunkedArray]
"""Columns as a file holds them, by name."""
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
    """Whatever a decoder says of the file is its damage, unlike a lack of memory or an error of the
    storage, which has a number. column: returns which column cannot be decoded."""
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


def columns_of(table: Table) -> tuple[Column, ...]:
    """Return the columns that files of the table hold, those of row lineage last."""
    return (*arrow.held(table.columns), *(LINEAGE if table.lineage else ()))


class Reader:
    """Opens the files of a task; keeps what several data files need of delete files."""

    def __init__(self, table: Table, scratch: Scratch) -> None:
        self.table, self.scratch = table, scratch
        self.columns = columns_of(table)
        self.mapping = None if table.mapping is None else json.loads(table.mapping)
        self._footers: dict[str, tuple[Any, Mapping[Any, int]]] = {}
        self._positions: dict[str, dict[str, Positions]] = {}
        self._keys: dict[str, Keys] = {}
        self._together: tuple[tuple[str, ...], Keys] = (), ()
        self.kept: dict[tuple[str, int], Mask | None] = {}
        """Which rows of a row group are live, by file and number; None if all of them are. Columns
        of a file are read one after another, its deletes once."""

    def open(self, file: DataFile, dictionaries: Sequence[str] = ()) -> Opened:
        """dictionaries: names of columns of the table to be read as dictionaries."""
        return Opened(self, file, dictionaries)

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
            return pq.ParquetFile(
                path,
                filesystem=LOCAL,
                metadata=footer,
                read_dictionary=list(dictionaries),
                page_checksum_verification=True,
                pre_buffer=False,
            )

    def positions(self, file: DataFile) -> Positions:
        """Return the rows that position deletes and vectors hide, ascending."""
        parts = [self._of_file(one, file.path) for one in file.deletes if not one.keys]
        if not parts:
            return np.zeros(0, dtype=np.int64)
        return np.unique(np.concatenate(parts))

    def _of_file(self, one: Delete, path: str) -> Positions:
        if one.vector:
            return self.vector(one, path)
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
        path_column, row_column = POSITION_COLUMNS
        with decoding(one.path):
            with self.parquet(one.path) as opened:
                footer, ids = opened.metadata, arrow.ids_of(opened.schema_arrow, POSITION_MAPPING)
            paths, rows = _way_to(path_column, ids), _way_to(row_column, ids)
            names = [paths[0], rows[0]]
        with decoding(one.path), self.parquet(one.path, [paths[0]], footer) as opened:
            for batch in opened.iter_batches(POSITION_ROWS, columns=names, use_threads=False):
                named = arrow.encoded(batch.column(paths[0]), path_column, ids, paths)
                yield from _by_data_file(
                    named, arrow.fitted(batch.column(rows[0]), row_column, ids, rows)
                )

    def keys(self, ids: tuple[int, ...], files: Sequence[Delete]) -> Iterator[Keys]:
        """Yield the key columns of equality delete files with the same keys, of many rows at a
        time."""
        name = tuple(one.path for one in files)
        if self._together[0] != name and all(path in self._keys for path in name):
            self._together = name, self._put_together([self._keys[path] for path in name])
        if self._together[0] == name and self._together[1]:
            yield self._together[1]
            return
        held: list[Keys] = []
        for number, one in enumerate(files):
            held.append(self._keys_of(ids, one))
            if number == len(files) - 1 or sum(len(part[0]) for part in held) >= KEY_ROWS:
                yield _one_below_the_other(held)
                held.clear()

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
        path = self.scratch.path(one.path)
        with decoding(one.path):
            table = pq.read_table(path, use_threads=False, page_checksum_verification=True)
            return _chunks_of(table, columns, self.mapping)

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

    if len(body) < 20 or body[4:8] != b"\xd1\xd3\x39\x64":
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


class Opened:
    """A data file, row group by row group."""

    def __init__(self, reader: Reader, file: DataFile, dictionaries: Sequence[str]) -> None:
        self._reader, self.file = reader, file
        self.footer, self.ids = reader.footer(file.path)
        self._paths = {field_id: path for path, field_id in self.ids.items()}
        self._constants = {field_id: value for field_id, _, value in file.partition}
        self._dictionaries = frozenset(dictionaries)
        self._parquet: pq.ParquetFile | None = None
        hidden = reader.positions(file)
        self._hidden = hidden[(hidden >= 0) & (hidden < self.footer.num_rows)]
        self._keyed = _by_keys(file.deletes)
        for ids, ones in self._keyed.items():
            for field_id in ids:
                reader.key_column(field_id, ones[0])

    def close(self) -> None:
        if self._parquet is not None:
            self._parquet.close()

    @property
    def parquet(self) -> pq.ParquetFile:
        """The file, opened when its values are first needed."""
        if self._parquet is None:
            names = self._stored_names()
            self._parquet = self._reader.parquet(self.file.path, names, self.footer)
        return self._parquet

    def _stored_names(self) -> list[str]:
        wanted = {c.field_id for c in self._reader.columns if c.name in self._dictionaries}
        return [self._paths[i][0] for i in sorted(wanted) if len(self._paths.get(i, ())) == 1]

    def live_rows(self) -> int:
        """Return how many rows are live; reads key columns if equality deletes apply."""
        if not self._keyed:
            return int(self.footer.num_rows - len(self._hidden))
        found = 0
        for number, at, rows in self._row_groups():
            keep = self._kept(number, at, rows)
            found += rows if keep is None else int(keep.sum())
        return found

    def hidden(self) -> Iterator[Positions]:
        """Yield the rows of each row group that deletes hide."""
        for number, at, rows in self._row_groups():
            with decoding(self.file.path):
                keep = self._without_deletes(number, at, rows)
            if keep is not None:
                yield np.flatnonzero(~keep) + at

    def live(self, columns: Sequence[Column]) -> Iterator[pa.Table]:
        """Yield the live rows of each row group, in these columns of the table."""
        for number, at, rows in self._row_groups():
            with decoding(self.file.path):
                table = self._live(number, at, rows, columns)
            yield table

    def _row_groups(self) -> Iterator[tuple[int, int, int]]:
        """Yield number, first row and rows of each row group that has some."""
        at = 0
        for number in range(self.footer.num_row_groups):
            rows = self.footer.row_group(number).num_rows
            if rows:
                yield number, at, rows
            at += rows

    def _live(self, number: int, at: int, rows: int, columns: Sequence[Column]) -> pa.Table:
        raw = self._raw(number, {column.field_id for column in columns})
        arrays = [self._column(raw, column, at, rows) for column in columns]
        fields = [_named(column, own) for column, own in zip(columns, arrays, strict=True)]
        table = pa.table(arrays, schema=pa.schema(fields))
        keep = self._kept(number, at, rows)
        return table if keep is None else table.filter(pa.array(keep))

    def _raw(self, number: int, wanted: Set[int]) -> Raw:
        """Return a row group's columns as stored, by their names, of equal ones the first.

        wanted: field ids of columns of the table.
        """
        names = [path[0] for i, path in self._paths.items() if len(path) == 1 and i in wanted]
        with decoding(self.file.path, lambda: self._undecodable(number, names)):
            table = self._decoded(number, names)
        found: Raw = {}
        for name, values in zip(table.column_names, table.columns, strict=True):
            found.setdefault(name, values)
        return found

    def _decoded(self, number: int, names: Sequence[str]) -> pa.Table:
        try:
            return self.parquet.read_row_group(number, columns=names, use_threads=False)
        except pa.ArrowNotImplementedError:  # texts in lists that 32-bit offsets do not hold
            batches = self.parquet.iter_batches(
                BATCH_ROWS, row_groups=[number], columns=names, use_threads=False
            )
            return pa.Table.from_batches(batches)

    def _undecodable(self, number: int, names: Sequence[str]) -> str:
        """Return the first column whose values Arrow cannot decode, "" if none is."""
        for name in names:
            try:
                self._decoded(number, [name])
            except (OSError, pa.ArrowException, UnicodeDecodeError):
                return name
        return ""

    def _column(self, raw: Raw, column: Column, at: int, rows: int) -> pa.ChunkedArray:
        path = self._paths.get(column.field_id)
        if column.field_id in (ROW_ID, LAST_UPDATED):
            return self._lineage(raw, column, path, at, rows)
        as_dictionary = column.name in self._dictionaries
        if path is None:
            value = self._constants.get(column.field_id, column.default)
            one = arrow.constant(column, value, rows)
            return pa.chunked_array([one.dictionary_encode() if as_dictionary else one])
        fit = arrow.encoded if as_dictionary else arrow.fitted
        chunks = raw[path[0]].chunks
        return pa.chunked_array([fit(chunk, column, self.ids, path) for chunk in chunks])

    def _lineage(self, raw: Raw, column: Column, path: Any, at: int, rows: int) -> pa.ChunkedArray:
        """Return what the file holds, else what its rows inherit (specification, "Row Lineage")."""
        first = self.file.first_row_id
        if first is None:
            inherited = pa.nulls(rows, pa.int64())
        elif column.field_id == ROW_ID:
            inherited = pa.array(np.arange(at, at + rows, dtype=np.int64) + first)
        else:
            inherited = pa.repeat(pa.scalar(self.file.sequence, pa.int64()), rows)
        if path is None:
            return pa.chunked_array([inherited])
        own = arrow.one_piece(raw[path[0]]).cast(pa.int64())
        return pa.chunked_array([pc.coalesce(own, inherited)])

    def _kept(self, number: int, at: int, rows: int) -> Mask | None:
        """Return `Reader.kept` of a row group. at: its first row."""
        known = self._reader.kept
        named = (self.file.path, number)
        if named not in known:
            known[named] = self._without_deletes(number, at, rows)
        return known[named]

    def _without_deletes(self, number: int, at: int, rows: int) -> Mask | None:
        low, high = np.searchsorted(self._hidden, (at, at + rows))
        if low == high and not self._keyed:
            return None
        keep = np.ones(rows, dtype=np.bool_)
        keep[self._hidden[low:high] - at] = False
        ways = self._reader.table.ways
        tops = {ways[field_id][0].field_id for ids in self._keyed for field_id in ids}
        raw = self._raw(number, tops) if tops else {}
        for ids, files in self._keyed.items():
            values = [self._key(raw, field_id, rows) for field_id in ids]
            for keys in self._reader.keys(ids, files):
                keep &= ~equal_to(values, keys)
        return keep

    def _key(self, raw: Raw, field_id: int, rows: int) -> pa.ChunkedArray:
        """Return the values of a key column, which the table may have dropped."""
        way = self._reader.table.ways[field_id]
        path = self._paths.get(way[0].field_id)
        if path is None:
            value = self._constants.get(field_id, way[-1].default) if len(way) == 1 else None
            return pa.chunked_array([arrow.constant(way[-1], value, rows)])
        chunks = raw[path[0]].chunks
        for column in way[1:]:
            inside = self._paths.get(column.field_id)
            if inside is None or inside[: len(path)] != path:
                return pa.chunked_array(
                    [_absent(chunk, way[-1]) for chunk in chunks], arrow.type_of(way[-1])
                )
            path = inside
            chunks = [arrow.child_of(chunk, path[-1]) for chunk in chunks]
        found = [arrow.fitted(chunk, way[-1], self.ids, path) for chunk in chunks]
        return pa.chunked_array(found, arrow.type_of(way[-1]))


def _absent(holder: pa.Array, column: Column) -> pa.Array:
    """Return the values of a field that a file's structs lack."""
    filled = arrow.constant(column, column.default, len(holder))
    return pc.if_else(pc.is_null(holder), pa.scalar(None, filled.type), filled)


def _named(column: Column, values: pa.ChunkedArray) -> pa.Field:
    return arrow.field_of(column).with_type(values.type)


def _by_keys(deletes: Sequence[Delete]) -> Mapping[tuple[int, ...], list[Delete]]:
    found: dict[tuple[int, ...], list[Delete]] = {}
    for one in deletes:
        if one.keys:
            found.setdefault(one.keys, []).append(one)
    return found


def equal_to(values: Sequence[pa.ChunkedArray], keys: Sequence[pa.ChunkedArray]) -> Mask:
    """Return which rows have a key: NULL is equal to NULL, NaN to NaN, a zero to one of the same
    sign, as in Iceberg's Java readers."""
    rows = len(values[0])
    both = [[*own.chunks, *key.chunks] for own, key in zip(values, keys, strict=True)]
    codes = numbers_of_rows(both, rows + len(keys[0]))
    return np.isin(codes[:rows], codes[rows:])


def numbers_of_rows(columns: Iterable[Sequence[pa.Array]], rows: int) -> Positions:
    """Return a number for each row, equal for rows with equal values in all columns."""
    codes, size = np.zeros(rows, dtype=np.int64), 1
    for chunks in columns:
        numbers, found = _numbered(chunks)
        if size * found >= MOST_CODES:
            _, codes = np.unique(codes, return_inverse=True)
            size = int(codes.max(initial=0)) + 1
        codes, size = codes * found + numbers, size * found
    return codes


def _numbered(chunks: Sequence[pa.Array]) -> tuple[Positions, int]:
    """Return a number for each value, equal for equal values, and how many there are."""
    if not chunks:
        return np.zeros(0, dtype=np.int64), 1
    if any(pa.types.is_dictionary(chunk.type) for chunk in chunks):
        encoded = arrow.one_piece(pa.chunked_array(map(_encoded, chunks)))
    else:
        encoded = arrow.one_piece(pa.chunked_array(map(_comparable, chunks))).dictionary_encode()
    numbers = encoded.indices.fill_null(len(encoded.dictionary)).to_numpy(zero_copy_only=False)
    return numbers.astype(np.int64), len(encoded.dictionary) + 1


def _encoded(chunk: pa.Array) -> pa.Array:
    return chunk if pa.types.is_dictionary(chunk.type) else chunk.dictionary_encode()


def _comparable(chunk: pa.Array) -> pa.Array:
    """Return floats as their bits, one NaN for all of them: zeros of different signs differ."""
    if not pa.types.is_floating(chunk.type):
        return chunk
    wide = chunk.type.bit_width == 64
    values = chunk.fill_null(0.0).to_numpy(zero_copy_only=False).copy()
    values[np.isnan(values)] = np.nan
    bits = values.view(np.int64 if wide else np.int32).astype(np.int64)
    return pa.array(bits, mask=chunk.is_null().to_numpy(zero_copy_only=False))


def _why(error: Exception) -> str:
    return str(error).split("\n", 1)[0][:300]
