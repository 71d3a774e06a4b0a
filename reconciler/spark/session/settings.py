"""The settings with which a session's JVM is launched: ours, then spark-defaults, then the
caller's."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from reconciler.plan.execution import SPARK_APP_PREFIX
from reconciler.spark.session import class_archive, runtime

CATALOG_PREFIX = "spark.sql.catalog."
REDACTED = (
    "(?i)secret|passw|passphrase|token|credential|authorization|jdbc[.]user|cookie"
    "|(access|account|private|api)[-_.]?key"
)
"""Names of settings whose values Spark never prints."""
GIB = 1 << 30

COLLECTOR = "-XX:+UseParallelGC"
"""The collector of JVMs for which nobody chose another one."""
_COLLECTOR = re.compile(r"-XX:\+Use\w+GC\b")

_LOG4J = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex
"""


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
    if where == "driver":
        taken = collector_is_chosen(chosen, class_archive.OPTIONS_FOR_DRIVERS)
    else:  # executors run the same image as this process, so its environment applies to them too
        everywhere = class_archive.OPTIONS_FOR_EVERY_JVM
        chosen += [settings.get(f"spark.executorEnv.{name}", "") for name in everywhere]
        taken = collector_is_chosen(chosen, everywhere)
    if not taken:
        settings[ours] = f"{COLLECTOR} {chosen[0]}".strip()


def collector_is_chosen(options: Iterable[str], variables: Iterable[str]) -> bool:
    """Return whether options of a JVM, or these variables of the environment, name a collector: a
    JVM that is given two of them does not start."""
    given = (*options, *(os.environ.get(name, "") for name in variables))
    return any(_COLLECTOR.search(one) for one in given)


def _share_classes(settings: dict[str, str]) -> None:
    """Use the archive of Spark's classes, if one was made, for the JVM that is launched here and
    for executors, which run the same image; a JVM that finds another Spark ignores it."""
    heaps = {"driver": settings["spark.driver.memory"]}
    if not runs_tasks(settings["spark.master"]):
        heaps["executor"] = settings.get("spark.executor.memory", "1g")
    for where, heap in heaps.items():
        ours, theirs = (f"spark.{where}.{kind}JavaOptions" for kind in ("default", "extra"))
        chosen = [settings.get(ours, ""), settings.get(theirs, "")]
        shared = class_archive.options(chosen, heap)
        if shared:
            settings[ours] = f"{chosen[0]} {shared}".strip()


def _default_memory() -> str:
    """Return a quarter of the machine's memory, between 1 and 8 GiB: the JVM commits, and writes
    what falls back to Spark; most rows are moved by threads of this process."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return f"{max(1, min(8, total // 4 // GIB))}g"


def quiet_logging(settings: dict[str, str], scratch: Path) -> None:
    """Log errors only, unless the user has a logging configuration."""
    options = settings.get("spark.driver.extraJavaOptions", "")
    if "log4j" in options or os.environ.get("SPARK_CONF_DIR"):
        return
    path = scratch / "log4j2.properties"
    path.write_text(_LOG4J, encoding="utf-8")
    settings["spark.driver.extraJavaOptions"] = (
        f"{options} -Dlog4j2.configurationFile=file:{path}".strip()
    )


def runs_tasks(master: str) -> bool:
    """Whether Spark's tasks run in the driver's own process: not so in local-cluster."""
    return master.partition("[")[0] == "local"
