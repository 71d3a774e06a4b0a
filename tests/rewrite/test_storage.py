"""Files of another store: fetched once, stored whole or not at all, by a store that fails."""

from __future__ import annotations

import errno
import io
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from pyroaring import BitMap64

from reconciler.commit import errors as commit_errors
from reconciler.engines.schedule import native
from reconciler.errors import EXIT_UNAVAILABLE, ReconcilerError
from reconciler.rewrite import hidden, read
from reconciler.rewrite.deletes import Delete
from reconciler.rewrite.failures import STORAGE, Failure
from reconciler.rewrite.read import Damaged
from reconciler.rewrite.storage import Opening, Scratch
from reconciler.spark.session import translate
from tests.rewrite.model import table_of, write
from tests.rewrite.test_deletes import COLUMNS, _keys


@dataclass
class Store:
    """Objects by address; each cut short by `lost` bytes when they are written.

    read: bytes of each reading. full: a copy fails as a full disk does.
    """

    objects: dict[str, bytes] = field(default_factory=dict)
    fetched: list[str] = field(default_factory=list)
    read: list[int] = field(default_factory=list)
    lost: int = 0
    full: bool = False

    def new_input(self, location: str) -> Any:
        store = self

        class Input:
            def open(self) -> io.BytesIO:
                store.fetched.append(location)

                class Stream(io.BytesIO):
                    def read(self, size: int | None = -1, /) -> bytes:
                        found = super().read(size)
                        store.read.append(len(found))
                        return found

                return Stream(store.objects[location])

            def __len__(self) -> int:
                return len(store.objects[location])

        return Input()

    def new_output(self, location: str) -> Any:
        store = self

        class Stream(io.BytesIO):
            def write(self, data: Any) -> int:
                if store.full:
                    raise OSError(errno.ENOSPC, "No space left on device")
                return super().write(data)

            def close(self) -> None:
                whole = self.getvalue()
                store.objects[location] = whole[: len(whole) - store.lost]
                super().close()

        class Output:
            def create(self, overwrite: bool) -> Stream:
                return Stream()

        return Output()

    def delete(self, location: str) -> None:
        self.objects.pop(location, None)


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Store:
    made = Store()
    monkeypatch.setattr(Opening, "open", lambda self, location: made)
    return made


OPENING = Opening({}, None)


def _file(directory: Path) -> Path:
    path = directory / "made.new"
    path.write_bytes(b"rows" * 1000)
    return path


def test_a_file_is_stored_whole(store: Store) -> None:
    with Scratch(OPENING) as scratch:
        scratch.store(_file(scratch.directory), "s3://b/out")
    assert store.objects == {"s3://b/out": b"rows" * 1000}


@pytest.mark.parametrize("fault", [{"lost": 1}, {"full": True}])
def test_what_is_not_stored_whole_is_removed(store: Store, fault: dict[str, Any]) -> None:
    vars(store).update(fault)
    with Scratch(OPENING) as scratch, pytest.raises(OSError):
        scratch.store(_file(scratch.directory), "s3://b/out")
    assert store.objects == {}


@pytest.mark.parametrize("keeps", [False, True])
def test_a_file_that_is_forgotten_is_fetched_again_unless_it_is_kept(
    store: Store, keeps: bool
) -> None:
    store.objects["s3://b/in"] = b"rows"
    with Scratch(OPENING, keeps=keeps) as scratch:
        for _ in range(2):
            assert scratch.path("s3://b/in").read_bytes() == b"rows"
            scratch.forget("s3://b/in")
    assert len(store.fetched) == (1 if keeps else 2)
    assert not scratch.directory.exists()


def test_an_adopted_file_is_read_where_it_is(store: Store) -> None:
    with Scratch(OPENING, keeps=True) as scratch:
        made = _file(scratch.directory)
        scratch.adopt("s3://b/out", made)
        assert scratch.path("s3://b/out") == made
    assert store.fetched == []


def test_a_full_scratch_is_named_and_unavailable(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.objects["s3://b/in"] = b"rows"

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("shutil.copyfileobj", full)
    with Scratch(OPENING) as scratch, pytest.raises(OSError) as caught:
        scratch.path("s3://b/in")
    assert not scratch.directory.exists()
    full_disk = Failure("", "", str(caught.value), STORAGE, number=caught.value.errno or 0)
    for errors in (translate, commit_errors):
        error = native._of_storage(errors, "rewrite sales.t", full_disk)
        assert isinstance(error, ReconcilerError) and error.exit_code == EXIT_UNAVAILABLE
        assert "no space" in str(error) or "No space" in str(error.details)


def test_an_error_of_the_storage_that_nobody_knows_is_unavailable_and_told() -> None:
    """Such as a name that is too long, of a partition of long texts."""
    detail = "[Errno 36] File name too long"
    failure = Failure("", "", detail, STORAGE, number=errno.ENAMETOOLONG)
    for errors in (translate, commit_errors):
        error = native._of_storage(errors, "rewrite sales.t", failure)
        assert isinstance(error, ReconcilerError) and error.exit_code == EXIT_UNAVAILABLE
        assert detail in str(error.details)


@pytest.mark.parametrize("tail", [64 << 10, 64])
def test_of_a_data_file_under_equality_deletes_only_keys_are_fetched(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tail: int
) -> None:
    """Footer, columns of keys in every row group, members of structs; the rest is never read."""
    monkeypatch.setattr(read, "TAIL_BYTES", tail)
    rows: list[Any] = [[i, None, "x" * 50 + str(i * i), {"x": i % 7}] for i in range(4_000)]
    file = write(tmp_path / "d.parquet", COLUMNS, rows, row_group_size=1_000)
    keys = (
        _keys(tmp_path / "k", [COLUMNS[0]], [[3], [3_999]], 2),
        _keys(tmp_path / "l", [COLUMNS[3]], [[{"x": 5}]], 2),
    )
    there = replace(file, path="s3://b/d.parquet", sequence=1, deletes=(
        keys[0], replace(keys[1], keys=(5,)),
    ))  # fmt: skip
    body = (tmp_path / "d.parquet").read_bytes()
    store.objects[there.path] = body
    task = hidden.Task(
        table_of(COLUMNS), (hidden.Group((hidden.Target(there),), "s3://b/NUMBER"),),
        kept_bytes=1 << 20,
    )  # fmt: skip
    found = hidden.found(task, OPENING)
    wanted = {i for i in range(4_000) if i in (3, 3_999) or i % 7 == 5}
    assert set(BitMap64.deserialize(found.rows[there.path])) == wanted
    assert sum(store.read) < len(body) / 2 + tail
    (made,) = found.files
    assert store.objects[made.path].endswith(made.footer)
    store.objects[there.path] = body[:-30]
    with pytest.raises(OSError, match="bytes"):
        hidden.found(task, OPENING)
    store.objects[there.path] = body[:-30] + bytes(30)
    with pytest.raises(Damaged) as caught:
        hidden.found(task, OPENING)
    assert caught.value.path == there.path
    assert not [path for path in store.objects if path != there.path and path != made.path]


def test_a_file_of_many_vectors_is_fetched_once(store: Store, tmp_path: Path) -> None:
    file = write(tmp_path / "d.parquet", COLUMNS, [[i, None, None, None] for i in range(9)])
    targets = tuple(
        hidden.Target(replace(file, path=f"s3://b/{n}.parquet"), known=BitMap64([n]).serialize())
        for n in range(4)
    )
    group = (hidden.Group(targets, ""),)
    task = hidden.Task(table_of(COLUMNS), group, "s3://b/first.puffin", kept_bytes=1 << 20)
    first = hidden.found(task, OPENING)
    deletes = {
        one.data_file: Delete(
            one.path, "PUFFIN", 2, (0, ""), True, one.rows, one.data_file, offset=one.offset,
            length=one.length,
        )
        for one in first.files
    }  # fmt: skip
    store.fetched.clear()
    again = tuple(
        hidden.Target(replace(one.file, deletes=(deletes[one.file.path],))) for one in targets
    )
    second = hidden.found(replace(task, groups=(hidden.Group(again, ""),)), OPENING)
    assert store.fetched == ["s3://b/first.puffin"] and second.rows == first.rows
