"""A task that is killed reads its inputs twice: that is charged, and needs the budgets' room."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

from reconciler.commit.engine import LocalBackend
from reconciler.engines.actions.deletes import CompactExecutor
from reconciler.engines.local.machine import Machine
from reconciler.engines.local.pool import Killed, OutOfMemory
from reconciler.engines.schedule.attempt import Attempt
from reconciler.engines.schedule.native import GroupPlan
from reconciler.engines.schedule.run import Reading
from reconciler.errors import MemoryExhaustedError
from reconciler.plan.execution import Used
from reconciler.rewrite.failures import ENDED, Failure
from reconciler.rewrite.task import Made, Resources

MADE = Made((), 1.0)
SIZE = 70


class FakePool:
    """Kills the first tries, and answers the next one."""

    def __init__(self, *kills: Exception) -> None:
        self.kills, self.tries = list(kills), 0

    def run(self, *_: Any, **__: Any) -> Made:
        self.tries += 1
        if self.kills:
            raise self.kills.pop(0)
        return MADE


def reading(limit: int | None) -> Reading:
    found = Reading()
    found.limit(limit)
    assert not found.foresee(Used(), SIZE)
    return found


def tried(pool: FakePool, limit: int | None) -> tuple[Made | Failure, dict[str, int]]:
    backend = LocalBackend(pool, Machine(1 << 30, 1 << 30, 1), Path(), print)  # type: ignore[arg-type]
    attempt = Attempt(
        backend, "p-1", "t", None, 1, 1, "", "Full", lambda: None, reading(limit).affords,  # type: ignore[arg-type]
    )  # fmt: skip
    task = SimpleNamespace(files=[SimpleNamespace(size=30), SimpleNamespace(size=40)])
    plan = GroupPlan(task, None, Resources(1 << 28), 0, None)  # type: ignore[arg-type]
    return backend.run_task(attempt, "p-1/0/write", plan), attempt.repeated


@pytest.mark.parametrize("kill", [OutOfMemory("too much"), Killed("gone")])
@pytest.mark.parametrize("limit", [None, 2 * SIZE])
def test_a_second_try_is_charged_as_read_again(kill: Exception, limit: int | None) -> None:
    pool = FakePool(kill)
    assert tried(pool, limit) == (MADE, {"p-1/0": SIZE})
    assert pool.tries == 2


def test_without_room_in_the_budgets_there_is_no_second_try() -> None:
    pool = FakePool(OutOfMemory("too much"))
    found, repeated = tried(pool, 2 * SIZE - 1)
    assert isinstance(found, Failure) and found.kind == ENDED
    assert (pool.tries, repeated) == (1, {})


def test_a_first_try_that_ends_is_read_once() -> None:
    assert tried(FakePool(), SIZE) == (MADE, {})


def test_what_is_read_again_is_counted_once_for_all_groups() -> None:
    budgets = reading(3 * SIZE)
    assert [budgets.affords(SIZE) for _ in range(4)] == [True, True, False, False]


def test_what_tasks_of_delete_maintenance_read_again_is_charged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def dies(_: object, attempt: Attempt, base: str, inputs: object) -> None:
        assert attempt.repeats(base, SIZE)
        raise MemoryExhaustedError("killed")

    run = SimpleNamespace(say=lambda *_: None, stopping=lambda: False, table=MagicMock())
    executor = object.__new__(CompactExecutor)
    executor.run, executor.files, executor.begun = run, [], {"a01": 30}  # type: ignore[assignment]
    attempt: Any = SimpleNamespace(id="p-1", repeated={})
    attempt.repeats = lambda base, size: attempt.repeated.update({base: size}) is None
    monkeypatch.setattr(CompactExecutor, "_measured", dies)
    action: Any = SimpleNamespace(inputs=(), verb="compact")
    with pytest.raises(MemoryExhaustedError):
        executor._carried_out(attempt, 1, [("a01", action)])
    assert [one.read_bytes for one in executor.dropped(attempt)] == [30 + SIZE]


def test_a_batch_that_lost_its_files_is_charged_though_another_is_begun(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another writer removes files of the first batch while they are read; the second is sent."""
    executor = object.__new__(CompactExecutor)
    executor.run = SimpleNamespace(stopping=lambda: False)  # type: ignore[assignment]
    monkeypatch.setattr(CompactExecutor, "input_bytes", lambda _, paths: SIZE)
    monkeypatch.setattr(CompactExecutor, "_batches", lambda _, pending: ([one] for one in pending))
    sent: Any = lambda _, attempt, number, items: number == 2 and executor.begun.pop("a02") == SIZE  # noqa: E731
    monkeypatch.setattr(CompactExecutor, "_carried_out", sent)
    attempt: Any = SimpleNamespace(id="p-1")
    action: Any = SimpleNamespace(inputs=())
    assert executor.work(attempt, [("a01", action), ("a02", action)])
    assert [(one.action_id, one.read_bytes) for one in executor.dropped(attempt)] == [("a01", SIZE)]
