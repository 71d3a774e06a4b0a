"""kopf's first listing keeps in step with what is made of it, whatever becomes of single events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from kopf._cogs.clients import fetching

from reconciler.operator.process import listing
from reconciler.operator.process.listing import Pace, paced

CHUNKS, SIZE = 8, 10


class Resource:
    kind = "TableLayout"


@pytest.fixture
def fetch(monkeypatch: pytest.MonkeyPatch) -> Any:
    """kopf's listing of CHUNKS times SIZE objects, as it looks to kopf's watch."""

    async def listed(*, resource: Resource, **_: Any) -> AsyncIterator[tuple[list[Any], str]]:
        for number in range(CHUNKS):
            names = range(number * SIZE, (number + 1) * SIZE)
            meta = [{"name": f"t{n}", "managedFields": [{"manager": "x"}]} for n in names]
            yield [{"metadata": one} for one in meta], "7"

    monkeypatch.setattr(fetching, "fetch_objs", listed)
    monkeypatch.setattr(listing, "AHEAD", SIZE)
    monkeypatch.setattr(listing, "PATIENCE_SECONDS", 0.3)
    return lambda: fetching.fetch_objs(resource=Resource())


def play(fetch: Any, pace: Pace | None, handles: bool = True) -> tuple[list[Any], int]:
    """All objects that were listed, and how many waited at most."""

    async def run() -> tuple[list[Any], int]:
        objects: list[Any] = []
        waiting: asyncio.Queue[Any] = asyncio.Queue()
        most = 0

        async def handle() -> None:
            while True:
                await waiting.get()
                await asyncio.sleep(0.001)
                if pace is not None:
                    pace.handled["TableLayout"] += 1

        worker = asyncio.create_task(handle()) if handles else None
        async for chunk, _ in fetch():
            for item in chunk:
                objects.append(item)
                waiting.put_nowait(item)
            most = max(most, waiting.qsize())
        if worker is not None:
            worker.cancel()
        return objects, most

    return asyncio.run(run())


def test_no_more_than_a_chunk_is_listed_ahead(fetch: Any) -> None:
    pace = Pace(lambda kind: None)
    with paced(pace):
        objects, most = play(fetch, pace)
    assert [item["metadata"]["name"] for item in objects] == [f"t{n}" for n in range(CHUNKS * SIZE)]
    assert most <= 2 * SIZE
    assert not any("managedFields" in item["metadata"] for item in objects)


def test_events_that_are_never_handled_hold_nothing_up_for_long(fetch: Any) -> None:
    pace = Pace(lambda kind: None)
    with paced(pace):
        objects, _ = play(fetch, pace, handles=False)
    assert len(objects) == CHUNKS * SIZE


def test_a_listing_is_announced_once_after_all_its_objects(fetch: Any) -> None:
    through: list[str] = []
    pace = Pace(through.append)

    async def run() -> None:
        handed = 0
        async for chunk, _ in fetch():
            handed += len(chunk)
            pace.handled["TableLayout"] = handed
            assert not through

    with paced(pace):
        asyncio.run(run())
    assert through == ["TableLayout"]


def test_without_a_pace_kopf_lists_as_it_always_does(fetch: Any) -> None:
    with paced(Pace(lambda kind: None)):
        pass
    objects, most = play(fetch, None)
    assert len(objects) == most == CHUNKS * SIZE
    assert all("managedFields" in item["metadata"] for item in objects)
