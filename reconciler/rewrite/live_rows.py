"""Which rows of a file readers see, and what shows their values, in SQL for the witness."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from reconciler.rewrite import deletes as deleted
from reconciler.rewrite import hashes
from reconciler.rewrite.columns import Column, Stored
from reconciler.rewrite.decoder import Decoder
from reconciler.rewrite.deletes import Delete, Positions
from reconciler.rewrite.failures import Failure, Refused
from reconciler.rewrite.files import LAST_UPDATED, ROW_ID, DataFile, TableShape
from reconciler.rewrite.shared_deletes import SharedDeletes

ROW = "file_row_number"
"""DuckDB's name of a row's number in its file."""


class LiveRows:
    """Rows of the files of one task, without those that deletes hide."""

    def __init__(self, table: TableShape, decoder: Decoder, deletes: SharedDeletes) -> None:
        self._table, self._decoder, self._deletes = table, decoder, deletes

    def live(self, files: Sequence[DataFile]) -> str:
        """Return SQL of the rows that readers see, as relation `r`.

        files: of equal columns; a file with deletes comes alone. The positions that are hidden are
        registered with DuckDB as relation `gone`.
        """
        source = self._decoder.rows(file.path for file in files)
        file = files[0]
        if not file.deletes:
            return source
        self.require_own(file)
        gone = self.positions(file, file.deletes)
        if len(gone):
            import pyarrow as pa

            self._decoder.sql.register("gone", pa.table({"gone_row": gone}))
            source += f" ANTI JOIN gone ON r.{ROW} = gone.gone_row"
        for table, condition in self._equal(file, [one for one in file.deletes if one.keys]):
            source += f" ANTI JOIN {table} ON {condition}"
        return source

    def positions(self, file: DataFile, applied: Sequence[Delete]) -> Positions:
        """Return the rows that position deletes and vectors hide."""
        rows = [self._deletes.positions(one, file.path) for one in applied]
        found = deleted.union(rows)
        return found[found < file.rows]

    def hit(self, file: DataFile, keyed: Sequence[Delete]) -> Positions:
        """Return the rows that equality deletes hide."""
        if not keyed:
            return np.zeros(0, dtype=np.int64)
        rows = self._decoder.rows([file.path])
        held = [
            f"SELECT r.{ROW} AS pos FROM {rows} SEMI JOIN {table} ON {condition}"
            for table, condition in self._equal(file, keyed)
        ]
        query = f"SELECT DISTINCT pos FROM ({' UNION ALL '.join(held)}) ORDER BY pos"
        return np.asarray(self._decoder.sql.execute(query).fetchnumpy()["pos"], dtype=np.int64)

    def _equal(self, file: DataFile, keyed: Sequence[Delete]) -> Iterator[tuple[str, str]]:
        """Yield relations of keys, and the condition that a row `r` of the file has one of them.
        NULL is equal to NULL, NaN to NaN, and a zero to one of the same sign."""
        stored, constants = self._decoder.columns(file.path), self.constants(file)
        for number, (ids, keys) in enumerate(self._deletes.keys(keyed)):
            name, conditions = f"keys{number}", []
            for at, key in enumerate(ids):
                way = self._deletes.way(key)
                value = hashes.value_of(way, stored, constants)
                conditions.append(f"{value} IS NOT DISTINCT FROM {name}.k{at}")
                if way[-1].type in ("float", "double"):
                    sign = hashes.zero_sign(value)
                    conditions.append(f"{sign} IS NOT DISTINCT FROM {name}.z{at}")
            yield f"{keys} {name}", " AND ".join(conditions)

    def require_own(self, file: DataFile) -> None:
        """Raise Refused if a delete file that names one data file in its manifest entry has
        positions of others too: some readers apply them there."""
        for one in file.deletes:
            if one.data_file and not one.vector and self._deletes.counts(one)[1]:
                detail = "positions of other data files than its entry names"
                raise Refused(Failure(one.path, "", detail))

    def held(self, one: Delete, own: Positions) -> int:
        """Return how many positions a delete file has, whatever they name. own: those of its data
        file."""
        return len(own) if one.vector else self._deletes.counts(one)[0]

    def row_hash(self, file: DataFile) -> str:
        """Return SQL of the hash of a row."""
        every = [part for parts in self.parts(file).values() for part in parts]
        return f"hash({', '.join(every) or 'NULL'})"

    def parts(self, file: DataFile) -> dict[str, list[str]]:
        """Return SQL of what shows the value of each column, by its name."""
        stored, constants = self._decoder.columns(file.path), self.constants(file)
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

    def constants(self, file: DataFile) -> dict[int, str]:
        """Return the values of partition columns that a file does not hold."""
        if not file.partition:
            return {}
        held = {column.field_id for column in self._decoder.columns(file.path)}
        return {
            field_id: hashes.literal(kind, value)
            for field_id, kind, value in file.partition
            if field_id not in held
        }
