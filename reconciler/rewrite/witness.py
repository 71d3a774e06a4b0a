"""What rows are in files, according to a reader that shares no code with the one that moves them.

A rewrite asks what its inputs and its outputs hold, the maintenance of delete files which rows are
hidden before and after. DuckDB decodes the files; ids, deletes and lineage follow the specification
in code of this package. Used in Spark's Python processes and in the driver; needs no Spark.
"""

from __future__ import annotations

import contextlib
import json
import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import numpy as np

from reconciler.api.task_memory import Limits
from reconciler.catalog.file_forms import form_from
from reconciler.errors import first_line
from reconciler.rewrite import deletes as deleted
from reconciler.rewrite import hashes, places
from reconciler.rewrite.columns import Column, Stored, Unreadable, stored_columns, with_ids
from reconciler.rewrite.deletes import Delete, Positions
from reconciler.rewrite.places import Placed
from reconciler.rewrite.storage import Opening, Scratch, local_path
from reconciler.table.parquet_schema import NotParquetError
from reconciler.table.physical import Expected, fault_of

log = logging.getLogger(__name__)
BATCH, BATCH_BYTES = 100, 256 << 20
"""Files of equal columns that one query reads, if nothing is deleted from them, and the bytes of
them from which on no more are added: files of another store are in scratch meanwhile."""
LZ4 = "LZ4"
"""In DuckDB's errors about Hadoop's frames, which it does not know."""
T = TypeVar("T")
ROW_ID, LAST_UPDATED = 2147483540, 2147483539
"""Reserved field ids of row lineage (format 3)."""
OTHER_PARTITION = "rows of another partition than its entry says"
ROW = "file_row_number"
"""DuckDB's name of a row's number in its file."""
PATH_COLUMN = Column(deleted.PATH_ID, "file_path", "string")
POSITION_COLUMN = Column(deleted.POSITION_ID, "pos", "long")
POSITION_NAMES = json.dumps(
    [{"field-id": one.field_id, "names": [one.name]} for one in (PATH_COLUMN, POSITION_COLUMN)]
)
"""Name mapping of position delete files that were written without field ids."""


@dataclass(frozen=True, slots=True)
class Table:
    """What a reader needs to know of a table."""

    columns: tuple[Column, ...]
    ways: Mapping[int, tuple[Column, ...]]
    """The way to each column that is not in a list or a map, dropped ones included, by id."""
    mapping: str | None
    """The property schema.name-mapping.default."""
    lineage: bool
    """Whether its rows have row ids (from format 3 on)."""


@dataclass(frozen=True, slots=True)
class DataFile:
    """A data file with the deletes that apply to it."""

    path: str
    """Location of the file, as the manifest spells it."""
    rows: int
    """As its manifest entry says."""
    size: int
    """In bytes."""
    sequence: int = 0
    """Data sequence number."""
    first_row_id: int | None = None
    """Row id of its first row, from format 3 on; None before."""
    partition: tuple[tuple[int, str, Any], ...] = ()
    """Id and type of each source of an identity field of its spec, and the value in JSON."""
    deletes: tuple[Delete, ...] = ()
    """Every delete file that may apply to it."""
    moved: tuple[Placed, ...] = ()
    """The partition that its rows moved to, which they must belong to."""


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """Rows that readers see."""

    rows: int = 0
    total: int = 0
    """The sum of their hashes, 0 if they are only counted."""

    def __add__(self, other: Fingerprint) -> Fingerprint:
        return Fingerprint(self.rows + other.rows, self.total + other.total)


HOLDS, MISSING, MEMORY, STORAGE = "holds", "missing", "memory", "storage"
UNFIT = "unfit"


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a file could not be compared, or rewritten."""

    path: str
    """"" where it concerns no file of its own."""
    column: str
    """Dotted name, "" if it concerns the file as a whole."""
    detail: str
    """A clause without values of the table."""
    kind: str = HOLDS
    """HOLDS: it holds what cannot be compared. MISSING: it does not exist. MEMORY: there was too
    little of it. STORAGE: its storage, or that of scratch, gave an error. UNFIT: nothing is wrong
    with it, but the engine cannot rewrite it."""
    said: str = ""
    """What a decoder said, which may hold values of the table."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What one task found."""

    fingerprint: Fingerprint = Fingerprint()
    """Number and hash of the rows of all files together."""
    columns: Mapping[str, int] = field(default_factory=dict)
    """The sum of the hashes of each column alone, if it was asked for."""
    hidden: int = 0
    """Rows that are deleted, of files whose deletes were compared."""
    changed: tuple[Changed, ...] = ()
    """Data files of which other rows are deleted than before."""
    failures: tuple[Failure, ...] = ()
    """Files that could not be compared; then nothing else is of use."""
    cpu_seconds: float = 0.0
    """CPU seconds that looking took."""

    def __add__(self, other: Seen) -> Seen:
        sums = defaultdict(int, self.columns)
        for name, total in other.columns.items():
            sums[name] += total
        return Seen(
            self.fingerprint + other.fingerprint, dict(sums), self.hidden + other.hidden,
            (*self.changed, *other.changed), (*self.failures, *other.failures),
            self.cpu_seconds + other.cpu_seconds,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Exchange:
    """A data file whose delete files are replaced. file: with the deletes before."""

    file: DataFile
    after: tuple[Delete, ...]
    new: frozenset[tuple[str, int]]
    """Path and offset of those that are new."""


@dataclass(frozen=True, slots=True)
class Changed:
    """A data file of which other rows would be deleted than before."""

    path: str
    """Location of the data file."""
    back: int
    """Rows that readers would see again."""
    gone: int
    """Rows that readers would not see any more."""
    repeated: int
    """Positions that are written more than once."""
    stray: int
    """Positions in new delete files that are of no row of it, and that no replaced one has."""
    miscounted: int
    """Positions by which the manifest entries of new delete files are wrong."""


class Witness:
    """Reads files. One per task: it keeps what several data files need."""

    def __init__(
        self,
        table: Table,
        opening: Opening | None,
        limits: Limits,
        stopping: Callable[[], bool] = lambda: False,
        scratch: Scratch | None = None,
    ) -> None:
        """scratch: in which files are that somebody else keeps, None for one of its own."""
        self._table, self._limits, self._stopping = table, limits, stopping
        self._scratch, self._shared = scratch or Scratch(opening), scratch is not None
        self._footers: dict[str, tuple[Stored, ...]] = {}
        self._keys: dict[tuple[tuple[str, ...], tuple[int, ...]], str] = {}

    def __enter__(self) -> Witness:
        if not self._shared:
            self._scratch.__enter__()
        self._sql = connect(self._limits, str(self._scratch.directory))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._sql.close()
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
        for batch in self._batches(files, form, failures):
            with _collected(failures):
                found.append(self._named(batch, read))
            for file in batch:
                self._scratch.forget(file.path)
                self._footers.pop(file.path, None)
        if failures:
            raise Refused(*failures)
        return found

    def _batches(
        self, files: Sequence[DataFile], form: Expected | None, failures: list[Failure]
    ) -> Iterator[list[DataFile]]:
        """Yield files that one query can read, fetched only for as long as they are used; those
        that cannot be read are added to the failures."""
        alike: dict[tuple[Stored, ...], list[DataFile]] = defaultdict(list)
        for file in files:
            alone = None
            with _collected(failures):
                alone = self._named([file], lambda some: self._prepared(some[0], form))
            if alone is None:
                continue
            if alone:
                yield [file]
                continue
            batch = alike[self._stored(file.path)]
            batch.append(file)
            if len(batch) == BATCH or sum(one.size for one in batch) >= BATCH_BYTES:
                yield list(batch)
                batch.clear()
        for batch in alike.values():
            if batch:
                yield batch

    def _prepared(self, file: DataFile, form: Expected | None) -> bool:
        """Read the file's footer; return whether its rows have values that its columns do not
        show."""
        if form is not None:
            _require_form(self._scratch.path(file.path), form)
        self._stored(file.path)
        for one in file.moved:
            if places.misplaced(one, self._values(file, one)):
                raise Unreadable(self._way(one.source_id)[-1].name, OTHER_PARTITION)
        return bool(file.deletes or self._constants(file) or self._table.lineage)

    def _values(self, file: DataFile, of: Placed) -> list[Any]:
        """Return the values that show whether the file's rows belong to its partition."""
        way = self._way(of.source_id)
        value = hashes.value_of(way, self._stored(file.path), {})
        read = f"read_parquet({self._sql_paths([file])}, hive_partitioning=false) r"
        if of.type in places.FLOATS:
            query = f"SELECT DISTINCT {value} AS v, {hashes.zero_sign(value)} FROM {read}"
            found = self._sql.execute(f"{query} LIMIT {places.SAMPLE}").fetchall()
            return [-0.0 if negative else number for number, negative in found]
        number = places.as_number(of.type, value)
        if of.sampled:
            query = f"SELECT DISTINCT {number} FROM {read} LIMIT {places.SAMPLE}"
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
            if LZ4 in str(error) and self._scratch.recoded():
                return self._named(batch, read)
            failures: list[Failure] = []
            for one in batch if len(batch) > 1 else ():
                with _collected(failures):
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
            relation = f"read_parquet({self._sql_paths([file])}, hive_partitioning=false) r"
            for name, parts in self._parts(file).items():
                try:
                    self._sql.execute(f"SELECT sum(hash({', '.join(parts)})) FROM {relation}")
                except duckdb.Error:
                    return name
        return ""

    def _fingerprint(self, files: Sequence[DataFile], hashed: bool) -> Fingerprint:
        if not hashed and not files[0].deletes:
            paths = self._sql_paths(files)
            query = f"SELECT sum(num_rows) FROM parquet_file_metadata({paths})"
            return Fingerprint(int(self._sql.execute(query).fetchone()[0]))
        wanted = "count(*)"
        if hashed:
            wanted += f", coalesce(sum({self._row_hash(files[0])}::HUGEINT), 0)"
        row = self._sql.execute(f"SELECT {wanted} FROM {self._live(files)}").fetchone()
        return Fingerprint(int(row[0]), int(row[1]) if hashed else 0)

    def _column_sums(self, files: Sequence[DataFile]) -> dict[str, int]:
        parts = self._parts(files[0])
        sums = ", ".join(f"sum(hash({', '.join(one)})::HUGEINT)" for one in parts.values())
        row = self._sql.execute(f"SELECT {sums} FROM {self._live(files)}").fetchone()
        return {name: int(value or 0) for name, value in zip(parts, row, strict=True)}

    def _row_hash(self, file: DataFile) -> str:
        every = [part for parts in self._parts(file).values() for part in parts]
        return f"hash({', '.join(every) or 'NULL'})"

    def _parts(self, file: DataFile) -> dict[str, list[str]]:
        """Return SQL of what shows the value of each column, by its name."""
        stored, constants = self._stored(file.path), self._constants(file)
        found = {
            column.name: hashes.column_parts(column, stored, constants)
            for column in self._table.columns
        }
        if self._table.lineage:
            found |= self._lineage(file, stored)
        return found

    def _lineage(self, file: DataFile, stored: Sequence[Stored]) -> dict[str, list[str]]:
        first = "NULL" if file.first_row_id is None else f"{file.first_row_id} + r.{ROW}"
        last = "NULL" if file.first_row_id is None else str(file.sequence)
        found = {}
        for field_id, name, inherited in (
            (ROW_ID, "_row_id", first),
            (LAST_UPDATED, "_last_updated_sequence_number", last),
        ):
            column = Column(field_id, name, "long")
            own = hashes.value_of((column,), stored, {})
            found[name] = [f"CAST(coalesce({own}, {inherited}) AS BIGINT)"]
        return found

    def _constants(self, file: DataFile) -> dict[int, str]:
        """Return the values of partition columns that a file does not hold."""
        if not file.partition:
            return {}
        held = {column.field_id for column in self._stored(file.path)}
        return {
            field_id: hashes.literal(kind, value)
            for field_id, kind, value in file.partition
            if field_id not in held
        }

    # Deletes

    def exchange(self, one: Exchange) -> tuple[int, Changed | None]:
        """Return how many rows of the file are deleted, and how others would be. Raises Refused."""
        return self._named([one.file], lambda _: self._exchanged(one))

    def _exchanged(self, one: Exchange) -> tuple[int, Changed | None]:
        file = one.file
        self._require_own(file)
        before = self._positions(file, file.deletes)
        after = self._positions(file, one.after)
        new = [d for d in one.after if (d.path, d.offset) in one.new]
        written = [self._position_rows(delete, file.path) for delete in new]
        repeated = sum(map(len, written)) - len(deleted.union(written))
        held = [self._held(delete, own) for delete, own in zip(new, written, strict=True)]
        old = deleted.union([self._position_rows(delete, file.path) for delete in file.deletes])
        known = old[(old < 0) | (old >= file.rows)]
        stray = sum(held) - sum(_of_rows(own, file.rows, known) for own in written)
        miscounted = sum(abs(own - delete.rows) for delete, own in zip(new, held, strict=True))
        keys = [tuple(d for d in each if d.keys) for each in (file.deletes, one.after)]
        if keys[0] != keys[1] or (keys[0] and not np.array_equal(before, after)):
            before = deleted.union([before, self._hit(file, keys[0])])
            after = deleted.union([after, self._hit(file, keys[1])])
        back = len(np.setdiff1d(before, after, assume_unique=True))
        gone = len(np.setdiff1d(after, before, assume_unique=True))
        changed = Changed(file.path, back, gone, repeated, stray, miscounted)
        return len(before), changed if any((back, gone, repeated, stray, miscounted)) else None

    def _held(self, one: Delete, own: Positions) -> int:
        """Return how many positions a delete file has, whatever they name. own: those of its data
        file."""
        if one.vector:
            return len(own)
        _, relation = self._delete_file(one)
        return int(self._sql.execute(f"SELECT count(*) FROM {relation} r").fetchone()[0])

    def _positions(self, file: DataFile, applied: Sequence[Delete]) -> Positions:
        """Return the rows that position deletes and vectors hide."""
        rows = [self._position_rows(one, file.path) for one in applied if not one.keys]
        found = deleted.union(rows)
        return found[found < file.rows]

    def _position_rows(self, one: Delete, path: str) -> Positions:
        """Return what a file has of a data file, as it is stored."""
        if one.keys:
            return np.zeros(0, dtype=np.int64)
        with _naming(one.path):
            if one.vector:
                puffin = self._scratch.path(one.path)
                return deleted.vector_positions(puffin, one.offset, one.length)
            stored, relation = self._delete_file(one)
            at = hashes.value_of((POSITION_COLUMN,), stored, {})
            named = hashes.value_of((PATH_COLUMN,), stored, {})
            query = f"SELECT {at} AS pos FROM {relation} r WHERE {named} = ? AND pos IS NOT NULL"
            found = self._sql.execute(query, [path]).fetchnumpy()["pos"]
            return np.asarray(found, dtype=np.int64)

    def _require_own(self, file: DataFile) -> None:
        """Raise Refused if a delete file that names one data file in its manifest entry has
        positions of others too: some readers apply them there."""
        for one in file.deletes:
            if one.data_file and not one.vector:
                with _naming(one.path):
                    stored, relation = self._delete_file(one)
                    named = hashes.value_of((PATH_COLUMN,), stored, {})
                    query = f"SELECT count(*) FROM {relation} r WHERE {named} IS DISTINCT FROM ?"
                    (others,) = self._sql.execute(query, [one.data_file]).fetchone()
                    if others:
                        raise Unreadable("", "positions of other data files than its entry names")

    def _hit(self, file: DataFile, keyed: Sequence[Delete]) -> Positions:
        """Return the rows that equality deletes hide."""
        if not keyed:
            return np.zeros(0, dtype=np.int64)
        files = self._sql_paths([file])
        held = [
            f"SELECT r.{ROW} AS pos FROM read_parquet({files}, hive_partitioning=false) r "
            f"SEMI JOIN {table} ON {condition}"
            for table, condition in self._equal(file, keyed)
        ]
        query = f"SELECT DISTINCT pos FROM ({' UNION ALL '.join(held)}) ORDER BY pos"
        return np.asarray(self._sql.execute(query).fetchnumpy()["pos"], dtype=np.int64)

    def _live(self, files: Sequence[DataFile]) -> str:
        """Return SQL of the rows that readers see, as relation `r`."""
        source = f"read_parquet({self._sql_paths(files)}, hive_partitioning=false) r"
        file = files[0]
        if not file.deletes:
            return source
        self._require_own(file)
        gone = self._positions(file, file.deletes)
        if len(gone):
            import pyarrow as pa

            self._sql.register("gone", pa.table({"gone_row": gone}))
            source += f" ANTI JOIN gone ON r.{ROW} = gone.gone_row"
        for table, condition in self._equal(file, [one for one in file.deletes if one.keys]):
            source += f" ANTI JOIN {table} ON {condition}"
        return source

    def _equal(self, file: DataFile, keyed: Iterable[Delete]) -> Iterator[tuple[str, str]]:
        """Yield tables of keys, and the condition that a row `r` of the file has one of them. NULL
        is equal to NULL, NaN to NaN, and a zero to one of the same sign."""
        by_keys: dict[tuple[int, ...], list[Delete]] = defaultdict(list)
        for one in keyed:
            by_keys[one.keys].append(one)
        stored, constants = self._stored(file.path), self._constants(file)
        for ids, ones in by_keys.items():
            table = self._key_table(ids, ones)
            conditions = []
            for number, key in enumerate(ids):
                way = self._way(key)
                value = hashes.value_of(way, stored, constants)
                conditions.append(f"{value} IS NOT DISTINCT FROM {table}.k{number}")
                if way[-1].type in ("float", "double"):
                    sign = hashes.zero_sign(value)
                    conditions.append(f"{sign} IS NOT DISTINCT FROM {table}.z{number}")
            yield table, " AND ".join(conditions)

    def _key_table(self, ids: tuple[int, ...], ones: Sequence[Delete]) -> str:
        """Return the name of a table with the keys of these files."""
        key = (tuple(one.path for one in ones), ids)
        if key not in self._keys:
            for other in [known for known in self._keys if known[1] == ids]:
                self._sql.execute(f"DROP TABLE {self._keys.pop(other)}")
            name = "keys_" + "_".join(map(str, ids))
            for number, one in enumerate(ones):
                with _naming(one.path):
                    keys = self._keys_of(one)
                    made = f"INSERT INTO {name}" if number else f"CREATE TEMP TABLE {name} AS"
                    self._sql.execute(f"{made} {keys}")
            self._sql.execute(
                f"CREATE OR REPLACE TEMP TABLE {name} AS SELECT DISTINCT * FROM {name}"
            )
            self._keys[key] = name
        return self._keys[key]

    def _keys_of(self, one: Delete) -> str:
        """Return SQL of the keys in an equality delete file."""
        stored, relation = self._delete_file(one)
        values = []
        for number, field_id in enumerate(one.keys):
            way = self._way(field_id)
            value = hashes.value_of(way, stored, {})
            values.append(f"{value} AS k{number}")
            if way[-1].type in ("float", "double"):
                values.append(f"{hashes.zero_sign(value)} AS z{number}")
        return f"SELECT {', '.join(values)} FROM {relation} r"

    def _way(self, field_id: int) -> tuple[Column, ...]:
        way = self._table.ways.get(field_id)
        if way is None:
            raise Unreadable("", f"an equality delete on field {field_id}, which no schema has")
        return way

    # Files

    def _delete_file(self, one: Delete) -> tuple[tuple[Stored, ...], str]:
        """Return the columns of a delete file, and SQL of its rows."""
        path = self._scratch.path(one.path)
        if one.format != "PARQUET":
            path = self._scratch.converted(one.path, partial(deleted.to_parquet, path, one.format))
        names = None if one.keys else POSITION_NAMES
        stored = self._stored(one.path, names, path)
        return stored, f"read_parquet(['{path}'], hive_partitioning=false)"

    def _stored(
        self, path: str, mapping: str | None = None, local: Path | None = None
    ) -> tuple[Stored, ...]:
        """Return the columns of a Parquet file. mapping: of a file without field ids, if it is not
        the table's. local: where it is, if not in scratch."""
        if path not in self._footers:
            query = "SELECT * FROM parquet_schema(?)"
            found = self._sql.execute(query, [[str(local or self._scratch.path(path))]])
            names = [one[0] for one in found.description]
            rows = [dict(zip(names, row, strict=True)) for row in found.fetchall()]
            self._footers[path] = with_ids(stored_columns(rows), mapping or self._table.mapping)
        return self._footers[path]

    def _sql_paths(self, files: Sequence[DataFile]) -> str:
        return "[" + ", ".join(f"'{self._scratch.path(file.path)}'" for file in files) + "]"


class Stopped(Exception):
    """The run ends: what is compared is not needed any more."""


class Refused(Exception):
    """Files could not be compared."""

    def __init__(self, *failures: Failure) -> None:
        super().__init__(*failures)
        self.failures = failures


def _of_rows(positions: Positions, rows: int, known: Positions) -> int:
    """Return how many positions are of rows of a file, or among known ones."""
    return int(np.count_nonzero((positions >= 0) & (positions < rows) | np.isin(positions, known)))


@contextlib.contextmanager
def _collected(failures: list[Failure]) -> Iterator[None]:
    """Note files that hold what cannot be compared, so that others are looked at too. What may
    concern all of them is raised."""
    try:
        yield
    except Refused as refused:
        if any(one.kind != HOLDS for one in refused.failures):
            raise
        failures += refused.failures


@contextlib.contextmanager
def _naming(path: str) -> Iterator[None]:
    """Whatever fails is this delete file's failure."""
    try:
        yield
    except Exception as error:
        if LZ4 in str(error):
            raise  # its files are recoded, and read once more
        raise Refused(failure_of(path, error)) from error


def failure_of(path: str, error: Exception) -> Failure:
    """Return what an error says of a file, which it need not name. Raises it if it is no error of
    a file, of memory or of a storage."""
    import duckdb

    if isinstance(error, FileNotFoundError):
        return Failure(str(error.filename or path), "", "the file does not exist", MISSING)
    if isinstance(error, Unreadable):
        return Failure(path, error.column, error.detail)
    if isinstance(error, (duckdb.OutOfMemoryException, MemoryError)):
        return Failure(path, "", first_line(error), MEMORY)
    if isinstance(error, (duckdb.IOException, OSError)):
        local = local_path(path)
        if local is not None and not local.exists():
            return Failure(path, "", "the file does not exist", MISSING)
        return Failure(path, "", first_line(error), STORAGE)
    if isinstance(error, (duckdb.Error, ValueError)):
        log.warning("%s: %s", path, error)
        return Failure(path, "", _why(error))
    raise error


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


def _why(error: Exception) -> str:
    """Return why a file cannot be read. The message of another library is for the log alone: it
    quotes values of the table, and this goes to ledgers, plans and conditions."""
    if "not valid UTF8" in str(error):
        return "text that is not UTF-8"
    if type(error) is ValueError:
        return first_line(error)
    return f"its values cannot be read ({type(error).__name__}); the log of the run has the reason"


def connect(limits: Limits, directory: str) -> Any:
    """Return a DuckDB without access to anything but files, which computes in the thread that
    asks: its CPU time is that thread's."""
    import duckdb

    settings: dict[str, str | bool | int | float | list[str]] = {
        "threads": 1,
        "memory_limit": f"{limits.memory_bytes >> 20}MiB",
        "temp_directory": directory,
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
        "python_scan_all_frames": False,
    }
    made = duckdb.connect(":memory:", config=settings)
    made.execute("SET TimeZone = 'UTC'")
    return made


@dataclass(frozen=True, slots=True)
class Work:
    """What tasks compare: the rows of files, or how the deletes of files are exchanged."""

    table: Table
    """Columns of the table, present and past."""
    files: tuple[DataFile, ...] = ()
    """Data files whose rows are summed up."""
    exchanges: tuple[Exchange, ...] = ()
    """Data files with their deletes before and after."""
    hashed: bool = True
    """Whether rows are hashed, or only counted."""
    by_column: bool = False
    """Whether to hash each column alone."""
    form: Expected | None = None
    """What the files must hold, if they are new."""


def witnessed(
    work: Work,
    numbers: Sequence[int],
    opening: Opening | None,
    limits: Limits,
    stopping: Callable[[], bool] = lambda: False,
    scratch: Scratch | None = None,
) -> Seen:
    """Return what a task finds of the work's files, or exchanges, of these numbers. Where it is to
    stop, it raises Stopped before the next file. scratch: as `Witness` takes it."""
    started = time.thread_time()
    seen = Seen()
    try:
        with Witness(work.table, opening, limits, stopping, scratch) as reader:
            seen = _read(reader, work, numbers)
    except Refused as refused:
        seen = Seen(failures=refused.failures)
    return seen + Seen(cpu_seconds=time.thread_time() - started)


def _read(reader: Witness, work: Work, numbers: Sequence[int]) -> Seen:
    if work.exchanges:
        hidden, changed, failures = 0, [], list[Failure]()
        for number in numbers:
            with _collected(failures):
                rows, other = reader.exchange(work.exchanges[number])
                hidden += rows
                changed += [other] if other else []
        return Seen(hidden=hidden, changed=tuple(changed), failures=tuple(dict.fromkeys(failures)))
    files = [work.files[number] for number in numbers]
    if work.by_column:
        return Seen(columns=reader.columns(files))
    return Seen(reader.fingerprint(files, work.hashed, work.form))


@dataclass(frozen=True, slots=True)
class Check:
    """How the files of a rewrite are compared before they are stored."""

    inputs: Work
    """What is replaced, with the deletes that the witness's own rules apply."""
    form: Expected
    """What new files must hold."""
    limits: Limits


@dataclass(frozen=True, slots=True)
class Compared:
    """What the witness found before and after a rewrite."""

    before: Seen
    after: Seen = Seen()
    differing: tuple[str, ...] = ()
    """Columns whose values differ, if the rows do."""

    @property
    def same(self) -> bool:
        failed = self.before.failures or self.after.failures
        return not failed and self.before.fingerprint == self.after.fingerprint


def compared(
    check: Check, outputs: Sequence[DataFile], scratch: Scratch, stopping: Callable[[], bool]
) -> Compared:
    """Compare the inputs, where they were fetched to, with outputs that are still in scratch."""

    def see(work: Work) -> Seen:
        numbers = range(len(work.files))
        return witnessed(work, numbers, None, check.limits, stopping, scratch)

    before = see(check.inputs)
    if before.failures:
        return Compared(before)
    after = see(replace(check.inputs, files=tuple(outputs), form=check.form))
    found = Compared(before, after)
    if found.same or after.failures or before.fingerprint.rows != after.fingerprint.rows:
        return found
    alone = replace(check.inputs, by_column=True)
    sums = see(alone).columns, see(replace(alone, files=tuple(outputs))).columns
    return replace(found, differing=differing(*sums))


def differing(before: Mapping[str, int], after: Mapping[str, int]) -> tuple[str, ...]:
    """Return the columns whose sums of hashes differ."""
    return tuple(name for name in before if before[name] != after.get(name, 0))
