"""The witness says equal where a model of the rows says equal, and nowhere else."""

from __future__ import annotations

import copy
import datetime as dt
import math
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from reconciler.rewrite.columns import LIST, MAP, STRUCT, Column
from reconciler.rewrite.witness import (
    LAST_UPDATED,
    ROW_ID,
    DataFile,
    Limits,
    Table,
    Work,
    witnessed,
)
from tests.rewrite import model
from tests.rewrite.model import EPOCH, Row, arrow_field, table_of, write, write_table

ENCODINGS: tuple[dict[str, Any], ...] = (
    {}, {"use_dictionary": False, "data_page_version": "2.0", "compression": "gzip"},
    {"row_group_size": 3, "compression": "zstd", "store_decimal_as_integer": True},
)  # fmt: skip


def seen(table: Table, *files: DataFile, hashed: bool = True) -> tuple[int, int]:
    work = Work(table, files, hashed=hashed)
    found = witnessed(work, range(len(files)), None, Limits())
    assert found.failure is None, found.failure
    return found.fingerprint.rows, found.fingerprint.total


def _changed(chance: random.Random, column: Column, value: Any) -> Any:
    """Return the value with a small change somewhere inside."""
    if value is None or column.type not in (STRUCT, LIST, MAP) or chance.random() < 0.2:
        return model.random_value(chance, column, 0.3)
    if column.type == STRUCT:
        child = chance.choice(column.children)
        return {**value, child.name: _changed(chance, child, value[child.name])}
    if not value:
        return None if chance.random() < 0.5 else [*value]
    at = chance.randrange(len(value))
    if column.type == LIST:
        kind = chance.choice(("change", "lose", "swap", "double"))
        items = list(value)
        if kind == "lose":
            del items[at]
        elif kind == "double":
            items.insert(at, items[at])
        elif kind == "swap":
            items.reverse()
        else:
            items[at] = _changed(chance, column.children[0], items[at])
        return items
    items = list(value)
    if chance.random() < 0.4:
        items.reverse()
    else:
        items[at] = (items[at][0], _changed(chance, column.children[1], items[at][1]))
    return items


def mutated(chance: random.Random, columns: tuple[Column, ...], rows: list[Row]) -> list[Row]:
    rows = copy.deepcopy(rows)
    kind = chance.choice(("cell", "cell", "cell", "cell", "lose", "double", "swap", "move", "none"))
    at, to = chance.randrange(len(rows)), chance.randrange(len(rows))
    place = chance.randrange(len(columns))
    if kind == "cell":
        rows[at][place] = _changed(chance, columns[place], rows[at][place])
    elif kind == "lose":
        del rows[at]
    elif kind == "double":
        rows[at] = copy.deepcopy(rows[to])
    elif kind == "swap":
        rows[at][place], rows[to][place] = rows[to][place], rows[at][place]
    elif kind == "move":
        alike = [
            i for i, c in enumerate(columns) if c.type == columns[place].type and not c.children
        ]
        other = chance.choice(alike or [place])
        for row in rows:
            row[place], row[other] = row[other], row[place]
    chance.shuffle(rows)
    return rows


@pytest.mark.parametrize("seed", range(60))
def test_equal_is_what_the_model_says(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    columns = model.random_columns(chance, chance.randint(1, 6))
    table = table_of(columns)
    rows = [
        [model.random_value(chance, column) for column in columns]
        for _ in range(chance.randint(2, 9))
    ]
    base = seen(table, write(tmp_path / "base.parquet", columns, rows))
    for number in range(6):
        other = mutated(chance, columns, rows)
        half = len(other) // 2
        options = chance.choice(ENCODINGS)
        files = [
            write(tmp_path / f"{number}{part}.parquet", columns, some, **options)
            for part, some in (("a", other[:half]), ("b", other[half:]))
            if some
        ]
        equal = model.same(columns, rows, other)
        assert (seen(table, *files) == base) is equal, (seed, number, rows, other)


def _without(chance: random.Random, column: Column) -> Column | None:
    """Return the column as a file may hold that was written before it, or a part of it, was
    added."""
    if chance.random() < 0.4:
        return None
    if column.type != STRUCT:
        return column
    held = [kept for child in column.children if (kept := _without(chance, child)) is not None]
    return replace(column, children=tuple(held)) if held else None


def _emptied(column: Column, held: Column | None, value: Any) -> Any:
    """Return what a reader sees of a value in such a file."""
    if held is None or value is None:
        return None
    if column.type != STRUCT:
        return value
    parts = {child.field_id: child for child in held.children}
    return {
        child.name: _emptied(child, parts.get(child.field_id), value[child.name])
        for child in column.children
    }


@pytest.mark.parametrize("seed", range(8))
def test_a_column_that_was_added_later_is_null_in_older_files(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    columns = (Column(9_999, "id", "long"), *model.random_columns(chance, 6))
    rows = [[n, *(model.random_value(chance, column) for column in columns[1:])] for n in range(5)]
    held = [columns[0], *(_without(chance, column) for column in columns[1:])]
    read = [[_emptied(c, h, v) for c, h, v in zip(columns, held, row, strict=True)] for row in rows]
    stored = [[v for h, v in zip(held, row, strict=True) if h is not None] for row in read]
    older = write(tmp_path / "older.parquet", [h for h in held if h is not None], stored)
    now = write(tmp_path / "now.parquet", columns, read)
    assert seen(table_of(columns), older) == seen(table_of(columns), now)


def test_files_in_other_units_types_names_and_orders_are_equal(tmp_path: Path) -> None:
    """As promoted, renamed, reordered and added columns, and registered files, are stored."""
    now = Column(1, "id", "long"), Column(2, "at", "timestamp"), Column(3, "x", "double")
    added = Column(4, "n", "int", default=7)
    rows: list[Row] = [[1, EPOCH + dt.timedelta(milliseconds=1), -0.0, 7], [2, None, math.nan, 7]]
    table = table_of((*now, added))
    base = seen(table, write(tmp_path / "base.parquet", (*now, added), rows))
    at = [row[1] for row in rows]
    for unit in ("ms", "ns"):
        old = pa.table(
            [[row[2] for row in rows], pa.array(at, pa.timestamp(unit)), [1, 2]],
            schema=pa.schema([
                arrow_field(Column(3, "was_x", "float")),
                arrow_field(now[1], pa.timestamp(unit)),
                arrow_field(Column(1, "ID2", "int")),
            ]),
        )  # fmt: skip
        assert seen(table, write_table(tmp_path / f"{unit}.parquet", old)) == base


def test_another_unit_is_seen(tmp_path: Path) -> None:
    column = Column(1, "at", "timestamp")
    written = [[EPOCH + dt.timedelta(days=20_000)], [EPOCH + dt.timedelta(days=20)]]
    one, other = (
        seen(table_of((column,)), write(tmp_path / f"{i}.parquet", (column,), [row]))
        for i, row in enumerate(written)
    )
    assert one != other


def test_lineage_is_a_part_of_the_hash(tmp_path: Path) -> None:
    column = Column(1, "id", "long")
    ids = Column(ROW_ID, "_row_id", "long"), Column(LAST_UPDATED, "_last", "long")
    table = table_of((column,), lineage=True)
    old = write(tmp_path / "old.parquet", (column,), [[5], [6]])
    base = seen(table, replace(old, first_row_id=100, sequence=3))
    kept = write(tmp_path / "kept.parquet", (column, *ids), [[6, 101, 3], [5, 100, 3]])
    lost = write(tmp_path / "lost.parquet", (column, *ids), [[6, 100, 3], [5, 101, 3]])
    assert seen(table, kept) == base != seen(table, lost)


def test_a_partition_column_that_a_file_lacks_has_the_partitions_value(tmp_path: Path) -> None:
    columns = Column(1, "id", "long"), Column(2, "p", "string")
    table = table_of(columns)
    hive = write(tmp_path / "hive.parquet", columns[:1], [[1]])
    for value in (None, "null", ""):
        whole = write(tmp_path / "whole.parquet", columns, [[1, value]])
        placed = replace(hive, partition=((2, "string", value),))
        assert seen(table, placed) == seen(table, whole)


def test_why_a_file_cannot_be_read_quotes_no_value(tmp_path: Path) -> None:
    """It goes to ledgers, plans and conditions, which more people read than the table."""
    table = Table((Column(1, "s", "string"),), {}, None, False)
    details = set()
    for number, value in enumerate((b"secret\xff", b"\xfehidden")):
        stored = pa.array([value], pa.binary())
        text = pa.StringArray.from_buffers(1, *stored.buffers()[1:])
        field = pa.field("s", pa.string(), metadata={"PARQUET:field_id": "1"})
        path = tmp_path / f"{number}.parquet"
        pq.write_table(pa.Table.from_arrays([text], schema=pa.schema([field])), path)
        file = DataFile(f"file:{path}", 1, path.stat().st_size)
        found = witnessed(Work(table, (file,)), [0], None, Limits())
        assert found.failure is not None
        details.add(found.failure.detail)
    (detail,) = details
    assert not any(value in detail for value in ("secret", "hidden"))


def test_a_column_that_a_file_lacks_is_null_in_every_type(tmp_path: Path) -> None:
    kept, nested = Column(1, "id", "long"), Column(70, "kept", "int")
    added = [Column(2 + i, f"c{i}", kind) for i, kind in enumerate(model.PRIMITIVES)]
    element, key, value = (Column(40 + i, n, "long") for i, n in enumerate(("element", "key", "v")))
    added += [
        Column(50, "l", LIST, (element,)), Column(51, "m", MAP, (key, value)),
        Column(52, "ll", LIST, (Column(53, "element", LIST, (Column(54, "element", "int"),)),)),
    ]  # fmt: skip
    for column in added:
        inside = Column(60, "st", STRUCT, (nested, column))
        for number, columns in enumerate(((kept, column), (kept, inside))):
            table = table_of(columns)
            own = Column(60, "st", STRUCT, (nested,))
            lacks = (kept,) if not number else (kept, own)
            old: Row = [5] if not number else [5, {"kept": 1}]
            new: Row = [5, None] if not number else [5, {"kept": 1, column.name: None}]
            one = write(tmp_path / "old.parquet", lacks, [old])
            other = write(tmp_path / "new.parquet", columns, [new])
            assert seen(table, one) == seen(table, other), column
