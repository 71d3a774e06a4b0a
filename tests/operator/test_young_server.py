"""An API server that has just started answers before it knows all its kinds."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

import pytest

from reconciler.kube.kinds import NAMESPACE as NAMESPACES
from reconciler.kube.kinds import POLICY, Kind
from reconciler.operator.index import Index
from reconciler.operator.process import watch
from reconciler.operator.process.watch import WATCHED, Watch

NAMESPACE = "lake"
SALES = {"metadata": {"name": "sales", "namespace": NAMESPACE, "uid": "u-1"}, "spec": {}}


class YoungServer:
    """Discovery, listings and watches of the kinds that we watch; one policy in its listings.

    unknowing: how often its list of groups is still empty. asked: the paths of all requests.
    """

    def __init__(self, unknowing: int) -> None:
        self.unknowing = unknowing
        self.asked: list[str] = []
        handler = type("Handler", (_Handler,), {"young": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def answer(self, path: str) -> Any:
        self.asked.append(path)
        if path == "/api":
            return {"versions": ["v1"]}
        if path == "/apis":
            self.unknowing -= 1
            return {"groups": [] if self.unknowing >= 0 else _groups()}
        for kind in WATCHED:
            if path == kind.path(NAMESPACE):
                items = [SALES] if kind == POLICY else []
                return {"items": items, "metadata": {"resourceVersion": "7"}}
        own = [
            kind for kind in (*WATCHED, NAMESPACES) if kind.path(None) == f"{path}/{kind.plural}"
        ]
        return {"resources": [_resource(kind) for kind in own]}

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def _groups() -> list[dict[str, Any]]:
    return [
        {"name": kind.group, "versions": [{"version": kind.version}],
         "preferredVersion": {"version": kind.version}}
        for kind in {kind.group: kind for kind in WATCHED if kind.group}.values()
    ]  # fmt: skip


def _resource(kind: Kind) -> dict[str, Any]:
    return {
        "name": kind.plural, "kind": kind.kind, "singularName": kind.kind.lower(),
        "namespaced": kind.namespaced, "verbs": ["list", "watch"],
    }  # fmt: skip


class _Handler(BaseHTTPRequestHandler):
    young: YoungServer

    def do_GET(self) -> None:
        asked = urlsplit(self.path)
        body = b""  # a watch without events, which the server ends at once
        if "watch=" not in asked.query:
            body = json.dumps(self.young.answer(asked.path)).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        with suppress(ConnectionError):  # the watches have ended, to start again
            self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Nothing."""


class Login:
    """The connection whose credentials the watches take."""

    generation = 1

    def __init__(self, url: str) -> None:
        self.url = url

    def renew(self, generation: int) -> None:
        assert generation == self.generation

    def accepted(self) -> bool:
        return True

    def credentials(self) -> dict[str, Any]:
        return {"server": self.url, "authorization": "Bearer t"}


@pytest.fixture
def server() -> Iterator[YoungServer]:
    young = YoungServer(unknowing=2)
    yield young
    young.stop()


def test_watches_that_found_kinds_missing_start_again(
    server: YoungServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """kopf asks once which kinds there are, and would go on without those that it did not find."""
    monkeypatch.setattr(watch, "RESTART_SECONDS", (0.01,))
    monkeypatch.setattr(watch, "PULSE_SECONDS", 0.05)
    monkeypatch.setattr(watch, "LOGIN_SECONDS", 0.01)
    index, keys, restarts = Index(), [], []
    watches: Any = Watch(
        Login(server.url), index, lambda key, due: keys.append(key), [NAMESPACE],
        lambda: restarts.append(1), lambda kind: None,
    )  # fmt: skip
    watches.start()
    try:
        deadline = time.monotonic() + 120
        while not index.names(POLICY) and time.monotonic() < deadline:
            time.sleep(0.02)
        assert index.names(POLICY) == [(NAMESPACE, "sales")]
        assert [key.name for key in keys] == ["sales"]
        assert server.asked.count("/apis") == 3 and len(restarts) >= 2
        assert POLICY.path(NAMESPACE) in server.asked
    finally:
        watches.stop()
