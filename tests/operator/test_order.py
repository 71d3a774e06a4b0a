"""Many tables and few slots: the order of jobs, and what waiting for one costs."""

from __future__ import annotations

import datetime as dt

from reconciler.operator.job_record import JobRecord, Phase
from reconciler.operator.layout.steps import Launch
from reconciler.operator.work import LAUNCH_KEY, Key, Work
from tests.operator.worlds import GIB, NAMESPACE, START, World

HOUR = dt.timedelta(hours=1)


def work(saving: float) -> Launch:
    return Launch(JobRecord("j-1", "", "p-1", "d", 1, Phase.PENDING, START, GIB, 1), 1, saving)


def key(name: str) -> Key:
    return Key(Work.LAYOUT, NAMESPACE, name)


def test_the_greater_saving_goes_first_and_waiting_makes_up_for_a_smaller_one() -> None:
    world = World()
    names = [world.table(name) for name in ("small", "large", "middle")]
    operator = world.operator()
    launcher = operator.launcher
    launcher.offer(key(names[0]), work(1.0))
    world.now += 3 * HOUR
    launcher.offer(key(names[1]), work(8.0))
    launcher.offer(key(names[2]), work(2.0))
    assert launcher.in_order() == [key(names[n]) for n in (1, 0, 2)]
    world.now += 30 * HOUR
    assert launcher.in_order()[0] == key(names[1])
    launcher.offer(key(names[1]), None)
    launcher.offer(key(names[1]), work(8.0))
    assert launcher.in_order() == [key(names[n]) for n in (2, 0, 1)]


def test_tables_that_wait_for_a_slot_cost_no_call_and_no_write() -> None:
    world = World(engine={"maxConcurrentJobs": 8})
    world.max_jobs = 2
    names = [world.table(f"t{n:02d}", GIB) for n in range(20)]
    operator = world.operator()
    world.turn(operator, 3)
    assert len(world.living()) == 2
    assert sum(world.converged(name) == "ConcurrencyLimit" for name in names) == 18
    waiting = [name for name in names if world.converged(name) == "ConcurrencyLimit"]
    before = sum(operator.api.counted.values())
    for _ in range(6):
        world.now += dt.timedelta(minutes=10)
        for name in waiting:
            world.reconcile(operator, name)
        operator.launcher.reconcile(LAUNCH_KEY)
    assert sum(operator.api.counted.values()) == before
    first = world.living()[0]
    world.start(first)
    world.end(first)
    world.turn(operator, 3)
    assert len(world.living()) == 2, "a slot that is free again is taken"


def test_a_table_that_the_cap_refuses_is_asked_seldom_and_starts_when_the_cap_allows() -> None:
    world = World(engine={"maxConcurrentJobs": 8})
    world.cap = 3 * GIB
    names = [world.table(name, 2 * GIB) for name in ("a", "b")]
    operator = world.operator()
    world.turn(operator, 3)
    (job,) = world.jobs()
    world.start(job)
    world.end(job)
    world.turn(operator, 3)
    assert "OverBudget" in {world.converged(name) for name in names}
    calls = operator.api.counted.copy()
    for minute in range(60):
        world.now += dt.timedelta(minutes=1)
        for name in names if minute % 10 == 0 else ():
            world.reconcile(operator, name)
        operator.launcher.reconcile(LAUNCH_KEY)
    spent = operator.api.counted - calls
    assert sum(spent.values()) <= 30 * len(names), spent
    assert not any(verb == "status" for verb, _ in spent), "the same refusal is not reported again"
    world.now += 24 * HOUR
    world.turn(operator, 2)
    assert len(world.living()) == 1
