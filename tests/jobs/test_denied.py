"""A catalog that may be read but not changed: the first commit says so, and nothing is left."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from reconciler.core.actions import Action, ActionType
from reconciler.core.execution import CatalogConfig
from reconciler.errors import AccessDeniedError
from reconciler.jobs import commit
from tests.conftest import rest_spark_conf
from tests.jobs.tables import Bench
from tests.rest_server import RestServer

pytestmark = [pytest.mark.spark, pytest.mark.rest]


class Gateway(ThreadingHTTPServer):
    """In front of a REST catalog: while `closed`, commits to tables are answered with 403."""

    def __init__(self, server: RestServer) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.behind = server.port
        self.closed = False
        self.refused = 0

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: Gateway
    protocol_version = "HTTP/1.1"

    def _forward(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.server.closed and self.command == "POST" and b'"updates"' in body:
            self.server.refused += 1
            error = {"message": "may not commit", "type": "ForbiddenException", "code": 403}
            self._answer(403, json.dumps({"error": error}).encode())
            return
        behind = http.client.HTTPConnection("127.0.0.1", self.server.behind, timeout=60)
        plain = {k: v for k, v in self.headers.items() if k.lower() != "accept-encoding"}
        behind.request(self.command, self.path, body, plain)
        response = behind.getresponse()
        self._answer(response.status, response.read())
        behind.close()

    do_GET = do_POST = do_HEAD = do_DELETE = _forward

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Quiet."""


@pytest.fixture
def gateway(rest_server: RestServer) -> Iterator[Gateway]:
    made = Gateway(rest_server)
    thread = threading.Thread(target=made.serve_forever, daemon=True)
    thread.start()
    yield made
    made.shutdown()
    made.server_close()
    thread.join()


@pytest.fixture
def bench(spark: Any, rest_server: RestServer, gateway: Gateway, tmp_path: Path) -> Iterator[Bench]:
    """Over the gateway; its catalog's name is the gateway's alone: Spark keeps catalogs."""
    name = f"gateway_{gateway.server_port}"
    for key, value in rest_spark_conf(rest_server, name).items():
        spark.conf.set(key, gateway.uri if key.endswith(".uri") else value)
    properties = {"type": "rest", "uri": gateway.uri}
    yield Bench(spark, CatalogConfig(name, "rest", properties, source="test"), tmp_path)


def _table(bench: Bench) -> str:
    table = bench.create("id bigint")
    for number in range(4):
        bench.sql(f"INSERT INTO {bench.full(table)} VALUES ({number}), ({10 - number})")
    return table


def test_a_commit_that_the_catalog_forbids_is_told_once_and_leaves_nothing(
    bench: Bench, gateway: Gateway
) -> None:
    table = _table(bench)
    before = bench.rows(table)
    request = bench.request(table, bench.action(table, ActionType.CLUSTER, "id"))
    gateway.closed = True
    with pytest.raises(AccessDeniedError, match="does not let us commit") as caught:
        bench.run(request)
    assert gateway.refused == 1
    assert "may not commit" in caught.value.details[0]
    assert bench.rows(table) == before
    assert bench.leftovers(table) == []
    assert bench.ledger.open_intents(request.table_uuid) == ()
    gateway.closed = False
    assert bench.run(request).commits == 1


def test_a_refusal_after_the_commit_has_arrived_is_no_refusal(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A statement that was sent again over a new connection is answered for the second time."""
    honest = commit._send_once

    def answered_twice(*arguments: Any) -> commit.Sent:
        honest(*arguments)
        return commit.Refused("permission denied", conflict=False, denied=True)

    monkeypatch.setattr(commit, "_send_once", answered_twice)
    table = _table(bench)
    before = bench.rows(table)
    result = bench.run(bench.request(table, bench.action(table, ActionType.CLUSTER, "id")))
    assert (result.commits, result.done) == (1, True)
    assert bench.rows(table) == before
    assert len(bench.files(table)) == 1
    assert bench.leftovers(table) == []


def test_a_property_that_may_not_be_set_is_told_as_denied(bench: Bench, gateway: Gateway) -> None:
    table = _table(bench)
    change = Action(
        ActionType.SET_PROPERTIES, properties_old=(("a.b", None),), properties_new=(("a.b", "1"),)
    )
    gateway.closed = True
    with pytest.raises(AccessDeniedError, match="does not let us commit"):
        bench.run(bench.request(table, change))


@pytest.mark.parametrize(
    ("state", "denied"),
    [("42501", True), ("42000", True), ("25006", False), ("08006", False), ("40001", False)],
)
def test_a_database_that_refuses_the_statement_took_nothing(
    spark: Any, state: str, denied: bool
) -> None:
    """A lost connection says nothing about what became of the commit, and neither does a standby
    that was reached after it."""
    java = spark._jvm.java
    cause = java.sql.SQLException("for table iceberg_tables", state)
    thrown = java.lang.RuntimeException("Unknown failure", cause)
    assert commit.is_denied(spark, thrown) is denied
