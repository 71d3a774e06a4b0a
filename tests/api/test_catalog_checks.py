from __future__ import annotations

import pytest

from reconciler.api.catalog_checks import (
    REQUIRED,
    allowed_keys,
    has_user_info,
    property_problems,
)
from reconciler.api.catalog_properties import CATALOG_PROPERTIES, is_credential, is_secret


def test_no_allowed_property_is_a_credential_or_a_class() -> None:
    for entry in CATALOG_PROPERTIES:
        assert not entry.name.endswith("impl")
        if entry.secret:
            assert is_credential(entry.name), entry.name
    for kind, keys in REQUIRED.items():
        assert set(keys) <= set(allowed_keys(kind))


@pytest.mark.parametrize(
    "key",
    [
        "token", "credential", "s3.secret-access-key", "s3.access-key-id", "jdbc.password",
        "adls.sas-token", "adls.account-key", "header.Authorization", "client.secret", "sas",
        "spark.hadoop.fs.s3a.secret.key", "AWS_SESSION_TOKEN", "adls.connection-string",
    ],
)  # fmt: skip
def test_credentials_are_known_by_name(key: str) -> None:
    assert is_credential(key)
    (problem,) = property_problems("rest", {"uri": "http://c", key: "v"})
    assert problem.key == key and "v" not in problem.message.split()


@pytest.mark.parametrize("key", ["uri", "warehouse", "scope", "s3.region", "oauth2-server-uri"])
def test_plain_settings_are_not_credentials(key: str) -> None:
    assert not is_credential(key)


@pytest.mark.parametrize(
    ("uri", "carries"),
    [
        ("http://me:pw@host/p", True),
        ("http://me@host/p", True),
        ("postgresql+psycopg2://me:pw@db/x", True),
        ("jdbc:postgresql://me:pw@db/x", True),
        ("http://host/p?token=x", True),
        ("http://host/p?user=x", True),
        ("http://host/a@b", False),
        ("s3://bucket/a@b", False),
        ("sqlite:////x/c.db?timeout=30", False),
        ("http://[", False),
        ("plain", False),
    ],
)
def test_user_info_in_uris(uri: str, carries: bool) -> None:
    assert has_user_info(uri) is carries


def test_a_complete_catalog_has_no_problem() -> None:
    sql = {"uri": "sqlite:////c.db", "warehouse": "file:///w", "s3.endpoint": "http://s"}
    assert property_problems("sql", sql) == []
    assert property_problems("rest", {"uri": "https://c"}) == []


def test_headers_of_a_rest_catalog() -> None:
    good = {"uri": "http://c", "header.Polaris-Realm": "a", "header.X-Goog-User-Project": "p"}
    assert property_problems("rest", good) == []
    assert [one.key for one in property_problems("sql", {**good, "warehouse": "s3://b/w"})]
    for key in ("header.Host", "header.content-length", "header.", "header.a b", "header.x:y"):
        (problem,) = property_problems("rest", {"uri": "http://c", key: "v"})
        assert problem.key == key
    broken = {"uri": "http://c", "header.X-A": "v\r\nX-B: w"}
    assert [one.key for one in property_problems("rest", broken)] == ["header.X-A"]
    assert is_secret("header.Authorization") and is_secret("header.X-Api-Key")
    assert not is_secret("header.Polaris-Realm")
