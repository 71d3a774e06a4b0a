"""Requests that come late, twice or not at all; no JVM is needed for them."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from reconciler.api.catalog_config import CatalogConfig
from reconciler.commit import request
from reconciler.commit.manifest import DELETED, File
from reconciler.commit.request import Request
from reconciler.commit.snapshot import AddedFile, CommitNames, SnapshotChange
from reconciler.commit.table import LiveTable
from reconciler.engines.answers import Kind
from tests.commit.committing import commit
from tests.conftest import sqlite_catalog


class Table:
    """A table of pyiceberg in a SQLite catalog of its own, with one file a commit."""

    def __init__(self, directory: Path) -> None:
        from pyiceberg.catalog.sql import SqlCatalog

        (directory / "warehouse").mkdir(parents=True)
        self.directory, self.config = directory, sqlite_catalog(directory)
        self.catalog = SqlCatalog("rec", **dict(self.config.properties))
        self.catalog.create_namespace("jobs")
        self.catalog.create_table("jobs.t", pa.schema([("id", pa.int64())]))
        for n in range(3):
            self.append(n)

    def append(self, *ids: int) -> None:
        table = self.catalog.load_table("jobs.t")
        table.append(pa.table({"id": pa.array(ids, pa.int64())}))

    def live(self, config: CatalogConfig | None = None) -> LiveTable:
        return LiveTable(config or self.config, ("jobs", "t"))

    def rows(self) -> list[int]:
        found = self.catalog.load_table("jobs.t").scan().to_arrow()
        return sorted(found.column("id").to_pylist())

    def written(self) -> set[str]:
        return {path.name for path in (self.directory / "warehouse").rglob("*.avro")} | {
            path.name for path in (self.directory / "warehouse").rglob("*.json")
        }


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table(tmp_path / "own")


def merged(table: LiveTable) -> SnapshotChange:
    """All files are replaced by copies of themselves, which stay where they are."""
    manifests = table.manifests(table.state.head())
    live = [
        (one, entry)
        for one, entries in zip(manifests, table.entries(manifests), strict=True)
        for entry in entries
        if entry.status != DELETED
    ]
    return SnapshotChange(
        "replace",
        added=[AddedFile(0, _copy(entry.file)) for _, entry in live],
        sequence=table.state.metadata["last-sequence-number"],
        removed={entry.file.path: str(one[500]) for one, entry in live},
    )


def _copy(file: File) -> File:
    place = file.path.removeprefix("file://")
    copy = Path(f"{place}.copy.parquet")
    copy.write_bytes(Path(place).read_bytes())
    return File({**file.values(), 100: f"file://{copy}"})


def test_a_replacement_keeps_every_row(table: Table) -> None:
    live, names = table.live(), CommitNames()
    assert commit(live, merged(live), names) is Kind.ACCEPTED
    assert table.rows() == [0, 1, 2]
    snapshot = table.catalog.load_table("jobs.t").current_snapshot()
    assert snapshot.snapshot_id == names.snapshot_id
    assert snapshot.summary["deleted-data-files"] == snapshot.summary["added-data-files"] == "3"
    assert snapshot.summary["total-records"] == "3"


def test_a_request_that_is_late_fails_and_leaves_nothing(table: Table) -> None:
    live = table.live()
    change = merged(live)
    table.append(7)
    before = table.written()
    assert commit(live, change) is Kind.LOST_RACE
    assert table.written() == before
    assert table.rows() == [0, 1, 2, 7]
    live.refresh()
    assert commit(live, change) is Kind.ACCEPTED
    assert table.rows() == [0, 1, 2, 7]


def test_a_request_that_is_sent_twice_holds_once(table: Table) -> None:
    live = table.live()
    updates = [{"action": "set-properties", "updates": {"a": "b"}}]
    required = request.requirements(live.state)
    first = Request(live.state, updates, required, "one")
    assert request.send(live, first).kind is Kind.ACCEPTED
    second = Request(live.state, updates, required, "two")
    assert request.send(live, second).kind is Kind.LOST_RACE
    live.refresh()
    assert live.state.properties["a"] == "b"
    assert len(live.state.metadata["metadata-log"]) == 4


def test_a_statement_that_a_proxy_repeats_leaves_the_metadata_that_it_committed(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first arrival is accepted, and the second one's answer is all that the sender gets."""
    live = table.live()
    swapped = request._swapped

    def twice(*parts: Any) -> Any:
        assert swapped(*parts).kind is Kind.ACCEPTED
        return swapped(*parts)

    monkeypatch.setattr(request, "_swapped", twice)
    updates = [{"action": "set-properties", "updates": {"a": "b"}}]
    asked = Request(live.state, updates, request.requirements(live.state), "one")
    assert request.send(live, asked).kind is Kind.LOST_RACE
    assert table.rows() == [0, 1, 2]
    assert table.catalog.load_table("jobs.t").properties["a"] == "b"


def test_a_clock_that_is_late_writes_no_time_before_the_last_one(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Java refuses metadata whose log has a later time than the metadata itself."""
    live = table.live()
    last = int(live.state.metadata["last-updated-ms"])
    monkeypatch.setattr(request.time, "time", lambda: last / 1000 - 3_600)
    updates = [{"action": "set-properties", "updates": {"a": "b"}}]
    asked = Request(live.state, updates, request.requirements(live.state), "one")
    assert request.send(live, asked).kind is Kind.ACCEPTED
    made = live.refresh().metadata
    times = [one["timestamp-ms"] for one in made["metadata-log"]]
    assert made["last-updated-ms"] >= max(times)


def test_of_many_requests_for_one_state_one_is_accepted(table: Table) -> None:
    sides = [table.live() for _ in range(6)]
    answers: list[Any] = []

    def send(n: int) -> None:
        updates = [{"action": "set-properties", "updates": {f"p{n}": "x"}}]
        required = request.requirements(sides[n].state)
        answers.append(request.send(sides[n], Request(sides[n].state, updates, required, f"u{n}")))

    threads = [threading.Thread(target=send, args=(n,)) for n in range(len(sides))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(one.kind for one in answers) == [Kind.ACCEPTED] + [Kind.LOST_RACE] * 5


def test_a_missing_file_refuses(table: Table) -> None:
    live = table.live()
    change = merged(live)
    assert commit(live, change) is Kind.ACCEPTED
    before = table.written()
    live.refresh()
    assert commit(live, change) is Kind.REFUSED
    assert table.written() == before


def test_a_database_for_reading_only_denies(table: Table) -> None:
    config = CatalogConfig(
        "rec",
        "sql",
        {
            **table.config.properties,
            "uri": f"sqlite:///file:{table.directory}/catalog.db?mode=ro&uri=true",
        },
        source="test",
    )
    live = table.live(config)
    before = table.written()
    assert commit(live, merged(live)) is Kind.DENIED
    assert table.written() == before


@pytest.mark.parametrize("number", range(4))
def test_a_full_disk_leaves_nothing(
    table: Table, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    live = table.live()
    change = merged(live)
    before, write, calls = table.written(), live.write, []

    def full(path: str, data: bytes) -> None:
        calls.append(path)
        if len(calls) > number:
            raise OSError(28, "No space left on device")
        write(path, data)

    monkeypatch.setattr(live, "write", full)
    sent = commit(live, change)
    assert (sent is Kind.FAILED) == (len(calls) > number)
    if sent is Kind.FAILED:
        assert table.written() == before
    assert table.rows() == [0, 1, 2]


def test_names_are_known_before_anything_is_written(table: Table) -> None:
    live, names = table.live(), CommitNames()
    before = table.written()
    commit(live, merged(live), names)
    new = table.written() - before
    assert new
    assert all(names.uuid in name for name in new)
