"""`layoutctl job` as a pod runs it: a process, its environment, its last words, its exit code."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reconciler.api.documents import Recommend
from reconciler.api.run_document import RecommendRun, RunDocument
from reconciler.cli.job import _exit_code, _Job
from reconciler.errors import BlockedError, InternalError, VerificationError
from reconciler.kube.termination_message import MOST_BYTES, Cause, LastWords
from tests.conftest import sqlite_catalog
from tests.loop.runs import Prepared, prepared
from tests.said import Said

PLANTED = "planted-hunter2-value"


class Pod:
    """One process with a driver pod's surroundings, outside of a cluster."""

    def __init__(self, directory: Path, run: RunDocument | RecommendRun | None, **environ: str):
        self.last = directory / "termination-log"
        secrets = directory / "secret"
        (secrets / "..data").mkdir(parents=True, exist_ok=True)
        (secrets / "gcs.oauth2.token").write_text(f"{PLANTED}\n")
        self.log = directory / "log"
        self.environ = {
            **{k: v for k, v in os.environ.items() if not k.startswith("LAYOUT")},
            "LAYOUT_TERMINATION_LOG": str(self.last),
            "LAYOUT_CATALOG_SECRETS": str(secrets),
            "LAYOUT_LOCAL_FILES": "true",
            "LAYOUTCTL_SPARK_MASTER": "local[2]",
            "LAYOUTCTL_DRIVER_MEMORY": "1g",
            **{k: v for k, v in os.environ.items() if k == "LAYOUTCTL_CACHE"},
            **environ,
        }
        if run is not None:
            self.environ["LAYOUT_RUN"] = run.text()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "reconciler.cli.main", "job"],
            env=self.environ,
            stderr=self.log.open("w"),
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )

    def wait(self) -> int:
        return self.process.wait(timeout=600)

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log.read_text().splitlines() if line]

    def words(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.last.read_text())
        return found

    def when(self, phase: str) -> None:
        """Waits until the driver has logged an event of that phase."""
        deadline = time.monotonic() + 500
        while f'"phase": "{phase}"' not in self.log.read_text():
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline
            time.sleep(0.05)

    def jvm(self) -> int:
        listed = subprocess.run(
            ["ps", "-o", "pid=,args=", "--ppid", str(self.process.pid)],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        (pid,) = [int(ln.split()[0]) for ln in listed.stdout.splitlines() if "java" in ln]
        return pid


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Prepared]:
    from pyiceberg.catalog.sql import SqlCatalog

    (tmp_path / "warehouse").mkdir()
    config = sqlite_catalog(tmp_path)
    catalog = SqlCatalog(config.name, **dict(config.properties))
    yield prepared(config, catalog, tmp_path / "plans", partitions=4)


def test_what_an_engine_repeats_of_a_catalogs_answer_is_in_no_line(capsys: Any) -> None:
    job = _Job()
    job.say(f'RESTException: {{"s3.session-token": "{PLANTED}"}} Authorization: Bearer {PLANTED}')
    (line,) = capsys.readouterr().err.splitlines()
    assert PLANTED not in line and "RESTException" in json.loads(line)["message"]


@pytest.mark.jvm
def test_sigterm_to_the_whole_group_stops_at_a_boundary_and_the_next_attempt_does_the_plan(
    made: Prepared, tmp_path: Path
) -> None:
    before = made.rows()
    pod = Pod(tmp_path, made.run)
    pod.when("start")
    os.killpg(pod.process.pid, signal.SIGTERM)
    assert pod.wait() == 130, pod.log.read_text()
    assert pod.words()["cause"] == "Stopped"
    assert made.rows() == before
    assert made.store.open_intents(made.plan.table_uuid) == ()
    again = Pod(tmp_path / "again", replace(made.run, attempt=2))
    assert again.wait() == 0, again.log.read_text()
    assert made.rows() == before
    words = again.words()
    assert words["planId"] == made.plan.id
    assert words["commits"] >= 1 and "cause" not in words
    lines = again.lines()
    assert all(
        (line["planId"], line["attempt"]) == (made.plan.id, 2) and line["table"] for line in lines
    )
    assert {"start", "committed"} <= {line.get("phase") for line in lines}
    assert PLANTED not in again.log.read_text() + again.last.read_text()


@pytest.mark.jvm
def test_a_jvm_that_the_kernel_kills_is_out_of_memory_and_settled_by_the_next(
    made: Prepared, tmp_path: Path
) -> None:
    before = made.rows()
    pod = Pod(tmp_path, made.run)
    pod.when("start")
    jvm = pod.jvm()
    os.kill(jvm, signal.SIGSTOP)
    time.sleep(1)  # a call that it has not read yet is reset, not ended
    os.kill(jvm, signal.SIGKILL)
    assert pod.wait() == 5, pod.log.read_text()
    assert "Exception while sending command" not in pod.log.read_text()
    words = pod.words()
    assert (words["cause"], words["retry"]) == ("OutOfMemory", True)
    assert "memory" in words["do"]
    assert made.rows() == before
    again = Pod(tmp_path / "again", replace(made.run, attempt=2))
    assert again.wait() == 0, again.log.read_text()
    assert again.words()["settled"] == 1
    assert made.rows() == before
    assert made.store.open_intents(made.plan.table_uuid) == ()


@pytest.mark.parametrize(
    ("error", "cause", "code"),
    [
        (KeyError("x"), Cause.UNKNOWN, 4),
        (KeyError("x"), Cause.OUT_OF_MEMORY, 5),
        (InternalError("x"), Cause.UNAVAILABLE, 5),
        (BlockedError("x"), Cause.UNAVAILABLE, 3),
        (VerificationError("x"), Cause.VERIFICATION_FAILED, 4),
    ],
)
def test_errors_after_the_jvm_ended_are_not_internal_errors(
    error: Exception, cause: Cause, code: int
) -> None:
    assert _exit_code(error, LastWords(cause, "", "")) == code


def test_a_recommend_job_reads_and_reports_what_to_declare(tmp_path: Path) -> None:
    """Without a JVM; what it used counts against CPU budgets."""
    from pyiceberg.catalog.sql import SqlCatalog

    (tmp_path / "warehouse").mkdir()
    config = sqlite_catalog(tmp_path)
    catalog = SqlCatalog(config.name, **dict(config.properties))
    made = prepared(config, catalog, tmp_path / "plans", workload=True)
    location = made.table.refresh().metadata_location
    run = recommend_run(made)
    pod = Pod(tmp_path, run)
    assert pod.wait() == 0, pod.log.read_text()
    found = pod.words()["recommendation"]
    assert found["better"] and found["layout"]["clustering"]["keys"] == ["day"]
    assert found["reading"]["low"] <= found["reading"]["after"] <= found["reading"]["high"]
    assert found["reading"]["after"] < found["reading"]["now"]
    document = made.store.plans.get_recommendation(found["uri"], found["digest"])
    assert document["policy"] == found["layout"]
    assert document["sample"]["budgetBytes"] == 1 << 30
    (held,) = made.store.reservations(made.plan.table_uuid)
    assert held.settled and held.used_cpu_seconds > 0.5
    (spent,) = made.store.spent(run.policy_key, made.plan.table_uuid)
    assert (spent.rewrite_bytes, spent.cpu_seconds) == (0, held.used_cpu_seconds)
    assert made.table.refresh().metadata_location == location
    assert len(pod.last.read_text().encode()) <= MOST_BYTES
    over = Pod(tmp_path / "over", replace(run, attempt=2, cpu_limit_seconds=1))
    assert over.wait() == 1, over.log.read_text()
    assert over.words()["cause"] == "UserError"


def recommend_run(made: Prepared) -> RecommendRun:
    spec = replace(made.run.policy.spec, recommend=Recommend(3600, 1 << 30))
    return RecommendRun(
        catalog=made.run.catalog,
        policy=replace(made.run.policy, spec=spec),
        table=made.run.table,
        run_id="r-" + "0" * 20,
        attempt=1,
        cpu_limit_seconds=600,
        policy_key=made.run.policy_key,
        owner=made.run.owner,
    )


def test_a_plan_that_was_changed_is_refused(made: Prepared, tmp_path: Path, said: Said) -> None:
    path = Path(made.run.plan_uri.removeprefix("file://"))
    path.write_text(path.read_text().replace('"policy":"test"', '"policy":"tost"'))
    files = made.files()
    pod = Pod(tmp_path, made.run)
    assert pod.wait() == 1
    assert pod.words()["cause"] == "UserError"
    said(pod.words()["message"])
    assert made.files() == files


def test_an_unknown_key_of_the_secret_is_named_and_its_value_is_not(
    made: Prepared, tmp_path: Path
) -> None:
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "py-io-impl").write_text(PLANTED)
    pod = Pod(tmp_path, made.run)
    assert pod.wait() == 1
    assert "py-io-impl" in pod.words()["message"]
    assert PLANTED not in pod.log.read_text() + pod.last.read_text()


def test_without_a_run_there_is_nothing_to_do(tmp_path: Path, said: Said) -> None:
    pod = Pod(tmp_path, None)
    assert pod.wait() == 1
    words = pod.words()
    assert (words["cause"], words["retry"]) == ("UserError", False)
    said(f"{words['message']}\ndo: {words['do']}")


def test_a_pod_that_the_operator_did_not_make_is_refused(made: Prepared, tmp_path: Path) -> None:
    pod = Pod(tmp_path, made.run, KUBERNETES_SERVICE_HOST="10.0.0.1")
    assert pod.wait() == 1
    assert "POD_NAME" in pod.words()["message"]


def test_the_verb_is_not_in_the_help() -> None:
    shown = subprocess.run(
        [sys.executable, "-m", "reconciler.cli.main", "--help"], capture_output=True, text=True
    )
    assert "│ apply " in shown.stdout
    assert "│ job " not in shown.stdout
