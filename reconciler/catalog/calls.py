"""Calls to a catalog in threads that may be given up: deadlines, and a bound on what hangs.

A call that hangs in a library cannot be killed. It is given up at its deadline: its sockets are cut
(`network.Border`), so that nearly every one of them ends, and its thread counts as hanging until it
does. In the operator each catalog has a `Lane`, which bounds its hanging threads and refuses new
calls for a while after one that was not answered. An `Allowance` bounds the time of all calls of
one reconcile, nested ones included, for each catalog separately.
"""

from __future__ import annotations

import contextlib
import contextvars
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

from reconciler.api.reach import Reach
from reconciler.catalog.network import Border, Sockets, shut, within_border
from reconciler.errors import UnavailableError

MOST_HANGING = 4
"""Threads of one catalog that may hang before no further call to it is made."""
PAUSE_SECONDS = 20.0
"""Time without calls to a catalog after a call that took all of its reconcile's time."""
OVER = 0.95
"""A call that fails after this share of its time counts as timed out: a call nested in it may give
up a moment earlier."""
LAST_CHANCE_SECONDS = 0.5
"""Time for a thread to end after its own sockets are cut; then all sockets of its catalog are."""

Result = TypeVar("Result")


class Overran(Exception):
    """The call did not end in time. seconds: what it was given."""

    def __init__(self, seconds: float):
        super().__init__(f"no answer within {seconds:g} s")
        self.seconds = seconds


class Ended(Exception):
    """Foreign code tried to end the process, or panicked; it ended its own thread."""

    def __init__(self, cause: BaseException):
        super().__init__(type(cause).__name__)
        self.cause = cause


@dataclass(eq=False)
class Lane:
    """The calls of one catalog, across all versions of its document. Thread-safe."""

    name: str
    """The catalog's name, for messages."""
    most_hanging: int = MOST_HANGING
    """Number of given-up calls that may hang before further calls are refused."""
    pause: float = PAUSE_SECONDS
    """Seconds for which calls are refused after one without an answer."""
    sockets: Sockets = field(default_factory=weakref.WeakSet)
    """Connections that the lane's calls have open."""
    _hanging: set[threading.Thread] = field(default_factory=set)
    """Threads of calls that were given up and have not ended."""
    _shut_until: float = 0.0
    """Monotonic time in seconds until which every call is refused."""
    _shut_to_impatient_until: float = 0.0
    """Monotonic time in seconds until which calls under `patience` are refused."""
    _lock: threading.Lock = field(default_factory=threading.Lock)
    """Guards the set of hanging threads."""

    def hanging(self) -> int:
        """Threads of calls that were given up and have not ended."""
        with self._lock:
            self._hanging = {thread for thread in self._hanging if thread.is_alive()}
            return len(self._hanging)

    def refusal(self, *, impatient: bool = False) -> str:
        """Why no call is made now, "" if one is."""
        hanging = self.hanging()
        shut_until = max(self._shut_until, self._shut_to_impatient_until * impatient)
        if hanging >= self.most_hanging:
            return f"{hanging} earlier calls to it still hang"
        left = shut_until - time.monotonic()
        return f"it did not answer in time, and is called again in {left:.0f} s" if left > 0 else ""

    def gave_up(self, thread: threading.Thread) -> None:
        with self._lock:
            self._hanging.add(thread)

    def shut(self, *, impatient: bool = False) -> None:
        """Refuse calls for a while: each would wait for the same silence. After a call that ended
        at its `patience`, refuse only calls with patience."""
        if impatient:
            self._shut_to_impatient_until = time.monotonic() + self.pause
        else:
            self._shut_until = time.monotonic() + self.pause


@dataclass(eq=False)
class Allowance:
    """Seconds for the calls of one reconcile, for each catalog by itself."""

    seconds: float
    _spent: dict[str, float] = field(default_factory=dict)

    def left(self, name: str) -> float:
        return self.seconds - self._spent.get(name, 0.0)

    def spend(self, name: str, seconds: float) -> None:
        self._spent[name] = self._spent.get(name, 0.0) + seconds


@dataclass(frozen=True, slots=True)
class _Scope:
    """Of a call in a lane and of all that are nested in it."""

    lane: Lane
    deadline: float


_SCOPE: contextvars.ContextVar[_Scope | None] = contextvars.ContextVar("scope", default=None)
_ALLOWANCE: contextvars.ContextVar[Allowance | None] = contextvars.ContextVar(
    "allowance", default=None
)
_PATIENCE: contextvars.ContextVar[float | None] = contextvars.ContextVar("patience", default=None)


@contextlib.contextmanager
def allowed(seconds: float) -> Iterator[None]:
    """Begin one reconcile: its calls share these seconds."""
    token = _ALLOWANCE.set(Allowance(seconds))
    try:
        yield
    finally:
        _ALLOWANCE.reset(token)


@contextlib.contextmanager
def patience(seconds: float) -> Iterator[None]:
    """Bound each call within: a question to many catalogs in turn must not wait for one of them."""
    token = _PATIENCE.set(seconds)
    try:
        yield
    finally:
        _PATIENCE.reset(token)


def in_lane(lane: Lane, reach: Reach | None, seconds: float, work: Callable[[], Result]) -> Result:
    """The result of the work, which may make any number of calls to the lane's catalog.

    seconds: the most, where no allowance says less. Raises UnavailableError when the time is over,
    when the reconcile has none left, and when the lane takes no call.
    """
    scope = _SCOPE.get()
    if scope is not None and scope.lane is lane:
        return work()  # the outer call's deadline holds
    allowance, most = _ALLOWANCE.get(), _PATIENCE.get()
    left = seconds if allowance is None else min(seconds, allowance.left(lane.name))
    given = left if most is None else min(left, most)
    why = lane.refusal(impatient=most is not None) or (
        "the time for its calls is used up" if given <= 0 else ""
    )
    if why:
        raise _unavailable(lane, why)
    began = time.monotonic()
    token = _SCOPE.set(_Scope(lane, began + given))
    answered = False
    try:
        result = run(work, given, Border(reach, lane.sockets), lane)
        answered = True
        return result
    except Overran as error:
        raise _unavailable(lane, f"no answer within {given:g} s in all") from error
    except Ended as error:
        raise _unavailable(lane, f"the code that it ran ended with {error}") from error
    finally:
        _SCOPE.reset(token)
        took = time.monotonic() - began
        if not answered and took >= given * OVER:
            lane.shut(impatient=given < left)
        if allowance is not None:
            allowance.spend(lane.name, took)


def _unavailable(lane: Lane, why: str) -> UnavailableError:
    return UnavailableError(
        f"catalog {lane.name} does not answer",
        details=(why,),
        do="check that the catalog and its storage can be reached",
    )


def remaining() -> float | None:
    """Seconds left of the call in a lane that this code runs in; None outside of any."""
    scope = _SCOPE.get()
    return None if scope is None else scope.deadline - time.monotonic()


def one_call(work: Callable[[], Result], seconds: float, reach: Reach | None) -> Result:
    """One call to a catalog, in a lane or not. Raises Overran, and what the work raises."""
    scope, left = _SCOPE.get(), remaining()
    lane = None if scope is None else scope.lane
    border = Border(reach, None if lane is None else lane.sockets)
    return run(work, seconds if left is None else min(seconds, left), border, lane)


def run(
    work: Callable[[], Result], seconds: float, border: Border, lane: Lane | None = None
) -> Result:
    """The result of the work in a daemon thread: what hangs must not keep the process from ending.

    Raises Overran, and what the work raises.
    """
    results: list[Result] = []
    errors: list[BaseException] = []
    if lane is not None and seconds > 0 and lane.hanging() >= lane.most_hanging:
        raise _unavailable(lane, lane.refusal())

    def inside() -> None:
        try:
            with within_border(border):
                results.append(work())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(
        target=contextvars.copy_context().run, args=(inside,), daemon=True, name="catalog call"
    )
    thread.start()
    thread.join(max(seconds, 0.0))
    if errors and not isinstance(errors[0], Exception):
        raise Ended(errors[0])
    if errors:
        raise errors[0]
    if not thread.is_alive() and results:
        return results[0]
    _give_up(thread, border, lane)
    raise Overran(seconds)


def _give_up(thread: threading.Thread, border: Border, lane: Lane | None) -> None:
    border.cut()
    if lane is None:
        return
    lane.gave_up(thread)
    thread.join(LAST_CHANCE_SECONDS)
    if thread.is_alive():  # it may wait for a connection that an earlier call left open
        shut(lane.sockets)
