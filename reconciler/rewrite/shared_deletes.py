"""What delete files hold, by the witness's decoder: each file is read once, whatever it applies to.

A thousand data files may each have the same thousand delete files. Those that the same data files
have are read together into a table of DuckDB, which spills it, when the first of these data files
is looked at; the table is dropped after the last one.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from reconciler.rewrite import deletes as deleted
from reconciler.rewrite import hashes
from reconciler.rewrite.columns import PATH_COLUMN, POSITION_COLUMN, Column, Unreadable
from reconciler.rewrite.decoder import Decoder
from reconciler.rewrite.deletes import Delete, Positions
from reconciler.rewrite.failures import Failure, Refused, collected, naming

NONE: Positions = np.zeros(0, dtype=np.int64)


@dataclass(slots=True)
class _Group:
    """Delete files that the same data files have."""

    number: int
    """Names its table."""
    keys: tuple[int, ...]
    """Field ids of equality deletes; () for position deletes."""
    deletes: list[Delete] = field(default_factory=list)
    """Its delete files, each once."""
    users: dict[str, int] = field(default_factory=dict)
    """Data files to which they apply, numbered in the order in which they are looked at."""
    read: bool = False
    """Whether its table is there."""
    failures: dict[str, tuple[Failure, ...]] = field(default_factory=dict)
    """Why delete files could not be read, by path."""

    @property
    def table(self) -> str:
        return f"{'keys' if self.keys else 'positions'}_{self.number}"


class SharedDeletes:
    """The delete files of the data files that a task looks at, one after another."""

    def __init__(self, decoder: Decoder, ways: Mapping[int, tuple[Column, ...]]) -> None:
        """ways: to each column that keys may name, as of a table."""
        self._decoder, self._sql, self._ways = decoder, decoder.sql, ways
        self._groups: dict[str, _Group] = {}
        self._of: dict[str, list[_Group]] = defaultdict(list)
        self._at, self._rows = "", dict[str, Positions]()
        self._counts: dict[str, tuple[int, int]] = {}

    def expect(self, users: Sequence[tuple[str, Sequence[Delete]]]) -> None:
        """Say which data files will be looked at, in order, and by which deletes; a data file
        stands there twice where it is looked at before and after a replacement."""
        of: dict[str, list[int]] = defaultdict(list)
        known: dict[str, Delete] = {}
        for number, (_, applied) in enumerate(users):
            for one in applied:
                if one.shared:
                    of[one.path].append(number)
                    known.setdefault(one.path, one)
        groups: dict[tuple[tuple[int, ...], tuple[int, ...]], _Group] = {}
        for path, numbers in of.items():
            one, same = known[path], tuple(numbers)
            group = groups.setdefault((one.keys, same), _Group(len(groups), one.keys))
            group.deletes.append(one)
            if not group.users:
                paths = dict.fromkeys(users[n][0] for n in same)
                group.users = {data_file: n for n, data_file in enumerate(paths)}
            self._groups[path] = group
        for group in groups.values():
            for data_file in group.users:
                self._of[data_file].append(group)

    def done(self, data_file: str) -> None:
        """Free what no later data file needs."""
        for group in self._of.pop(data_file, ()):
            if data_file != next(reversed(group.users)):
                continue
            self._sql.execute(f"DROP TABLE IF EXISTS {group.table}")
            for one in group.deletes:
                self._groups.pop(one.path, None)
        self._at, self._rows, self._counts = "", {}, {}

    # Positions

    def positions(self, one: Delete, data_file: str) -> Positions:
        """Return what a delete file has of a data file, as it is stored: none of equality
        deletes."""
        if one.keys:
            return NONE
        if data_file != self._at:
            self._at, self._rows = data_file, {}
        if one.path not in self._groups:
            name = f"{one.path} {one.offset}"
            if name not in self._rows:
                self._rows[name] = self._own(one, data_file)
            return self._rows[name]
        if one.path not in self._rows:
            self._rows |= self._shared(data_file)
        self._require_read(one)
        return self._rows[one.path]

    def counts(self, one: Delete) -> tuple[int, int]:
        """Return how many positions a delete file has, and how many of them are of other data files
        than its entry names."""
        if one.path not in self._counts:
            with naming(one.path):
                stored, relation = self._decoder.delete_file(one)
                named = hashes.value_of((PATH_COLUMN,), stored, {})
                query = f"count(*), count(*) FILTER (WHERE {named} IS DISTINCT FROM ?)"
                found = self._sql.execute(f"SELECT {query} FROM {relation}", [one.data_file])
                total, others = found.fetchone()
            self._counts[one.path] = int(total), int(others)
        return self._counts[one.path]

    def _own(self, one: Delete, data_file: str) -> Positions:
        """Return the same of a delete file that no other data file has."""
        with naming(one.path):
            if one.vector:
                puffin = self._decoder.scratch.path(one.path)
                return deleted.vector_positions(puffin, one.offset, one.length)
            stored, relation = self._decoder.delete_file(one)
            at = hashes.value_of((POSITION_COLUMN,), stored, {})
            named = hashes.value_of((PATH_COLUMN,), stored, {})
            query = f"SELECT {at} AS pos FROM {relation} WHERE {named} = ? AND pos IS NOT NULL"
            found = self._sql.execute(query, [data_file]).fetchnumpy()["pos"]
            return np.asarray(found, dtype=np.int64)

    def _shared(self, data_file: str) -> dict[str, Positions]:
        """Return what each delete file that others have too has of a data file."""
        groups = [group for group in self._of[data_file] if not group.keys]
        deletes = [one for group in groups for one in self._loaded(group).deletes]
        first = itertools.accumulate((len(group.deletes) for group in groups), initial=0)
        query = " UNION ALL ".join(
            f"SELECT {begin} + delete_file AS number, pos FROM {group.table} "
            f"WHERE data_file = {group.users[data_file]}"
            for group, begin in zip(groups, first, strict=False)
        )
        found = self._sql.execute(query).fetchnumpy()
        order = np.argsort(found["number"], kind="stable")
        numbers, rows = found["number"][order], found["pos"][order].astype(np.int64)
        ends = np.searchsorted(numbers, np.arange(len(deletes) + 1))
        return {one.path: rows[ends[at] : ends[at + 1]] for at, one in enumerate(deletes)}

    def _read_positions(self, group: _Group) -> None:
        import pyarrow as pa

        users = pa.table({"path": list(group.users), "number": list(group.users.values())})
        self._sql.register("users", users)
        self._sql.execute(
            f"CREATE OR REPLACE TEMP TABLE {group.table} "
            "(data_file INTEGER, delete_file INTEGER, pos BIGINT)"
        )

        def read(number: int, one: Delete) -> None:
            stored, relation = self._decoder.delete_file(one)
            at = hashes.value_of((POSITION_COLUMN,), stored, {})
            named = hashes.value_of((PATH_COLUMN,), stored, {})
            self._sql.execute(
                f"INSERT INTO {group.table} SELECT u.number, {number}, {at} AS pos "
                f"FROM {relation} JOIN users u ON {named} = u.path WHERE pos IS NOT NULL"
            )

        self._each(group, read)
        if len(group.users) > 1:  # so that what one data file needs lies together
            self._sql.execute(
                f"CREATE TEMP TABLE sorted AS SELECT * FROM {group.table} ORDER BY data_file"
            )
            self._sql.execute(f"DROP TABLE {group.table}")
            self._sql.execute(f"ALTER TABLE sorted RENAME TO {group.table}")

    # Keys

    def keys(self, applied: Sequence[Delete]) -> Iterator[tuple[tuple[int, ...], str]]:
        """Yield the field ids of keys, and SQL of a relation with these keys of the delete files
        that apply to a data file: of column `k0`, and of zeros their sign in `z0`."""
        by_keys: dict[tuple[int, ...], dict[str, None]] = defaultdict(dict)
        for one in applied:
            by_keys[one.keys][self._loaded(self._groups[one.path]).table] = None
            self._require_read(one)
        for ids, tables in by_keys.items():
            every = " UNION ALL ".join(f"SELECT * FROM {table}" for table in tables)
            yield ids, f"({every})"

    def way(self, field_id: int) -> tuple[Column, ...]:
        """Return the way to a column of keys. Raises Unreadable."""
        way = self._ways.get(field_id)
        if way is None:
            raise Unreadable("", f"an equality delete on field {field_id}, which no schema has")
        return way

    def _read_keys(self, group: _Group) -> None:
        begun = False

        def read(_: int, one: Delete) -> None:
            nonlocal begun
            into = "INSERT INTO {}" if begun else "CREATE OR REPLACE TEMP TABLE {} AS"
            self._sql.execute(f"{into.format(group.table)} {self._keys_of(one)}")
            begun = True

        self._each(group, read)
        if begun:
            self._sql.execute(
                f"CREATE OR REPLACE TEMP TABLE {group.table} AS "
                f"SELECT DISTINCT * FROM {group.table}"
            )

    def _keys_of(self, one: Delete) -> str:
        """Return SQL of the keys in an equality delete file."""
        stored, relation = self._decoder.delete_file(one)
        values = []
        for number, field_id in enumerate(one.keys):
            way = self.way(field_id)
            value = hashes.value_of(way, stored, {})
            values.append(f"{value} AS k{number}")
            if way[-1].type in ("float", "double"):
                values.append(f"{hashes.zero_sign(value)} AS z{number}")
        return f"SELECT {', '.join(values)} FROM {relation}"

    # Both

    def _loaded(self, group: _Group) -> _Group:
        """Return the group, whose table is there."""
        if not group.read:
            group.failures.clear()
            for one in group.deletes:  # all of one codec, if they must be recoded, at once
                with naming(one.path):
                    self._decoder.scratch.path(one.path)
            (self._read_keys if group.keys else self._read_positions)(group)
            group.read = True
        return group

    def _require_read(self, one: Delete) -> None:
        """Raise Refused if the file could not be read."""
        failures = self._groups[one.path].failures.get(one.path)
        if failures:
            raise Refused(*failures)

    def _each(self, group: _Group, read: Callable[[int, Delete], None]) -> None:
        """Read each delete file; note what one of them alone keeps from being read."""
        for number, one in enumerate(group.deletes):
            failures: list[Failure] = []
            with collected(failures), naming(one.path):
                read(number, one)
            if failures:
                group.failures[one.path] = tuple(failures)
            self._decoder.forget(one.path)
