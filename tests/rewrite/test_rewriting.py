"""The engine writes the rows of a model, in the model's order; the witness says so."""

from __future__ import annotations

import decimal
import math
import os
import random
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from reconciler.rewrite import arrow, equal_rows, rewriting, storage
from reconciler.rewrite import order as ordering
from reconciler.rewrite.columns import Column
from reconciler.rewrite.comparison import WitnessWork
from reconciler.rewrite.deletes import Deletes
from reconciler.rewrite.failures import Stopped
from reconciler.rewrite.files import LAST_UPDATED, ROW_ID, DataFile, TableShape
from reconciler.rewrite.memory import ROWS_FACTOR
from reconciler.rewrite.read import Damaged
from reconciler.rewrite.rewriting import rewritten
from reconciler.rewrite.task import FileProperties, Key, Made, Order, Resources, Task
from reconciler.rewrite.witness import Limits, witnessed
from reconciler.spark.session import session
from reconciler.table.row_group_bytes import even_row_groups
from tests.examples import seeds
from tests.rewrite import model
from tests.rewrite.model import (
    PRIMITIVES,
    Row,
    arrow_field,
    canonical,
    table_of,
    write,
    write_table,
)
from tests.rewrite.spills import noted_spills
from tests.rewrite.test_deletes import COLUMNS, NOWHERE, _keys, _positions, _rows, _vector

FORMS: tuple[dict[str, Any], ...] = ({}, {"row_group_size": 4}, {"use_dictionary": False})
PLENTY, LITTLE = Resources(1 << 40), Resources(1)


def run(
    directory: Path,
    table: TableShape,
    files: Sequence[DataFile],
    order: Order = Order(),
    *,
    outputs: int = 2,
    group_rows: int = 5,
    memory: Resources = PLENTY,
    properties: FileProperties = FileProperties(),
) -> Made:
    paths = tuple(f"file:{directory}/out/{i}-ATTEMPT.parquet" for i in range(outputs))
    task = Task(table, tuple(files), order, paths, group_rows, properties)
    return rewritten(task, None, memory)


def files_of(made: Made) -> list[DataFile]:
    return [DataFile(one.path, one.rows, one.size) for one in made.files]


def seen(table: TableShape, files: Sequence[DataFile]) -> tuple[int, int]:
    found = witnessed(WitnessWork(table, tuple(files)), range(len(files)), None, Limits())
    assert not found.failures, found.failures
    return found.fingerprint.rows, found.fingerprint.total


def _place(kind: str, value: Any, descending: bool) -> tuple[Any, ...]:
    """Return what a value is sorted by: NULL first, NaN last, the other way when descending."""
    if value is None:
        return (2, 0) if descending else (0, 0)
    if isinstance(value, float) and math.isnan(value):
        return (0, 0) if descending else (2, 0)
    if isinstance(value, str):
        value = value.encode()
    return (1, _Descending(value)) if descending else (1, value)


class _Descending:
    def __init__(self, value: Any) -> None:
        self.value = value

    def __lt__(self, other: Any) -> bool:
        return bool(other.value < self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Descending) and bool(self.value == other.value)

    __hash__ = None  # type: ignore[assignment]


def _sometimes_by_column(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Of every other seed, each column is read alone, as it is of large files."""
    if seed % 2:
        monkeypatch.setattr(rewriting, "WORTH_OPENING", 1)


@pytest.mark.parametrize("seed", seeds(40))
def test_rows_and_their_order_are_those_of_the_model(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    _sometimes_by_column(monkeypatch, seed)
    chance = random.Random(seed)
    number = Column(9_000, "n", "long")
    columns = (number, *model.random_columns(chance, chance.randint(1, 6)))
    keys = [c for c in columns[1:] if not c.children] or [number]
    chosen = [(c, chance.random() < 0.5) for c in chance.sample(keys, min(2, len(keys)))]
    rows: list[Row] = [
        [i, *(model.random_value(chance, column) for column in columns[1:])] for i in range(40)
    ]
    table, files, at = table_of(columns), [], 0
    while at < len(rows):
        some = rows[at : at + chance.randint(1, 25)]
        options: dict[str, Any] = chance.choice(
            ({}, {"row_group_size": 4}, {"use_dictionary": False})
        )
        files.append(write(tmp_path / f"{at}.parquet", columns, some, **options))
        at += len(some)
    order = Order(tuple(Key(column.field_id, down) for column, down in chosen))
    expected = seen(table, files)
    want = list(range(40))
    for column, down in reversed(chosen):
        place = columns.index(column)
        want.sort(key=lambda i, p=place, c=column, d=down: _place(c.type, rows[i][p], d))
    spills = noted_spills(monkeypatch)
    for memory in (PLENTY, LITTLE):
        made = run(tmp_path, table, files, order, outputs=3, memory=memory)
        assert len(spills) == (memory is LITTLE)
        assert [one.rows for one in made.files] == [13, 13, 14]
        assert seen(table, files_of(made)) == expected
        assert _numbers(made) == want
    packed = run(tmp_path, table, files)
    assert seen(table, files_of(packed)) == expected
    assert [n for f in packed.files for n in pq.read_table(f.path[5:])["n"].to_pylist()] == [
        *range(40)
    ]


def _numbers(made: Made) -> list[int]:
    return [n for f in made.files for n in pq.read_table(f.path[5:])["n"].to_pylist()]


@pytest.mark.parametrize("seed", seeds(10))
def test_deleted_rows_stay_deleted(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    _sometimes_by_column(monkeypatch, seed)
    chance = random.Random(seed)
    rows = _rows(chance, 30)
    file = replace(write(tmp_path / "data.parquet", COLUMNS, rows, row_group_size=8), sequence=5)
    gone = set(chance.sample(range(30), 5))
    first = (
        _vector(tmp_path / "v.puffin", file, sorted(gone))
        if seed % 2
        else _positions(tmp_path / "p.parquet", file, [*gone, 77], 5)
    )
    deletes = [first]
    for at in ([0], [1], [1, 2], [3]):
        columns = [COLUMNS[3].children[0] if c == 3 else COLUMNS[c] for c in at]
        keys = [[_value(rows[i], c) for c in at] for i in chance.sample(range(30), 2)]
        held = [COLUMNS[3]] if at == [3] else columns
        stored = [[{"x": key[0]}] for key in keys] if at == [3] else keys
        delete = _keys(tmp_path / f"k{at}.parquet", held, stored, 6)
        deletes.append(replace(delete, keys=tuple(c.field_id for c in columns)))
        wanted = {tuple(map(canonical, columns, key)) for key in keys}
        gone |= {
            i for i, row in enumerate(rows)
            if tuple(map(canonical, columns, [_value(row, c) for c in at])) in wanted
        }  # fmt: skip
    table = table_of(COLUMNS)
    applied = replace(file, deletes=Deletes(deletes).of(file.path, 5, NOWHERE))
    alone = write(
        tmp_path / "live.parquet", COLUMNS, [r for i, r in enumerate(rows) if i not in gone]
    )
    for order in (Order(), Order((Key(1),))):
        made = run(tmp_path, table, [applied], order, outputs=1)
        assert sum(one.rows for one in made.files) == 30 - len(gone)
        assert seen(table, files_of(made)) == seen(table, [alone])


def _value(row: Row, at: int) -> Any:
    return (row[3] or {}).get("x") if at == 3 else row[at]


def test_lineage_is_kept(tmp_path: Path) -> None:
    column = Column(1, "id", "long")
    ids = Column(ROW_ID, "_row_id", "long"), Column(LAST_UPDATED, "_last", "long")
    table = table_of((column,), lineage=True)
    old = replace(
        write(tmp_path / "a.parquet", (column,), [[5], [6]]), first_row_id=100, sequence=3
    )
    moved = replace(
        write(tmp_path / "b.parquet", (column, *ids), [[7, None, None], [8, 4, 2]]),
        first_row_id=50, sequence=9,
    )  # fmt: skip
    upgraded = write(tmp_path / "c.parquet", (column,), [[9]])
    position = replace(_vector(tmp_path / "v.puffin", old, [0]), data_file=old.path)
    files = [replace(old, deletes=(position,)), moved, upgraded]
    made = run(tmp_path, table, files, Order((Key(1, True),)), outputs=1)
    found = pq.read_table(made.files[0].path[5:]).to_pylist()
    assert [tuple(row.values()) for row in found] == [
        (9, None, None), (8, 4, 2), (7, 50, 9), (6, 101, 3),
    ]  # fmt: skip
    assert seen(table, files_of(made)) == seen(table, files)


def test_evolved_columns(tmp_path: Path) -> None:
    """Renamed, reordered, widened, dropped and added columns, and those of a name mapping."""
    inner = (Column(5, "x", "long"), Column(6, "y", "int", default=3), Column(7, "z", "string"))
    columns = (
        Column(1, "id", "long"), Column(2, "price", "decimal(12,2)"),
        Column(3, "st", "struct", inner), Column(4, "p", "string"),
        Column(8, "l", "list", (Column(9, "element", "double"),)),
    )  # fmt: skip
    table = table_of(columns, mapping='[{"field-id": 1, "names": ["id", "ID"]}]')
    old = (
        Column(3, "s", "struct", (Column(7, "w", "string"), Column(5, "x", "int"))),
        Column(99, "dropped", "binary"), Column(1, "key", "int"),
        Column(2, "price", "decimal(9,2)"),
        Column(8, "l", "list", (Column(9, "element", "float"),)),
    )  # fmt: skip
    first = replace(
        write(tmp_path / "a.parquet", old, [
            [{"w": "a", "x": 1}, b"?", 1, None, [1.5, None]], [None, b"?", 2, None, None],
        ]),
        partition=((4, "string", "here"),),
    )  # fmt: skip
    plain = pa.table({"ID": pa.array([3], pa.int64()), "other": ["?"]})
    second = write_table(tmp_path / "b.parquet", plain)
    made = run(tmp_path, table, [first, second], outputs=1)
    assert pq.read_table(made.files[0].path[5:]).to_pylist() == [
        {"id": 1, "price": None, "st": {"x": 1, "y": 3, "z": "a"}, "p": "here", "l": [1.5, None]},
        {"id": 2, "price": None, "st": None, "p": "here", "l": None},
        {"id": 3, "price": None, "st": None, "p": None, "l": None},
    ]
    assert seen(table, files_of(made)) == seen(table, [first, second])


@pytest.mark.parametrize("stored", [
    pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string()),
    pa.dictionary(pa.int32(), pa.large_string()),
])  # fmt: skip
def test_columns_come_back_in_the_writers_arrow_types(tmp_path: Path, stored: pa.DataType) -> None:
    column, inside = Column(1, "s", "string"), Column(3, "s", "string")
    columns = (column, Column(2, "st", "struct", (inside,)))
    table = table_of(columns)
    values = pa.array(["b", None, "a", "b"]).cast(stored)
    nested = pa.StructArray.from_arrays([values], fields=[arrow_field(inside, stored)])
    fields = [arrow_field(column, stored), arrow_field(columns[1], nested.type)]
    path = tmp_path / "a.parquet"
    pq.write_table(pa.Table.from_arrays([values, nested], schema=pa.schema(fields)), path)
    file = DataFile(f"file:{path}", 4, path.stat().st_size)
    other = write(tmp_path / "b.parquet", columns, [["c", {"s": "c"}]])
    made = run(tmp_path, table, [file, other], Order((Key(1),)), outputs=1)
    written = pq.read_table(made.files[0].path[5:])
    assert written.schema.field("s").type == pa.string()
    assert written["s"].to_pylist() == [None, "a", "b", "b", "c"]
    assert written["st"].to_pylist() == [{"s": value} for value in (None, "a", "b", "b", "c")]


@pytest.mark.parametrize("kind", ["int", "long"])
@pytest.mark.parametrize("stored", [pa.int8(), pa.int16()])
def test_integers_annotated_with_fewer_bits_are_read(
    tmp_path: Path, kind: str, stored: pa.DataType
) -> None:
    """Stored as INT32, and annotated as INTEGER(8,signed) or INTEGER(16,signed)."""
    column, inside = Column(1, "v", kind), Column(3, "v", kind)
    columns = (column, Column(2, "st", "struct", (inside,)))
    table, values = table_of(columns), pa.array([3, None, -128, 127], stored)
    nested = pa.StructArray.from_arrays([values], fields=[arrow_field(inside, stored)])
    fields = [arrow_field(column, stored), arrow_field(columns[1], nested.type)]
    path = tmp_path / "a.parquet"
    pq.write_table(pa.Table.from_arrays([values, nested], schema=pa.schema(fields)), path)
    file = DataFile(f"file:{path}", 4, path.stat().st_size)
    made = run(tmp_path, table, [file], Order((Key(1),)), outputs=1)
    written = pq.read_table(made.files[0].path[5:])
    assert written["v"].to_pylist() == [None, -128, 3, 127]
    assert written["st"].to_pylist() == [{"v": value} for value in (None, -128, 3, 127)]
    assert seen(table, files_of(made)) == seen(table, [file])


@pytest.mark.parametrize("kind", PRIMITIVES)
def test_a_file_has_the_form_that_the_specification_allows(tmp_path: Path, kind: str) -> None:
    """As checked of every file before a rewrite; the footers are read by pyarrow."""
    chance = random.Random(kind)
    column = Column(1, "v", kind)
    table = table_of((column,))
    file = write(
        tmp_path / "a.parquet", (column,), [[model.random_value(chance, column)] for _ in "abc"]
    )
    made = run(tmp_path, table, [file], Order((Key(1),)), outputs=1)
    leaf = pq.ParquetFile(made.files[0].path[5:]).schema.column(0)
    expected = {
        "uuid": ("FIXED_LEN_BYTE_ARRAY", "UUID"), "string": ("BYTE_ARRAY", "STRING"),
        "binary": ("BYTE_ARRAY", "NONE"), "fixed[3]": ("FIXED_LEN_BYTE_ARRAY", "NONE"),
        "decimal(9,2)": ("INT32", "DECIMAL"), "decimal(20,3)": ("FIXED_LEN_BYTE_ARRAY", "DECIMAL"),
        "decimal(38,10)": ("FIXED_LEN_BYTE_ARRAY", "DECIMAL"), "date": ("INT32", "DATE"),
        "time": ("INT64", "TIME"), "timestamp": ("INT64", "TIMESTAMP"),
        "timestamptz": ("INT64", "TIMESTAMP"),
    }.get(kind)  # fmt: skip
    if expected is not None:
        assert (leaf.physical_type, leaf.logical_type.type) == expected


def test_nans_and_long_values_are_counted(tmp_path: Path) -> None:
    inner = (Column(3, "x", "float"),)
    columns = (Column(1, "d", "double"), Column(2, "st", "struct", inner), Column(4, "s", "string"))
    rows: list[Row] = [
        [math.nan, {"x": math.nan}, "b" * 5_000], [1.0, None, None],
        [None, {"x": None}, "a" * 5_000], [math.nan, {"x": 1.0}, "c"],
    ]  # fmt: skip
    file = write(tmp_path / "a.parquet", columns, rows)
    (output,) = run(tmp_path, table_of(columns), [file], outputs=1, group_rows=1).files
    assert output.nans == {1: 2, 3: 1}
    assert output.bounds == {4: (b"a" * 5_000, b"c")}
    assert len(output.split_offsets) == 4


def test_rows_are_cut_evenly() -> None:
    assert even_row_groups(10, 3, 2) == [[1, 2], [1, 2], [2, 2]]
    assert even_row_groups(0, 3, 2) == []
    assert even_row_groups(2, 3, 10) == [[1], [1]]
    for rows, files, most in ((1_000_003, 7, 131), (5, 9, 1), (64, 1, 64)):
        cut = even_row_groups(rows, files, most)
        assert sum(map(sum, cut)) == rows and max(map(max, cut)) <= most


def test_a_curve_keeps_near_rows_together(tmp_path: Path) -> None:
    columns = (Column(1, "a", "int"), Column(2, "b", "string"))
    chance = random.Random(5)
    rows: list[Row] = [[chance.randrange(100), f"{chance.randrange(100):03}"] for _ in range(4_000)]
    file = write(tmp_path / "a.parquet", columns, rows)
    made = run(
        tmp_path, table_of(columns), [file], Order((Key(1), Key(2)), curve=True), outputs=16,
        group_rows=1_000,
    )  # fmt: skip
    spans = []
    for one in made.files:
        found = pq.read_table(one.path[5:])
        a = found["a"].to_numpy()
        b = np.array(found["b"].to_pylist()).astype(int)
        spans.append((np.ptp(a) + 1) * (np.ptp(b) + 1))
    assert sum(spans) < 2.0 * 100 * 100, "16 files of a square overlap little"


def test_nothing_is_left_of_a_task_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    column = Column(1, "id", "long")
    files = [
        write(tmp_path / f"{i}.parquet", (column,), [[j] for j in range(50)]) for i in range(3)
    ]
    path = tmp_path / "1.parquet"
    body = bytearray(path.read_bytes())
    body[8:40] = bytes(255 - byte for byte in body[8:40])
    path.write_bytes(bytes(body))
    for memory, order in (
        (PLENTY, Order()),
        (PLENTY, Order((Key(1),))),
        (LITTLE, Order((Key(1),))),
    ):
        with pytest.raises(Damaged) as caught:
            run(tmp_path, table_of((column,)), files, order, memory=memory)
        assert caught.value.path == files[1].path
        assert list((tmp_path / "out").iterdir()) == []
    path.unlink()
    with pytest.raises(FileNotFoundError) as missing:
        run(tmp_path, table_of((column,)), files)
    assert missing.value.filename == files[1].path


def test_a_task_stops_between_row_groups(tmp_path: Path) -> None:
    column = Column(1, "id", "long")
    file = write(tmp_path / "a.parquet", (column,), [[j] for j in range(50)])
    calls = iter(range(100))
    task = Task(table_of((column,)), (file,), Order((Key(1),)), (f"{tmp_path}/out.parquet",), 5)
    with pytest.raises(Stopped):
        rewritten(task, None, PLENTY, lambda: next(calls) > 4)
    assert not (tmp_path / "out.parquet").exists()


@pytest.mark.parametrize("spread", [1, 300, 1 << 20, 1 << 40, 1 << 63])
def test_digits_sort_like_the_integers(spread: int) -> None:
    chance = np.random.default_rng(7)
    values = chance.integers(-(spread // 2) - 1, spread // 2, 1_000, dtype=np.int64)
    values[::7] = values[0]
    found = ordering.stable_order([values], len(values))
    assert found.tolist() == np.argsort(values, kind="stable").tolist()


@pytest.mark.parametrize("seed", seeds(10))
def test_columns_beyond_32_bit_offsets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Arrow joins no texts and lists of more than 2 GiB; a lower bound takes the same way."""
    monkeypatch.setattr(arrow, "OFFSET_BYTES", 100)
    chance = random.Random(seed)
    columns = (Column(9_000, "n", "long"), Column(9_001, "s", "string"),
               *model.random_columns(chance, 5))  # fmt: skip
    rows: list[Row] = [
        [i, f"{-i % 7} of a long text", *(model.random_value(chance, c) for c in columns[2:])]
        for i in range(60)
    ]
    files = [
        write(tmp_path / f"{i}.parquet", columns, rows[i : i + 20], use_dictionary=False)
        for i in (0, 20, 40)
    ]
    order = Order((Key(9_001), Key(9_000)), curve=seed % 3 == 2)
    made = [
        run(tmp_path, table_of(columns), files, order, group_rows=30, memory=memory)
        for memory in (PLENTY, LITTLE)
    ]
    for one in made:
        assert seen(table_of(columns), files_of(one)) == seen(table_of(columns), files)
    if not order.curve:
        assert _numbers(made[0]) == sorted(range(60), key=lambda i: (-i % 7, i))
    assert _numbers(made[0]) == _numbers(made[1])


@pytest.mark.soak
def test_texts_of_more_than_2_gib_are_compared_and_numbered() -> None:
    """The chunks share one buffer."""
    chunk = pa.array(["x" * (64 << 20), "y"])
    values = pa.chunked_array([chunk] * 33)
    assert equal_rows.numbers_of_rows([values.chunks], len(values)).tolist() == [0, 1] * 33
    (ranks,) = ordering.sort_parts(values, descending=False)
    assert ranks.tolist() == [1, 2] * 33


def test_few_long_texts_decode_to_more_than_is_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A dictionary of them is small; the rows go through the disk."""
    spills = noted_spills(monkeypatch)
    columns = (Column(1, "n", "long"), Column(2, "s", "string"))
    rows: list[Row] = [[-i, "long" * 30_000 + str(i % 2)] for i in range(60)]
    file = write(tmp_path / "a.parquet", columns, rows, row_group_size=20)
    made = run(tmp_path, table_of(columns), [file], Order((Key(1),)), memory=Resources(4 << 20))
    assert spills and file.size * ROWS_FACTOR < 4 << 20
    assert _numbers(made) == list(range(-59, 1))


def test_scratch_of_processes_that_are_gone_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    with storage.Scratch(None) as own:
        gone = own.directory.with_name(own.directory.name.replace(f"-{os.getpid()}-", "-4999999-"))
        gone.mkdir()
        (tmp_path / "layout-scratch-elsewhere-4999999-x").mkdir()
        with storage.Scratch(None):
            assert own.directory.exists() and not gone.exists()
    assert [path.name for path in tmp_path.iterdir()] == ["layout-scratch-elsewhere-4999999-x"]


@pytest.mark.parametrize("other", ["host", "namespace"])
def test_scratch_of_a_process_that_cannot_be_seen_from_here_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other: str
) -> None:
    """Containers may share a directory, and each counts its processes from 1."""
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    with storage.Scratch(None) as own:
        gone = own.directory.with_name(own.directory.name.replace(f"-{os.getpid()}-", "-4999999-"))
        gone.mkdir()
        with monkeypatch.context() as elsewhere:
            if other == "host":
                elsewhere.setattr(storage.socket, "gethostname", lambda: "other")
            else:
                elsewhere.setattr(storage, "_namespace", lambda: 1)
            begin = storage.prefix_without_leftovers(storage.SCRATCH, tmp_path)
        assert gone.exists() and own.directory.exists()
        assert not own.directory.name.startswith(begin.rpartition("-")[0].rpartition("-")[0])


def test_what_a_killed_session_left_is_removed_by_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.delenv("SPARK_LOCAL_DIRS", raising=False)
    settings = {"spark.master": "local[2]"}
    with session._scratch(settings) as own:
        assert settings["spark.local.dir"] == own
        gone = tmp_path / Path(own).name.replace(f"-{os.getpid()}-", "-4999999-")
        (gone / "blockmgr-1").mkdir(parents=True)
        chosen = {"spark.master": "local[2]", "spark.local.dir": "/elsewhere"}
        with session._scratch(chosen):
            assert Path(own).exists() and not gone.exists()
        assert chosen["spark.local.dir"] == "/elsewhere"


def test_a_delete_file_that_cannot_be_applied_is_named_itself(tmp_path: Path) -> None:
    column, other = Column(1, "id", "long"), Column(2, "s", "string")
    table = table_of((column, other))
    file = write(tmp_path / "a.parquet", (column, other), [[1, "a"], [2, "b"]])
    lacks = replace(_keys(tmp_path / "k.parquet", [other], [["a"]], 6), keys=(1,))
    plain = pa.table({"elsewhere": pa.array([1], pa.int64())})
    without_ids = replace(lacks, path=write_table(tmp_path / "p.parquet", plain).path)
    for delete in (lacks, without_ids):
        with pytest.raises(Damaged) as caught:
            run(tmp_path, table, [replace(file, deletes=(delete,))])
        assert caught.value.path == delete.path


def test_names_of_directories_are_no_marks(tmp_path: Path) -> None:
    column = Column(1, "id", "long")
    file = write(tmp_path / "a.parquet", (column,), [[1]])
    within = tmp_path / "ATTEMPT NUMBER"
    (output,) = run(within, table_of((column,)), [file]).files
    assert Path(output.path[5:]).parent == within / "out"


def test_the_column_that_cannot_be_decoded_is_named(tmp_path: Path) -> None:
    columns = tuple(Column(i, f"c{i}", "string") for i in range(1, 4))
    rows: list[Row] = [[f"{i} first", f"{i} second", f"{i} third"] for i in range(50)]
    file = write(tmp_path / "a.parquet", columns, rows, write_page_checksum=True,
                 use_dictionary=False, compression="none")  # fmt: skip
    path = tmp_path / "a.parquet"
    path.write_bytes(path.read_bytes().replace(b"7 second", b"7 secund", 1))
    for order in (Order(), Order((Key(1),))):
        with pytest.raises(Damaged) as caught:
            run(tmp_path, table_of(columns), [file], order)
        assert (caught.value.path, caught.value.column) == (file.path, "c2")
        assert "CRC" in caught.value.said and "CRC" not in caught.value.detail
    assert not list((tmp_path / "out").iterdir())


def test_too_little_memory_and_errors_of_the_disk_are_no_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    column = Column(1, "id", "long")
    file = write(tmp_path / "a.parquet", (column,), [[1]])
    table = table_of((column,))
    for raised in (pa.ArrowMemoryError("malloc"), OSError(5, "Input/output error")):

        def failing(*_: object, error: Exception = raised, **__: object) -> None:
            raise error

        monkeypatch.setattr(pq.ParquetFile, "read_row_group", failing)
        with pytest.raises(type(raised)) as caught:
            run(tmp_path, table, [file])
        assert caught.value is raised


@pytest.mark.parametrize("at_top", [True, False])
def test_decimals_of_too_many_digits_are_refused(tmp_path: Path, at_top: bool) -> None:
    """The bytes of a decimal hold larger numbers than its digits."""
    column = Column(1, "d", "decimal(9,2)")
    held = column if at_top else Column(2, "l", "list", (replace(column, name="element"),))
    kind = pa.decimal128(9, 2)
    unscaled = pa.array([decimal.Decimal(2 * 10**9), decimal.Decimal(5)], pa.decimal128(38, 0))
    values = pa.Array.from_buffers(kind, 2, unscaled.buffers())
    if not at_top:
        marked = pa.list_(arrow_field(held.children[0]))
        values = pa.ListArray.from_arrays(pa.array([0, 2], pa.int32()), values, marked)
    table = pa.Table.from_arrays([values], schema=pa.schema([arrow_field(held)]))
    file = write_table(tmp_path / "a.parquet", table)
    with pytest.raises(Damaged) as caught:
        run(tmp_path, table_of((held,)), [file])
    assert caught.value.column == ("d" if at_top else "l.element")


def test_positions_that_no_row_can_have_hide_nothing(tmp_path: Path) -> None:
    file = replace(write(tmp_path / "a.parquet", COLUMNS, _rows(random.Random(1), 5)), sequence=5)
    position = _positions(tmp_path / "p.parquet", file, [-1, 2, 99, -(1 << 60)], 5)
    made = run(tmp_path, table_of(COLUMNS), [replace(file, deletes=(position,))], outputs=1)
    assert [one.rows for one in made.files] == [4]


def test_names_that_look_like_paths(tmp_path: Path) -> None:
    """Arrow reads a path from a name that begins with a dot or a bracket."""
    inner = (Column(3, ".x", "double"), Column(4, "[0]", "long"), Column(5, "a.b", "string"))
    columns = (Column(1, "[1]", "long"), Column(2, ".s", "struct", inner), Column(6, ".s.a", "int"))
    rows: list[Row] = [
        [i, {".x": float("nan"), "[0]": -i, "a.b": f"{i}"}, i] for i in range(6)
    ]  # fmt: skip
    file = replace(write(tmp_path / "a.parquet", columns, rows), sequence=5)
    gone = replace(_keys(tmp_path / "k.parquet", [columns[1]], [[rows[2][1]]], 6), keys=(4, 5))
    made = run(
        tmp_path, table_of(columns), [replace(file, deletes=(gone,))], Order((Key(4), Key(3))),
        outputs=1,
    )  # fmt: skip
    found = pq.read_table(made.files[0].path[5:])
    assert found["[1]"].to_pylist() == [5, 4, 3, 1, 0] and made.files[0].nans == {3: 5}


@pytest.mark.soak
def test_lists_of_more_than_2_gib_of_texts(tmp_path: Path) -> None:
    """Arrow decodes no such row group at once."""
    columns = (Column(1, "l", "list", (Column(2, "element", "string"),)), Column(3, "n", "long"))
    words = pa.DictionaryArray.from_arrays(
        pa.array(np.zeros(2_200, dtype=np.int32)), pa.array(["x" * (1 << 20)])
    )
    lists = pa.ListArray.from_arrays(pa.array(range(2_201), pa.int32()), words)
    fields = [arrow_field(columns[0]).with_type(lists.type), arrow_field(columns[1])]
    marked = pa.list_(pa.field("element", lists.type.value_type,
                               metadata={"PARQUET:field_id": "2"}))  # fmt: skip
    fields[0] = fields[0].with_type(marked)
    numbers = pa.array(range(2_200, 0, -1), pa.int64())
    file = write_table(tmp_path / "a.parquet",
                       pa.Table.from_arrays([lists.cast(marked), numbers],
                                            schema=pa.schema(fields)))  # fmt: skip
    made = run(tmp_path, table_of(columns), [file], Order((Key(3),)), outputs=1, group_rows=1_000)
    with pq.ParquetFile(made.files[0].path[5:]) as written:
        lengths = [
            batch["l"].flatten().nbytes // 1_000_000 for batch in written.iter_batches(100)
        ]  # fmt: skip
    assert sum(lengths) == 22 * 104 and _numbers(made) == list(range(1, 2_201))
