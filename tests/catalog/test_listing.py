"""What a storage says of its files, and what it does not."""

from __future__ import annotations

from typing import Any

from pyarrow.fs import FileInfo, FileType

from reconciler.catalog.listing import _in_store
from reconciler.table.orphans import LEAST_AGE_MS, Search, old_files


class Store:
    """Says the time of writing of one of its files only."""

    def get_file_info(self, _: Any) -> list[FileInfo]:
        return [
            FileInfo("b/t/data/old.parquet", FileType.File, size=1, mtime_ns=10**9),
            FileInfo("b/t/data/unknown.parquet", FileType.File, size=1),
        ]


def test_a_file_without_a_time_of_writing_is_not_old() -> None:
    listed = list(_in_store(Store(), "s3://b/t", "b/t"))
    assert [one.changed_ms for one in listed] == [1_000, None]
    old = old_files(listed, "s3://b/t", Search(0), LEAST_AGE_MS + 1_000)
    assert [one.path for one in old] == ["s3://b/t/data/old.parquet"]
