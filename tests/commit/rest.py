"""A small REST catalog in this process over a SQL catalog: it commits, refuses, or lies."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class RestCatalog:
    """status: of the answer to a commit, whatever became of it; 0 for what is true. arrives:
    whether commits reach the catalog. twice: whether they reach it twice, and the second answer
    counts. deaf: whether tables are not loaded. before: called before each commit. lends: makes
    the keys that go with each table. endpoints: what the server says that it has beside tables,
    None for a server that says nothing. paths: of the requests, in order."""

    def __init__(self, catalog: Any, namespace: str = "jobs") -> None:
        self.catalog, self.status, self.arrives = catalog, 0, True
        self.namespace = namespace
        self.twice = self.deaf = False
        self.lends: Callable[[], list[dict[str, Any]]] = list
        self.endpoints: list[str] | None = None
        self.paths: list[str] = []
        self.before: Callable[[], object] = lambda: None
        self.bodies: list[bytes] = []
        handler = type("Handler", (_Handler,), {"rest": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self.uri = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def table(self, name: str) -> dict[str, Any]:
        found = self.catalog.load_table((self.namespace, name))
        return {
            "metadata-location": found.metadata_location,
            "metadata": json.loads(found.metadata.model_dump_json()),
            "config": {},
            "storage-credentials": self.lends(),
        }

    def other(self, path: str) -> tuple[int, Any] | None:
        """Return the answer to a question that is no one of the REST catalog, None for one of
        it."""
        return None

    def commit(self, name: str, body: bytes) -> tuple[int, dict[str, Any]]:
        from pyiceberg.catalog.rest import CommitTableRequest
        from pyiceberg.exceptions import CommitFailedException

        self.bodies.append(body)
        self.before()
        code, answer = 200, self.table(name)
        if self.arrives:
            asked = CommitTableRequest.model_validate_json(body)
            table = self.catalog.load_table((self.namespace, name))
            try:
                self.catalog.commit_table(table, tuple(asked.requirements), tuple(asked.updates))
                answer = self.table(name)
            except (CommitFailedException, ValueError) as error:
                conflict = isinstance(error, CommitFailedException)
                code, answer = (409 if conflict else 400), said(str(error))
        return (self.status, said("a fault")) if self.status not in (0, 200) else (code, answer)


def said(text: str) -> dict[str, Any]:
    return {"error": {"message": text, "type": "Fault", "code": 0}}


class _Handler(BaseHTTPRequestHandler):
    rest: RestCatalog

    def do_GET(self) -> None:
        parts = [part for part in self.path.partition("?")[0].split("/") if part]
        self.rest.paths.append(self.path)
        other = self.rest.other(self.path)
        if other is not None:
            self._answer(*other)
        elif parts[1:] == ["config"]:
            self._answer(200, {"defaults": {}, "overrides": {}, **self._endpoints()})
        elif parts[-1] == "credentials":
            self._answer(503 if self.rest.deaf else 200,
                         {"storage-credentials": self.rest.lends()})  # fmt: skip
        elif self.rest.deaf:
            self._answer(503, said("a fault"))
        else:
            self._answer(200, self.rest.table(parts[-1]))

    def _endpoints(self) -> dict[str, Any]:
        return {} if self.rest.endpoints is None else {"endpoints": self.rest.endpoints}

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        name = [part for part in self.path.partition("?")[0].split("/") if part][-1]
        answer = self.rest.commit(name, body)
        if self.rest.twice:
            answer = self.rest.commit(name, body)
        self._answer(*answer)

    def _answer(self, code: int, body: dict[str, Any]) -> None:
        data = json.dumps(body).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""
