"""An in-memory table with real rows, files and zone maps, on which plans are checked.

Actions are really applied (rows sorted, cut and bounded exactly), so that properties can be tested
without an engine: a plan after convergence is empty, predictions hold, workload shifts do little
harm. The replay of WAIR's protocol (section 6.2.1) also runs on it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from reconciler.advisor.advice import AdviceInput, Settings
from reconciler.advisor.simulate.layout import Layout
from reconciler.plan.actions.base import Action
from reconciler.plan.actions.rewrite import as_rewrite
from reconciler.plan.grouping import arrival_order
from reconciler.plan.ordering import order_rows
from reconciler.queries.shape import Shape, Workload
from reconciler.queries.table_view import type_width
from reconciler.replay.run import Step
from reconciler.rewrite.leaves import files_at
from reconciler.table.column_bytes import RUN_BYTES
from reconciler.table.filetable import UNKNOWN, Array, ColumnBounds, FileTable, Int64
from reconciler.table.row_group_bytes import even_row_groups, row_group_rows
from reconciler.table.sample import RowGroups, RowSample
from reconciler.table.schema import PartitionSpec, Schema

ROWS_PER_FILE = 128
"""Sampled rows of each file that a decision sees."""


@dataclass(frozen=True)
class SimulatedFile:
    """rows: row numbers in physical order. groups: rows of each row group."""

    path: str
    rows: Int64
    groups: tuple[int, ...]
    added_ms: int
    ours: bool

    def in_groups(self, most: int) -> SimulatedFile:
        """Return the same file in row groups of this many rows, the last maybe of fewer."""
        begins = range(0, len(self.rows), most)
        return replace(self, groups=tuple(min(most, len(self.rows) - begin) for begin in begins))


@dataclass(frozen=True)
class SimulatedTable:
    """An unpartitioned table. values: by field id, every column's rows; NULL-free."""

    schema: Schema
    values: Mapping[int, Array]
    files: tuple[SimulatedFile, ...]
    written: int = 0

    def __len__(self) -> int:
        return len(next(iter(self.values.values()))) if self.values else 0

    @property
    def row_width(self) -> int:
        return sum(type_width(f.type) for f in self.schema.fields)

    def append(
        self, values: Mapping[int, Array], rows_per_file: int, added_ms: int, group_rows: int
    ) -> SimulatedTable:
        """Return the table with new rows, in their order, cut into files.

        A file is named after its first row: its twin in a table that nobody rewrites has that name.
        """
        start = len(self)
        count = len(next(iter(values.values())))
        joined = {
            f.field_id: np.concatenate([self.values[f.field_id], values[f.field_id]])
            if self.values else np.asarray(values[f.field_id])
            for f in self.schema.fields
        }  # fmt: skip
        edges = range(start, start + count, rows_per_file)
        new = tuple(
            SimulatedFile(
                f"file-{first:09d}",
                np.arange(first, min(first + rows_per_file, start + count), dtype=np.int64),
                (), added_ms, False,
            ).in_groups(group_rows)
            for first in edges
        )  # fmt: skip
        return replace(self, values=joined, files=self.files + new)

    def file_table(self) -> FileTable:
        """Return the table as its manifests would describe it, with exact bounds."""
        return self._described

    @cached_property
    def _described(self) -> FileTable:
        count = len(self.files)
        records = np.array([len(f.rows) for f in self.files], dtype=np.int64)
        zeros = np.zeros(count, dtype=np.int64)
        return FileTable(
            schema=self.schema,
            specs={0: PartitionSpec(0)},
            default_spec_id=0,
            path=np.array([f.path for f in self.files], dtype=object),
            spec_id=np.zeros(count, dtype=np.int32),
            partition=np.zeros(count, dtype=np.int32),
            partitions=((0, ()),),
            records=records,
            bytes=records * self.row_width,
            sequence=zeros,
            added_ms=np.array([f.added_ms for f in self.files], dtype=np.int64),
            layout_written=np.array([f.ours for f in self.files], dtype=np.bool_),
            sort_order_id=np.full(count, UNKNOWN, dtype=np.int64),
            parquet=np.ones(count, dtype=np.bool_),
            encrypted=np.zeros(count, dtype=np.bool_),
            position_deleted=zeros,
            delete_files=zeros,
            delete_bytes=zeros,
            equality_deletes=zeros,
            newest_delete=np.full(count, UNKNOWN, dtype=np.int64),
            columns=self._bounds([f.rows for f in self.files]),
            column_sizes=self._column_sizes(
                [f.rows for f in self.files], [f.ours for f in self.files]
            ),
        )

    def row_groups(self) -> RowGroups:
        """Return every file's footer."""
        return self._footers

    @cached_property
    def _footers(self) -> RowGroups:
        pieces: list[Int64] = []
        owner: list[int] = []
        for number, file in enumerate(self.files):
            pieces += np.split(file.rows, np.cumsum(file.groups)[:-1])
            owner += [number] * len(file.groups)
        records = np.array([len(piece) for piece in pieces], dtype=np.int64)
        return RowGroups(
            file=np.array(owner, dtype=np.int64),
            records=records,
            columns=self._bounds(pieces),
            column_sizes=self._column_sizes(pieces, [self.files[i].ours for i in owner]),
            footer_bytes=np.zeros(len(self.files), dtype=np.int64),
            has_footer=np.ones(len(self.files), dtype=np.bool_),
        )

    def sample(self, files: Sequence[int] | Int64, rows_per_file: int = 1024) -> RowSample:
        """Return a systematic sample of the given files' rows."""
        picked: list[Int64] = []
        owner: list[Int64] = []
        weight: list[npt.NDArray[np.float64]] = []
        for number in np.sort(np.asarray(files, dtype=np.int64)):
            rows = self.files[int(number)].rows
            count = min(rows_per_file, len(rows))
            place = ((np.arange(count) + 0.5) * len(rows) / max(count, 1)).astype(np.int64)
            picked.append(rows[place])
            owner.append(np.full(count, number, dtype=np.int64))
            weight.append(np.full(count, len(rows) / max(count, 1)))
        rows = np.concatenate(picked) if picked else np.zeros(0, dtype=np.int64)
        return RowSample(
            values={f.field_id: self.values[f.field_id][rows] for f in self.schema.fields},
            null={f.field_id: np.zeros(len(rows), dtype=np.bool_) for f in self.schema.fields},
            weight=np.concatenate(weight) if weight else np.zeros(0),
            file=np.concatenate(owner) if owner else np.zeros(0, dtype=np.int64),
        )

    def given(self, workload: Workload, settings: Settings) -> AdviceInput:
        """Return what a decision is made from: exact footers, and a sample of every file."""
        files = self.file_table()
        sample = self.sample(np.arange(len(files)), ROWS_PER_FILE)
        return AdviceInput(files, workload, settings, self.row_groups(), sample)

    def after(self, action: Action, settings: Settings) -> SimulatedTable:
        return self.apply(action, settings.now_ms)

    def apply(self, action: Action, now_ms: int) -> SimulatedTable:
        """Return the table after a rewrite. Rows are moved, never changed."""
        rewrite = as_rewrite(action)
        if rewrite is None:
            return self
        inputs = set(rewrite.inputs)
        members = np.flatnonzero([f.path in inputs for f in self.files])
        files = self.file_table().take(members)
        ordering = rewrite.ordering
        groups = ordering.groups(ordering.extents(files), target_bytes=rewrite.target_bytes)
        layout = Layout(ordering, rewrite.target_bytes, rewrite.row_group_bytes, groups.number)
        return self.laid_out(layout, members, now_ms)

    def laid_out(self, layout: Layout, members: Int64, now_ms: int) -> SimulatedTable:
        """Return the table with the files at `members` (ascending) rewritten in the layout."""
        written: list[SimulatedFile] = []
        paths = np.array([self.files[i].path for i in members.tolist()])
        arrived = arrival_order(paths, np.zeros(len(members), dtype=np.int64))
        for group in range(int(layout.groups.max(initial=-1)) + 1):
            own = members[arrived[layout.groups[arrived] == group]]
            rows = np.concatenate([self.files[i].rows for i in own.tolist()])
            ranked = [self._ranked(column.field_id, rows) for column in layout.ordering.key]
            ranks, distinct = [rank for rank, _ in ranked], [values for _, values in ranked]
            order = order_rows(layout.ordering, ranks, np.arange(len(rows)), distinct=distinct)
            leaf = layout.ordering.leaf_of(ranks, distinct)
            held = None if leaf is None else np.bincount(leaf)
            written += self._cut(rows[order], layout, now_ms, self.written + len(written), held)
        gone = set(members.tolist())
        kept = tuple(f for number, f in enumerate(self.files) if number not in gone)
        return replace(self, files=kept + tuple(written), written=self.written + len(written))

    def _ranked(self, field_id: int, rows: Int64) -> tuple[Int64, Array]:
        """Return the rank of each row's value, and the values by rank."""
        values, ranks = np.unique(self.values[field_id][rows], return_inverse=True)
        return ranks.reshape(-1), values

    def _cut(
        self, rows: Int64, layout: Layout, now_ms: int, first: int, held: Int64 | None
    ) -> list[SimulatedFile]:
        """held: rows of each leaf, in an order of leaves."""
        begin, found = 0, []
        for i, groups in enumerate(self._groups(len(rows), layout, held)):
            end = begin + sum(groups)
            path = f"layout-{first + i:06d}"
            found.append(SimulatedFile(path, rows[begin:end], tuple(groups), now_ms, True))
            begin = end
        return found

    def _groups(self, rows: int, layout: Layout, held: Int64 | None) -> list[list[int]]:
        """Return the rows of each row group of each file, as the engine ends them."""
        width, size = self.row_width, layout.row_group_bytes
        most = row_group_rows(size, width) if size else rows
        if held is None:
            return even_row_groups(rows, int(layout.files_of(rows * width)), most)
        tree, leaf = layout.ordering.tree, np.flatnonzero(held)
        assert tree is not None
        return files_at(tree, leaf, held[leaf], layout.target_bytes / width, most)

    def _column_sizes(self, pieces: Sequence[Int64], ours: Sequence[bool]) -> dict[int, Int64]:
        """Return the stored bytes per piece: one value per row; in our files one per run, if that
        is smaller."""
        if not pieces:
            return {f.field_id: np.zeros(0, dtype=np.int64) for f in self.schema.fields}
        order = np.concatenate(pieces)
        lengths = np.array([len(piece) for piece in pieces], dtype=np.int64)
        starts = np.concatenate(([0], np.cumsum(lengths)[:-1]))
        sizes = {}
        for field in self.schema.fields:
            values, width = self.values[field.field_id][order], type_width(field.type)
            begins = np.concatenate(([True], values[1:] != values[:-1]))
            begins[starts] = True
            runs = np.add.reduceat(begins.astype(np.int64), starts)
            plain, short = lengths * width, runs * (width + RUN_BYTES)
            sizes[field.field_id] = np.where(ours, np.minimum(plain, short), plain)
        return sizes

    def _bounds(self, pieces: Sequence[Int64]) -> dict[int, ColumnBounds]:
        if not pieces:
            return {}
        order = np.concatenate(pieces)
        lengths = np.array([len(piece) for piece in pieces], dtype=np.int64)
        starts = np.concatenate(([0], np.cumsum(lengths)[:-1]))
        yes, zeros = np.ones(len(pieces), dtype=np.bool_), np.zeros(len(pieces), dtype=np.int64)
        bounds = {}
        for field in self.schema.fields:
            kind = field.kind
            if kind is None:
                continue
            values = self.values[field.field_id][order]
            bounds[field.field_id] = ColumnBounds(
                field.field_id, kind, *_extremes(values, starts),
                yes, yes, zeros, zeros, lengths, lengths * type_width(field.type),
                np.zeros(len(pieces), dtype=np.bool_),
            )  # fmt: skip
        return bounds


def _extremes(values: Array, starts: Int64) -> tuple[Array, Array]:
    """Return the least and the greatest value of each piece that begins at `starts`."""
    if values.dtype.kind in "if":
        return np.minimum.reduceat(values, starts), np.maximum.reduceat(values, starts)
    distinct, codes = np.unique(values, return_inverse=True)
    codes = codes.reshape(-1)
    return distinct[np.minimum.reduceat(codes, starts)], distinct[
        np.maximum.reduceat(codes, starts)
    ]


def empty_table(schema: Schema) -> SimulatedTable:
    return SimulatedTable(schema, {}, ())


def arriving(
    rows: Mapping[int, Array] | None,
    rows_per_file: int,
    queries: tuple[Shape, ...],
    now_ms: int,
) -> Step[SimulatedTable]:
    """Return a step: rows arrive in files of one row group each, then queries run."""
    if rows is None:
        return Step(None, queries, now_ms)
    return Step(
        lambda table: table.append(rows, rows_per_file, now_ms, rows_per_file), queries, now_ms
    )
