"""The operator against a REST server that names a class in every place of its answers."""

from __future__ import annotations

import base64
import contextlib
import io
import json
import logging
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from reconciler.api.catalog_config import CatalogConfig
from reconciler.catalog.load import connect
from reconciler.kube.kinds import CATALOG, JOB, POLICY, SECRET, TABLE_LAYOUT
from reconciler.operator.logs import JsonLines
from reconciler.operator.process.queue import DueQueue
from reconciler.operator.work import Key, Result, Work
from tests.class_properties import ALL
from tests.hostile_catalog import (
    CONFIG,
    CREDENTIALS,
    EVIL,
    OVERRIDES,
    PLACES,
    HostileCatalog,
    hostile_code,
    served_table,
)
from tests.operator.test_live import NAMESPACE, Cluster
from tests.operator.test_queue import run_queue
from tests.rest_server import RestServer

SCHEMA = pa.schema([("id", pa.int64())])


@pytest.fixture
def hostile(rest_server: RestServer) -> Iterator[HostileCatalog]:
    server = HostileCatalog(upstream=rest_server.uri)
    server.sends = {place: dict.fromkeys(ALL, EVIL) for place in PLACES}
    yield server
    server.stop()


@pytest.mark.rest
def test_the_operator_plans_a_hostile_catalogs_table_and_loads_no_class(
    rest_catalog: CatalogConfig,
    hostile: HostileCatalog,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LAYOUTCTL_CACHE", str(tmp_path / "cache"))
    honest = connect(rest_catalog)
    honest.create_namespace_if_not_exists("hostile")
    table = honest.create_table("hostile.orders", SCHEMA, properties=dict.fromkeys(ALL, EVIL))
    for start in range(4):
        table.append(pa.table({"id": list(range(start, 4000, 4))}, schema=SCHEMA))
    cluster = Cluster(tmp_path)
    cluster.apply(tables={"include": ["hostile.orders"]})
    (body,) = cluster.server.all(CATALOG)
    spec = {"type": "rest", "catalogName": "lake", "properties": {"uri": hostile.uri}}
    cluster.server.put(CATALOG, {"metadata": body["metadata"], "spec": spec})
    with hostile_code(tmp_path):
        cluster.turn(3)
    assert cluster.condition(CATALOG, "Ready")["status"] == "True"
    assert cluster.condition(TABLE_LAYOUT, "Converged")["reason"] == "AwaitingApproval"
    assert cluster.layout()["status"]["plan"]["actions"][0]["files"] == 4


@contextlib.contextmanager
def logged() -> Iterator[io.StringIO]:
    """What the operator's log says meanwhile."""
    stream, root = io.StringIO(), logging.getLogger()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLines())
    root.addHandler(handler)
    level = root.level
    root.setLevel(logging.INFO)
    try:
        yield stream
    finally:
        root.removeHandler(handler)
        root.setLevel(level)


PLANTED = {
    "token": "planted-token", "header.X-Api-Key": "planted-key", "header.Cookie": "planted-cookie",
    "s3.secret-access-key": "planted-own-s3", "credential": "client:planted-credential",
}  # fmt: skip


@pytest.mark.parametrize("login", ["token", "credential"])
def test_no_secret_is_in_a_status_an_event_a_metric_or_a_log_though_the_server_repeats_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, login: str
) -> None:
    """Also not those that the server hands out, nor the token that it gives for a credential."""
    monkeypatch.setenv("LAYOUTCTL_CACHE", str(tmp_path / "cache"))
    server = HostileCatalog(served_table(tmp_path))
    server.granted = "planted-granted"
    server.sends = {
        CONFIG: {"s3.secret-access-key": "planted-s3", "token": "planted-served"},
        CREDENTIALS: {"s3.session-token": "planted-vended", "adls.sas-token.a": "planted-sas"},
        OVERRIDES: {"adls.account-key": "planted-account"},
    }
    known = {**PLANTED, "uri": server.uri.replace("//", "//bob:planted-password@")}
    known.pop("credential" if login == "token" else "token")
    secret = {name: base64.b64encode(text.encode()).decode() for name, text in known.items()}
    cluster = Cluster(tmp_path)
    cluster.apply()
    cluster.server.put(
        SECRET, {"metadata": {"name": "keys", "namespace": NAMESPACE}, "data": secret}
    )
    (body,) = cluster.server.all(CATALOG)
    spec = {
        "type": "rest", "catalogName": "lake", "properties": {"uri": server.uri},
        "secretRef": {"name": "keys"},
    }  # fmt: skip
    cluster.server.put(CATALOG, {"metadata": body["metadata"], "spec": spec})
    kinds, bodies = (CATALOG, POLICY, TABLE_LAYOUT, JOB), []
    with logged() as lines:
        for server.echo in (0, 401, 500):
            cluster.turn(3)
            bodies += [one for kind in kinds for one in cluster.server.all(kind)]
    server.stop()
    assert any("planted" in json.dumps(request) for request in server.requests)
    cluster.metrics.show(cluster.index, dict, per_table=True)
    metrics = cluster.metrics.text().decode()
    for said in (json.dumps(bodies), json.dumps(cluster.api.events), metrics, lines.getvalue()):
        assert said and re.findall("planted-[a-z0-9-]+", said) == []


def test_code_that_ends_the_process_fails_one_reconcile() -> None:
    finished, reports, runs = threading.Event(), [], []
    key = Key(Work.LAYOUT, NAMESPACE, "orders")

    def reconcile(key: Key) -> Any:
        runs.append(key)
        if len(runs) == 2:
            finished.set()
            return Result()
        raise SystemExit(3)

    queue = DueQueue(2, {}, reporter=lambda key, result, seconds: reports.append(result.failed))
    queue.add(key)
    run_queue(queue, reconcile, finished)
    assert reports == [True, False]
