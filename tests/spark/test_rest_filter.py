"""What the filter passes on between the JVM and a REST catalog, once, and what it cuts."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import requests

from reconciler.api.reach import STRICT
from reconciler.api.served_properties import names_code
from reconciler.catalog.network import on_behalf
from reconciler.spark.session.rest_filter import RestFilter, _known_error, filtered
from tests.class_properties import ALL
from tests.hostile_catalog import CONFIG, CREDENTIALS, OVERRIDES, PLACES, HostileCatalog

TABLE = {"metadata-location": "file:///m.json", "metadata": {"properties": {"owner": "me"}}}
PATH = "/v1/namespaces/sales/tables/t"
VENDED = {"s3.access-key-id": "id", "s3.secret-access-key": "key", "s3.session-token": "token",
          "s3.endpoint": "http://store", "client.region": "eu-central-1"}  # fmt: skip


@pytest.fixture
def server() -> Iterator[HostileCatalog]:
    running = HostileCatalog(lambda: {"sales.t": json.loads(json.dumps(TABLE))})
    yield running
    running.stop()


@pytest.fixture
def between(server: HostileCatalog) -> Iterator[RestFilter]:
    opened = RestFilter(server.uri)
    yield opened
    opened.stop()


def get(between: RestFilter, path: str, **headers: str) -> Any:
    return requests.get(between.uri + path, headers=headers, timeout=20)


def test_every_property_that_names_a_class_is_cut_from_every_place(
    server: HostileCatalog, between: RestFilter
) -> None:
    server.sends = {place: {**dict.fromkeys(ALL, "evil.Class"), **VENDED} for place in PLACES}
    config, table = get(between, "/v1/config").json(), get(between, PATH).json()
    for found in (config["defaults"], config["overrides"], table["config"]):
        assert found == VENDED
    assert [item["config"] for item in table["storage-credentials"]] == [VENDED] * 3
    assert not [name for name in table["metadata"]["properties"] if names_code(name)]
    assert table["metadata"]["properties"]["owner"] == "me"


def test_a_request_is_passed_on_as_it_is_and_once(
    server: HostileCatalog, between: RestFilter
) -> None:
    get(between, PATH + "?snapshots=all", Authorization="Bearer x")
    ((method, path, headers),) = server.requests
    assert (method, path) == ("GET", PATH + "?snapshots=all")
    assert headers["Authorization"] == "Bearer x"
    assert headers["Host"] in server.uri


def test_only_clients_that_know_the_path_are_served(
    server: HostileCatalog, between: RestFilter
) -> None:
    address = between.uri.rpartition("/")[0]
    assert requests.get(f"{address}/v1/config", timeout=20).status_code == 404
    assert requests.get(f"{address}/guess/v1/config", timeout=20).status_code == 404
    assert server.requests == []


def test_a_server_that_names_another_address_is_followed_there_by_the_filter(
    server: HostileCatalog, between: RestFilter
) -> None:
    other = HostileCatalog(lambda: {"sales.t": json.loads(json.dumps(TABLE))})
    other.sends = {CONFIG: {"io-impl": "evil.Class"}}
    server.sends = {OVERRIDES: {"uri": other.uri}}
    assert "uri" not in get(between, "/v1/config").json()["overrides"]
    assert get(between, PATH).json()["config"] == {}
    assert [path for _, path, _ in other.requests] == [PATH]
    other.stop()


def test_addresses_that_executors_use_are_the_catalogs_own(
    server: HostileCatalog, between: RestFilter
) -> None:
    server.sends = {
        CONFIG: {"s3.remote-signing-enabled": "true"},
        CREDENTIALS: {**VENDED, "client.refresh-credentials-endpoint": "v1/credentials"},
    }
    table = get(between, PATH).json()
    assert table["config"]["signer.uri"] == server.uri
    refresh = table["storage-credentials"][0]["config"]["client.refresh-credentials-endpoint"]
    assert refresh == f"{server.uri}/v1/credentials"


def test_a_lost_answer_to_a_commit_is_an_unknown_outcome_and_to_a_question_an_error(
    server: HostileCatalog, between: RestFilter
) -> None:
    server.stop()
    posted = requests.post(between.uri + PATH, json={}, timeout=20)
    assert (posted.status_code, posted.json()["error"]["code"]) == (502, 502)
    assert get(between, PATH).status_code == 424


def test_a_commit_without_an_answer_is_sent_once() -> None:
    accepted = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def drop() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                accepted.append(connection.recv(65536).split(b" ")[0])
                connection.close()

        threading.Thread(target=drop, daemon=True).start()
        between = RestFilter(f"http://127.0.0.1:{listener.getsockname()[1]}")
        assert requests.post(between.uri + PATH, json={}, timeout=20).status_code == 502
        between.stop()
    assert accepted == [b"POST"]


def test_errors_of_the_protocol_are_passed_on(between: RestFilter) -> None:
    answer = get(between, "/v1/namespaces/sales/tables/nothing")
    assert (answer.status_code, answer.json()["error"]["message"]) == (404, "not here")


def test_no_other_body_is_passed_on() -> None:
    class Metadata(HostileCatalog):
        def answer(self, path: str) -> tuple[int, Any]:
            return 500, {"SecretAccessKey": "hush"}

    server = Metadata()
    between = RestFilter(server.uri)
    assert "hush" not in get(between, "/v1/config").text
    between.stop()
    server.stop()


def test_in_a_cluster_the_jvm_reaches_no_local_address(server: HostileCatalog) -> None:
    with on_behalf(STRICT):
        opened = RestFilter(server.uri)
    try:
        answer = get(opened, "/v1/config")
    finally:
        opened.stop()
    assert answer.status_code == 424
    assert "RefusedAddressError" in answer.json()["error"]["message"]
    assert server.requests == []


@pytest.mark.parametrize(
    ("body", "kept"),
    [
        ({"error": {"message": "key=AKIA", "type": "NoSuchTableException", "code": 404}},
         {"error": {"message": "HTTP status 404", "type": "NoSuchTableException", "code": 404}}),
        ({"error": {"message": "key=AKIA", "type": "key=AKIA"}},
         {"error": {"message": "HTTP status 404", "type": "CatalogAnswer", "code": 404}}),
        ({"error": "invalid_client", "error_description": "key=AKIA"}, {"error": "invalid_client"}),
        ("key=AKIA",
         {"error": {"message": "HTTP status 404", "type": "CatalogAnswer", "code": 404}}),
    ],
)  # fmt: skip
def test_in_a_cluster_no_text_of_an_answer_is_repeated(body: Any, kept: Any) -> None:
    assert json.loads(_known_error(404, json.dumps(body).encode(), whole=False)) == kept


def test_the_jvm_is_given_the_filters_address_for_rest_catalogs_only() -> None:
    prefix = "spark.sql.catalog."
    conf = {
        f"{prefix}r": "org.apache.iceberg.spark.SparkCatalog",
        f"{prefix}r.type": "rest",
        f"{prefix}r.uri": "http://catalog:8181/api",
        f"{prefix}r.credential": "a:b",
        f"{prefix}r.rest.sigv4-enabled": "true",
        f"{prefix}s.type": "jdbc",
        f"{prefix}s": "org.apache.iceberg.spark.SparkCatalog",
        f"{prefix}s.uri": "jdbc:sqlite:/x.db",
        "spark.master": "local[1]",
    }
    changed, filters = filtered(conf)
    (opened,) = filters
    expected = {
        f"{prefix}r.uri": opened.uri,
        f"{prefix}r.oauth2-server-uri": "http://catalog:8181/api/v1/oauth/tokens",
        f"{prefix}r.rest.sigv4-enabled": "false",
    }
    assert changed == {**conf, **expected}
    assert opened.signing == {"rest.sigv4-enabled": "true"}
    opened.stop()
