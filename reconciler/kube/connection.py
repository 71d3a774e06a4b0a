"""Finds the API server and our credentials: a kubeconfig or a pod's service account.

The kubernetes library reads the configuration and owns the connection pool; its generated models
are not loaded, which keeps start-up and memory small.
"""

from __future__ import annotations

import importlib
import logging
import os
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reconciler.errors import UserError

if TYPE_CHECKING:
    from kubernetes.client import Configuration

log = logging.getLogger(__name__)

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
POOL_SIZE = 32
UNAUTHORIZED = 401


@dataclass(frozen=True, slots=True)
class Source:
    """kubeconfig: its path(s), None for the service account of the pod we are in."""

    kubeconfig: str | None


def find_source(kubeconfig: str | None) -> Source:
    """Return the first source of: the given path, $KUBECONFIG, the pod's service account,
    ~/.kube/config."""
    named = kubeconfig or os.environ.get("KUBECONFIG")
    if named:
        return Source(named)
    if "KUBERNETES_SERVICE_HOST" in os.environ and (SERVICE_ACCOUNT / "token").exists():
        return Source(None)
    default = Path.home() / ".kube" / "config"
    if default.exists():
        return Source(str(default))
    raise UserError(
        "no Kubernetes cluster is configured",
        details=("there is neither $KUBECONFIG nor ~/.kube/config nor a service account",),
        do="set KUBECONFIG",
    )


def load(source: Source) -> tuple[Configuration, str]:
    """Return the client's configuration, and the namespace of the context or the pod."""
    from kubernetes.client import Configuration

    library: Any = importlib.import_module("kubernetes.config")
    configuration = Configuration()
    configuration.connection_pool_maxsize = POOL_SIZE
    configuration.retries = False
    try:
        if source.kubeconfig is None:
            library.load_incluster_config(client_configuration=configuration)
            return configuration, (SERVICE_ACCOUNT / "namespace").read_text().strip()
        library.load_kube_config(
            config_file=source.kubeconfig, client_configuration=configuration, persist_config=False
        )
        _, context = library.list_kube_config_contexts(source.kubeconfig)
        return configuration, context["context"].get("namespace") or "default"
    except (library.ConfigException, OSError, KeyError, TypeError) as error:
        place = source.kubeconfig or "the pod's service account"
        raise UserError(
            f"cannot read the Kubernetes configuration of {place}",
            details=(" ".join(str(error).split()),),
            do="kubectl config view shows what is configured; set KUBECONFIG",
        ) from error


class Connection:
    """A bounded pool of connections with fresh credentials; safe to use from many threads."""

    def __init__(self, source: Source):
        self._source = source
        self._lock = threading.Lock()
        self._generation = 0
        self._load()

    @classmethod
    def of(cls, kubeconfig: str | None) -> Connection:
        return cls(find_source(kubeconfig))

    def _load(self) -> None:
        from kubernetes.client.rest import RESTClientObject

        self._configuration, self.namespace = load(self._source)
        self._pool: Any = RESTClientObject(self._configuration).pool_manager
        # A full pool makes callers wait; without it urllib3 opens connections without bound.
        self._pool.connection_pool_kw["block"] = True

    @property
    def generation(self) -> int:
        """Number of times that the configuration was read again."""
        return self._generation

    def renew(self, seen: int) -> None:
        """Read token and certificates again, once for all threads that saw generation `seen`.

        If it raises UserError, the previous configuration is kept.
        """
        with self._lock:
            if self._generation == seen:
                self._load()
                self._generation += 1

    def credentials(self) -> dict[str, Any]:
        """Return server and credentials in the client's names, for a second client (the watch
        layer)."""
        with self._lock:
            found = self._configuration
            headers = self._headers()
            return {
                "server": found.host,
                "ca_path": found.ssl_ca_cert,
                "insecure": not found.verify_ssl,
                "certificate_path": found.cert_file,
                "private_key_path": found.key_file,
                "authorization": headers.get("authorization"),
            }

    def _headers(self) -> dict[str, str]:
        """Return the headers with credentials.

        The library reads a pod's token again every minute. While its file cannot be read (it is
        being replaced), the previous token is used; once that is refused, `renew` is called.
        """
        found = self._configuration
        library: Any = importlib.import_module("kubernetes.config")
        try:
            token = found.get_api_key_with_prefix("BearerToken", alias="authorization")
        except (library.ConfigException, OSError) as error:
            log.warning("the token could not be read again: %s", " ".join(str(error).split()))
            token = found.api_key.get("BearerToken")
        return {"authorization": token} if token else {}

    def accepted(self) -> bool:
        """Whether the server accepts our identity; no answer does not count as a refusal."""
        import urllib3

        try:
            timeout = urllib3.Timeout(connect=5.0, read=10.0)
            response = self.send("GET", "/version", headers={}, body=None, timeout=timeout)
            response.drain_conn()
        except (urllib3.exceptions.HTTPError, OSError):
            return True
        return int(response.status) != UNAUTHORIZED

    def send(
        self, method: str, path: str, *, headers: dict[str, str], body: bytes | None, timeout: Any
    ) -> Any:
        """Send one request and return urllib3's unread response. Raises urllib3's errors."""
        with self._lock:
            pool, host, own = self._pool, self._configuration.host, self._headers()
        return pool.request(
            method,
            host + path,
            headers={**headers, **own},
            body=body,
            timeout=timeout,
            preload_content=False,
            redirect=False,
        )
