"""What dies while the operator works, on a real API server, with real Spark and a real table.

`python -m bench.cluster_faults [NAME ...]` plays every fault, or those that are named, each on a
table of its own, and prints one line a fault; all of them together are written to bench/RESULTS.md.
After each the rows are compared as a multiset, the table is Converged, no attempt is open, no file
is left, and no two Jobs lived at once. tests/operator/test_faults_of_processes.py plays a few of
them, and several at once on one table.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from bench.results import write_section
from reconciler.kube.kinds import TABLE_LAYOUT
from tests.cluster import binaries, spark_image
from tests.cluster.cluster import Cluster
from tests.operator.deleting import Deleter
from tests.operator.held import held_jobs
from tests.operator.scene import SAMPLE_SECONDS, TABLE, Driver, Lake, Scene, eventually, scene

LEASE_SECONDS = 15
CONVERGES = 600.0
FAILED_SHARE = 0.01
MOST_DELETE_FILES = 60
"""Bounded: a job starts, compacts and commits within a minute and a half, in which 20 come."""
OK = "ok"


def kill_driver(stage: Scene, driver: Driver, phase: str) -> None:
    """kill -9 of the driver before or after its second commit, or in its first; ended on return."""
    if phase == "in":
        kill_in_commit(stage, driver)
    elif phase == "before":
        driver.reaches("committed")
        driver.reaches("verified", 2)
        driver.kill()
    else:
        driver.reaches("committed", 2)
        driver.kill()


def kill_in_commit(
    stage: Scene, driver: Driver, meanwhile: Callable[[], None] = lambda: None
) -> None:
    with in_commit(stage, driver, meanwhile):
        driver.kill()
        eventually(lambda: not driver.process(), 240, "the driver is dead")


@contextmanager
def in_commit(
    stage: Scene, driver: Driver, meanwhile: Callable[[], None] = lambda: None
) -> Iterator[None]:
    """Under the catalog's lock no commit ends, neither the table's nor the ledger's, however quick
    the machine is; `meanwhile` happens while the driver works towards it."""
    driver.reaches("start")
    with stage.lake.locked():
        meanwhile()
        driver.reaches("verified")
        time.sleep(1)
        yield


def driver_killed(stage: Scene, phase: str) -> str:
    stage.operator()
    stage.apply()
    first = stage.driver()
    kill_driver(stage, first, phase)
    second = stage.driver(besides=[first.job])
    stage.waits_for("NothingToDo", CONVERGES)
    return f"{first.phases()['committed']} commits before, {second.phases()['committed']} after"


def driver_killed_after_the_last_commit(stage: Scene) -> str:
    stage.operator()
    stage.apply()
    first = stage.driver()
    first.reaches("committed", stage.lake.regions)
    first.kill()
    stage.waits_for("NothingToDo", CONVERGES)
    eventually(lambda: not stage.lake.store().open_intents(stage.lake.uuid), 240, "settled")
    stage.waits_for("NothingToDo", CONVERGES)
    return f"{len(stage.watchman.jobs)} jobs"


def executor_killed(stage: Scene) -> str:
    stage.operator()
    stage.apply()
    driver = stage.driver()
    driver.reaches("start")
    name = driver.kill_executor()
    stage.waits_for("NothingToDo", CONVERGES)
    return f"{name} killed, {len(stage.watchman.jobs)} jobs"


def operator_killed(stage: Scene) -> str:
    """Twice: while the job starts and while it commits."""
    first = stage.operator()
    stage.apply()
    driver = stage.driver()
    first.kill()
    second = stage.operator()
    driver.reaches("committed")
    second.kill()
    stage.operator()
    stage.waits_for("NothingToDo", CONVERGES)
    assert list(stage.watchman.jobs.values()) == [driver.job], stage.watchman.jobs
    return "one job, adopted twice"


def operator_killed_before_the_job(stage: Scene) -> str:
    """Between the write-ahead of status.job and the creation of the Job."""
    first = stage.operator()
    with held_jobs(stage.cluster, stage.namespace) as held:
        stage.apply()
        assert held.arrived.wait(240), stage.describe()
        assert stage.status()["job"]["phase"] == "Pending"
        assert not stage.jobs()
        first.kill()
    record = stage.status()["job"]
    assert "uid" not in record or not record["uid"]
    stage.operator()
    stage.waits_for("NothingToDo", CONVERGES)
    assert list(stage.watchman.jobs.values()) == [record["name"]], stage.watchman.jobs
    return f"{record['name']} created by the next one"


def operator_killed_after_the_job(stage: Scene) -> str:
    """The Job is created; the operator that sent it never hears of it."""
    first = stage.operator()
    with held_jobs(stage.cluster, stage.namespace) as held:
        stage.apply()
        assert held.arrived.wait(240), stage.describe()
        first.signal(signal.SIGSTOP)
        held.release()
        job = eventually(stage.jobs, 240, "the Job")[0]["metadata"]["name"]
        assert not stage.status()["job"].get("uid")
        first.kill()
    stage.operator()
    stage.waits_for("NothingToDo", CONVERGES)
    assert list(stage.watchman.jobs.values()) == [job], stage.watchman.jobs
    return f"{job} adopted"


def two_operators(stage: Scene) -> str:
    """One works; when it is killed the other takes over."""
    pair = [stage.operator("a"), stage.operator("b")]
    stage.apply()
    driver = stage.driver()
    leader = stage.leader()
    assert leader is not None
    (other,) = [item for item in pair if item is not leader]
    assert leader.said("was created") or leader.said(f"Job {driver.job}")
    assert not other.said(f"Job {driver.job}")
    leader.kill()
    killed = time.monotonic()
    eventually(lambda: stage.leader() is other, 240, "the other leads")
    seconds = time.monotonic() - killed
    stage.waits_for("NothingToDo", CONVERGES)
    assert list(stage.watchman.jobs.values()) == [driver.job], stage.watchman.jobs
    return f"taken over after {seconds:.0f} s, one job"


def stale_leader(stage: Scene) -> str:
    """Stopped with its Job on the way to the server, past its lease, then let go on."""
    old, other = stage.operator("a"), None
    with held_jobs(stage.cluster, stage.namespace) as held:
        stage.apply()
        assert held.arrived.wait(240), stage.describe()
        old.signal(signal.SIGSTOP)
        other = stage.operator("b")
        eventually(lambda: stage.leader() is other, 240, "the other leads")
    driver = stage.driver()
    eventually(lambda: stage.status()["job"].get("uid"), 240, "adopted")
    old.signal(signal.SIGCONT)
    stage.waits_for("NothingToDo", CONVERGES)
    assert stage.leader() is other
    assert list(stage.watchman.jobs.values()) == [driver.job], stage.watchman.jobs
    return "one job"


def restart_api_server(stage: Scene, seconds: float = 3.0) -> None:
    stage.cluster.stop_api_server()
    time.sleep(seconds)
    stage.cluster.start_api_server()


def api_server_restarted(stage: Scene) -> str:
    """While the operator plans, while executors start, and while the job runs."""
    stage.operator()
    stage.apply()
    eventually(lambda: stage.layout(), 240, "a TableLayout")
    restart_api_server(stage)
    driver = stage.driver()
    eventually(driver.process, 240, "the driver's process")
    time.sleep(3)
    restart_api_server(stage)
    eventually(stage.lake.commits, 300, "a commit, of this or the next driver")
    restart_api_server(stage, 8.0)
    stage.waits_for("NothingToDo", CONVERGES)
    return f"restarted three times, {len(stage.watchman.jobs)} jobs"


def concurrent_writer(stage: Scene) -> str:
    """An append every two seconds, during the review and during the run."""
    stage.operator()
    with stage.lake.appending(2.0):
        stage.apply(approval={"mode": "Manual"})
        stage.waits_for("AwaitingApproval")
        plan = stage.status()["plan"]["id"]
        time.sleep(20)
        assert stage.status()["plan"]["id"] == plan, stage.describe()
        assert stage.approve() == plan
        stage.driver()
        eventually(lambda: stage.status().get("lastAppliedPlan") == plan, CONVERGES, "applied")
    stage.apply()
    stage.waits_for("NothingToDo", CONVERGES)
    applied = [item for item in stage.lake.commits() if item["layout.plan-id"] == plan]
    assert len(applied) == stage.lake.regions, applied
    return f"{plan} stood {20} s of review and was applied in {len(applied)} commits"


def concurrent_deletes(stage: Scene, quiet: str, seconds: float = 600.0) -> str:
    """Two DELETEs and an append in turn, one every three seconds, for ten minutes.

    quiet: the policy's quiet period. A rewrite of the files that are deleted from never gets to
    commit here, only maintenance of their deletes does.
    """
    stage.operator()
    stage.apply(layout={"clustering": BY_CITY["clustering"], "files": {"quietPeriod": quiet}})
    stage.waits_for("NothingToDo", CONVERGES)
    before = len(stage.lake.commits())
    writer, until = Deleter(stage.lake), time.monotonic() + seconds
    counts: list[int] = []
    with writer.working(3.0):
        while time.monotonic() < until:
            counts.append(writer.load())
            time.sleep(2)
    assert writer.refused <= FAILED_SHARE * writer.commits, writer
    assert max(counts) <= MOST_DELETE_FILES, counts
    stage.waits_for("NothingToDo", CONVERGES)
    return (
        f"{writer.deletes} deletes and {writer.appends} appends, {writer.refused} sent again; at "
        f"most {max(counts)} delete files at once; {len(stage.lake.commits()) - before} commits of "
        f"{len(stage.watchman.jobs)} jobs"
    )


BY_CITY = {
    "partitioning": {
        "mode": "Declared",
        "fields": [{"column": "city", "transform": "truncate[6]"}],
    },
    "clustering": {"mode": "Declared", "keys": ["id"]},
    "files": {"quietPeriod": "0s"},
}


def migrated_under_appends(stage: Scene) -> str:
    """To another partition spec; files that come under the old one meanwhile are moved as well."""
    stage.operator()
    old = stage.lake.catalog.load_table(TABLE).spec().spec_id
    with stage.lake.appending(3.0):
        stage.apply(layout=BY_CITY)
        eventually(lambda: written_under(stage)[0] != old, CONVERGES, "writers are switched")
        after = stage.lake.next_id
        eventually(lambda: stage.lake.next_id > after, 60, "an append under the new spec")
    stage.waits_for("NothingToDo", CONVERGES)
    default, used = written_under(stage)
    assert default != old and used == {default}, used
    return f"{len(stage.lake.commits())} commits of {len(stage.watchman.jobs)} jobs"


def written_under(stage: Scene) -> tuple[int, set[int]]:
    """Partition specs: the writers' one, and those of the live files."""
    table = stage.lake.catalog.load_table(TABLE)
    return table.spec().spec_id, {task.file.spec_id for task in table.scan().plan_files()}


def stops_at_a_boundary(driver: Driver) -> int:
    """Waits for its end within the grace; its commits, none of which was begun and not ended."""
    eventually(lambda: not driver.process(), 300, "the driver has stopped")
    done = driver.phases()
    assert done["committed"] == done["commit"] > 0, driver.log()
    return done["committed"]


def delete_job(stage: Scene, driver: Driver) -> int:
    """kubectl delete job, by hand, after its first commit."""
    driver.reaches("committed")
    stage.kubectl("delete", "job", driver.job, "--wait=false")
    return stops_at_a_boundary(driver)


def delete_layout(stage: Scene, driver: Driver) -> tuple[int, float]:
    """kubectl delete tl, mid-run: the object waits for its job, then goes with it."""
    driver.reaches("committed")
    layout = stage.layout()["metadata"]
    asked = time.monotonic()
    stage.kubectl("delete", "tl", layout["name"], "--wait=false")
    done = stops_at_a_boundary(driver)

    def gone() -> bool:
        now = stage.api.list(TABLE_LAYOUT, stage.namespace)
        return all(item["metadata"]["uid"] != layout["uid"] for item in now)

    eventually(gone, 600, "the TableLayout is gone")
    seconds = time.monotonic() - asked

    def orphans() -> list[str]:
        return [name for job in stage.jobs() if (name := job["metadata"]["name"]) == driver.job]

    eventually(lambda: not orphans(), 240, "its Job is gone")
    eventually(stage.layout, 300, "its policy makes it anew")
    return done, seconds


def job_deleted(stage: Scene) -> str:
    """It stops at a commit boundary, and the rest is done by another."""
    stage.operator()
    stage.apply()
    done = delete_job(stage, stage.driver())
    stage.waits_for("NothingToDo", CONVERGES)
    return f"stopped after {done} commits, {len(stage.watchman.jobs)} jobs"


def layout_deleted(stage: Scene) -> str:
    """The job stops at a commit boundary, the object goes, and the policy makes it anew."""
    stage.operator()
    stage.apply()
    done, seconds = delete_layout(stage, stage.driver())
    stage.waits_for("NothingToDo", CONVERGES)
    return f"stopped after {done} commits, gone after {seconds:.0f} s, then made anew"


FAULTS: Mapping[str, Callable[[Scene], str]] = {
    "driver-killed-before-commit": lambda stage: driver_killed(stage, "before"),
    "driver-killed-in-commit": lambda stage: driver_killed(stage, "in"),
    "driver-killed-after-commit": lambda stage: driver_killed(stage, "after"),
    "driver-killed-after-last-commit": driver_killed_after_the_last_commit,
    "executor-killed": executor_killed,
    "operator-killed": operator_killed,
    "operator-killed-before-job": operator_killed_before_the_job,
    "operator-killed-after-job": operator_killed_after_the_job,
    "two-operators": two_operators,
    "stale-leader": stale_leader,
    "api-server-restarted": api_server_restarted,
    "concurrent-writer": concurrent_writer,
    "concurrent-deletes": lambda stage: concurrent_deletes(stage, "15m"),
    "concurrent-deletes-not-quiet": lambda stage: concurrent_deletes(stage, "0s"),
    "migrated-under-appends": migrated_under_appends,
    "job-deleted": job_deleted,
    "layout-deleted": layout_deleted,
}


UNPARTITIONED = {"concurrent-deletes", "concurrent-deletes-not-quiet"}
"""Faults on an unpartitioned table, as `Deleter` writes."""


def play(cluster: Cluster, name: str, directory: Path) -> str:
    """One fault on a table and in a namespace of its own. Raises when anything is wrong."""
    with staged(cluster, name, directory, regions=1 if name in UNPARTITIONED else 4) as stage:
        said = FAULTS[name](stage)
        stage.check()
    return said


@contextmanager
def staged(
    cluster: Cluster, name: str, directory: Path, every: float = SAMPLE_SECONDS, regions: int = 4
) -> Iterator[Scene]:
    """A scene on a table and in a namespace of its own."""
    cluster.kubectl("create", "namespace", name)
    wait = ("wait", "--for=create", "serviceaccount/default", "-n", name, "--timeout=30s")
    cluster.kubectl(*wait)
    directory.mkdir(parents=True)
    with scene(cluster, name, Lake(directory, regions), every) as stage:
        yield stage


@contextmanager
def started(directory: Path) -> Iterator[Cluster]:
    """A control plane with its node and the image of Spark."""
    with Cluster(directory, binaries.directory("kube")) as cluster:
        cluster.start_kubelet()
        image: Any = spark_image
        cluster.set_image(image.NAME, image.ENTRYPOINT, image.environment())
        yield cluster


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(FAULTS))
    parser.add_argument("--keep", type=Path, help="keep logs and warehouses in this directory")
    arguments = parser.parse_args()
    unknown = set(arguments.names) - set(FAULTS)
    if unknown:
        parser.error(f"no such fault: {', '.join(sorted(unknown))}")
    rows = []
    with tempfile.TemporaryDirectory(dir="/var/tmp", ignore_cleanup_errors=True) as scratch:
        base = arguments.keep or Path(scratch)
        base.mkdir(parents=True, exist_ok=True)
        with started(base / "cluster") as cluster:
            for name in arguments.names or FAULTS:
                rows.append(result_row(name, partial(play, cluster, name, base / name)))
    if not arguments.names:
        write(rows)
    return 1 if any(row[1] != OK for row in rows) else 0


def write(rows: list[tuple[str, str, str, str]]) -> None:
    note = (
        "A real API server, operators, Spark drivers and executors as processes. Held: rows equal "
        "as a multiset, Converged, no attempt open, no file left behind, no finalizer, never two "
        "Jobs at once."
    )
    head = ("fault", "held", "seconds", "seen")
    write_section("Faults of processes", "python -m bench.cluster_faults", [head, *rows], note)


def result_row(name: str, play: Callable[[], str]) -> tuple[str, str, str, str]:
    """One row: the fault, whether all held, seconds, what was seen."""
    began = time.monotonic()
    try:
        said, held = play(), OK
    except (AssertionError, TimeoutError, OSError, subprocess.SubprocessError) as error:
        said, held = str(error) or "".join(traceback.format_tb(error.__traceback__)[-2:]), "FAILED"
        traceback.print_exc(file=sys.stderr)
    seconds = f"{time.monotonic() - began:.0f}"
    print(f"{name:34} {held:6} {seconds:>4} s  {said}", flush=True)
    return name, held, seconds, said.partition("\n")[0]


if __name__ == "__main__":
    sys.exit(main())
