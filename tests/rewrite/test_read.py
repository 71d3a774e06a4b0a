"""Threads that read data files of one task share what delete files hold."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa

from reconciler.rewrite.columns import Column
from reconciler.rewrite.deletes import Delete
from reconciler.rewrite.read import Reader
from reconciler.rewrite.storage import Scratch
from tests.rewrite.model import table_of

ID = Column(1, "id", "long")
FILES = [Delete(f"d{n}.parquet", "PARQUET", 9, (0, ""), True, 1, keys=(1,)) for n in range(48)]


class Numbered(Reader):
    """A delete file holds its own number; how often each is read is counted."""

    def __init__(self, scratch: Scratch) -> None:
        super().__init__(table_of((ID,)), scratch)
        self.read: list[str] = []

    def _delete_columns(self, one: Delete, columns: Sequence[Column]) -> list[list[pa.Array]]:
        self.read.append(one.path)
        return [[pa.array([int(one.path[1:].partition(".")[0])], pa.int64())]]


def test_each_thread_gets_the_keys_of_its_own_delete_files() -> None:
    """Each data file has fewer deletes than the one before, as those that were written later."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with Scratch(None) as scratch, ThreadPoolExecutor(8) as pool:
            reader = Numbered(scratch)

            def held(first: int) -> list[int]:
                found = []
                for _ in range(20):
                    found = [
                        number
                        for part in reader.keys((1,), FILES[first:])
                        for number in part[0].to_pylist()
                    ]
                    assert found == list(range(first, len(FILES)))
                return found

            list(pool.map(held, range(len(FILES))))
    finally:
        sys.setswitchinterval(interval)
    assert sorted(reader.read) == sorted(one.path for one in FILES)
