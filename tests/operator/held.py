"""Holds requests to create Jobs inside the API server, by an admission webhook of its own.

So a test can act at the one moment that is hard to hit: an operator has sent its Job, and the
server has not yet made it.
"""

from __future__ import annotations

import base64
import contextlib
import json
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.cluster.cluster import Cluster

_SECONDS = 30
"""The server's own bound on a webhook; after it the request is refused."""


class Held:
    """arrived: a request to create a Job is being held. release() lets it and all later pass."""

    def __init__(self) -> None:
        self.arrived, self._open = threading.Event(), threading.Event()

    def release(self) -> None:
        self._open.set()

    def answer(self, review: dict[str, Any]) -> dict[str, Any]:
        self.arrived.set()
        self._open.wait(_SECONDS)
        response = {"uid": review["request"]["uid"], "allowed": True}
        return {**review, "response": response}


@contextlib.contextmanager
def held_jobs(cluster: Cluster, namespace: str) -> Iterator[Held]:
    """Every creation of a Job in the namespace waits until `release`, at most 30 s."""
    held = Held()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(held))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cluster.directory / "kubelet.crt", cluster.directory / "kubelet.key")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    body = _configuration(cluster, namespace, server.server_address[1])
    cluster.kubectl("apply", "-f", "-", stdin=json.dumps(body))
    try:
        yield held
    finally:
        held.release()
        cluster.kubectl("delete", "validatingwebhookconfiguration", body["metadata"]["name"])
        server.shutdown()
        server.server_close()


def _handler(held: Held) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            text = json.dumps(held.answer(review)).encode()
            with contextlib.suppress(OSError):  # whoever asked may have gone
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

        def log_message(self, *_: Any) -> None:
            pass

    return Handler


def _configuration(cluster: Cluster, namespace: str, port: int) -> dict[str, Any]:
    rule = {
        "apiGroups": ["batch"], "apiVersions": ["v1"], "operations": ["CREATE"],
        "resources": ["jobs"],
    }  # fmt: skip
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": f"hold-jobs-{namespace}"},
        "webhooks": [
            {
                "name": "hold.jobs.test",
                "clientConfig": {
                    "url": f"https://127.0.0.1:{port}/",
                    "caBundle": base64.b64encode(cluster.ca.read_bytes()).decode(),
                },
                "rules": [rule],
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
                "admissionReviewVersions": ["v1"],
                "sideEffects": "None",
                "timeoutSeconds": _SECONDS,
                "failurePolicy": "Fail",
            }
        ],
    }
