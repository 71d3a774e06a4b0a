"""Updates of table metadata, and the metadata files of a SQL catalog's table."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.table.metadata import TableMetadataUtil

from reconciler.commit import specs, updates
from reconciler.commit.local_table import LocalTable
from reconciler.commit.metadata import InvalidUpdate, applied, completed
from reconciler.commit.request import Request, requirements, send
from reconciler.commit.table import LiveTable
from reconciler.engines.answers import Kind
from reconciler.errors import UnavailableError
from reconciler.table.schema import SpecField
from tests.commit.test_requests import Table


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table(tmp_path / "own")


def updated(live: LiveTable, *wanted: Any, name: str = "u") -> Any:
    state = live.state
    answer = send(live, Request(state, wanted, requirements(state), name))
    live.refresh()
    return answer


def test_time_travel_finds_no_gap_after_an_expiry(table: Table) -> None:
    live = table.live()
    first, second, third = live.state.snapshots
    assert updated(live, *updates.expire([second], {})).kind is Kind.ACCEPTED
    assert list(live.state.snapshots) == [first, third]
    assert [one["snapshot-id"] for one in live.state.metadata["snapshot-log"]] == [third]
    assert live.state.head() == third
    assert table.rows() == [0, 1, 2]


def test_old_metadata_files_go_where_the_table_asks_for_it(table: Table) -> None:
    live = table.live()
    wanted = {
        "write.metadata.previous-versions-max": "2",
        "write.metadata.delete-after-commit.enabled": "true",
    }
    assert updated(live, *updates.set_properties(wanted)).kind is Kind.ACCEPTED
    log = [one["metadata-file"] for one in live.state.metadata["metadata-log"]]
    assert len(log) == 2
    names = {name for name in table.written() if name.endswith(".json")}
    assert names == {path.rpartition("/")[2] for path in (*log, live.state.location)}


def test_without_that_they_stay(table: Table) -> None:
    live, before = table.live(), table.written()
    assert updated(live, *updates.set_properties({"a": "b"})).kind is Kind.ACCEPTED
    assert before < table.written()


def test_compressed_metadata(table: Table) -> None:
    live = table.live()
    wanted = updates.set_properties({"write.metadata.compression-codec": "gzip"})
    assert updated(live, *wanted).kind is Kind.ACCEPTED
    assert updated(live, *updates.set_properties({"a": "b"}), name="v").kind is Kind.ACCEPTED
    assert live.state.location.endswith("-v.gz.metadata.json")
    body = gzip.decompress(Path(live.state.location.removeprefix("file://")).read_bytes())
    assert json.loads(body)["properties"]["a"] == "b"
    assert table.catalog.load_table("jobs.t").properties["a"] == "b"


def test_what_this_version_does_not_know_stays(table: Table) -> None:
    body = {**table.live().state.metadata, "statistics": [{"snapshot-id": 7}], "new-field": 1}
    made = applied(body, updates.set_properties({"a": "b"}), "file:///x/00001-a.json", 1)
    assert made["new-field"] == 1
    assert made["statistics"] == [{"snapshot-id": 7}]


@pytest.mark.parametrize(
    "update",
    [
        {"action": "set-default-spec", "spec-id": 7},
        {"action": "set-snapshot-ref", "ref-name": "a", "type": "branch", "snapshot-id": 7},
        {"action": "remove-partition-specs", "spec-ids": [0]},
        {"action": "no-such-action"},
    ],
)
def test_updates_that_do_not_fit(table: Table, update: dict[str, Any]) -> None:
    live, before = table.live(), table.written()
    assert updated(live, update).kind is Kind.INVALID
    assert table.written() == before
    with pytest.raises(InvalidUpdate):
        applied(live.state.metadata, [update], live.state.location, 1)


def test_a_sort_order_and_a_branch(table: Table) -> None:
    live = table.live()
    order = [{"transform": "identity", "source-id": 1, "direction": "asc",
              "null-order": "nulls-first"}]  # fmt: skip
    assert updated(live, *updates.set_sort_order(live.state, order), name="v").kind is Kind.ACCEPTED
    again = updates.set_sort_order(live.state, order)
    assert [one["action"] for one in again] == ["set-default-sort-order"]
    head = live.state.head()
    assert head is not None
    assert updated(live, *updates.set_branch(live.state, "b", head), name="w").kind is Kind.ACCEPTED
    seen = table.catalog.load_table("jobs.t")
    assert [one.source_id for one in seen.sort_order().fields] == [1]
    assert seen.metadata.refs["b"].snapshot_id == head
    assert updated(live, *updates.drop_branch("b"), name="x").kind is Kind.ACCEPTED
    assert "b" not in table.catalog.load_table("jobs.t").metadata.refs
    assert table.rows() == [0, 1, 2]


def old_metadata(**more: Any) -> dict[str, Any]:
    """Metadata of format 1 as a writer wrote it before the format had lists."""
    fields = [{"id": n, "name": name, "required": False, "type": "date"}
              for n, name in enumerate(("a", "b"), start=1)]  # fmt: skip
    return {
        "format-version": 1, "table-uuid": "9c12d441-03fe-4693-9a96-a0705ddf69c1",
        "location": "file:///t", "last-updated-ms": 1, "last-column-id": 2,
        "schema": {"type": "struct", "fields": fields},
        "partition-spec": [{"name": "a_month", "transform": "month", "source-id": 1},
                           {"name": "b", "transform": "identity", "source-id": 2}],
        "properties": {}, "current-snapshot-id": -1, "snapshots": [], **more,
    }  # fmt: skip


def test_metadata_of_old_writers_is_completed_as_pyiceberg_reads_it() -> None:
    found = completed(old_metadata())
    numbered = [{**one, "field-id": 1000 + n}
                for n, one in enumerate(old_metadata()["partition-spec"])]  # fmt: skip
    theirs = TableMetadataUtil.parse_obj(old_metadata(**{"partition-spec": numbered}))
    assert [one["spec-id"] for one in found["partition-specs"]] == [
        one.spec_id for one in theirs.partition_specs
    ]
    (spec,) = found["partition-specs"]
    assert [one["field-id"] for one in spec["fields"]] == [
        one.field_id for one in theirs.partition_specs[0].fields
    ]
    assert found["last-partition-id"] == theirs.last_partition_id == 1001
    assert (found["current-schema-id"], found["default-spec-id"]) == (0, 0)
    assert found["sort-orders"] == [{"order-id": 0, "fields": []}]
    assert completed(found) == found


def test_a_partition_field_never_gets_the_name_of_one_that_stays() -> None:
    body = completed(old_metadata())
    body["format-version"] = 2
    fields = body["partition-specs"][0]["fields"]
    fields[1]["name"] = "a_year"
    made = specs.added(
        body, [SpecField(1, "month"), SpecField(2, "identity"), SpecField(1, "year")]
    )
    assert [one["name"] for one in made["fields"]] == ["a_month", "a_year", "a_year_part"]
    fields[0]["name"] = "b"
    body["partition-specs"][0]["fields"] = fields[:1]
    with pytest.raises(specs.NameTaken):
        specs.added(body, [SpecField(1, "month"), SpecField(2, "identity")])


def test_a_branch_is_kept_although_main_moves_on(
    table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    live = table.live()
    head = live.state.head()
    assert head is not None
    assert updated(live, *updates.set_branch(live.state, "b", head)).kind is Kind.ACCEPTED
    engine, honest, times = LocalTable(live, tmp_path / "cache"), LocalTable.refresh, list[int]()

    def refresh(self: LocalTable) -> None:
        honest(self)
        times.append(1)
        if len(times) < 3:
            table.append(len(times) + 50)

    monkeypatch.setattr(LocalTable, "refresh", refresh)
    engine.keep_on_branch("b", 77)
    assert len(times) == 3
    assert table.live().state.refs["b"]["min-snapshots-to-keep"] == 77
    monkeypatch.setattr(LocalTable, "refresh", lambda self: (honest(self), table.append(99)))
    with pytest.raises(UnavailableError):
        engine.keep_on_branch("b", 78)
