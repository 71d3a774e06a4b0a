"""Delete files that many data files have are read once each, and hide what the model says."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reconciler.api.task_memory import Limits
from reconciler.rewrite import decoder
from reconciler.rewrite.comparison import Exchange, WitnessWork
from reconciler.rewrite.deletes import Delete, Deletes
from reconciler.rewrite.files import DataFile
from reconciler.rewrite.witness import witnessed
from tests.examples import seeds
from tests.rewrite.model import Row, canonical, table_of, write
from tests.rewrite.test_deletes import COLUMNS, NOWHERE, POSITIONS, _keys, _rows, _vector

OLDEST, NEWEST = 3, 7


def _wide(path: Path, of: list[DataFile], rows: list[list[int]], sequence: int) -> Delete:
    """A position delete file of several data files. rows: of each."""
    stored = [[file.path, at] for file, own in zip(of, rows, strict=True) for at in own]
    file = write(path, POSITIONS, stored)
    return Delete(file.path, "PARQUET", sequence, NOWHERE, True, rows=len(stored), length=file.size)


def _applied(files: list[DataFile], deletes: list[Delete]) -> list[DataFile]:
    of = Deletes(deletes).of
    return [replace(file, deletes=of(file.path, file.sequence, NOWHERE)) for file in files]


def _exchanged(files: list[DataFile], vectors: list[Delete]) -> Any:
    new = frozenset((one.path, one.offset) for one in vectors)
    exchanges = tuple(
        Exchange(file, tuple(one for one in vectors if one.data_file == file.path), new)
        for file in files
    )
    work = WitnessWork(table_of(COLUMNS), exchanges=exchanges)
    return witnessed(work, range(len(files)), None, Limits())


@pytest.mark.parametrize("seed", seeds(10))
def test_many_data_files_are_as_the_model_says(tmp_path: Path, seed: int) -> None:
    """Of different ages, with deletes of some, of all, and of keys."""
    chance = random.Random(seed)
    files: list[DataFile] = []
    stored: list[list[Row]] = []
    for number in range(5):
        stored.append(_rows(chance, 25))
        file = write(tmp_path / f"data-{number}", COLUMNS, stored[-1])
        files.append(replace(file, sequence=chance.randint(OLDEST, NEWEST)))
    gone: list[set[int]] = [set() for _ in files]
    deletes = []
    for number in range(chance.randint(2, 6)):
        path, sequence = tmp_path / f"delete-{number}", chance.randint(OLDEST - 1, NEWEST + 1)
        if chance.random() < 0.5:
            held = [sorted(chance.sample(range(25), chance.choice((0, 3)))) for _ in files]
            deletes.append(_wide(path, files, held, sequence))
            for file, own, rows in zip(files, gone, held, strict=True):
                own |= set(rows) if sequence >= file.sequence else set()
            continue
        at = chance.choice(([0], [1], [1, 2]))
        columns = [COLUMNS[c] for c in at]
        keys = [[chance.choice(stored)[chance.randrange(25)][c] for c in at] for _ in range(3)]
        deletes.append(_keys(path, columns, keys, sequence))
        wanted = {tuple(map(canonical, columns, key)) for key in keys}
        for file, own, held_rows in zip(files, gone, stored, strict=True):
            own |= {
                i for i, row in enumerate(held_rows)
                if sequence > file.sequence
                and tuple(map(canonical, columns, [row[c] for c in at])) in wanted
            }  # fmt: skip
    applied = _applied(files, deletes)
    found = witnessed(WitnessWork(table_of(COLUMNS), tuple(applied)), range(5), None, Limits())
    live = [
        write(tmp_path / f"live-{n}", COLUMNS, [r for i, r in enumerate(rows) if i not in own])
        for n, (rows, own) in enumerate(zip(stored, gone, strict=True))
    ]
    alone = witnessed(WitnessWork(table_of(COLUMNS), tuple(live)), range(5), None, Limits())
    assert (found.failures, found.fingerprint) == ((), alone.fingerprint)
    vectors = [
        _vector(tmp_path / f"v-{n}", file, sorted(own))
        for n, (file, own) in enumerate(zip(files, gone, strict=True))
    ]
    seen = _exchanged(applied, vectors)
    assert (seen.failures, seen.hidden, seen.changed) == ((), sum(map(len, gone)), ())
    number = chance.randrange(5)
    vectors[number] = _vector(tmp_path / "other", files[number], sorted(gone[number] ^ {7}))
    (changed,) = _exchanged(applied, vectors).changed
    assert changed.path == files[number].path and changed.back + changed.gone == 1


@pytest.fixture
def queries(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the decoder is asked."""
    asked: list[str] = []
    honest = decoder.connect

    class Noting:
        def __init__(self, *limits: Any) -> None:
            self._made = honest(*limits)

        def execute(self, query: str, *values: Any) -> Any:
            asked.append(f"{query} {values}")
            return self._made.execute(query, *values)

        def __getattr__(self, name: str) -> Any:
            return getattr(self._made, name)

    monkeypatch.setattr(decoder, "connect", Noting)
    return asked


def _positions_of_all(directory: Path, files: list[DataFile], number: int) -> Delete:
    rows = [[number, number + 1] for _ in files]
    return _wide(directory / f"wide-{number}", files, rows, NEWEST + number)


def _keys_of_all(directory: Path, files: list[DataFile], number: int) -> Delete:
    return _keys(directory / f"keys-{number}", [COLUMNS[0]], [[number]], NEWEST + number)


@pytest.mark.parametrize("aged", [False, True])
@pytest.mark.parametrize("made", [_positions_of_all, _keys_of_all])
def test_reads_grow_with_files_and_not_with_pairs_of_them(
    tmp_path: Path,
    queries: list[str],
    made: Callable[[Path, list[DataFile], int], Delete],
    aged: bool,
) -> None:
    """aged: each data file is newer than some of the delete files."""

    def asked(number: int) -> tuple[int, int]:
        """Return how many queries so many data files and delete files take."""
        directory = tmp_path / str(number)
        directory.mkdir()
        rows = [[i, None, None, None] for i in range(40)]
        files = [
            replace(
                write(directory / f"data-{n}", COLUMNS, rows), sequence=NEWEST + n if aged else 1
            )
            for n in range(number)
        ]
        deletes = [made(directory, files, n) for n in range(number)]
        applied = _applied(files, deletes)
        hidden = [set[int]() for _ in files]
        for own, file in zip(hidden, applied, strict=True):
            for one in file.deletes:
                n = deletes.index(one)
                own |= {n} if one.keys else {n, n + 1}
        vectors = [
            _vector(directory / f"v-{n}", file, sorted(own))
            for n, (file, own) in enumerate(zip(files, hidden, strict=True))
        ]
        queries.clear()
        seen = _exchanged(applied, vectors)
        assert (seen.hidden, seen.changed) == (sum(map(len, hidden)), ())
        exchange = len(queries)
        queries.clear()
        work = WitnessWork(table_of(COLUMNS), tuple(applied))
        found = witnessed(work, range(number), None, Limits())
        assert found.fingerprint.rows == 40 * number - sum(map(len, hidden))
        return exchange, len(queries)

    few, many = asked(4), asked(16)
    assert all(more <= 6 * less for less, more in zip(few, many, strict=True)), (few, many)


def test_a_shared_delete_file_that_cannot_be_read_is_named_once(tmp_path: Path) -> None:
    """Data files without it are looked at all the same."""
    rows = [[i, None, None, None] for i in range(9)]
    files = [replace(write(tmp_path / f"d-{n}", COLUMNS, rows), sequence=n) for n in range(4)]
    whole = _wide(tmp_path / "whole", files, [[1]] * 4, 9)
    broken = _wide(tmp_path / "broken", files, [[2]] * 4, 2)
    path = tmp_path / "broken"
    body = path.read_bytes()
    path.write_bytes(body[:4] + bytes(40) + body[44:])
    seen = _exchanged(
        _applied(files, [whole, broken]),
        [_vector(tmp_path / f"v-{n}", file, [1]) for n, file in enumerate(files)],
    )
    assert [one.path for one in seen.failures] == [broken.path]
    assert (seen.hidden, seen.changed) == (1, ()), "the file that is newer than the broken one"


def test_positions_are_spilled_where_there_is_too_little_memory(tmp_path: Path) -> None:
    rows, number = 250_000, 4
    files = [DataFile(f"file:/nowhere/data-{n}", rows, 1, sequence=1) for n in range(number)]
    wide = [_half(tmp_path / f"wide-{half}", files, half, rows) for half in (0, 1)]
    vectors = [
        _vector(tmp_path / f"v-{n}", file, list(range(rows))) for n, file in enumerate(files)
    ]
    work = WitnessWork(
        table_of(COLUMNS),
        exchanges=tuple(
            Exchange(replace(file, deletes=tuple(wide)), (vector,), frozenset())
            for file, vector in zip(files, vectors, strict=True)
        ),
    )
    seen = witnessed(work, range(number), None, Limits(16 << 20))
    assert (seen.failures, seen.hidden, seen.changed) == ((), rows * number, ())


def _half(path: Path, files: list[DataFile], half: int, rows: int) -> Delete:
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    from tests.rewrite.model import arrow_field

    at = np.arange(half, rows, 2)
    table = pa.table(
        [
            pa.array(np.repeat([file.path for file in files], len(at))),
            pa.array(np.tile(at, len(files))),
        ],
        schema=pa.schema([arrow_field(column) for column in POSITIONS]),
    )
    pq.write_table(table, path)
    return Delete(f"file:{path}", "PARQUET", 2, NOWHERE, True, rows=len(table))
