"""Requests to a REST catalog that answers late, twice, wrongly or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reconciler.api.catalog_config import CatalogConfig
from reconciler.commit import snapshot_changes
from reconciler.commit.local_table import LocalTable
from reconciler.commit.request import Request, send
from reconciler.commit.request import requirements as required
from reconciler.commit.snapshot import CommitNames, SnapshotChange
from reconciler.commit.table import LiveTable
from reconciler.engines.answers import Kind
from reconciler.engines.commit.commit import Sent, Unknown
from reconciler.engines.commit.history import Committed
from reconciler.engines.commit.operations import RewriteFiles
from reconciler.engines.manifests import WrittenFile
from reconciler.table.deletes import PartitionKey
from tests.commit.committing import commit, sent_as_batch
from tests.commit.rest import RestCatalog
from tests.commit.test_local_table import head_of
from tests.commit.test_requests import Table, merged


class Server(Table):
    """The table of a SQL catalog, behind a REST catalog."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.rest = RestCatalog(self.catalog)
        properties = {"type": "rest", "uri": self.rest.uri}
        self.asked = CatalogConfig("rec", "rest", properties, source="test")

    def live(self, config: CatalogConfig | None = None) -> LiveTable:
        return super().live(config or self.asked)

    def snapshots(self) -> list[int]:
        return [one.snapshot_id for one in self.catalog.load_table("jobs.t").metadata.snapshots]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    made = Server(tmp_path / "own")
    yield made
    made.rest.stop()


def test_a_replacement(server: Server) -> None:
    live, names = server.live(), CommitNames()
    assert commit(live, merged(live), names) is Kind.ACCEPTED
    assert server.snapshots()[-1] == names.snapshot_id
    assert server.rows() == [0, 1, 2]


def test_a_foreign_append_before_the_request_arrives(server: Server) -> None:
    live = server.live()
    change, before = merged(live), server.written()
    server.rest.before = lambda: server.append(9)
    assert commit(live, change) is Kind.LOST_RACE
    assert server.rows() == [0, 1, 2, 9]
    named = [name for name in server.written() - before if "-m0" in name or "snap-" in name]
    assert len(named) == 2  # of the append alone


@pytest.mark.parametrize("status", [500, 502, 503, 504])
@pytest.mark.parametrize("arrives", [True, False])
def test_an_answer_that_leaves_the_outcome_unknown(
    server: Server, status: int, arrives: bool
) -> None:
    live, names = server.live(), CommitNames()
    server.rest.status, server.rest.arrives = status, arrives
    assert commit(live, merged(live), names) is Kind.UNKNOWN
    assert any(names.uuid in name for name in server.written())  # they may be needed
    assert (names.snapshot_id in server.snapshots()) == arrives
    assert server.rows() == [0, 1, 2]
    assert (names.snapshot_id in live.refresh().snapshots) == arrives


@pytest.mark.parametrize("status", [401, 403])
def test_a_user_without_the_right(server: Server, status: int) -> None:
    live, before = server.live(), server.written()
    server.rest.status, server.rest.arrives = status, False
    assert commit(live, merged(live)) is Kind.DENIED
    assert server.written() == before


def test_a_success_without_a_commit_is_seen_when_it_is_looked_up(server: Server) -> None:
    live, names = server.live(), CommitNames()
    server.rest.arrives = False
    assert commit(live, merged(live), names) is Kind.ACCEPTED
    assert names.snapshot_id not in live.refresh().snapshots
    assert server.rows() == [0, 1, 2]


def test_a_request_that_is_delivered_again_fails(server: Server) -> None:
    live = server.live()
    assert commit(live, merged(live)) is Kind.ACCEPTED
    code, _ = server.rest.commit("t", server.rest.bodies[0])
    assert code in (400, 409)
    assert len(server.snapshots()) == 4


def test_a_late_request_fails_after_the_mark(server: Server) -> None:
    live = server.live()
    server.rest.arrives = False
    server.rest.status = 504
    commit(live, merged(live))
    late = server.rest.bodies[-1]
    server.rest.arrives, server.rest.status = True, 0
    live.refresh()
    assert commit(live, snapshot_changes.append_nothing()) is Kind.ACCEPTED
    code, _ = server.rest.commit("t", late)
    assert code in (400, 409)
    assert server.rows() == [0, 1, 2]


def test_a_request_for_a_table_that_was_made_anew_fails(server: Server) -> None:
    live = server.live()
    state = live.state
    schema = server.catalog.load_table("jobs.t").schema()
    server.catalog.drop_table("jobs.t")
    server.catalog.create_table("jobs.t", schema, location=str(state.metadata["location"]) + "2")
    request = Request(
        state, [{"action": "set-properties", "updates": {"a": "b"}}], required(state), "u"
    )
    assert send(live, request).kind is not Kind.ACCEPTED
    assert "a" not in server.catalog.load_table("jobs.t").properties


def test_two_requests_for_one_state(server: Server) -> None:
    one, other = server.live(), server.live()
    assert commit(one, snapshot_changes.append_nothing()) is Kind.ACCEPTED
    assert commit(other, snapshot_changes.append_nothing()) is Kind.LOST_RACE


def test_what_is_sent_names_the_state(server: Server) -> None:
    import json

    live = server.live()
    commit(live, SnapshotChange("append", fast=True))
    body: dict[str, Any] = json.loads(server.rest.bodies[0])
    found = {one["type"]: one for one in body["requirements"]}
    assert found["assert-table-uuid"]["uuid"] == live.state.uuid
    assert found["assert-ref-snapshot-id"]["snapshot-id"] == live.state.head()
    assert {"assert-current-schema-id", "assert-default-spec-id"} <= found.keys()


def replaced(server: Server) -> tuple[Sent, set[int]]:
    """What becomes of a batch that puts copies in the place of all files, as the engines send it,
    and the snapshots before."""
    engine = LocalTable(server.live(), server.directory / "cache")
    head, change, before = head_of(engine), merged(engine.table), set(server.snapshots())
    added = [
        WrittenFile(one, one.file.path, one.file.records, one.file.size, PartitionKey(0, "{}"))
        for one in change.added
    ]
    tasks = engine.tasks(head, list(change.removed))
    operation = RewriteFiles(tasks, added, change.sequence or 0)
    return sent_as_batch(engine, operation), before


def test_a_gateway_that_sends_twice(server: Server) -> None:
    """The second delivery is refused because of the first: its files must stay."""
    server.rest.twice = True
    sent, before = replaced(server)
    assert isinstance(sent, Committed)
    assert len(server.rest.bodies) == 2
    assert set(server.snapshots()) - before == {sent.snapshot_id}
    assert server.rows() == [0, 1, 2]


def test_a_refusal_that_cannot_be_checked_is_unknown(server: Server) -> None:
    server.rest.twice = True
    server.rest.before = lambda: setattr(server.rest, "deaf", True)
    sent, before = replaced(server)
    assert isinstance(sent, Unknown)
    assert len(set(server.snapshots()) - before) == 1
    assert server.rows() == [0, 1, 2]
