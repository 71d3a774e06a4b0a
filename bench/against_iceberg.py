"""Our rewrites against Iceberg's procedures and other native engines, on the same files.

    python -m bench.against_iceberg [--scale 1] [--rounds 3] [--files 8]

makes TPC-H lineitem (tpchgen-cli) as one Iceberg table of equal files in arrival order, and writes
bench/RESULTS.md: seconds, CPU of the whole process tree, and how well each result is clustered. A
session as Spark starts it and one like ours are alive side by side and take turns with rewrites by
DuckDB, DataFusion and polars (`bench.native_engines`), so that a machine that becomes slower or
faster meanwhile does so for all: a ratio is of two runs of one round. Ours are verified, the
others read nothing back. `--files 1000` measures the merge of many files.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from bench.cpu import cpu_seconds
from bench.results import write_section
from reconciler.plan.actions.rewrite import BinPack, Cluster, Rewrite
from reconciler.plan.ordering import Hilbert, Lexicographic
from reconciler.spark.session import iceberg, session
from tests.conftest import sqlite_catalog, sqlite_spark_conf
from tests.spark.tables import Bench

EXTENSIONS = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
HEAP = "8g"
"""Two sessions are alive at a time."""
FEW = 100
"""Files that one task a file writes from what Spark reads at once."""
TARGET = 32 << 20
DATE, BOTH = ("l_shipdate",), ("l_shipdate", "l_partkey")
JAVAS_DEFAULT = {"spark.driver.defaultJavaOptions": "-XX:+UseG1GC"}
STOCK, LIKE_OURS = "as Spark starts it", "like ours"
NATIVE = ("ours", "ours-spilled", "DuckDB", "DataFusion", "polars")
KINDS = ("pack", "sort", "hilbert")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=3, help="besides one to warm up")
    parser.add_argument("--files", type=int, default=8, help="of the table before")
    parser.add_argument("--kinds", default=",".join(KINDS))
    arguments = parser.parse_args()
    kinds = arguments.kinds.split(",")
    with tempfile.TemporaryDirectory(prefix="layout-bench-") as scratch:
        directory = Path(scratch)
        source = generate(directory, arguments.scale)
        given = (source, arguments.files)
        with (
            _Session(directory / "stock", given, JAVAS_DEFAULT) as stock,
            _Session(directory / "ours", given, {}) as ours,
        ):
            native = _Native(directory / "native", ours.files)
            turns = [
                (f"{where}: {what} {kind}", partial(session.play, f"{what} {kind}"))
                for kind in kinds
                for where, session, what in (
                    (STOCK, stock, "Iceberg"), (LIKE_OURS, ours, "ours"),
                    (LIKE_OURS, ours, "Iceberg"),
                )
            ]  # fmt: skip
            turns += [
                (f"native: {engine} {kind}", partial(native.play, engine, kind))
                for kind in kinds
                for engine in NATIVE
                if kind != "hilbert" or engine.startswith("ours")
            ]
            played: dict[str, list[Measured]] = {}
            for turn in range(arguments.rounds + 1):
                for name, play in turns:
                    found = play()
                    print(f"{turn} {name}: {found}", file=sys.stderr, flush=True)
                    if turn:
                        played.setdefault(name, []).append(found)
    command = f"python -m bench.against_iceberg {' '.join(sys.argv[1:])}".strip()
    print(_written(played, kinds, command, arguments))
    return 0


@dataclass(frozen=True)
class Measured:
    """One rewrite."""

    seconds: float
    """From its start to its commit; of native engines, to their last file."""
    cpu: float
    """CPU seconds of the whole process tree."""
    check: float = 0.0
    """CPU seconds of comparing rows: of ours, included in `cpu`; of native ours, not included."""
    peak: float = 0.0
    """Peak memory of a native process, in bytes."""
    bytes: float = 0.0
    """Written."""
    files: int = 1
    """Written."""
    depths: tuple[float, ...] = ()
    """In how many files a value lies, on average over the range of each column of BOTH."""


class _Native:
    """Plays native engines on the files of a table, each in a process of its own."""

    def __init__(self, directory: Path, files: Sequence[str]) -> None:
        self._directory, self._files = directory, files

    def play(self, engine: str, kind: str) -> Measured:
        with tempfile.TemporaryDirectory(prefix=self._directory.name) as made:
            command = [sys.executable, "-m", "bench.native_engines", engine, kind, made]
            run = subprocess.run([*command, *self._files], capture_output=True, check=True)
        return Measured(**json.loads(run.stdout))


class _Session:
    """A Spark session in a process of its own that plays contenders by their name."""

    files: Sequence[str] = ()
    """Paths of the files of the table that is rewritten."""

    def __init__(
        self, directory: Path, given: tuple[Path, int], settings: Mapping[str, str]
    ) -> None:
        context = multiprocessing.get_context("spawn")
        self._ours, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, directory, given, settings))

    def __enter__(self) -> _Session:
        self._process.start()
        self.files = self._ours.recv()
        return self

    def play(self, contender: str) -> Measured:
        self._ours.send(contender)
        run: Measured = self._ours.recv()
        return run

    def __exit__(self, *error: object) -> None:
        self._ours.send(None)
        self._process.join()


def _serve(
    parent: Any, directory: Path, given: tuple[Path, int], settings: Mapping[str, str]
) -> None:
    (directory / "warehouse").mkdir(parents=True)
    conf = {
        "spark.driver.memory": HEAP,
        **sqlite_spark_conf(directory),
        "spark.sql.extensions": EXTENSIONS,
        **settings,
    }
    spark = session.start(conf, app="bench rewrite", master="local[2]")
    try:
        bench = Bench(spark, sqlite_catalog(directory), directory)
        source = _source(bench, *given)
        parent.send([row.file_path.removeprefix("file:") for row in bench.files(source)])
        for contender in iter(parent.recv, None):
            parent.send(_measured(bench, source, contender))
    finally:
        session.stop(spark)


def _source(bench: Bench, rows: Path, files: int) -> str:
    """Make the table of `files` equal files in the generator's order."""
    given = bench.spark.read.parquet(str(rows))
    name = bench.create(
        ", ".join(f"{f.name} {f.dataType.simpleString()}" for f in given.schema),
        f"'write.target-file-size-bytes'='{TARGET}'",
    )
    cut = given.repartitionByRange if files > FEW else given.coalesce
    by = ("l_orderkey", "l_linenumber") if files > FEW else ()
    cut(files, *by).writeTo(bench.full(name)).append()
    return name


def _copy(bench: Bench, source: str) -> str:
    """Return a table with the same files, which is no copy of their bytes."""
    rows = bench.spark.table(bench.full(source)).schema
    name = bench.create(
        ", ".join(f"{f.name} {f.dataType.simpleString()}" for f in rows),
        f"'write.target-file-size-bytes'='{TARGET}'",
    )
    append = bench.table(name).newFastAppend()
    for task in iceberg.each(bench.table(source).newScan().planFiles()):
        append.appendFile(task.file())
    append.commit()
    return name


def _measured(bench: Bench, source: str, contender: str) -> Measured:
    who, kind = contender.split()
    name = _copy(bench, source)
    act = (_ours if who == "ours" else _procedure)(bench, name, kind)
    bench.spark._jvm.System.gc()
    seconds, cpu = time.monotonic(), cpu_seconds()
    check = act()
    seconds, cpu = time.monotonic() - seconds, cpu_seconds() - cpu
    files = bench.files(name)
    depths = tuple(_depth(files, column) for column in BOTH)
    written = sum(file.file_size_in_bytes for file in files)
    return Measured(seconds, cpu, check, 0.0, written, len(files), depths)


def _procedure(bench: Bench, name: str, kind: str) -> Callable[[], float]:
    by = {"sort": DATE[0], "hilbert": f"zorder({', '.join(BOTH)})"}.get(kind)
    how = f"strategy => 'sort', sort_order => '{by}'" if by else "strategy => 'binpack'"

    def call() -> float:
        bench.sql(
            f"CALL rec.system.rewrite_data_files(table => 'jobs.{name}', {how}, "
            f"options => map('rewrite-all', 'true', 'target-file-size-bytes', '{TARGET}'))"
        )
        return 0.0

    return call


def _ours(bench: Bench, name: str, kind: str) -> Callable[[], float]:
    action: Rewrite
    if kind == "pack":
        action = bench.action(name, BinPack, target_bytes=TARGET)
    else:
        key, curve = (DATE, Lexicographic) if kind == "sort" else (BOTH, Hilbert)
        action = bench.action(name, Cluster, *key, curve=curve, target_bytes=TARGET)
    request = bench.request(name, action, verify="Full")

    def run() -> float:
        result = bench.run(request)
        assert result.done, result
        return sum(outcome.verify_cpu_seconds for outcome in result.outcomes)

    return run


def _depth(files: list[Any], column: str) -> float:
    """Return the files that a value of the column's range lies in, on average over a grid."""
    bounds = [file.readable_metrics[column] for file in files]
    spans = [(_number(b.lower_bound), _number(b.upper_bound)) for b in bounds]
    low, high = min(s[0] for s in spans), max(s[1] for s in spans)
    grid = [low + (high - low) * (i + 0.5) / 100 for i in range(100)]
    return sum(s[0] <= value <= s[1] for value in grid for s in spans) / len(grid)


def _number(value: Any) -> float:
    return float(value.toordinal() if hasattr(value, "toordinal") else value)


def generate(directory: Path, scale: float) -> Path:
    command = [str(Path(sys.executable).parent / "tpchgen-cli"), "parquet", "-s", f"{scale:g}"]
    subprocess.run([*command, "--tables=lineitem", "--output-dir", str(directory)], check=True)
    return directory / "lineitem.parquet"


def _written(
    played: Mapping[str, Sequence[Measured]], kinds: Sequence[str], command: str, given: Any
) -> str:
    """Write the section. played: the runs of each contender, round by round."""
    head = ["", "seconds", "CPU s", "of it verification", "peak MB", "MB written", "files",
            "l_shipdate in", "l_partkey in"]  # fmt: skip
    rows = [head]
    for name, runs in played.items():
        best = min(runs, key=lambda run: run.cpu)
        depths = [f"{depth:.1f}" for depth in best.depths] or ["", ""]
        native = name.startswith("native")
        check = f"{best.check:.1f}" if best.check else ""
        rows.append([
            name, f"{best.seconds:.1f}", f"{best.cpu:.1f}",
            f"+ {check}" if native and check else check,
            f"{best.peak / 1e6:,.0f}" if best.peak else "", f"{best.bytes / 1e6:,.0f}",
            "" if native else str(best.files), *depths,
        ])  # fmt: skip
    notes = (
        f"lineitem at scale {given.scale:g} in {given.files} files; the best of {given.rounds} "
        "rounds each. Iceberg: its procedure with rewrite-all (z-order where we take a Hilbert "
        "curve), nothing verified. Ours in a session: verified. Native: a process of its own "
        "without a table or a commit; + is what comparing the rows takes besides. Ratios are the "
        "middle one of the rounds, and the least and the most."
    )
    text = "\n".join([notes, "", *_ratios(played, kinds)])
    return write_section(f"Against others, {given.files} files", command, rows, text)


def _ratios(played: Mapping[str, Sequence[Measured]], kinds: Sequence[str]) -> list[str]:
    found = []
    for kind in kinds:
        ours = [run.cpu for run in played[f"{LIKE_OURS}: ours {kind}"]]
        parts = [
            f"{_ratio(ours, [run.cpu for run in played[f'{where}: Iceberg {kind}']])} of the "
            f"procedure's CPU in a session {where}"
            for where in (STOCK, LIKE_OURS)
        ]
        native = played[f"native: ours {kind}"]
        others = [played[f"native: {engine} {kind}"] for engine in NATIVE[2:] if kind != "hilbert"]
        if others:
            best = [min(run.cpu for run in turn) for turn in zip(*others, strict=True)]
            alone = [run.cpu for run in native]
            checked = [run.cpu + run.check for run in native]
            parts.append(f"alone {_ratio(alone, best)} of the best native one's, verified "
                         f"{_ratio(checked, best)}")  # fmt: skip
        spilled = [run.cpu for run in played[f"native: ours-spilled {kind}"]]
        parts.append(f"two passes {_ratio(spilled, [run.cpu for run in native])} of one")
        share = [run.check / run.cpu for run in native]
        parts.append(f"verification {statistics.median(share):.2f} of the rewrite")
        found.append(f"- {kind}: {'; '.join(parts)}.")
    return found


def _ratio(mine: Sequence[float], theirs: Sequence[float]) -> str:
    found = sorted(a / b for a, b in zip(mine, theirs, strict=True))
    return f"{statistics.median(found):.2f} ({found[0]:.2f} to {found[-1]:.2f})"


if __name__ == "__main__":
    sys.exit(main())
