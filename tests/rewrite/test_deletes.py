"""Rows that the witness takes for deleted are those that the specification says are deleted."""

from __future__ import annotations

import math
import random
import struct
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyroaring import BitMap64

from reconciler.api.task_memory import Limits
from reconciler.rewrite.columns import Column
from reconciler.rewrite.comparison import Exchange, WitnessWork
from reconciler.rewrite.deletes import VECTOR, Delete, Deletes
from reconciler.rewrite.files import DataFile
from reconciler.rewrite.witness import witnessed
from reconciler.table.deletes import PATH_ID, POSITION_ID
from tests.examples import seeds
from tests.rewrite.model import Row, canonical, table_of, write

COLUMNS = (
    Column(1, "id", "long"), Column(2, "f", "double"), Column(3, "s", "string"),
    Column(4, "st", "struct", (Column(5, "x", "int"),)),
)  # fmt: skip
POSITIONS = (Column(PATH_ID, "file_path", "string"), Column(POSITION_ID, "pos", "long"))
NOWHERE = (0, "")


def _rows(chance: random.Random, number: int) -> list[Row]:
    floats, texts = (None, math.nan, 0.0, -0.0, 1.5), (None, "null", "", "a")
    structs = (None, {"x": None}, {"x": 1})
    return [
        [chance.choice((None, i, 7)), chance.choice(floats), chance.choice(texts),
         chance.choice(structs)]
        for i in range(number)
    ]  # fmt: skip


def _positions(path: Path, of: DataFile, rows: list[int], sequence: int) -> Delete:
    file = write(path, POSITIONS, [[of.path, row] for row in rows])
    return Delete(file.path, "PARQUET", sequence, NOWHERE, True, rows=len(rows))


def _vector(path: Path, of: DataFile, rows: list[int]) -> Delete:
    body = VECTOR + BitMap64(rows).serialize()
    whole = struct.pack(">I", len(body)) + body + struct.pack(">I", zlib.crc32(body))
    path.write_bytes(b"PFA1" + whole)
    return Delete(
        f"file:{path}", "PUFFIN", 9, NOWHERE, True, len(rows), of.path, offset=4, length=len(whole)
    )


def _keys(path: Path, columns: list[Column], rows: list[Row], sequence: int) -> Delete:
    file = write(path, columns, rows)
    keys = tuple(column.field_id for column in columns)
    return Delete(file.path, "PARQUET", sequence, NOWHERE, True, keys=keys)


def _seen(file: DataFile, deletes: list[Delete]) -> tuple[int, int]:
    applied = replace(file, deletes=Deletes(deletes).of(file.path, file.sequence, NOWHERE))
    found = witnessed(WitnessWork(table_of(COLUMNS), (applied,)), [0], None, Limits())
    assert not found.failures, found.failures
    return found.fingerprint.rows, found.fingerprint.total


def _exchanged(file: DataFile, before: list[Delete], after: list[Delete]) -> Any:
    one = replace(file, deletes=Deletes(before).of(file.path, file.sequence, NOWHERE))
    later = Deletes(after).of(file.path, file.sequence, NOWHERE)
    new = frozenset((d.path, d.offset) for d in after if d not in before)
    work = WitnessWork(table_of(COLUMNS), exchanges=(Exchange(one, later, new),))
    found = witnessed(work, [0], None, Limits())
    assert not found.failures, found.failures
    return found


@pytest.mark.parametrize("seed", seeds(12))
def test_live_rows_are_those_of_the_model(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    rows = _rows(chance, 30)
    file = replace(write(tmp_path / "data.parquet", COLUMNS, rows), sequence=5)
    gone: set[int] = set()
    deletes = []
    for number in range(chance.randint(1, 4)):
        path, sequence = tmp_path / f"delete-{number}", chance.choice((4, 5, 6))
        if chance.random() < 0.4:
            some = chance.sample(range(30), 4)
            deletes.append(_positions(path, file, some, sequence))
            gone |= set(some) if sequence >= 5 else set()
        else:
            at = chance.choice(([0], [1], [2], [1, 2], [0, 1, 2]))
            keys = [[rows[i][c] for c in at] for i in chance.sample(range(30), 2)]
            columns = [COLUMNS[c] for c in at]
            deletes.append(_keys(path, columns, keys, sequence))
            wanted = {tuple(map(canonical, columns, key)) for key in keys}
            gone |= {
                i for i, row in enumerate(rows)
                if sequence > 5 and tuple(map(canonical, columns, [row[c] for c in at])) in wanted
            }  # fmt: skip
    live = [row for i, row in enumerate(rows) if i not in gone]
    alone = write(tmp_path / "live.parquet", COLUMNS, live)
    assert _seen(file, deletes) == _seen(alone, [])
    changed = _exchanged(file, deletes, [_vector(tmp_path / "v.puffin", file, sorted(gone))])
    assert (changed.hidden, changed.changed) == (len(gone), ())
    other = sorted(gone ^ {chance.randrange(30)})
    (difference,) = _exchanged(file, deletes, [_vector(tmp_path / "w.puffin", file, other)]).changed
    assert difference.path == file.path and difference.back + difference.gone == 1


def test_a_key_in_a_struct_and_a_narrower_type(tmp_path: Path) -> None:
    rows: list[Row] = [
        [1, None, None, {"x": 1}],
        [2, None, None, {"x": None}],
        [3, None, None, None],
    ]
    file = replace(write(tmp_path / "data.parquet", COLUMNS, rows), sequence=1)
    nested = Column(4, "st", "struct", (Column(5, "x", "int"),))
    held = write(tmp_path / "e.parquet", [nested], [[{"x": 1}]])
    narrow = write(tmp_path / "n.parquet", [Column(1, "id", "int")], [[3]])
    deletes = [
        Delete(held.path, "PARQUET", 2, NOWHERE, True, keys=(5,)),
        Delete(narrow.path, "PARQUET", 2, NOWHERE, True, keys=(1,)),
    ]
    alone = write(tmp_path / "live.parquet", COLUMNS, rows[1:2])
    assert _seen(file, deletes) == _seen(alone, [])


def test_a_key_of_nanoseconds_in_a_zone(tmp_path: Path) -> None:
    column = Column(1, "at", "timestamptz_ns")
    file = replace(write(tmp_path / "data.parquet", [column], [[7], [8], [9]]), sequence=1)
    keys = write(tmp_path / "e.parquet", [column], [[8]])
    deletes = (Delete(keys.path, "PARQUET", 2, NOWHERE, True, keys=(1,)),)
    left = write(tmp_path / "live.parquet", [column], [[7], [9]])
    found = [
        witnessed(WitnessWork(table_of([column]), (one,)), [0], None, Limits())
        for one in (replace(file, deletes=deletes), left)
    ]
    assert found[0].fingerprint == found[1].fingerprint and found[0].fingerprint.rows == 2


def test_a_vector_with_a_wrong_checksum_is_named(tmp_path: Path) -> None:
    file = write(tmp_path / "data.parquet", COLUMNS, _rows(random.Random(1), 9))
    vector = _vector(tmp_path / "v.puffin", file, [1, 2])
    body = bytearray((tmp_path / "v.puffin").read_bytes())
    body[-1] ^= 1
    (tmp_path / "v.puffin").write_bytes(bytes(body))
    one = replace(file, deletes=(vector,))
    found = witnessed(WitnessWork(table_of(COLUMNS), (one,)), [0], None, Limits())
    assert [one.path for one in found.failures] == [vector.path]


def test_what_new_delete_files_hold_beside_the_rows_of_their_file_is_seen(tmp_path: Path) -> None:
    """Positions of another file, of no row, twice, or of which only the manifest entry knows."""
    file = replace(
        write(tmp_path / "data.parquet", COLUMNS, _rows(random.Random(1), 9)), sequence=1
    )
    old = _positions(tmp_path / "old", file, [1, 2], 1)

    def changed(rows: list[list[Any]], counted: int) -> tuple[int, ...]:
        new = write(tmp_path / "new", POSITIONS, rows)
        of = Delete(new.path, "PARQUET", 2, NOWHERE, True, counted, file.path)
        found = _exchanged(file, [old], [of]).changed
        if not found:
            return 0, 0, 0, 0, 0
        (one,) = found
        return one.back, one.gone, one.repeated, one.stray, one.miscounted

    own: list[list[Any]] = [[file.path, 1], [file.path, 2]]
    assert changed(own, 2) == (0, 0, 0, 0, 0)
    assert changed([*own, ["file:/other", 3]], 3) == (0, 0, 0, 1, 0)
    assert changed([*own, [file.path, 9]], 3) == (0, 0, 0, 1, 0)
    assert changed([*own, [file.path, None]], 3) == (0, 0, 0, 1, 0)
    beyond = _positions(tmp_path / "beyond", file, [1, 2, 9], 1)
    new = write(tmp_path / "new", POSITIONS, [*own, [file.path, 9]])
    of = Delete(new.path, "PARQUET", 2, NOWHERE, True, 3, file.path)
    assert not _exchanged(file, [beyond], [of]).changed
    assert changed([*own, [file.path, 2]], 3) == (0, 0, 1, 0, 0)
    assert changed(own, 3) == (0, 0, 0, 0, 1)
    assert changed(own[:1], 1) == (1, 0, 0, 0, 0)
