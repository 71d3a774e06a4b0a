"""Seconds and memory that a plan needs to read its recorded queries from the state.

Writes queries of many shapes over 30 days into a state directory, then reads them in a process of
its own, as a plan does.

Run: python -m bench.workload_read [queries] [shapes]
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from reconciler.queries.fragments import Fragment
from reconciler.queries.predicate import And, Comparison, In, Predicate, Ref
from reconciler.table.schema import Field, Schema

UUID = "3f9a1c0b-77de-4c21-a0be-00000000bead"
BATCH = 20_000
HOUR_MS = 3_600_000
START_MS = int(time.time() * 1000) // HOUR_MS * HOUR_MS - 30 * 24 * HOUR_MS
SCHEMA = Schema(
    0,
    (
        Field(1, "ts", "timestamptz"),
        Field(2, "id", "long"),
        Field(3, "kind", "string"),
        Field(4, "price", "double"),
        *(Field(number, f"c{number}", "long") for number in range(5, 260)),
    ),
)


def predicate_of(shape: int) -> Predicate:
    """A range of time, and a condition on another column: a number, a text, a list or a float."""
    low, high = Comparison(Ref(1), ">=", 0), Comparison(Ref(1), "<", 1)
    own = Ref(5 + shape)
    last: Predicate = (
        Comparison(own, "=", 2), Comparison(Ref(3), "=", 2), In(own, 2), Comparison(Ref(4), ">", 2)
    )[shape % 4]  # fmt: skip
    return And((low, high, last, Comparison(own, ">", 3)))


def fragments(count: int, shapes: int) -> Iterator[Fragment]:
    """Queries in order of time; in half of the shapes the range of time is the last day."""
    random = np.random.default_rng(7)
    predicates = [predicate_of(shape) for shape in range(shapes)]
    positions = random.integers(0, 1 << 62, count)
    step = 30 * 24 * HOUR_MS / count
    for number in range(count):
        shape = number % shapes
        event_ms = int(START_MS + number * step)
        end = event_ms * 1000 if shape % 2 else int(random.integers(0, 1 << 50))
        value = int(random.integers(0, 1000))
        last = (value, b"kind-%d" % value, (value, value + 7, value + 9), value / 3)[shape % 4]
        yield Fragment(
            source="query",
            position=int(positions[number]),
            table_uuid=UUID,
            predicate=predicates[shape],
            literals=(end - 86_400_000_000, end, last, value),
            moving=(None,) * 4,
            projection=(1, 3, 4, 5 + shape),
            weight=1.0,
            event_ms=event_ms,
            engine="trino",
            recorded_bytes=value * 1000,
            duration_ms=value,
        )


def write(directory: Path, count: int, shapes: int) -> None:
    from reconciler.queries.shape import workload_of
    from reconciler.state.movements import record_movements
    from reconciler.state.state import StateStore

    store = StateStore(directory)
    pending: list[Fragment] = []
    seconds = 0.0
    for item in fragments(count, shapes):
        pending.append(item)
        if len(pending) == BATCH:
            start = time.perf_counter()
            store.append_fragments(pending)
            seconds += time.perf_counter() - start
            pending = []
    store.append_fragments(pending)
    store.put_sketches(UUID, {"file": b"sketch"})
    size = sum(path.stat().st_size for path in directory.rglob("*.parquet"))
    record_movements(store, UUID, SCHEMA, workload_of(store.shapes(UUID)))
    print(f"stored {count:,} queries of {shapes} shapes in {seconds:.1f} s, {size / 1e6:.0f} MB")


def read(directory: Path) -> None:
    """Read them as loop.reader does."""
    from reconciler.queries.moving_windows import with_movement
    from reconciler.queries.shape import workload_of
    from reconciler.state.movements import stored_movements
    from reconciler.state.state import StateStore

    store = StateStore(directory)
    store.sketches(UUID, ["file"])  # a plan has read other tables before
    before = peak_mb()
    start, cpu = time.perf_counter(), time.process_time()
    known = store.shapes(UUID)
    stored = time.perf_counter()
    workload = with_movement(workload_of(known), SCHEMA, stored_movements(store, UUID))
    end = time.perf_counter()
    print(
        f"read {workload.queries:,.0f} queries of {len(workload.shapes)} shapes in "
        f"{end - start:.2f} s, {time.process_time() - cpu:.2f} s of CPU "
        f"(state {stored - start:.2f} s); peak {peak_mb():.0f} MB, "
        f"{peak_mb() - before:.0f} MB of it for the queries"
    )


def peak_mb() -> float:
    """Return the most memory that this process had; ru_maxrss would count its parent's."""
    text = Path("/proc/self/status").read_text()
    return int(text.partition("VmHWM:")[2].split()[0]) / 1024


def main() -> None:
    if sys.argv[1:2] == ["read"]:
        read(Path(sys.argv[2]))
        return
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    shapes = int(sys.argv[2]) if len(sys.argv) > 2 else 200
    with tempfile.TemporaryDirectory() as directory:
        write(Path(directory), count, shapes)
        for _ in range(3):
            subprocess.run([sys.executable, "-m", "bench.workload_read", "read", directory])


if __name__ == "__main__":
    main()
