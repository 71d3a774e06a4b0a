"""Deleting a file through Iceberg's FileIO, without a JVM."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from reconciler.spark.commit.storage import JavaStorage


def _deleting(said: str) -> JavaStorage:
    """Return the storage of a table whose FileIO raises this."""

    def fails(path: str) -> None:
        raise RuntimeError(said)

    storage = JavaStorage()
    storage.java = SimpleNamespace(io=lambda: SimpleNamespace(deleteFile=fails))
    return storage


def test_a_file_that_is_gone_already_is_deleted_without_an_error() -> None:
    _deleting("org.apache.iceberg.exceptions.NotFoundException: no file").delete_file("a")
    _deleting("java.io.FileNotFoundException: a").delete_file("a")
    with pytest.raises(RuntimeError):
        _deleting("software.amazon.awssdk: Access Denied").delete_file("a")
