"""Between Spark's JVM and a REST catalog's server: the server names no class to the JVM.

Iceberg merges a server's answers over the client's own properties and loads the classes that they
name (io-impl and others), at the first request. Asking the server beforehand would not do, as it
may answer differently the second time. So the JVM knows the catalog by a port of this process,
which passes each request on once and cuts the answer to what api.served_properties lists.
"""

from __future__ import annotations

import json
import re
import secrets
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import Any
from urllib.parse import urljoin, urlsplit

import requests

from reconciler.api import served_properties as served
from reconciler.catalog.network import Border, current_reach, within_border
from reconciler.errors import UserError

CATALOG_PREFIX = "spark.sql.catalog."
SIGNING = ("rest.sigv4-enabled", "rest.signing-region", "rest.signing-name")
CONNECT_SECONDS, ANSWER_SECONDS = 30.0, 600.0

_OWN_HEADERS = frozenset({
    "accept-encoding", "connection", "content-encoding", "content-length", "host", "keep-alive",
    "location", "proxy-authenticate", "proxy-authorization", "te", "trailer", "transfer-encoding",
    "upgrade",
})  # fmt: skip
"""Headers of one connection, which are not passed on."""


def filtered(conf: Mapping[str, str]) -> tuple[dict[str, str], list[RestFilter]]:
    """The settings with each REST catalog behind a filter, and the filters to be stopped."""
    changed, filters = dict(conf), []
    for key in conf:
        name = key.removeprefix(CATALOG_PREFIX)
        if key.startswith(CATALOG_PREFIX) and "." not in name and conf.get(f"{key}.uri"):
            if conf.get(f"{key}.type") != "rest":
                continue
            signing = {part: conf[f"{key}.{part}"] for part in SIGNING if f"{key}.{part}" in conf}
            opened = RestFilter(conf[f"{key}.uri"], signing)
            filters.append(opened)
            changed[f"{key}.uri"] = opened.uri
            if signing:  # here, since a signature holds for one host
                changed[f"{key}.{SIGNING[0]}"] = "false"
            if f"{key}.credential" in conf:  # executors renew tokens too, and cannot reach us
                changed.setdefault(f"{key}.oauth2-server-uri", opened.tokens)
    return changed, filters


class RestFilter:
    """A server on a port of this machine that forwards to one REST catalog.

    uri: given to the JVM; only who knows it can use the port. tokens: the catalog's own address for
    tokens. reach: what requests may reach in a cluster, redirects included; None on a person's own
    machine. In a cluster, no text of an answer is repeated either: it ends in a status.
    """

    def __init__(self, upstream: str, signing: Mapping[str, str] | None = None) -> None:
        """signing: rest.sigv4-enabled and its details: requests are signed on their way out."""
        self.upstream = upstream.rstrip("/")
        self.tokens = f"{self.upstream}/v1/oauth/tokens"
        self.signing = dict(signing or {})
        self.path = f"/{secrets.token_urlsafe(16)}"
        self.reach = current_reach()
        handler = type("Handler", (_Handler,), {"filter": self})
        self._server = _Server(("127.0.0.1", 0), handler)
        self.uri = f"http://127.0.0.1:{self._server.server_address[1]}{self.path}"
        threading.Thread(
            target=self._server.serve_forever, args=(0.1,), name="REST filter", daemon=True
        ).start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def session(self) -> requests.Session:
        """A connection to the catalog; it repeats no request."""
        opened = requests.Session()
        opened.auth = _as_it_is
        if self.signing.get("rest.sigv4-enabled", "").lower() == "true":
            from pyiceberg.catalog.rest import RestCatalog

            client: Any = SimpleNamespace(uri=self.upstream, properties=self.signing)
            try:
                RestCatalog._init_sigv4(client, opened)
            except ImportError as error:
                raise UserError(
                    "requests to the catalog cannot be signed: boto3 is not installed",
                    do='pip install "pyiceberg[rest-sigv4]"',
                ) from error
        return opened

    def answer(self, path: str, body: bytes) -> bytes:
        """Return the parts of a successful answer that the JVM gets. Raises ValueError if it is not
        JSON."""
        if not body:
            return body
        answer = json.loads(body)
        if isinstance(answer, dict):
            changed = self._config(answer) if path.endswith("/v1/config") else self._table(answer)
            if changed:
                return json.dumps(answer).encode()
        return body

    def _config(self, answer: dict[str, Any]) -> bool:
        kept = {
            part: served.catalog_config(answer.get(part), self.upstream)
            for part in ("defaults", "overrides")
        }
        kept["defaults"].pop("uri", None)  # the client has one of its own
        self.upstream = kept["overrides"].pop("uri", self.upstream).rstrip("/")
        answer.update({part: self._absolute(properties) for part, properties in kept.items()})
        return True

    def _table(self, answer: dict[str, Any]) -> bool:
        """Changes a loaded table or its credentials; False for an answer with neither."""
        metadata, credentials = answer.get("metadata"), answer.get("storage-credentials")
        if isinstance(metadata, dict):
            answer["config"] = self._accepted(answer.get("config"))
            if isinstance(metadata.get("properties"), dict):
                metadata["properties"] = served.table_properties(metadata["properties"])
        if isinstance(credentials, list):
            items = [item for item in credentials if isinstance(item, dict)]
            cut = [{**item, "config": self._accepted(item.get("config"))} for item in items]
            answer["storage-credentials"] = [item for item in cut if item["config"]]
        return isinstance(metadata, dict) or isinstance(credentials, list)

    def _accepted(self, properties: Any) -> dict[str, str]:
        texts = properties if isinstance(properties, dict) else {}
        return self._absolute(served.table_config(texts, self.upstream))

    def _absolute(self, properties: dict[str, str]) -> dict[str, str]:
        """Addresses that Iceberg takes relative to the catalog's: executors cannot reach us."""
        for name in served.REFRESH_ENDPOINTS:
            if name in properties and not urlsplit(properties[name]).scheme:
                properties[name] = f"{self.upstream}/{properties[name].lstrip('/')}"
        if properties.get("s3.remote-signing-enabled", "").lower() == "true":
            properties.setdefault("signer.uri", self.upstream)
        return properties


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Do nothing: the JVM closed the connection before its answer, and reports that itself."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    filter: RestFilter

    def setup(self) -> None:
        super().setup()
        self._session: requests.Session | None = None

    def finish(self) -> None:
        super().finish()
        if self._session is not None:
            self._session.close()

    def _pass_on(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        inside, _, rest = self.path[1:].partition("/")
        if not secrets.compare_digest(f"/{inside}", self.filter.path):
            self._reply(404, _error(404, "not found"))
            return
        kept = {k: v for k, v in self.headers.items() if k.lower() not in _OWN_HEADERS}
        try:
            with within_border(Border(self.filter.reach)):
                self._session = self._session or self.filter.session()
                response = self._session.request(
                    self.command,
                    f"{self.filter.upstream}/{rest}",
                    data=body or None,
                    headers=kept,
                    timeout=(CONNECT_SECONDS, ANSWER_SECONDS),
                    allow_redirects=self.command in ("GET", "HEAD"),
                )
        except (requests.RequestException, UserError) as error:
            # Iceberg repeats a reading request after 502; for a commit, 502 means that it may have
            # succeeded.
            status = 424 if self.command in ("GET", "HEAD") else 502
            text = f"no answer from {self.filter.upstream}: {type(error).__name__}"
            self._reply(status, _error(status, text))
            return
        headers = {k: v for k, v in response.headers.items() if k.lower() not in _OWN_HEADERS}
        self._reply(*self._cut(rest, response), headers)

    def _cut(self, rest: str, response: requests.Response) -> tuple[int, bytes]:
        status, path = response.status_code, f"/{rest}".partition("?")[0]
        if 300 <= status < 400 and status != 304:
            target = urljoin(response.url, response.headers.get("Location", ""))
            where = f" to {target}" if self.filter.reach is None else ""
            text = f"the catalog redirects{where}: name that address in uri"
            return 400, _error(400, text)
        if status >= 400:
            return status, _known_error(status, response.content, self.filter.reach is None)
        try:
            return status, self.filter.answer(path, response.content)
        except (ValueError, RecursionError):
            return 502, _error(502, "the catalog's answer is not valid JSON")

    def _reply(self, status: int, body: bytes, headers: Mapping[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        if not headers or "content-type" not in map(str.lower, headers):
            self.send_header("Content-Type", "application/json")
        if status != 304:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD" and status not in (204, 304):
            self.wfile.write(body)

    do_GET = do_POST = do_DELETE = do_HEAD = do_PUT = _pass_on

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: the requests are the JVM's own."""


def _as_it_is(request: Any) -> Any:
    """The JVM's own Authorization: without this, requests would put one of ~/.netrc there."""
    return request


def _error(status: int, message: str) -> bytes:
    return json.dumps(
        {"error": {"message": message, "type": "CatalogAnswer", "code": status}}
    ).encode()


_ERROR_TYPE = re.compile(r"[A-Za-z][A-Za-z_]{0,63}")


def _known_error(status: int, body: bytes, whole: bool) -> bytes:
    """An error of the protocol, or of OAuth2; any other body says nothing that we repeat.

    whole: with the server's own words; otherwise only the type that tells Iceberg what happened.
    """
    try:
        error = json.loads(body).get("error")
    except (ValueError, RecursionError, AttributeError):
        error = None
    if whole and isinstance(error, (dict, str)):
        return body
    if isinstance(error, str) and _ERROR_TYPE.fullmatch(error):
        return json.dumps({"error": error}).encode()
    kind = error.get("type") if isinstance(error, dict) else None
    text = f"HTTP status {status}"
    if not isinstance(kind, str) or not _ERROR_TYPE.fullmatch(kind):
        return _error(status, text)
    return json.dumps({"error": {"message": text, "type": kind, "code": status}}).encode()
