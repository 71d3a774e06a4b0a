"""Fair shares of slots and cap, by simulation: no namespace starves, no limit is exceeded."""

from __future__ import annotations

import datetime as dt
import math
import random
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reconciler.operator.spending import charges, shares
from reconciler.operator.spending.charges import LAPSE, AdmittedJob, Book
from reconciler.operator.spending.shares import Limits, PolicyNamespaces
from reconciler.plan.budget import Charge, admit
from tests.examples import examples

START = dt.datetime(2026, 11, 1, 12, tzinfo=dt.UTC)
MINUTE = dt.timedelta(minutes=1)
DAY = dt.timedelta(hours=24)
TURN = 60
STEP = 10
GIB = 1 << 30


@dataclass
class Tenant:
    """A namespace: how long its jobs run, how long they take to stop, and from when it has work."""

    name: str
    minutes: int
    stubborn: int
    begins: int
    size: int = 0


@dataclass
class Cluster:
    """Minutes pass; jobs start, end and stop by the rules of `shares` alone."""

    limits: Limits
    tenants: list[Tenant]
    book: Book = field(default_factory=Book)
    now: dt.datetime = START
    served: dict[str, int] = field(default_factory=dict)
    starving: dict[str, dt.datetime] = field(default_factory=dict)
    waited: dict[str, int] = field(default_factory=dict)
    longest: dict[str, int] = field(default_factory=dict)
    count: int = 0

    def known(self) -> PolicyNamespaces:
        return PolicyNamespaces(frozenset(t.name for t in self.tenants), False)

    def minute(self, number: int) -> None:
        self.now = START + number * MINUTE
        by_name = {tenant.name: tenant for tenant in self.tenants}
        for job in list(self.book.admitted.values()):
            tenant = by_name[job.namespace]
            done = self.now - job.since >= tenant.minutes * MINUTE
            stopped = job.stopping and self.now - job.stopping >= tenant.stubborn * MINUTE
            if done or stopped:
                self.book = self.book.end(job.key, self.now)
        wanting = [t for t in self.tenants if number >= t.begins]
        while self.start(wanting):
            pass
        jobs = self.book.jobs()
        waiting = {t.name for t in wanting if not jobs[t.name]}
        self.starving = {name: self.starving.get(name, self.now) for name in waiting}
        for job in shares.victims(self.limits, self.book, self.starving, self.now):
            assert self.now - job.since >= self.limits.turn
            self.book = self.book.stop(job.key, self.now)
        for tenant in wanting:
            self.waited[tenant.name] = (
                0 if jobs[tenant.name] else self.waited.get(tenant.name, 0) + 1
            )
            most = max(self.longest.get(tenant.name, 0), self.waited[tenant.name])
            self.longest[tenant.name] = most
        self.check()

    def start(self, wanting: list[Tenant]) -> bool:
        jobs = self.book.jobs()
        order = sorted(
            wanting,
            key=lambda t: (
                shares.precedence(t.name, jobs, self.starving, self.served, self.now), t.name
            ),
        )  # fmt: skip
        for tenant in order:
            found = shares.slots(self.book, (), self.now)
            if shares.refusal(self.limits, found, tenant.name, self.known()):
                continue
            if not self.fits(tenant):
                continue
            self.count += 1
            self.served[tenant.name] = self.count
            job = AdmittedJob(tenant.name, f"j{self.count}", "t", tenant.size, self.now)
            self.book = self.book.admit(job)
            return True
        return False

    def fits(self, tenant: Tenant) -> bool:
        spent = self.book.spent(self.now)
        cap = shares.cap_of(self.limits, spent, tenant.name, tenant.size, self.known(), self.now)
        everything = [item for held in spent.values() for item in held]
        return bool(admit([Charge(tenant.size, 0.0)], [cap], everything, self.now).count)

    def check(self) -> None:
        taken = [job for job in self.book.admitted.values() if not job.lapsed(self.now)]
        assert len(taken) <= self.limits.slots


TENANTS = st.lists(
    st.tuples(st.integers(1, 1440), st.integers(1, 2000), st.integers(0, 600)),
    min_size=1,
    max_size=9,
)


@settings(max_examples=examples(20))
@given(TENANTS, st.integers(1, 6), st.sampled_from([0.0, 0.25, 0.5]))
def test_no_namespace_waits_longer_than_its_turns_whatever_the_others_do(
    tenants: list[tuple[int, int, int]], slots: int, kept: float
) -> None:
    """Jobs that sleep for a day, that never stop when asked, newcomers at any time."""
    limits = Limits(slots, 1 << 60, kept, TURN * MINUTE)
    cluster = Cluster(limits, [Tenant(f"n{i}", *each) for i, each in enumerate(tenants)])
    for number in range(2400):
        cluster.minute(number)
    rounds = math.ceil(len(tenants) / slots)
    bound = rounds * (TURN + int(LAPSE / MINUTE)) + 2 * rounds
    assert max(cluster.longest.values()) <= bound, cluster.longest


def test_fifty_jobs_that_sleep_leave_a_slot_for_the_next_namespace() -> None:
    cluster = Cluster(
        Limits(4, 1 << 60, 0.25, TURN * MINUTE),
        [Tenant("sleeper", 1440, 1440, 0), Tenant("other", 5, 1, 30)],
    )
    for number in range(600):
        cluster.minute(number)
        assert cluster.book.jobs()["sleeper"] <= 3
    assert cluster.longest["other"] == 0


def test_a_namespace_alone_uses_every_slot() -> None:
    cluster = Cluster(Limits(4, 1 << 60, 0.25, TURN * MINUTE), [Tenant("only", 1440, 1, 0)])
    cluster.minute(0)
    assert cluster.book.jobs()["only"] == 4


def test_free_slots_go_to_those_with_the_fewest_jobs() -> None:
    tenants = [Tenant(name, 1440, 1, begins) for name, begins in (("a", 0), ("b", 10), ("c", 10))]
    cluster = Cluster(Limits(9, 1 << 60, 0.25, TURN * MINUTE), tenants)
    for number in range(12):
        cluster.minute(number)
    assert cluster.book.jobs() == {"a": 7, "b": 1, "c": 1}
    tenants[0].minutes = 20
    for number in range(12, 40):
        cluster.minute(number)
    assert cluster.book.jobs() == {"a": 3, "b": 3, "c": 3}


@settings(max_examples=examples(20))
@given(st.lists(st.integers(1, 300), min_size=1, max_size=6), st.sampled_from([0.0, 0.25, 0.5]),
       st.integers(0, 2**16))  # fmt: skip
def test_the_cap_is_never_exceeded_and_each_namespace_gets_its_part(
    sizes: list[int], kept: float, seed: int
) -> None:
    """Against a list of all bytes and the times when they were rewritten, kept by the test."""
    draw, cap = random.Random(seed), 1000
    tenants = [Tenant(f"n{i}", draw.randint(1, 90), 1, 0, size) for i, size in enumerate(sizes)]
    cluster = Cluster(Limits(4, cap, kept, TURN * MINUTE), tenants)
    begun: list[tuple[dt.datetime, int]] = []
    for number in range(0, 2880, STEP):
        before = set(cluster.book.admitted)
        cluster.minute(number)
        begun += [(cluster.now, job.rewrite_bytes)
                  for key, job in cluster.book.admitted.items() if key not in before]  # fmt: skip
        assert sum(size for at, size in begun if at > cluster.now - DAY) <= cap
    part = int(cap * kept) // len(sizes)
    for tenant in tenants:
        assert tenant.size > part or cluster.served.get(tenant.name), "its part of the cap is kept"


def test_a_stored_book_is_read_back_and_never_forgets_early() -> None:
    draw = random.Random(7)
    book = Book()
    for number in range(400):
        now = START + number * 3 * MINUTE
        job = AdmittedJob(f"n{draw.randint(0, 5)}", f"j{number}", "t", draw.randint(0, GIB), now)
        book = book.admit(job)
        if draw.random() < 0.9:
            book = book.end(job.key, now)
        elif draw.random() < 0.5:
            book = book.stop(job.key, now)
        book = book.current(now)
        assert charges.from_text(charges.to_text(book)) == book
    late = START + 400 * 3 * MINUTE
    kept = sum(item.rewrite_bytes for held in book.spent(late).values() for item in held
               if item.at > late - DAY)  # fmt: skip
    assert kept > 0
    assert not book.current(late + 2 * DAY).charged


def test_a_large_book_gets_coarser_and_no_charge_earlier(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(charges, "MOST_BUCKETS", 50)
    book = Book()
    for number in range(100):
        book = book.admit(AdmittedJob("n", f"j{number}", "t", 1, START + number * 10 * MINUTE))
        book = book.end(("n", f"j{number}"), START + number * 10 * MINUTE)
    end = START + 1000 * MINUTE
    small = book.current(end)
    assert len(small.charged) < 20 < len(book.charged)
    for minutes in range(0, 2500, 7):
        now = end + minutes * MINUTE
        sums = [
            sum(i.rewrite_bytes for i in each.spent(now).get("n", ()) if i.at > now - DAY)
            for each in (small, book)
        ]
        assert sums[0] >= sums[1]


@pytest.mark.parametrize(
    "text",
    ["", "{}", "[]", "null", '{"version": 2}', '{"version":1,"admitted":[["a"]],"charged":{}}',
     '{"version":1,"admitted":[],"charged":{"n":{"1":-5}}}',
     '{"version":1,"admitted":[],"charged":{"n":{"x":5}}}',
     '{"version":1,"admitted":[],"charged":[]}'],
)  # fmt: skip
def test_what_is_no_book_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        charges.from_text(text)
