"""What a catalog may make the operator talk to, and what anyone learns of the answer. Real sockets:
what is refused is shown by a server that was never asked."""

from __future__ import annotations

import json
import socket
from typing import Any

import pytest

from reconciler.api.catalog_config import CatalogConfig
from reconciler.api.reach import STRICT, Reach, networks
from reconciler.catalog.load import connect, list_namespaces, within
from reconciler.catalog.network import check_config, check_host, check_properties, on_behalf
from reconciler.errors import ReconcilerError, RefusedAddressError
from tests.catalog.silent import redirecting, saying, serving

HERE = Reach(networks(["127.0.0.1"]))
"""Only the address of the test's servers: 127.0.0.2 stays refused."""
PLANTED = "planted-credential-of-the-node"
BODIES = [
    PLANTED,
    json.dumps({"x": PLANTED}),
    json.dumps({"error": {"message": PLANTED, "type": PLANTED, "code": 500}}),
]


def rest(uri: str, reach: Reach | None = HERE, **properties: str) -> CatalogConfig:
    return CatalogConfig("lake", "rest", {"uri": uri, **properties}, reach=reach)


def opened(config: CatalogConfig) -> Any:
    return connect(config, 5)


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "127.9.9.9", "::1", "0.0.0.0", "0.1.2.3", "169.254.169.254", "fe80::1%eth0",
        "fd00:ec2::254", "::ffff:127.0.0.1", "::ffff:a9fe:a9fe", "64:ff9b::a9fe:a9fe", "::",
        "2002:7f00:1::", "::7f00:1", "224.0.0.1", "ff02::1", "255.255.255.255", "100.100.100.200",
        "168.63.129.16", "192.0.0.192", "not-an-address",
    ],
)  # fmt: skip
def test_addresses_that_are_refused(address: str) -> None:
    assert STRICT.refusal(address)


@pytest.mark.parametrize(
    "address", ["10.0.0.1", "192.168.1.1", "8.8.8.8", "2001:4860::8888", "fd12::1", "100.64.0.1"]
)
def test_addresses_of_catalogs_are_allowed(address: str) -> None:
    assert not STRICT.refusal(address)


def test_an_exception_is_for_its_network_only() -> None:
    reach = Reach(networks(["127.0.0.1", "169.254.7.0/24"]))
    allowed = ["127.0.0.1", "::ffff:127.0.0.1", "169.254.7.1"]
    assert [a for a in [*allowed, "127.0.0.2", "169.254.169.254", "::1"] if not reach.refusal(a)] \
        == allowed  # fmt: skip


@pytest.mark.parametrize(
    "host", ["localhost", "2130706433", "0x7f.1", "127.1", "0", "0177.0.0.1", "127.0.0.1"]
)
def test_names_are_judged_by_what_they_resolve_to(host: str) -> None:
    with pytest.raises(RefusedAddressError):
        check_host(STRICT, host)


def test_a_person_s_own_catalog_may_be_anywhere() -> None:
    with serving(saying('{"defaults": {}, "overrides": {}}')) as server:
        opened(rest(server.uri, None))
        assert server.requests


def test_a_loopback_catalog_is_never_asked_in_a_cluster() -> None:
    with serving(saying(PLANTED)) as server:
        with pytest.raises(RefusedAddressError) as refused:
            opened(rest(server.uri, STRICT))
        assert not server.requests
        assert "loopback" in refused.value.render()


def test_what_counts_is_the_address_that_is_connected_to() -> None:
    """Not what the name resolved to before: the check stands between the two."""
    with serving(saying(PLANTED)) as server:

        def rebound() -> None:
            with socket.create_connection(("127.0.0.1", server.port), timeout=5) as connection:
                connection.sendall(b"GET / HTTP/1.1\r\n\r\n")

        config = rest("http://catalog.invalid", STRICT)
        with pytest.raises(RefusedAddressError):
            within(rebound, 5, config)
        assert not server.held


def test_a_redirect_does_not_lead_where_the_catalog_may_not_go() -> None:
    with (
        serving(saying(PLANTED), "127.0.0.2") as metadata,
        serving(redirecting(f"http://127.0.0.2:{metadata.port}/latest")) as server,
    ):
        with pytest.raises(RefusedAddressError) as refused:
            opened(rest(server.uri))
        assert server.requests
        assert not metadata.requests
        assert PLANTED not in refused.value.render()


@pytest.mark.parametrize("name", ["uri", "oauth2-server-uri", "s3.endpoint"])
def test_an_address_of_the_document_is_refused_before_anything_is_sent(name: str) -> None:
    with (
        serving(saying(PLANTED), "127.0.0.2") as metadata,
        serving(saying('{"defaults": {}, "overrides": {}}')) as server,
    ):
        properties = {"credential": "a:b", name: f"http://127.0.0.2:{metadata.port}"}
        with pytest.raises(RefusedAddressError):
            opened(rest(**{"uri": server.uri, **properties}))
        assert not metadata.held and not server.held


def test_an_address_that_a_server_sends_is_refused() -> None:
    """The config of a REST server may move the client elsewhere."""
    with serving(saying(PLANTED), "127.0.0.2") as metadata:
        moved = f'{{"defaults": {{}}, "overrides": {{"uri": "http://127.0.0.2:{metadata.port}"}}}}'
        with serving(saying(moved)) as server:
            config = rest(server.uri)
            with pytest.raises(RefusedAddressError):
                list_namespaces(opened(config), config, 5)
            assert server.requests and not metadata.held


@pytest.mark.parametrize(
    "properties",
    [
        {"s3.endpoint": "http://169.254.169.254"}, {"s3.endpoint": "169.254.169.254:80"},
        {"s3.endpoint": "http://ok.example\\@169.254.169.254/"}, {"s3.endpoint": "http://a,b"},
        {"s3.endpoint": "http://[::ffff:169.254.169.254]:80"}, {"s3.region": "x@169.254.169.254/"},
        {"client.region": "a.b#"}, {"s3.proxy-uri": "127.0.0.1:3128"},
        {"adls.blob-storage-authority": "127.0.0.1:10000"}, {"gcs.service.host": "http://localhost"},
        {"adls.account-name": "127.0.0.1/x"},
    ],
)  # fmt: skip
def test_what_a_store_s_client_is_given_is_checked(properties: dict[str, str]) -> None:
    with pytest.raises(RefusedAddressError):
        check_properties(STRICT, properties)


@pytest.mark.parametrize(
    "uri",
    [
        "postgresql://127.0.0.1/c", "postgresql://localhost/c", "postgresql://h1.invalid,127.0.0.1/c",
        "postgresql://db.invalid/c?host=127.0.0.1", "postgresql://db.invalid/c?hostaddr=127.0.0.1",
        "postgresql:///c", "mysql+pymysql://db.invalid/c?unix_socket=/run/x",
        "mysql://db.invalid/c?local_infile=1", "postgresql://db.invalid/c?plugin=evil",
        "postgresql://db.invalid/c?passfile=/etc/passwd", "sqlite:////srv/c.db",
        "mysql://169.254.169.254:80/c", "sqlite+pysqlite:///c.db",
    ],
)  # fmt: skip
def test_databases_are_remote_and_say_where(uri: str) -> None:
    with pytest.raises(RefusedAddressError):
        check_config(CatalogConfig("lake", "sql", {"uri": uri}, reach=STRICT))


def test_a_database_elsewhere_may_be_named() -> None:
    for uri in (
        "postgresql://me:p%40w@10.0.0.9:5432/c?sslmode=require",
        "mysql+pymysql://10.0.0.9/c",
    ):
        check_config(CatalogConfig("lake", "sql", {"uri": uri}, reach=STRICT))


# What anyone learns of an answer


@pytest.mark.parametrize("status", ["500 Oops", "200 OK", "404 Not Found", "400 Bad", "418 Teapot"])
@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("reach", [HERE, None])
def test_no_error_repeats_the_body_of_an_answer(
    status: str, body: str, reach: Reach | None
) -> None:
    with serving(saying(body, status)) as server:
        config = rest(server.uri, reach)
        try:
            list_namespaces(opened(config), config, 5)
        except ReconcilerError as error:
            assert PLANTED not in error.render()
            if not status.startswith("200"):
                assert f"GET 127.0.0.1:{server.port} answered {status[:3]}" in error.render()


def test_no_error_repeats_the_body_of_a_token_endpoint() -> None:
    body = f'{{"error": "invalid_client", "error_description": "{PLANTED}"}}'
    with serving(saying(body, "401 Unauthorized")) as server:
        with pytest.raises(ReconcilerError) as refused:
            opened(rest(server.uri, credential="a:b"))
        assert PLANTED not in refused.value.render()


def test_an_error_of_a_library_is_reported_by_its_type_in_a_cluster() -> None:
    def fails() -> None:
        raise OSError(f"When reading information for key: {PLANTED}")

    with pytest.raises(ReconcilerError) as refused:
        within(fails, 5, rest("http://10.0.0.1"))
    assert PLANTED not in refused.value.render()
    assert "OSError" in refused.value.render()


def test_a_driver_speaks_as_the_cluster_does_but_reaches_its_own_process() -> None:
    with serving(saying("x")) as server, on_behalf(STRICT):
        socket.create_connection(("127.0.0.1", server.port), timeout=5).close()
        with pytest.raises(RefusedAddressError):
            check_host(None, "ignored")  # nothing to check
            check_properties(STRICT, {"s3.endpoint": "http://localhost"})
