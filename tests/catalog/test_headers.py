"""Headers that a catalog's document and secret name go with every request, and nowhere else."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from reconciler.api.document_codec import from_document
from reconciler.api.documents import IcebergCatalog
from reconciler.catalog.load import connect
from reconciler.catalog.mounted import catalog_config
from reconciler.catalog.properties import properties_from_spark, redact, secret_values, spark_conf
from reconciler.errors import UserError

SECRET = "Bearer 0123456789"


@pytest.fixture
def server() -> Iterator[tuple[str, list[dict[str, str]]]]:
    """A catalog without namespaces, and the headers of the requests that it got."""
    seen: list[dict[str, str]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append({key.lower(): value for key, value in self.headers.items()})
            body = {"namespaces": []} if "namespaces" in self.path else {
                "defaults": {"header.Polaris-Realm": "of-the-server"}, "overrides": {}
            }  # fmt: skip
            text = json.dumps(body).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *parts: Any) -> None:
            pass

    made = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=made.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{made.server_port}", seen
    made.shutdown()


def document(uri: str, **properties: str) -> IcebergCatalog:
    made = from_document(
        {
            "apiVersion": "layout.lakehouse.dev/v1alpha1",
            "kind": "IcebergCatalog",
            "metadata": {"name": "lake"},
            "spec": {"type": "rest", "catalogName": "lake",
                     "properties": {"uri": uri, **properties}},
        }
    )  # fmt: skip
    assert isinstance(made, IcebergCatalog)
    return made


def test_every_request_has_them_and_the_server_sets_none(
    server: tuple[str, list[dict[str, str]]],
) -> None:
    uri, seen = server
    config = catalog_config(
        document(uri, **{"header.X-Goog-User-Project": "p"}), {"header.Authorization": SECRET}
    )
    connect(config).list_namespaces()
    assert len(seen) >= 2
    for one in seen:
        assert one["x-goog-user-project"] == "p"
        assert one["authorization"] == SECRET
        assert "polaris-realm" not in one


def test_without_credentials_no_authorization_is_sent(
    server: tuple[str, list[dict[str, str]]],
) -> None:
    uri, seen = server
    connect(catalog_config(document(uri), {})).list_namespaces()
    assert all("authorization" not in one for one in seen)
    connect(catalog_config(document(uri), {"token": "abcd"})).list_namespaces()
    assert seen[-1]["authorization"] == "Bearer abcd"


def test_spark_gets_them_and_gives_them_back() -> None:
    config = catalog_config(document("http://c", **{"header.Polaris-Realm": "r"}), {})
    conf = spark_conf(config)
    prefix = "spark.sql.catalog.lake."
    assert conf[f"{prefix}header.Polaris-Realm"] == "r"
    settings = {k.removeprefix(prefix): v for k, v in conf.items() if k.startswith(prefix)}
    found = properties_from_spark({**settings, "header.Host": "elsewhere"})
    assert found is not None
    assert found["header.Polaris-Realm"] == "r"
    assert "header.Host" not in found


@pytest.mark.parametrize("name", ["Authorization", "X-Auth", "Session-Id", "Ocp-Subscription-Key"])
def test_a_secret_one_is_never_shown(name: str) -> None:
    config = catalog_config(document("http://c"), {f"header.{name}": SECRET})
    assert secret_values(config) == [SECRET]
    config = catalog_config(document("http://c"), {"credential": f"client:{SECRET}"})
    assert SECRET not in redact(f"client_secret={SECRET}", config), "a client sends it alone"
    assert SECRET not in redact(f"sent {SECRET}", config)


def test_a_secret_with_a_line_end_is_refused_without_its_value() -> None:
    with pytest.raises(UserError) as caught:
        catalog_config(document("http://c"), {"header.Authorization": f"{SECRET}\n"})
    assert "header.Authorization" in caught.value.render()
    assert SECRET not in caught.value.render()
