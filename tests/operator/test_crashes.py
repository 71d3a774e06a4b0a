"""The law of the launcher: whatever dies, whenever, and whoever believes to lead, no table has two
jobs at once and no budget is exceeded. Crashes fall between any two calls of the API server, or
after a request whose answer is lost."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any
from zoneinfo import ZoneInfo

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reconciler.errors import ReconcilerError
from reconciler.kube.kinds import JOB, TABLE_LAYOUT
from reconciler.kube.termination_message import Cause, LastWords
from reconciler.operator.work import LAUNCH_KEY
from reconciler.plan.budget import Budget, budget_state
from tests.examples import examples
from tests.operator.fake_api import FakeApi
from tests.operator.worlds import GIB, Operator, World

BERLIN = ZoneInfo("Europe/Berlin")
DAILY = {"name": "daily", "per": "24h", "maxRewriteBytes": "5Gi"}
NIGHTS = {
    "name": "nights",
    "schedule": "0 1 * * *",
    "timeZone": "Europe/Berlin",
    "duration": "3h",
    "maxRewriteBytes": "2Gi",
}
CLOSED = {
    "name": "mornings",
    "schedule": "0 6 * * *",
    "timeZone": "Europe/Berlin",
    "duration": "4h",
    "maxRewriteBytes": "0",
}


class Killed(BaseException):
    """The process dies here: nothing catches it."""


class Mortal(FakeApi):
    """Dies at its n-th request: before it is sent, or when the answer is on its way.

    meanwhile: what else happens just then, of another process.
    """

    def __init__(self, world: World):
        super().__init__(world.server, self._sending, self._answered)
        self.fuse: int | None = None
        self.answered = False
        self.meanwhile: Callable[[], None] | None = None

    def _sending(self, verb: str, kind: Any, name: str) -> None:
        self._burn(not self.answered)

    def _answered(self, verb: str, kind: Any, name: str) -> None:
        self._burn(self.answered)

    def _burn(self, here: bool) -> None:
        if not here or self.fuse is None:
            return
        self.fuse -= 1
        if self.fuse > 0:
            return
        self.fuse = None
        if self.meanwhile is not None:
            meanwhile, self.meanwhile = self.meanwhile, None
            meanwhile()
            return
        raise Killed


def check(world: World) -> None:
    """At most one living job a table; never more spent or held than the budgets allow."""
    living: dict[str, int] = {}
    for job in world.living():
        owner = job["metadata"]["ownerReferences"][0]["name"]
        living[owner] = living.get(owner, 0) + 1
    assert all(count == 1 for count in living.values()), living
    per_day = dt.timedelta(hours=24)
    for moment, _, _ in world.spending:
        window = [s for at, s, _ in world.spending if moment - per_day < at <= moment]
        assert sum(window) <= 5 * GIB, world.spending
    night = Budget("nights", schedule="0 1 * * *", time_zone="Europe/Berlin",
                   duration_seconds=3 * 3600, max_rewrite_bytes=2 * GIB)  # fmt: skip
    for moment, _, _ in world.spending:
        state = budget_state(night, (), moment)
        if state.active and state.boundary is not None:
            start = state.boundary - dt.timedelta(hours=3)
            # A job that was there before the window opened has its bytes from other budgets.
            within = [s for at, s, begun in world.spending if start <= begun and at <= moment]
            assert sum(within) <= 2 * GIB


steps = st.one_of(
    st.tuples(st.just("turn"), st.integers(0, 1)),
    st.tuples(st.just("crash"), st.integers(0, 1), st.integers(1, 14), st.booleans()),
    st.tuples(st.just("race"), st.integers(0, 1), st.integers(1, 14), st.booleans()),
    st.tuples(st.just("start"), st.integers(0, 3)),
    st.tuples(st.just("end"), st.integers(0, 3), st.integers(0, 3), st.sampled_from(
        [None, Cause.UNKNOWN, Cause.STOPPED, Cause.CONFLICT, Cause.OUT_OF_MEMORY])),
    st.tuples(st.just("clock"), st.sampled_from([1, 31, 300, 3600, 7200, 40_000])),
    st.tuples(st.just("lead"), st.integers(0, 1), st.booleans()),
    st.tuples(st.just("suspend"), st.booleans()),
)  # fmt: skip


def turn(world: World, operators: list[Operator], which: int) -> None:
    """One round of a process; one that dies is started anew, with nothing but the server."""
    operator = operators[which]
    try:
        world.turn(operator)
    except Killed:
        leads = operator.leads
        operators[which] = world.operator(Mortal(world))
        operators[which].leads = leads
    except ReconcilerError:
        operator.launcher.reconcile(LAUNCH_KEY)


def play(world: World, operators: list[Operator], step: tuple[Any, ...]) -> None:
    kind, *rest = step
    if kind == "turn":
        turn(world, operators, rest[0])
    elif kind in ("crash", "race"):
        which, fuse, answered = rest
        api = operators[which].api
        assert isinstance(api, Mortal)
        api.fuse, api.answered = fuse, answered
        if kind == "race":
            api.meanwhile = lambda: turn(world, operators, 1 - which)
        turn(world, operators, which)
        operators[which].api.fuse = None
    elif kind == "start":
        waiting = [j for j in world.living() if not _has_pod(world, j)]
        for job in waiting[: rest[0] + 1]:
            world.start(job)
    elif kind == "end":
        number, actions, cause = rest
        running = [j for j in world.living() if _has_pod(world, j)]
        if running:
            words = None if cause is None else LastWords(cause, "so it ended")
            world.end(running[number % len(running)], actions, words)
    elif kind == "clock":
        world.now += dt.timedelta(seconds=rest[0])
    elif kind == "lead":
        operators[rest[0]].leads = rest[1]
    else:
        world.policy(budgets=[DAILY, NIGHTS, CLOSED], suspend=rest[0])


def _has_pod(world: World, job: dict[str, Any]) -> bool:
    return ("pods", job["metadata"]["namespace"], f"{job['metadata']['name']}-pod") in (
        world.server.objects
    )


starts = st.sampled_from(
    [
        dt.datetime(2026, 11, 20, 12, tzinfo=dt.UTC),
        dt.datetime(2026, 3, 29, 0, 30, tzinfo=BERLIN).astimezone(dt.UTC),
        dt.datetime(2026, 10, 25, 0, 30, tzinfo=BERLIN).astimezone(dt.UTC),
        dt.datetime(2026, 10, 25, 5, 50, tzinfo=BERLIN).astimezone(dt.UTC),
    ]
)


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(starts, st.lists(steps, max_size=24))
def test_no_interleaving_makes_two_jobs_or_exceeds_a_budget(
    start: dt.datetime, plot: list[tuple[Any, ...]]
) -> None:
    world = World(budgets=[DAILY, NIGHTS, CLOSED])
    world.now = start
    for name, sizes in (("a", (GIB, GIB)), ("b", (2 * GIB, GIB)), ("c", (3 * GIB,))):
        world.table(name, *sizes)
    operators = [world.operator(Mortal(world)) for _ in range(2)]
    for step in plot:
        play(world, operators, step)
        check(world)


def test_a_crash_between_any_two_calls_is_made_good() -> None:
    """One operator, killed at every call of a launch in turn: the next one finishes the work."""
    for answered in (False, True):
        for fuse in range(1, 40):
            world = World(budgets=[{**DAILY, "maxRewriteBytes": "100Gi"}])
            name = world.table("orders", GIB, GIB)
            operators = [world.operator(Mortal(world)), world.operator(Mortal(world))]
            operators[1].leads = False
            api = operators[0].api
            assert isinstance(api, Mortal)
            api.fuse, api.answered = fuse, answered
            for _ in range(12):
                turn(world, operators, 0)
                check_one(world)
                for job in world.living():
                    if _has_pod(world, job):
                        world.end(job)
                    else:
                        world.start(job)
                world.now += dt.timedelta(seconds=40)
            assert world.converged(name) == "NothingToDo", (fuse, answered)
            assert world.layout(name)["status"]["job"]["phase"] == "Succeeded"
            assert len(world.server.all(JOB)) == 1
            assert not world.layout(name)["metadata"].get("finalizers")


def check_one(world: World) -> None:
    assert len(world.living()) <= 1
    assert len(world.server.all(TABLE_LAYOUT)) == 1
