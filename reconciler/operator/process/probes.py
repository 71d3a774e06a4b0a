"""The operator's HTTP pages: /healthz, /readyz, /metrics and /events, one function each."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from reconciler.errors import UserError

log = logging.getLogger(__name__)

Page = Callable[[], tuple[int, str, bytes]]
"""Status, content type, body."""
Post = Callable[[Mapping[str, str], bytes], int]
"""Takes the headers of a request, by lower-case name, and its body; returns the status."""

MOST_CONNECTIONS = 32
"""Connections of one port at once: more are closed at once."""
SECONDS = 10.0
"""Seconds after which a silent connection is closed."""
MOST_DIGITS = 9
"""Digits of the length of a request: more are no length that is taken."""
MOST_BODY = 256 << 10
"""Bytes of a request."""


class _Server(ThreadingHTTPServer):
    """A server with a bounded number of threads, whoever connects."""

    daemon_threads = True

    def __init__(self, port: int, handler: type[BaseHTTPRequestHandler]) -> None:
        self._free = threading.BoundedSemaphore(MOST_CONNECTIONS)
        super().__init__(("", port), handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._free.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:  # no thread could be started
            self._free.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of a connection that ends early; log what a page raised."""
        if not isinstance(sys.exc_info()[1], OSError):
            log.exception("a request was not answered")


class Pages:
    """Serves pages on a port, in daemon threads, until `stop`. port 0 picks a free one."""

    def __init__(
        self, port: int, pages: Mapping[str, Page], posts: Mapping[str, Post] | None = None
    ) -> None:
        """posts: what handles the requests that are sent to a path."""
        try:
            self._server = _Server(port, _handler(pages, posts or {}))
        except OSError as error:
            raise UserError(
                f"port {port} cannot be opened",
                details=(str(error),),
                do="name others with LAYOUTCTL_OPERATOR_HEALTH_PORT, _METRICS_PORT, _EVENTS_PORT",
            ) from error
        self.port = self._server.server_address[1]
        thread = threading.Thread(
            target=self._server.serve_forever, name=f"pages-{self.port}", daemon=True
        )
        thread.start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def check(problems: Callable[[], list[str]]) -> Page:
    """Return 200 ok, or 503 with the problems."""

    def page() -> tuple[int, str, bytes]:
        found = problems()
        text = "\n".join(found) or "ok"
        return (503 if found else 200), "text/plain; charset=utf-8", f"{text}\n".encode()

    return page


def _handler(pages: Mapping[str, Page], posts: Mapping[str, Post]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = SECONDS

        def do_GET(self) -> None:
            page = pages.get(self.path.partition("?")[0])
            self._answer(*(page() if page else (404, "text/plain", b"not found\n")))

        def do_POST(self) -> None:
            post = posts.get(self.path.partition("?")[0])
            size = self.headers.get("Content-Length", "")
            if post is None:
                status = 404
            elif not (size.isascii() and size.isdigit()):
                status = 411
            elif len(size) > MOST_DIGITS or int(size) > MOST_BODY:
                status = 413
            else:
                body = self.rfile.read(int(size))
                status = post({k.lower(): text for k, text in self.headers.items()}, body)
            self._answer(status, "text/plain", b"")

        def _answer(self, status: int, kind: str, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Log nothing: probes come every few seconds."""

    return Handler
