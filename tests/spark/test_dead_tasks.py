"""A Spark task whose process died reads its inputs again only once that is reserved."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from reconciler.api.task_memory import Limits
from reconciler.rewrite import task_calls
from reconciler.rewrite.comparison import WitnessResult
from reconciler.rewrite.failures import ENDED, LOST, MEMORY, Failure
from reconciler.spark.deletes import by_engine
from reconciler.spark.schedule import again, tasks, witness_work
from reconciler.spark.session import resources

NAME = "p-1/0/write"


class Budget:
    """An attempt whose budgets cover so many bytes of reading once more."""

    def __init__(self, room: int) -> None:
        self.room, self.asked = room, list[int]()

    def repeats(self, base: str, size: int) -> bool:
        assert base == "p-1/0"
        self.asked.append(size)
        self.room -= size
        return self.room >= 0


@pytest.mark.parametrize(
    ("deaths", "room", "runs", "kind"),
    [(0, 0, 1, ""), (1, 70, 2, ""), (1, 69, 1, ENDED), (3, 999, 4, ""), (4, 999, 4, MEMORY)],
)
def test_a_task_that_died_is_repeated_within_the_budgets(
    deaths: int, room: int, runs: int, kind: str
) -> None:
    """deaths: of the second task's first tries. runs: that are begun, of it alone after the
    first. Spark says nothing of why it died."""
    budget, begun = Budget(room), list[list[int]]()

    def run(numbers: Sequence[int]) -> list[str | None]:
        begun.append([*numbers])
        return [None if at == 1 and len(begun) <= deaths else f"made {at}" for at in numbers]

    attempt: Any = budget
    found = again.repeated(attempt, None, NAME, [30, 70, 20], run)
    assert begun == [[0, 1, 2], *[[1]] * (runs - 1)]
    assert set(budget.asked) <= {70}
    assert (found[0], found[2]) == ("made 0", "made 2")
    if runs > deaths:
        assert found[1] == "made 1"
    else:
        assert isinstance(found[1], Failure)
        assert found[1].kind == kind


def _rewriting() -> Callable[[Any], Any]:
    plan: Any = SimpleNamespace(work=())
    return tasks._working(plan)


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize(
    ("call", "working"),
    [
        ("rewritten", _rewriting),
        ("found", lambda: by_engine._finding(None)),
        ("seen", lambda: witness_work._reading(None, Limits.within(1 << 30))),
    ],
)
def test_what_spark_begins_again_by_itself_reads_nothing(
    monkeypatch: pytest.MonkeyPatch, number: int, call: str, working: Callable[[], Any]
) -> None:
    from pyspark import TaskContext

    context = SimpleNamespace(attemptNumber=lambda: number, taskAttemptId=lambda: 7)
    monkeypatch.setattr(TaskContext, "get", lambda: context)
    monkeypatch.setattr(task_calls, call, lambda *_, attempt="7": attempt)
    assert working()(0) == (None if number else "7")


class Context:
    """Spark, whose tasks die in so many first jobs."""

    def __init__(self, deaths: int) -> None:
        self.deaths, self.jobs = deaths, list[int]()

    def setJobGroup(self, *_: str) -> None:
        """Nothing is cancelled."""

    def parallelize(self, parts: list[Any], slices: int) -> Any:
        assert len(parts) == slices
        self.jobs.append(slices)
        made = [None] * slices if len(self.jobs) <= self.deaths else [WitnessResult(hidden=5)]
        return SimpleNamespace(map=lambda _: SimpleNamespace(collect=lambda: made))


@pytest.mark.parametrize(("room", "jobs"), [(63, [1]), (64, [1, 1])])
@pytest.mark.parametrize("deletes", [True, False])
def test_deletes_and_the_witness_reserve_what_they_read_again(
    monkeypatch: pytest.MonkeyPatch, deletes: bool, room: int, jobs: list[int]
) -> None:
    """A data file of 40 bytes with two delete files of 12 bytes, of which one has keys."""
    context, attempt = Context(1), Budget(room)
    spark = SimpleNamespace(local=False, sparkContext=context)
    given: Any = attempt
    given.name = "t"
    hides = [SimpleNamespace(path=p, offset=0, length=12, keys=k) for p, k in (("a", ()), ("b", 1))]
    file = SimpleNamespace(size=40, deletes=hides)
    for module in (by_engine, witness_work):
        monkeypatch.setattr(module, "spark_of", lambda _: spark)
    limits = SimpleNamespace(memory_bytes=1 << 30)
    monkeypatch.setattr(resources, "of_executor", lambda _: limits)
    found: Any
    if deletes:
        target = SimpleNamespace(file=file, known=None)
        task: Any = SimpleNamespace(groups=[SimpleNamespace(targets=[target])])
        found = by_engine.find(given, NAME, [task], 1 << 40, None)
    else:
        work: Any = SimpleNamespace(files=(file,), exchanges=())
        monkeypatch.setattr(witness_work, "_part", lambda work, _: work)
        found = witness_work.looked_at(given, NAME, work, [[0]], 1 << 40, None)
    assert (context.jobs, attempt.asked) == (jobs, [64])
    if len(jobs) == 2:
        assert found == [WitnessResult(hidden=5)]
    else:
        (failure,) = found if deletes else found[0].failures
        assert failure.kind == ENDED


ON_SPARK = """
import json, os, shutil, signal, sys
from pathlib import Path
from types import SimpleNamespace
from pyspark import SparkConf, SparkContext
from reconciler.spark.schedule import again
from reconciler.spark.session.runtime import spark_home

directory, room, master = sys.argv[1], int(sys.argv[2]), sys.argv[3]

def reading(number):
    with open(f"{directory}/{number}", "a") as log:
        log.write("r")
    if number == 1 and os.path.getsize(f"{directory}/1") == 1:
        if master.startswith("local["):
            os._exit(1)
        daemon = Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(")")[2].split()
        os.kill(int(daemon[1]), signal.SIGTERM)  # the executor, as a node that is drained does
        signal.pause()
    return number

def affords(base, size):
    asked.append([base, size])
    return size <= room

asked, spark = [], SparkContext(master, conf=SparkConf().set("spark.executor.memory", "512m"))
spark.setJobGroup("p/1/verify", "")
def run(numbers):
    rdd = spark.parallelize(list(numbers), len(numbers))
    return rdd.map(again.first_only(reading)).collect()

found = again.repeated(SimpleNamespace(repeats=affords), spark, "p/1/verify", [10, 20], run)
logs = spark_home() / "work" / spark.applicationId
spark.stop()
shutil.rmtree(logs, ignore_errors=True)
print(json.dumps([asked, [getattr(one, "kind", one) for one in found]]))
"""


@pytest.mark.jvm
@pytest.mark.parametrize(
    ("master", "room", "read", "made"),
    [("local[1,2]", 20, 2, 1), ("local-cluster[1,1,512]", 19, 1, LOST)],
)
def test_a_python_process_or_an_executor_of_spark_that_dies(
    tmp_path: Path, master: str, room: int, read: int, made: object
) -> None:
    """Spark itself begins the task again, as local[1,2] says. The executor dies by SIGTERM, of
    which more memory saves none."""
    done = subprocess.run(
        [sys.executable, "-c", ON_SPARK, str(tmp_path), str(room), master],
        capture_output=True, text=True, timeout=120, check=True,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
    )  # fmt: skip
    assert json.loads(done.stdout) == [[["p/1", 20]], [0, made]]
    assert [(tmp_path / name).stat().st_size for name in ("0", "1")] == [1, read]
