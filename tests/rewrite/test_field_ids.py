"""Written files have the columns of the current schema and no other: a field id that the table may
still assign would be read as a user's column later."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import duckdb
import pyarrow.parquet as pq
import pytest

from reconciler.rewrite.columns import LIST, MAP, STRUCT, Column
from reconciler.rewrite.files import LAST_UPDATED, ROW_ID, TableShape
from reconciler.rewrite.rewriting import rewritten
from reconciler.rewrite.task import Field, Key, Made, Order, Task
from tests.examples import seeds
from tests.rewrite import model
from tests.rewrite.model import Row, table_of, write
from tests.rewrite.test_rewriting import LITTLE, PLENTY

KEY = Column(9_000, "n", "long")
LINEAGE = {ROW_ID: "_row_id", LAST_UPDATED: "_last_updated_sequence_number"}


class _Schema:
    """A schema that changes as a table's does: an id is never given twice."""

    def __init__(self, chance: random.Random) -> None:
        self._chance, self._next = chance, 10_000
        self.columns = (KEY, *model.random_columns(chance, chance.randint(1, 4)))

    def evolve(self) -> None:
        self.columns = (KEY, *self._changed(self.columns[1:], top=True))

    def _changed(self, columns: Sequence[Column], top: bool = False) -> tuple[Column, ...]:
        chance = self._chance
        kept = [self._inside(one) for one in columns if chance.random() < 0.7]
        if not kept or chance.random() < 0.5:
            self._next += 1
            kept.insert(chance.randint(0, len(kept)), Column(self._next, f"a{self._next}", "int"))
        return tuple(kept if top or kept else columns)

    def _inside(self, column: Column) -> Column:
        if column.type == STRUCT:
            return replace(column, children=self._changed(column.children))
        if column.type in (LIST, MAP):
            *first, last = column.children
            return replace(column, children=(*first, self._inside(last)))
        return column


def _fields(columns: Sequence[Column], within: str = "") -> Iterator[tuple[str, int]]:
    """Yield the place and the id of every field of a schema."""
    for column in columns:
        place = f"{within}/{column.name}"
        yield place, column.field_id
        yield from _fields(column.children, place)


def _stored(path: str) -> Iterator[tuple[str, int | None]]:
    """Yield the place and the id of every field of a Parquet file but the groups around the
    elements of lists and maps, as DuckDB reads its schema."""
    query = "SELECT name, num_children, field_id, repetition_type FROM parquet_schema(?)"
    rows = iter(duckdb.sql(query, params=[path]).fetchall())

    def below(within: str) -> Iterator[tuple[str, int | None]]:
        name, children, field_id, repetition = next(rows)
        place = within
        if repetition != "REPEATED":
            place = f"{within}/{name}"
            yield place, field_id
        for _ in range(children or 0):
            yield from below(place)

    _, children, _, _ = next(rows)
    for _ in range(children):
        yield from below("")


def _made(
    directory: Path, chance: random.Random, lineage: bool
) -> Iterator[tuple[TableShape, Made]]:
    """Rewrite files of several schemas under the last one, in each way that the engine has."""
    schema, files = _Schema(chance), []
    for number in range(3):
        rows: list[Row] = [
            [10 * number + i, *(model.random_value(chance, c) for c in schema.columns[1:])]
            for i in range(7)
        ]
        file = write(directory / f"{number}.parquet", schema.columns, rows)
        files.append(replace(file, sequence=1, first_row_id=10 * number if lineage else None))
        schema.evolve()
    table = replace(table_of(schema.columns), lineage=lineage)
    keys = (Key(KEY.field_id), Key(KEY.field_id, descending=True))
    orders = (Order(), Order(keys[:1]), Order(keys[1:], curve=True))
    for number, order in enumerate(orders):
        for memory in (PLENTY, LITTLE):
            paths = (f"file:{directory}/{number}-{memory.memory_bytes}-ATTEMPT.parquet",)
            yield table, rewritten(Task(table, tuple(files), order, paths, 5), None, memory)
    moves = (Field(KEY.field_id, "n_bucket", "bucket[2]", "long"),)
    paths = (f"file:{directory}/moved/NUMBER-ATTEMPT.parquet",)
    task = Task(table, tuple(files), orders[1], paths, 5, moves=moves, file_rows=4.0)
    yield table, rewritten(task, None, PLENTY)


@pytest.mark.parametrize("seed", seeds(12))
def test_a_written_file_has_the_fields_of_the_current_schema_alone(
    tmp_path: Path, seed: int
) -> None:
    lineage = seed % 2 == 1
    for table, made in _made(tmp_path, random.Random(seed), lineage):
        wanted = dict(_fields(table.columns))
        if lineage:
            wanted |= {f"/{name}": field_id for field_id, name in LINEAGE.items()}
        assert made.files
        for file in made.files:
            path = file.path.removeprefix("file:")
            found = list(_stored(path))
            assert dict(found) == wanted and len(found) == len(wanted)
            assert not (pq.read_metadata(path).metadata or {}).keys() & {b"ARROW:schema"}
