"""`layoutctl job`: the process of a driver pod. Hidden: the operator's Jobs call it, people do not.

Input is LAYOUT_RUN and a mounted secret; output is JSON lines on stderr, one line in the
termination log, and an exit code of docs/reference/cli.md.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import logging
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from reconciler.api.catalog_config import CatalogConfig
    from reconciler.api.reach import Reach
    from reconciler.api.run_document import RecommendRun, RunDocument
    from reconciler.kube.termination_message import LastWords
    from reconciler.loop.driver_job import Driven, DriverActor
    from reconciler.plan.execution import Event, Lease
    from reconciler.state.shared_state import SharedStore

TERMINATION_LOG = "/dev/termination-log"


def register(app: typer.Typer) -> None:
    @app.command(hidden=True)
    def job() -> None:
        """Carry out the run that LAYOUT_RUN describes, as a driver pod."""
        raise typer.Exit(_Job().run())


class _Job:
    """One run: its identity is in every log line, and it ends in one place."""

    def __init__(self) -> None:
        self.identity: dict[str, Any] = {}
        self.redacted: Callable[[str], str] = lambda text: text
        self.actor: DriverActor | None = None

    def run(self) -> int:
        """Return the exit code; never raise."""
        from reconciler import errors
        from reconciler.loop.driver_job import last_words, said_by, shortfall
        from reconciler.spark.session.stop import stop_signals

        logging.basicConfig(handlers=[_JsonHandler(self)], level=logging.WARNING, force=True)
        try:
            with stop_signals() as stop:
                driven, finished = self._done(stop)
                words = None if driven is None else shortfall(driven)
            if words is None:
                self._end(json.dumps(finished), finished)
                return errors.EXIT_OK
            self._fail(words)
            stopped = driven and driven.execution and driven.execution.stopped
            return errors.EXIT_INTERRUPTED if stopped else errors.EXIT_UNAVAILABLE
        except BaseException as error:
            words = last_words(error, self.actor.spark if self.actor else None)
            for text in said_by(error):
                self.say(text, "error")
            self._fail(words)
            if "LAYOUTCTL_TRACEBACK" in os.environ:
                raise
            return _exit_code(error, words)
        finally:
            if self.actor is not None:
                with contextlib.suppress(Exception):  # everything was already reported
                    self.actor.close()

    def _done(self, should_stop: Callable[[], bool]) -> tuple[Driven | None, dict[str, Any]]:
        """Return the result of an attempt at a plan, None for a recommendation, and its summary."""
        from reconciler.api.run_document import RecommendRun, read_job
        from reconciler.catalog.mounted import catalog_config, mounted_secrets, refuse_places
        from reconciler.catalog.network import on_behalf
        from reconciler.catalog.properties import redact
        from reconciler.kube.pods import SECRET_DIRECTORY

        run = read_job(_run_text())
        recommends = isinstance(run, RecommendRun)
        self.identity = {
            "table": ".".join((run.catalog.spec.catalog_name, *run.table)),
            "planId": run.run_id if isinstance(run, RecommendRun) else run.plan_id,
            "attempt": run.attempt,
        }
        directory = Path(os.environ.get("LAYOUT_CATALOG_SECRETS") or SECRET_DIRECTORY)
        catalog = catalog_config(run.catalog, mounted_secrets(directory), _reach())
        self.redacted = lambda text: redact(text, catalog)
        refuse_places(run.catalog, catalog)
        self.say("started to recommend" if recommends else "started")
        with on_behalf(catalog.reach):
            if isinstance(run, RecommendRun):
                return None, _recommendation(run, catalog)
            return self._driven(run, catalog, should_stop)

    def _driven(
        self, run: RunDocument, catalog: CatalogConfig, should_stop: Callable[[], bool]
    ) -> tuple[Driven, dict[str, Any]]:
        from reconciler.loop.driver_job import drive, session_starter, summary

        with tempfile.TemporaryDirectory(prefix="layout-job-") as scratch:
            start = session_starter(run, os.environ, Path(scratch))
            self.actor = _actor(run, catalog, start, should_stop)
            driven = drive(
                run,
                catalog,
                self.actor,
                self.on_event,
                should_stop,
                lambda: dt.datetime.now(dt.UTC),
            )
        return driven, summary(run, driven)

    def on_event(self, event: Event) -> None:
        extra = {"action": event.action_id} if event.action_id else {}
        self.say(event.text, phase=event.phase, **extra)

    def say(self, message: str, level: str = "info", **more: Any) -> None:
        """Write one JSON line on stderr, without any secret of the catalog, nor what looks like
        one: an engine may repeat keys that the catalog handed out."""
        from reconciler.operator.logs import redact

        line = {
            "time": dt.datetime.now(dt.UTC).isoformat(timespec="milliseconds"),
            "level": level,
            "message": redact(message),
            **self.identity,
            **more,
        }
        sys.stderr.write(self.redacted(json.dumps(line, ensure_ascii=False)) + "\n")
        sys.stderr.flush()

    def _fail(self, words: LastWords) -> None:
        line = self.redacted(words.line())
        self._end(line, {"cause": words.cause.value, "do": words.do}, words.message, "error")

    def _end(
        self, line: str, more: dict[str, Any], message: str = "done", level: str = "info"
    ) -> None:
        """Write the same as the last line of the log and in the termination log."""
        own = {key: value for key, value in more.items() if key not in self.identity}
        self.say(message, level, **own)
        path = Path(os.environ.get("LAYOUT_TERMINATION_LOG") or TERMINATION_LOG)
        try:
            path.write_text(line + "\n", encoding="utf-8")
        except OSError as error:
            self.say(f"cannot write {path}: {error.strerror}", "warning")


def _reach() -> Reach:
    """What the operator allows; without a word of it, nothing local."""
    from reconciler.api.reach import Reach, networks

    listed = [part for part in os.environ.get("LAYOUT_ALLOWED_NETWORKS", "").split(",") if part]
    return Reach(networks(listed), os.environ.get("LAYOUT_LOCAL_FILES") == "true")


def _exit_code(error: BaseException, words: LastWords) -> int:
    """Return the error's own exit code, unless the error is only a consequence of a JVM that
    ended."""
    from reconciler import errors
    from reconciler.kube.termination_message import Cause

    code = error.exit_code if isinstance(error, errors.ReconcilerError) else errors.EXIT_INTERNAL
    lost = words.cause in (Cause.OUT_OF_MEMORY, Cause.UNAVAILABLE)
    return errors.EXIT_UNAVAILABLE if lost and code == errors.EXIT_INTERNAL else code


def _run_text() -> str:
    from reconciler.errors import UserError

    text = os.environ.get("LAYOUT_RUN")
    if not text:
        raise UserError(
            "LAYOUT_RUN is not set: there is nothing to run",
            details=("The operator starts this command in a pod of its own.",),
            do="use layoutctl apply",
        )
    return text


def _store(
    run: RunDocument | RecommendRun, catalog: CatalogConfig, lease: Callable[[], Lease] | None
) -> SharedStore:
    from reconciler.state.shared_state import SharedStore

    system = run.catalog.spec.system
    return SharedStore(
        catalog,
        tuple(system.namespace),
        plans_uri=system.plans.uri,
        timeout=float(run.catalog.spec.timeout_seconds),
        retention_seconds=run.catalog.spec.workload.retention_seconds,
        lease=lease,
    )


def _recommendation(run: RecommendRun, catalog: CatalogConfig) -> dict[str, Any]:
    """Return the summary of a recommendation, as one field of the termination message."""
    from reconciler.catalog.sketch_reader import read_directly
    from reconciler.loop.driver_job import session_starter
    from reconciler.loop.executor_sampling import ExecutorSampling
    from reconciler.loop.reader import Reader
    from reconciler.loop.recommend_job import bound_process, recommend_for
    from reconciler.spark.session.kubernetes import driver_pod
    from reconciler.state.state import cache_directory

    bound_process(run.cpu_limit_seconds)
    with tempfile.TemporaryDirectory(prefix="layout-job-") as scratch:
        start = session_starter(run, os.environ, Path(scratch))
        app = f"recommend {'.'.join(run.table)}"
        sampling = ExecutorSampling(
            lambda: start(catalog, app),
            float(run.cpu_limit_seconds),
            lambda elsewhere: bound_process(run.cpu_limit_seconds, elsewhere),
        )
        store = _store(run, catalog, None)
        reader = Reader(
            store=store,
            cache=cache_directory(),
            timeout=float(run.catalog.spec.timeout_seconds),
            claims_as=run.owner,
            exclude_columns=run.catalog.spec.workload.exclude_columns,
            read_sketches=read_directly if driver_pod(os.environ) is None else sampling,
        )
        made = recommend_for(
            run, catalog, reader, store.plans, sampling.used_seconds,
            lambda: dt.datetime.now(dt.UTC),
        )  # fmt: skip
    return {"recommendation": made}


def _actor(
    run: RunDocument,
    catalog: CatalogConfig,
    start: Callable[[CatalogConfig, str], Any],
    should_stop: Callable[[], bool],
) -> DriverActor:
    from reconciler.catalog.claim import owner_of
    from reconciler.loop.driver_job import DriverActor, claim_check, load_plan
    from reconciler.state.shared_state import JobLease
    from reconciler.state.state import cache_directory

    timeout = float(run.catalog.spec.timeout_seconds)
    check = claim_check(run, lambda: owner_of(catalog, run.table, timeout))
    store = _store(run, catalog, lambda: JobLease(check))
    return DriverActor(
        store=store,
        cache=cache_directory(),
        timeout=timeout,
        claims_as=run.owner,
        exclude_columns=run.catalog.spec.workload.exclude_columns,
        plan=load_plan(run, store.plans),
        attempt=run.attempt,
        start=start,
        stopping=should_stop,
        engine=run.engine,
    )


class _JsonHandler(logging.Handler):
    """Writes the logs of libraries as lines of the same form."""

    def __init__(self, job: _Job):
        super().__init__()
        self._job = job

    def emit(self, record: logging.LogRecord) -> None:
        self._job.say(record.getMessage(), record.levelname.lower(), logger=record.name)
