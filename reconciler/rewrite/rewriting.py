"""Carries out one task: read, order, cut, write.

The rows of the whole task are in memory, or, where that is too much, their keys (along a tree of
cuts: the leaf of each row, and one run of leaves, `leaf_runs`) and one row group at a time
(`spill`).
"""

from __future__ import annotations

import contextlib
import itertools
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from reconciler.rewrite import arrow, leaf_runs, leaves, memory, spill
from reconciler.rewrite import order as ordering
from reconciler.rewrite.block_ids import Blocks
from reconciler.rewrite.columns import Column
from reconciler.rewrite.comparison import Check, Compared
from reconciler.rewrite.cuts import PlannedFile, files_of_leaves, files_of_rows
from reconciler.rewrite.dictionaries import dictionary_columns
from reconciler.rewrite.failures import Stopped
from reconciler.rewrite.files import DataFile
from reconciler.rewrite.moves import Partitions
from reconciler.rewrite.opened import Opened
from reconciler.rewrite.outputs import Outputs, StagedFile
from reconciler.rewrite.partition_check import TargetField
from reconciler.rewrite.portions import Portions
from reconciler.rewrite.read import Reader
from reconciler.rewrite.storage import Opening, Scratch
from reconciler.rewrite.task import Made, Output, Resources, Task
from reconciler.rewrite.witness import compared
from reconciler.rewrite.write import writing
from reconciler.table.cut_tree import Tree
from reconciler.table.permutations import inverse_permutation

WORTH_OPENING = 1 << 20
"""Bytes of a row group, before compression, that are worth opening its file for."""
OWN_ERRORS = (ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError,
              ValueError)  # fmt: skip
"""Errors of code, Arrow's among them, that no file or storage explains."""
DECODED_FACTOR = 2
"""Memory of decoded rows while they are arranged, in the bytes of Arrow's arrays: a dictionary of
few long texts decodes to far more than is stored."""


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
            outputs = run.carried_out()
        found = None if check is None else _compared(check, run, outputs, scratch)
        if found is None or found.same:
            for staged in made.files:
                made.store(staged)
    return Made(tuple(outputs), sum(run.spent), found)


def _compared(check: Check, run: _Run, outputs: Sequence[Output], scratch: Scratch) -> Compared:
    """Compare the outputs with the inputs in scratch, which finds the outputs by their locations
    from now on."""
    for staged in run.outputs.files:
        scratch.adopt(staged.location, staged.path)
    files = [
        DataFile(one.path, one.rows, one.size, moved=_partition_of(run.task, one))
        for one in outputs
    ]
    return compared(check, files, scratch, run.stopping)


def _partition_of(task: Task, output: Output) -> tuple[TargetField, ...]:
    pairs = zip(task.moves, output.partition, strict=True)
    return tuple(TargetField(f.source_id, f.type, f.transform, value) for f, value in pairs)


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
    held_bytes: list[int] = field(default_factory=list)
    """Bytes of memory that each row group takes which is held for a sort in one pass."""

    @contextlib.contextmanager
    def clocked(self) -> Iterator[None]:
        started = time.thread_time()
        yield
        self.spent.append(time.thread_time() - started)

    def carried_out(self) -> list[Output]:
        if not self.task.order.keys and not self.task.moves:
            return self._packed()
        if memory.in_one_pass(self.task) <= self.resources.memory_bytes:
            with contextlib.suppress(_TooLarge):
                return self._sorted()
        return self._spilled()

    def _begin(self, planned: PlannedFile) -> StagedFile:
        """Begin the next file of the outputs; return where it is written."""
        paths, number = self.task.paths, len(self.outputs.files)
        path = paths[0] if self.task.file_rows else paths[number]
        return self.outputs.begin(path, planned.directory)

    def _dictionaries(self) -> list[str]:
        footers = [self.reader.footer(file.path) for file in self.task.files]
        return dictionary_columns(self.reader.columns, footers)

    def _live(
        self, columns: Sequence[Column], dictionaries: Sequence[str] = ()
    ) -> Iterator[pa.Table]:
        """Yield the live rows of all files, in order of arrival; what is held of a file is freed
        after its last row."""
        for file in self.task.files:
            yield from self._live_of(file, columns, dictionaries)
            self.reader.scratch.forget(file.path)

    def _with_ids(self, table: pa.Table, leaf: Any = None) -> pa.Table:
        """Return rows with their block ids, where they have such a column. leaf: of each row in the
        tree that orders them."""
        blocks = self.task.blocks
        if blocks is None:
            return table
        at = table.schema.names.index(blocks.column.name)
        return table.set_column(at, table.schema.field(at), self._ids(blocks, table, leaf))

    def _ids(self, blocks: Blocks, table: pa.Table, leaf: Any) -> pa.ChunkedArray:
        """Return the block ids of rows that have the columns which the ids' tree cuts."""
        known = leaf if blocks.tree == self.task.order.tree else None
        return pa.chunked_array([leaves.ids_of(table, blocks, self.task.table.ways, known)])

    def _live_of(
        self, file: DataFile, columns: Sequence[Column], dictionaries: Sequence[str] = (),
        wanted: Set[int] | None = None,
    ) -> Iterator[pa.Table]:  # fmt: skip
        """Yield the live rows of a file. wanted: as `Opened.live` takes it."""
        with failing_at(file.path):
            opened = Opened(self.reader, file, dictionaries)
            tables = opened.live(columns, wanted)
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
        live = self._live(self.reader.columns, self._dictionaries())
        portions = Portions(map(self._with_ids, live))
        return self._written(files_of_rows(self.task, rows, None), portions.take)

    def _live_rows(self, file: DataFile) -> int:
        opened = Opened(self.reader, file)
        try:
            return opened.live_rows()
        finally:
            opened.close()

    def _written(
        self, files: Iterable[PlannedFile], take: Callable[[int], pa.Table]
    ) -> list[Output]:
        """Write files one after another. take: returns the next rows."""
        return [self._write(self._begin(file), file, take) for file in files]

    def _write(
        self, staged: StagedFile, planned: PlannedFile, take: Callable[[int], pa.Table]
    ) -> Output:
        with writing(staged.path, self.reader.columns, self.task.properties) as made:
            for count in planned.row_groups:
                self._go_on()
                made.write(take(count))
        return replace(made.output(staged.location), partition=planned.partition)

    # In order of keys

    def _ordered(
        self, table: pa.Table
    ) -> tuple[ordering.Int64, list[PlannedFile], ordering.Int64 | None]:
        """Return the order of the rows, the files to write, and the leaf of each row, None without
        a tree. table: has the columns of keys."""
        task, ways = self.task, self.task.table.ways
        values = ordering.values_of([key.field_id for key in task.order.keys], ways, table)
        partitions = self._partitions(table)
        first = [] if partitions is None else [partitions.of_row]
        tree = task.order.tree
        if tree is None:
            order = ordering.permutation(task.order, values, len(table), first)
            return order, files_of_rows(task, len(table), partitions), None
        of_field = dict(zip([key.field_id for key in task.order.keys], values, strict=True))
        leaf = leaves.leaf_of(tree, of_field, len(table))
        order = leaves.permutation(tree, of_field, leaf, first)
        slot = leaf if partitions is None else partitions.of_row * tree.leaves + leaf
        return order, files_of_leaves(task, leaves.counted(slot), partitions), leaf

    def _partitions(self, table: pa.Table) -> Partitions | None:
        """Return the partitions that rows move to. table: has the columns of their fields."""
        moves = self.task.moves
        if not moves:
            return None
        ids = [one.source_id for one in moves]
        return Partitions(moves, ordering.values_of(ids, self.task.table.ways, table))

    def _sorted(self) -> list[Output]:
        """Write rows that are all in memory: columns are read and brought into order one after
        another, so that only one of them is there twice."""
        names, keys = self._dictionaries(), self._key_columns()
        parts = self._side_by_side(lambda file: self._held(file, keys, names), self.task.files)
        tables = [table for part in parts for table in part]
        if not tables:
            return []
        del parts
        order, planned, leaf = self._ordered(pa.concat_tables(tables))
        at = pa.array(order)
        narrow = self.task.blocks is None  # block ids follow from values of the keys' own types
        found = dict(zip(tables[0].schema.names, _arranged(tables, at, narrow), strict=True))

        def rest(columns: Sequence[Column]) -> list[pa.ChunkedArray]:
            read = [own for file in self.task.files for own in self._held(file, columns, names)]
            return _arranged(read, at, narrow)

        blocks = self.task.blocks
        block = "" if blocks is None else blocks.column.name  # not read: it is written anew
        left = [c for c in self.reader.columns if c.name not in found and c.name != block]
        batches = self._batches(left)
        for columns, arrays in zip(batches, self._side_by_side(rest, batches), strict=True):
            found |= zip([one.name for one in columns], arrays, strict=True)
        for file in self.task.files:
            self.reader.scratch.forget(file.path)
        if blocks is not None:
            found[block] = self._ids(blocks, pa.table(found), None if leaf is None else leaf[order])
        table = pa.table({one.name: found.pop(one.name) for one in self.reader.columns})
        ends = itertools.accumulate(file.rows for file in planned)
        work = []
        for one, end in zip(planned, ends, strict=True):
            own = table.slice(end - one.rows, one.rows)
            work.append((self._begin(one), one, Portions(iter([own])).take))
        return self._side_by_side(lambda one: self._write(*one), work)

    def _held(
        self, file: DataFile, columns: Sequence[Column], dictionaries: Sequence[str]
    ) -> list[pa.Table]:
        """Return live rows of a file that stay in memory. Raises _TooLarge."""
        found = []
        for table in self._live_of(file, columns, dictionaries):
            self.held_bytes.append(DECODED_FACTOR * table.nbytes)
            if sum(self.held_bytes) > self.resources.memory_bytes:
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
        ranks, planned, leaf = self._ranks()
        sizes = [count for file in planned for count in file.row_groups]
        rows = spill.Spill(self.reader.scratch.directory, ranks, sizes)
        del ranks
        done = 0
        for table in self._live(self.reader.columns, self._dictionaries()):
            own = None if leaf is None else leaf[done : done + len(table)]
            done += len(table)
            rows.add(self._with_ids(table, own))
        parts = rows.parts()
        return self._written(planned, lambda _: next(parts))

    def _ranks(self) -> tuple[Any, list[PlannedFile], Any]:
        """Return the ranks of the rows, the files to write, and the leaf of each row, None without
        a tree."""
        tree = self.task.order.tree
        if tree is not None:
            return self._ranks_by_runs(tree)
        columns = self._key_columns()
        keys = [own for file in self.task.files for own in self._live_of(file, columns)]
        if not keys:
            return [], [], None
        order, planned, _ = self._ordered(pa.concat_tables(keys))
        return inverse_permutation(order), planned, None

    def _ranks_by_runs(self, tree: Tree) -> tuple[Any, list[PlannedFile], Any]:
        """Return what `_ranks` does along a tree."""
        slot, pieces, partitions = self._slots(tree)
        counted = leaves.counted(slot)
        planned = files_of_leaves(self.task, counted, partitions)
        ends = list(itertools.accumulate(file.rows for file in planned))
        given, moves = self.resources.memory_bytes, len(self.task.moves)
        most = memory.rows_of_a_run(given, len(slot), moves)
        runs = leaf_runs.runs_of(counted, ends, most)
        ranks = leaf_runs.ranks(tree, slot, pieces, runs, self._rows_of)
        return ranks, planned, slot % tree.leaves

    def _slots(
        self, tree: Tree
    ) -> tuple[leaf_runs.Numbers, list[leaf_runs.Piece], Partitions | None]:
        """Return the slot of each row (`leaves.Counted`), the row groups of the inputs, and the
        partitions that rows move to, None if they keep theirs."""
        task, ways = self.task, self.task.table.ways
        fields = list(tree.cut_columns) or list(tree.columns)
        sources = ordering.columns_with([one.source_id for one in task.moves], ways)
        columns = ordering.columns_with([*fields, *(one.source_id for one in task.moves)], ways)
        found, moved, pieces, at = [], list[pa.Table](), list[leaf_runs.Piece](), 0
        for number, file in enumerate(task.files):
            for group, table in enumerate(self._live_of(file, columns)):
                of_field = dict(zip(fields, ordering.values_of(fields, ways, table), strict=True))
                leaf = leaves.leaf_of(tree, of_field, len(table))
                found.append(leaf.astype(np.min_scalar_type(tree.leaves)))
                pieces.append(leaf_runs.Piece(number, group, at, at + len(table)))
                moved += [table.select([one.name for one in sources])] if sources else []
                at += len(table)
        slot = np.concatenate(found) if found else np.zeros(0, dtype=np.uint8)
        partitions = self._partitions(pa.concat_tables(moved)) if moved else None
        if partitions is not None:
            slot = partitions.of_row * tree.leaves + slot
        return slot, pieces, partitions

    def _rows_of(
        self, inside: Sequence[tuple[leaf_runs.Piece, ordering.Int64]], ids: Sequence[int]
    ) -> dict[int, pa.ChunkedArray]:
        """Return rows of some row groups, in columns of these field ids."""
        ways = self.task.table.ways
        columns, read = ordering.columns_with(ids, ways), list[pa.Table]()
        for number, own in itertools.groupby(inside, lambda one: one[0].file):
            rows = {piece.number: at for piece, at in own}
            tables = self._live_of(self.task.files[number], columns, wanted=rows.keys())
            read += [
                arrow.Whole(table).take(at)
                for table, at in zip(tables, rows.values(), strict=True)
            ]  # fmt: skip
        whole = pa.concat_tables(read)
        return dict(zip(ids, ordering.values_of(ids, ways, whole), strict=True))


def _arranged(tables: list[pa.Table], order: pa.Array, narrow: bool) -> list[pa.ChunkedArray]:
    """Return each column's values in an order of the rows of all tables. Each is freed as soon as
    it is copied; tables: is empty afterwards. narrow: decimals become `arrow.narrowed`."""
    columns = pa.concat_tables(tables).columns
    tables.clear()
    fitted = arrow.narrowed if narrow else (lambda column: column)
    return [arrow.gathered(fitted(columns.pop(0)), order) for _ in range(len(columns))]
