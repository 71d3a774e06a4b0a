"""What follows when other writers win: an operator and driver processes on a real table.

Only the API server is a fake. The drivers start no Spark: their plans are void before that.
"""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pytest

from reconciler.api.run_document import read_run
from reconciler.kube.kinds import JOB, POD, TABLE_LAYOUT
from reconciler.kube.termination_message import Cause
from reconciler.operator.process import reconcilers
from reconciler.operator.status_text import parse_time
from tests.cli.test_job import Pod
from tests.operator.deleting import delete_rows
from tests.operator.test_live import NAMESPACE, Cluster, lake
from tests.operator.worlds import run_text

__all__ = ["lake"]


class Clock:
    """The operator's; drivers have the machine's."""

    def __init__(self) -> None:
        self.ahead = dt.timedelta()

    def __call__(self) -> dt.datetime:
        return dt.datetime.now(dt.UTC) + self.ahead


def living(cluster: Cluster) -> list[dict[str, Any]]:
    return [job for job in cluster.server.all(JOB) if not job.get("status")]


def run(cluster: Cluster, directory: Path) -> str:
    """The one living job's driver runs and ends; returns the cause of its end."""
    (job,) = living(cluster)
    directory.mkdir()
    pod = Pod(directory, read_run(run_text(job)))
    assert pod.wait() != 0, pod.log.read_text()
    ended = {"exitCode": 5, "message": pod.last.read_text()}
    meta = job["metadata"]
    cluster.server.put(
        POD,
        {
            "metadata": {
                "name": f"{meta['name']}-pod", "namespace": NAMESPACE,
                "labels": dict(meta["labels"]),
                "ownerReferences": [{"kind": "Job", "uid": meta["uid"]}],
            },
            "status": {
                "phase": "Failed", "containerStatuses": [{"state": {"terminated": ended}}],
            },
        },
    )  # fmt: skip
    stored = cluster.server.objects[JOB.plural, NAMESPACE, meta["name"]]
    stored["status"] = {"conditions": [{"type": "Failed", "status": "True"}]}
    cluster.server.bump(stored)
    cause: str = pod.words()["cause"]
    return cause


def test_each_conflict_in_a_row_lets_rewrites_wait_twice_as_long_for_the_writer(
    lake: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a quiet period, before a job starts: nothing but the driver's record tells. Delete
    files are maintained meanwhile."""
    clock = Clock()
    monkeypatch.setattr(reconcilers, "now", clock)
    table = lake.load_table("sales.orders")
    cluster = Cluster(tmp_path)
    budgets = [{"name": "daily", "per": "24h", "maxRewriteBytes": "10Gi"}]
    cluster.apply(approval={"mode": "Automatic"}, budgets=budgets)
    for in_a_row, seconds in ((1, 60), (2, 120)):
        cluster.turn(3)
        table.refresh().delete(f"id < {100 * in_a_row}")
        assert run(cluster, tmp_path / f"pod-{in_a_row}") == Cause.CONFLICT
        written = table.refresh().current_snapshot().timestamp_ms / 1000
        cluster.turn(3)
        status = cluster.layout()["status"]
        assert status["failures"]["count"] == in_a_row
        assert cluster.condition(TABLE_LAYOUT, "Converged")["reason"] == "NothingToDo"
        revisit = parse_time(status["observed"]["revisit"])
        assert revisit is not None and 0 <= revisit.timestamp() - written - seconds < 1
        assert not living(cluster)
        clock.ahead = revisit - dt.datetime.now(dt.UTC)
    path = next(iter(table.refresh().scan().plan_files())).file.file_path
    for number in range(6):
        delete_rows(table.refresh(), path, range(number, number + 1))
    cluster.turn(3)
    assert len(living(cluster)) == 1
    plan = cluster.layout()["status"]["plan"]
    assert [action["type"] for action in plan["actions"]] == ["CompactDeletes"]
