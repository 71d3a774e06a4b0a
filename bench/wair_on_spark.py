"""The protocol of WAIR at a small scale on real tables: is what a replay says what comes true?

    python -m bench.wair_on_spark [--seed 1] [--engine Spark|Local] [--policies NAME...]

Each policy has an Iceberg table of its own. A batch appends files to it, its queries are counted,
the policy decides, and the engine carries that out. What queries read is counted from the live
files of the manifests and from their Parquet footers, by pyarrow, with none of our code. The same
batches are then replayed twice: as `layoutctl replay` does, from the files that arrived, and on
the rows in memory as `bench.wair` does.
"""

from __future__ import annotations

import argparse
import datetime as dt
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench.replay.lineitem import COMMIT, PRICE, SCHEMA, SHIP
from bench.replay.protocol import POOL, Protocol
from bench.replay.table import SimulatedTable, empty_table
from bench.results import write_section
from bench.tables.__main__ import start, without_spark
from bench.tables.play import NAMESPACE, Place
from reconciler.advisor.advice import AdviceInput, Settings
from reconciler.api.choices import EngineType
from reconciler.catalog.observe import observe_table
from reconciler.loop.local_actor import LocalActor
from reconciler.loop.ports import Target
from reconciler.plan.actions.base import Action
from reconciler.plan.execution import ExecutionRequest
from reconciler.queries.predicate import bounded_fields_of
from reconciler.queries.rewrite_cost import Rho
from reconciler.queries.shape import Shape, Workload
from reconciler.replay.observed import ObservedTable
from reconciler.replay.policies.fixed import do_nothing, sort_everything, sort_new_data
from reconciler.replay.policies.literal_wair import literal_wair
from reconciler.replay.policies.ours import ours
from reconciler.replay.run import Policy, Replay, ReplayTable, Step, replay
from reconciler.spark.session import session
from reconciler.state.state import StateStore
from reconciler.table.filetable import Array, Float64

SMALL = Protocol(months=18, period=3, rows=32_000, files=4)
"""Six periods of three batches. A file has about 140 KB, so that pages and headers count little."""

COLUMNS = (SHIP, COMMIT, PRICE)
Made = Callable[[], Policy[ReplayTable]]


def by_period(of: Callable[[int], Policy[ReplayTable]]) -> Policy[ReplayTable]:
    """The policy by ship date, in the fifth period by commit date."""
    ship, commit = of(SHIP), of(COMMIT)

    def chosen(table: ReplayTable, work: Workload, settings: Settings) -> Sequence[Action]:
        period = settings.now_ms // SMALL.batch_ms // SMALL.period
        return (commit if period == 4 else ship)(table, work, settings)

    return chosen


POLICIES: Mapping[str, Made] = {
    "no reclustering": lambda: do_nothing,
    "ours": lambda: ours,
    "literal WAIR": literal_wair,
    "new data sorted once (NN)": lambda: by_period(sort_new_data),
    "sorted after each batch": lambda: by_period(sort_everything),
}


def in_pool(policy: Policy[ReplayTable]) -> Policy[ReplayTable]:
    """Reclustering starts with the third period."""

    def guarded(table: ReplayTable, work: Workload, settings: Settings) -> Sequence[Action]:
        if settings.now_ms < POOL * SMALL.period * SMALL.batch_ms:
            return ()
        return policy(table, work, settings)

    return guarded


@dataclass
class Stage:
    """A real table, and what becomes of it."""

    place: Place
    """The catalog, and Spark if it is the engine."""
    name: str
    """Of the table."""
    actor: LocalActor
    """Who carries plans out."""
    arrived: list[ObservedTable] = field(default_factory=list)
    """By batch, the files that arrived."""
    times: dict[str, int] = field(default_factory=dict)
    """By path, when the file was written, by the clock of the batches."""
    moved: list[int] = field(default_factory=list)
    """By rewrite, the bytes that the engine says it read."""
    cpu_seconds: float = 0.0
    """What the rewrites took, by the engine's own counters."""

    def create(self) -> None:
        rows = as_arrow(np.zeros(0, dtype=np.int64), {f.field_id: [] for f in SCHEMA.fields})
        self.place.catalog.create_table(f"{NAMESPACE}.{self.name}", rows.schema)

    @property
    def target(self) -> Target:
        return Target(self.place.config, (NAMESPACE, self.name))

    def loaded(self) -> Any:
        return self.place.catalog.load_table(f"{NAMESPACE}.{self.name}")

    def append(self, values: Mapping[int, Array], files: int, now_ms: int) -> ObservedTable:
        """Append rows in files; return what is seen of these."""
        count = len(values[SHIP])
        table = self.loaded()
        for rows in np.array_split(np.arange(count), files):
            table.append(as_arrow(rows, values))
        seen = self.seen(now_ms)
        known = {path for one in self.arrived for path in one.files.path.tolist()}
        ours = seen.files.layout_written
        new = [
            not old and path not in known for path, old in zip(seen.files.path, ours, strict=True)
        ]
        self.arrived.append(seen.at(np.flatnonzero(new)))
        return self.arrived[-1]

    def seen(self, now_ms: int) -> ObservedTable:
        """Return the table as manifests, footers and sketches show it. now_ms: of new files."""
        observation = observe_table(self.place.config, (NAMESPACE, self.name), self.actor.cache)
        every = np.arange(len(observation.files), dtype=np.int64)
        footers = self.actor.footers(self.target, observation, every)
        sample = self.actor.sketch(self.target, observation, every, COLUMNS)
        for path in observation.files.path.tolist():
            self.times.setdefault(path, now_ms)
        added = np.array([self.times[path] for path in observation.files.path.tolist()])
        return ObservedTable(replace(observation.files, added_ms=added), footers, sample)

    def carry_out(self, action: Action) -> None:
        observation = observe_table(self.place.config, (NAMESPACE, self.name), self.actor.cache)
        engine = EngineType.SPARK if self.actor.spark is not None else EngineType.LOCAL
        request = ExecutionRequest(
            catalog=self.place.config, table=(NAMESPACE, self.name), table_uuid=observation.uuid,
            plan_id=f"p-{len(self.moved):020x}", actions=(action,), action_ids=("a01",),
            base_snapshot_id=observation.snapshot_id, backoff_seconds=0.0, engine=engine,
        )  # fmt: skip
        done = self.actor.execute(request, lambda event: None, lambda: False)
        if not done.done:
            raise SystemExit(f"{self.name}: {action} was not carried out: {done}")
        self.moved.append(done.read_bytes)
        self.cpu_seconds += done.cpu_seconds


@dataclass(frozen=True)
class RealTable:
    """A state of a real table."""

    stage: Stage
    """The table."""
    state: ObservedTable
    """What is seen of it."""

    def file_table(self) -> Any:
        return self.state.file_table()

    def row_groups(self) -> Any:
        return self.state.row_groups()

    def given(self, workload: Workload, settings: Settings) -> AdviceInput:
        return self.state.given(workload, settings)

    def after(self, action: Action, settings: Settings) -> Self:
        self.stage.carry_out(action)
        return replace(self, state=self.stage.seen(settings.now_ms))


def as_arrow(rows: Array, values: Mapping[int, Any]) -> pa.Table:
    types = {"long": pa.int64(), "date": pa.date32(), "double": pa.float64()}
    made = {}
    for one in SCHEMA.fields:
        column = np.asarray(values[one.field_id])[rows]
        kind = types[one.type]
        made[one.name] = (
            pa.array(column.astype(np.int32)).cast(kind) if one.type == "date"
            else pa.array(column, type=kind)
        )  # fmt: skip
    return pa.table(made)


def arriving(stage: Stage, step: Step[SimulatedTable]) -> Step[RealTable]:
    """Return the step on a real table. Its twin, which nobody rewrites, gets the same files."""
    assert step.arrive is not None
    values = step.arrive(empty_table(SCHEMA)).values
    made: list[ObservedTable] = []

    def arrive(table: RealTable) -> RealTable:
        if not made:
            made.append(stage.append(values, SMALL.files, step.now_ms))
        return replace(table, state=joined(table.state, made[0]))

    return Step(arrive, step.queries, step.now_ms)


def joined(state: ObservedTable, new: ObservedTable) -> ObservedTable:
    return state.with_files(new) if len(state) else new


class Counted:
    """A policy that first counts what the queries of its batch read of the live files."""

    def __init__(
        self, policy: Policy[ReplayTable], stage: Stage, steps: Sequence[Step[RealTable]]
    ) -> None:
        self._policy, self._stage, self._steps = policy, stage, list(steps)
        self.read: list[float] = []
        self.untouched: list[float] = []
        self._files: dict[str, _File] = {}

    def __call__(self, table: RealTable, work: Workload, settings: Settings, /) -> Sequence[Action]:
        queries = self._steps[len(self.read)].queries
        live = self._stage.loaded().inspect.files()["file_path"].to_pylist()
        arrived = [path for one in self._stage.arrived for path in one.files.path.tolist()]
        self.read.append(self._count(live, queries))
        self.untouched.append(self._count(arrived, queries))
        return self._policy(table, work, settings)

    def _count(self, paths: Sequence[str], queries: Sequence[Shape]) -> float:
        """Return the stored bytes of the read columns in all row groups that may match, and of
        the footers of all files that may."""
        files = [self._file(path) for path in paths]
        total = 0.0
        for shape in queries:
            (column,) = bounded_fields_of(shape.predicate)
            parts = [part for file in files for part in file.parts(column)]
            least, most, size = (np.array(one) for one in zip(*parts, strict=True))
            lows, highs = shape.literals
            for low, high, weight in zip(lows, highs, shape.weight, strict=True):
                total += float(weight * size[(least <= high) & (most >= low)].sum())
        return total

    def _file(self, path: str) -> _File:
        if path not in self._files:
            name = path.removeprefix("file://")
            footer = pq.read_metadata(name)
            groups = tuple(_group(footer.row_group(n)) for n in range(footer.num_row_groups))
            held = sum(size for one in groups for size in one.sizes.values())
            self._files[path] = _File(groups, Path(name).stat().st_size - held)
        return self._files[path]


@dataclass(frozen=True)
class _Group:
    """A row group, by its footer."""

    bounds: Mapping[int, tuple[int, int]]
    """Least and greatest day, by field id."""
    sizes: Mapping[int, int]
    """Stored bytes, by field id."""


@dataclass(frozen=True)
class _File:
    """A Parquet file."""

    groups: tuple[_Group, ...]
    """Its row groups."""
    footer: int
    """Bytes that belong to no column."""

    def parts(self, column: int) -> list[tuple[int, int, int]]:
        """Return (least, greatest, bytes) of what a query with a range of the column reads alone:
        the footer of the whole file, and two columns of each row group."""
        bounds = [one.bounds[column] for one in self.groups]
        whole = min(least for least, _ in bounds), max(most for _, most in bounds), self.footer
        sizes = [one.sizes[column] + one.sizes[PRICE] for one in self.groups]
        return [whole, *((*ends, size) for ends, size in zip(bounds, sizes, strict=True))]


def _group(footer: Any) -> _Group:
    epoch = dt.date(1970, 1, 1)
    bounds, sizes = {}, {}
    for number in range(footer.num_columns):
        column, field_id = footer.column(number), SCHEMA.fields[number].field_id
        sizes[field_id] = column.total_compressed_size
        if field_id in (SHIP, COMMIT):
            least, most = column.statistics.min, column.statistics.max
            bounds[field_id] = ((least - epoch).days, (most - epoch).days)
    return _Group(bounds, sizes)


@dataclass(frozen=True)
class Compared:
    """What one policy cost, by batch in bytes of reading."""

    name: str
    """Of the policy."""
    found: Float64
    """On the real table."""
    untouched: Float64
    """Likewise, if nobody had rewritten it."""
    rewriting: float
    """Share of the rewrites in what was found."""
    replayed: Replay[ObservedTable]
    """As `layoutctl replay` has it, from the files that arrived."""
    in_memory: Replay[SimulatedTable]
    """As `bench.wair` has it."""
    cpu_seconds: float
    """Of the rewrites."""
    actions: int
    """Rewrites that were carried out."""


def sized(place: Place, first: Step[SimulatedTable]) -> Settings:
    """Return the settings of the protocol, for files as large as those that arrive; a rewrite of
    one costs as many readings of it by a query of the ship date."""
    assert first.arrive is not None
    values = first.arrive(empty_table(SCHEMA)).values
    path = place.root / "probe.parquet"
    pq.write_table(as_arrow(np.arange(SMALL.rows // SMALL.files), values), path, compression="zstd")
    size, group = path.stat().st_size, _group(pq.read_metadata(path).row_group(0))
    share = (group.sizes[SHIP] + group.sizes[PRICE]) / size
    rho = Rho(SMALL.rho * share, "measured")
    return replace(SMALL.settings, target_bytes=size, row_group_bytes=size, rho=rho)


def compared(place: Place, seed: int, name: str) -> Compared:
    made, steps = POLICIES[name], SMALL.steps(seed)
    label = "".join(one for one in name if one.isalpha())
    store = StateStore(place.root / f"state-{label}")
    stage = Stage(place, label, LocalActor(store, place.root / "cache", spark=place.spark))
    stage.create()
    settings = sized(place, steps[0])
    real = [arriving(stage, step) for step in steps]
    counted = Counted(in_pool(made()), stage, real)
    run = replay(RealTable(stage, stage.seen(0)), real, counted, settings)
    for one, other in ((run.read, counted.read), (run.untouched, counted.untouched)):
        assert np.allclose(one, other, rtol=0.005), "what is read is counted wrongly"
    assert sum(stage.moved) == int(run.rewritten_bytes.sum())
    again = [
        Step(lambda table, new=new: joined(table, new), step.queries, step.now_ms)
        for step, new in zip(steps, stage.arrived, strict=True)
    ]
    empty = stage.arrived[0].at(np.zeros(0, dtype=np.int64))
    replayed = replay(empty, again, in_pool(made()), settings)
    in_memory = replay(empty_table(SCHEMA), steps, in_pool(made()), SMALL.settings)
    found = np.array(counted.read) + run.rewritten
    return Compared(
        name, found, np.array(counted.untouched), float(run.rewritten.sum() / found.sum()),
        replayed, in_memory, stage.cpu_seconds, len(stage.moved),
    )  # fmt: skip


def off(one: Compared) -> tuple[Float64, Float64]:
    """Return by batch after the pool how much more the replays say than was found: in bytes of
    reading by that of `layoutctl replay`, as a share of doing nothing by that of `bench.wair`."""
    part = slice(POOL * SMALL.period, None)
    found, none = one.found[part], one.untouched[part]
    memory = one.in_memory
    share = memory.cost[part] / memory.untouched[part]
    return one.replayed.cost[part] / found - 1.0, share / (found / none) - 1.0


def ratio(cost: Float64, untouched: Float64) -> float:
    part = slice(POOL * SMALL.period, None)
    return float(cost[part].sum() / untouched[part].sum())


def written(found: Sequence[Compared], seed: int, engine: str) -> str:
    rows = [["policy", "found", "replay of the files", "replay in memory",
             "batches within 10 %", "worst batch", "of memory: within 10 %", "worst",
             "rewriting", "rewrites", "their CPU s"]]  # fmt: skip
    for one in found:
        rows.append([
            one.name, f"{ratio(one.found, one.untouched):.3f}",
            f"{ratio(one.replayed.cost, one.replayed.untouched):.3f}",
            f"{ratio(one.in_memory.cost, one.in_memory.untouched):.3f}",
            *(text for part in off(one) for text in within(part)),
            f"{one.rewriting:.3f}", str(one.actions), f"{one.cpu_seconds:.1f}",
        ])  # fmt: skip
    note = (
        f"{SMALL.months - POOL * SMALL.period} batches of {SMALL.files} files of "
        f"{SMALL.rows // SMALL.files:,} rows after a pool of {POOL * SMALL.period}, seed {seed}, "
        f"rewritten by {engine}; cost relative to no reclustering. Batches within 10 %: of which "
        "the replay of the files says the cost in bytes so well, and the replay in memory the cost "
        "relative to no reclustering. Each replay decides by itself."
    )
    command = f"python -m bench.wair_on_spark --seed {seed} --engine {engine}"
    return write_section("WAIR on real tables", command, rows, note)


def within(part: Float64) -> tuple[str, str]:
    worst = part[np.abs(part).argmax()]
    return f"{np.count_nonzero(np.abs(part) <= 0.1)} of {len(part)}", f"{worst:+.1%}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--engine", choices=("Spark", "Local"), default="Spark")
    parser.add_argument("--policies", nargs="+", default=[*POLICIES], choices=[*POLICIES])
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-wair-") as directory:
        by_spark = given.engine == "Spark"
        place = (start if by_spark else without_spark)(Path(directory))
        try:
            found = []
            for name in given.policies:
                found.append(compared(place, given.seed, name))
                for title, part in zip(("files", "memory"), off(found[-1]), strict=True):
                    print(name, title, " ".join(f"{one:+.3f}" for one in part), flush=True)
        finally:
            if by_spark:
                session.stop(place.spark)
    print(written(found, given.seed, given.engine))


if __name__ == "__main__":
    main()
