"""Credentials of the operator's own pod stay unused unless the setting allows them."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from reconciler.operator.process.ambient import REMOVED, SET, withhold

READ_S3 = """
import sys
import reconciler.operator.process.main
from reconciler.cli.main import build

def read(settings, build):
    from pyiceberg.io.pyarrow import PyArrowFileIO
    io = PyArrowFileIO({"s3.endpoint": sys.argv[1], "s3.region": "us-east-1"})
    io.new_input("s3://bucket/key").exists()
    return True

reconciler.operator.process.main.run = read
build()(["operator", *sys.argv[2:]], standalone_mode=False)
"""
"""The operator's command, which reads an object instead of watching a cluster."""


class Store(ThreadingHTTPServer):
    """An object store without the object, which records how requests are signed."""

    signatures: list[str]


class Handler(BaseHTTPRequestHandler):
    def do_HEAD(self) -> None:
        self.answer()

    def do_GET(self) -> None:
        self.answer()

    def answer(self) -> None:
        assert isinstance(self.server, Store)
        self.server.signatures.append(self.headers.get("Authorization", ""))
        self.send_response(404)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def store() -> Iterator[Store]:
    server = Store(("127.0.0.1", 0), Handler)
    server.signatures = []
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.mark.parametrize(
    ("flags", "used"), [((), False), (("--ambient-credentials", "true"), True)]
)
def test_an_object_store_is_read_with_the_pods_key_only_where_that_is_allowed(
    store: Store, flags: tuple[str, ...], used: bool
) -> None:
    environ = {**os.environ, "AWS_ACCESS_KEY_ID": "AMBIENT", "AWS_SECRET_ACCESS_KEY": "planted-7"}
    address = f"http://127.0.0.1:{store.server_port}"
    command = [sys.executable, "-c", READ_S3, address, *flags]
    done = subprocess.run(command, env=environ, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert store.signatures
    assert any("AMBIENT" in item for item in store.signatures) is used
    assert ("AWS_ACCESS_KEY_ID" in done.stdout) is not used
    assert "planted-7" not in done.stdout


def test_nothing_but_credentials_is_withheld() -> None:
    environ = {"AWS_ROLE_ARN": "role", "AWS_REGION": "eu-west-1", "HTTPS_PROXY": "proxy"}
    assert withhold(environ) == ["AWS_ROLE_ARN"]
    assert environ == {"AWS_REGION": "eu-west-1", "HTTPS_PROXY": "proxy", **SET}
    assert not REMOVED & SET.keys()
