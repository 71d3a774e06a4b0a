"""Carries out one task: read, order, cut, write.

The rows of the whole task are in memory, or, where that is too much, its keys and one row group at
a time (`spill`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from reconciler.rewrite import order as ordering
from reconciler.rewrite import spill
from reconciler.rewrite.columns import Column
from reconciler.rewrite.read import Reader, dictionary_columns
from reconciler.rewrite.storage import Opening, Scratch, local_path
from reconciler.rewrite.task import Made, Memory, Output, Task
from reconciler.rewrite.write import writing

ROWS_FACTOR = 15
"""Memory of a sort in one pass, in stored bytes of its inputs."""
LARGE_BYTES = 1 << 30
"""Stored bytes, before compression, of a column beyond which Arrow's 32-bit offsets may not do."""


class Stopped(Exception):
    """The task was asked to stop before it was done."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a file is written before it is where it belongs."""

    location: str
    path: Path


def rewritten(
    task: Task,
    opening: Opening | None,
    memory: Memory,
    stopping: Callable[[], bool] = lambda: False,
    attempt: str = "0",
) -> Made:
    """Write the files of a task, of which none is left if it fails.

    attempt: names this run of the task among others. Raises Stopped, read.Damaged,
    FileNotFoundError.
    """
    started = time.thread_time()
    with Scratch(opening) as scratch:
        reader = Reader(task.table, scratch)
        places = [_place(path.replace("{attempt}", attempt), scratch) for path in task.paths]
        run = _Run(task, reader, places, memory, stopping)
        try:
            outputs, spilled = run.carried_out()
            for place in places[: len(outputs)]:
                scratch.store(place.path, place.location)
        except BaseException:
            for place in places:
                place.path.unlink(missing_ok=True)
            raise
    read = sum(file.size for file in task.files)
    return Made(tuple(outputs), read, time.thread_time() - started, spilled)


def _place(location: str, scratch: Scratch) -> Place:
    local = local_path(location)
    if local is None:
        return Place(location, scratch.fresh())
    local.parent.mkdir(parents=True, exist_ok=True)
    return Place(location, local)


@dataclass(slots=True)
class _Run:
    task: Task
    reader: Reader
    places: Sequence[Place]
    memory: Memory
    stopping: Callable[[], bool]

    def carried_out(self) -> tuple[list[Output], bool]:
        if not self.task.order.keys:
            return self._packed(), False
        if self._fits():
            return self._sorted(), False
        return self._spilled(), True

    def _fits(self) -> bool:
        if ROWS_FACTOR * sum(file.size for file in self.task.files) > self.memory.bytes:
            return False
        return max(self._column_bytes().values(), default=0) < LARGE_BYTES

    def _column_bytes(self) -> dict[str, int]:
        """Return the stored bytes of each leaf before compression, by its path."""
        found: dict[str, int] = {}
        for file in self.task.files:
            footer, _ = self.reader.footer(file.path)
            for number in range(footer.num_row_groups):
                group = footer.row_group(number)
                for leaf in range(group.num_columns):
                    chunk = group.column(leaf)
                    path = chunk.path_in_schema
                    found[path] = found.get(path, 0) + chunk.total_uncompressed_size
        return found

    def _dictionaries(self) -> list[str]:
        footers = [self.reader.footer(file.path) for file in self.task.files]
        return dictionary_columns(self.reader.columns, footers)

    def _live(
        self, columns: Sequence[Column], dictionaries: Sequence[str] = ()
    ) -> Iterator[pa.Table]:
        """Yield the live rows of all files, in order of arrival."""
        for file in self.task.files:
            opened = self.reader.open(file, dictionaries)
            try:
                for table in opened.live(columns):
                    self._go_on()
                    yield table
            finally:
                opened.close()
            self.reader.scratch.forget(file.path)

    def _go_on(self) -> None:
        if self.stopping():
            raise Stopped

    # In order of arrival

    def _packed(self) -> list[Output]:
        """Write rows as they come: one row group of an output is in memory at a time."""
        rows = sum(self._live_rows(file) for file in self.task.files)
        cuts = spill.row_groups(rows, len(self.places), self.task.group_rows)
        dictionaries = self._dictionaries()
        rest = Rest(self._live(self.reader.columns, dictionaries))
        outputs = []
        for place, groups in zip(self.places, cuts, strict=False):
            with self._writing(place) as made:
                for count in groups:
                    self._go_on()
                    made.write(rest.take(count))
            outputs.append(made.output(place.location))
        return outputs

    def _live_rows(self, file: Any) -> int:
        opened = self.reader.open(file)
        try:
            return opened.live_rows()
        finally:
            opened.close()

    def _writing(self, place: Place) -> Any:
        return writing(place.path, self.reader.columns, self.task.writer)

    # In order of keys

    def _sorted(self) -> list[Output]:
        names = self._dictionaries()
        whole = pa.concat_tables(list(self._live(self.reader.columns, names)))
        table = _columns(whole)
        del whole
        task = self.task
        order = ordering.permutation(
            task.order, ordering.values_of(task.order, task.table.ways, table)
        )
        return self._gathered(table, order)

    def _gathered(self, table: pa.Table, order: ordering.Int64) -> list[Output]:
        cuts = spill.row_groups(len(order), len(self.places), self.task.group_rows)
        outputs, at = [], 0
        for place, groups in zip(self.places, cuts, strict=False):
            with self._writing(place) as made:
                for count in groups:
                    self._go_on()
                    made.write(table.take(pa.array(order[at : at + count])))
                    at += count
            outputs.append(made.output(place.location))
        return outputs

    def _spilled(self) -> list[Output]:
        """Write in two passes: the keys give each row its place, rows go through the disk."""
        task, columns = self.task, ordering.key_columns(self.task.order, self.task.table.ways)
        keys = pa.concat_tables(list(self._live(columns)))
        order = ordering.permutation(
            task.order, ordering.values_of(task.order, task.table.ways, keys)
        )
        del keys
        cuts = spill.row_groups(len(order), len(self.places), task.group_rows)
        sizes = [count for groups in cuts for count in groups]
        outputs = []
        with spill.Spill(self.reader.scratch.directory, order, sizes) as rows:
            del order
            for table in self._live(self.reader.columns):
                rows.add(table)
            parts = rows.parts()
            for place, groups in zip(self.places, cuts, strict=False):
                with self._writing(place) as made:
                    for _ in groups:
                        self._go_on()
                        made.write(next(parts))
                outputs.append(made.output(place.location))
        return outputs


def _columns(whole: pa.Table) -> pa.Table:
    """Return the table with each column in one piece: rows are gathered from it at random."""
    unified = whole.unify_dictionaries()
    return pa.table([_one(column) for column in unified.columns], schema=unified.schema)


def _one(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if column.num_chunks <= 1:
        return column
    return pa.chunked_array([pa.concat_arrays(column.chunks)])


class Rest:
    """Rows that come in tables of any size, taken in portions."""

    def __init__(self, tables: Iterator[pa.Table]) -> None:
        self._tables = tables
        self._held: list[pa.Table] = []

    def take(self, rows: int) -> pa.Table:
        """Return the next rows. Raises ValueError if there are not so many."""
        found, left = [], rows
        while left:
            if not self._held:
                table = next(self._tables, None)
                if table is None:
                    raise ValueError("there are fewer live rows than were counted")
                self._held.append(table)
            table = self._held.pop()
            found.append(table.slice(0, left))
            if len(table) > left:
                self._held.append(table.slice(left))
            left -= len(found[-1])
        return pa.concat_tables(found).unify_dictionaries()
