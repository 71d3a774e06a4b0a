"""Reads the live rows of one data file: in the table's columns, without deleted rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from reconciler.rewrite import arrow
from reconciler.rewrite.columns import Column
from reconciler.rewrite.deletes import Delete, Positions
from reconciler.rewrite.equal_rows import Mask, equal_to
from reconciler.rewrite.files import LAST_UPDATED, ROW_ID, DataFile
from reconciler.rewrite.read import Reader, decoding

BATCH_ROWS = 1_024
"""Rows that are decoded at a time where those of a row group do not fit one array."""
Raw = dict[str, pa.ChunkedArray]
"""Columns as a file holds them, by name."""


class Opened:
    """A data file, row group by row group."""

    def __init__(self, reader: Reader, file: DataFile, dictionaries: Sequence[str] = ()) -> None:
        """dictionaries: names of columns of the table to be read as dictionaries."""
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
                reader.key_column(field_id, ones[0])  # raises Damaged where no schema has it

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

    def live(self, columns: Sequence[Column], wanted: Set[int] | None = None) -> Iterator[pa.Table]:
        """Yield the live rows of each row group, in these columns of the table. wanted: numbers of
        row groups among those that have rows; None for all of them."""
        for place, (number, at, rows) in enumerate(self._row_groups()):
            if wanted is not None and place not in wanted:
                continue
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
