"""Catalogs are found where people configure them, listed when unclear, and never guessed."""

from __future__ import annotations

from pathlib import Path

import pytest

from reconciler.api.catalog_config import CatalogConfig
from reconciler.api.document_codec import from_document
from reconciler.api.documents import IcebergCatalog
from reconciler.catalog.discover import (
    find_catalogs,
    parse_identifier,
    resolve_catalog,
    resolve_levels,
    resolve_table,
)
from reconciler.catalog.properties import properties_from_spark, pyiceberg_properties, spark_conf
from reconciler.errors import UserError
from tests.said import Said

SPARK_DEFAULTS = """
# comment
spark.sql.catalog.lake            org.apache.iceberg.spark.SparkCatalog
spark.sql.catalog.lake.type       jdbc
spark.sql.catalog.lake.uri=jdbc:sqlite:/abs/x.db?busy_timeout=1000
spark.sql.catalog.lake.warehouse: file:///abs/wh
spark.sql.catalog.far org.apache.iceberg.spark.SparkCatalog
spark.sql.catalog.far.catalog-impl org.apache.iceberg.rest.RESTCatalog
spark.sql.catalog.far.uri http://host:8181
spark.sql.catalog.far.token s3cr3t-token
spark.sql.catalog.hive_prod org.apache.iceberg.spark.SparkCatalog
spark.sql.catalog.hive_prod.type hive
spark.sql.catalog.other com.example.NotIceberg
"""


def document(name: str = "warehouse", **properties: str) -> IcebergCatalog:
    body = {
        "apiVersion": "layout.lakehouse.dev/v1alpha1",
        "kind": "IcebergCatalog",
        "metadata": {"name": f"{name}-doc"},
        "spec": {
            "type": "rest",
            "catalogName": name,
            "properties": {"uri": "http://doc:8181", **properties},
        },
    }
    found = from_document(body)
    assert isinstance(found, IcebergCatalog)
    return found


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    """An environment whose home and working directory hold no configuration."""
    return {"HOME": str(tmp_path)}


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_every_source_is_read_and_named(tmp_path: Path, home: dict[str, str]) -> None:
    (tmp_path / ".pyiceberg.yaml").write_text(
        "catalog:\n  Yard:\n    uri: http://yard:8181\n    token: abc\n    s3.region: 1\n"
    )
    conf = tmp_path / "spark"
    conf.mkdir()
    (conf / "spark-defaults.conf").write_text(SPARK_DEFAULTS)
    env = {
        **home,
        "SPARK_CONF_DIR": str(conf),
        "PYICEBERG_CATALOG__REC__URI": "sqlite:////abs/r.db",
        "PYICEBERG_CATALOG__REC__S3__ACCESS_KEY_ID": "k",
        "LAYOUTCTL_CATALOG": "mine",
        "LAYOUTCTL_CATALOG__URI": "http://mine:1",
    }
    found = {item.config.name: item for item in find_catalogs((document(),), env)}
    assert {name: (item.config.type, item.supported) for name, item in found.items()} == {
        "mine": ("rest", True),
        "warehouse": ("rest", True),
        "yard": ("rest", True),
        "rec": ("sql", True),
        "lake": ("sql", True),
        "far": ("rest", True),
        "hive_prod": ("hive", False),
    }
    assert found["yard"].config.source == ".pyiceberg.yaml"
    assert found["yard"].config.properties["s3.region"] == "1"
    assert found["rec"].config.properties["s3.access-key-id"] == "k"
    assert found["lake"].config.properties["uri"] == "sqlite:////abs/x.db?timeout=30"
    assert found["far"].config.properties["token"] == "s3cr3t-token"
    assert "s3cr3t" not in repr(found)


def test_a_document_cannot_send_the_users_secrets_to_another_host(home: dict[str, str]) -> None:
    env = {
        **home,
        "PYICEBERG_CATALOG__WAREHOUSE__URI": "http://the-real-one:8181",
        "PYICEBERG_CATALOG__WAREHOUSE__TOKEN": "sEcReT",
    }
    (found,) = find_catalogs((document(),), env)
    assert found.config.properties["uri"] == "http://doc:8181"
    assert "token" not in found.config.properties


def test_the_first_source_defines_a_catalog_and_later_ones_give_only_credentials(
    tmp_path: Path, home: dict[str, str]
) -> None:
    env = {
        **home,
        "PYICEBERG_CATALOG__WAREHOUSE__URI": "http://doc:8181/v2",
        "PYICEBERG_CATALOG__WAREHOUSE__CREDENTIAL": "id:secret",
    }
    (found,) = find_catalogs((document(),), env)
    assert found.config.properties["uri"] == "http://doc:8181"
    assert found.config.properties["credential"] == "id:secret"


def test_without_a_name_only_a_single_catalog_is_taken(home: dict[str, str], said: Said) -> None:
    with pytest.raises(UserError) as none:
        resolve_catalog(None, (), home)
    said(none.value)
    assert "PYICEBERG_CATALOG__NAME__URI" in none.value.render()
    assert resolve_catalog(None, (document(),), home).name == "warehouse"
    with pytest.raises(UserError) as several:
        resolve_catalog(None, (document(), document("lake")), home)
    said(several.value)
    assert "warehouse" in several.value.render() and "lake" in several.value.render()
    env = {**home, "LAYOUTCTL_CATALOG": "lake"}
    assert resolve_catalog(None, (document(), document("lake")), env).name == "lake"


def test_an_unknown_or_unsupported_name_lists_what_there_is(
    tmp_path: Path, home: dict[str, str], said: Said
) -> None:
    (tmp_path / "spark-defaults.conf").write_text(SPARK_DEFAULTS)
    env = {**home, "SPARK_CONF_DIR": str(tmp_path)}
    with pytest.raises(UserError) as unknown:
        resolve_catalog("nope", (), env)
    said(unknown.value)
    said(unknown.value.render())
    with pytest.raises(UserError) as refused:
        resolve_catalog("hive_prod", (), env)
    said(refused.value)


@pytest.mark.parametrize("text", ["catalog:\n- a\n b: 3\n", "catalog:\n  lake: {type: sql}\n"])
def test_yaml_that_pyiceberg_refuses_is_named(
    tmp_path: Path, home: dict[str, str], said: Said, text: str
) -> None:
    """pyiceberg takes less than YAML allows, and is not imported at all beside such a file."""
    (tmp_path / ".pyiceberg.yaml").write_text(text)
    with pytest.raises(UserError) as refused:
        find_catalogs((), home)
    said(refused.value.render())


def test_a_pyiceberg_yaml_without_catalogs_names_none_and_other_text_is_refused(
    tmp_path: Path, home: dict[str, str]
) -> None:
    for text in ("catalog: x\n", "catalog:\n  - a\n"):
        (tmp_path / ".pyiceberg.yaml").write_text(text)
        assert not find_catalogs((), home)
    (tmp_path / ".pyiceberg.yaml").write_bytes(b"\xff\xfe")
    with pytest.raises(UserError):
        find_catalogs((), home)


@pytest.mark.parametrize(
    ("text", "levels"),
    [
        ("a.b.c", ("a", "b", "c")),
        ("`a.b`.c", ("a.b", "c")),
        ("a.`b``c`", ("a", "b`c")),
        ("a.`with space`", ("a", "with space")),
    ],
)
def test_names_are_split_at_dots_outside_backticks(text: str, levels: tuple[str, ...]) -> None:
    assert parse_identifier(text) == levels


@pytest.mark.parametrize("text", ["a..b", ".a", "a.", "a.`b", "a.`b`c", "a.b`c", "``", ""])
def test_malformed_names_are_refused(text: str) -> None:
    with pytest.raises(UserError):
        parse_identifier(text)


def test_a_table_name_may_begin_with_its_catalog(home: dict[str, str], said: Said) -> None:
    documents = (document(), document("lake"))
    config, levels = resolve_table("lake.sales.lineitem", None, documents, home)
    assert (config.name, levels) == ("lake", ("sales", "lineitem"))
    config, levels = resolve_table("sales.lineitem", "lake", documents, home)
    assert (config.name, levels) == ("lake", ("sales", "lineitem"))
    config, levels = resolve_table("lake.sales.lineitem", "lake", documents, home)
    assert levels == ("sales", "lineitem")
    config, levels = resolve_table("lake.lineitem", "lake", documents, home)
    assert levels == ("lake", "lineitem")
    with pytest.raises(UserError) as refused:
        resolve_table("sales.lineitem", None, documents, home)
    said(refused.value)
    with pytest.raises(UserError) as refused:
        resolve_table("lineitem", "lake", documents, home)
    said(refused.value)
    config, levels = resolve_levels("lake", None, documents, home)
    assert (config.name, levels) == ("lake", ())


def test_an_embedded_catalog_is_the_same_for_both_engines(said: Said) -> None:
    config = CatalogConfig(
        "rec", "sql", {"uri": "sqlite:////abs/X.db", "warehouse": "file:///abs/wh"}
    )
    assert pyiceberg_properties(config)["uri"] == "sqlite:////abs/X.db?timeout=30"
    assert spark_conf(config) == {
        "spark.sql.catalog.rec": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.rec.type": "jdbc",
        "spark.sql.catalog.rec.uri": "jdbc:sqlite:/abs/X.db?busy_timeout=30000",
        "spark.sql.catalog.rec.warehouse": "file:///abs/wh",
        "spark.sql.catalog.rec.jdbc.schema-version": "V1",
        "spark.sql.catalog.rec.cache-enabled": "false",
    }
    with pytest.raises(UserError) as refused:
        spark_conf(CatalogConfig("m", "sql", {"uri": "sqlite:///:memory:"}))
    said(refused.value)


def test_a_database_password_goes_apart_from_the_address() -> None:
    config = CatalogConfig("pg", "sql", {"uri": "postgresql+psycopg2://me:p%40ss@db:5432/ice"})
    conf = spark_conf(config)
    assert conf["spark.sql.catalog.pg.uri"] == "jdbc:postgresql://db:5432/ice"
    assert conf["spark.sql.catalog.pg.jdbc.user"] == "me"
    assert conf["spark.sql.catalog.pg.jdbc.password"] == "p@ss"


def test_rest_and_s3_properties_are_mapped_by_the_allow_list() -> None:
    config = CatalogConfig(
        "far",
        "rest",
        {
            "uri": "http://h:8181",
            "warehouse": "s3://lake/wh",
            "credential": "id:secret",
            "s3.endpoint": "http://store:7070",
            "s3.region": "eu-1",
            "s3.access-key-id": "k",
            "py-io-impl": "evil.Module",
            "unknown": "x",
        },
    )
    conf = {
        key.removeprefix("spark.sql.catalog.far."): value
        for key, value in spark_conf(config).items()
    }
    assert conf["type"] == "rest"
    assert conf["credential"] == "id:secret"
    assert conf["client.region"] == "eu-1"
    assert conf["s3.path-style-access"] == "true"
    assert conf["io-impl"] == "org.apache.iceberg.aws.s3.S3FileIO"
    assert "unknown" not in conf and "py-io-impl" not in conf
    back = properties_from_spark(conf)
    assert back is not None
    for name in ("uri", "warehouse", "s3.endpoint", "s3.region", "credential"):
        assert back[name] == config.properties[name]


def test_a_table_on_s3_brings_the_classes_when_the_catalog_names_no_store() -> None:
    """A server may hand out everything but the address: its warehouse is a mere name."""
    config = CatalogConfig("lake", "rest", {"uri": "http://c", "warehouse": "main"})
    assert "spark.sql.catalog.lake.io-impl" not in spark_conf(config, "file:///wh/a.parquet")
    conf = spark_conf(config, "s3://lake/a/b.parquet")
    assert conf["spark.sql.catalog.lake.io-impl"].endswith(".S3FileIO")
    assert "spark.sql.catalog.lake.client.region" not in conf


def test_an_endpoint_without_a_region_gets_the_environments_on_both_sides(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else pyiceberg asks AWS where the bucket is, and Spark does not start."""
    config = CatalogConfig("lake", "rest", {"uri": "http://c", "s3.endpoint": "http://s:1"})
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    for expected in ("us-east-1", "eu-1"):
        assert pyiceberg_properties(config)["client.region"] == expected
        assert spark_conf(config)["spark.sql.catalog.lake.client.region"] == expected
        monkeypatch.setenv("AWS_REGION", "eu-1")
    named = CatalogConfig("lake", "rest", {**config.properties, "s3.region": "eu-2"})
    assert "client.region" not in pyiceberg_properties(named)
    assert spark_conf(named)["spark.sql.catalog.lake.client.region"] == "eu-2"
