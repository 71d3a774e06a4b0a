"""A Spark task whose process died reads its inputs again only once that is reserved."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from reconciler.rewrite.failures import MEMORY, Failure
from reconciler.rewrite.task import Made
from reconciler.spark.schedule import tasks

MADE = Made((), 1.0)


@pytest.mark.parametrize(
    ("deaths", "room", "runs"), [(0, 0, 1), (1, 1, 2), (1, 0, 1), (3, 9, 4), (4, 9, 4)]
)
def test_a_task_that_died_is_repeated_within_the_budgets(deaths: int, room: int, runs: int) -> None:
    """deaths: of the first tries. room: repeats that the budgets cover. runs: that are begun."""
    left, begun = [room], [0]

    def repeats(base: str, size: int) -> bool:
        assert (base, size) == ("p-1/0", 70)
        left[0] -= 1
        return left[0] >= 0

    def run() -> Made | None:
        begun[0] += 1
        return None if begun[0] <= deaths else MADE

    attempt: Any = SimpleNamespace(repeats=repeats)
    files = [SimpleNamespace(size=30), SimpleNamespace(size=40)]
    plan: Any = SimpleNamespace(task=SimpleNamespace(files=files))
    found = tasks.repeated(attempt, "p-1/0/write", plan, run)
    assert begun == [runs]
    if runs > deaths:
        assert found is MADE
    else:
        assert isinstance(found, Failure) and found.kind == MEMORY


@pytest.mark.parametrize("number", [0, 1])
def test_what_spark_begins_again_by_itself_reads_nothing(
    monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    from pyspark import TaskContext

    context = SimpleNamespace(attemptNumber=lambda: number, taskAttemptId=lambda: 7)
    monkeypatch.setattr(TaskContext, "get", lambda: context)
    monkeypatch.setattr(tasks.task_calls, "rewritten", lambda *_, attempt: attempt)
    plan: Any = SimpleNamespace(work=())
    assert tasks._working(plan)(0) == (None if number else "7")
