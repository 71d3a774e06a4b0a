"""The queue's laws: nothing lost, nothing twice at once, no hot loop, no kind starves another."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from hypothesis import given, settings
from hypothesis import strategies as st

from reconciler.operator.process.queue import DueQueue
from reconciler.operator.process.schedule import BACKOFF_MAX, IMPATIENCE, MIN_INTERVAL, Schedule
from reconciler.operator.work import Key, Result, Work
from tests.examples import examples

KEYS = [Key(kind, "ns", f"o{i}") for kind in (Work.POLICY, Work.LAYOUT) for i in range(3)]

steps = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.sampled_from(KEYS), st.floats(0, 20)),
        st.tuples(st.just("urge"), st.sampled_from(KEYS), st.just(0.0)),
        st.tuples(st.just("pop"), st.just(None), st.just(0.0)),
        st.tuples(st.just("done"), st.sampled_from(KEYS), st.floats(0, 20)),
        st.tuples(st.just("fail"), st.sampled_from(KEYS), st.just(0.0)),
        st.tuples(st.just("wait"), st.just(None), st.floats(0.1, 15)),
    ),
    max_size=60,
)


class Model:
    """Drives a Schedule as the queue does, and remembers what it owes and what it did."""

    def __init__(self, limits: dict[Work, int]):
        self.schedule = Schedule(limits)
        self.limits = limits
        self.now = 0.0
        self.waiting: dict[Key, float] = {}
        self.running: set[Key] = set()
        self.starts: dict[Key, list[float]] = {}

    def step(self, action: str, key: Key | None, value: float) -> None:
        if action in ("add", "urge"):
            due = self.now + value
            self.schedule.add(key, due, self.now, urgent=action == "urge")
            self.waiting[key] = min(self.waiting.get(key, due), due)
        elif action == "pop":
            self.pop()
        elif action == "wait":
            self.now += value
        elif key in self.running:
            self.running.discard(key)
            failed = action == "fail"
            due = None if failed else self.now + value
            self.schedule.done(key, self.now, failed=failed, due=due)
            if due is not None:
                self.waiting[key] = min(self.waiting.get(key, due), due)
            else:
                # Its back-off may end before what was asked for meanwhile is due.
                self.waiting[key] = min(self.waiting.get(key, self.now), self.now)

    def pop(self) -> Key | None:
        key = self.schedule.pop(self.now)
        if key is not None:
            assert key not in self.running, "twice at once"
            assert key in self.waiting, "nobody asked for it"
            assert self.waiting.pop(key) <= self.now + 1e-9, "before it was due"
            starts = self.starts.setdefault(key, [])
            assert not starts or self.now - starts[-1] >= MIN_INTERVAL - 1e-9, "hot loop"
            starts.append(self.now)
            self.running.add(key)
            of_kind = sum(other.kind == key.kind for other in self.running)
            assert of_kind <= self.limits.get(key.kind, len(KEYS))
        return key


@settings(max_examples=examples(150), deadline=None)
@given(steps, st.sampled_from([{}, {Work.LAYOUT: 1}]))
def test_every_key_runs_once_it_is_due_and_never_twice_at_once(script, limits):
    model = Model(limits)
    for action, key, value in script:
        model.step(action, key, value)
    for key in sorted(model.running):
        model.running.discard(key)
        model.schedule.done(key, model.now)
    horizon = model.now + BACKOFF_MAX + 100
    while model.waiting and model.now < horizon:
        key = model.pop()
        if key is None:
            wake = model.schedule.wake_at(model.now)
            assert wake is not None, f"lost: {model.waiting}"
            model.now = max(wake, model.now + 1e-6)
        else:
            model.running.discard(key)
            model.schedule.done(key, model.now)
    assert not model.waiting
    model.now += MIN_INTERVAL + BACKOFF_MAX
    model.schedule.sweep(model.now)
    assert model.schedule.pop(model.now) is None


def test_what_changed_goes_before_what_is_merely_due_and_that_is_not_starved():
    schedule = Schedule()
    regular = [Key(Work.POLICY, "ns", f"regular{n}") for n in range(100)]
    changed = [Key(Work.POLICY, "ns", f"changed{n}") for n in range(100)]
    for key in regular:
        schedule.add(key, 0.0, 0.0)
    for key in changed:
        schedule.add(key, 5.0, 5.0, urgent=True)
    order = [schedule.pop(5.0) for _ in range(200)]
    assert order[0] == changed[0]
    first = [key in changed for key in order[:112]]
    assert sum(first) > 90 and first.count(False) >= 12
    assert schedule.pop(5.0) is None


def test_a_key_that_waits_for_its_turn_is_moved_up_when_it_changes():
    schedule = Schedule()
    for number in range(50):
        schedule.add(Key(Work.POLICY, "ns", f"o{number}"), 0.0, 0.0)
    late = Key(Work.POLICY, "ns", "o49")
    schedule.add(late, 3.0, 3.0, urgent=True)
    assert schedule.pop(3.0) == late
    schedule.done(late, 3.0)
    rest = {schedule.pop(10.0) for _ in range(49)}
    assert late not in rest and schedule.pop(10.0) is None


@settings(max_examples=examples(50), deadline=None)
@given(st.lists(st.floats(0.0, 30.0), min_size=1, max_size=40))
def test_a_key_that_always_fails_and_is_always_asked_for_runs_ever_less_often(gaps):
    schedule, key, now, starts = Schedule(), KEYS[0], 0.0, []
    for gap in gaps:
        schedule.add(key, now, now)
        if schedule.pop(now) is not None:
            starts.append(now)
            schedule.done(key, now, failed=True)
        now += gap
    waits = [after - before for before, after in itertools.pairwise(starts)]
    for failures, wait in enumerate(waits, start=1):
        assert wait >= min(2.0 ** (failures - 1), IMPATIENCE) - 1e-9


def test_back_off_doubles_and_a_success_ends_it():
    schedule, key, now = Schedule(), KEYS[0], 0.0
    schedule.add(key, now, now)
    waits = []
    for _ in range(12):
        assert schedule.pop(now) == key
        schedule.done(key, now, failed=True)
        wake = schedule.wake_at(now)
        waits.append(wake - now)
        now = wake
    assert waits[:4] == [1, 2, 4, 8]
    assert waits[-1] == BACKOFF_MAX
    assert schedule.pop(now) == key
    schedule.done(key, now, due=now + 7)
    assert schedule.wake_at(now) == now + 7
    assert schedule.pop(now + 7) == key
    schedule.done(key, now + 7, failed=True)
    assert schedule.wake_at(now + 7) == now + 8, "the failures before do not count"


def test_a_key_added_while_it_runs_runs_again_afterwards():
    schedule, key = Schedule(), KEYS[0]
    schedule.add(key, 0, 0)
    assert schedule.pop(0) == key
    schedule.add(key, 1, 1)
    assert schedule.pop(5) is None
    schedule.done(key, 5)
    assert schedule.pop(5) == key


def test_an_earlier_time_wins_and_a_later_one_does_not_delay():
    schedule, key = Schedule(), KEYS[0]
    schedule.add(key, 100, 0)
    schedule.add(key, 10, 0)
    schedule.add(key, 50, 0)
    assert schedule.wake_at(0) == 10
    assert schedule.pop(9) is None
    assert schedule.pop(10) == key
    schedule.done(key, 11)
    assert schedule.pop(200) is None


def test_a_flood_of_one_kind_does_not_delay_another():
    schedule = Schedule({Work.LAYOUT: 3})
    for i in range(10_000):
        schedule.add(Key(Work.LAYOUT, "ns", str(i)), 0, 0)
    schedule.add(KEYS[0], 0, 0)
    first = [schedule.pop(0) for _ in range(4)]
    assert KEYS[0] in first[:2]
    assert first[-1] is not None
    assert schedule.pop(0) is None, "three layouts at once, no more"
    schedule.add(KEYS[1], 0, 0)
    assert schedule.pop(0) == KEYS[1]


def test_the_age_of_the_queue_is_that_of_the_oldest_overdue_key():
    schedule = Schedule({Work.LAYOUT: 0})
    schedule.add(KEYS[3], 10, 0)
    schedule.add(KEYS[4], 40, 0)
    assert schedule.waiting(5) == {}
    assert schedule.waiting(45) == {Work.LAYOUT: (2, 35.0)}


def run_queue(queue: DueQueue, reconcile, until: threading.Event, workers: int = 4) -> None:
    async def main() -> None:
        with ThreadPoolExecutor(workers) as executor:
            running = asyncio.create_task(queue.run(reconcile, executor))
            while not until.is_set():
                await asyncio.sleep(0.01)
            queue.stop()
            await running

    asyncio.run(main())


def test_the_queue_runs_keys_of_other_threads_side_by_side_but_none_twice_at_once():
    finished, lock = threading.Event(), threading.Lock()
    runs: list[Key] = []
    inside: set[Key] = set()

    def reconcile(key: Key) -> Result:
        with lock:
            assert key not in inside
            inside.add(key)
        time.sleep(0.02)
        with lock:
            inside.discard(key)
            runs.append(key)
            if len(set(runs)) == len(KEYS):
                finished.set()
        return Result()

    queue = DueQueue(4, {})
    feeders = [threading.Thread(target=lambda k=key: queue.add(k)) for key in KEYS * 5]
    for feeder in feeders:
        feeder.start()
    run_queue(queue, reconcile, finished)
    assert set(runs) == set(KEYS)


def test_an_exception_backs_off_and_is_reported_as_a_failure():
    finished, reports, runs = threading.Event(), [], []

    def reconcile(key: Key) -> Result:
        runs.append(key)
        if len(runs) == 2:
            finished.set()
            return Result()
        raise RuntimeError("broken")

    queue = DueQueue(2, {}, reporter=lambda key, result, seconds: reports.append(result.failed))
    queue.add(KEYS[0])
    run_queue(queue, reconcile, finished)
    assert reports == [True, False]


def test_nothing_starts_while_the_queue_is_not_active():
    active, started, checked = threading.Event(), threading.Event(), threading.Event()
    early: list[bool] = []

    def reconcile(key: Key) -> Result:
        early.append(not active.is_set())
        started.set()
        return Result()

    queue = DueQueue(2, {}, active=active.is_set)
    queue.add(KEYS[0])

    def release() -> None:
        time.sleep(0.2)
        active.set()
        started.wait(10)
        checked.set()

    threading.Thread(target=release).start()
    run_queue(queue, reconcile, checked)
    assert early == [False]
