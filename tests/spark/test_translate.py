"""Foreign exceptions: the error that a user and the operator get for each cause."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from types import SimpleNamespace

import pytest

from reconciler.errors import (
    AccessDeniedError,
    InternalError,
    MemoryExhaustedError,
    ReconcilerError,
    TableDamagedError,
    TableNotFoundError,
    UnavailableError,
    UnsupportedError,
    UserError,
)
from reconciler.spark.session import translate as translation
from reconciler.spark.session.translate import lost, translate
from tests.said import Said


class Throwable:
    """A Java exception as py4j shows it."""

    def __init__(self, name: str, message: str, cause: Throwable | None = None):
        self.name, self.message, self.cause = name, message, cause

    def getClass(self) -> Throwable:
        return self

    def getName(self) -> str:
        return self.name

    def getMessage(self) -> str:
        return self.message

    def getCause(self) -> Throwable | None:
        return self.cause


def raised(name: str, message: str, cause: Throwable | None = None) -> ReconcilerError:
    error = RuntimeError("py4j")
    error.java_exception = Throwable(name, message, cause)  # type: ignore[attr-defined]
    return translate(error, "rewrite sales.lineitem")


ABORTED = "Job aborted due to stage failure: Task 0 in stage 3.0 failed 4 times: "
LOST = ABORTED + "ExecutorLostFailure (executor 4 exited caused by one of the running tasks) "
POD = LOST + (
    "Reason: \nThe executor with id 4 exited with exit code 137(SIGKILL, possible container OOM).\n"
    "The API gave the following brief reason: %s\nThe API gave the following message: N/A\n"
    "The API gave the following container statuses:\n\n\t container state: terminated\n"
    "\t exit code: 137\n\t termination reason: %s\n"
)
"""A pod of Kubernetes that was killed: the reason of the pod, and that of its container."""


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        (LOST + "Reason: \nThe executor with id 4 exited with exit code 137(SIGKILL, possible "
         "container OOM).\n", MemoryExhaustedError),
        (LOST + "Reason: Command exited with code 137", MemoryExhaustedError),
        (POD % ("N/A", "OOMKilled"), MemoryExhaustedError),
        (POD % ("N/A", "Error"), MemoryExhaustedError),
        (POD % ("Evicted", "Error"), UnavailableError),
        (POD % ("Evicted", "OOMKilled"), MemoryExhaustedError),
        (LOST + "Reason: Container killed by YARN for exceeding limits", MemoryExhaustedError),
        (LOST + "Reason: The executor with id 2 exited with exit code 52", MemoryExhaustedError),
        (ABORTED + "java.lang.OutOfMemoryError: Java heap space", MemoryExhaustedError),
        (ABORTED + "org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)",
         MemoryExhaustedError),
        (ABORTED + "org.apache.spark.api.python.PythonException: Traceback (most recent call last):"
         "\nModuleNotFoundError: No module named 'duckdb'\n", UserError),
        (ABORTED + "PythonException: ModuleNotFoundError: No module named 'reconciler.rewrite'",
         UserError),
        (ABORTED + "java.lang.OutOfMemoryError: GC overhead limit exceeded", MemoryExhaustedError),
        (LOST + "Reason: Executor heartbeat timed out after 130000 ms", UnavailableError),
        (LOST + "Reason: The executor with id 4 was deleted by a user or the framework.",
         UnavailableError),
        (LOST + "Reason: exited with exit code 143(SIGTERM)", UnavailableError),
        (ABORTED + "software.amazon.awssdk...S3Exception: Access Denied (Service: S3, Status "
         "Code: 403)", AccessDeniedError),
        (ABORTED + "java.lang.RuntimeException: footer is too large: 3041094211to be read",
         TableDamagedError),
        (ABORTED + "java.lang.RuntimeException: corrupted file: the footer index is not within the "
         "file: 7", TableDamagedError),
        (ABORTED + "org.apache.iceberg.shaded.org.apache.parquet.shaded.org.apache.thrift.protocol."
         "TProtocolException: Required field 'x' was not present", TableDamagedError),
        ("Could not connect to meta store: org.apache.thrift.transport.TTransportException: "
         "java.net.ConnectException: Connection refused", UnavailableError),
        (ABORTED + "java.lang.IllegalArgumentException: Unsupported compression codec: superzip",
         UserError),
        (ABORTED + "something new", InternalError),
    ],
)  # fmt: skip
def test_a_failed_job_is_classified_by_its_cause(message: str, kind: type[ReconcilerError]) -> None:
    assert type(raised("org.apache.spark.SparkException", message)) is kind
    by_machine = kind is UnavailableError and message.startswith(LOST)
    assert translation.lost_machine(message) == by_machine


def test_a_newer_format_version_is_not_damage(said: Said) -> None:
    error = raised("java.lang.IllegalArgumentException", "Cannot read unsupported version 5")
    assert type(error) is UnsupportedError
    said(error.what)


@pytest.mark.parametrize(
    "message",
    ["Location does not exist: s3://lake/metadata/snap-1.avro", "File does not exist"],
)
def test_a_missing_file_is_named_if_its_name_is_known(message: str) -> None:
    error = raised("org.apache.iceberg.exceptions.NotFoundException", message)
    assert type(error) is TableDamagedError
    assert "below" not in error.what
    assert message.rpartition(" ")[2] in error.render()


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("org.apache.iceberg.exceptions.NotAuthorizedException", AccessDeniedError),
        ("org.apache.iceberg.exceptions.ForbiddenException", AccessDeniedError),
        ("org.apache.iceberg.exceptions.ServiceFailureException", UnavailableError),
        ("java.net.ConnectException", UnavailableError),
        ("java.lang.OutOfMemoryError", MemoryExhaustedError),
        ("org.apache.iceberg.exceptions.NoSuchTableException", TableNotFoundError),
        ("java.lang.NoClassDefFoundError", UserError),
    ],
)
def test_the_innermost_cause_counts(name: str, kind: type[ReconcilerError]) -> None:
    error = raised("org.apache.spark.SparkException", "outer", Throwable(name, "inner"))
    assert type(error) is kind
    assert error.do


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("java.io.FileNotFoundException", "/w/t/metadata/m0.avro (Read-only file system)"),
        ("java.io.FileNotFoundException", "/w/t/data/a.parquet (Permission denied)"),
        ("java.io.IOException", "Mkdirs failed to create file:/w/t/data/layout-p (exists=false)"),
    ],
)
def test_a_place_that_may_not_be_written_to_is_not_a_missing_file(name: str, message: str) -> None:
    cause = Throwable(name, message)
    error = raised("org.apache.iceberg.exceptions.RuntimeIOException", "Failed to create", cause)
    assert type(error) is AccessDeniedError
    assert message in error.said[0]
    assert "writable" in (error.do or "")


@pytest.mark.jvm
def test_a_killed_jvm_is_reported_during_any_call() -> None:
    """A call that it has not read yet is reset, later ones are refused, and what it threw before
    has neither class nor text any more. py4j raises a different exception for each."""
    program = """
import json, os, signal, sys, threading, time
from reconciler.spark.session import session
from reconciler.engines.engine_errors import translated
from reconciler.spark.session import translate as translation

spark = session.start({}, app="test", master="local[1]")
things = spark._jvm.java.util.ArrayList()
try:
    things.get(7)
except Exception as error:
    thrown = error
began = threading.Barrier(4, timeout=60)
raised_by = {}

def call(name, what):
    try:
        with translated(translation, "try it"):
            spark._jvm.java.lang.System.nanoTime()  # a connection of this thread's own
            began.wait()
            time.sleep(1)
            what()
    except Exception as error:
        raised_by[name] = (type(error).__name__, type(error.__cause__).__name__)

def throw():
    time.sleep(3)
    raise thrown

calls = {
    "method": lambda: things.size(),
    "class": lambda: spark._jvm.java.lang.Object(),
    "exception": throw,
}
threads = [threading.Thread(target=call, args=item) for item in calls.items()]
for thread in threads:
    thread.start()
began.wait()
jvm = spark.gateway.proc.pid
os.kill(jvm, signal.SIGSTOP)
time.sleep(2)
os.kill(jvm, signal.SIGKILL)
for thread in threads:
    thread.join()
print(json.dumps(raised_by))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=300, check=True
    )
    assert json.loads(done.stdout.splitlines()[-1]) == {
        "method": ["UnavailableError", "Py4JError"],
        "class": ["UnavailableError", "Py4JError"],
        "exception": ["UnavailableError", "Py4JJavaError"],
    }
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("answers", [False, True])
def test_a_jvm_that_accepts_a_question_and_never_answers_counts_as_ended(monkeypatch, answers):
    from py4j.protocol import Py4JError
    from pyspark import SparkContext

    done = threading.Event()
    ask = (lambda: 7) if answers else done.wait
    system = SimpleNamespace(nanoTime=ask)
    jvm = SimpleNamespace(java=SimpleNamespace(lang=SimpleNamespace(System=system)))
    monkeypatch.setattr(SparkContext, "_gateway", SimpleNamespace(jvm=jvm))
    monkeypatch.setattr(translation, "ANSWER_SECONDS", 0.1 if not answers else 60.0)
    try:
        error = Py4JError("an error occurred while calling o7.size")
        assert lost(error) is not answers
    finally:
        done.set()


@pytest.mark.parametrize("module", ["duckdb", "reconciler", "pyroaring"])
def test_a_python_without_what_the_witness_needs_is_named_with_the_remedy(module: str) -> None:
    error = translate(ModuleNotFoundError(f"No module named '{module}'"), "rewrite sales.lineitem")
    assert type(error) is UserError and module in error.what
    assert error.do is not None and "PYSPARK_PYTHON" in error.do
