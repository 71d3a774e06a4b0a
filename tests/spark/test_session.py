"""The session starts quietly, sees the shared catalog, and leaves no secret behind."""

from __future__ import annotations

import functools
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from py4j.java_gateway import JavaPackage, JVMView
from pyspark.errors import AnalysisException
from pyspark.sql import functions

import reconciler.spark as spark_package
from reconciler.spark.session import class_archive, iceberg, streams
from reconciler.spark.session.names import OF_SPARK, PACKAGES
from reconciler.spark.session.session import _same_sigint
from reconciler.spark.session.settings import launch_settings

pytestmark = pytest.mark.spark


def test_spark_and_pyiceberg_share_one_catalog(spark: Any, iceberg_catalog: Any) -> None:
    spark.sql("CREATE NAMESPACE IF NOT EXISTS rec.session")
    spark.sql("CREATE TABLE rec.session.shared (id bigint) USING iceberg")
    spark.sql("INSERT INTO rec.session.shared VALUES (1), (2)")
    table = iceberg_catalog.load_table("session.shared")
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == [1, 2]


def test_catalog_properties_are_not_on_the_command_line(spark: Any) -> None:
    process = spark.gateway.proc
    assert not [argument for argument in process.args if "spark.sql.catalog.rec" in argument]
    launched = dict(spark.sparkContext.getConf().getAll())
    assert "spark.sql.catalog.rec.uri" not in launched
    assert launched["spark.eventLog.enabled"] == "false"
    assert launched["spark.app.name"].startswith("layoutctl ")


def test_the_jvm_is_not_asked_twice_what_a_name_means(
    spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lookup goes through every jar; a third of the CPU time of small rewrites went there."""
    asked: list[str] = []
    for kind in (JVMView, JavaPackage):
        monkeypatch.setattr(kind, "__getattr__", _noting(kind.__getattr__, asked))
    for package in (*PACKAGES, *OF_SPARK):
        functools.reduce(getattr, package.split("."), spark._jvm)
    assert len(spark.range(3).where(functions.col("id") > 0).collect()) == 2
    with pytest.raises(AnalysisException):
        spark.sql("SELECT missing")
    assert [name for name in asked if not name[0].isupper()] == [], "only classes of packages"


def _noting(honest: Callable[[Any, str], Any], asked: list[str]) -> Callable[[Any, str], Any]:
    def noted(self: Any, name: str) -> Any:
        asked.append(name)
        return honest(self, name)

    return noted


def test_no_text_is_no_line(spark: Any) -> None:
    assert iceberg.java_set(spark, []).isEmpty()
    assert streams.numbers(spark, {}).isEmpty()
    assert streams.numbers(spark, {"": 7}).size() == 1


def test_every_package_that_is_used_is_remembered() -> None:
    used = set()
    for path in Path(spark_package.__file__).parent.rglob("*.py"):
        used |= set(re.findall(r"_jvm\.([a-z][\w.]*?)\.[A-Z]", path.read_text(encoding="utf-8")))
    assert len(used) > 10
    kept = [f"{name}." for name in (*PACKAGES, *OF_SPARK)]
    assert {name for name in used if not any(it.startswith(f"{name}.") for it in kept)} == set()


def test_ctrl_c_stays_what_the_caller_made_of_it() -> None:
    """Spark's own handler would cancel all jobs instead of stopping at a commit boundary."""
    before = signal.getsignal(signal.SIGINT)
    with _same_sigint():
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    assert signal.getsignal(signal.SIGINT) is before


def test_objects_dropped_while_the_jvm_ends_are_not_sent_to_it() -> None:
    """py4j logs a traceback for every word that a JVM which ends does not answer."""
    program = """
import time
from reconciler.spark.session import session
spark = session.start({}, app="test", master="local[1]")
print("started", spark.started)
kept = [spark._jvm.java.lang.Object() for _ in range(200)]
process = spark.gateway.proc
close = process.stdin.close
def closed():
    kept.clear()
    close()
process.stdin.close = closed
sent = []
client = spark.gateway._gateway_client
send = client.send_command
client.send_command = lambda command, *more, **named: (
    sent.append(command), send(command, *more, **named))[1]
stopped = spark.spark.stop
def stop():
    stopped()
    sent.clear()
spark.spark.stop = stop
session.stop(spark)
time.sleep(3)  # py4j tells in a thread of its own, now and then
print("sent", len(sent))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=300, check=True
    )
    assert done.stdout.splitlines() == ["started False", "sent 0"]
    assert "Traceback" not in done.stderr


def collectors(conf: dict[str, str], master: str = "local[2]") -> dict[str, str]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(class_archive, "archive", lambda: None)  # it stands beside the collector
        made = launch_settings(conf, "test", master)
    return {key: value for key, value in made.items() if "GC" in value}


def test_tasks_run_under_the_throughput_collector(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS"):
        monkeypatch.delenv(name, raising=False)
    ours = {"spark.driver.defaultJavaOptions": "-XX:+UseParallelGC"}
    assert collectors({}) == ours
    executors = {"spark.executor.defaultJavaOptions": "-XX:+UseParallelGC"}
    for master in ("k8s://https://10.0.0.1:443", "local-cluster[2,1,1024]"):
        assert collectors({}, master) == executors


@pytest.mark.parametrize("kind", ["extra", "default"])
def test_a_collector_that_the_user_chose_stays(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two of them, and no JVM starts."""
    monkeypatch.delenv("JDK_JAVA_OPTIONS", raising=False)
    chosen = {f"spark.driver.{kind}JavaOptions": "-Xss2m -XX:+UseZGC"}
    made = launch_settings(chosen, "test", "local[2]")
    assert "-XX:+UseZGC" in made[f"spark.driver.{kind}JavaOptions"]
    assert not any("UseParallelGC" in value for value in made.values())


@pytest.mark.parametrize("master", ["local[2]", "k8s://https://10.0.0.1:443"])
def test_a_collector_chosen_for_every_jvm_stays(
    monkeypatch: pytest.MonkeyPatch, master: str
) -> None:
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-XX:+UseG1GC")
    assert collectors({}, master) == {}


def test_a_collector_in_the_environment_of_spark_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = {"spark.executorEnv.JAVA_TOOL_OPTIONS": "-XX:+UseG1GC"}
    assert collectors(chosen, "k8s://https://10.0.0.1:443") == chosen
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", "-XX:+UseG1GC")
    assert collectors({}) == {}
