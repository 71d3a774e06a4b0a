"""Cost of rewriting files: CPU and time by kind of work, and the price of a byte in read bytes.

A byte rewritten costs as much as rho bytes read (docs/design/definitions.md#rho). The constants are
measured; the ledger's outcomes scale them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field

import numpy as np

from reconciler.queries.machine_speed import UNKNOWN_SPEED, Speed, speed_of


@dataclass(frozen=True, slots=True)
class Rho:
    """CPU of rewriting one input byte, divided by CPU of reading one projected byte."""

    value: float = 4.0
    """The ratio."""
    label: str = "model"
    """Where it comes from: "model" or "measured"."""


PRIOR_RHO = Rho()


def rho_from(measured: Sequence[float]) -> Rho:
    """Return the geometric mean of the measured ratios and the prior of 4, which counts once."""
    usable = [m for m in measured if np.isfinite(m) and m > 0.0]
    if not usable:
        return PRIOR_RHO
    logs = np.log(np.array([PRIOR_RHO.value, *usable]))
    return Rho(float(np.exp(logs.mean())), "measured")


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows that a rewrite arranges."""

    count: float
    """Number of rows."""
    text: float
    """Bytes of their strings and binaries outside dictionaries; those of the key count KEY_TEXT
    times."""
    columns: int
    """Number of columns of the schema."""


NO_ROWS = Rows(0.0, 0.0, 0)


@dataclass(frozen=True, slots=True)
class ThroughputSample:
    """The measured times of one executed action."""

    kind: str
    """The action's `work`: "pack" (rows keep their order), "sort" (by a key or curve),
    "compact-deletes" or "convert-deletes"."""
    bytes: int
    """Bytes of the input files."""
    cpu_seconds: float
    """CPU seconds of its tasks."""
    seconds: float
    """Wall-clock time in seconds."""
    files: int = 0
    """Number of files read."""
    first: bool = True
    """Whether it was the first of its kind in its plan, so that it paid for the JVM's warm-up."""
    rows: Rows | None = None
    """The rows and their text; None where that is unknown."""


CPU_PER_BYTE: Mapping[str, float] = {
    "pack": 4.4e-8, "sort": 6e-8, "compact-deletes": 2e-6, "convert-deletes": 1.2e-7,
}  # fmt: skip
MORE_TO_SORT = 1.0 - CPU_PER_BYTE["pack"] / CPU_PER_BYTE["sort"]
"""Share of a rewrite's cost that sorting adds to merging the same files."""
READ_CPU_PER_BYTE = 4.75e-8
"""CPU seconds in which Spark's vectorised reader reads a stored byte, on the same tables."""

CPU_PER_FILE = 0.003
CPU_PER_ACTION: Mapping[str, float] = {
    "pack": 0.045, "sort": 0.045, "compact-deletes": 0.05, "convert-deletes": 0.05,
}  # fmt: skip
CPU_OF_FIRST: Mapping[str, float] = {
    "pack": 0.05, "sort": 0.05, "compact-deletes": 0.8, "convert-deletes": 1.0,
}  # fmt: skip
"""CPU seconds of reading, sorting, writing and verifying, by kind: rewrites as BY_ROWS, on the same
tables; maintenance of deletes on two buckets of lineitem, 1.5 million rows in 39 MB, with 6 to 16
delete files. The first action of a kind also pays for what is loaded or compiled once: little for
rewrites, which pass no JVM."""


@dataclass(frozen=True, slots=True)
class ByRows:
    """CPU seconds of the same where rows are known."""

    row: float
    """Of a row."""
    value: float
    """Of a column in a row."""
    text: float
    """Of a byte of text."""
    file: float = CPU_PER_FILE
    """Of a file that is read."""
    action: float = 0.045
    """Of an action."""

    def rows_cpu(self, rows: Rows) -> float:
        return (self.row + self.value * rows.columns) * rows.count + self.text * rows.text

    def cpu_seconds(self, rows: Rows, files: int) -> float:
        return self.action + self.file * files + self.rows_cpu(rows)


BY_ROWS: Mapping[str, ByRows] = {
    "pack": ByRows(1.0e-7, 5.0e-8, 2e-9), "sort": ByRows(3.2e-7, 7.2e-8, 2e-9),
}  # fmt: skip
"""Fitted to rewrites of 21 kinds of tables, of 25,000 to 1.2 million rows in 3 to 62 columns, 1 to
200 files and 1 to 9 actions, and of lineitem at scale 1 (bench/RESULTS.md, "CPU by rows"): two
thirds are within 25 %."""

KEY_TEXT = 5.0
"""Bytes of other text that a byte of the key's text costs as much as: it is compared, too."""

MOSTLY_WORK = 0.5
"""Least part of an action's modelled CPU that its rows or bytes are, for it to tell of the
machine's speed: small actions tell how well their fixed parts are known."""
LONG_RUN = 1.0
"""Modelled CPU seconds from which a run tells of it."""

START_SECONDS, SPARK_SECONDS = 2.0, 2.5
"""Time of starting the JVM, and Spark in it: together 4.6 CPU seconds, of several threads. Until
runs were measured, as all seconds here."""

COMMIT_SECONDS = 0.5
"""Time of a group beside its tasks: planning its jobs, its commit, checks before and after. A
JVM of two cores used 0.8 to 1.4 CPU seconds of several threads for it, over 17 groups of six
plans."""

WALL_PER_CPU = 1.0
"""Seconds of a group per CPU second: a group is one task."""


@dataclass(frozen=True, slots=True)
class RunTimes:
    """The times of one execution of a plan, on any table of a state store."""

    start: float | None
    """Seconds until the JVM was there, with Spark in it where executors are needed; None if it ran
    already."""
    beside: float
    """Seconds of everything that is no task of a group."""
    groups: int
    """Number of groups committed."""
    tasks: float
    """Wall-clock seconds of the committed groups' tasks."""
    cpu: float
    """CPU seconds of the committed groups' tasks."""
    model: float
    """CPU seconds of these groups by the constants of this module."""

    def document(self) -> dict[str, int | None]:
        """In whole milliseconds, for `run_times`."""
        return {
            name: None if value is None else round(1000 * value)
            for name, value in asdict(self).items()
            if name != "groups"
        } | {"groups": self.groups}


def run_times(bodies: Iterable[Mapping[str, int | None]]) -> tuple[RunTimes, ...]:
    """Inverse of `RunTimes.document`, for several."""
    return tuple(
        RunTimes(
            start=None if body["start"] is None else body["start"] / 1000,
            groups=body["groups"] or 0,
            **{name: (body[name] or 0) / 1000 for name in ("beside", "tasks", "cpu", "model")},
        )
        for body in bodies
    )


@dataclass(frozen=True, slots=True)
class Throughput:
    """The time model of a rewrite, scaled by the measured times of executed ones."""

    cpu_scale: Mapping[str, float] = field(default_factory=lambda: dict.fromkeys(CPU_PER_BYTE, 1.0))
    """By kind, measured CPU divided by modelled CPU; 1 until the ledger has outcomes."""
    seconds_scale: Mapping[str, float] = field(
        default_factory=lambda: dict.fromkeys(CPU_PER_BYTE, 1.0)
    )
    """By kind, measured time divided by modelled time; 1 until the ledger has outcomes."""
    label: str = "model"
    """What the scales come from: "measured", "other tables" or "model"."""
    start_seconds: float = START_SECONDS
    """Seconds that each plan takes for the start of the JVM."""
    group_seconds: float = COMMIT_SECONDS
    """Seconds that each group takes beside its tasks."""
    speed: Speed = UNKNOWN_SPEED
    """The machine's speed for work that is no rewrite, such as a writer's statement."""

    def plan_seconds(self, seconds: float, groups: int, by_spark: int = 0) -> float:
        """Return the wall-clock seconds of a plan: its actions, its groups and the start of a JVM.

        seconds: of the actions; a plan of 0 seconds rewrites nothing and takes 0. by_spark: number
        of actions whose rows go through Spark; the start of Spark counts once.
        """
        if seconds <= 0.0:
            return 0.0
        spark = SPARK_SECONDS if by_spark else 0.0
        return self.start_seconds + spark + self.group_seconds * groups + seconds

    def cpu_seconds(
        self, kind: str, size: int, files: int = 0, first: bool = True, rows: Rows | None = None
    ) -> float:
        return self.cpu_scale[kind] * modelled_cpu(kind, size, files, first, rows)

    def seconds(
        self, kind: str, size: int, files: int = 0, first: bool = True, rows: Rows | None = None
    ) -> float:
        model = modelled_cpu(kind, size, files, first, rows)
        return self.seconds_scale[kind] * WALL_PER_CPU * model


def modelled_cpu(kind: str, size: int, files: int, first: bool, rows: Rows | None = None) -> float:
    """Return the CPU seconds of rewriting `size` bytes of `files` files, verification included."""
    if rows is not None and kind in BY_ROWS:
        work = BY_ROWS[kind].cpu_seconds(rows, files)
    else:
        work = CPU_PER_ACTION[kind] + CPU_PER_FILE * files + CPU_PER_BYTE[kind] * size
    return work + (CPU_OF_FIRST[kind] if first else 0.0)


PRIOR_THROUGHPUT = Throughput()


def throughput_from(
    samples: Sequence[ThroughputSample], runs: Sequence[RunTimes] = ()
) -> Throughput:
    """Return the median of actual / modelled over the table's executed rewrites per kind.

    A kind without executed actions takes the value of the first kind that has some; a table without
    any takes that of `runs`, which are of all tables. So do the fixed parts of a plan. A prior
    counts once among what other tables say.
    """
    start = _middle(START_SECONDS, [r.start for r in runs if r.start is not None])
    beside = [max(r.beside, 0.0) / r.groups for r in runs if r.groups]
    each = _middle(COMMIT_SECONDS, beside)
    cpu: dict[str, float] = {}
    wall: dict[str, float] = {}
    for kind in CPU_PER_BYTE:
        mine = [s for s in samples if s.kind == kind and s.bytes > 0]
        if mine:
            model = [modelled_cpu(kind, s.bytes, s.files, s.first, s.rows) for s in mine]
            pairs = list(zip(mine, model, strict=True))
            cpu[kind] = float(np.median([s.cpu_seconds / m for s, m in pairs]))
            wall[kind] = float(np.median([s.seconds / (WALL_PER_CPU * m) for s, m in pairs]))
    known = [r for r in runs if r.model > 0.0 and r.cpu > 0.0]
    speed = speed_of(
        _telling(samples, "pack"),
        _telling(samples, "sort"),
        [r.cpu / r.model for r in known if r.model >= LONG_RUN],
    )
    if not cpu:
        of_cpu = _middle(1.0, [r.cpu / r.model for r in known])
        of_time = _middle(1.0, [r.tasks / (WALL_PER_CPU * r.model) for r in known])
        return Throughput(
            dict.fromkeys(CPU_PER_BYTE, of_cpu), dict.fromkeys(CPU_PER_BYTE, of_time),
            "other tables" if known else "model", start, each, speed,
        )  # fmt: skip
    for kind in CPU_PER_BYTE:
        cpu.setdefault(kind, next(iter(cpu.values())))
        wall.setdefault(kind, next(iter(wall.values())))
    return Throughput(cpu, wall, "measured", start, each, speed)


def _telling(samples: Sequence[ThroughputSample], kind: str) -> list[float]:
    """Return measured / modelled CPU of the actions of a kind that are mostly work."""
    ratios = []
    for one in samples:
        if one.kind == kind:
            model = modelled_cpu(kind, one.bytes, one.files, one.first, one.rows)
            fixed = modelled_cpu(kind, 0, 0, False, None if one.rows is None else NO_ROWS)
            work = modelled_cpu(kind, one.bytes, 0, False, one.rows) - fixed
            if work >= MOSTLY_WORK * model:
                ratios.append(one.cpu_seconds / model)
    return ratios


def _middle(prior: float, measured: Sequence[float]) -> float:
    return float(np.median([prior, *measured]))


def rewrite_cost(rho: Rho, input_bytes: int) -> float:
    """Return rho x input bytes, in bytes of reading (docs/design/definitions.md#gate-and-floor)."""
    return rho.value * float(input_bytes)
