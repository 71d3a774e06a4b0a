"""Live rows under position deletes, against a model of the rows that the test keeps itself.

Data files are numbers of rows; delete files are real Parquet files, with what writers leave behind:
one position in two files or twice in one, positions beyond the rows, of files that are gone, and
delete files of one data file or of a partition.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.io.pyarrow import PyArrowFileIO

from reconciler.catalog import positions
from reconciler.catalog.deletes import AppliedDeletes, apply_deletes
from reconciler.catalog.positions import PositionReader
from reconciler.table.deletes import live_rows
from tests.catalog.test_deletes import SPECS, data_files, delete_files
from tests.examples import examples

FILES = tuple(f"file:///t/{number}.parquet" for number in range(4))
GONE = "file:///t/gone.parquet"


@dataclass(frozen=True)
class Delete:
    """One delete file: (path, position) pairs as written, and its data sequence number. named: the
    one data file that its metadata names, "" for one of the partition. bounds: with bounds of
    paths."""

    rows: tuple[tuple[str, int], ...]
    sequence: int
    named: str = ""
    bounds: bool = True
    vector: bool = False


def write(folder: Path, number: int, delete: Delete) -> str:
    path = folder / f"delete-{number}.parquet"
    ordered = sorted(delete.rows)
    pq.write_table(
        pa.table({"file_path": [p for p, _ in ordered],
                  "pos": pa.array([n for _, n in ordered], pa.int64())}), path,
    )  # fmt: skip
    return str(path)


def observed(
    folder: Path, records: list[int], sequences: list[int], deletes: list[Delete], read: bool
) -> AppliedDeletes:
    """What is seen of a table of one partition."""
    files = data_files(*[
        (path, 1, 7, sequence, count)
        for path, sequence, count in zip(FILES, sequences, records, strict=False)
    ])  # fmt: skip
    rows: list[dict[str, Any]] = []
    for delete in deletes:
        body: dict[str, Any] = {
            "spec": 1, "value": 7, "sequence": delete.sequence, "records": len(delete.rows)
        }  # fmt: skip
        paths = [path for path, _ in delete.rows]
        if delete.vector:
            body |= {"referenced": delete.named, "vector": 40}
        elif delete.named:
            body |= {"referenced": delete.named}
        elif delete.bounds and paths:
            body |= {"paths": (min(paths), max(paths))}
        rows.append(body)
    found = delete_files(*rows)
    for number, delete in enumerate(deletes):
        found.entries.path[number] = write(folder, number, delete)
    reader = PositionReader(PyArrowFileIO(), folder / "kept")
    return apply_deletes(files, found, SPECS, reader if read else None)


def deleted(records: list[int], sequences: list[int], deletes: list[Delete]) -> list[int]:
    """The rows of each data file that a reader leaves out, counted one by one."""
    gone: list[set[int]] = [set() for _ in records]
    for number, sequence in enumerate(sequences):
        vectors = [d for d in deletes if d.vector and d.named == FILES[number]]
        for delete in vectors or deletes:
            if delete.vector and not vectors:
                continue
            if delete.sequence >= sequence and delete.named in ("", FILES[number]):
                gone[number] |= {n for path, n in delete.rows if path == FILES[number]}
    return [
        len([n for n in found if 0 <= n < count])
        for found, count in zip(gone, records, strict=True)
    ]


def holds(found: AppliedDeletes, true: list[int]) -> None:
    rows, live = found.deletes.rows, live_rows(found.files, found.deletes)
    stored = found.files.total_records
    if rows is None:
        assert not sum(true)
        return
    for number, count in enumerate(true):
        assert rows.least[number] <= count <= rows.most[number], (number, true, rows)
    assert rows.least.sum() <= sum(true) <= rows.total_most <= rows.most.sum()
    assert live.least <= stored - sum(true) <= live.most
    assert live.least <= live.estimate <= live.most
    assert not live.exact or live.least == stored - sum(true)
    assert live.estimate == stored - found.files.position_deleted.sum()


TWO = [
    Delete(tuple((FILES[0], n) for n in range(150)), 5, FILES[0]),
    Delete(tuple((FILES[0], n) for n in range(100, 200)), 6, FILES[0]),
]


def test_deletes_at_once_on_the_same_rows_delete_them_once(tmp_path: Path) -> None:
    true = deleted([200], [1], TWO)
    assert true == [200]
    blind = observed(tmp_path, [200], [1], TWO, read=False)
    holds(blind, true)
    assert not live_rows(blind.files, blind.deletes).exact
    seen = observed(tmp_path, [300], [1], TWO, read=True)
    assert live_rows(seen.files, seen.deletes).exact
    assert seen.files.position_deleted.tolist() == [200]


@pytest.mark.parametrize(("count", "files"), [(32, 3), (4, 4), (1, 3)])
def test_an_estimate_adds_up_to_the_positions_of_the_delete_file(
    tmp_path: Path, count: int, files: int
) -> None:
    delete = Delete(tuple((FILES[n % files], n) for n in range(count)), 5)
    seen = observed(tmp_path, [50] * files, [1] * files, [delete], read=False)
    assert seen.files.position_deleted.sum() == count
    assert not live_rows(seen.files, seen.deletes).exact
    exact = observed(tmp_path, [50] * files, [1] * files, [delete], read=True)
    assert live_rows(exact.files, exact.deletes).exact
    assert exact.files.position_deleted.tolist() == deleted([50] * files, [1] * files, [delete])


def test_a_file_that_another_engine_replaced_takes_its_positions_with_it(tmp_path: Path) -> None:
    """Copy-on-write beside positions: the delete file stays, and names rows that are gone."""
    delete = Delete((*((GONE, n) for n in range(50)), *((FILES[0], n) for n in range(50))), 5)
    true = deleted([100, 100], [1, 9], [delete])
    assert true == [50, 0]
    holds(observed(tmp_path, [100, 100], [1, 9], [delete], read=False), true)
    seen = observed(tmp_path, [100, 100], [1, 9], [delete], read=True)
    assert live_rows(seen.files, seen.deletes).exact
    assert seen.files.position_deleted.tolist() == true


def test_what_was_read_is_kept_and_what_is_large_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = observed(tmp_path, [300], [1], TWO, read=True)
    for path in tmp_path.glob("delete-*.parquet"):
        path.unlink()
    reader = PositionReader(PyArrowFileIO(), tmp_path / "kept")
    again = reader(seen.deletes)
    assert sorted(len(found[FILES[0]]) for found in again.values()) == [100, 150]
    monkeypatch.setattr(positions, "MOST_POSITIONS", 200)
    assert [len(found[FILES[0]]) for found in reader(seen.deletes).values()] == [150]
    assert len(list((tmp_path / "kept").iterdir())) == 1, "what is not wanted any more is removed"
    monkeypatch.setattr(positions, "MOST_FILES", 0)
    assert reader(seen.deletes) == {}


def test_a_delete_file_that_cannot_be_read_leaves_bounds(tmp_path: Path) -> None:
    folder = tmp_path / "one"
    folder.mkdir()
    seen = observed(folder, [200], [1], TWO, read=False)
    reader = PositionReader(PyArrowFileIO(), tmp_path / "kept")
    (folder / "delete-0.parquet").write_bytes(b"PAR1 and nothing more")
    (folder / "delete-1.parquet").unlink()
    assert reader(seen.deletes) == {}


pairs = st.tuples(st.sampled_from((*FILES, GONE)), st.integers(0, 14))
random_deletes = st.lists(
    st.builds(
        Delete,
        st.lists(pairs, min_size=1, max_size=12).map(tuple),
        st.integers(1, 6),
        st.just(""),
        st.booleans(),
    )
    | st.builds(
        lambda path, numbers, sequence: Delete(
            tuple((path, n) for n in numbers), sequence, path
        ),
        st.sampled_from((*FILES, GONE)),
        st.lists(st.integers(0, 14), min_size=1, max_size=8),
        st.integers(1, 6),
    ),
    max_size=5,
)  # fmt: skip
vectors = st.dictionaries(
    st.integers(0, 3), st.sets(st.integers(0, 7), min_size=1, max_size=8), max_size=2
)


@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(st.integers(8, 12), min_size=4, max_size=4),
    st.lists(st.integers(1, 6), min_size=4, max_size=4),
    random_deletes,
    vectors,
    st.integers(0, 3),
)
def test_whatever_writers_left_the_bounds_hold_and_what_was_read_is_exact(
    tmp_path_factory: pytest.TempPathFactory,
    records: list[int],
    sequences: list[int],
    deletes: list[Delete],
    by_vector: dict[int, set[int]],
    most: int,
) -> None:
    folder = tmp_path_factory.mktemp("positions")
    deletes = deletes + [
        Delete(tuple((FILES[n], p) for p in rows), 7, FILES[n], vector=True)
        for n, rows in by_vector.items()
    ]
    true = deleted(records, sequences, deletes)
    holds(observed(folder, records, sequences, deletes, read=False), true)
    everything = observed(folder, records, sequences, deletes, read=True)
    holds(everything, true)
    assert live_rows(everything.files, everything.deletes).exact
    assert everything.files.position_deleted.tolist() == true
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(positions, "MOST_FILES", most)
        holds(observed(folder, records, sequences, deletes, read=True), true)
    assert np.all(everything.deletes.dangling | (everything.deletes.records > 0))
