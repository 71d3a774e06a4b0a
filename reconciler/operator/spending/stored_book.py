"""Keeps the book of what was admitted in a ConfigMap of the operator's own namespace.

The ConfigMap is written before a Job is created, under the version that was read: of two operators
that both believe they lead one gets a conflict, so that together they never exceed a limit. If it
is missing or cannot be read (the first start, somebody's edit), it is made again from the
TableLayouts: from the live job of each and its last ones, which the operator wrote as well.
"""

from __future__ import annotations

import datetime as dt
import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from reconciler.kube.errors import ApiError, NotFound
from reconciler.kube.kinds import CONFIG_MAP, JOB, POD, POLICY
from reconciler.kube.pods import LAYOUT_LABEL, ended
from reconciler.operator.index import ObjectName
from reconciler.operator.job_record import JobRecord, Phase, record_of, unsettled_of
from reconciler.operator.runtime import Runtime
from reconciler.operator.spending import charges, shares
from reconciler.operator.spending.charges import WINDOW, AdmittedJob, Book
from reconciler.operator.spending.shares import Limits, PolicyNamespaces
from reconciler.operator.status_text import most_bytes, parse_time
from reconciler.plan.budget import Spent
from reconciler.plan.ledger import LONGEST_RUN

log = logging.getLogger(__name__)

FIELD = "spending"
YOUNG = dt.timedelta(minutes=1)
"""A job younger than this may be missing in the index only because the index is late."""

Answer = Callable[[Book], tuple[Book, str]]
"""The next book, and why not, "" if it is to be written."""


@dataclass
class Spending:
    """The book of what one operator admitted. Thread-safe."""

    runtime: Runtime
    """The services of the operator."""
    clock: Callable[[], dt.datetime]
    """Returns the time."""
    known: Book = field(default_factory=Book)
    """The book as it was last read or written, for what is only shown or is decided again later."""
    _read: bool = False
    """Whether the book has been read from the cluster."""
    _lock: threading.Lock = field(default_factory=threading.Lock)
    """Guards the book."""

    @property
    def limits(self) -> Limits:
        settings = self.runtime.settings
        return Limits(
            settings.max_jobs,
            settings.max_rewrite_bytes,
            settings.kept_share,
            dt.timedelta(seconds=settings.turn),
        )

    def sharing(self) -> PolicyNamespaces:
        """Return the namespaces that share slots and cap."""
        settings, index = self.runtime.settings, self.runtime.index
        found = frozenset(namespace for namespace, _ in index.names(POLICY))
        watched = {*(settings.namespaces or (settings.namespace,))}
        return PolicyNamespaces(found, settings.cluster_wide or bool(watched - found))

    def read(self) -> Book:
        """Read the book. Raises ApiError."""
        return self._change(lambda book: (book, ""))[0]

    def admit(self, job: AdmittedJob, refused: Callable[[Book], str]) -> str:
        """Add the job, unless `refused` answers; return its answer, "" once the job is stored.

        Raises ApiError: nothing may start then.
        """

        def answer(book: Book) -> tuple[Book, str]:
            if job.key in book.admitted:
                return book, ""
            why = refused(book)
            return (book, why) if why else (book.admit(job), "")

        return self._change(answer)[1]

    def end(self, key: ObjectName) -> None:
        """Charge a job that has ended. Raises ApiError: to be repeated."""
        self._update(lambda book: book.end(key, self.clock()))

    def release(self, key: ObjectName) -> None:
        """Forget a job that never ran. Raises ApiError: to be repeated."""
        self._update(lambda book: book.release(key))

    def stop(self, jobs: Iterable[AdmittedJob]) -> None:
        """Record which jobs give up their slots. Raises ApiError."""

        def stopped(book: Book) -> Book:
            for job in jobs:
                book = book.stop(job.key, self.clock())
            return book

        self._update(stopped)

    def gives_way(self, namespace: str, job: str) -> bool:
        """Whether the job is to give up its slot."""
        found = self.known.admitted.get((namespace, job))
        return found is not None and found.stopping is not None

    def sweep(self) -> None:
        """Find jobs whose TableLayout is gone, and add those that the book lacks. Raises ApiError.

        A job is over when neither it nor a pod of its table is left. Where that cannot be asked,
        for example in a namespace whose RoleBinding was deleted, its active deadline decides. A
        write-ahead whose Job does not exist yet is not over: its TableLayout decides about it.
        """
        if not self._read:
            self.read()
        now, index = self.clock(), self.runtime.index
        bodies = index.layouts_with_job()
        live = {job.key: job for body in bodies for job in _jobs(body)}
        undecided = {
            (body["metadata"]["namespace"], record.name)
            for body in bodies
            if (record := unsettled_of(body.get("status"))) is not None
        }
        over = [
            job.key
            for job in self.known.admitted.values()
            if job.key not in undecided
            and (now - job.since > LONGEST_RUN or (now - job.since > YOUNG and self._over(job)))
        ]
        missing = [job for key, job in live.items() if key not in self.known.admitted]
        if not over and not missing:
            return

        def swept(book: Book) -> Book:
            for key in over:
                book = book.end(key, now)
            return self._bounded(missing, book, now)

        self._update(swept)

    def _bounded(self, jobs: Iterable[AdmittedJob], book: Book, now: dt.datetime) -> Book:
        """Return the book with jobs that it lacks, each with at most the bytes that would be
        admitted beside the others: who may write the status of a TableLayout takes nothing kept for
        others."""
        known, since = self.sharing(), now - WINDOW
        used = Counter(
            {
                namespace: sum(item.rewrite_bytes for item in found if item.at > since)
                for namespace, found in book.spent(now).items()
            }
        )
        for job in sorted(jobs, key=lambda one: (one.since, one.key)):
            spent = {name: (Spent(now, size, 0.0),) for name, size in used.items()}
            cap = shares.cap_of(self.limits, spent, job.namespace, job.rewrite_bytes, known, now)
            left = max(0, (cap.max_rewrite_bytes or 0) - used.total())
            size = min(job.rewrite_bytes, left)
            used[job.namespace] += size
            book = book.admit(replace(job, rewrite_bytes=size))
        return book

    def _rebuilt(self, layouts: Iterable[Mapping[str, Any]]) -> Book:
        """Return the book that the statuses of the TableLayouts show."""
        now = self.clock()
        live, ends = list[AdmittedJob](), dict[ObjectName, dt.datetime]()
        for body in layouts:
            live += _jobs(body)
            for job, end in _ended(body):
                if end > now - WINDOW:
                    live.append(job)
                    ends[job.key] = end
        book = self._bounded(live, Book(), now)
        for key, end in ends.items():
            book = book.end(key, min(end, now))
        return book.current(now)

    def _over(self, job: AdmittedJob) -> bool:
        api = self.runtime.api
        labels = {LAYOUT_LABEL: job.layout}
        try:
            jobs = api.list(JOB, job.namespace, labels)
            pods = api.list(POD, job.namespace, labels)
        except ApiError:
            return False
        named = any(item["metadata"]["name"] == job.job for item in jobs)
        return not named and all(map(ended, pods))

    def _update(self, next_of: Callable[[Book], Book]) -> None:
        def answer(book: Book) -> tuple[Book, str]:
            found = next_of(book)
            return found, "" if found != book else "unchanged"

        self._change(answer)

    def _change(self, answer: Answer) -> tuple[Book, str]:
        """Read, decide and write. Raises Conflict if another operator wrote meanwhile."""
        with self._lock:
            stored = self._stored()
            kept = self._kept(stored)
            book = kept or self._rebuilt(self.runtime.index.layouts())
            found, why = answer(book)
            if not why and (kept is None or found != book):
                self._write(stored, found.current(self.clock()))
            self.known, self._read = found, True
            return found, why

    @property
    def _name(self) -> str:
        """As the Lease: both belong to one operator, and the same right names them."""
        return str(self.runtime.settings.lease)

    @property
    def _namespace(self) -> str:
        return self.runtime.settings.namespace or self.runtime.api.namespace

    def _stored(self) -> dict[str, Any] | None:
        try:
            return dict(self.runtime.api.get(CONFIG_MAP, self._namespace, self._name))
        except NotFound:
            return None

    def _kept(self, stored: Mapping[str, Any] | None) -> Book | None:
        """Return the stored book; None if there is none that can be read."""
        text = ((stored or {}).get("data") or {}).get(FIELD)
        try:
            if text is not None:
                return charges.from_text(str(text)).current(self.clock())
            log.info("ConfigMap %s has no record yet: it is made from the TableLayouts", self._name)
        except ValueError as error:
            log.warning("ConfigMap %s is made again from the TableLayouts: %s", self._name, error)
        return None

    def _write(self, stored: dict[str, Any] | None, book: Book) -> None:
        api, data = self.runtime.api, {FIELD: charges.to_text(book)}
        if stored is None:
            api.create(
                CONFIG_MAP, self._namespace, {"metadata": {"name": self._name}, "data": data}
            )
            return
        api.replace(CONFIG_MAP, self._namespace, {**stored, "data": data})


def _jobs(body: Mapping[str, Any]) -> Iterator[AdmittedJob]:
    """Yield the job of a TableLayout that has not ended; a write-ahead has none yet."""
    record = unsettled_of(body.get("status"))
    if record is not None and record.uid:
        yield admitted(body["metadata"]["namespace"], body["metadata"]["name"], record)


def admitted(namespace: str, layout: str, record: JobRecord) -> AdmittedJob:
    return AdmittedJob(namespace, record.name, layout, record.rewrite_bytes, record.written)


def _ended(body: Mapping[str, Any]) -> Iterator[tuple[AdmittedJob, dt.datetime]]:
    """Yield the last jobs of a TableLayout and their ends: the very last with what was reserved for
    it, those of its history with what they read at most."""
    status, metadata = body.get("status") or {}, body["metadata"]
    namespace, layout = metadata["namespace"], metadata["name"]
    record, own = record_of(status), ""
    if record is not None and record.phase in (Phase.SUCCEEDED, Phase.FAILED):
        own = record.plan_id
        yield admitted(namespace, layout, record), _end_of(status, own) or record.written
    for number, entry in enumerate(status.get("history") or ()):
        end = parse_time(entry.get("finishedAt"))
        if entry.get("planId") == own:
            own = ""  # an earlier attempt at the same plan is another job
        elif end is not None:
            size = most_bytes(entry.get("rewriteBytes", ""))
            yield AdmittedJob(namespace, f"{layout}/{number}", layout, size, end), end


def _end_of(status: Mapping[str, Any], plan_id: str) -> dt.datetime | None:
    history = status.get("history") or ()
    ends = (parse_time(one.get("finishedAt")) for one in history if one.get("planId") == plan_id)
    return next(filter(None, ends), None)
