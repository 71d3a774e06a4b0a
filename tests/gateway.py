"""A gateway in front of the REST catalog server: it refuses, repeats, delays or loses commits."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.rest_server import RestServer

TWICE, RETRY_AFTER, DROPPED, DENIED = "twice", "retry-after", "dropped", "denied"
"""A commit that arrives: it is delivered twice and the second answer returned; answered with a 503
that asks for a retry; its connection is cut without an answer; or answered with a 403."""
LATE, HUNG = "late", "hung"
"""A commit that does not arrive yet: answered with a 504 and delivered once `release` is called; or
held for good."""
LEFT_OUT = ("accept-encoding", "content-length")
"""Headers that are not forwarded: the length is that of the body which is."""


@dataclass(frozen=True)
class Recorded:
    """A commit, and the metadata file of the table just before it arrived."""

    path: str
    body: bytes
    base: str


class Gateway(ThreadingHTTPServer):
    """Forwards everything. While `closed`, commits are answered with 403; while `careless`, the
    catalog is not told what they require. `fault` is what becomes of the next commit whose request
    contains `matching`, `faults` how many were treated so; `late` is the catalog's answer to one
    that it got late."""

    daemon_threads = True

    def __init__(self, server: RestServer) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.behind = server.port
        self.closed = self.careless = False
        self.refused = 0
        self.fault = ""
        self.matching = b""
        self.faults = 0
        self.before_answer: Any = lambda: None
        self.late: tuple[int, bytes] | None = None
        self.held = threading.Event()
        self._released = threading.Event()
        self._delivered = threading.Event()
        self._lock = threading.Lock()
        self.before_commit: Callable[[Recorded], object] | None = None
        """Called with every commit before it is treated."""
        self._thread = threading.Thread(target=self.serve_forever, daemon=True)
        self._thread.start()

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def fails(self, fault: str, matching: str = "", times: int = 1) -> None:
        """The next `times` commits that contain `matching` end in the fault."""
        self.fault, self.matching, self._left = fault, matching.encode(), times

    def release(self) -> None:
        """Delivers the late commit, and waits until the catalog has judged it."""
        self._released.set()
        assert self._delivered.wait(60)
        assert self.late is not None and self.late[0] in (200, 204, 400, 404, 409), self.late

    def take_fault(self, body: bytes) -> str:
        with self._lock:
            if not self.fault or b'"updates"' not in body or self.matching not in body:
                return ""
            fault = self.fault
            self._left -= 1
            if not self._left:
                self.fault = ""
            self.faults += 1
            return fault

    def stop(self) -> None:
        self._released.set()
        self.shutdown()
        self.server_close()
        self._thread.join()


class _Handler(BaseHTTPRequestHandler):
    server: Gateway
    protocol_version = "HTTP/1.1"

    def _forward(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.server.closed and self.command == "POST" and b'"updates"' in body:
            self.server.refused += 1
            self._fail(403, "ForbiddenException", "may not commit")
            return
        self._record(body)
        if self.server.careless and b'"updates"' in body:
            body = json.dumps({**json.loads(body), "requirements": []}).encode()
        fault = self.server.take_fault(body) if self.command == "POST" else ""
        getattr(self, "_" + (fault or "plain").replace("-", "_"))(body)

    def _record(self, body: bytes) -> None:
        call = self.server.before_commit
        if call is None or self.command != "POST" or b'"updates"' not in body:
            return
        status, answer = self._send("GET", self.path, b"", {})
        if status == 200:
            call(Recorded(self.path, body, json.loads(answer)["metadata-location"]))

    do_GET = do_POST = do_HEAD = do_DELETE = _forward

    def _plain(self, body: bytes) -> None:
        self._answer(*self._deliver(body))

    def _twice(self, body: bytes) -> None:
        self._deliver(body)
        self.server.before_answer()
        self._answer(*self._deliver(body))

    def _retry_after(self, body: bytes) -> None:
        self._deliver(body)
        self.server.before_answer()
        self._fail(503, "ServiceUnavailableException", "try again", {"Retry-After": "1"})

    def _dropped(self, body: bytes) -> None:
        self._deliver(body)
        self.server.before_answer()
        self.close_connection = True

    def _denied(self, body: bytes) -> None:
        self._deliver(body)
        self._fail(403, "ForbiddenException", "may not commit")

    def _late(self, body: bytes) -> None:
        request = self._request(body)  # the connection has another one by then

        def deliver() -> None:
            self.server._released.wait()
            self.server.late = self._send(*request)
            self.server._delivered.set()

        threading.Thread(target=deliver, daemon=True).start()
        self._fail(504, "GatewayTimeout", "no answer in time")

    def _hung(self, body: bytes) -> None:
        self.server.held.set()
        self.server._released.wait()
        self.close_connection = True

    def _deliver(self, body: bytes) -> tuple[int, bytes]:
        return self._send(*self._request(body))

    def _request(self, body: bytes) -> tuple[str, str, bytes, dict[str, str]]:
        plain = {k: v for k, v in self.headers.items() if k.lower() not in LEFT_OUT}
        return self.command, self.path, body, plain

    def _send(
        self, command: str, path: str, body: bytes, headers: dict[str, str]
    ) -> tuple[int, bytes]:
        behind = http.client.HTTPConnection("127.0.0.1", self.server.behind, timeout=60)
        behind.request(command, path, body, headers)
        response = behind.getresponse()
        answer = response.status, response.read()
        behind.close()
        return answer

    def _fail(
        self, code: int, kind: str, message: str, headers: dict[str, str] | None = None
    ) -> None:
        error = {"message": message, "type": kind, "code": code}
        self._answer(code, json.dumps({"error": error}).encode(), headers)

    def _answer(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Quiet."""
