"""The API server for the operator, the driver and `layoutctl`: plain dicts in, plain dicts out.

Each call has a timeout, is reported to an observer, and raises a class of `reconciler.kube.errors`.
Writes name their writer (field manager) and their preconditions (resource version, uid).
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from reconciler.errors import UserError
from reconciler.kube.answers import APPLY, JSON, encoded, no_answer, refusal
from reconciler.kube.connection import Connection
from reconciler.kube.errors import ApiError, ApiUnavailable, Gone, Unauthorized
from reconciler.kube.events import EventLog
from reconciler.kube.kinds import EVENT, OPERATOR_MANAGER, Kind

CONNECT_SECONDS = 5.0
READ_SECONDS = 30.0
PAGE_SIZE = "500"
"""Objects that one answer to a list holds at most; the rest follows in further pages."""
MERGE = "application/merge-patch+json"
METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
METADATA_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"

Objects = list[dict[str, Any]]
Observer = Callable[[str, str, int, float], None]
"""Called after each call with verb, plural, HTTP status (0: no answer), seconds."""


METHODS = {"get": "GET", "list": "GET", "create": "POST", "patch": "PATCH", "update": "PUT",
           "delete": "DELETE"}  # fmt: skip
"""The method of HTTP of each verb."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """What a call is about. namespace None: of no namespace, or of all. name None: all objects."""

    kind: Kind
    namespace: str | None
    name: str | None = None
    subresource: str = ""

    @property
    def path(self) -> str:
        path = self.kind.path(self.namespace, self.name)
        return path + (f"/{self.subresource}" if self.subresource else "")

    @property
    def text(self) -> str:
        """As messages name it."""
        where = f" in namespace {self.namespace}" if self.namespace else ""
        return f"{self.kind.kind} {self.name}{where}" if self.name else f"{self.kind.plural}{where}"


class Api:
    """One API server under one identity. Thread-safe."""

    def __init__(self, connection: Connection, *, observer: Observer | None = None):
        self.connection = connection
        self.observer = observer
        self._events = EventLog()

    @classmethod
    def from_environment(cls, kubeconfig: str | None = None) -> Api:
        """Return the API of $KUBECONFIG, the given path, or the pod's service account. Raises
        UserError."""
        return cls(Connection.of(kubeconfig))

    @property
    def namespace(self) -> str:
        """Namespace of the kubeconfig's context or of the pod."""
        return self.connection.namespace

    def get(self, kind: Kind, namespace: str | None, name: str) -> dict[str, Any]:
        return self._call("get", Endpoint(kind, namespace, name))

    def get_metadata(self, kind: Kind, namespace: str | None, name: str) -> dict[str, Any]:
        """Return only the metadata, for objects whose content must not be read, such as Secrets."""
        return self._call("get", Endpoint(kind, namespace, name), accept=METADATA)

    def list(
        self,
        kind: Kind,
        namespace: str | None = None,
        labels: Mapping[str, str] | None = None,
        *,
        metadata_only: bool = False,
    ) -> Objects:
        """Return all objects at one point in time, read in pages. namespace None: of all
        namespaces.

        labels: "" as a value asks for the label's presence. metadata_only: no spec, no status.
        """
        query = {"limit": PAGE_SIZE, **_selector(labels)}
        accept = METADATA_LIST if metadata_only else JSON
        try:
            return list(self._pages(kind, namespace, query, accept))
        except Gone:
            # The pages' common snapshot was compacted while we read: one single answer does not
            # need it.
            query.pop("limit")
            return list(self._pages(kind, namespace, query, accept))

    def each(
        self,
        kind: Kind,
        namespace: str | None = None,
        labels: Mapping[str, str] | None = None,
        *,
        metadata_only: bool = False,
    ) -> Iterator[dict[str, Any]]:
        """Yield the objects of `list`, page by page: ten thousand at once take as much memory as
        all else.

        An object may come twice, the later one being newer, and one that was deleted meanwhile may
        be included.
        """
        query = {"limit": PAGE_SIZE, **_selector(labels)}
        accept = METADATA_LIST if metadata_only else JSON
        try:
            yield from self._pages(kind, namespace, query, accept)
        except Gone:
            query.pop("limit")
            yield from self._pages(kind, namespace, query, accept)

    def _pages(
        self, kind: Kind, namespace: str | None, query: dict[str, str], accept: str
    ) -> Iterator[dict[str, Any]]:
        token = ""
        while True:
            page = {**query, "continue": token} if token else query
            answer = self._call("list", Endpoint(kind, namespace), query=page, accept=accept)
            for item in answer.get("items") or ():
                yield {**item, "apiVersion": kind.api_version, "kind": kind.kind}
            token = answer["metadata"].get("continue") or ""
            if not token:
                return

    def create(self, kind: Kind, namespace: str | None, body: Mapping[str, Any]) -> dict[str, Any]:
        return self._call(
            "create",
            Endpoint(kind, namespace),
            query={"fieldManager": OPERATOR_MANAGER},
            body={"apiVersion": kind.api_version, "kind": kind.kind, **body},
        )

    def apply(
        self,
        kind: Kind,
        namespace: str | None,
        body: Mapping[str, Any],
    ) -> dict[str, Any]:
        """Run a server-side apply: the operator owns the given fields, whoever did before; fields
        it gave before are removed."""
        return self._call(
            "patch",
            Endpoint(kind, namespace, body["metadata"]["name"]),
            query={"fieldManager": OPERATOR_MANAGER, "force": "true"},
            body={"apiVersion": kind.api_version, "kind": kind.kind, **body},
            content=APPLY,
        )

    def patch(
        self,
        kind: Kind,
        namespace: str | None,
        name: str,
        body: Mapping[str, Any],
        manager: str = OPERATOR_MANAGER,
    ) -> dict[str, Any]:
        """Send a merge patch. With metadata.resourceVersion in the body it is refused if the object
        changed."""
        return self._call(
            "patch",
            Endpoint(kind, namespace, name),
            query={"fieldManager": manager},
            body=body,
            content=MERGE,
        )

    def replace(self, kind: Kind, namespace: str | None, body: Mapping[str, Any]) -> dict[str, Any]:
        """Replace the whole object. Conflict if it changed since it was read."""
        return self._call(
            "update",
            Endpoint(kind, namespace, body["metadata"]["name"]),
            query={"fieldManager": OPERATOR_MANAGER},
            body={"apiVersion": kind.api_version, "kind": kind.kind, **body},
        )

    def put_status(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        status: Mapping[str, Any],
        resource_version: str,
    ) -> dict[str, Any]:
        """Replace the status of exactly the version that was read. Conflict if the object changed
        since."""
        return self._call(
            "update",
            Endpoint(kind, namespace, name, "status"),
            query={"fieldManager": OPERATOR_MANAGER},
            body={
                "apiVersion": kind.api_version,
                "kind": kind.kind,
                "metadata": {
                    "name": name,
                    "namespace": namespace,
                    "resourceVersion": resource_version,
                },
                "status": status,
            },
        )

    def delete(
        self,
        kind: Kind,
        namespace: str | None,
        name: str,
        *,
        uid: str | None = None,
        propagation: str = "Foreground",
    ) -> dict[str, Any]:
        """Delete the object, only if it still has that uid. NotFound if it is gone."""
        options: dict[str, Any] = {"propagationPolicy": propagation}
        if uid is not None:
            options["preconditions"] = {"uid": uid}
        return self._call("delete", Endpoint(kind, namespace, name), body=options)

    def event(
        self, regarding: Mapping[str, Any], reason: str, message: str, type: str = "Normal"
    ) -> None:
        """Record it in the object's events, repeats folded into one. Never raises an ApiError."""
        write = self._events.record(regarding, reason, message, type)
        if write is None:
            return
        try:
            if write.patch:
                self.patch(EVENT, write.namespace, write.name, write.body)
            else:
                self.create(EVENT, write.namespace, write.body)
        except ApiError:
            # Events are optional: the status and the log have the same information.
            self._events.forget(write)

    def _call(self, verb: str, place: Endpoint, **more: Any) -> dict[str, Any]:
        return self._read(self._send(verb, place, **more))

    def _read(self, response: Any) -> dict[str, Any]:
        import urllib3

        try:
            answer: dict[str, Any] = json.loads(response.data)
        except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
            raise no_answer("the API server", error) from error
        return answer

    def _send(
        self,
        verb: str,
        place: Endpoint,
        *,
        query: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
        accept: str = JSON,
        content: str = JSON,
    ) -> Any:
        return self._raw(
            verb,
            place.path + (f"?{urlencode(query)}" if query else ""),
            place.kind.plural,
            subject=place.text,
            headers={"Accept": accept, "Content-Type": content, "User-Agent": OPERATOR_MANAGER},
            body=None if body is None else encoded(body, content),
        )

    def _raw(
        self,
        verb: str,
        path: str,
        plural: str,
        *,
        subject: str,
        headers: dict[str, str],
        body: bytes | None,
    ) -> Any:
        """Return an unread response with status below 400. Refused credentials are read again,
        once."""
        generation = self.connection.generation
        try:
            return self._once(verb, path, plural, subject, headers, body)
        except Unauthorized as refused:
            self._renew(generation, refused)
        except ApiUnavailable as error:
            # A pooled connection that the server closed (after a restart, for example) does not
            # mean that the server is down: reading is tried once more on a new one.
            if METHODS[verb] != "GET" or error.status or not error.immediate:
                raise
        return self._once(verb, path, plural, subject, headers, body)

    def _renew(self, generation: int, refused: Unauthorized) -> None:
        """Read the configuration again; if that fails, the refusal is raised."""
        try:
            self.connection.renew(generation)
        except UserError as error:
            again = Unauthorized(refused.what, details=(error.what, *error.details), do=error.do)
            again.status = refused.status
            raise again from error

    def _once(
        self,
        verb: str,
        path: str,
        plural: str,
        subject: str,
        headers: dict[str, str],
        body: bytes | None,
    ) -> Any:
        import urllib3

        started = time.monotonic()
        timeout = urllib3.Timeout(connect=CONNECT_SECONDS, read=READ_SECONDS)
        status = 0
        try:
            response = self.connection.send(
                METHODS[verb], path, headers=headers, body=body, timeout=timeout
            )
            status = int(response.status)
            if status >= 400:
                raise refusal(response, subject)
            return response
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise no_answer(subject, error) from error
        finally:
            if self.observer is not None:
                self.observer(verb, plural, status, time.monotonic() - started)


def _selector(labels: Mapping[str, str] | None) -> dict[str, str]:
    parts = [f"{key}={value}" if value else key for key, value in sorted((labels or {}).items())]
    return {"labelSelector": ",".join(parts)} if parts else {}
