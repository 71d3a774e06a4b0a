"""Documents for tests against the test cluster, and operators in threads of the test's process."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from reconciler.operator.process.main import run
from reconciler.operator.runtime import Runtime
from reconciler.operator.settings import OperatorSettings
from reconciler.operator.work import Key, Reconcilers, Result

T = TypeVar("T")


def catalog(name: str = "warehouse", **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name},
        "spec": {
            "type": "sql",
            "catalogName": "rec",
            "properties": {"uri": "postgresql://db:5432/c", "warehouse": "s3://lake/wh"},
            "system": {"plans": {"uri": "s3://lake/plans"}},
            "jobs": {"serviceAccountName": "layout-spark", "image": "spark"},
            **spec,
        },
    }


def policy(name: str = "sales", catalog: str = "warehouse") -> dict[str, Any]:
    return {
        "metadata": {"name": name},
        "spec": {"catalogRef": {"name": catalog}, "tables": {"include": ["sales.*"]}},
    }


def layout(name: str = "sales.lineitem-7k2m5qd4xz", policy: str = "sales") -> dict[str, Any]:
    return {
        "metadata": {"name": name},
        "spec": {
            "catalogRef": {"name": "warehouse"},
            "table": {"namespace": ["sales"], "name": name.rsplit("-", 1)[0].split(".")[-1]},
            "policyRef": {"name": policy, "generation": 1},
        },
    }


class Recorder:
    """Reconciles that record the keys they are called with and return what `answer` returns."""

    def __init__(self, answer: Callable[[Key], Result] = lambda key: Result()):
        self.keys: list[Key] = []
        self.runtime: Runtime | None = None
        self._answer = answer
        self._lock = threading.Lock()

    def build(self, runtime: Runtime) -> Reconcilers:
        self.runtime = runtime
        return Reconcilers(self._run, self._run, self._run, self._run)

    def count(self, kind: str, name: str = "") -> int:
        with self._lock:
            return sum(key.kind == kind and name in ("", key.name) for key in self.keys)

    def calls(self) -> set[tuple[str, str]]:
        """Return the (verb, plural) of the calls of the API so far, as the metrics count them."""
        assert self.runtime is not None
        return {
            (sample.labels["verb"], sample.labels["resource"])
            for metric in self.runtime.metrics.registry.collect()
            if metric.name == "layout_kube_api_duration_seconds"
            for sample in metric.samples
        }

    def _run(self, key: Key) -> Result:
        with self._lock:
            self.keys.append(key)
        return self._answer(key)


class Running:
    """An operator in a thread."""

    def __init__(self, settings: OperatorSettings, recorder: Recorder):
        self.stop = threading.Event()
        self.recorder = recorder
        self.clean: bool | None = None
        self._thread = threading.Thread(target=self._run, args=(settings,), daemon=True)
        self._thread.start()

    def _run(self, settings: OperatorSettings) -> None:
        self.clean = run(settings, self.recorder.build, self.stop)

    def end(self) -> None:
        self.stop.set()
        self._thread.join(60)
        assert not self._thread.is_alive()


@contextmanager
def operator(settings: OperatorSettings, recorder: Recorder) -> Iterator[Running]:
    running = Running(settings, recorder)
    try:
        yield running
    finally:
        running.end()


def until(check: Callable[[], Any], seconds: float = 150) -> Any:
    """The first true answer of `check`."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        answer = check()
        if answer:
            return answer
        time.sleep(0.1)
    raise AssertionError("it did not happen in time")


def settled(count: Callable[[], T], seconds: float = 4, within: float = 150) -> T:
    """What `count` answers once that has not changed for so long: what the start of an operator
    makes due comes later on a busy machine than after any fixed time."""
    deadline = time.monotonic() + within
    last, since = count(), time.monotonic()
    while time.monotonic() < since + seconds:
        assert time.monotonic() < deadline, "it changes all the time"
        time.sleep(0.1)
        if (now := count()) != last:
            last, since = now, time.monotonic()
    return last
