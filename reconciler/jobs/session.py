"""The Spark session of `apply`, `demo` and the driver: local by default, quiet, leaving no trace.

The caller passes the Spark configuration of the catalog; its values are set after the JVM has
started, so that secrets appear neither on a command line nor in an event log.
"""

from __future__ import annotations

import contextlib
import logging
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from reconciler.core.execution import SPARK_APP_PREFIX
from reconciler.errors import UnavailableError, UserError
from reconciler.jobs import runtime

CATALOG_PREFIX = "spark.sql.catalog."
REDACTED = "(?i)secret|password|passwd|token|access[.]?key|credential"
GIB = 1 << 30

_LOG4J = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex
"""


def start(conf: Mapping[str, str], app: str, master: str = "local[*]") -> Any:
    """A new session named "layoutctl <app>" with the callback server running.

    conf: Spark's settings by name; a master, memory or jars in it or in the user's
    spark-defaults win over ours. Raises UserError when Java, Spark or a jar is missing.
    """
    _require_pyspark()
    runtime.check_java()
    from pyspark import SparkConf, SparkContext
    from pyspark.errors import PySparkException
    from pyspark.java_gateway import ensure_callback_server_started, launch_gateway
    from pyspark.sql import SparkSession

    settings = _settings(conf, app, master)
    scratch = tempfile.TemporaryDirectory(prefix="layoutctl-spark-")
    log = Path(scratch.name) / "jvm.log"
    _quiet_logging(settings, Path(scratch.name))
    spark_conf = SparkConf(loadDefaults=False).setAll(list(settings.items()))
    with log.open("w") as stderr:
        try:
            launch: Any = launch_gateway
            gateway = launch(spark_conf, {"stderr": stderr, "stdout": stderr})
            context = SparkContext(gateway=gateway, conf=SparkConf(_jvm=gateway.jvm))
        except (PySparkException, OSError) as error:
            raise _start_error(error, log) from error
    start_callbacks: Any = ensure_callback_server_started
    start_callbacks(gateway)
    spark = SparkSession(context)
    spark._layoutctl_scratch = scratch  # type: ignore[attr-defined]  # lives as long as the session
    for key, value in conf.items():
        if key.startswith(CATALOG_PREFIX):
            spark.conf.set(key, value)
    return spark


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


def _settings(conf: Mapping[str, str], app: str, master: str) -> dict[str, str]:
    """All settings given at launch: ours, then spark-defaults, then the caller's."""
    ours = {
        "spark.master": os.environ.get("LAYOUTCTL_SPARK_MASTER", master),
        "spark.driver.memory": os.environ.get("LAYOUTCTL_DRIVER_MEMORY", _default_memory()),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "64",
    }
    fixed = {
        "spark.app.name": f"{SPARK_APP_PREFIX} {app}",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
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
    jars = [f"file:{path}" for path in runtime.session_jars({**settings, **conf})]
    if jars:
        named = [settings["spark.jars"]] if settings.get("spark.jars") else []
        settings["spark.jars"] = ",".join(named + jars)
    if settings["spark.master"].startswith("local"):
        settings.setdefault("spark.driver.host", "127.0.0.1")
        settings.setdefault("spark.driver.bindAddress", "127.0.0.1")
    return settings


def _default_memory() -> str:
    """Half of the machine's memory, between 1 and 32 GiB: groups are sized to fit the heap."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return f"{max(1, min(32, total // 2 // GIB))}g"


def _quiet_logging(settings: dict[str, str], scratch: Path) -> None:
    """Errors only, unless the user brought a logging configuration."""
    options = settings.get("spark.driver.extraJavaOptions", "")
    if "log4j" in options or os.environ.get("SPARK_CONF_DIR"):
        return
    path = scratch / "log4j2.properties"
    path.write_text(_LOG4J, encoding="utf-8")
    settings["spark.driver.extraJavaOptions"] = (
        f"{options} -Dlog4j2.configurationFile=file:{path}".strip()
    )


def _start_error(error: Exception, log: Path) -> UnavailableError:
    lines = [ln.strip() for ln in log.read_text(errors="replace").splitlines() if ln.strip()]
    telling = [ln for ln in lines if "rror" in ln or "xception" in ln] or lines or [str(error)]
    return UnavailableError(
        "Spark did not start",
        details=tuple(telling[:3]),
        do="check JAVA_HOME, SPARK_HOME and the free memory (LAYOUTCTL_DRIVER_MEMORY, e.g. 2g)",
    )


def stop(spark: Any) -> None:
    """Ends the session and its JVM, and waits for the process to be gone.

    The JVM goes first: closing our end of a callback connection waits for its reader otherwise.
    """
    from pyspark import SparkContext

    # A connection that the JVM resets as it ends is no error: py4j would log a traceback each.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    gateway = spark.sparkContext._gateway
    process = getattr(gateway, "proc", None)
    with contextlib.suppress(Exception):  # the JVM may be dead already
        spark.stop()
    if process is not None:
        process.stdin.close()
        process.wait()
    with contextlib.suppress(Exception):
        gateway.shutdown_callback_server() if process is not None else gateway.shutdown()
    SparkContext._gateway = None
    SparkContext._jvm = None
    scratch = getattr(spark, "_layoutctl_scratch", None)
    if scratch is not None:
        scratch.cleanup()
