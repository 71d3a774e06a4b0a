"""What the process does each second: leadership, and the re-list with what follows from it."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest

from reconciler.kube.errors import ApiUnavailable
from reconciler.operator.process import main


@pytest.mark.parametrize("fails", [True, False])
def test_only_a_re_list_that_succeeded_makes_everything_due(
    monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    stop, now = threading.Event(), [0.0]
    repairs: list[float] = []
    enqueued: list[float] = []

    def repair() -> None:
        repairs.append(now[0])
        if fails:
            raise ApiUnavailable("down")

    async def pause(_: threading.Event, seconds: float) -> None:
        now[0] += seconds
        if now[0] >= 100.0:
            stop.set()

    monkeypatch.setattr(main, "_sleep", pause)
    monkeypatch.setattr(main, "time", SimpleNamespace(monotonic=lambda: now[0]))
    relist = SimpleNamespace(
        repair=repair, ask=lambda: None, check_secrets=lambda: None, enqueue_all=enqueued.append
    )
    parts: Any = SimpleNamespace(
        stop=stop, lease=SimpleNamespace(held=lambda: True), stale=threading.Event(),
        metrics=SimpleNamespace(leads=lambda held: None), relist=relist, listed=set(), events=None,
        settings=SimpleNamespace(relist=600.0, secret_interval=600.0),
    )  # fmt: skip
    with ThreadPoolExecutor(1) as chores:
        asyncio.run(main._tend(parts, chores))
    assert len(enqueued) == (0 if fails else 1)
    gaps = [later - before for before, later in pairwise(repairs)]
    assert gaps == sorted(gaps) and len(repairs) == (8 if fails else 1)
