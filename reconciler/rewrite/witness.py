"""What rows are in files, according to a reader that shares no code with the one that moves them.

A rewrite asks what its inputs and its outputs hold, the maintenance of delete files which rows are
hidden before and after. DuckDB decodes the files; ids, deletes and lineage follow the specification
in code of this package. Used in Spark's Python processes, in the driver, and in processes of the
local engine's pool; needs no Spark.
"""

from __future__ import annotations

import contextlib
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import numpy as np

from reconciler.api.task_memory import Limits
from reconciler.catalog.file_forms import form_from
from reconciler.rewrite import block_ids, hashes, partition_check
from reconciler.rewrite import deletes as deleted
from reconciler.rewrite.block_ids import Blocks
from reconciler.rewrite.columns import Stored, Unreadable
from reconciler.rewrite.comparison import (
    Changed,
    Check,
    Compared,
    Exchange,
    Fingerprint,
    WitnessResult,
    WitnessWork,
    differing,
)
from reconciler.rewrite.decoder import Decoder
from reconciler.rewrite.deletes import Positions
from reconciler.rewrite.failures import HOLDS, LZ4, Failure, Refused, Stopped, collected, failure_of
from reconciler.rewrite.files import DataFile, TableShape
from reconciler.rewrite.live_rows import LiveRows
from reconciler.rewrite.partition_check import TargetField
from reconciler.rewrite.shared_deletes import SharedDeletes
from reconciler.rewrite.storage import Opening, Scratch
from reconciler.table.parquet_schema import NotParquetError
from reconciler.table.physical import Expected, fault_of

BATCH, BATCH_BYTES = 100, 256 << 20
"""Files of equal columns that one query reads, if nothing is deleted from them, and the bytes of
them from which on no more are added: files of another store are in scratch meanwhile."""
T = TypeVar("T")
OTHER_PARTITION = "rows of another partition than its entry says"


class Witness:
    """Reads files. One per task: it keeps what several data files need."""

    def __init__(
        self,
        table: TableShape,
        opening: Opening | None,
        limits: Limits,
        stopping: Callable[[], bool] = lambda: False,
        scratch: Scratch | None = None,
        blocks: Blocks | None = None,
    ) -> None:
        """scratch: in which files are that somebody else keeps, None for one of its own. blocks:
        the ids that rows must have."""
        self._table, self._limits, self._stopping = table, limits, stopping
        self._blocks = blocks
        self._scratch, self._shared = scratch or Scratch(opening), scratch is not None

    def __enter__(self) -> Witness:
        if not self._shared:
            self._scratch.__enter__()
        self._decoder = Decoder(self._scratch, self._table.mapping, self._limits)
        self._sql = self._decoder.sql
        self._deletes = SharedDeletes(self._decoder, self._table.ways)
        self._rows = LiveRows(self._table, self._decoder, self._deletes)
        if self._blocks is not None and self._blocks.tree is not None:
            import pyarrow as pa

            self._sql.register(block_ids.LEAVES, pa.table(block_ids.leaves_of(self._blocks)))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._decoder.close()
        if not self._shared:
            self._scratch.__exit__(kind, error, at)

    # Rows

    def fingerprint(
        self, files: Sequence[DataFile], hashed: bool, form: Expected | None
    ) -> Fingerprint:
        """Return what readers see of the files. form: what they must hold, if they are new.

        Raises Refused, which names each file that cannot be compared.
        """
        found = self._each(files, lambda some: self._fingerprint(some, hashed), form)
        return sum(found, Fingerprint())

    def columns(self, files: Sequence[DataFile]) -> dict[str, int]:
        """Return the sum of the hashes of each column alone. Raises Refused."""
        total: dict[str, int] = defaultdict(int)
        for found in self._each(files, self._column_sums):
            for name, value in found.items():
                total[name] += value
        return dict(total)

    def _each(
        self,
        files: Sequence[DataFile],
        read: Callable[[Sequence[DataFile]], T],
        form: Expected | None = None,
    ) -> list[T]:
        """Return what `read` returns of each batch of files."""
        found: list[T] = []
        failures: list[Failure] = []
        self._deletes.expect([(file.path, file.deletes) for file in files])
        for batch in self._batches(files, form, failures):
            with collected(failures):
                found.append(self._named(batch, read))
            for file in batch:
                self._decoder.forget(file.path)
                self._deletes.done(file.path)
        if failures:
            raise Refused(*failures)
        return found

    def _batches(
        self, files: Sequence[DataFile], form: Expected | None, failures: list[Failure]
    ) -> Iterator[list[DataFile]]:
        """Yield files that one query can read, fetched only for as long as they are used; those
        that cannot be read are added to the failures."""
        alike: dict[tuple[Stored, ...], list[DataFile]] = defaultdict(list)
        for file in self._announced(files):
            alone = None
            with collected(failures):
                alone = self._named([file], lambda some: self._prepared(some[0], form))
            if alone is None:
                continue
            if alone:
                yield [file]
                continue
            batch = alike[self._decoder.columns(file.path)]
            batch.append(file)
            if _is_full(batch):
                yield list(batch)
                batch.clear()
        for batch in alike.values():
            if batch:
                yield batch

    def _announced(self, files: Sequence[DataFile]) -> Iterator[DataFile]:
        """Yield the files; the decoder expects those of a batch at once."""
        for some in _in_batches(files):
            self._decoder.expect([file.path for file in some])
            yield from some

    def _prepared(self, file: DataFile, form: Expected | None) -> bool:
        """Read the file's footer; return whether its rows have values that its columns do not
        show."""
        if form is not None:
            _require_form(self._scratch.path(file.path), form)
        self._decoder.columns(file.path)
        for one in file.moved:
            if partition_check.misplaced(one, self._values(file, one)):
                raise Unreadable(self._deletes.way(one.source_id)[-1].name, OTHER_PARTITION)
        return bool(file.deletes or self._rows.constants(file) or self._table.lineage)

    def _values(self, file: DataFile, of: TargetField) -> list[Any]:
        """Return the values that show whether the file's rows belong to its partition."""
        way = self._deletes.way(of.source_id)
        value = hashes.value_of(way, self._decoder.columns(file.path), {})
        read = self._decoder.rows([file.path])
        if of.type in partition_check.FLOATS:
            query = f"SELECT DISTINCT {value} AS v, {hashes.zero_sign(value)} FROM {read}"
            found = self._sql.execute(f"{query} LIMIT {partition_check.SAMPLE}").fetchall()
            return [-0.0 if negative else number for number, negative in found]
        number = partition_check.as_number(of.type, value)
        if of.sampled:
            query = f"SELECT DISTINCT {number} FROM {read} LIMIT {partition_check.SAMPLE}"
            return [row[0] for row in self._sql.execute(query).fetchall()]
        query = (
            f"SELECT count(*) - count(v), min(v), max(v) FROM (SELECT {number} AS v FROM {read})"
        )
        nulls, *ends = self._sql.execute(query).fetchone()
        return [*([None] if nulls else []), *(one for one in ends if one is not None)]

    def _named(self, batch: Sequence[DataFile], read: Callable[[Sequence[DataFile]], T]) -> T:
        """Return what `read` returns of the batch. Raises Refused, which names the files."""
        if self._stopping():
            raise Stopped
        try:
            return read(batch)
        except (Refused, Stopped):
            raise
        except Exception as error:
            if LZ4 in str(error) and self._decoder.recoded():
                return self._named(batch, read)
            failures: list[Failure] = []
            for one in batch if len(batch) > 1 else ():
                with collected(failures):
                    self._named([one], read)
            if not failures:
                failures.append(self._failure(batch[0], error))
            raise Refused(*failures) from error

    def _failure(self, file: DataFile, error: Exception) -> Failure:
        failure = failure_of(file.path, error)
        if failure.kind != HOLDS or failure.column:
            return failure
        return replace(failure, column=self._undecodable(file))

    def _undecodable(self, file: DataFile) -> str:
        """Return the first column whose values DuckDB cannot read, "" if none is."""
        import duckdb

        name = ""
        with contextlib.suppress(duckdb.Error, Unreadable, ValueError, OSError):
            relation = self._decoder.rows([file.path])
            for name, parts in self._rows.parts(file).items():
                try:
                    self._sql.execute(f"SELECT sum(hash({', '.join(parts)})) FROM {relation}")
                except duckdb.Error:
                    return name
        return ""

    def _require_ids(self, files: Sequence[DataFile]) -> None:
        """Raise Refused if a row has the block id of another leaf than its own."""
        if self._blocks is None:
            return
        stored = self._decoder.columns(files[0].path)
        live = self._rows.live(files)
        query = block_ids.wrong_rows(self._blocks, self._table.ways, stored, live)
        if self._sql.execute(query).fetchone()[0]:
            name = self._blocks.column.name
            raise Refused(Failure(files[0].path, name, block_ids.OTHER_LEAF))

    def _fingerprint(self, files: Sequence[DataFile], hashed: bool) -> Fingerprint:
        self._require_ids(files)
        if not hashed and not files[0].deletes:
            paths = self._decoder.paths(file.path for file in files)
            query = f"SELECT sum(num_rows) FROM parquet_file_metadata({paths})"
            return Fingerprint(int(self._sql.execute(query).fetchone()[0]))
        wanted = "count(*)"
        if hashed:
            wanted += f", coalesce(sum({self._rows.row_hash(files[0])}::HUGEINT), 0)"
        row = self._sql.execute(f"SELECT {wanted} FROM {self._rows.live(files)}").fetchone()
        return Fingerprint(int(row[0]), int(row[1]) if hashed else 0)

    def _column_sums(self, files: Sequence[DataFile]) -> dict[str, int]:
        parts = self._rows.parts(files[0])
        sums = ", ".join(f"sum(hash({', '.join(one)})::HUGEINT)" for one in parts.values())
        row = self._sql.execute(f"SELECT {sums} FROM {self._rows.live(files)}").fetchone()
        return {name: int(value or 0) for name, value in zip(parts, row, strict=True)}

    # Deletes

    def exchanged(self, exchanges: Sequence[Exchange]) -> WitnessResult:
        """Return how many rows of the files are deleted, and of which files others would be."""
        self._deletes.expect(
            [
                (one.file.path, deletes)
                for one in exchanges
                for deletes in (one.file.deletes, one.after)
            ]
        )
        hidden, changed, failures = 0, [], list[Failure]()
        for one in exchanges:
            with collected(failures):
                rows, other = self._named([one.file], partial(self._exchanged, one))
                hidden += rows
                changed += [other] if other else []
            self._deletes.done(one.file.path)
        return WitnessResult(
            hidden=hidden, changed=tuple(changed), failures=tuple(dict.fromkeys(failures))
        )

    def _exchanged(self, one: Exchange, _: Sequence[DataFile]) -> tuple[int, Changed | None]:
        file = one.file
        self._rows.require_own(file)
        before = self._rows.positions(file, file.deletes)
        after = self._rows.positions(file, one.after)
        new = [d for d in one.after if (d.path, d.offset) in one.new]
        written = [self._deletes.positions(delete, file.path) for delete in new]
        repeated = sum(map(len, written)) - len(deleted.union(written))
        held = [self._rows.held(delete, own) for delete, own in zip(new, written, strict=True)]
        old = deleted.union([self._deletes.positions(delete, file.path) for delete in file.deletes])
        known = old[(old < 0) | (old >= file.rows)]
        stray = sum(held) - sum(_of_rows(own, file.rows, known) for own in written)
        miscounted = sum(abs(own - delete.rows) for delete, own in zip(new, held, strict=True))
        keys = [tuple(d for d in each if d.keys) for each in (file.deletes, one.after)]
        if keys[0] != keys[1] or (keys[0] and not np.array_equal(before, after)):
            before = deleted.union([before, self._rows.hit(file, keys[0])])
            after = deleted.union([after, self._rows.hit(file, keys[1])])
        back = len(np.setdiff1d(before, after, assume_unique=True))
        gone = len(np.setdiff1d(after, before, assume_unique=True))
        changed = Changed(file.path, back, gone, repeated, stray, miscounted)
        return len(before), changed if any((back, gone, repeated, stray, miscounted)) else None


def _in_batches(files: Sequence[DataFile]) -> Iterator[list[DataFile]]:
    """Yield the files in order, so many at a time as one batch has."""
    batch: list[DataFile] = []
    for file in files:
        batch.append(file)
        if _is_full(batch):
            yield batch
            batch = []
    if batch:
        yield batch


def _is_full(batch: Sequence[DataFile]) -> bool:
    return len(batch) == BATCH or sum(one.size for one in batch) >= BATCH_BYTES


def _of_rows(positions: Positions, rows: int, known: Positions) -> int:
    """Return how many positions are of rows of a file, or among known ones."""
    return int(np.count_nonzero((positions >= 0) & (positions < rows) | np.isin(positions, known)))


def _require_form(path: Path, form: Expected) -> None:
    """Raise Unreadable if a new file holds what a reader may misread, whatever the witness reads:
    its reader knows more forms than the specification allows."""
    size = path.stat().st_size

    def tail(wanted: int) -> bytes:
        with path.open("rb") as opened:
            opened.seek(size - wanted)
            return opened.read(wanted)

    try:
        fault = fault_of(form_from(tail, size), form)
    except NotParquetError as error:
        raise Unreadable("", str(error)) from error
    if fault is not None:
        raise Unreadable(fault.column, fault.detail)


def witnessed(
    work: WitnessWork,
    numbers: Sequence[int],
    opening: Opening | None,
    limits: Limits,
    stopping: Callable[[], bool] = lambda: False,
    scratch: Scratch | None = None,
) -> WitnessResult:
    """Return what a task finds of the work's files, or exchanges, of these numbers. Where it is to
    stop, it raises Stopped before the next file. scratch: as `Witness` takes it."""
    started = time.thread_time()
    seen = WitnessResult()
    try:
        with Witness(work.table, opening, limits, stopping, scratch, work.blocks) as reader:
            seen = _read(reader, work, numbers)
    except Refused as refused:
        seen = WitnessResult(failures=refused.failures)
    return seen + WitnessResult(cpu_seconds=time.thread_time() - started)


def _read(reader: Witness, work: WitnessWork, numbers: Sequence[int]) -> WitnessResult:
    if work.exchanges:
        return reader.exchanged([work.exchanges[number] for number in numbers])
    files = [work.files[number] for number in numbers]
    if work.by_column:
        return WitnessResult(columns=reader.columns(files))
    return WitnessResult(reader.fingerprint(files, work.hashed, work.form))


def compared(
    check: Check, outputs: Sequence[DataFile], scratch: Scratch, stopping: Callable[[], bool]
) -> Compared:
    """Compare the inputs, where they were fetched to, with outputs that are still in scratch."""

    def see(work: WitnessWork) -> WitnessResult:
        numbers = range(len(work.files))
        return witnessed(work, numbers, None, check.limits, stopping, scratch)

    before = see(check.inputs)
    if before.failures:
        return Compared(before)
    new = replace(check.inputs, files=tuple(outputs), form=check.form, blocks=check.blocks)
    after = see(new)
    found = Compared(before, after)
    if found.same or after.failures or before.fingerprint.rows != after.fingerprint.rows:
        return found
    alone = replace(check.inputs, by_column=True)
    sums = see(alone).columns, see(replace(alone, files=tuple(outputs))).columns
    return replace(found, differing=differing(*sums))
