"""Rows that move are in the partition that pyiceberg's own Python transforms give them."""

from __future__ import annotations

import datetime as dt
import decimal
import random
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.transforms import parse_transform

from reconciler.queries.transforms import PARTITIONED_TYPES
from reconciler.rewrite import arrow
from reconciler.rewrite.columns import Column
from reconciler.rewrite.comparison import WitnessWork
from reconciler.rewrite.files import DataFile
from reconciler.rewrite.moves import Partitions
from reconciler.rewrite.partition_check import TargetField
from reconciler.rewrite.rewriting import rewritten
from reconciler.rewrite.task import Field, Key, Made, Order, Resources, Task, Unfit
from reconciler.rewrite.witness import OTHER_PARTITION, Limits, witnessed
from tests.rewrite import model
from tests.rewrite.model import Row, table_of, write
from tests.rewrite.test_rewriting import LITTLE, PLENTY, files_of, seen

ARGUMENTS = {"bucket": "[5]", "truncate": "[2]"}
TYPES = {"decimal": "decimal(9,2)", "fixed": "fixed[3]"}
CASES = [
    (f"{name}{ARGUMENTS.get(name, '')}", TYPES.get(kind, kind))
    for name, kinds in PARTITIONED_TYPES.items()
    for kind in kinds
]


def _moved(
    directory: Path, file: DataFile, columns: tuple[Column, ...], fields: tuple[Field, ...],
    memory: Resources, file_rows: float = 1e9,
) -> Made:  # fmt: skip
    path = f"file:{directory}/out/x-NUMBER-ATTEMPT.parquet"
    task = Task(
        table_of(columns), (file,), Order((Key(2),)), (path,), 7, moves=fields,
        file_rows=file_rows,
    )  # fmt: skip
    return rewritten(task, None, memory)


def _expected(transform: str, kind: str, value: Any) -> Any:
    """Return the partition's value in JSON, computed row by row in Python."""
    source = Schema.model_validate({
        "type": "struct", "schema-id": 0,
        "fields": [{"id": 1, "name": "v", "required": False, "type": kind}],
    }).fields[0].field_type  # fmt: skip
    plain = _internal(kind, value)
    made = parse_transform(transform).transform(source)(plain)
    if made is None or transform in ("year", "month", "hour") or transform.startswith("bucket"):
        return made
    return _json(kind if transform != "day" else "date", made)


def _internal(kind: str, value: Any) -> Any:
    if value is None:
        return None
    if kind == "uuid":
        return uuid.UUID(bytes=value)
    if isinstance(value, dt.datetime):
        since = value.replace(tzinfo=None) - dt.datetime(1970, 1, 1)
        return since // dt.timedelta(microseconds=1)
    return (value - dt.date(1970, 1, 1)).days if isinstance(value, dt.date) else value


def _json(kind: str, value: Any) -> Any:
    if kind == "date" and isinstance(value, int):
        return (dt.date(1970, 1, 1) + dt.timedelta(days=value)).isoformat()
    if kind.startswith("timestamp"):
        at = dt.datetime(1970, 1, 1) + dt.timedelta(microseconds=value)
        text = at.isoformat(timespec="microseconds")
        return f"{text}+00:00" if kind == "timestamptz" else text
    if isinstance(value, bytes):
        return value.hex().upper()
    if isinstance(value, uuid.UUID | decimal.Decimal):
        return str(value)
    return value


@pytest.mark.parametrize(("transform", "kind"), CASES)
def test_every_row_is_in_its_partition(tmp_path: Path, transform: str, kind: str) -> None:
    chance = random.Random(f"{transform} {kind}")
    columns = (Column(1, "v", kind), Column(2, "n", "int"))
    rows: list[Row] = [[model.random_value(chance, columns[0]), 59 - i] for i in range(60)]
    file = write(tmp_path / "a.parquet", columns, rows, row_group_size=16)
    fields = (Field(1, "v/ %", transform, kind),)
    for memory in (PLENTY, LITTLE):
        made = _moved(tmp_path, file, columns, fields, memory)
        assert seen(table_of(columns), files_of(made)) == seen(table_of(columns), [file])
        places = [one.partition for one in made.files]
        assert len(set(places)) == len(places)
        for one in made.files:
            found = pq.read_table(one.path[5:]).to_pylist()
            assert [row["n"] for row in found] == sorted(row["n"] for row in found)
            values = {rows[59 - row["n"]][0] for row in found}
            assert {_expected(transform, kind, value) for value in values} == set(one.partition)
            one_directory = Path(one.path[5:]).parent
            assert one_directory.parent == tmp_path / "out"
            assert one_directory.name.startswith("v%2F%20%25=")
        _assert_altered_partitions_are_seen(columns, transform, made)


def _assert_altered_partitions_are_seen(
    columns: tuple[Column, ...], transform: str, made: Made
) -> None:
    """An entry that says the partition of another file is named, and one that says its own not."""
    files, stated = files_of(made), [one.partition[0] for one in made.files]
    for said in (stated, [*stated[1:], stated[0]]):
        placed = tuple(
            replace(file, moved=(TargetField(1, columns[0].type, transform, value),))
            for file, value in zip(files, said, strict=True)
        )
        found = witnessed(
            WitnessWork(table_of(columns), placed), range(len(placed)), None, Limits()
        )
        wrong = {file.path for file in placed} if said != stated else set()
        assert {(one.path, one.detail) for one in found.failures} == {
            (path, OTHER_PARTITION) for path in wrong
        }


def test_a_partition_gets_the_files_that_its_rows_need(tmp_path: Path) -> None:
    columns = (Column(1, "v", "string"), Column(2, "n", "int"), Column(3, "d", "date"))
    rows: list[Row] = [["ab"[i % 20 == 0], i, dt.date(2020, 1, 1 + i % 2)] for i in range(200)]
    file = write(tmp_path / "a.parquet", columns, rows)
    fields = (Field(1, "v", "identity", "string"), Field(3, "d_day", "day", "date"))
    made = _moved(tmp_path, file, columns, fields, PLENTY, file_rows=30)
    counts: dict[tuple[Any, ...], list[int]] = {}
    for one in made.files:
        counts.setdefault(one.partition, []).append(one.rows)
    assert counts == {
        ("b", "2020-01-01"): [10], ("a", "2020-01-02"): [33, 33, 34],
        ("a", "2020-01-01"): [30, 30, 30],
    }  # fmt: skip


@pytest.mark.parametrize(("transform", "kind", "value"), [
    ("identity", "timestamp", 253_402_300_800_000_000), ("day", "timestamp", -(1 << 62)),
    ("hour", "timestamp", 1 << 62), ("year", "date", 2**31 - 1), ("identity", "date", 2**31 - 1),
])  # fmt: skip
def test_dates_that_the_libraries_do_not_have_are_left_to_spark(
    transform: str, kind: str, value: int
) -> None:
    """A transform that returns NULL for them would put their rows into a wrong partition."""
    column = Column(1, "v", kind)
    stored = pa.int32() if kind == "date" else pa.int64()
    values = pa.chunked_array([pa.array([0, value], stored).cast(arrow.type_of(column))])
    with pytest.raises(Unfit):
        found = Partitions([Field(1, "v", transform, kind)], [values])
        [(found.entry(n), found.directory(n)) for n in range(2)]


@pytest.mark.parametrize("kind", ["timestamp_ns", "timestamptz_ns"])
def test_hours_of_nanoseconds_are_rounded_down(kind: str) -> None:
    """Before 1970 too; the library itself has no hours of nanoseconds."""
    hour = 3_600 * 10**9
    times = [0, -1, None, 5 * hour + 1, 5 * hour - 1, -hour, 2**63 - 1, 1 - 2**63]
    stored = arrow.type_of(Column(1, "v", kind))
    values = pa.chunked_array([pa.array(times, pa.int64()).cast(stored)])
    expected = [None if one is None else one // hour for one in times]
    for column in (values, values.dictionary_encode()):
        found = Partitions([Field(1, "v", "hour", kind)], [column])
        assert [found.entry(n)[0] for n in found.of_row.tolist()] == expected
