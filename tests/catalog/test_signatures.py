"""Requests to a REST catalog that are signed for AWS, checked as a server checks them.

The check follows the description of Signature Version 4 and shares no code with botocore.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, quote, urlsplit

import pytest

from reconciler.api.catalog_config import CatalogConfig
from reconciler.catalog.load import connect, list_namespaces
from reconciler.errors import AccessDeniedError

KEY, SECRET, TOKEN = "AKIDEXAMPLE", "wJalrXUtnFEMI", "session-token"
REGION, SERVICE = "eu-central-1", "glue"


def _hmac(key: bytes, text: str) -> bytes:
    return hmac.new(key, text.encode(), hashlib.sha256).digest()


def signature(method: str, target: str, headers: dict[str, str], body: bytes, secret: str) -> str:
    """The signature that a request must have, by its own list of signed headers."""
    named = headers["authorization"].partition("SignedHeaders=")[2].partition(",")[0].split(";")
    parts = urlsplit(target)
    query = sorted(
        f"{quote(key, safe='-_.~')}={quote(value, safe='-_.~')}"
        for key, value in parse_qsl(parts.query, keep_blank_values=True)
    )
    canonical = "\n".join(
        [method, quote(parts.path, safe="/-_.~%"), "&".join(query)]
        + [f"{name}:{' '.join(headers[name].split())}" for name in named]
        + ["", ";".join(named), hashlib.sha256(body).hexdigest()]
    )
    date = headers["x-amz-date"]
    scope = f"{date[:8]}/{REGION}/{SERVICE}/aws4_request"
    digest = hashlib.sha256(canonical.encode()).hexdigest()
    key = _hmac(f"AWS4{secret}".encode(), date[:8])
    for part in (REGION, SERVICE, "aws4_request"):
        key = _hmac(key, part)
    return _hmac(key, f"AWS4-HMAC-SHA256\n{date}\n{scope}\n{digest}").hex()


class _Handler(BaseHTTPRequestHandler):
    seen: list[dict[str, str]]

    def do_GET(self) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        given = headers.get("authorization", "").partition("Signature=")[2]
        signed = bool(given) and given == signature("GET", self.path, headers, b"", SECRET)
        self.seen.append(headers)
        if not signed:
            return self._answer(403, {"error": {"message": "no", "type": "F", "code": 403}})
        path = urlsplit(self.path).path
        body = (
            {"defaults": {}, "overrides": {}}
            if path.endswith("/config")
            else {"namespaces": [["sales"]]}
        )
        return self._answer(200, body)

    def _answer(self, status: int, body: Any) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def server() -> Iterator[tuple[str, list[dict[str, str]]]]:
    seen: list[dict[str, str]] = []
    made = ThreadingHTTPServer(("127.0.0.1", 0), type("H", (_Handler,), {"seen": seen}))
    threading.Thread(target=made.serve_forever, args=(0.05,), daemon=True).start()
    yield f"http://127.0.0.1:{made.server_address[1]}/iceberg", seen
    made.shutdown()
    made.server_close()


def config_of(uri: str, **properties: str) -> CatalogConfig:
    given = {
        "type": "rest", "uri": uri, "warehouse": "123456789012:s3tablescatalog/a b",
        "rest.sigv4-enabled": "true", "rest.signing-region": REGION,
        "rest.signing-name": SERVICE, **properties,
    }  # fmt: skip
    return CatalogConfig("signed", "rest", given, "test", own=True)


def test_every_request_is_signed_with_keys_of_the_environment_or_of_the_catalog(
    server: tuple[str, list[dict[str, str]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    uri, seen = server
    own = {"client.access-key-id": KEY, "client.secret-access-key": SECRET}
    config = config_of(uri, **own)
    assert list_namespaces(connect(config), config, 30.0) == [("sales",)]
    assert "x-amz-security-token" not in seen[-1]
    for name, value in (("ACCESS_KEY_ID", KEY), ("SECRET_ACCESS_KEY", SECRET),
                        ("SESSION_TOKEN", TOKEN)):  # fmt: skip
        monkeypatch.setenv(f"AWS_{name}", value)
    ambient = config_of(uri)
    assert list_namespaces(connect(ambient), ambient, 30.0) == [("sales",)]
    assert seen[-1]["x-amz-security-token"] == TOKEN


def test_a_signature_by_another_key_is_refused_and_said_so(
    server: tuple[str, list[dict[str, str]]],
) -> None:
    wrong = {"client.access-key-id": KEY, "client.secret-access-key": "another"}
    config = config_of(server[0], **wrong)
    with pytest.raises(AccessDeniedError):
        list_namespaces(connect(config), config, 30.0)
