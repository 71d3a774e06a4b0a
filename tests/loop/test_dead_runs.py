"""What runs that were killed hold of the budgets, against a model of what they spent."""

from __future__ import annotations

import datetime as dt
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from reconciler.engines.commit import fence
from reconciler.engines.schedule.run import Reading
from reconciler.errors import BlockedError
from reconciler.loop.local_actor import LocalActor
from reconciler.loop.reservations import extending
from reconciler.plan.budget import Budget, Gate, budget_state
from reconciler.plan.execution import CONFLICT, Event, Intent, Outcome, Used
from reconciler.plan.ledger import LONGEST_RUN, Reservation, charged
from reconciler.state import lease
from reconciler.state.state import StateStore

TABLE = "table"


@dataclass
class Machine:
    """Processes of this machine that a test starts and kills."""

    running: int = 0
    """The process that acts now."""

    def __post_init__(self) -> None:
        self.dead: set[int] = set()

    def identity(self) -> lease.ProcessIdentity:
        return lease.ProcessIdentity("here", "boot", self.running, "started")

    def is_dead(self, process: lease.ProcessIdentity) -> bool:
        return process.pid in self.dead


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    made = Machine()
    monkeypatch.setattr(lease, "this_process", made.identity)
    monkeypatch.setattr(lease, "is_dead", made.is_dead)
    yield made


def actor_in(directory: Path) -> LocalActor:
    return LocalActor(StateStore(directory / "state"), directory / "cache")


def reservation(number: int, size: int) -> Reservation:
    return Reservation(f"r{number}", TABLE, f"p-{number}", "policy", size, float(size))


def held(actor: LocalActor) -> int:
    found = charged(actor.store.ledger(TABLE), actor.store.reservations(TABLE))
    return sum(one.spent.rewrite_bytes for one in found)


def test_a_killed_run_is_charged_in_full_as_of_the_end_that_the_next_one_sees(
    tmp_path: Path, machine: Machine
) -> None:
    actor, mine = actor_in(tmp_path), reservation(1, 1_000)
    actor.reserve(mine)
    actor.store.lease().acquire(TABLE, "a-1")
    machine.dead, machine.running = {0}, 1
    (before,) = charged([], actor.store.reservations(TABLE))
    later = before.spent.at + LONGEST_RUN
    assert before.at(later).at == later
    actor._end_dead_runs(TABLE)
    (after,) = charged([], actor.store.reservations(TABLE))
    assert after.spent.rewrite_bytes == 1_000
    assert after.until is not None and after.at(later).at == after.until < later


def test_a_run_whose_process_may_live_keeps_what_it_reserved(
    tmp_path: Path, machine: Machine
) -> None:
    actor, mine = actor_in(tmp_path), reservation(1, 1_000)
    actor.reserve(mine)
    machine.running = 1
    actor._end_dead_runs(TABLE)
    (kept,) = actor.store.reservations(TABLE)
    assert (kept.settled, kept.ended_ms) == (False, None)


def test_a_run_whose_machine_is_gone_ends_once_it_is_fenced(
    tmp_path: Path, machine: Machine
) -> None:
    """Its processes cannot be seen. Of four runs, the first has begun an attempt that is open, the
    second one that is settled, the third none, and the last is the operator's."""
    actor, events = actor_in(tmp_path), list[Event]()
    job = replace(reservation(4, 1_000), id="p-4-1-abc")
    for one in (*(reservation(number, 1_000) for number in (1, 2, 3)), job):
        actor.reserve(one)
    working = actor.store.lease()
    working.acquire(TABLE, "a-1")
    for number in (1, 2, 4):
        name = f"p-{number}-{time.time_ns() // 1000:x}-1"
        opened = Intent(TABLE, ("t",), f"p-{number}", name, 0, (), 1, "", (), ())
        actor.store.record_intent(opened)
        if number != 1:
            actor.store.record_outcomes(opened, (fence.closed(opened),))
    machine.running = 1

    def ended() -> list[str]:
        actor._end_fenced_runs(TABLE, events.append)
        return [one.id for one in actor.store.reservations(TABLE) if one.ended_ms is not None]

    with pytest.raises(BlockedError):
        ended()
    working.release()
    assert ended() == []
    for open_ in actor.store.open_intents(TABLE):
        actor.store.record_outcomes(open_, (fence.closed(open_),))
    assert ended() == ["r1", "r2"]
    assert held(actor) == 4_000
    assert [event.phase for event in events] == ["ended"]


@dataclass
class Spending:
    """A run whose groups are read more than once, and what it has read in truth."""

    actor: LocalActor
    """Whose ledger is charged."""
    budget: int
    """Bytes that the policy allows."""
    spent: int = 0
    """Bytes that have been read."""

    def check(self) -> None:
        """A kill at this moment leaves a charge of all that was read, and of no more than the
        budget."""
        assert self.spent <= held(self.actor) <= self.budget

    def still(self) -> Gate:
        charges = charged(
            self.actor.store.ledger(TABLE), self.actor.store.reservations(TABLE), "r1"
        )
        now = dt.datetime.now(dt.UTC)
        limit = Budget("daily", per_seconds=86_400, max_rewrite_bytes=self.budget)
        state = budget_state(limit, [one.at(now) for one in charges], now)
        return Gate(1, "", "", (state,))

    def read(self, size: int) -> None:
        self.check()
        self.spent += size
        self.check()

    def attempt(
        self, random_: random.Random, reading: Reading, used: Used, sizes: list[int]
    ) -> Used:
        """Read groups of these sizes, some of them twice; return what the outcomes say."""
        again = dict.fromkeys(range(len(sizes)), 0)
        for number, size in enumerate(sizes):
            self.read(size)
            while random_.random() < 0.5 and reading.affords(size):
                again[number] += size
                self.read(size)
        name = f"p-1-{time.time_ns() // 1000:x}-1"
        intent = Intent(TABLE, ("t",), "p-1", name, 1, ("a01",), 1, "", (), ())
        done = sum(sizes) + sum(again.values())
        outcome = Outcome(name, 1, "a01", CONFLICT, None, done, 0, 0, 0, 0, 1.0, 0.0)
        self.actor.store.record_intent(intent)
        self.actor.store.record_outcomes(intent, (outcome,))
        self.check()
        return Used(used.read_bytes + done, used.cpu_seconds + 1.0)


@pytest.mark.parametrize("seed", range(4))
def test_work_that_is_repeated_is_charged_before_it_begins(
    tmp_path: Path, machine: Machine, seed: int
) -> None:
    random_, actor = random.Random(seed), actor_in(tmp_path)
    sizes = [random_.randint(1, 100) for _ in range(3)]
    size = sum(sizes)
    run = Spending(actor, size * (1 + seed))
    mine = reservation(1, size)
    actor.reserve(mine)
    actor.store.lease().acquire(TABLE, "a-1")
    reading, used, begun = Reading(extending(actor, mine, run.still)), Used(), 0
    while not (why := reading.foresee(used, size)):
        begun += 1
        used = run.attempt(random_, reading, used, sizes)
    assert why and 1 <= begun <= 1 + seed
    machine.dead, machine.running = {0}, 1
    actor._end_dead_runs(TABLE)
    run.check()


def test_what_others_reserve_meanwhile_is_not_left_for_repeated_work(
    tmp_path: Path, machine: Machine
) -> None:
    actor, mine = actor_in(tmp_path), reservation(1, 100)
    run = Spending(actor, 250)
    actor.reserve(mine)
    reading = Reading(extending(actor, mine, run.still))
    assert not reading.foresee(Used(), 100) and reading.affords(50)
    actor.reserve(reservation(2, 60))
    assert not reading.affords(50) and reading.affords(40)
    assert held(actor) == 250


def test_what_later_actions_read_stays_reserved_for_them(tmp_path: Path, machine: Machine) -> None:
    actor, mine = actor_in(tmp_path), reservation(1, 100)
    actor.reserve(mine)
    reading = Reading(extending(actor, mine, Spending(actor, 150).still))
    reading.later = 70
    assert not reading.foresee(Used(), 30) and held(actor) == 100
    assert reading.affords(30) and held(actor) == 130
    assert not reading.affords(30)


def test_an_end_that_is_seen_too_late_holds_the_budget_no_longer(
    tmp_path: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    actor, mine = actor_in(tmp_path), reservation(1, 1_000)
    actor.reserve(mine)
    actor.store.lease().acquire(TABLE, "a-1")
    (made,) = actor.store.reservations(TABLE)
    old = replace(made, at_ms=made.at_ms - round(LONGEST_RUN.total_seconds() * 1000) - 1)
    monkeypatch.setattr(actor.store, "reservations", lambda _: (old,))
    machine.dead = {0}
    actor._end_dead_runs(TABLE)
    monkeypatch.undo()
    assert actor.store.reservations(TABLE)[0].ended_ms is None


@pytest.mark.parametrize("seed", range(3))
def test_runs_of_any_end_are_never_charged_less_than_they_spent(
    tmp_path: Path, machine: Machine, seed: int
) -> None:
    """Each run is a process of its own, which a kill may end at any point."""
    random_, actor = random.Random(seed), actor_in(tmp_path)
    spent = full = 0
    for number in range(1, 7):
        machine.running, size = number, random_.randint(1, 1_000)
        actor._end_dead_runs(TABLE)
        assert held(actor) == full >= spent
        end = random_.choice(["reserved", "begun", "read", "settled"])
        actor.reserve(reservation(number, size))
        if end in ("begun", "read"):
            actor.store.lease().acquire(TABLE, f"a-{number}")
            full += size
            spent += random_.randint(0, size) if end == "read" else 0
        if end == "settled":
            assert actor.settle(reservation(number, size))
        assert held(actor) >= spent
        machine.dead.add(number)
    machine.running = 7
    actor._end_dead_runs(TABLE)
    assert held(actor) == full >= spent
    assert not actor.store.lease().dead_runs(TABLE)
