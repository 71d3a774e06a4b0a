"""Requests to a catalog in PostgreSQL, also over connections that are cut."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from reconciler.api.catalog_config import CatalogConfig
from reconciler.commit.snapshot import CommitNames
from reconciler.commit.table import LiveTable
from reconciler.engines.answers import Kind
from tests.commit.committing import commit
from tests.commit.test_requests import Table, merged
from tests.postgres import USER, CuttingProxy, Postgres


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    made = Postgres()
    yield made
    made.stop()


def config(port: int, directory: Path, user: str = USER) -> CatalogConfig:
    properties = {
        "type": "sql",
        "uri": f"postgresql+psycopg2://{user}@127.0.0.1:{port}/postgres",
        "warehouse": f"file://{directory}/warehouse",
    }
    return CatalogConfig("rec", "sql", properties, source="test")


class Remote(Table):
    """The table in a catalog of PostgreSQL."""

    def __init__(self, postgres: Postgres, directory: Path) -> None:
        from pyiceberg.catalog.sql import SqlCatalog

        (directory / "warehouse").mkdir(parents=True)
        self.directory, self.config = directory, config(postgres.port, directory)
        self.catalog = SqlCatalog("rec", **dict(self.config.properties))
        self.catalog.create_namespace_if_not_exists("jobs")
        self.catalog.create_table("jobs.t", pa.schema([("id", pa.int64())]))
        for n in range(3):
            self.append(n)


@pytest.fixture
def table(postgres: Postgres, tmp_path: Path) -> Iterator[Remote]:
    made = Remote(postgres, tmp_path / "own")
    yield made
    made.catalog.drop_table("jobs.t")


def test_a_replacement_and_one_that_is_late(table: Remote) -> None:
    live, late = table.live(), table.live()
    change = merged(late)
    assert commit(live, merged(live)) is Kind.ACCEPTED
    assert commit(late, change) is Kind.LOST_RACE
    assert table.rows() == [0, 1, 2]


@pytest.mark.parametrize("statement", ["UPDATE iceberg_tables", "COMMIT"])
def test_a_connection_that_is_cut(postgres: Postgres, table: Remote, statement: str) -> None:
    proxy = CuttingProxy(postgres.port)
    live = LiveTable(config(proxy.port, table.directory), ("jobs", "t"))
    change, names, before = merged(live), CommitNames(), table.written()
    proxy.cut_after(statement)
    sent = commit(live, change, names)
    arrived = names.snapshot_id in table.live().state.snapshots
    proxy.stop()
    assert proxy.cuts == 1
    if statement == "COMMIT":
        assert sent is Kind.UNKNOWN
        assert arrived
        assert any(names.uuid in name for name in table.written() - before)
    else:
        assert sent is Kind.FAILED
        assert not arrived
        assert table.written() == before
    assert table.rows() == [0, 1, 2]


def test_a_user_without_the_right(postgres: Postgres, table: Remote) -> None:
    from sqlalchemy import text

    with table.catalog.engine.connect() as connection:
        connection.execute(text("DROP ROLE IF EXISTS reader"))
        connection.execute(text("CREATE ROLE reader LOGIN"))
        connection.execute(text("GRANT SELECT ON ALL TABLES IN SCHEMA public TO reader"))
        connection.commit()
    live = LiveTable(config(postgres.port, table.directory, "reader"), ("jobs", "t"))
    before = table.written()
    assert commit(live, merged(live)) is Kind.DENIED
    assert table.written() == before
    with table.catalog.engine.connect() as connection:
        connection.execute(text("DROP OWNED BY reader"))
        connection.execute(text("DROP ROLE reader"))
        connection.commit()
