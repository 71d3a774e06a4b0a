"""Fixtures that every suite shares: one Spark session, and the catalog that it writes to.

Markers follow from fixtures: whoever asks for a JVM is marked `spark`, and runs in the lane of the
shared session (see `lanes`). A test that is not marked so cannot start one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reconciler.api.catalog_config import CatalogConfig
from reconciler.catalog import bounds
from tests.examples import load_profile
from tests.flink.job import missing_jars
from tests.known_metadata import compute_metadata_once
from tests.postgres import POSTGRES_JDBC
from tests.rest_server import RestServer
from tests.s3_store import S3Store, rest_server_on

SHORT_LIVED = (
    "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC "
    "-Djdk.lang.Process.launchMechanism=VFORK"
)
"""Options of every JVM below the tests. Most run each query once, so the optimising compiler costs
a third of their CPU time and saves nothing. Without it the JVM reserves 48 MB for compiled code, a
fifth of what it does otherwise: what hundreds of tests compile is more, and is dropped and compiled
again. For each local file that it writes Hadoop starts `chmod`, which Java starts through a program
of its own, unless told so. Heaps are small: a collector of several threads costs more than it
saves."""

load_profile()
if "PYTEST_VERSION" in os.environ:  # a bench that imports this module measures what users run
    os.environ.setdefault("JDK_JAVA_OPTIONS", SHORT_LIVED)

compute_metadata_once()

pytest_plugins = ["tests.cluster.fixtures", "tests.said"]

MARKED_BY_FIXTURE = {
    "spark": "session",
    "spark_image": "jvm",
    "rest_server": "rest",
    "s3_rest_server": "rest",
    "vending_rest_server": "rest",
    "cluster": "cluster",
    "helm": "cluster",
    "s3_store": "s3",
    "flink": "flink",
}
"""Fixture -> the marker of the tests that ask for it, however indirectly."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        asked = getattr(item, "fixturenames", ())
        for marker in {MARKED_BY_FIXTURE[name] for name in asked if name in MARKED_BY_FIXTURE}:
            item.add_marker(marker)
        if any(item.get_closest_marker(name) for name in ("session", "jvm", "rest", "flink")):
            item.add_marker("spark")


@pytest.fixture(autouse=True)
def the_limit_of_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit is of a process; operators that tests run in threads, side by side, set theirs."""
    monkeypatch.setattr(bounds, "_limit", bounds.DEFAULT_LIMIT)


@pytest.fixture(autouse=True)
def no_jvm_without_a_marker(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`java` of a test that is not marked `spark` is a script that says so and fails.

    Programs of the test cluster keep the environment that they were started with, whichever test
    came first.
    """
    marks = {marker.name for marker in request.node.iter_markers()}
    if not marks & {"spark", "cluster"}:
        monkeypatch.setenv("JAVA_HOME", str(Path(__file__).parent / "no_jvm"))


SHARED_CATALOGS = {"iceberg_catalog": "iceberg_catalog", "rest_side": "rest_server"}
"""Fixture of a catalog that tests share -> the fixture of the tests that may use it."""


@pytest.fixture(autouse=True)
def tables_end_with_their_test(request: pytest.FixtureRequest) -> Iterator[None]:
    """What a test registers in a catalog that tests share is not there for the next one: whatever
    removes files asks every table of the catalog first, which may be hundreds.

    Tables of fixtures that live longer are made before, and stay.
    """
    catalogs = [
        request.getfixturevalue(catalog)
        for catalog, needed in SHARED_CATALOGS.items()
        if needed in request.fixturenames
    ]
    before = [_tables(catalog) for catalog in catalogs]
    yield
    for catalog, known in zip(catalogs, before, strict=True):
        for identifier in _tables(catalog) - known:
            catalog.drop_table(identifier)


def _tables(catalog: Any) -> set[tuple[str, ...]]:
    spaces = catalog.list_namespaces()
    return {name for space in spaces for name in catalog.list_tables(space)}


def sqlite_catalog(directory: Path, name: str = "rec") -> CatalogConfig:
    """An embedded catalog below `directory`, in pyiceberg's spelling."""
    return CatalogConfig(
        name=name,
        type="sql",
        properties={
            "type": "sql",
            "uri": f"sqlite:///{directory}/catalog.db?timeout=30",
            "warehouse": f"file://{directory}/warehouse",
        },
        source="test",
    )


def sqlite_spark_conf(directory: Path, name: str = "rec") -> dict[str, str]:
    """The Spark settings of the same catalog."""
    prefix = f"spark.sql.catalog.{name}"
    return {
        prefix: "org.apache.iceberg.spark.SparkCatalog",
        f"{prefix}.type": "jdbc",
        f"{prefix}.uri": f"jdbc:sqlite:{directory}/catalog.db?busy_timeout=30000",
        f"{prefix}.warehouse": f"file://{directory}/warehouse",
        f"{prefix}.jdbc.schema-version": "V1",
        f"{prefix}.cache-enabled": "false",
    }


def rest_spark_conf(server: RestServer, name: str = "rec") -> dict[str, str]:
    """The Spark settings of a REST catalog on the test server."""
    prefix = f"spark.sql.catalog.{name}"
    return {
        prefix: "org.apache.iceberg.spark.SparkCatalog",
        f"{prefix}.type": "rest",
        f"{prefix}.uri": server.uri,
        f"{prefix}.cache-enabled": "false",
    }


S3_CLASSES = {"spark.sql.catalog.on_s3.io-impl": "org.apache.iceberg.aws.s3.S3FileIO"}
"""Puts Iceberg's S3 classes on the shared session's class path."""

SMALL_SESSION = {
    "spark.driver.memory": "2g",
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
    "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
}


@pytest.fixture(scope="session")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directory of the catalog "rec": catalog.db and warehouse/."""
    directory = tmp_path_factory.mktemp("rec")
    (directory / "warehouse").mkdir()
    return directory


@pytest.fixture(scope="session")
def catalog_config(warehouse: Path) -> CatalogConfig:
    return sqlite_catalog(warehouse)


@pytest.fixture(scope="session")
def iceberg_catalog(catalog_config: CatalogConfig) -> Any:
    """pyiceberg's side of the catalog "rec"."""
    from pyiceberg.catalog.sql import SqlCatalog

    return SqlCatalog(catalog_config.name, **dict(catalog_config.properties))


@pytest.fixture(scope="session")
def rest_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestServer]:
    """Iceberg's REST catalog server as a process."""
    server = RestServer(tmp_path_factory.mktemp("rest"))
    yield server
    server.stop()


@pytest.fixture(scope="session")
def flink() -> None:
    """Flink can be started: its jars are in the cache."""
    missing = missing_jars()
    if missing:
        pytest.skip(f"{len(missing)} of Flink's jars are not there; `make flink` downloads them")


@pytest.fixture(scope="session")
def s3_rest_server(s3_store: S3Store, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A REST catalog server whose warehouse is on S3; its clients have keys of their own."""
    server = rest_server_on(s3_store, tmp_path_factory.mktemp("s3-rest"), vends=False)
    yield server
    server.stop()


@pytest.fixture(scope="session")
def vending_rest_server(
    s3_store: S3Store, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Any]:
    """The same, and it gives keys with every table that it loads."""
    server = rest_server_on(s3_store, tmp_path_factory.mktemp("vending"), vends=True)
    yield server
    server.stop()


@pytest.fixture(scope="session")
def rest_catalog(rest_server: RestServer) -> CatalogConfig:
    """The catalog "rec" on the REST server, in pyiceberg's spelling."""
    return CatalogConfig(
        name="rec", type="rest", properties={"type": "rest", "uri": rest_server.uri}, source="test"
    )


@pytest.fixture(scope="session")
def rest_side(rest_catalog: CatalogConfig) -> Any:
    """pyiceberg's side of the catalog on the REST server."""
    from pyiceberg.catalog.rest import RestCatalog

    return RestCatalog("rec", **dict(rest_catalog.properties))


@pytest.fixture(scope="session")
def spark(warehouse: Path, iceberg_catalog: Any) -> Iterator[Any]:
    """Spark's side of the catalog "rec": one session, two cores, a small heap."""
    from reconciler.spark.session import runtime, session

    running = session.start(
        {
            **SMALL_SESSION,
            **sqlite_spark_conf(warehouse),
            **S3_CLASSES,
            "spark.jars": f"file:{runtime.fetch((POSTGRES_JDBC,))[0]}",
        },
        app="tests",
        master="local[2]",
    )
    yield running
    session.stop(running)


@pytest.fixture
def small_networks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Woodblock's networks in a small size: the paper's width takes time and shows nothing more."""
    from reconciler.advisor.qdtree import networks, woodblock

    monkeypatch.setattr(networks, "HIDDEN", 64)
    monkeypatch.setattr(woodblock, "IMITATIONS", 2)


@pytest.fixture
def extra() -> None:
    """Skips the test where the extra `woodblock` is not installed."""
    pytest.importorskip("jax")
    pytest.importorskip("optax")
