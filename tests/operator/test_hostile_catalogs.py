"""The operator against a REST server that names a class in every place of its answers."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from reconciler.api.catalog_config import CatalogConfig
from reconciler.catalog.load import connect
from reconciler.kube.kinds import CATALOG, TABLE_LAYOUT
from reconciler.operator.process.queue import DueQueue
from reconciler.operator.work import Key, Result, Work
from tests.class_properties import ALL
from tests.hostile_catalog import EVIL, PLACES, HostileCatalog, hostile_code
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
