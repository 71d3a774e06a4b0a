"""An object store in this process that knows keys by the second, and a catalog that hands them out.

The store speaks the part of S3's protocol that Arrow's client and boto3 use. It checks which key a
request names and if that is still good, and not the signature: tests/s3_store.py has a real server
that does.
"""

from __future__ import annotations

import io
import itertools
import re
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

from pyiceberg.catalog.sql import SqlCatalog

from reconciler.api.catalog_config import CatalogConfig
from tests.commit.rest import RestCatalog

BUCKET = "lake"
OWNER = {"s3.access-key-id": "OWNER", "s3.secret-access-key": "s"}
"""Keys that never end, for the catalog itself."""
_LENT = re.compile(r"Credential=([^/]+)/")


class Store:
    """objects: by key. refused: operations that were turned down, in order. ends: whether a key
    ends with the first request that it opens or creates a file with, once for each file."""

    def __init__(self) -> None:
        self.ends, self._ended = False, set[tuple[str, str]]()
        self.objects: dict[str, bytes] = {}
        self.refused: list[tuple[str, str]] = []
        self.parts: dict[str, dict[int, bytes]] = {}
        self.good_until: dict[tuple[str, str], float] = {("OWNER", ""): float("inf")}
        self._numbers = itertools.count(1)
        handler = type("Handler", (_Handler,), {"store": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self.endpoint = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def lend(self, seconds: float, said: float | None = None) -> dict[str, str]:
        """Return new keys that are good for so long. said: what they say of it."""
        number, now = next(self._numbers), time.time()
        self.good_until[f"KEY{number}", f"token{number}"] = now + seconds
        ends = now + (seconds if said is None else said)
        return {
            "s3.access-key-id": f"KEY{number}", "s3.secret-access-key": f"secret{number}",
            "s3.session-token": f"token{number}",
            "s3.session-token-expires-at-ms": str(int(ends * 1000)),
        }  # fmt: skip

    def end_all(self) -> None:
        """End every key that was lent."""
        for key in self.good_until:
            if key[1]:
                self.good_until[key] = 0.0

    def good(self, key: tuple[str, str], operation: str, path: str) -> bool:
        """Return whether the key is good for the operation on the object."""
        begins = (operation == "HEAD" and "/data/" in path) or operation == "POST"
        if self.ends and key[1] and begins and (operation, path) not in self._ended:
            self._ended.add((operation, path))
            self.good_until[key] = 0.0
        return self.good_until.get(key, 0.0) > time.time()

    def place(self) -> dict[str, str]:
        return {"s3.endpoint": self.endpoint, "s3.region": "eu-central-1"}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    store: Store

    def _handle(self) -> None:
        body = self._body()
        named = _LENT.search(self.headers.get("Authorization", ""))
        key = (named[1] if named else "", self.headers.get("x-amz-security-token", ""))
        parts = urlsplit(self.path)
        _, _, path = unquote(parts.path).lstrip("/").partition("/")
        if not self.store.good(key, self.command, path):
            self.store.refused.append((self.command, path))
            self._say(400, _error("ExpiredToken", "The provided token has expired."))
            return
        asked = {name: texts[0] for name, texts in parse_qs(parts.query, True).items()}
        getattr(self, f"_{self.command.lower()}")(path, asked, body)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _handle

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "") != "chunked":
            sent = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        else:
            sent = _joined(self.rfile)
        chunked = "aws-chunked" in self.headers.get("Content-Encoding", "")
        return _joined(io.BytesIO(sent)) if chunked else sent

    def _head(self, path: str, asked: dict[str, str], body: bytes) -> None:
        self._get(path, asked, body)

    def _get(self, path: str, asked: dict[str, str], body: bytes) -> None:
        if not path or "list-type" in asked:
            self._list(asked)
            return
        whole = self.store.objects.get(path)
        if whole is None:
            self._say(404, _error("NoSuchKey", "It is not here."))
            return
        wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if wanted is None:
            self._say(200, whole)
            return
        start, end = int(wanted[1]), int(wanted[2] or len(whole) - 1)
        some = whole[start : end + 1]
        told = {"Content-Range": f"bytes {start}-{start + len(some) - 1}/{len(whole)}"}
        self._say(206, some, told)

    def _list(self, asked: dict[str, str]) -> None:
        prefix = asked.get("prefix", "")
        found = [key for key in sorted(self.store.objects) if key.startswith(prefix)]
        rows = "".join(
            f"<Contents><Key>{escape(key)}</Key><Size>{len(self.store.objects[key])}</Size>"
            "<LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents>"
            for key in found
        )
        text = f"<KeyCount>{len(found)}</KeyCount><IsTruncated>false</IsTruncated>{rows}"
        self._say(200, _xml("ListBucketResult", text))

    def _put(self, path: str, asked: dict[str, str], body: bytes) -> None:
        if "uploadId" in asked:
            self.store.parts[asked["uploadId"]][int(asked["partNumber"])] = body
        else:
            self.store.objects[path] = body
        self._say(200, b"", {"ETag": '"e"'})

    def _post(self, path: str, asked: dict[str, str], body: bytes) -> None:
        if "uploads" in asked:
            self.store.parts[path] = {}
            self._say(200, _xml("InitiateMultipartUploadResult",
                                f"<UploadId>{escape(path)}</UploadId>"))  # fmt: skip
            return
        parts = self.store.parts.pop(asked["uploadId"])
        self.store.objects[path] = b"".join(parts[number] for number in sorted(parts))
        self._say(200, _xml("CompleteMultipartUploadResult", "<ETag>e</ETag>"))

    def _delete(self, path: str, asked: dict[str, str], body: bytes) -> None:
        if "uploadId" in asked:
            self.store.parts.pop(asked["uploadId"], None)
        self.store.objects.pop(path, None)
        self._say(204, b"")

    def _say(self, status: int, body: bytes, told: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, text in (told or {}).items():
            self.send_header(name, text)
        self.send_header("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


def _joined(stream: Any) -> bytes:
    """Return the chunks of HTTP, or of S3's own encoding within: both name their size in hex."""
    found = b""
    while length := int(stream.readline().partition(b";")[0].strip() or b"0", 16):
        found += stream.read(length)
        stream.readline()
    while stream.readline().strip():
        """Trailers."""
    return found


def _xml(name: str, text: str) -> bytes:
    head = '<?xml version="1.0" encoding="UTF-8"?>'
    return f'{head}<{name} xmlns="http://s3.amazonaws.com/doc/2006-03-01/">{text}</{name}>'.encode()


def _error(code: str, text: str) -> bytes:
    return f"<Error><Code>{code}</Code><Message>{text}</Message></Error>".encode()


class Vending:
    """A REST catalog that hands out keys of the store. seconds: their life. said: what they say of
    it, None for the truth. asked: how often it was asked for keys."""

    def __init__(self, store: Store, directory: Path, namespace: str = "loop") -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.store, self.seconds, self.asked = store, 600.0, 0
        self.said: float | None = None
        self.own = SqlCatalog(
            "rec", uri=f"sqlite:///{directory}/catalog.db?timeout=30",
            warehouse=f"s3://{BUCKET}/warehouse", **OWNER, **store.place(),
        )  # fmt: skip
        self.own.create_namespace(namespace)
        self.rest = RestCatalog(self.own, namespace)
        self.rest.lends = self.lends
        properties = {"type": "rest", "uri": self.rest.uri}
        self.config = CatalogConfig("rec", "rest", properties, source="test")

    def lends(self) -> list[dict[str, Any]]:
        self.asked += 1
        keys = {**self.store.lend(self.seconds, self.said), **self.store.place()}
        return [{"prefix": f"s3://{BUCKET}/warehouse", "config": keys}]
