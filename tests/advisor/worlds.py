"""Small simulated tables and workloads that the advisor's tests share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from bench.replay.table import SimulatedTable, empty_table
from reconciler.advisor.advice import Advice, AdviceInput, Settings
from reconciler.advisor.decide import decide
from reconciler.queries.demanded import demands
from reconciler.queries.fragments import Fragment, workload_of_fragments
from reconciler.queries.predicate import And, Comparison, Predicate, Ref
from reconciler.queries.read_cost import ShapeReading, read_shape
from reconciler.queries.shape import Shape, Workload
from reconciler.queries.table_view import table_view
from reconciler.table.filetable import FileTable
from reconciler.table.left_to_spark import CODEC
from reconciler.table.schema import Field, Schema

DAY = 86_400_000
KEY, DATE, PART, VALUE = 1, 2, 3, 4
SCHEMA = Schema(
    1,
    (
        Field(KEY, "id", "long"),
        Field(DATE, "day", "date"),
        Field(PART, "part", "long"),
        Field(VALUE, "amount", "double"),
    ),
)
ROW_BYTES = 28


def between(column: int, first_slot: int = 0) -> Predicate:
    return And(
        (
            Comparison(Ref(column), ">=", first_slot),
            Comparison(Ref(column), "<=", first_slot + 1),
        )
    )


def arriving_rows(
    random: np.random.Generator, rows: int, *, first: int = 0, days: int = 1000, jitter: int = 120
) -> dict[int, np.ndarray]:
    """Rows in arrival order: ids ascend, days roughly ascend, parts are anywhere."""
    order = np.arange(first, first + rows)
    day = (order - first) * days // max(rows, 1) + random.integers(0, max(jitter, 1), rows)
    return {
        KEY: order.astype(np.int64),
        DATE: (day + first * days // max(rows, 1)).astype(np.int64),
        PART: random.integers(0, 100_000, rows),
        VALUE: random.random(rows),
    }


def arrived(
    random: np.random.Generator,
    rows: int = 100_000,
    rows_per_file: int = 2_000,
    *,
    days: int = 1000,
    jitter: int = 120,
) -> SimulatedTable:
    data = arriving_rows(random, rows, days=days, jitter=jitter)
    return empty_table(SCHEMA).append(data, rows_per_file, 0, rows_per_file)  # fmt: skip


def claiming(files: FileTable, times: int) -> FileTable:
    """The same files, said to be so many times as large: for decisions about tables that no test
    can write."""
    sizes = {number: size * times for number, size in files.column_sizes.items()}
    return replace(
        files, records=files.records * times, bytes=files.bytes * times, column_sizes=sizes
    )


def range_query(
    position: int,
    column: int,
    low: int,
    high: int,
    *,
    event_ms: int,
    weight: float = 1.0,
    moving: tuple[int | None, int | None] = (None, None),
    projection: Sequence[int] = (VALUE,),
) -> Fragment:
    return Fragment(
        source="log", position=position, table_uuid="u", predicate=between(column),
        literals=(low, high), moving=moving,
        projection=tuple(sorted({column, *projection})), weight=weight, event_ms=event_ms,
        engine="spark",
    )  # fmt: skip


def range_workload(
    random: np.random.Generator,
    column: int,
    count: int,
    width: int,
    domain: int,
    *,
    days: int = 10,
    start: int = 0,
    weight: float = 1.0,
) -> list[Fragment]:
    """Ranges of one column, uniform over the domain, spread over some days."""
    lows = random.integers(0, max(domain - width, 1), count)
    return [
        range_query(
            start + i, column, int(low), int(low) + width,
            event_ms=(i * days * DAY) // max(count, 1), weight=weight,
        )
        for i, low in enumerate(lows)
    ]  # fmt: skip


def workload(*parts: Sequence[Fragment]) -> Workload:
    return workload_of_fragments([fragment for part in parts for fragment in part])


SETTINGS = Settings(
    target_bytes=ROW_BYTES * 2_000,
    row_group_bytes=ROW_BYTES * 2_000,
    open_bytes=2_000,
    now_ms=20 * DAY,
)


def written_by_spark(settings: Settings) -> Settings:
    """Return the settings of a table that Spark has to write: files end at no value of a column."""
    return replace(settings, metadata=replace(settings.metadata, properties={CODEC: "lz4"}))


def advise(
    table: SimulatedTable, work: Workload, settings: Settings = SETTINGS, rows_per_file: int = 256
) -> Advice:
    files = table.file_table()
    sample = table.sample(np.arange(len(files)), rows_per_file) if rows_per_file else None
    return decide(AdviceInput(files, work, settings, table.row_groups(), sample))


def apply(
    table: SimulatedTable, advice: Advice, settings: Settings = SETTINGS, plan: str = ""
) -> SimulatedTable:
    """Carry out the advice. plan: whose attempt the paths of new files shall show."""
    before = {file.path for file in table.files}
    for item in advice.actions:
        table = table.apply(item.action, settings.now_ms)
    if not plan:
        return table
    files = tuple(
        file if file.path in before else replace(file, path=f"data/layout-{plan}-1/{file.path}")
        for file in table.files
    )
    return replace(table, files=files)


def window_read(table: SimulatedTable, work: Workload, settings: Settings = SETTINGS) -> float:
    """Bytes that the recorded window reads, from exact footers."""
    return sum(float(d.weight @ reading.bytes) for d, reading in _readings(table, work, settings))


def window_cost(table: SimulatedTable, work: Workload, settings: Settings = SETTINGS) -> float:
    """The same with what opening files is worth."""
    return sum(float(d.weight @ reading.cost) for d, reading in _readings(table, work, settings))


def _readings(
    table: SimulatedTable, work: Workload, settings: Settings
) -> list[tuple[Shape, ShapeReading]]:
    view = table_view(
        table.file_table(), table.row_groups(), None, settings.row_group_bytes, settings.open_bytes
    )
    wanted = demands(work, SCHEMA, settings.horizon_ms)
    return [(demand, read_shape(view, demand)) for demand in wanted]


@dataclass(frozen=True)
class Convergence:
    table: SimulatedTable
    rounds: int
    advice: tuple[Advice, ...]


def converge(
    table: SimulatedTable,
    work: Workload,
    settings: Settings = SETTINGS,
    limit: int = 6,
    step_ms: int = 0,
) -> Convergence:
    """Decide and apply until nothing is left; step_ms: how much later each round happens."""
    history: list[Advice] = []
    bases: dict[str, frozenset[str]] = {}
    for number in range(limit):
        now = replace(settings, now_ms=settings.now_ms + number * step_ms, bases=dict(bases))
        advice = advise(table, work, now)
        history.append(advice)
        if not advice.actions:
            return Convergence(table, number, tuple(history))
        table = apply(table, advice, now, plan := f"p-{number:x}")
        found = [item.predicted.basis for item in advice.actions]
        bases[plan] = frozenset(basis for basis in found if basis is not None)
    return Convergence(table, limit, tuple(history))  # fmt: skip
