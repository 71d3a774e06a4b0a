"""Starts the Spark session of `apply`, `demo` and driver pods: local by default, quiet, no traces
left.

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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reconciler.errors import InternalError, ReconcilerError, UnavailableError, UserError
from reconciler.plan.execution import SPARK_APP_PREFIX
from reconciler.rewrite.storage import of_this_process
from reconciler.spark.session import class_archive, rest_filter, runtime
from reconciler.spark.session.translate import java_exception, translate

CATALOG_PREFIX = "spark.sql.catalog."
REDACTED = (
    "(?i)secret|passw|passphrase|token|credential|authorization|jdbc[.]user|cookie"
    "|(access|account|private|api)[-_.]?key"
)
"""Names of settings whose values Spark never prints."""
GIB = 1 << 30
SCRATCH = "layoutctl-spark-"
"""Begins the name of a session's directory."""
PACKAGES = (
    "java.lang.invoke",
    "java.lang.management",
    "java.net",
    "java.nio",
    "java.util.concurrent",
    "java.util.function",
    "java.util.regex",
    "java.util.stream",
    "org.apache.hadoop.fs",
    "org.apache.iceberg.data",
    "org.apache.iceberg.deletes",
    "org.apache.iceberg.expressions",
    "org.apache.iceberg.io",
    "org.apache.iceberg.parquet",
    "org.apache.iceberg.relocated.com.google.common.collect",
    "org.apache.iceberg.spark",
    "org.apache.iceberg.types",
    "org.apache.iceberg.util",
    "org.apache.spark.network.util",
    "org.apache.spark.sql.catalyst",
    "py4j.reflection",
)
"""Packages of the JVM that this package uses, and py4j itself."""
CLASSES = (
    "PythonUtils",
    "org.apache.spark.SparkThrowableHelper",
    "org.apache.spark.sql.Observation",
    "org.apache.spark.sql.api.python.PythonSQLUtils",
    "org.apache.spark.sql.catalyst.trees.PySparkCurrentOrigin",
    "org.apache.spark.sql.classic.SparkSession",
    "org.apache.spark.sql.classic.SparkSession$",
    "org.apache.spark.sql.expressions.Window",
    "org.apache.spark.sql.functions",
    "org.apache.spark.sql.internal.SQLConf",
    "org.apache.spark.sql.types.Metadata",
    "org.apache.spark.util.Utils",
)
"""Classes that PySpark asks for by these names, for each column or error."""

_COLLECTOR = re.compile(r"-XX:\+Use\w+GC\b")
_OPTIONS_FOR_EVERY_JVM = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS")

_LOG4J = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex
"""


def start(
    conf: Mapping[str, str], app: str, master: str = "local[*]", *, apart: bool = False
) -> Any:
    """Return a new session named "layoutctl <app>" with the callback server running.

    conf: Spark's settings by name; a master, memory or jars in it or in the user's spark-defaults
    take precedence over ours. REST catalogs in it are put behind a `rest_filter`. apart: the JVM
    gets no signals sent to our process group, but still ends with us. Raises UserError if Java,
    Spark or a jar is missing.
    """
    _require_pyspark()
    runtime.check_java()
    conf, filters = rest_filter.filtered(conf)
    try:
        spark = _started(conf, app, master, apart)
    except BaseException:
        _stop_filters(filters)
        raise
    spark._layoutctl_filters = filters
    return spark


def _started(conf: Mapping[str, str], app: str, master: str, apart: bool) -> Any:
    from py4j.protocol import Py4JError
    from pyspark import SparkConf, SparkContext
    from pyspark.errors import PySparkException
    from pyspark.java_gateway import ensure_callback_server_started, launch_gateway
    from pyspark.sql import SparkSession

    logging.getLogger().addFilter(_not_py4j)
    settings = launch_settings(conf, app, master)
    scratch = _scratch(settings)
    log = Path(scratch.name) / "jvm.log"
    _quiet_logging(settings, Path(scratch.name))
    spark_conf = SparkConf(loadDefaults=False).setAll(list(settings.items()))
    with log.open("w") as stderr:
        try:
            launch: Any = launch_gateway
            gateway = launch(
                spark_conf, {"stderr": stderr, "stdout": stderr, "start_new_session": apart}
            )
            with _same_sigint():
                context = SparkContext(gateway=gateway, conf=SparkConf(_jvm=gateway.jvm))
        except (PySparkException, Py4JError, OSError) as error:
            raise _start_error(error, log) from error
    _remember_names(gateway.jvm)
    start_callbacks: Any = ensure_callback_server_started
    start_callbacks(gateway)
    spark = SparkSession(context)
    spark._layoutctl_scratch = scratch  # type: ignore[attr-defined]  # lives as long as the session
    spark._layoutctl_log = log  # type: ignore[attr-defined]
    for key, value in conf.items():
        if key.startswith(CATALOG_PREFIX):
            spark.conf.set(key, value)
    _open_catalogs(spark, conf)
    return spark


def _scratch(settings: dict[str, str]) -> tempfile.TemporaryDirectory[str]:
    """Return a directory of this process for what a session leaves on disk: its log and, unless the
    user chose another place, the files of Spark's shuffles, which a killed JVM does not remove."""
    within = Path(tempfile.gettempdir())
    prefix = of_this_process(SCRATCH, within)
    made = tempfile.TemporaryDirectory(prefix=prefix, dir=within)
    if runs_tasks(settings["spark.master"]) and "SPARK_LOCAL_DIRS" not in os.environ:
        settings.setdefault("spark.local.dir", made.name)
    return made


def _remember_names(jvm: Any) -> None:
    """Keep what names mean in the JVM: py4j asks for each part of a name whenever it is used.

    A package is what no class is found for: the JVM looks for one in every jar of Spark and, as a
    name without a known package may be that of an imported class, in eight packages as well.
    """
    for name in PACKAGES:
        at = jvm
        for part in name.split("."):
            setattr(at, part, found := getattr(at, part))
            at = found
    for name in CLASSES:
        setattr(jvm, name, getattr(jvm, name))


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


def _open_catalogs(spark: Any, conf: Mapping[str, str]) -> None:
    """Open the catalogs: one that cannot be opened would otherwise look as if it were not
    configured."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    names = [key.removeprefix(CATALOG_PREFIX) for key in conf if key.startswith(CATALOG_PREFIX)]
    for name in (name for name in names if "." not in name):
        try:
            spark._jsparkSession.sessionState().catalogManager().catalog(name)
        except (Py4JError, PySparkException) as error:
            translated = translate(error, f"open catalog {name} in Spark")
            stop(spark)
            raise translated from error


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


def launch_settings(conf: Mapping[str, str], app: str, master: str) -> dict[str, str]:
    """Return all settings given at launch: ours, then spark-defaults, then the caller's."""
    ours = {
        "spark.master": os.environ.get("LAYOUTCTL_SPARK_MASTER", master),
        "spark.driver.memory": os.environ.get("LAYOUTCTL_DRIVER_MEMORY", _default_memory()),
        "spark.sql.shuffle.partitions": "64",
        # A curve is a literal of 65,536 numbers in the text of each plan that Spark keeps.
        "spark.sql.ui.retainedExecutions": "10",
        "spark.sql.maxPlanStringLength": "65536",
        # A bit that flipped in a page must not be rewritten with a checksum that matches it.
        "spark.hadoop.parquet.page.verify-checksum.enabled": "true",
    }
    fixed = {
        "spark.app.name": f"{SPARK_APP_PREFIX} {app}",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # Bounds in manifests are in UTC; timestamps without a zone are compared as UTC.
        "spark.sql.session.timeZone": "UTC",
        "spark.eventLog.enabled": "false",
        "spark.redaction.regex": REDACTED,
        "spark.sql.redaction.options.regex": REDACTED,
        "spark.sql.warehouse.dir": str(Path(tempfile.gettempdir()) / "layoutctl-warehouse"),
        "spark.speculation": "false",
        # A union of single partitions would become one partition: slices must stay tasks.
        "spark.sql.unionOutputPartitioning": "false",
    }
    defaults = {k: v for k, v in runtime.spark_defaults().items() if k.startswith("spark.")}
    launch = {k: v for k, v in conf.items() if not k.startswith(CATALOG_PREFIX)}
    settings = {**ours, **defaults, **launch, **fixed}
    _collect_in_parallel(settings)
    _share_classes(settings)
    jars = [f"file:{path}" for path in runtime.session_jars({**settings, **conf})]
    if jars:
        named = [settings["spark.jars"]] if settings.get("spark.jars") else []
        settings["spark.jars"] = ",".join(named + jars)
    if settings["spark.master"].startswith("local"):
        settings.setdefault("spark.driver.host", "127.0.0.1")
        settings.setdefault("spark.driver.bindAddress", "127.0.0.1")
    return settings


def _collect_in_parallel(settings: dict[str, str]) -> None:
    """Use the throughput collector in JVMs that run tasks, unless the user chose one for them.

    A sort fills the heap with pages that all live until it ends; Java's default collector marks
    them again and again meanwhile, which takes a tenth to a fifth of the time of a rewrite.
    """
    where = "driver" if runs_tasks(settings["spark.master"]) else "executor"
    ours, theirs = (f"spark.{where}.{kind}JavaOptions" for kind in ("default", "extra"))
    chosen = [settings.get(ours, ""), settings.get(theirs, "")]
    # Executors run the same image as this process, so its environment applies to them too.
    chosen += [os.environ.get(name, "") for name in _OPTIONS_FOR_EVERY_JVM]
    if where == "driver":
        chosen.append(os.environ.get("SPARK_SUBMIT_OPTS", ""))
    else:
        chosen += [settings.get(f"spark.executorEnv.{name}", "") for name in _OPTIONS_FOR_EVERY_JVM]
    if not any(_COLLECTOR.search(options) for options in chosen):
        settings[ours] = f"-XX:+UseParallelGC {chosen[0]}".strip()


def _share_classes(settings: dict[str, str]) -> None:
    """Use the archive of Spark's classes for the JVM that is launched here, if one was made."""
    ours, theirs = (f"spark.driver.{kind}JavaOptions" for kind in ("default", "extra"))
    chosen = [settings.get(ours, ""), settings.get(theirs, "")]
    shared = class_archive.options(chosen, settings["spark.driver.memory"])
    if shared:
        settings[ours] = f"{chosen[0]} {shared}".strip()


def _default_memory() -> str:
    """Return a quarter of the machine's memory, between 1 and 8 GiB: the JVM commits, and writes
    what falls back to Spark; most rows are moved by threads of this process."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return f"{max(1, min(8, total // 4 // GIB))}g"


def _quiet_logging(settings: dict[str, str], scratch: Path) -> None:
    """Log errors only, unless the user has a logging configuration."""
    options = settings.get("spark.driver.extraJavaOptions", "")
    if "log4j" in options or os.environ.get("SPARK_CONF_DIR"):
        return
    path = scratch / "log4j2.properties"
    path.write_text(_LOG4J, encoding="utf-8")
    settings["spark.driver.extraJavaOptions"] = (
        f"{options} -Dlog4j2.configurationFile=file:{path}".strip()
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


def runs_tasks(master: str) -> bool:
    """Whether Spark's tasks run in the driver's own process: not so in local-cluster."""
    return master.partition("[")[0] == "local"


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
    """How a session's JVM ended. code: of the process, negative for a signal. tail: last lines."""

    code: int
    tail: tuple[str, ...]

    @property
    def out_of_memory(self) -> bool:
        """Whether it was killed by the kernel, by -XX:+ExitOnOutOfMemoryError, or reported lack of
        memory."""
        said = any("OutOfMemoryError" in line for line in self.tail)
        return said or self.code in (-9, 137, 3)


def jvm_end(spark: Any, seconds: float = 0.0) -> JvmEnd | None:
    """Return how the session's JVM ended, None while it lives. seconds: to wait for its end."""
    process = getattr(spark.sparkContext._gateway, "proc", None)
    if process is None:
        return None
    try:
        code = process.wait(timeout=seconds)
    except subprocess.TimeoutExpired:
        return None
    log = getattr(spark, "_layoutctl_log", None)
    lines = log.read_text(errors="replace").splitlines() if log and log.is_file() else []
    return JvmEnd(code, tuple(line.strip() for line in lines[-20:] if line.strip()))


def stop(spark: Any) -> None:
    """End the session and its JVM, and wait for the process to exit.

    The JVM ends first: otherwise closing our end of a callback connection waits for its reader.
    """
    from pyspark import SparkContext

    # A connection that the JVM resets as it ends is not an error; py4j would log a traceback for
    # each.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    gateway = spark.sparkContext._gateway
    process = getattr(gateway, "proc", None)
    with contextlib.suppress(Exception):  # the JVM may be dead already
        spark.stop()
    if process is not None:
        # Objects that Python drops from now on are gone with the JVM; py4j would send a message for
        # each of them, and log a traceback because the JVM does not answer.
        gateway._gateway_client.is_connected = False
        process.stdin.close()
        process.wait()
    with contextlib.suppress(Exception):
        gateway.shutdown_callback_server() if process is not None else gateway.shutdown()
    SparkContext._gateway = None
    SparkContext._jvm = None
    _stop_filters(getattr(spark, "_layoutctl_filters", []))
    scratch = getattr(spark, "_layoutctl_scratch", None)
    if scratch is not None:
        scratch.cleanup()
