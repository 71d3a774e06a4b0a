"""Random tables and workloads, planned and rewritten for real until nothing is left to do.

`python -m bench.convergence [FIRST LAST]` prints a line a seed: how many plans had work, and how
what was read compares with before, predicted and found; the sum of it goes to bench/RESULTS.md.
Seeds that the log (build/bench-convergence.jsonl) holds are not played again, so that a run can be
stopped and resumed. Exits 1 where rows changed or a table was not Converged after ROUNDS plans.
Each seed makes the same table, workload and sizes again.
"""

from __future__ import annotations

import datetime as dt
import decimal
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog

from bench.results import logged, write_section
from reconciler.api.catalog_config import CatalogConfig
from reconciler.api.document_codec import from_document
from reconciler.api.documents import TableLayoutPolicy
from reconciler.loop.gating import Approvals
from reconciler.loop.local_actor import LocalActor
from reconciler.loop.ports import Target
from reconciler.loop.step import CONVERGED, Step, StepResult, run_until_converged
from reconciler.queries.fragments import Fragment
from reconciler.queries.predicate import And, Comparison, Predicate, Ref
from reconciler.spark.session import session
from reconciler.state.state import StateStore
from tests.conftest import SMALL_SESSION, sqlite_catalog, sqlite_spark_conf

LOG = Path("build/bench-convergence.jsonl")
ROUNDS = 6
NOW = dt.datetime(2026, 11, 20, 12, 0, tzinfo=dt.UTC)
WEEK_MS = 7 * 86_400_000
TARGETS = (1 << 17, 1 << 18, 1 << 20, 1 << 23, 512 << 20)

Random = np.random.Generator
Column = Callable[[Random, int, int, int], Any]

COLUMNS: dict[str, Column] = {
    "sequence": lambda r, n, first, card: np.arange(first, first + n) * 3,
    "integer": lambda r, n, first, card: r.integers(0, card, n),
    "zipf": lambda r, n, first, card: np.minimum(r.zipf(1.3, n), 10**9),
    "drift": lambda r, n, first, card: first + r.integers(0, 4 * n, n),
    "float": lambda r, n, first, card: r.random(n) * 1_000,
    "text": lambda r, n, first, card: [f"key-{x:06d}" for x in r.integers(0, card, n)],
    "hex": lambda r, n, first, card: [r.bytes(12).hex() for _ in range(n)],
    "date": lambda r, n, first, card: pa.array(
        (19_000 + r.integers(0, min(card, 3_000), n)).astype(np.int32)
    ).cast(pa.date32()),
    "nulls": lambda r, n, first, card: [None if x % 3 else int(x) for x in r.integers(0, card, n)],
    "decimal": lambda r, n, first, card: pa.array(
        [decimal.Decimal(int(x)).scaleb(-2) for x in r.integers(0, 10**7, n)], pa.decimal128(12, 2)
    ),
}
"""(random, rows, rows before, cardinality) -> values of one appended file."""


@dataclass(frozen=True)
class Drawn:
    """A seed's table: kinds of its columns c0, c1, ..., files appended, rows of each."""

    seed: int
    kinds: tuple[str, ...]
    cardinalities: tuple[int, ...]
    files: int
    rows: int
    target: int

    @property
    def name(self) -> str:
        return f"t{self.seed}"

    def batch(self, number: int) -> pa.Table:
        made = {}
        for place, (kind, card) in enumerate(zip(self.kinds, self.cardinalities, strict=True)):
            random = np.random.default_rng([self.seed, place, number])
            made[f"c{place}"] = COLUMNS[kind](random, self.rows, number * self.rows, card)
        return pa.table(made)


def draw(seed: int) -> Drawn:
    random = np.random.default_rng(seed)
    columns = int(random.integers(3, 7))
    kinds = tuple(random.choice(list(COLUMNS), columns).tolist())
    cards = tuple(int(10**x) for x in random.uniform(0.3, 5.5, columns))
    files, rows = int(random.integers(2, 25)), int(10 ** random.uniform(2.5, 4.3))
    return Drawn(seed, kinds, cards, files, rows, int(random.choice(TARGETS)))


def create(catalog: SqlCatalog, drawn: Drawn) -> Any:
    first = drawn.batch(0)
    properties = {
        "write.target-file-size-bytes": str(drawn.target),
        "write.parquet.row-group-size-bytes": str(max(1 << 17, drawn.target // 4)),
    }
    table = catalog.create_table(f"loop.{drawn.name}", first.schema, properties=properties)
    for number in range(drawn.files):
        table.append(drawn.batch(number))
    return table


def queries(drawn: Drawn, table: Any) -> list[Fragment]:
    """Up to three shapes, lookups or ranges, shuffled over the week before NOW."""
    random = np.random.default_rng([drawn.seed, 1])
    ids = {field.name: field.field_id for field in table.schema().fields}
    rows = table.scan().to_arrow()
    asked: list[tuple[Predicate, tuple[Any, ...], tuple[int, ...]]] = []
    for _ in range(int(random.integers(1, 4))):
        column = f"c{int(random.integers(0, len(drawn.kinds)))}"
        values = sorted({value for value in rows[column].to_pylist() if value is not None})
        if not values:
            continue
        span = (
            0
            if random.random() < 0.5
            else max(1, int(len(values) * 10 ** random.uniform(-3, -0.3)))
        )
        ref, others = Ref(ids[column]), random.integers(0, len(drawn.kinds), 2)
        projection = tuple(sorted({ids[column], *(ids[f"c{int(other)}"] for other in others)}))
        for place in random.integers(
            0, max(1, len(values) - span), int(10 ** random.uniform(0.5, 2.8))
        ):
            low, high = values[place], values[min(len(values) - 1, place + span)]
            if span:
                between = And((Comparison(ref, ">=", 0), Comparison(ref, "<=", 1)))
                asked.append((between, (_literal(low), _literal(high)), projection))
            else:
                asked.append((Comparison(ref, "=", 0), (_literal(low),), projection))
    order = random.permutation(len(asked))
    return [_fragment(table, asked[which], place, len(asked)) for place, which in enumerate(order)]


def _fragment(
    table: Any, asked: tuple[Predicate, tuple[Any, ...], tuple[int, ...]], place: int, of: int
) -> Fragment:
    predicate, literals, projection = asked
    return Fragment(
        source="bench",
        position=place,
        table_uuid=str(table.metadata.table_uuid),
        predicate=predicate,
        literals=literals,
        moving=tuple(None for _ in literals),
        projection=projection,
        weight=1.0,
        event_ms=int(NOW.timestamp() * 1_000) - (of - place) * WEEK_MS // of,
        engine="bench",
    )


def _literal(value: Any) -> Any:
    """In the column's domain (table.values)."""
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, dt.date):
        return (value - dt.date(1970, 1, 1)).days
    if isinstance(value, decimal.Decimal):
        return int(value.scaleb(2))
    return value


def step_of(config: CatalogConfig, drawn: Drawn) -> Step:
    policy = from_document(
        {
            "apiVersion": "layout.lakehouse.dev/v1alpha1",
            "kind": "TableLayoutPolicy",
            "metadata": {"name": "bench"},
            "spec": {"catalogRef": {"name": "rec"}, "tables": {"include": [f"loop.{drawn.name}"]}},
        }
    )
    assert isinstance(policy, TableLayoutPolicy)
    return Step(Target(config, ("loop", drawn.name)), policy, "bench", lambda: NOW)


def multiset(table: Any) -> Counter[tuple[Any, ...]]:
    rows = table.refresh().scan().to_arrow().to_pylist()
    return Counter(tuple(row.values()) for row in rows)


@dataclass(frozen=True)
class Played:
    """held: the rows are as they were. worked: plans with actions. reads: per plan carried out what
    the workload reads, (predicted, found) as shares of before; harm: whether it cost more than
    before, files opened counted."""

    seed: int
    held: bool
    converged: bool
    worked: int
    reads: tuple[tuple[float, float], ...]
    harm: tuple[bool, ...]


def play(spark: Any, config: CatalogConfig, catalog: SqlCatalog, root: Path, seed: int) -> Played:
    """One seed's table to the end; prints its line."""
    drawn = draw(seed)
    table = create(catalog, drawn)
    before = multiset(table)
    store = StateStore(root / f"state{seed}")
    store.append_fragments(queries(drawn, table))
    actor = LocalActor(store, root / "cache", spark=spark)
    steps: list[StepResult] = []
    done = run_until_converged(
        step_of(config, drawn), actor, Approvals(everything=True), lambda event: None,
        lambda: len(steps) >= ROUNDS, steps.append,
    )  # fmt: skip
    held, converged = multiset(table) == before, done.state.state == CONVERGED
    worked = sum(1 for step in steps if step.before.plan.actions)
    reads = tuple(_ratios(step) for step in steps if step.check is not None)
    read = [f"({predicted:.2f}, {found:.2f})" for predicted, found in reads]
    print(
        f"{seed:5d}  {done.state.state:9s}  {worked} plans  rows {'equal' if held else 'CHANGED'}  "
        f"{drawn.files} x {drawn.rows} to {drawn.target >> 10} KiB  "
        f"{' '.join(drawn.kinds)}  read (predicted, found): {' '.join(read) or '-'}",
        flush=True,
    )
    harm = tuple(step.check.harm for step in steps if step.check is not None)
    return Played(seed, held, converged, worked, reads, harm)


def _ratios(step: StepResult) -> tuple[float, float]:
    assert step.check is not None
    before = max(step.check.before, 1.0)
    return step.check.predicted / before, step.check.actual / before


def write(played: Sequence[Played], first: int, last: int) -> str:
    reads = [pair for one in played for pair in one.reads]
    errors = sorted(abs(found / predicted - 1) for predicted, found in reads if predicted > 0)
    rows = [
        ("what", "goal", "found"),
        ("tables", "-", str(len(played))),
        ("rows changed", "0", str(sum(not one.held for one in played))),
        (f"not Converged after {ROUNDS} plans", "0", str(sum(not one.converged for one in played))),
        ("most plans with work of one table", "-", str(max(one.worked for one in played))),
        ("plans carried out", "-", str(len(reads))),
        ("of them, read more bytes than before", "-",
         str(sum(found > 1.005 for _, found in reads))),
        ("of them, cost more than before, files opened counted", "0",
         str(sum(sum(one.harm) for one in played))),
    ]  # fmt: skip
    if errors:
        for share in (0.5, 0.9):
            error = errors[int(share * (len(errors) - 1))]
            rows.append((f"read, found against predicted, off by at most, {share:.0%}", "-",
                         f"{error:.1%}"))  # fmt: skip
    note = (
        "Ten kinds of columns, 2 to 25 files, targets of 128 KiB to 512 MiB, up to three shapes of "
        "queries; planned, rewritten by Spark and planned again until nothing is left. Read: "
        "planned bytes without the 1 MiB that plans count for opening a file, for which a rewrite "
        "of tiny files may well read more bytes."
    )
    command = f"python -m bench.convergence {first} {last}"
    return write_section("Convergence of random tables", command, rows, note)


def main(arguments: Sequence[str]) -> int:
    first, last = (int(arguments[0]), int(arguments[1])) if len(arguments) > 1 else (0, 40)
    LOG.parent.mkdir(parents=True, exist_ok=True)
    done = {one.seed for one in known()}
    left = [seed for seed in range(first, last) if seed not in done]
    if left:
        with tempfile.TemporaryDirectory() as directory:
            _play_all(Path(directory), left)
    played = [one for one in known() if first <= one.seed < last]
    print(write(played, first, last))
    return 0 if all(one.held and one.converged for one in played) else 1


def _play_all(root: Path, seeds: Sequence[int]) -> None:
    (root / "warehouse").mkdir()
    config = sqlite_catalog(root)
    catalog = SqlCatalog(config.name, **dict(config.properties))
    catalog.create_namespace("loop")
    conf = {**SMALL_SESSION, **sqlite_spark_conf(root)}
    spark = session.start(conf, app="convergence", master="local[2]")
    for seed in seeds:
        played = play(spark, config, catalog, root, seed)
        with LOG.open("a") as log:
            log.write(json.dumps(asdict(played)) + "\n")
    session.stop(spark)


def known() -> list[Played]:
    return [Played(**line) for line in logged(LOG)]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
