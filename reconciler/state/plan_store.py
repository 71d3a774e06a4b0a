"""Published plans: write-once, content-addressed objects below one URI of the catalog.

`layoutctl plan --publish` and the operator store plans; a job gets its plan by digest. The body is
the plan's canonical JSON, so that its SHA-256 is the digest in its name. A plan approved in Git is
found by its id, so that exactly the approved plan runs. Recommendations are kept beside them.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import hashlib
import json
import logging
import os
import re
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from reconciler.api.catalog_config import CatalogConfig
from reconciler.catalog import bounds
from reconciler.catalog.failures import said
from reconciler.catalog.load import connect, local_path, within
from reconciler.errors import ReconcilerError, UnavailableError, UserError
from reconciler.plan.plan import Plan, stored_form
from reconciler.state.records import MOST_BODY
from reconciler.state.set_aside import parse_stored
from reconciler.state.shared_backend import DEFAULT_NAMESPACE, SharedBackend

if TYPE_CHECKING:
    from pyiceberg.io import FileIO

log = logging.getLogger(__name__)

_NAME = re.compile(
    r"(?:^|/)(?P<table>[^/]+)/(?P<plan>[pr]-[0-9a-f]{20})-(?P<digest>[0-9a-f]{64})\.json(?:\.unreadable)?$"
)
SET_ASIDE = ".unreadable"
"""Ending of the name of an object that is kept for diagnosis only, until the retention ends."""

_MARGIN = 2.0
"""Factor by which a listing may take longer than a catalog call."""

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class StoredPlan:
    """One object of the store."""

    uri: str
    """Place of the object."""
    table_uuid: str
    """UUID of the table."""
    plan_id: str
    """Id of the plan, or of a recommendation."""
    digest: str
    """SHA-256 of the body, in hexadecimal digits."""
    modified: dt.datetime | None
    """When the object was written; None if unknown."""


class NotPublishedError(UserError):
    """The plan is gone: published plans are removed when their retention is over."""


class PlanStore:
    """The plans of one catalog. uri: their base; None: beside the shared state tables.

    namespace: of the shared state. on_created is called when the default base had to be created.
    """

    def __init__(
        self,
        config: CatalogConfig,
        uri: str | None = None,
        *,
        namespace: tuple[str, ...] = DEFAULT_NAMESPACE,
        timeout: float = 30.0,
        on_created: Callable[[str], None] | None = None,
        backend: SharedBackend | None = None,
    ):
        self._config, self._timeout = config, timeout
        self._base = uri.rstrip("/") if uri else ""
        self._backend = backend or SharedBackend(config, namespace, timeout, on_created)
        self._io: FileIO | None = None

    def put(self, plan: Plan) -> str:
        """Store the plan and return its URI."""
        body, uri = stored_form(plan), self.uri_of(plan)
        return self._run(lambda: self._put(uri, body), f"plan {plan.id} cannot be stored")

    def put_recommendation(
        self, table_uuid: str, run_id: str, document: Mapping[str, Any]
    ) -> tuple[str, str]:
        """Store a recommendation; return its URI and "sha256:" + digest."""
        body = json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
        digest = hashlib.sha256(body).hexdigest()
        uri = self._uri(table_uuid, run_id, digest)
        what = f"recommendation {run_id} cannot be stored"
        return self._run(lambda: self._put(uri, body), what), f"sha256:{digest}"

    def get_recommendation(self, uri: str, digest: str) -> dict[str, Any]:
        """Return the recommendation at the URI. digest: as `put_recommendation` returned it."""
        body = self._run(lambda: self._read(uri), f"the recommendation at {uri} cannot be read")
        if body is None or f"sha256:{hashlib.sha256(body).hexdigest()}" != digest:
            found = "is not there" if body is None else "was changed after it was stored"
            raise UserError(
                f"the recommendation at {uri} {found}",
                do="wait for the operator's next recommendation, or run layoutctl recommend TABLE",
            )
        found = readable_json(body)
        if not isinstance(found, dict):
            raise UserError(
                f"the object at {uri} is not a recommendation",
                do="wait for the operator's next recommendation, or run layoutctl recommend TABLE",
            )
        return found

    def get(self, uri: str, digest: str) -> Plan:
        """Return the plan at the URI. digest: "sha256:" and 64 hex digits, as it was reviewed."""
        body = self._run(lambda: self._read(uri), f"the plan at {uri} cannot be read")
        if body is None:
            raise NotPublishedError(
                f"there is no plan at {uri}",
                details=("published plans are removed when their retention is over",),
                do="plan the table again with: layoutctl plan TABLE --publish",
            )
        return _checked(uri, body, digest.removeprefix("sha256:"))

    def find(self, table_uuid: str, plan_id: str) -> Plan | None:
        """Return the plan of that id; the latest if it was published with several predictions."""
        found = [
            item
            for item in self._list(table_uuid)
            if item.plan_id == plan_id and not item.uri.endswith(SET_ASIDE)
        ]
        plans = []
        for item in found:
            try:
                plan = self._get(item)
            except UserError as error:
                log.warning("the plan at %s is not used: %s", item.uri, error.what)
                continue
            if plan is not None and plan.id == plan_id:
                plans.append(plan)
        return max(plans, key=lambda plan: (plan.created, plan.digest()), default=None)

    def ids_of(self, table_uuid: str) -> frozenset[str]:
        """Return the ids of the plans stored for a table, without reading them."""
        stored = self._list(table_uuid)
        return frozenset(item.plan_id for item in stored if not item.uri.endswith(SET_ASIDE))

    def uri_of(self, plan: Plan) -> str:
        """Return the URI at which the plan is stored."""
        return self._uri(plan.table_uuid, plan.id, plan.digest().removeprefix("sha256:"))

    def _uri(self, table_uuid: str, item_id: str, digest: str) -> str:
        return f"{self._base_for_writing()}/{table_uuid}/{item_id}-{digest}.json"

    def expire(self, retention: dt.timedelta, keep: Collection[str] = ()) -> int:
        """Remove plans older than the retention, except ids in `keep`; return how many."""
        before = dt.datetime.now(dt.UTC) - retention
        old = [
            item
            for item in self._list("")
            if item.plan_id not in keep and item.modified is not None and item.modified < before
        ]
        for item in old:
            self._run(lambda uri=item.uri: self._remove(uri), f"{item.uri} cannot be removed")  # type: ignore[misc]
        return len(old)

    def _get(self, item: StoredPlan) -> Plan | None:
        """Return the plan, None if it expired since it was listed."""
        body = self._run(lambda: self._read(item.uri), f"the plan at {item.uri} cannot be read")
        return None if body is None else _checked(item.uri, body, item.digest)

    def _base_for_writing(self) -> str:
        if not self._base:
            self._base = _beside(self._backend.home())
        return self._base

    def _base_for_reading(self) -> str | None:
        if not self._base:
            home = self._backend.read(self._backend.known_home)
            if home is None:
                return None
            self._base = _beside(home)
        return self._base

    def _list(self, table_uuid: str) -> list[StoredPlan]:
        base = self._base_for_reading()
        if base is None:
            return []
        place = f"{base}/{table_uuid}" if table_uuid else base
        return self._run(
            lambda: [
                StoredPlan(uri, match["table"], match["plan"], match["digest"], modified)
                for uri, modified in _files_below(self._file_io(place), place)
                if (match := _NAME.search(uri))
            ],
            f"the plans at {place} cannot be listed",
            _MARGIN,
        )

    def _put(self, uri: str, body: bytes) -> str:
        """Write the object once. Another body under its name, which has the digest of this one, is
        damage or forged: it is moved to a name of its own, where the last one is kept."""
        present = self._read(uri)
        if present not in (None, body):
            log.warning("the object at %s is not what its name says, and was set aside", uri)
            aside = uri + SET_ASIDE
            self._remove(aside)
            _write_once(self._file_io(aside), aside, present[:MOST_BODY])
            self._remove(uri)
            present = None
        if present is None:
            _write_once(self._file_io(uri), uri, body)
            present = self._read(uri)
        if present != body:
            raise UserError(
                f"the object at {uri} is not the plan that its name says",
                details=("It was written a moment ago, and another writer changed it.",),
                do="find who else writes below spec.system.plans.uri",
            )
        return uri

    def _read(self, uri: str) -> bytes | None:
        try:
            with self._file_io(uri).new_input(uri).open() as stream:
                return bounds.read(stream, f"the object at {uri}")
        except FileNotFoundError:
            return None

    def _remove(self, uri: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._file_io(uri).delete(uri)

    def _file_io(self, uri: str) -> FileIO:
        if self._io is None:
            from reconciler.catalog.border import file_io

            catalog = connect(self._config, self._timeout)
            self._io = file_io(catalog.properties, uri)
        return self._io

    def _run(self, work: Callable[[], Result], what: str, margin: float = 1.0) -> Result:
        """Return the result, or raise one error that says what failed."""

        def guarded() -> Result:
            try:
                return work()
            except ReconcilerError:
                raise
            except Exception as error:
                kind = UserError if isinstance(error, (PermissionError, ValueError)) else None
                raise (kind or UnavailableError)(
                    what,
                    details=(said(error, self._config),),
                    do="check spec.system.plans.uri, and the credentials of the object store",
                ) from error

        return within(guarded, self._timeout * margin, self._config)


def readable_json(body: bytes) -> Any:
    """Return the value of a JSON text, None for anything else."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def _beside(home: str) -> str:
    """Return `plans` next to the directory of a state table."""
    return home.rstrip("/").rpartition("/")[0] + "/plans"


def _checked(uri: str, body: bytes, digest: str) -> Plan:
    actual = hashlib.sha256(body).hexdigest()
    if actual != digest:
        raise UserError(
            f"the plan at {uri} was changed after it was published",
            details=(f"its digest is sha256:{actual}", f"expected was sha256:{digest}"),
            do="plan the table again with: layoutctl plan TABLE --publish",
        )
    return parse_stored(body)


def _write_once(io: FileIO, uri: str, body: bytes) -> None:
    """Write the whole file or nothing; an existing file is not changed."""
    path = local_path(uri)
    if path is None:
        # An object appears when its upload is complete. A concurrent writer of this name writes the
        # same bytes.
        with contextlib.suppress(FileExistsError), io.new_output(uri).create() as stream:
            stream.write(body)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{uuid.uuid4().hex}.tmp")
    try:
        with draft.open("xb") as stream:
            stream.write(body)
            stream.flush()
            os.fsync(stream.fileno())
        with contextlib.suppress(FileExistsError):
            os.link(draft, path)
    finally:
        draft.unlink(missing_ok=True)


def _files_below(io: FileIO, base: str) -> Iterator[tuple[str, dt.datetime | None]]:
    """Yield URIs and modification times of all files below a location; none if it does not
    exist."""
    from pyiceberg.io.pyarrow import PyArrowFileIO

    if isinstance(io, PyArrowFileIO):
        from pyarrow.fs import FileSelector, FileType

        scheme, netloc, path = io.parse_location(base, io.properties)
        files = io.fs_by_scheme(scheme, netloc)
        selector = FileSelector(path, allow_not_found=True, recursive=True)
        for info in files.get_file_info(selector):
            if info.type == FileType.File:
                yield base + info.path[len(path.rstrip("/")) :], info.mtime
        return
    from urllib.parse import urlsplit

    parts = urlsplit(base)
    system = io.get_fs(parts.scheme or "file", parts.hostname)  # type: ignore[attr-defined]
    root = system._strip_protocol(base)
    with contextlib.suppress(FileNotFoundError):
        for name, info in system.find(root, detail=True).items():
            modified = info.get("LastModified") or info.get("updated")
            yield base + name[len(root) :], modified if isinstance(modified, dt.datetime) else None
