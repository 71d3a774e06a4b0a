"""What was read is charged also where a batch fails before anything of it is recorded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from reconciler.engines.commit import batch
from reconciler.errors import UnavailableError
from reconciler.plan.actions.delete_maintenance import CompactDeletes
from reconciler.plan.actions.rewrite import BinPack
from reconciler.plan.ordering import ARRIVAL
from tests.conftest import sqlite_catalog
from tests.delete_commits import delete_positions
from tests.engines.random_tables.actions import engine


@pytest.mark.parametrize("deletes", [False, True])
def test_what_was_read_is_charged_though_the_catalog_ends_before_the_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, deletes: bool
) -> None:
    (tmp_path / "warehouse").mkdir()

    def lost(*_: object) -> None:
        raise UnavailableError("the catalog is gone")

    monkeypatch.setattr(batch.commit, "prepare", lost)
    with engine(sqlite_catalog(tmp_path), tmp_path) as local:
        catalog: Any = SqlCatalog("rec", **dict(local.config.properties))
        catalog.create_namespace("loop")
        table = catalog.create_table("loop.t", pa.schema([("id", pa.int64())]))
        for n in range(2):
            table.append(pa.table({"id": range(n * 100, n * 100 + 100)}))
        files = sorted(table.inspect.files()["file_path"].to_pylist())
        for position in range(2):
            delete_positions(table, files[0], [position])
        drawn: Any = type("Drawn", (), {"name": "t"})
        seen = local.table(drawn)
        head = seen.head()
        assert head is not None
        tasks, gone = seen.tasks(head, files), seen.delete_files(head)
        paths = [file.path for file in gone] if deletes else files
        size = sum(file.size for file in (gone if deletes else tasks.values()))
        kind: Any = CompactDeletes if deletes else BinPack
        action = kind(inputs=tuple(sorted(paths)), **({} if deletes else {"ordering": ARRIVAL}))
        with pytest.raises(UnavailableError):
            local.run(drawn, [action])
        found = local.ledger.outcomes()
        assert sum(one.read_bytes for one in found) == size > 0
