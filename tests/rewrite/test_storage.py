"""Files of another store: fetched once, stored whole or not at all, by a store that fails."""

from __future__ import annotations

import errno
import io
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from reconciler.errors import EXIT_UNAVAILABLE, ReconcilerError
from reconciler.rewrite.storage import Opening, Scratch
from reconciler.spark.schedule import native


@dataclass
class Store:
    """Objects by address; each cut short by `lost` bytes when they are written.

    full: a copy fails as a full disk does.
    """

    objects: dict[str, bytes] = field(default_factory=dict)
    fetched: list[str] = field(default_factory=list)
    lost: int = 0
    full: bool = False

    def new_input(self, location: str) -> Any:
        store = self

        class Input:
            def open(self) -> io.BytesIO:
                store.fetched.append(location)
                return io.BytesIO(store.objects[location])

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
    error = native._of_storage("rewrite sales.t", str(caught.value))
    assert isinstance(error, ReconcilerError) and error.exit_code == EXIT_UNAVAILABLE
