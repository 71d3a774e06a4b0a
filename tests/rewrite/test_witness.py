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
import pytest

from reconciler.api.task_memory import Limits
from reconciler.rewrite import witness as reading
from reconciler.rewrite.columns import LIST, MAP, STRUCT, Column
from reconciler.rewrite.comparison import WitnessWork
from reconciler.rewrite.failures import MEMORY, MISSING, STORAGE
from reconciler.rewrite.files import LAST_UPDATED, ROW_ID, DataFile, TableShape
from reconciler.rewrite.witness import witnessed
from reconciler.table.physical import Expected
from tests.examples import seeds
from tests.rewrite import model
from tests.rewrite.model import EPOCH, Row, arrow_field, table_of, write, write_table

ENCODINGS: tuple[dict[str, Any], ...] = (
    {}, {"use_dictionary": False, "data_page_version": "2.0", "compression": "gzip"},
    {"row_group_size": 3, "compression": "zstd", "store_decimal_as_integer": True},
)  # fmt: skip


def seen(table: TableShape, *files: DataFile, hashed: bool = True) -> tuple[int, int]:
    work = WitnessWork(table, files, hashed=hashed)
    found = witnessed(work, range(len(files)), None, Limits())
    assert not found.failures, found.failures
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


@pytest.mark.parametrize("seed", seeds(60))
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


@pytest.mark.parametrize("seed", seeds(8))
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


@pytest.mark.parametrize("kind", ["timestamp_ns", "timestamptz_ns"])
def test_each_nanosecond_is_seen(tmp_path: Path, kind: str) -> None:
    """DuckDB itself reads nanoseconds in a zone as microseconds."""
    columns = (Column(1, "id", "long"), Column(2, "at", kind), Column(3, "text", "string"))
    inside = Column(4, "l", LIST, (Column(5, "element", kind),))
    table, moment = table_of((*columns, inside)), 1_700_000_000_123_456_789
    zone = "UTC" if kind == "timestamptz_ns" else None
    stored = pa.timestamp("ns", zone)

    def file(name: str, at: int, within: int) -> DataFile:
        schema = pa.schema([arrow_field(column) for column in columns])
        made = pa.table([pa.array([7]), pa.array([at], stored), pa.array(["a"])], schema=schema)
        element = pa.field("element", stored, metadata={"PARQUET:field_id": "5"})
        values = pa.array([[within]], pa.list_(element))
        field = pa.field("l", values.type, metadata={"PARQUET:field_id": "4"})
        return write_table(tmp_path / name, made.append_column(field, values))

    same = [seen(table, file(name, moment, moment)) for name in ("one", "other")]
    assert same[0] == same[1]
    for at, within in ((moment + 1, moment), (moment, moment + 1)):
        assert seen(table, file("changed", at, within)) != same[0]


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


def _no_text(path: Path, value: bytes) -> DataFile:
    """A file whose second column holds bytes that are no UTF-8."""
    stored = pa.array([value], pa.binary())
    text = pa.StringArray.from_buffers(1, *stored.buffers()[1:])
    fields = [
        pa.field(name, pa.string(), metadata={"PARQUET:field_id": str(number)})
        for number, name in enumerate("as", start=1)
    ]
    return write_table(path, pa.Table.from_arrays([["a"], text], schema=pa.schema(fields)))


def test_every_file_that_cannot_be_read_is_named_at_once_without_a_value(tmp_path: Path) -> None:
    """They go to ledgers, plans and conditions, which more people read than the table."""
    table = table_of((Column(1, "a", "string"), Column(2, "s", "string")))
    sound = write(tmp_path / "sound.parquet", table.columns, [["a", "b"]])
    values = (b"secret\xff", b"\xfehidden")
    bad = [_no_text(tmp_path / f"{n}.parquet", value) for n, value in enumerate(values)]
    files = (bad[0], sound, bad[1])
    found = witnessed(WitnessWork(table, files), range(3), None, Limits())
    assert {one.path for one in found.failures} == {one.path for one in bad}
    ((column, detail),) = {(one.column, one.detail) for one in found.failures}
    assert column == "s" and not any(value in detail for value in ("secret", "hidden"))


def test_too_little_memory_is_not_taken_for_a_fault_of_a_file(tmp_path: Path) -> None:
    column = Column(1, "l", LIST, (Column(2, "element", "string"),))
    rows: list[Row] = [[["x" * 1_000] * 2_000] for _ in range(20)]
    file = write(tmp_path / "wide.parquet", (column,), rows)
    found = witnessed(WitnessWork(table_of((column,)), (file,)), [0], None, Limits(1 << 20))
    assert [(one.path, one.kind) for one in found.failures] == [(file.path, MEMORY)]
    assert not witnessed(WitnessWork(table_of((column,)), (file,)), [0], None, Limits()).failures


@pytest.mark.parametrize(
    ("error", "kind"),
    [(PermissionError(13, "denied"), STORAGE), (FileNotFoundError(2, "gone"), MISSING)],
)
def test_what_a_storage_answers_names_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: OSError, kind: str
) -> None:
    column = Column(1, "id", "long")
    file = write(tmp_path / "a.parquet", (column,), [[1]])

    def refused(*_: object) -> None:
        raise error

    opening: Any = type("Opening", (), {"reach": None, "open": refused})()
    elsewhere = replace(file, path="s3://bucket/a.parquet")
    found = witnessed(WitnessWork(table_of((column,)), (elsewhere,)), [0], opening, Limits())
    assert [(one.path, one.kind) for one in found.failures] == [(elsewhere.path, kind)]


def test_files_are_in_scratch_only_while_they_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "BATCH", 3)
    column = Column(1, "id", "long")
    files = tuple(write(tmp_path / f"of '{n}'.parquet", (column,), [[n]]) for n in range(8))
    held: list[int] = []
    with reading.Witness(table_of((column,)), None, Limits()) as reader:
        honest = reader._fingerprint

        def counted(some: Any, hashed: bool) -> Any:
            held.append(len(list(reader._scratch.directory.iterdir())))
            return honest(some, hashed)

        monkeypatch.setattr(reader, "_fingerprint", counted)
        assert reader.fingerprint(files, True, None).rows == 8
    assert held == [3, 3, 2]


@pytest.mark.parametrize(
    ("kind", "stored"),
    [
        ("timestamp", pa.timestamp("ms")), ("timestamp", pa.timestamp("ns")),
        ("timestamp", pa.timestamp("us", tz="UTC")), ("timestamptz", pa.timestamp("us")),
        ("int", pa.uint32()), ("decimal(9,2)", pa.decimal128(9, 3)), ("string", pa.binary()),
    ],
)  # fmt: skip
@pytest.mark.parametrize("nested", [False, True])
def test_a_new_file_must_hold_what_the_specification_says(
    tmp_path: Path, kind: str, stored: pa.DataType, nested: bool
) -> None:
    """The witness's reader knows forms that other readers misread: equal values are not enough."""
    column = Column(1, "c", kind)
    right, wrong = arrow_field(column), arrow_field(column, stored)
    body: Any = {"id": 1, "name": "c", "required": False, "type": kind}
    if nested:
        column = Column(2, "l", LIST, (column,))
        right, wrong = (
            pa.field("l", pa.list_(f.with_name("element")), metadata={"PARQUET:field_id": "2"})
            for f in (right, wrong)
        )
        inside = {"type": "list", "element-id": 1, "element-required": False, "element": kind}
        body = {"id": 2, "name": "l", "required": False, "type": inside}
    form = Expected({"type": "struct", "fields": [body]})
    found = []
    for number, field in enumerate((right, wrong)):
        empty = pa.Table.from_arrays([pa.array([None], field.type)], schema=pa.schema([field]))
        file = write_table(tmp_path / f"{number}.parquet", empty)
        work = WitnessWork(table_of((column,)), (file,), form=form)
        found.append(witnessed(work, [0], None, Limits()).failures)
    assert found[0] == () and found[1][0].column.startswith("l" if nested else "c")


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
