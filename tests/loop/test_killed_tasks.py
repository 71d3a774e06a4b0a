"""Processes of a plan that are killed while they work: the group is done once more or left alone,
which is said and charged, and the next run has nothing left to find."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reconciler.engines.local import pool
from reconciler.engines.local.pool import Limit, Pool
from reconciler.errors import UnavailableError
from reconciler.loop.local_actor import LocalActor
from reconciler.loop.step import CONVERGED, run_step, run_until_converged
from reconciler.plan.ledger import charged
from reconciler.rewrite import task_calls, witness
from tests.loop.test_local_engine import data_files, live_rows, sorted_by_day
from tests.loop.test_step import DECLARED, EVERYTHING, never, quiet, step_of

NOTHING = Limit(memory_bytes=0, base_bytes=1)
REWRITTEN, WITNESSED = task_calls.rewritten.__name__, witness.witnessed.__name__


def killed_by_the_system(*_: Any, **__: Any) -> None:
    """End as the system's memory killer ends a process."""
    os.kill(os.getpid(), signal.SIGKILL)


class Killer:
    """Kills the first processes that carry a function out, by their limit or as the system does."""

    def __init__(self, name: str, times: int, *, limit: bool) -> None:
        self.name, self.left, self.limit = name, times, limit
        self.tries = 0
        self.run = Pool.run

    def __call__(self, made: Pool, work: Any, *arguments: Any, limit: Limit, **more: Any) -> Any:
        if getattr(work, "func", work).__name__ == self.name:
            self.tries += 1
            if self.left:
                self.left -= 1
                if self.limit:
                    limit = NOTHING
                else:
                    work, arguments = killed_by_the_system, ()
        return self.run(made, work, *arguments, limit=limit, **more)


def killing(monkeypatch: pytest.MonkeyPatch, name: str, times: int, *, limit: bool) -> Killer:
    found = Killer(name, times, limit=limit)
    monkeypatch.setattr(pool, "LOOK_SECONDS", 0.001)  # a small task ends before the usual look
    monkeypatch.setattr(Pool, "run", lambda made, *call, **more: found(made, *call, **more))
    return found


def scratch_left() -> list[Path]:
    """Scratch of the tasks of this process, whose tests may share one pool."""
    pools = Path(tempfile.gettempdir()).glob(f"{pool.PREFIX}*-{os.getpid()}-*")
    return [path for one in pools for path in one.iterdir() if path.is_dir()]


@pytest.mark.parametrize("limit", [True, False])
def test_a_rewrite_that_is_killed_is_done_again_and_charged_twice(
    catalog_config: Any,
    make_table: Callable[..., Any],
    actor: LocalActor,
    monkeypatch: pytest.MonkeyPatch,
    limit: bool,
) -> None:
    name = f"killed_once_{limit}".lower()
    table, phases = make_table(name, files=4), list[str]()
    before, uuid = live_rows(table), str(table.metadata.table_uuid)
    size = sum(task.file.file_size_in_bytes for task in table.scan().plan_files())
    killer = killing(monkeypatch, REWRITTEN, 1, limit=limit)
    done = run_until_converged(
        step_of(catalog_config, name, **DECLARED), actor, EVERYTHING,
        lambda event: phases.append(event.phase), never, quiet,
    )  # fmt: skip
    assert done.state.state == CONVERGED and killer.tries == 2
    assert live_rows(table) == before and sorted_by_day(table)
    assert phases.count("retry") == 1
    held = charged(actor.store.ledger(uuid), actor.store.reservations(uuid))
    assert sum(one.spent.rewrite_bytes for one in held) == 2 * size
    assert scratch_left() == []


@pytest.mark.parametrize("limit", [True, False])
@pytest.mark.parametrize(("work", "times"), [(REWRITTEN, 2), (WITNESSED, 99)])
def test_a_group_whose_processes_are_killed_again_is_left_as_it_is(
    catalog_config: Any,
    make_table: Callable[..., Any],
    actor: LocalActor,
    monkeypatch: pytest.MonkeyPatch,
    work: str,
    times: int,
    limit: bool,
) -> None:
    name = f"killed_{work}_{limit}".lower()
    table = make_table(name, files=4)
    head = table.current_snapshot().snapshot_id
    rows, step = live_rows(table), step_of(catalog_config, name, **DECLARED)
    killer = killing(monkeypatch, work, times, limit=limit)
    with pytest.raises(UnavailableError):
        run_step(step, actor, EVERYTHING, quiet, never)
    assert killer.tries
    assert table.refresh().current_snapshot().snapshot_id == head
    assert scratch_left() == []
    killer.left = 0
    run_until_converged(step, actor, EVERYTHING, quiet, never, quiet)
    assert live_rows(table) == rows and sorted_by_day(table)
    ours = set(Path(table.location().removeprefix("file://")).glob("data/layout-*/**/*.parquet"))
    assert {str(path) for path in ours} == {
        path.removeprefix("file://") for path in data_files(table)
    }
