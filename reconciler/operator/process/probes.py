"""The operator's HTTP pages: /healthz, /readyz and /metrics, one function each."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from reconciler.errors import UserError

Page = Callable[[], tuple[int, str, bytes]]
"""Status, content type, body."""


class Pages:
    """Serves pages on a port, in daemon threads, until `stop`. port 0 picks a free one."""

    def __init__(self, port: int, pages: Mapping[str, Page]):
        try:
            self._server = ThreadingHTTPServer(("", port), _handler(pages))
        except OSError as error:
            raise UserError(
                f"port {port} cannot be opened",
                details=(str(error),),
                do="name others with LAYOUTCTL_OPERATOR_HEALTH_PORT and _METRICS_PORT",
            ) from error
        self._server.daemon_threads = True
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


def _handler(pages: Mapping[str, Page]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            page = pages.get(self.path.partition("?")[0])
            status, kind, body = page() if page else (404, "text/plain", b"not found\n")
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Log nothing: probes come every few seconds."""

    return Handler
