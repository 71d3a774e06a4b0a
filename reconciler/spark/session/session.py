"""The session of `apply`, `demo` and driver pods: a JVM with Iceberg's catalogs, and Spark in it
when needed. Local by default, quiet, no traces left.

The caller passes the Spark configuration of the catalog; its values are set after the JVM has
started, so that secrets appear neither on a command line nor in an event log.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from reconciler.errors import InternalError, ReconcilerError, UnavailableError, UserError
from reconciler.rewrite.storage import prefix_without_leftovers
from reconciler.spark.session import iceberg, names, rest_filter, runtime
from reconciler.spark.session.settings import (
    CATALOG_PREFIX,
    launch_settings,
    quiet_logging,
    runs_tasks,
)
from reconciler.spark.session.translate import java_exception, translate

SCRATCH = "layoutctl-spark-"
"""Begins the name of a session's directory."""
_LOCAL = re.compile(r"local(?:\[(\*|\d+)(?:,.*)?\])?")


def start(
    conf: Mapping[str, str], app: str, master: str = "local[*]", *, apart: bool = False
) -> Session:
    """Return a new session named "layoutctl <app>" with the callback server running; Spark starts
    in it when something needs it, and at once if its master is not local.

    conf: Spark's settings by name; a master, memory or jars in it or in the user's spark-defaults
    take precedence over ours. REST catalogs in it are put behind a `rest_filter`. apart: the JVM
    gets no signals sent to our process group, but still ends with us. Raises UserError if Java,
    Spark or a jar is missing.
    """
    _require_pyspark()
    runtime.check_java()
    conf, filters = rest_filter.filtered(conf)
    try:
        session = _launched(conf, app, master, apart, filters)
    except BaseException:
        _stop_filters(filters)
        raise
    try:
        session.open_catalogs(conf)
        if not session.local:
            session.spark  # noqa: B018  # its executors take longest to come
    except BaseException:
        stop(session)
        raise
    return session


class Session:
    """A JVM that has the catalogs open, and Spark in it from the moment that something needs it.

    Tables are loaded, compared and committed by Iceberg's library; threads of this process move
    rows where the master is local. So most runs never start Spark, which takes longer than the JVM.
    Whatever is not an attribute here is one of the SparkSession, which it starts.
    """

    def __init__(
        self,
        gateway: Any,
        settings: Mapping[str, str],
        scratch: tempfile.TemporaryDirectory[str],
        filters: Sequence[rest_filter.RestFilter],
    ) -> None:
        self.gateway, self._jvm = gateway, gateway.jvm
        self.settings, self.scratch, self.filters = settings, scratch, filters
        self.log = Path(scratch.name) / "jvm.log"
        self.local = runs_tasks(settings["spark.master"])
        self._catalog_conf: dict[str, str] = {}
        self._catalogs: dict[str, Any] = {}
        self._spark: Any = None
        self._starting = threading.RLock()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.spark, name)

    @property
    def started(self) -> bool:
        """Whether Spark runs."""
        return self._spark is not None

    @property
    def spark(self) -> Any:
        """The SparkSession, started at the first call."""
        with self._starting:
            if self._spark is None:
                self._spark = _spark_in(self.gateway, self.log)
                names.remember(self._jvm, names.OF_SPARK, names.CLASSES)
                for key, value in self._catalog_conf.items():
                    self._spark.conf.set(key, value)
                self._name_engine()  # Iceberg's catalog for Spark named Spark
            return self._spark

    @property
    def cores(self) -> int:
        """Tasks that may run at once: threads of this process with a local master."""
        if not self.local:
            return max(1, int(self.spark.sparkContext.defaultParallelism))
        chosen = self.settings.get("spark.default.parallelism")
        threads = _LOCAL.fullmatch(self.settings["spark.master"])
        named = chosen or (threads[1] if threads and threads[1] else "1")
        if named == "*":
            return max(1, int(self._jvm.java.lang.Runtime.getRuntime().availableProcessors()))
        return max(1, int(named))

    def load(self, catalog: str, levels: Sequence[str]) -> Any:
        """Return a fresh org.apache.iceberg.Table."""
        return self._catalogs[catalog].loadTable(self._identifier(levels))

    def create(
        self, catalog: str, levels: Sequence[str], schema: Any, properties: Mapping[str, str]
    ) -> Any:
        """Return a new org.apache.iceberg.Table without partitions; the catalog refuses it if it
        has a table of its name."""
        wanted = self._jvm.java.util.HashMap()
        for name, value in properties.items():
            wanted.put(name, value)
        builder = self._catalogs[catalog].buildTable(self._identifier(levels), schema)
        return builder.withProperties(wanted).create()

    def _identifier(self, levels: Sequence[str]) -> Any:
        path = iceberg.java_array(self, "java.lang.String", levels)
        return self._jvm.org.apache.iceberg.catalog.TableIdentifier.of(path)

    def cancel(self, groups: Iterable[str]) -> None:
        """Cancel Spark's jobs of these groups, and those that their threads are about to start."""
        if self.started:
            context = self.spark.sparkContext._jsc.sc()
            for group in groups:
                context.cancelJobGroupAndFutureJobs(group)

    def open_catalogs(self, conf: Mapping[str, str]) -> None:
        """Open the catalogs among Spark's settings: one that cannot be opened would otherwise look
        as if it were not configured."""
        from py4j.protocol import Py4JError

        given = {k: v for k, v in conf.items() if k.startswith(CATALOG_PREFIX)}
        self._catalog_conf |= given
        for key, value in given.items():
            if self.started:
                self.spark.conf.set(key, value)
        for name in (key.removeprefix(CATALOG_PREFIX) for key in given):
            if "." in name:
                continue
            try:
                self._catalogs[name] = self._catalog(name)
            except Py4JError as error:
                raise translate(error, f"open catalog {name}") from error
        self._name_engine()

    def _catalog(self, name: str) -> Any:
        """Return the catalog as Iceberg's catalog for Spark opens it."""
        java, prefix = self._jvm, f"{CATALOG_PREFIX}{name}."
        options, conf = java.java.util.HashMap(), self._hadoop()
        for key, value in self._catalog_conf.items():
            if key.startswith(f"{prefix}hadoop."):
                conf.set(key.removeprefix(f"{prefix}hadoop."), value)
            elif key.startswith(prefix):
                options.put(key.removeprefix(prefix), value)
        return java.org.apache.iceberg.CatalogUtil.buildIcebergCatalog(name, options, conf)

    def _hadoop(self) -> Any:
        """Return a Hadoop configuration as Spark makes it of its settings."""
        spark = self._jvm.org.apache.spark
        return spark.deploy.SparkHadoopUtil.get().newConfiguration(spark.SparkConf())

    def _name_engine(self) -> None:
        """Commits of this process name it in their summaries."""
        context = self._jvm.org.apache.iceberg.EnvironmentContext
        context.put("engine-name", "layoutctl")
        context.put("engine-version", version("table-layout-reconciler"))


def _launched(
    conf: Mapping[str, str],
    app: str,
    master: str,
    apart: bool,
    filters: Sequence[rest_filter.RestFilter],
) -> Session:
    from pyspark import SparkConf
    from pyspark.errors import PySparkException
    from pyspark.java_gateway import ensure_callback_server_started, launch_gateway

    logging.getLogger().addFilter(_not_py4j)
    settings = launch_settings(conf, app, master)
    scratch = _scratch(settings)
    log = Path(scratch.name) / "jvm.log"
    quiet_logging(settings, Path(scratch.name))
    spark_conf = SparkConf(loadDefaults=False).setAll(list(settings.items()))
    with log.open("w") as stderr:
        try:
            launch: Any = launch_gateway
            gateway = launch(
                spark_conf, {"stderr": stderr, "stdout": stderr, "start_new_session": apart}
            )
        except (PySparkException, OSError) as error:
            raise _start_error(error, log) from error
    names.remember(gateway.jvm, names.PACKAGES)
    start_callbacks: Any = ensure_callback_server_started
    start_callbacks(gateway)
    return Session(gateway, settings, scratch, filters)


def _spark_in(gateway: Any, log: Path) -> Any:
    """Start Spark in the JVM."""
    from py4j.protocol import Py4JError
    from pyspark import SparkConf, SparkContext
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    try:
        with _same_sigint():
            context = SparkContext(gateway=gateway, conf=SparkConf(_jvm=gateway.jvm))
    except (PySparkException, Py4JError, OSError) as error:
        raise _start_error(error, log) from error
    return SparkSession(context)


def _scratch(settings: dict[str, str]) -> tempfile.TemporaryDirectory[str]:
    """Return a directory of this process for what a session leaves on disk: its log and, unless the
    user chose another place, the files of Spark's shuffles, which a killed JVM does not remove."""
    within = Path(tempfile.gettempdir())
    prefix = prefix_without_leftovers(SCRATCH, within)
    made = tempfile.TemporaryDirectory(prefix=prefix, dir=within)
    if runs_tasks(settings["spark.master"]) and "SPARK_LOCAL_DIRS" not in os.environ:
        settings.setdefault("spark.local.dir", made.name)
    return made


def _stop_filters(filters: Sequence[rest_filter.RestFilter]) -> None:
    for opened in filters:
        opened.stop()


def _not_py4j(record: logging.LogRecord) -> bool:
    """Drop py4j's log records: it logs a lost connection as the root logger, with a traceback, and
    `translate` already reports it."""
    return record.module != "java_gateway"


@contextlib.contextmanager
def _same_sigint() -> Iterator[None]:
    """Keep our SIGINT handler: SparkContext's own cancels all jobs, but the caller may want to stop
    at a commit boundary (spark.session.stop)."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _require_pyspark() -> None:
    try:
        import pyspark
    except ImportError as error:
        raise UserError(
            "apply needs Spark, which is not installed",
            details=("observe and plan work without it.",),
            do='pip install "table-layout-reconciler[spark]"',
        ) from error
    if not pyspark.__version__.startswith("4.1."):
        raise UserError(
            f"apply needs pyspark 4.1; found {pyspark.__version__}",
            details=("The Iceberg runtime is built for one version of Spark.",),
            do='pip install "table-layout-reconciler[spark]"',
        )


def _start_error(error: Exception, log: Path) -> ReconcilerError:
    known = translate(error, "start Spark") if java_exception(error) is not None else None
    if known is not None and not isinstance(known, InternalError):
        return known
    lines = [ln.strip() for ln in log.read_text(errors="replace").splitlines() if ln.strip()]
    telling = [ln for ln in lines if "rror" in ln or "xception" in ln] or lines or [str(error)]
    return UnavailableError(
        "Spark did not start",
        details=tuple(telling[:3]),
        do="check JAVA_HOME, SPARK_HOME and the free memory (LAYOUTCTL_DRIVER_MEMORY, e.g. 2g)",
    )


def await_executors(spark: Any, seconds: float) -> None:
    """Wait for the first executor. Raises UnavailableError if none has come by then."""
    status = spark.sparkContext._jsc.sc()
    deadline = time.monotonic() + seconds
    while int(status.getExecutorMemoryStatus().size()) < 2:  # the driver counts as one
        if time.monotonic() > deadline:
            raise UnavailableError(
                f"no Spark executor started within {seconds:.0f} s",
                details=("Their pods are refused (quota, rights), cannot be placed, or fail.",),
                do="see the events of the namespace: kubectl get events --sort-by=.lastTimestamp",
            )
        time.sleep(0.5)


@dataclass(frozen=True, slots=True)
class JvmEnd:
    """How a session's JVM ended."""

    code: int
    """Exit code of its process, negative for a signal."""
    tail: tuple[str, ...]
    """Its last lines of output."""

    @property
    def out_of_memory(self) -> bool:
        """Whether it was killed by the kernel, by -XX:+ExitOnOutOfMemoryError, or reported lack of
        memory."""
        said = any("OutOfMemoryError" in line for line in self.tail)
        return said or self.code in (-9, 137, 3)


def jvm_end(spark: Any, seconds: float) -> JvmEnd | None:
    """Return how the session's JVM ended, None while it lives. seconds: to wait for its end."""
    process = spark.gateway.proc
    try:
        code = process.wait(timeout=seconds)
    except subprocess.TimeoutExpired:
        return None
    log = spark.log
    lines = log.read_text(errors="replace").splitlines() if log.is_file() else []
    return JvmEnd(code, tuple(line.strip() for line in lines[-20:] if line.strip()))


def stop(session: Session) -> None:
    """End the session and its JVM, and wait for the process to exit.

    The JVM ends first: otherwise closing our end of a callback connection waits for its reader.
    """
    from pyspark import SparkContext

    # A connection that the JVM resets as it ends is not an error; py4j would log a traceback for
    # each.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    gateway = session.gateway
    if session.started:
        with contextlib.suppress(Exception):  # the JVM may be dead already
            session.spark.stop()
    # Objects that Python drops from now on are gone with the JVM; py4j would send a message for
    # each of them, and log a traceback because the JVM does not answer.
    gateway._gateway_client.is_connected = False
    gateway.proc.stdin.close()
    gateway.proc.wait()
    with contextlib.suppress(Exception):
        gateway.shutdown_callback_server()
    SparkContext._gateway = None
    SparkContext._jvm = None
    _stop_filters(session.filters)
    session.scratch.cleanup()
