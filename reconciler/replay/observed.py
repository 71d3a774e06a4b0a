"""A table as it was observed, which rewrites change in memory only.

Real files keep what their manifests, footers and samples say. Files that a rewrite would write are
those of the what-if (docs/design/definitions.md#what-if), with the sampled rows that would be in
them, so that later rewrites find them as they would be.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from reconciler.advisor.advice import AdviceInput, Settings
from reconciler.advisor.simulate.bounded import bounded
from reconciler.advisor.simulate.layout import Layout, WrittenRows
from reconciler.advisor.simulate.merged import merged_rows
from reconciler.advisor.simulate.pool import build_pool
from reconciler.advisor.simulate.sampled import sampled_rows
from reconciler.plan.actions.base import Action
from reconciler.plan.actions.rewrite import Rewrite, as_rewrite
from reconciler.queries.shape import Workload
from reconciler.queries.table_view import TableView, table_view
from reconciler.table.filetable import UNKNOWN, FileTable, Int64
from reconciler.table.joined import (
    joined_files,
    joined_row_groups,
    joined_samples,
    row_groups_at,
    sample_at,
)
from reconciler.table.sample import RowGroups, RowSample


@dataclass(frozen=True)
class ObservedTable:
    """A state of a table in a replay."""

    files: FileTable
    """The live data files."""
    groups: RowGroups | None
    """Row groups of the files whose footers are known."""
    sample: RowSample | None
    """Sampled rows of the files that were sketched, and of files that the replay wrote."""
    written: int = 0
    """Number of files that the replay has written so far, by which the next ones are named."""

    def __len__(self) -> int:
        return len(self.files)

    def file_table(self) -> FileTable:
        return self.files

    def row_groups(self) -> RowGroups | None:
        return self.groups

    def given(self, workload: Workload, settings: Settings) -> AdviceInput:
        """Return what a decision on this state is made from."""
        return AdviceInput(self.files, workload, settings, self.groups, self.sample)

    def at(self, rows: Int64) -> Self:
        """Return the files at `rows` (unique) alone."""
        files = len(self.files)
        return replace(
            self,
            files=self.files.take(rows),
            groups=row_groups_at(self.groups, rows, files),
            sample=sample_at(self.sample, rows, files),
        )

    def with_files(self, other: ObservedTable) -> Self:
        """Return the table with the files of another state of it."""
        counts = len(self.files), len(other.files)
        return replace(
            self,
            files=joined_files(self.files, other.files),
            groups=joined_row_groups(self.groups, other.groups, counts),
            sample=joined_samples(self.sample, other.sample, counts[0]),
        )

    def after(self, action: Action, settings: Settings) -> Self:
        """Return the table after an action; only rewrites of data files within their partition
        change it."""
        rewrite = as_rewrite(action)
        if rewrite is None or rewrite.moves_by is not None:
            return self
        rows = np.sort([self.files.row_of[path] for path in rewrite.inputs]).astype(np.int64)
        assert len(np.unique(self.files.partition[rows])) == 1, "an action is in one partition"
        made = _one_file_each(_written(self._view(rows, settings), rewrite, settings))
        kept = np.setdiff1d(np.arange(len(self.files)), rows)
        return self.at(kept)._with_written(made, settings)

    def _view(self, rows: Int64, settings: Settings) -> TableView:
        part = self.at(rows)
        return table_view(
            part.files, part.groups, part.sample, settings.row_group_bytes, settings.open_bytes
        )

    def _with_written(self, made: WrittenRows, settings: Settings) -> Self:
        files, count = made.view.files, len(made.view.files)
        named = [f"replay-{self.written + number:08d}" for number in range(count)]
        now = np.full(count, settings.now_ms, dtype=np.int64)
        files = replace(files, path=np.array(named, dtype=object), added_ms=now)
        new = ObservedTable(files, _as_row_groups(made.view), made.sample)
        return replace(self.with_files(new), written=self.written + count)


def _written(view: TableView, rewrite: Rewrite, settings: Settings) -> WrittenRows:
    """Return what a rewrite makes of files, by what is known of their rows."""
    files, ordering = view.files, rewrite.ordering
    target = rewrite.target_bytes or settings.target_bytes
    groups = ordering.groups(ordering.extents(files), target_bytes=target)
    layout = Layout(
        ordering, target, rewrite.row_group_bytes or settings.row_group_bytes, groups.number,
        settings.open_bytes, int(files.partition[0]),
    )  # fmt: skip
    if not ordering.key:
        return merged_rows(view, layout)
    columns = () if view.sample is None else tuple(view.sample.values)
    pool = build_pool(view, columns)
    if pool is not None and all(column.field_id in pool.columns for column in ordering.key):
        return sampled_rows(pool, layout)
    proved = bounded(view.known, layout)
    if proved is None or len(proved.views) != 1:
        return merged_rows(view, layout)
    return WrittenRows(proved.views[0], None, np.ones(len(proved.views[0].files)))


def _one_file_each(made: WrittenRows) -> WrittenRows:
    """Return the output with as many files as there would be: one of a thin sample that represents
    several is so many, each with the bounds of all."""
    copies = np.maximum(np.rint(made.represents), 1).astype(np.int64)
    if (copies == 1).all():
        return made
    view, which = made.view, np.repeat(np.arange(len(copies)), copies)
    first = np.cumsum(copies) - copies
    files = _divided(view.files.take(which), copies[which])
    groups, owner = view.row_groups, view.group_file
    if groups is not None and owner is not None:
        of = np.concatenate([np.flatnonzero(owner == file) for file in which])
        held = np.bincount(owner, minlength=len(copies))[which]
        parts = copies[owner[of]]
        groups = _divided(groups.take(of), parts)
        listed = {key: one[of] // parts for key, one in (view.dictionary_bytes or {}).items()}
        view = replace(view, dictionary_bytes=listed)
        owner = np.repeat(np.arange(len(which)), held)
    footers = None if view.footer_bytes is None else view.footer_bytes[which]
    sample = made.sample
    if sample is not None:  # rows follow each other: each file gets its part of them
        own = np.bincount(sample.file, minlength=len(copies))
        place = np.arange(len(sample)) - (np.cumsum(own) - own)[sample.file]
        part = place * copies[sample.file] // np.maximum(own[sample.file], 1)
        sample = replace(sample, file=first[sample.file] + part)
    view = replace(view, files=files, row_groups=groups, group_file=owner, footer_bytes=footers)
    return WrittenRows(view, sample, np.ones(len(which)))


def _divided(files: FileTable, copies: Int64) -> FileTable:
    """Return the files with their part of the rows and bytes that all copies have."""

    def part(values: Int64) -> Int64:
        return np.where(values < 0, values, np.maximum(values // copies, values > 0))

    columns = {
        key: replace(one, nulls=part(one.nulls), nans=part(one.nans), values=part(one.values))
        for key, one in files.columns.items()
    }
    return replace(
        files,
        records=part(files.records),
        bytes=part(files.bytes),
        columns=columns,
        column_sizes={key: part(one) for key, one in files.column_sizes.items()},
    )


def _as_row_groups(view: TableView) -> RowGroups | None:
    """Return the row groups of written files as their footers would show them."""
    groups, owner = view.row_groups, view.group_file
    if groups is None or owner is None:
        return None
    count = len(view.files)
    footers = view.footer_bytes
    if footers is None:
        footers = np.full(count, UNKNOWN, dtype=np.int64)
    return RowGroups(
        owner, groups.records, groups.columns, groups.column_sizes, footers,
        np.ones(count, dtype=bool), view.dictionary_bytes,
    )  # fmt: skip
