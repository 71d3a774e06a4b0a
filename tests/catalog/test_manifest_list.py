"""Manifest lists are decoded as pyiceberg does, by one decoder for all lists of a schema."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.manifest import read_manifest_list

from reconciler.catalog import manifest_list
from reconciler.catalog.checked_avro import CheckedInput
from tests.conftest import sqlite_catalog


def test_lists_of_one_schema_share_a_decoder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "warehouse").mkdir()
    catalog = SqlCatalog("rec", **dict(sqlite_catalog(tmp_path).properties))
    catalog.create_namespace("db")
    derived: list[Any] = []
    derive = manifest_list.resolve_reader
    monkeypatch.setattr(
        manifest_list, "resolve_reader", lambda *given: derived.append(given[0]) or derive(*given)
    )
    manifest_list._decoder_of.cache_clear()
    rows = pa.table({"k": [1, 2, 3]})
    for version in ("1", "2"):
        for number in range(3):
            table = catalog.create_table(
                f"db.v{version}_{number}", rows.schema, properties={"format-version": version}
            )
            for _ in range(number + 1):
                table.append(rows)
            place = table.current_snapshot().manifest_list
            file = table.io.new_input(place)
            found = manifest_list.manifests_in(CheckedInput(file))
            assert len(found) == number + 1
            assert [repr(one) for one in found] == [repr(one) for one in read_manifest_list(file)]
    assert len(derived) == 2  # one for each version of the format
