"""A catalog in PostgreSQL whose connection is cut once the table has moved: the statement is sent
again over a new one, and finds that the table has moved."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reconciler.api.catalog_config import CatalogConfig
from reconciler.engines.commit import fence
from reconciler.errors import UnavailableError
from reconciler.plan.actions.rewrite import Cluster
from reconciler.plan.actions.set_properties import SetProperties
from reconciler.plan.execution import COMMITTED
from reconciler.spark.commit.table import JavaTable
from reconciler.spark.session import iceberg
from reconciler.state.shared_backend import SharedBackend
from reconciler.state.state_tables import StateTables
from tests.postgres import USER, CuttingProxy, Postgres
from tests.spark.tables import Bench, intact

pytestmark = pytest.mark.spark

MOVES_THE_TABLE = "UPDATE iceberg_tables"


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    server = Postgres()
    yield server
    server.stop()


@pytest.fixture(scope="module")
def proxy(postgres: Postgres) -> Iterator[CuttingProxy]:
    made = CuttingProxy(postgres.port)
    yield made
    made.stop()


def _config(name: str, port: int, warehouse: Path) -> CatalogConfig:
    properties = {
        "type": "sql",
        "uri": f"postgresql+psycopg2://{USER}@127.0.0.1:{port}/postgres",
        "warehouse": f"file://{warehouse}",
    }
    return CatalogConfig(name, "sql", properties, source="test")


@pytest.fixture
def bench(spark: Any, postgres: Postgres, proxy: CuttingProxy, tmp_path: Path) -> Bench:
    """Spark's connections go through the proxy, pyiceberg's do not."""
    name = f"pg_{tmp_path.name}"
    prefix = f"spark.sql.catalog.{name}"
    conf = {
        prefix: "org.apache.iceberg.spark.SparkCatalog",
        f"{prefix}.type": "jdbc",
        # Without prepared statements their text is in every request.
        f"{prefix}.uri": f"jdbc:postgresql://127.0.0.1:{proxy.port}/postgres?prepareThreshold=0",
        f"{prefix}.jdbc.user": USER,
        f"{prefix}.warehouse": f"file://{tmp_path}/warehouse",
        f"{prefix}.jdbc.schema-version": "V1",
        f"{prefix}.cache-enabled": "false",
    }
    spark.open_catalogs(conf)
    return Bench(spark, _config(name, postgres.port, tmp_path / "warehouse"), tmp_path)


def _table(bench: Bench) -> str:
    name = bench.create("id bigint, s string")
    for number in range(2):
        rows = f"SELECT /*+ COALESCE(1) */ id * 2 + {number}, 'x' FROM range(40)"
        bench.sql(f"INSERT INTO {bench.full(name)} {rows}")
    return name


def test_a_batch_whose_connection_is_cut_is_committed_once(
    bench: Bench, proxy: CuttingProxy
) -> None:
    name = _table(bench)
    before, cuts = bench.rows(name), proxy.cuts
    request = bench.request(name, bench.action(name, Cluster, "id"))
    result = bench.run(
        request,
        lambda event: proxy.cut_after(MOVES_THE_TABLE) if event.phase == "commit" else None,
    )
    assert proxy.cuts == cuts + 1
    assert (result.commits, result.conflicts, result.done) == (1, 0, True)
    assert [outcome.state for outcome in bench.ledger.outcomes()] == [COMMITTED]
    intact(bench, name, before)


def test_changed_metadata_and_a_fence_are_done_once(bench: Bench, proxy: CuttingProxy) -> None:
    name = _table(bench)
    before, cuts = bench.rows(name), proxy.cuts
    change = SetProperties(old=(("a.b", None),), new=(("a.b", "1"),))
    request = bench.request(name, change)
    proxy.cut_after(MOVES_THE_TABLE)
    assert bench.run(request).done
    assert [outcome.state for outcome in bench.ledger.outcomes()] == [COMMITTED]
    proxy.cut_after(MOVES_THE_TABLE)
    live = JavaTable(bench.spark, bench.full(name), bench.table(name))
    fence.append_mark(live, "p-1-1", 1)
    marks = [s.summary().get("layout.fence") for s in iceberg.each(bench.table(name).snapshots())]
    assert marks.count("p-1-1/1") == 1
    assert proxy.cuts == cuts + 2
    intact(bench, name, before)


def test_shared_state_whose_connection_is_cut_has_its_rows_once(
    bench: Bench, postgres: Postgres, proxy: CuttingProxy, tmp_path: Path
) -> None:
    columns = (("key", "string"),)
    config = _config(bench.config.name, proxy.port, tmp_path / "warehouse")
    tables = StateTables(SharedBackend(config, ("state",)))
    tables.append("notes", columns, [{"key": "first"}])
    proxy.cut_after("COMMIT")
    with pytest.raises(UnavailableError):
        tables.append("notes", columns, [{"key": "second"}])
    direct = StateTables(
        SharedBackend(_config(bench.config.name, postgres.port, tmp_path / "warehouse"), ("state",))
    )
    table = direct.snapshot("notes")
    assert table is not None
    keys = direct.rows_of(table, ("key",))["key"].to_pylist()
    assert sorted(keys) in (["first"], ["first", "second"])
