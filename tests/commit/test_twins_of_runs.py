"""Whole runs by both engines, from the same table, leave the same: what waits on a branch, what
becomes of it, and files that nobody refers to."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from reconciler.commit.engine import LocalBackend
from reconciler.engines.local import machine
from reconciler.engines.local.pool import Pool
from reconciler.engines.schedule.execute import execute
from reconciler.plan.actions.audited import Discard, Publish
from reconciler.plan.actions.base import Action
from reconciler.plan.actions.remove_orphans import RemoveOrphans
from reconciler.plan.actions.rewrite import BinPack
from reconciler.plan.execution import Audit, ExecutionResult
from reconciler.table.audits import WaitingBatch, waiting_batches
from tests.commit.test_twins_of_changes import MERGED
from tests.commit.twins import Twins, filled, local
from tests.spark.tables import Bench

WAITS = Audit("candidate", "", "policy")
_ATTEMPT = re.compile(r"p-\d-[0-9a-f]+-\d+")
_WRITTEN = re.compile(r"(/layout-attempt/)[^/]*$")
OLD_MS = 1_000


class Runs:
    """Carries actions out on both sides, each by its engine."""

    def __init__(self, both: Twins, pool: Pool) -> None:
        self.both, bench = both, both.bench
        cache = bench.directory / "cache"
        local_engine = LocalBackend(pool, machine.of_this(""), cache, lambda _: None)
        self.engines = dict(zip(both.names, (bench.engine, local_engine), strict=True))
        self.plans = iter(range(9))

    def run(self, actions: Callable[[str], list[Action]], **more: Any) -> list[ExecutionResult]:
        """Return what became of the actions of each side's table."""
        plan, made, bench = f"p-{next(self.plans)}", [], self.both.bench
        for name, engine in self.engines.items():
            request = bench.request(name, *actions(name), plan=plan, **more)
            say, stop = (lambda _: None), (lambda: False)
            made.append(execute(request, engine, bench.ledger, bench.lease, say, stop))
        return made

    def held(self) -> None:
        """Pack the two halves of all files into batches that wait."""
        made = self.run(lambda name: halves(self.both.bench, name), audit=WAITS)
        assert [one.waiting for one in made] == [2, 2]

    def waiting(self, name: str) -> tuple[WaitingBatch, ...]:
        return waiting_batches(self.both.bench.live(name).log())

    def compare(self) -> None:
        """Names of files and ids of attempts are random."""
        assert self.both.differences(plain=unnamed) == {}
        files = [sorted(_files(self.both, name)) for name in self.both.names]
        assert files[0] == files[1]


def halves(bench: Bench, name: str) -> list[Action]:
    """Each packs one half of the files."""
    paths = bench.paths(name)
    return [BinPack(inputs=tuple(paths[at::2]), target_bytes=1 << 20) for at in range(2)]


def unnamed(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: unnamed(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [unnamed(one) for one in value]
    text = _ATTEMPT.sub("attempt", value) if isinstance(value, str) else value
    return _WRITTEN.sub(r"\1", text) if isinstance(text, str) else text


def _files(both: Twins, name: str) -> list[str]:
    """The directories below the table's location, one for each content file in it."""
    place = local(str(both.bench.table(name).location()))
    return [unnamed(str(path.parent.relative_to(place))) for path in place.rglob("*.parquet")]


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    with Pool(1) as made:
        yield made


@pytest.fixture
def runs(bench: Bench, iceberg_catalog: Any, pool: Pool) -> Runs:
    return Runs(filled(bench, iceberg_catalog, 2, properties=MERGED, by=""), pool)


def test_batches_that_wait_and_are_published(runs: Runs) -> None:
    runs.held()
    runs.compare()
    made = runs.run(
        lambda name: [Publish(o.inputs, o.branch, o.snapshot_id) for o in runs.waiting(name)],
        audit=WAITS,
    )
    assert all(one.done for one in made)
    runs.compare()
    assert all(runs.waiting(name) == () for name in runs.both.names)


def test_batches_that_are_discarded(runs: Runs) -> None:
    runs.held()
    made = runs.run(
        lambda name: [
            Discard(WAITS.branch, tuple(sorted(o.snapshot_id for o in runs.waiting(name))))
        ],
        audit=WAITS,
    )
    assert all(one.done for one in made)
    runs.compare()
    assert all(_files(runs.both, name) == [] for name in runs.both.names)


def test_orphans_that_are_removed(runs: Runs) -> None:
    """Files that only an older snapshot needs stay, though the plan names them."""
    for _ in range(2):
        packed = runs.run(lambda name: halves(runs.both.bench, name))
        assert all(one.done for one in packed)
    runs.compare()

    def planted(name: str) -> list[Action]:
        place = local(str(runs.both.bench.table(name).location()))
        for part in ("data/gone.parquet", "data/x=1/gone.parquet", "metadata/gone-m0.avro"):
            path = place / part
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"x")
        named = [path for path in place.rglob("*") if path.is_file() and "crc" not in path.name]
        for path in named:
            os.utime(path, (0, 0))
        some = [path for path in named if path.suffix == ".parquet" or "gone" in path.name]
        return [RemoveOrphans(tuple(sorted(f"file:{path}" for path in some)), OLD_MS)]

    made = runs.run(planted)
    assert [one.outcomes[-1].detail for one in made] == [made[0].outcomes[-1].detail] * 2
    runs.compare()
    for name in runs.both.names:
        place = Path(local(str(runs.both.bench.table(name).location())))
        assert not list(place.rglob("gone*"))
        assert len(_files(runs.both, name)) == 4
