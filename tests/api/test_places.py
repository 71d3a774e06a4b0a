"""Places in catalog documents: one allow-list, and no form that reads as local to one and remote to
another."""

from __future__ import annotations

import pytest

from reconciler.api import places

NOT_CANONICAL = [
    "FILE:///srv/wh", "File:/srv/wh", " file:///srv/wh", "file:///srv/wh\n", "\tfile:/srv/wh",
    "file://host/srv", "file:srv", "file:", "//host/srv", "///srv", "srv/wh", "./srv", "../srv",
    "~", "C:\\srv", "c:/srv", "\\\\host\\srv", "%66ile:///srv", "file%3A///srv", "fi\x00le:///srv",
    "duckdb:///x.db", "jdbc:sqlite:/x.db", "sqlite:////x.db", "http://h/x", "https://h/x",
    "hdfs://n/x", "memory://x", "data:,x",
    "local:///x", "s3:/bucket/x", "s3:///x", "S3://bucket/x", "s3:bucket",
    "s3://../x\\y", "s3://%2e/x", "", "gopher://h/x", "ftp://h/x", "viewfs://h/x", "github://o:r@/x",
]  # fmt: skip


@pytest.mark.parametrize("text", NOT_CANONICAL)
def test_no_location_is_read_in_two_ways(text: str) -> None:
    assert not places.is_location(text)


@pytest.mark.parametrize(
    ("text", "local"),
    [
        ("s3://bucket/wh", False), ("s3a://bucket", False), ("gs://b/x y", False),
        ("abfss://c@a.dfs.core.windows.net/x", False), ("oss://b/x", False),
        ("file:///srv/wh", True), ("file:/srv/wh", True), ("/srv/wh", True),
    ],
)  # fmt: skip
def test_a_location_is_local_or_it_is_not(text: str, local: bool) -> None:
    assert places.is_location(text)
    assert places.is_local(text) is local


@pytest.mark.parametrize("text", NOT_CANONICAL)
def test_what_is_not_a_location_counts_as_local_unless_a_store_is_named(text: str) -> None:
    assert places.is_local(text) or places.scheme_of(text) in places.STORES


@pytest.mark.parametrize(
    "text",
    [
        "sqlite+pysqlite:////x.db", "postgresql://db:5432/c", "postgresql+psycopg2://db/c",
        "mysql+pymysql://db/c", "sqlite:////srv/c.db?timeout=30", "sqlite:///c.db",
    ],
)  # fmt: skip
def test_databases_that_are_known(text: str) -> None:
    assert places.is_sql_uri(text)


@pytest.mark.parametrize(
    "text",
    [
        "SQLITE:////x.db", " sqlite:////x.db", "sqlite://", "sqlite:x.db", "sqlite+aiosqlite:///x",
        "sqlite+pysqlcipher://:k@/x.db", "duckdb:///x.db", "jdbc:sqlite:/x.db", "jdbc:postgresql://h/d",
        "postgresql:///c", "postgresql:/c", "postgresql+evil://db/c", "postgres://db/c", "file:///x",
        "access+pyodbc://x/y", "mssql://h/d", "oracle://h/d", "x.db", "C:\\x.db", "postgresql://h",
    ],
)  # fmt: skip
def test_texts_that_are_not_database_uris(text: str) -> None:
    assert not places.is_sql_uri(text)


@pytest.mark.parametrize(
    ("text", "allowed"),
    [
        ("https://c.example/api", True), ("http://[fd12::1]:8181", True), ("http://c", True),
        ("HTTP://c", False), ("file:///etc", False), (" http://c", False), ("http:///c", False),
        ("http://c\\@d/", False), ("http:c", False), ("//c", False), ("http://%63/", False),
    ],
)  # fmt: skip
def test_addresses_of_rest_catalogs(text: str, allowed: bool) -> None:
    assert places.is_rest_uri(text) is allowed


@pytest.mark.parametrize(
    ("text", "allowed"),
    [
        ("lake", True), ("my warehouse", True), ("123456789012", True), ("s3://b/wh", True),
        ("arn:aws:s3tables:eu-central-1:1:bucket/b", True), ("file:///wh", True),
        ("FILE:///wh", False), ("file://h/wh", False), ("a/b", False), ("..", False),
        ("\\x", False),
    ],
)  # fmt: skip
def test_a_rest_catalog_may_name_its_warehouse(text: str, allowed: bool) -> None:
    assert places.is_rest_warehouse(text) is allowed
