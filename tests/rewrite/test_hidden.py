"""What deletes hide becomes positions: by the witness, and by pyiceberg's reader of vectors."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.table.puffin import PuffinFile
from pyroaring import BitMap64

from reconciler.rewrite import hidden, read
from reconciler.rewrite.columns import FIELD_ID, Column
from reconciler.rewrite.deletes import Delete, Deletes
from reconciler.rewrite.failures import Stopped
from reconciler.rewrite.files import DataFile
from reconciler.rewrite.hidden import Found, Group, Target, Task
from reconciler.rewrite.read import Damaged, Reader
from reconciler.rewrite.storage import Scratch
from reconciler.table.deletes import PATH_ID, POSITION_ID
from tests.examples import seeds
from tests.rewrite.model import canonical, table_of, write
from tests.rewrite.test_deletes import (
    COLUMNS,
    NOWHERE,
    _exchanged,
    _keys,
    _positions,
    _rows,
    _vector,
)

PATHS = ["file:/t/data/b.parquet", "file:/t/data/a.parquet"]


def _task(directory: Path, *targets: Target, vectors: bool = False, kept: int = 0) -> Task:
    path = f"file:{directory}/out/NUMBER-ATTEMPT"
    puffin = f"{path}.puffin" if vectors else ""
    return Task(table_of(COLUMNS), (Group(targets, f"{path}.parquet"),), puffin, kept_bytes=kept)


def _as_deletes(found: Found) -> list[Delete]:
    """As they are once they are committed."""
    return [
        Delete(
            one.path, "PUFFIN" if one.length else "PARQUET", 9, NOWHERE, True, one.rows,
            one.data_file, offset=one.offset, length=one.length,
        )
        for one in found.files
    ]  # fmt: skip


@pytest.mark.parametrize("vectors", [False, True])
@pytest.mark.parametrize("seed", seeds(8))
def test_what_is_written_hides_what_the_model_deletes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, vectors: bool
) -> None:
    """Of position deletes, vectors and keys of several columns, whose files and rows are many for
    one array."""
    monkeypatch.setattr(read, "POSITION_ROWS", 3)
    monkeypatch.setattr(read, "KEY_ROWS", 2)
    monkeypatch.setattr(read, "KEPT_KEYS", 40)
    chance = random.Random(seed)
    rows = _rows(chance, 40)
    files = [
        replace(write(tmp_path / f"data-{n}.parquet", COLUMNS, rows), sequence=5) for n in (0, 1)
    ]
    gone: dict[str, set[int]] = {file.path: set() for file in files}
    deletes: list[Delete] = []
    for number in range(chance.randint(1, 5)):
        path, sequence = tmp_path / f"delete-{number}", chance.choice((4, 5, 6))
        if chance.random() < 0.5:
            file, some = chance.choice(files), chance.sample(range(40), 7)
            deletes.append(_positions(path, file, some, sequence))
            gone[file.path] |= set(some) if sequence >= 5 else set()
            continue
        at = chance.choice(([0], [1], [2], [1, 2], [0, 1, 2]))
        keys = [[rows[i][c] for c in at] for i in chance.sample(range(40), 3)]
        columns = [COLUMNS[c] for c in at]
        deletes.append(_keys(path, columns, keys, sequence))
        wanted = {tuple(map(canonical, columns, key)) for key in keys}
        for own in gone.values():
            own |= {
                i for i, row in enumerate(rows)
                if sequence > 5 and tuple(map(canonical, columns, [row[c] for c in at])) in wanted
            }  # fmt: skip
    index = Deletes(deletes)
    targets = [
        Target(replace(file, deletes=index.of(file.path, file.sequence, NOWHERE))) for file in files
    ]
    found = hidden.found(_task(tmp_path, *targets, vectors=vectors, kept=1 << 20), None)
    made = _as_deletes(found)
    assert {one.data_file for one in found.files} == {path for path, own in gone.items() if own}
    for file in files:
        changed = _exchanged(file, deletes, [d for d in made if d.data_file == file.path])
        assert (changed.hidden, changed.changed) == (len(gone[file.path]), ())
        assert set(BitMap64.deserialize(found.rows[file.path])) == gone[file.path]
        if vectors and gone[file.path]:
            whole = PuffinFile(Path(made[0].path.removeprefix("file:")).read_bytes()).to_vector()
            assert set(whole[file.path].to_pylist()) == gone[file.path]
    again = [replace(one, known=found.rows[one.file.path]) for one in targets]
    for file in files:
        Path(file.path.removeprefix("file:")).unlink()
    same = hidden.found(_task(tmp_path / "2", *again, vectors=vectors), None)
    assert [(f.data_file, f.rows) for f in same.files] == [
        (f.data_file, f.rows) for f in found.files
    ], "rows that are known are not read again"


def test_positions_that_a_data_file_does_not_have_hide_nothing(tmp_path: Path) -> None:
    file = replace(
        write(tmp_path / "data.parquet", COLUMNS, _rows(random.Random(1), 4)), sequence=5
    )
    beyond = _positions(tmp_path / "beyond", file, [4, 1_000_000], 6)
    partly = _positions(tmp_path / "partly", file, [1, 4], 6)
    alone = hidden.found(_task(tmp_path / "1", Target(replace(file, deletes=(beyond,)))), None)
    assert alone.files == ()
    both = hidden.found(
        _task(tmp_path / "2", Target(replace(file, deletes=(beyond, partly)))), None
    )
    assert [(one.rows, one.sample) for one in both.files] == [(1, (1,))]


def test_positions_beyond_the_rows_that_an_entry_states_are_not_dropped(tmp_path: Path) -> None:
    """The file has ten rows and its entry says four: the witness knows the entry alone."""
    file = replace(
        write(tmp_path / "data.parquet", COLUMNS, _rows(random.Random(1), 10)), sequence=5
    )
    deletes = (
        _positions(tmp_path / "one", file, [1, 7], 6),
        _positions(tmp_path / "two", file, [2, 8], 6),
    )
    stated = replace(file, rows=4, deletes=deletes)
    with pytest.raises(Damaged) as caught:
        hidden.found(_task(tmp_path, Target(stated)), None)
    assert caught.value.path == file.path
    assert list(tmp_path.glob("out/*")) == []
    whole = hidden.found(_task(tmp_path / "true", Target(replace(stated, rows=10))), None)
    assert [one.rows for one in whole.files] == [4]


def _file(tmp_path: Path, name: str = "data") -> DataFile:
    rows = [[i, None, None, None] for i in range(20)]
    return replace(write(tmp_path / f"{name}.parquet", COLUMNS, rows), sequence=1)


def _identities(*deletes: Delete) -> frozenset[tuple[str, int]]:
    return frozenset((one.path, one.offset) for one in deletes)


def test_a_data_file_s_own_deletes_stay_where_they_hide_all_of_it(tmp_path: Path) -> None:
    file = _file(tmp_path)
    own = replace(_vector(tmp_path / "v.puffin", file, [1, 2, 3]), sequence=3)
    inside = _keys(tmp_path / "in", [COLUMNS[0]], [[2], [3]], 2)
    beyond = _keys(tmp_path / "far", [COLUMNS[0]], [[4]], 2)
    for keys, kept, written in ((inside, True, []), (beyond, True, [4]), (inside, False, [3])):
        stays = _identities(own) if kept else frozenset()
        target = Target(replace(file, deletes=(own, keys)), stays)
        found = hidden.found(_task(tmp_path, target, vectors=True), None)
        assert [one.rows for one in found.files] == written
    assert list(tmp_path.glob("out/*")) != []


def test_nothing_is_written_where_nothing_is_hidden(tmp_path: Path) -> None:
    target = Target(
        replace(_file(tmp_path), deletes=(_keys(tmp_path / "k", [COLUMNS[0]], [[99]], 2),))
    )
    for vectors in (False, True):
        assert hidden.found(_task(tmp_path, target, vectors=vectors), None).files == ()
    assert not list(tmp_path.glob("out/*"))


def test_rows_are_handed_back_as_far_as_there_is_room(tmp_path: Path) -> None:
    targets = []
    for name in "ab":
        file = _file(tmp_path, name)
        deletes = (_positions(tmp_path / f"p{name}", file, [1, 3], 1),)
        targets.append(Target(replace(file, deletes=deletes)))
    one = len(BitMap64([1, 3]).serialize())
    for kept, number in ((0, 0), (one, 1), (2 * one, 2)):
        found = hidden.found(_task(tmp_path, *targets, kept=kept), None)
        assert len(found.rows) == number and len(found.files) == 2


@pytest.mark.parametrize("vectors", [False, True])
def test_a_task_that_fails_or_stops_leaves_no_file(tmp_path: Path, vectors: bool) -> None:
    file, other = _file(tmp_path, "a"), _file(tmp_path, "b")
    sound = Target(replace(file, deletes=(_positions(tmp_path / "p", file, [1], 1),)))
    Path(other.path.removeprefix("file:")).write_bytes(b"x" * 400)
    keys = _keys(tmp_path / "k", [COLUMNS[0]], [[1]], 2)
    task = _task(tmp_path, sound, Target(replace(other, deletes=(keys,))), vectors=vectors)
    with pytest.raises(Damaged) as caught:
        hidden.found(task, None)
    assert caught.value.path == other.path
    with pytest.raises(Stopped):
        hidden.found(_task(tmp_path, sound, vectors=vectors), None, lambda: True)
    assert not list(tmp_path.glob("out/*"))


def test_a_key_that_no_schema_has_is_named(tmp_path: Path) -> None:
    keys = replace(_keys(tmp_path / "k", [COLUMNS[0]], [[1]], 2), keys=(77,))
    target = Target(replace(_file(tmp_path), deletes=(keys,)))
    with pytest.raises(Damaged, match="field 77") as caught:
        hidden.found(_task(tmp_path, target), None)
    assert caught.value.path == keys.path


# Position delete files of other writers


def _stored(path: Path, rows: int = 9) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    with Scratch(None) as scratch:
        one = Delete(f"file:{path}", "PARQUET", 1, NOWHERE, True, rows)
        for named, at in Reader(table_of(COLUMNS), scratch).stored_positions(one):
            found.setdefault(named, []).extend(at.tolist())
    return found


def _position_file(
    path: Path, paths: Any, positions: Any, ids: bool = True, **options: Any
) -> Path:
    """A file with names of its own, unless it has no ids."""
    fields = [
        pa.field(name if ids else named, values.type, metadata={FIELD_ID: str(i)} if ids else None)
        for name, named, values, i in zip(
            ("p", "r"), ("file_path", "pos"), (paths, positions), (PATH_ID, POSITION_ID),
            strict=True,
        )
    ]  # fmt: skip
    pq.write_table(pa.Table.from_arrays([paths, positions], schema=pa.schema(fields)), path,
                   store_schema=False, **options)  # fmt: skip
    return path


@pytest.mark.parametrize(
    "options", [{}, {"use_dictionary": False}, {"row_group_size": 2}, {"ids": False}]
)
def test_rows_in_any_order_are_found_by_path(tmp_path: Path, options: dict[str, Any]) -> None:
    paths = pa.array([PATHS[i] for i in (0, 1, 0, 1, 1)])
    file = _position_file(tmp_path / "f", paths, pa.array([7, 3, 7, 1, 2]), **options)
    assert _stored(file) == {PATHS[0]: [7, 7], PATHS[1]: [3, 1, 2]}


def test_a_dictionary_may_hold_paths_that_no_row_has(tmp_path: Path) -> None:
    codes, dictionary = pa.array([0, 1, 0], pa.int32()), pa.array([*PATHS, "file:/t/c.parquet"])
    paths = pa.DictionaryArray.from_arrays(codes, dictionary)
    file = _position_file(tmp_path / "f", paths, pa.array([4, 5, 6]))
    assert _stored(file) == {PATHS[0]: [4, 6], PATHS[1]: [5]}


def test_null_is_of_no_row(tmp_path: Path) -> None:
    file = _position_file(
        tmp_path / "f", pa.array([PATHS[0], None, *PATHS]), pa.array([1, 2, None, 4])
    )
    assert _stored(file) == {PATHS[0]: [1], PATHS[1]: [4]}


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    file = _position_file(
        tmp_path / "f", pa.array(PATHS), pa.array([1, 2]), write_page_checksum=True
    )
    body = file.read_bytes()
    for other in (
        body[:-1], body[:20] + bytes(8) + body[28:], body.replace(b"a.parquet", b"c.parquet"),
    ):  # fmt: skip
        file.write_bytes(other)
        with pytest.raises(Damaged) as caught:
            _stored(file)
        assert caught.value.path == f"file:{file}"


def test_what_is_written_is_one_path_of_small_pages(tmp_path: Path) -> None:
    rows = BitMap64(range(0, 200_000, 2))
    footer = hidden.write_positions(tmp_path / "f", PATHS[0], rows, "zstd", None)
    assert (tmp_path / "f").read_bytes().endswith(footer)
    assert _stored(tmp_path / "f") == {PATHS[0]: list(rows)}
    meta = pq.read_metadata(tmp_path / "f")
    assert (meta.num_row_groups, meta.metadata[b"delete-type"]) == (1, b"position")
    path, position = (meta.row_group(0).column(n) for n in (0, 1))
    assert path.statistics.min == path.statistics.max == PATHS[0]
    assert path.total_compressed_size < 2_000
    assert set(position.encodings) == {"PLAIN", "RLE"}


def test_a_column_of_keys_may_be_text_that_a_file_holds_as_a_dictionary(tmp_path: Path) -> None:
    texts = Column(3, "s", "string")
    rows = [[i, None, "ab"[i % 2], None] for i in range(10)]
    file = replace(write(tmp_path / "d.parquet", COLUMNS, rows), sequence=1)
    keys = _keys(tmp_path / "k", [texts], [["b"]], 2)
    found = hidden.found(_task(tmp_path, Target(replace(file, deletes=(keys,))), kept=99), None)
    assert list(BitMap64.deserialize(found.rows[file.path])) == [1, 3, 5, 7, 9]
