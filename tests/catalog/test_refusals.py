"""Which failures of a store's client mean that it refused the keys: Arrow's clients, and a server
that answers with a status alone."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from reconciler.catalog.border import file_io
from reconciler.catalog.storage import storage_refusal
from reconciler.catalog.vended import is_refusal
from reconciler.errors import AccessDeniedError, first_line

SECRET = "hidden"


class _Refusing(BaseHTTPRequestHandler):
    """Answers each request with the server's status."""

    def do_HEAD(self) -> None:
        self.send_response(vars(self.server)["status"])
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_GET = do_HEAD

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


@pytest.fixture
def server() -> Iterator[ThreadingHTTPServer]:
    made = ThreadingHTTPServer(("127.0.0.1", 0), _Refusing)
    made.daemon_threads = True
    threading.Thread(target=made.serve_forever, args=(0.02,), daemon=True).start()
    yield made
    made.shutdown()
    made.server_close()


def _properties(place: str) -> dict[str, str]:
    return {
        "py-io-impl": "pyiceberg.io.pyarrow.PyArrowFileIO",
        "s3.endpoint": f"http://{place}", "s3.region": "eu-central-1",
        "s3.access-key-id": "KEY", "s3.secret-access-key": SECRET,
        "gcs.service.host": f"http://{place}", "gcs.oauth2.token": SECRET,
        "gcs.oauth2.token-expires-at": "4000000000000",
        "adls.account-name": "acct", "adls.sas-token": f"?sv=1&sig={SECRET}",
        "adls.blob-storage-authority": place, "adls.dfs-storage-authority": place,
        "adls.blob-storage-scheme": "http", "adls.dfs-storage-scheme": "http",
    }  # fmt: skip


@pytest.mark.parametrize("status", [401, 403, 404, 409])
@pytest.mark.parametrize(
    "location", ["s3://b/f", "gs://b/f", "abfss://c@acct.dfs.core.windows.net/f"]
)
def test_only_a_refusal_of_keys_is_recognised_as_one(
    server: ThreadingHTTPServer, location: str, status: int
) -> None:
    vars(server)["status"] = status
    io = file_io(_properties(f"127.0.0.1:{server.server_address[1]}"), location)
    with pytest.raises(OSError) as failed:
        io.new_input(location).open()
    assert is_refusal(failed.value) is (status in (401, 403))
    assert SECRET not in first_line(failed.value)
    if status == 403 and not isinstance(failed.value, PermissionError):
        assert isinstance(storage_refusal(failed.value, "it"), AccessDeniedError)
