"""The file that a path names is deleted, and no other."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO

from reconciler.commit.local_storage import LocalStorage
from reconciler.errors import UnsupportedError


@pytest.mark.parametrize("form", ["file://{}", "file:{}", "{}"])
def test_a_path_that_pyiceberg_reads_as_another_deletes_no_other_file(
    tmp_path: Path, form: str
) -> None:
    """Before, the files without what a parser of URLs drops were deleted."""
    storage, table = object.__new__(LocalStorage), SimpleNamespace(io=PyArrowFileIO())
    storage.table = table  # type: ignore[assignment]
    odd = {"a\nb": "ab", "c\tc": "cc", "d#x": "d", "e?x": "e", "f;x": "f"}
    for name in (*odd, *odd.values()):
        (tmp_path / name).touch()
    for name in odd:
        path = form.format(tmp_path / name)
        assert storage.has_file(path)
        storage.delete_file(path)
        assert not storage.has_file(path)
    assert {one.name for one in tmp_path.iterdir()} == {*odd.values()}


def test_in_another_store_such_a_file_stays() -> None:
    storage: Any = object.__new__(LocalStorage)
    storage.table = SimpleNamespace(io=SimpleNamespace(delete=None))
    for one in "\n\r\t#?":
        with pytest.raises(UnsupportedError):
            storage.delete_file(f"s3://b/t/data/a{one}b.parquet")
