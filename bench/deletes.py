"""What each way to write an update costs, and what the maintenance of its deletes costs.

`python -m bench.deletes [--scale S] [--iterations N]` puts TPC-H lineitem into eight buckets and
merges the three cases of "Petabyte-Scale Row-Level Operations in Data Lakehouses", section 5, into
it: by copy-on-write, by positions per partition, by deletion vectors, and by equality deletes as
Flink writes them. Then it maintains the deletes, beside Iceberg's procedures on the same files.
Tables share the data files of one, so that all begin alike. CPU seconds are those of driver and
JVM. Sections of bench/RESULTS.md: Maintenance of deletes, What compaction gives back, and those of
`bench.delete_modes`; a case that has ended is in them if the rest is stopped. With --found, what
was measured is kept in a file, and a later run with other --cases adds to it.
"""

from __future__ import annotations

import argparse
import math
import pickle
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq

from bench.delete_lab import LINEITEM, ORDERS, ROUNDS, Bed, Lab, State, aggregates
from bench.delete_modes import (
    BUCKETS,
    CASES,
    COMPACTION,
    CONVERSION,
    FOREIGN_MAJOR,
    HELD,
    MAJOR,
    MICRO,
    MODEL,
    NEW_ROWS,
    PACKED,
    PACKING,
    PIECES,
    PROCEDURE,
    Cost,
    Decay,
    Found,
    Held,
    Maintenance,
    Written,
    choices,
    decayed,
    fitted,
    modes,
    operation_on,
    rewriting,
    verdict,
)
from bench.results import write_section
from reconciler.plan.actions.base import Action
from reconciler.plan.actions.delete_maintenance import CompactDeletes, ConvertDeletes
from reconciler.plan.actions.rewrite import ApplyDeletes, BinPack
from reconciler.queries.rewrite_cost import ThroughputSample
from reconciler.spark.session import session
from tests.spark.equality import add_equality_delete, delete_paths

FEW = 3
"""Iterations of equality deletes."""
FOLDED = 6
"""Iterations of vectors, which each operation folds into those of before."""
HELD_TIMES = 3
"""Iterations of the case on another table."""
EAGER = 2
"""Iterations of copy-on-write: every one costs the same."""
WAYS = {
    "copy-on-write": (2, "copy-on-write", EAGER),
    "positions": (2, "merge-on-read", 0),
    "vectors": (3, "merge-on-read", FOLDED),
    "equality": (2, "copy-on-write", FEW),
}
"""Format version, property, and iterations, 0 for all of them."""


def iterate(bed: Bed, name: str, way: str, case: str, number: int) -> None:
    """One operation: by MERGE, or as an upsert by equality."""
    lab, changes = bed.lab, bed.changes[case] / f"n={number}"
    full, columns, names = lab.bench.full(name), ", ".join(bed.types), bed.source.keys
    source = f"SELECT {columns} FROM parquet.`{changes}`"
    if way != "equality":
        on = " AND ".join(f"t.{key} = s.{key}" for key in names)
        lab.bench.sql(
            f"MERGE INTO {full} t USING ({source}) s ON {on} "
            "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        )
        return
    keys = pq.read_table(changes, columns=[*names, "b"])
    for file in bed.files:
        bucket = bed.bucket(file)
        own = keys.filter(pc.equal(keys["b"], bucket))
        if own.num_rows:
            columns_of = {key: own[key].combine_chunks() for key in names}
            add_equality_delete(lab.bench, name, columns_of, like=file.file_path)
    lab.bench.sql(f"INSERT INTO {full} {source}")


@dataclass(frozen=True)
class Trace:
    """A table after each operation on it. each: the cheapest of them."""

    name: str
    each: Cost
    states: tuple[State, ...]


def write(bed: Bed, case: str, way: str) -> Trace:
    version, mode, few = WAYS[way]
    name = bed.table(version, mode)
    costs, states = [], []
    for number in range(min(few or bed.iterations, bed.iterations)):
        costs.append(bed.lab.measured(partial(iterate, bed, name, way, case, number)))
        states.append(bed.lab.state(name))
    return Trace(name, min(costs, key=lambda cost: cost.cpu), tuple(states))


@dataclass(frozen=True)
class Done:
    """Maintenance of the deletes of a way of writing. state: the table afterwards."""

    way: str
    cost: Cost
    state: State


def maintain(
    bed: Bed, traces: Mapping[str, Trace], ledger: list[ThroughputSample]
) -> dict[str, Done]:
    """Return what was done, by title, for the ways that were written. Ours and Iceberg's are on the
    same files: the table is rolled back in between."""
    done = {}
    for title, (way, actions) in OURS.items():
        if way in traces:
            name, noted = traces[way].name, [] if way == "vectors" or title == PACKED else ledger
            act = partial(bed.lab.run, name, actions(bed, name), noted)
            done[title] = _undone(bed, traces[way], way, act)
    for title, (way, procedure) in THEIRS.items():
        if way in traces:
            arguments = f"table => 'jobs.{traces[way].name}', options => map('rewrite-all', 'true')"
            act = partial(bed.lab.call, procedure, arguments)
            done[title] = _undone(bed, traces[way], way, act)
    return done


def _undone(bed: Bed, trace: Trace, way: str, act: Callable[[], None]) -> Done:
    done = Done(way, bed.lab.measured(act), bed.lab.state(trace.name))
    bed.lab.call("rollback_to_snapshot", f"'jobs.{trace.name}', {trace.states[-1].snapshot}")
    return done


def _packing(bed: Bed, name: str) -> list[Action]:
    """What a plan does with the data files that the operations left, in each partition."""
    known = {file.file_path for file in bed.files}
    left: dict[int, list[str]] = {}
    for file in bed.lab.bench.files(name):
        if file.file_path not in known:
            left.setdefault(bed.bucket(file), []).append(file.file_path)
    return [BinPack(inputs=tuple(sorted(paths))) for paths in left.values() if len(paths) > 1]


def _compaction(bed: Bed, name: str) -> list[Action]:
    return [CompactDeletes(inputs=delete_paths(bed.lab.bench, name))]


def _conversion(bed: Bed, name: str) -> list[Action]:
    return [ConvertDeletes(inputs=delete_paths(bed.lab.bench, name, 2))]


def _applying(bed: Bed, name: str) -> list[Action]:
    """As a plan has them: an action for each partition."""
    return [ApplyDeletes(inputs=(file.file_path,)) for file in bed.files]


def _both(bed: Bed, name: str) -> list[Action]:
    return [*_packing(bed, name), *_compaction(bed, name)]


OURS: Mapping[str, tuple[str, Callable[[Bed, str], list[Action]]]] = {
    COMPACTION: ("positions", _compaction), PACKED: ("positions", _both),
    PACKING: ("vectors", _packing), CONVERSION: ("equality", _conversion),
    MAJOR: ("equality", _applying),
}  # fmt: skip
THEIRS = {
    PROCEDURE: ("positions", "rewrite_position_delete_files"),
    FOREIGN_MAJOR: ("equality", "rewrite_data_files"),
}
"""Titles of maintenance: of which way of writing, and by what."""
OPENED = (
    "Opened: data files, delete files, pairs of a data file and a delete file that applies to it, "
    "and the tasks that Spark makes of them."
)


def _maintenance(found: Found) -> tuple[list[tuple[str, ...]], list[str]]:
    rows = [("case and action", "CPU s", "s", "opened before", "after", "read before",
             "read after")]  # fmt: skip
    for (case, title), one in found.maintenance.items():
        rows.append((f"{case}: {title}", f"{one.cost.cpu:.2f}", f"{one.cost.wall:.2f}",
                     str(one.opened_before), str(one.opened_after), f"{one.before:.2f}",
                     f"{one.after:.2f}"))  # fmt: skip
    return rows, [_goals(found, case) for case in found.cases]


def _goals(found: Found, case: str) -> str:
    """Return what the notes say of the goals in a case."""
    eager, lazy = found.by[case, "copy-on-write"].each, found.by[case, "positions"]
    every = {title: entry for (of, title), entry in found.maintenance.items() if of == case}
    cost, read = ({t: e.cost for t, e in every.items()}, {t: e.after for t, e in every.items()})
    lost = lazy.after - lazy.before
    back = {title: 100 * (lazy.after - read[title]) / lost for title in (COMPACTION, PROCEDURE,
            PACKED)} if lost > 0 else {}  # fmt: skip
    error = 100 * 2 * found.noise / lost if lost > 0 else 0.0
    given = (
        f"{back[COMPACTION]:.0f} % of the degradation back ({back[PROCEDURE]:.0f} % by the "
        f"procedure, {back[PACKED]:.0f} % if small data files are packed too; within {error:.0f})"
        if back
        else "nothing was lost"
    )
    mine, theirs, turned, major, foreign = (
        cost[title] for title in (COMPACTION, PROCEDURE, CONVERSION, MAJOR, FOREIGN_MAJOR)
    )
    like = {way: read[CONVERSION] / found.by[case, way].few for way in ("positions", "vectors")}
    return (
        f"- {case}: compaction {mine.cpu / eager.cpu:.3f} of a copy-on-write iteration "
        f"({mine.wall / eager.wall:.3f} of its time), the procedure "
        f"{theirs.cpu / eager.cpu:.3f} ({theirs.wall / eager.wall:.3f}), {given}; "
        f"conversion {turned.cpu / major.cpu:.2f} of our major compaction, "
        f"{turned.cpu / foreign.cpu:.2f} of the procedure's ({turned.wall / major.wall:.2f} "
        f"and {turned.wall / foreign.wall:.2f} of their time), reading afterwards "
        f"{like['positions']:.2f} of reading the same operations as positions, "
        f"{like['vectors']:.2f} as vectors"
    )


def play(bed: Bed, case: str, found: Found, rounds: int = ROUNDS) -> None:
    """Write a case in every way, maintain it, and read all tables that came of it in turns."""
    traces = {}
    for way in WAYS:
        traces[way] = write(bed, case, way)
        print(case, way, traces[way].each, flush=True)
    done = maintain(bed, traces, found.ledger.setdefault(case, []))
    clean = bed.lab.state(bed.base)
    few = {way: trace.states[min(FEW, len(trace.states)) - 1] for way, trace in traces.items()}
    states = [clean, *few.values(), *(one.state for one in done.values())]
    for trace in traces.values():
        states += [trace.states[0], trace.states[-1]]
    read = bed.lab.in_turns(states, aggregates(bed.types, bed.source.updated), rounds)
    found.noise = max(found.noise, *(one.error for one in read.values()))
    for way, trace in traces.items():
        first, last = trace.states[0], trace.states[-1]
        found.by[case, way] = Written(
            trace.name, trace.each, len(trace.states), read[clean].cpu, read[first].cpu,
            read[few[way]].cpu, read[last].cpu,
        )  # fmt: skip
    for title, one in done.items():
        last = traces[one.way].states[-1]
        found.maintenance[case, title] = Maintenance(
            one.cost, read[last].cpu, read[one.state].cpu, bed.lab.opened(last),
            bed.lab.opened(one.state),
        )  # fmt: skip
        print(case, title, found.maintenance[case, title], flush=True)


def decay(bed: Bed) -> list[Decay]:
    """Return what readings lose by micro-batches where a bucket has several files, and what
    compaction gives back: with the executors' cache of delete files, and without."""
    trace = write(bed, MICRO, "positions")
    done = maintain(bed, {"positions": trace}, [])
    states = {"clean": bed.lab.state(bed.base), "all operations": trace.states[-1]}
    states |= {title: one.state for title, one in done.items()}
    both = [replace(state, cached=cached) for state in states.values() for cached in (True, False)]
    read = bed.lab.in_turns(both, aggregates(bed.types, bed.source.updated))
    return [
        Decay(
            title, done[title].cost if title in done else None, bed.lab.opened(state), read[state],
            read[replace(state, cached=False)],
        )
        for title, state in states.items()
    ]  # fmt: skip


def hold(lab: Lab) -> Held:
    """Return what operations cost on a table that no constant was fitted to."""
    bed = Bed(lab, None, HELD_TIMES, ORDERS, [HELD])
    operation = operation_on(bed.rows, bed.bytes, bed.rows // 20)
    return Held(operation, {way: write(bed, HELD, way).each for way in MODEL})


def played(
    bed: Bed, cases: Sequence[str], found: Found, until: float = math.inf, rounds: int = ROUNDS
) -> Iterator[str]:
    """Play the cases and yield each; leave out those that would not end before `until`, a time as
    of time.monotonic, if they take as long as the longest so far."""
    longest = 0.0
    for case in cases:
        started = time.monotonic()
        if started + longest > until:
            return
        play(bed, case, found, rounds)
        longest = max(longest, time.monotonic() - started)
        yield case


def _report(bed: Bed, found: Found, command: str, taken: float, rounds: int) -> None:
    ratios = rewriting(found)
    notes = (
        f"TPC-H lineitem, {bed.rows:,} rows, {found.bytes / (1 << 20):.0f} MiB in {BUCKETS} files; "
        f"the cheapest of {bed.iterations} MERGEs by positions, {EAGER} by copy-on-write, "
        f"{min(FOLDED, bed.iterations)} by vectors, {min(FEW, bed.iterations)} by equality, which "
        "is written by hand as Flink does. Each operation "
        f"adds {NEW_ROWS * BUCKETS} rows. Readings of all columns in CPU seconds: all tables of a "
        f"case in turns, {rounds} times, the mean without the least and the most; its standard "
        f"error is at most {found.noise:.3f}. Model: `advisor/deletes/mode_cost`, of "
        "the writing alone, before anything was measured; calibrated: after our own actions of the "
        "other cases, as the ledger would hold them, with the range of what is uncertain. Its "
        f"constants were chosen with an earlier run of lineitem's cases in view; {HELD}: "
        "of TPC-H's orders at the same scale, which nothing was fitted to. "
        f"{fitted(found)} Goal: within 25 %. {len(ratios)} rewrites took "
        f"{statistics.median(ratios):.2f} of the CPU of their constants ({min(ratios):.2f} to "
        f"{max(ratios):.2f}). "
        f"The bench took {taken:.0f} s."
    )
    write_section("Write modes", command, modes(found), notes)
    rows, goals = _maintenance(found)
    notes = (
        f'Of the tables of section "Write modes": the deletes of {bed.iterations} operations by '
        f"position, of {FEW} by equality. Ours include verification; the procedures verify "
        f"nothing. {OPENED} "
        f"Reading after a conversion is set beside reading the first {FEW} operations "
        "written as positions per partition and as vectors, with as many small data files. Goals: "
        "compaction 0.15, back 45 %, conversion 0.4, reading 1.1.\n\n" + "\n".join(goals)
    )
    print(write_section("Maintenance of deletes", command, rows, notes))
    notes = (
        "CPU seconds of an operation with its share of so many readings and of the maintenance, "
        "from the measured operations, readings and maintenance; in brackets by the calibrated "
        "model, which chooses. What the first operation takes of a reading stays; what later ones "
        "add is undone by what was seen to undo it: a compaction gives back what it gave back "
        "here, a rewrite of the files all of it. A batch takes the buckets in turns, so that an "
        "eighth is rewritten for each, after eight times as many readings. A reading is known "
        f"to {2 * found.noise:.3f} CPU s (two standard errors), the cost at 1,000 of them to "
        f"{2000 * found.noise:.0f}. Auto's mode and its cost / that "
        "of the cheapest, among the modes of the table's format version and among all three. "
        f"{verdict(found)}"
    )
    write_section("Choice of mode", command, choices(found), notes)


def _report_decay(bed: Bed, found: Found, command: str) -> None:
    eager = found.by[MICRO, "copy-on-write"].each if (MICRO, "copy-on-write") in found.by else None
    compaction = next(one.cost for one in found.decay if one.title == COMPACTION)
    assert compaction is not None
    beside = f" ({compaction.cpu / eager.cpu:.3f} of a copy-on-write iteration)" if eager else ""
    notes = (
        f"TPC-H lineitem, {bed.rows:,} rows in {BUCKETS} buckets of {PIECES} files; "
        f"{bed.iterations} operations on 1 % of the rows each, as positions per partition; "
        f"compaction took {compaction.cpu:.2f} CPU s{beside}. {OPENED} Readings of all columns in "
        "CPU seconds, in turns as above; without cache: without the executors' cache of delete "
        "files, which Spark has by default. In brackets: two standard errors. Goal: 45 % back."
    )
    print(write_section("What compaction gives back", command, decayed(found), notes))


def _kept(path: Path | None) -> Found | None:
    """Return the measurements of earlier runs, None if there are none."""
    if path is None or not path.exists():
        return None
    kept = pickle.loads(path.read_bytes())
    assert isinstance(kept, Found)
    return kept


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=0.01)
    parser.add_argument("--iterations", type=int, default=10)
    parser.add_argument("--minutes", type=float, default=60.0, help="leave out cases after that")
    parser.add_argument("--cases", nargs="*", default=list(CASES), choices=CASES)
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="readings of each table")
    parser.add_argument("--found", type=Path, help="measurements of other cases, to be added to")
    arguments = parser.parse_args()
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="layout-bench-") as path:
        directory = Path(path)
        (directory / "warehouse").mkdir()
        tpchgen = str(Path(sys.executable).parent / "tpchgen-cli")
        subprocess.run(
            [tpchgen, "parquet", "-s", f"{arguments.scale:g}",
             f"--tables={LINEITEM.view},{ORDERS.view}", f"--output-dir={directory}"],
            check=True, capture_output=True,
        )  # fmt: skip
        lab = Lab(directory, directory)
        small = Bed(lab, 4_000, 1)
        list(played(small, [MICRO], small.found()))  # compiles the code
        bed = Bed(lab, None, arguments.iterations, cases=arguments.cases)
        found = _kept(arguments.found) or bed.found()
        if HELD not in found.held:
            found.held[HELD] = hold(lab)
        command = f"python -m bench.deletes {' '.join(sys.argv[1:])}".strip()
        until = started + 60 * arguments.minutes
        for case in played(bed, arguments.cases, found, until, arguments.rounds):
            print(f"{case}: {time.monotonic() - started:.0f} s", flush=True)
            _report(bed, found, command, time.monotonic() - started, arguments.rounds)
            if arguments.found:
                arguments.found.write_bytes(pickle.dumps(found))
        if not found.decay and time.monotonic() < until:
            parted = Bed(lab, None, arguments.iterations, cases=[MICRO], pieces=PIECES)
            found.decay = decay(parted)
            _report_decay(parted, found, command)
        session.stop(lab.spark)
    return 0


if __name__ == "__main__":
    sys.exit(main())
