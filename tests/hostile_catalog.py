"""A REST catalog server that puts chosen properties into each of its answers.

It stands on real sockets in the test's process. Alone it serves the tables of a pyiceberg catalog
for reading; before another REST server it passes every request on and alters the answers.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

EVIL = "hostile_code.Evil"
"""A class whose module writes a file and ends the process when it is imported."""

DEFAULTS, OVERRIDES, CONFIG, CREDENTIALS, TABLE = (
    "defaults", "overrides", "config", "storage-credentials", "properties",
)  # fmt: skip
PLACES = (DEFAULTS, OVERRIDES, CONFIG, CREDENTIALS, TABLE)


@contextlib.contextmanager
def hostile_code(directory: Path) -> Iterator[Path]:
    """Makes EVIL importable; yields the file that says that it was imported, and checks it."""
    code, written = directory / "code", directory / "imported"
    code.mkdir()
    (code / "hostile_code.py").write_text(
        f"import sys\nopen({str(written)!r}, 'w').close()\nsys.exit(3)\n"
    )
    sys.path.insert(0, str(code))
    try:
        yield written
        assert not written.exists(), "a class that a stranger named was imported"
    finally:
        sys.path.remove(str(code))
        sys.modules.pop("hostile_code", None)


def served_table(directory: Path) -> Callable[[], dict[str, Any]]:
    """Makes the table sales.orders of six files; returns what a server says of it."""
    import pyarrow as pa
    from pyiceberg.catalog.sql import SqlCatalog

    uri, warehouse = f"sqlite:///{directory}/served.db", f"file://{directory}/served"
    catalog = SqlCatalog("rec", uri=uri, warehouse=warehouse)
    catalog.create_namespace("sales")
    schema = pa.schema([("id", pa.int64()), ("name", pa.string())])
    made = catalog.create_table("sales.orders", schema)
    for number in range(6):
        made.append(pa.table({"id": [number, 99], "name": ["a", "z"]}, schema=schema))
    location = catalog.load_table("sales.orders").metadata_location
    metadata = Path(location.removeprefix("file://")).read_text()
    return lambda: {
        "sales.orders": {"metadata-location": location, "metadata": json.loads(metadata)}
    }


class HostileCatalog:
    """sends: properties by the place of an answer that they are put into.

    tables: by "namespace.name" the metadata as JSON, of a server that stands alone; views: the
    names of its views. requests: the method, path and headers of each request, in order.
    echo: if not 0, the status with which a server that stands alone refuses every request but that
    for its configuration; the text of the error repeats all headers and all that it `sends`.
    granted: the token that it gives for a client's credential.
    """

    def __init__(self, tables: Callable[[], Mapping[str, Any]] = dict, upstream: str = "") -> None:
        self.sends: dict[str, dict[str, Any]] = {}
        self.requests: list[tuple[str, str, dict[str, str]]] = []
        self.tables = tables
        self.views: set[str] = set()
        self.echo = 0
        self.granted = "granted"
        self.upstream = urlsplit(upstream).netloc
        handler = type("Handler", (_Handler,), {"catalog": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self.uri = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def altered(self, answer: Any) -> Any:
        """An answer of the protocol with the properties of `sends` in it."""
        if "overrides" in answer:
            for place in (DEFAULTS, OVERRIDES):
                answer[place] = {**(answer.get(place) or {}), **self.sends.get(place, {})}
        if "metadata" in answer:
            answer["config"] = {**(answer.get("config") or {}), **self.sends.get(CONFIG, {})}
            if self.sends.get(CREDENTIALS):
                answer["storage-credentials"] = [
                    {"prefix": prefix, "config": self.sends[CREDENTIALS]}
                    for prefix in ("file:", "s3:", "/")
                ]
            properties = answer["metadata"].setdefault("properties", {})
            properties.update(self.sends.get(TABLE, {}))
        return answer

    def answer(self, path: str) -> tuple[int, Any]:
        """The answer of a server that stands alone."""
        parts = [part for part in urlsplit(path).path.split("/") if part][1:]
        tables = self.tables()
        names = [name.rpartition(".") for name in tables]
        if parts == ["config"]:
            return 200, {"defaults": {}, "overrides": {}}
        if parts[-1:] == ["tokens"]:
            return 200, {"access_token": self.granted, "token_type": "bearer", "expires_in": 3600}
        if self.echo:
            text = json.dumps([self.requests[-1], self.sends, self.granted])
            return self.echo, {"error": {"message": text, "type": "Echo", "code": self.echo}}
        if parts == ["namespaces"]:
            nested = "parent=" in path
            found = [] if nested else sorted({space for space, _, _ in names})
            return 200, {"namespaces": [[space] for space in found]}
        if len(parts) == 3:
            return 200, {
                "identifiers": [
                    {"namespace": [space], "name": name}
                    for space, _, name in names
                    if space == parts[1]
                ]
            }
        name = f"{parts[1]}.{parts[3]}" if len(parts) == 4 else ""
        if parts[2:3] == ["tables"] and name in tables:
            return 200, dict(tables[name])
        if parts[2:3] == ["views"] and name in self.views:
            return 200, {}
        error = {"message": "not here", "type": "NoSuchTableException", "code": 404}
        return 404, {"error": error}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    catalog: HostileCatalog

    def _handle(self) -> None:
        catalog = self.catalog
        catalog.requests.append((self.command, self.path, dict(self.headers)))
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if catalog.upstream:
            status, content = self._forwarded(body)
        else:
            code, answer = catalog.answer(self.path)
            status, content = code, json.dumps(answer).encode()
        if content and status < 300:
            content = json.dumps(catalog.altered(json.loads(content))).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def _forwarded(self, body: bytes) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection(self.catalog.upstream)
        kept = {
            name: value
            for name, value in self.headers.items()
            if name.lower() not in ("host", "connection", "accept-encoding")
        }
        connection.request(self.command, self.path, body or None, kept)
        response = connection.getresponse()
        content = response.read()
        connection.close()
        return response.status, content

    do_GET = do_POST = do_DELETE = do_HEAD = _handle

    def log_message(self, format: str, *args: Any) -> None:
        pass
