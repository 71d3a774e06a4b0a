"""Carries out one task: read, order, cut, write.

The rows of the whole task are in memory, or, where that is too much, its keys and one row group at
a time (`spill`).
"""

from __future__ import annotations

import contextlib
import itertools
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from reconciler.rewrite import arrow, leaves, spill
from reconciler.rewrite import order as ordering
from reconciler.rewrite.columns import Column
from reconciler.rewrite.comparison import Check, Compared
from reconciler.rewrite.dictionaries import dictionary_columns
from reconciler.rewrite.failures import Stopped
from reconciler.rewrite.files import DataFile
from reconciler.rewrite.moves import Partitions
from reconciler.rewrite.opened import Opened
from reconciler.rewrite.outputs import Outputs, Place
from reconciler.rewrite.places import Placed
from reconciler.rewrite.read import Reader
from reconciler.rewrite.rest import Rest
from reconciler.rewrite.storage import Opening, Scratch
from reconciler.rewrite.task import Made, Output, Resources, Task
from reconciler.rewrite.witness import compared
from reconciler.rewrite.write import writing
from reconciler.table.row_group_bytes import output_files

ROWS_FACTOR = 15
"""Memory of decoded rows while they are sorted or gathered, in their stored bytes, where no footer
says how much they decode to."""
GATHERED_FACTOR = 2.5
"""Memory of a task, in the bytes that its rows decode to, at most, as measured on tables of several
kinds: one column is there twice, and the comparison of rows follows."""
KEY_BYTES = 24
"""Memory per row and key: its value, its number, and its place."""
LIBRARIES = 40 << 20
"""Memory that the smallest task takes: of buffers, and of what Arrow keeps for later."""
WORTH_OPENING = 1 << 20
"""Bytes of a row group, before compression, that are worth opening its file for."""
OWN_ERRORS = (ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError,
              ValueError)  # fmt: skip
"""Errors of code, Arrow's among them, that no file or storage explains."""
DECODED_FACTOR = 2
"""Memory of decoded rows while they are arranged, in the bytes of Arrow's arrays: a dictionary of
few long texts decodes to far more than is stored."""


@dataclass(frozen=True, slots=True)
class Cut:
    """A file to write."""

    groups: list[int]
    """Rows of each row group."""
    partition: tuple[Any, ...] = ()
    """`Output.partition`."""
    path: str = ""
    """The partition's directory, where rows move."""


class Failed(Exception):
    """The engine failed at a file by an error of its own, which is the cause of this one."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path


@contextlib.contextmanager
def failing_at(path: str) -> Iterator[None]:
    """Name the file that an error of the engine's own is about."""
    try:
        yield
    except OWN_ERRORS as error:
        raise Failed(path) from error


class _TooLarge(Exception):
    """The rows of the task decode to more than its memory holds."""


def rewritten(
    task: Task,
    opening: Opening | None,
    resources: Resources,
    stopping: Callable[[], bool] = lambda: False,
    attempt: str = "0",
    check: Check | None = None,
) -> Made:
    """Write the files of a task, of which none is left if it fails.

    attempt: names this run of the task among others. check: has the files compared with the inputs
    before they are stored, and none is if they differ. Raises Stopped, read.Damaged,
    FileNotFoundError.
    """
    _use_pool()
    with (
        Scratch(opening, keeps=check is not None) as scratch,
        Outputs(scratch, attempt) as made,
    ):
        run = _Run(task, Reader(task.table, scratch), resources, stopping, made)
        with run.clocked():
            outputs, spilled = run.carried_out()
        found = None if check is None else _compared(check, run, outputs, scratch)
        if found is None or found.same:
            for place in made.places:
                made.store(place)
    read = sum(file.size for file in task.files)
    return Made(tuple(outputs), read, sum(run.spent), spilled, found)


def _compared(check: Check, run: _Run, outputs: Sequence[Output], scratch: Scratch) -> Compared:
    for place in run.outputs.places:
        scratch.adopt(place.location, place.path)
    files = [
        DataFile(one.path, one.rows, one.size, moved=_placed(run.task, one)) for one in outputs
    ]
    return compared(check, files, scratch, run.stopping)


def in_one_pass(task: Task) -> int:
    """Return the memory that the task's rows take while they are sorted, as predicted."""
    stored, rows = sum(file.size for file in task.files), sum(file.rows for file in task.files)
    keys = len(task.order.keys) + len(task.moves)
    return gathered(task.decoded, stored) + KEY_BYTES * rows * keys


def gathered(decoded: int, stored: int) -> int:
    """Return the memory of rows while they are gathered and written: before, after, and encoded.
    decoded, stored: their bytes, 0 decoded ones if that is not known."""
    return int(GATHERED_FACTOR * decoded) + stored if decoded else ROWS_FACTOR * stored


def peak(task: Task, least: int, most: int) -> int:
    """Return the memory that the task takes at most, as predicted, besides that of the process.

    least: with its rows on disk, of which it holds one row group. most: that it may use.
    """
    whole = 0 if not task.order.keys and not task.moves else in_one_pass(task)
    return LIBRARIES + (max(least, whole) if whole <= most else least)


def _placed(task: Task, output: Output) -> tuple[Placed, ...]:
    pairs = zip(task.moves, output.partition, strict=True)
    return tuple(Placed(f.source_id, f.type, f.transform, value) for f, value in pairs)


def _use_pool() -> None:
    """Let Arrow keep freed memory for the next column: its default pool gives it back at once, and
    the system's work on fresh pages was a third of a sort."""
    if "jemalloc" in pa.supported_memory_backends():
        pa.set_memory_pool(pa.jemalloc_memory_pool())
    else:
        pa.set_memory_pool(pa.system_memory_pool())


@dataclass(slots=True)
class _Run:
    """One run of a task."""

    task: Task
    """What is rewritten."""
    reader: Reader
    """Of its inputs."""
    resources: Resources
    """Memory and threads that it may use."""
    stopping: Callable[[], bool]
    """Whether it is to stop; asked before each row group."""
    outputs: Outputs
    """The files that it writes."""
    spent: list[float] = field(default_factory=list)
    """CPU seconds of each piece of work."""
    decoded: list[int] = field(default_factory=list)
    """Memory for the rows of each row group that was read for a sort in one pass."""

    @contextlib.contextmanager
    def clocked(self) -> Iterator[None]:
        started = time.thread_time()
        yield
        self.spent.append(time.thread_time() - started)

    def carried_out(self) -> tuple[list[Output], bool]:
        if not self.task.order.keys and not self.task.moves:
            return self._packed(), False
        if in_one_pass(self.task) <= self.resources.memory_bytes:
            with contextlib.suppress(_TooLarge):
                return self._sorted(), False
        return self._spilled(), True

    def _place(self, cut: Cut) -> Place:
        """Return where the next file is written."""
        paths, number = self.task.paths, len(self.outputs.places)
        return self.outputs.begin(paths[0] if self.task.file_rows else paths[number], cut.path)

    def _dictionaries(self) -> list[str]:
        footers = [self.reader.footer(file.path) for file in self.task.files]
        return dictionary_columns(self.reader.columns, footers)

    def _live(
        self, columns: Sequence[Column], dictionaries: Sequence[str] = ()
    ) -> Iterator[pa.Table]:
        """Yield the live rows of all files, in order of arrival, for the last time."""
        for file in self.task.files:
            yield from self._live_of(file, columns, dictionaries)
            self.reader.scratch.forget(file.path)

    def _without_ids(self, tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
        """Yield rows whose block ids, if they have any, are NULL."""
        for table in tables:
            yield leaves.with_ids(table, self.task.blocks, np.zeros(len(table), dtype=np.int64))

    def _live_of(
        self, file: DataFile, columns: Sequence[Column], dictionaries: Sequence[str] = ()
    ) -> Iterator[pa.Table]:
        with failing_at(file.path):
            opened = Opened(self.reader, file, dictionaries)
            tables = opened.live(columns)
        try:
            while True:
                with failing_at(file.path):
                    table = next(tables, None)
                if table is None:
                    return
                self._go_on()
                yield table
        finally:
            opened.close()

    def _side_by_side(self, work: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
        """Return the work of each item, in their order."""
        threads = min(self.resources.threads, len(items))
        if threads <= 1:
            return [work(item) for item in items]

        def clocked(item: Any) -> Any:
            with self.clocked():
                return work(item)

        with ThreadPoolExecutor(threads, thread_name_prefix="rewrite") as pool:
            return list(pool.map(clocked, items))

    def _go_on(self) -> None:
        if self.stopping():
            raise Stopped

    # In order of arrival

    def _packed(self) -> list[Output]:
        """Write rows as they come: one row group of an output is in memory at a time."""
        rows = sum(self._live_rows(file) for file in self.task.files)
        rows_left = self._live(self.reader.columns, self._dictionaries())
        rest = Rest(self._without_ids(rows_left))
        return self._written(self._cut(rows, None), rest.take)

    def _live_rows(self, file: DataFile) -> int:
        opened = Opened(self.reader, file)
        try:
            return opened.live_rows()
        finally:
            opened.close()

    def _written(self, cuts: Iterable[Cut], take: Callable[[int], pa.Table]) -> list[Output]:
        """Write files one after another. take: returns the next rows."""
        return [self._write(self._place(cut), cut, take) for cut in cuts]

    def _write(self, place: Place, cut: Cut, take: Callable[[int], pa.Table]) -> Output:
        with writing(place.path, self.reader.columns, self.task.writer) as made:
            for count in cut.groups:
                self._go_on()
                made.write(take(count))
        return replace(made.output(place.location), partition=cut.partition)

    def _cut(self, rows: int, partitions: Partitions | None) -> list[Cut]:
        """Return the files to write, in order, with the rows of each of their row groups."""
        task = self.task
        if partitions is None:
            return [Cut(own) for own in spill.row_groups(rows, len(task.paths), task.group_rows)]
        cuts = []
        for number, own in enumerate(partitions.rows.tolist()):
            files = int(output_files(own, task.file_rows))
            entry, path = partitions.entry(number), partitions.path(number)
            groups = spill.row_groups(own, files, task.group_rows)
            cuts += [Cut(each, entry, path) for each in groups]
        return cuts

    def _cut_at_leaves(
        self, leaf: ordering.Int64, count: int, partitions: Partitions | None
    ) -> list[Cut]:
        """Return the same where files end at leaves. leaf: of each row; count: of all leaves."""
        task = self.task

        def cut(own: ordering.Int64) -> list[list[int]]:
            rows = np.bincount(own, minlength=count).astype(np.int64)
            return leaves.files_at(rows, task.file_rows, task.group_rows)

        if partitions is None:
            return [Cut(groups) for groups in cut(leaf)]
        cuts = []
        for number in range(len(partitions.rows)):
            entry, path = partitions.entry(number), partitions.path(number)
            own = leaf[partitions.of_row == number]
            cuts += [Cut(groups, entry, path) for groups in cut(own)]
        return cuts

    # In order of keys

    def _ordered(self, table: pa.Table) -> tuple[ordering.Int64, list[Cut], ordering.Int64]:
        """Return the order of the rows, the files to write, and the leaf of each row: 0 without a
        tree. table: has the columns of keys."""
        task, ways = self.task, self.task.table.ways
        values = ordering.values_of([key.field_id for key in task.order.keys], ways, table)
        partitions, first = None, []
        if task.moves:
            sources = ordering.values_of([one.source_id for one in task.moves], ways, table)
            partitions = Partitions(task.moves, sources)
            first = [partitions.of_row]
        tree = task.order.tree
        if tree is not None:
            of_field = dict(zip([key.field_id for key in task.order.keys], values, strict=True))
            leaf = leaves.leaf_of(tree, of_field, len(table))
            order = leaves.permutation(tree, of_field, leaf, first)
            return order, self._cut_at_leaves(leaf, tree.leaves, partitions), leaf
        order = ordering.permutation(task.order, values, len(table), first)
        nowhere = np.zeros(len(table), dtype=np.int64)
        return order, self._cut(len(table), partitions), nowhere

    def _sorted(self) -> list[Output]:
        """Write rows that are all in memory: columns are read and brought into order one after
        another, so that only one of them is there twice."""
        names, keys = self._dictionaries(), self._key_columns()
        parts = self._side_by_side(lambda file: self._held(file, keys, names), self.task.files)
        tables = [table for part in parts for table in part]
        if not tables:
            return []
        del parts
        order, cuts, leaf = self._ordered(pa.concat_tables(tables))
        at, blocks = pa.array(order), self.task.blocks
        found = dict(zip(tables[0].schema.names, _arranged(tables, at), strict=True))
        if blocks is not None:
            found[blocks.column.name] = pa.chunked_array([leaves.ids_of(blocks, leaf[order])])

        def rest(columns: Sequence[Column]) -> list[pa.ChunkedArray]:
            read = [own for file in self.task.files for own in self._held(file, columns, names)]
            return _arranged(read, at)

        left = [one for one in self.reader.columns if one.name not in found]
        batches = self._batches(left)
        for columns, arrays in zip(batches, self._side_by_side(rest, batches), strict=True):
            found |= zip([one.name for one in columns], arrays, strict=True)
        for file in self.task.files:
            self.reader.scratch.forget(file.path)
        table = pa.table({one.name: found.pop(one.name) for one in self.reader.columns})
        ends = itertools.accumulate(sum(cut.groups) for cut in cuts)
        work = []
        for cut, end in zip(cuts, ends, strict=True):
            own = table.slice(end - sum(cut.groups), sum(cut.groups))
            work.append((self._place(cut), cut, Rest(iter([own])).take))
        return self._side_by_side(lambda one: self._write(*one), work)

    def _held(
        self, file: DataFile, columns: Sequence[Column], dictionaries: Sequence[str]
    ) -> list[pa.Table]:
        """Return live rows of a file that stay in memory. Raises _TooLarge."""
        found = []
        for table in self._live_of(file, columns, dictionaries):
            self.decoded.append(DECODED_FACTOR * table.nbytes)
            if sum(self.decoded) > self.resources.memory_bytes:
                raise _TooLarge
            found.append(table)
        return found

    def _key_columns(self) -> tuple[Column, ...]:
        """Return the columns that rows are ordered by, or what holds them."""
        ids = [key.field_id for key in self.task.order.keys]
        ids += [one.source_id for one in self.task.moves]
        return ordering.columns_with(ids, self.task.table.ways)

    def _batches(self, columns: Sequence[Column]) -> list[list[Column]]:
        """Return columns that are read together: one, or so many that a row group of theirs is
        worth opening a file. The largest come first, while few others are in memory."""
        footers = [self.reader.footer(file.path)[0] for file in self.task.files]
        groups = [f.row_group(number) for f in footers for number in range(f.num_row_groups)]
        stored: dict[str, int] = {}
        for chunk in (group.column(leaf) for group in groups for leaf in range(group.num_columns)):
            top = chunk.path_in_schema.partition(".")[0]
            stored[top] = stored.get(top, 0) + chunk.total_uncompressed_size
        ordered = sorted(columns, key=lambda one: -stored.get(one.name, 0))
        worth = sum(stored.values()) // max(1, len(groups) * WORTH_OPENING)
        most = max(1, min(len(columns), worth))
        each = max(1, math.ceil(len(columns) / most))
        return [ordered[at : at + each] for at in range(0, len(columns), each)]

    def _spilled(self) -> list[Output]:
        """Write in two passes: the keys give each row its place, rows go through the disk."""
        columns = self._key_columns()
        keys = [own for file in self.task.files for own in self._live_of(file, columns)]
        if not keys:
            return []
        order, cuts, leaf = self._ordered(pa.concat_tables(keys))
        del keys
        sizes = [count for cut in cuts for count in cut.groups]
        rows = spill.Spill(self.reader.scratch.directory, order, sizes)
        del order
        done = 0
        for table in self._live(self.reader.columns, self._dictionaries()):
            own = leaf[done : done + len(table)]
            done += len(table)
            rows.add(leaves.with_ids(table, self.task.blocks, own))
        parts = rows.parts()
        return self._written(cuts, lambda _: next(parts))


def _arranged(tables: list[pa.Table], order: pa.Array) -> list[pa.ChunkedArray]:
    """Return each column's values in an order of the rows of all tables. Each is freed as soon as
    it is copied; tables: is empty afterwards."""
    columns = pa.concat_tables(tables).columns
    tables.clear()
    return [arrow.gathered(columns.pop(0), order) for _ in range(len(columns))]
