"""The policies of a catalog are asked for where it says that it has them, and refused answers are
said. The server speaks Apache Polaris' documented API."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from reconciler.api.catalog_config import CatalogConfig
from reconciler.catalog.load import connect
from reconciler.catalog.many import observe_many
from reconciler.catalog.observe import observe_table
from reconciler.catalog.policies import bounds_on
from reconciler.errors import ReconcilerError, TableDamagedError, UnavailableError
from reconciler.table.catalog_policies import COMPACTION, EXPIRY, NO_BOUNDS, ORPHANS
from reconciler.table.observation import Observation
from tests.commit.rest import RestCatalog
from tests.commit.test_requests import Table

ENDPOINTS = [
    "GET /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "GET /polaris/v1/{prefix}/applicable-policies",
]
TABLE = ("jobs", "t")


def policy(kind: str, content: Any, name: str = "p") -> dict[str, Any]:
    """A policy as Polaris answers it: its content is JSON in a text."""
    return {
        "policy-type": f"system.{kind}", "inheritable": True, "name": name, "version": 0,
        "content": json.dumps(content), "inherited": True, "namespace": ["jobs"],
    }  # fmt: skip


class Polaris(RestCatalog):
    """policies: one list for each page. answers: the status of the answer. asked: the questions."""

    def __init__(self, catalog: Any) -> None:
        super().__init__(catalog)
        self.endpoints = ENDPOINTS
        self.policies: list[list[dict[str, Any]]] = [[]]
        self.answers = 200
        self.asked: list[dict[str, list[str]]] = []

    def other(self, path: str) -> tuple[int, Any] | None:
        parts = urlsplit(path)
        if parts.path != "/polaris/v1/applicable-policies":
            return None
        asked = parse_qs(parts.query)
        self.asked.append(asked)
        page = int(asked.get("pageToken", ["0"])[0])
        more = {"next-page-token": str(page + 1)} if page + 1 < len(self.policies) else {}
        return self.answers, {"applicable-policies": self.policies[page], **more}


class Server(Table):
    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.rest = Polaris(self.catalog)
        properties = {"type": "rest", "uri": self.rest.uri}
        self.asked = CatalogConfig("rec", "rest", properties, source="test")

    def bounds(self) -> Any:
        return bounds_on(connect(self.asked), self.asked, TABLE, 30.0)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    made = Server(tmp_path / "own")
    yield made
    made.rest.stop()


def test_all_pages_count_and_the_table_is_named(server: Server) -> None:
    server.rest.policies = [
        [policy("data-compaction", {"version": "2025-02-03", "enable": False}, "frozen")],
        [policy("snapshot-expiry", {"enable": True, "config": {"max_snapshot_age_days": 9}})],
    ]
    found = server.bounds()
    assert "frozen" in found.forbids((COMPACTION,)) and not found.forbids((EXPIRY,))
    assert found.least_age_ms == 9 * 24 * 3_600_000
    assert server.rest.asked[0] == {"namespace": ["jobs"], "target-name": ["t"]}
    assert len(server.rest.asked) == 2


def test_an_observed_table_has_its_bounds(server: Server, tmp_path: Path) -> None:
    server.rest.policies = [[policy("orphan-file-removal", {"enable": False})]]
    seen = observe_table(server.asked, TABLE, tmp_path / "cache")
    assert seen.metadata.bounds.forbids((ORPHANS,))


def test_a_look_that_decides_nothing_asks_for_no_policies(server: Server, tmp_path: Path) -> None:
    server.rest.answers = 500
    connection = connect(server.asked)
    ((_, seen),) = observe_many(connection, server.asked, [TABLE], tmp_path / "cache")
    assert isinstance(seen, Observation) and seen.metadata.bounds == NO_BOUNDS
    assert server.rest.asked == []
    with pytest.raises(ReconcilerError):
        observe_table(server.asked, TABLE, tmp_path / "cache")
    assert len(server.rest.asked) == 1


def test_a_catalog_that_lists_no_policies_is_not_asked(server: Server) -> None:
    server.rest.endpoints = ENDPOINTS[:1]
    assert server.bounds() == NO_BOUNDS
    server.rest.endpoints = None
    assert server.bounds() == NO_BOUNDS
    assert server.rest.asked == []


@pytest.mark.parametrize("status", [403, 404, 501])
def test_a_refused_question_bounds_nothing_and_is_said(server: Server, status: int) -> None:
    server.rest.answers = status
    found = server.bounds()
    assert str(status) in found.unread and not found.forbidden


def test_a_catalog_that_does_not_answer_is_unavailable(server: Server) -> None:
    server.rest.answers = 503
    with pytest.raises(UnavailableError):
        server.bounds()


def test_pages_without_end_are_refused(server: Server) -> None:
    server.rest.policies = [[] for _ in range(50)]
    with pytest.raises(TableDamagedError):
        server.bounds()
    assert len(server.rest.asked) == 20
