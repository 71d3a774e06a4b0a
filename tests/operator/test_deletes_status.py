"""status.deletes: counts of real position deletes, ranges under equality deletes, damage."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from reconciler.api.catalog_config import CatalogConfig
from reconciler.catalog.deletes import apply_deletes
from reconciler.catalog.observe import observe_table
from reconciler.errors import TableDamagedError
from reconciler.loop.step import Step, state_of
from reconciler.operator.layout import look
from reconciler.operator.layout.deletes_status import deletes_status
from reconciler.table.observation import Observation
from tests.catalog.test_deletes import SPECS, data_files, delete_files
from tests.operator.deleting import Deleter
from tests.operator.scene import TABLE, Lake


def observed(lake: Lake) -> Observation:
    properties = {"type": "sql", **lake.properties}
    config = CatalogConfig(name="lake", type="sql", properties=properties, source="test")
    return observe_table(config, TABLE, lake.directory / "cache")


def with_deletes(seen: Observation, files: Any, *deletes: dict[str, Any]) -> Observation:
    found = apply_deletes(files, delete_files(*deletes), SPECS)
    return dataclasses.replace(
        seen, files=found.files, delete_files=found.deletes, deletes=found.load,
        doubled_vectors=found.doubled,
    )  # fmt: skip


def test_counts_are_those_of_the_table_and_none_without_deletes(tmp_path: Path) -> None:
    lake = Lake(tmp_path, regions=1, appends=3, rows=500)
    assert deletes_status(observed(lake)) is None
    writer = Deleter(lake)
    for _ in range(4):
        writer.delete(50)
    lake.check_rows()
    found = deletes_status(observed(lake))
    assert found is not None
    assert found["deletedRows"] == {"atLeast": 200, "estimate": 200, "atMost": 200}
    assert found["liveRows"] == {"atLeast": 1300, "estimate": 1300, "atMost": 1300}
    counts = ("storedRows", "positionFiles", "equalityFiles", "vectors", "dangling")
    assert [found[name] for name in counts] == [1500, 4, 0, 0, 0]
    assert found["load"]["dataFiles"] == 3

    files = data_files(("a", 0, None, 1, 100), ("b", 0, None, 5, 100))
    keys = {"content": 2, "spec": 0, "sequence": 3, "records": 30}
    ranged = deletes_status(with_deletes(observed(lake), files, keys))
    assert ranged is not None
    assert ranged["deletedRows"] == {"atLeast": 0, "estimate": 30, "atMost": 100}
    assert ranged["load"]["underEqualityDeletes"] == 1

    vectors = [{"sequence": n, "records": 5, "referenced": "a", "vector": 40} for n in (2, 3)]
    damaged = with_deletes(observed(lake), files, *vectors)
    assert state_of(SimpleNamespace(pending=(), observation=damaged), None).reason == "TableDamaged"  # type: ignore[arg-type]


def test_a_damaged_table_is_not_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    proposal = SimpleNamespace(observation=None, pending=())
    monkeypatch.setattr(Step, "propose", lambda *_: proposal)
    monkeypatch.setattr(look, "damage_of", lambda _: "the table is damaged")
    policy: Any = SimpleNamespace(name="p")
    with pytest.raises(TableDamagedError):
        look.look_at(None, None, policy, "", (), None)  # type: ignore[arg-type]
