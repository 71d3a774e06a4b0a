"""Sorts of four kinds of table in three sizes: ours, verified, and Iceberg's procedure, in turns.

    python -m bench.four_kinds [--rows 1] [--rounds 1] [--kinds narrow,wide,texts,nested,pack]

One session like ours rewrites copies of each table, which share the files of the first. Beside it
stands the memory that the line of progress says a sort takes at most, and what the process took
more than before: rows move and are compared in threads of this process. Writes bench/RESULTS.md.
"""

from __future__ import annotations

import argparse
import gc
import re
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

from bench.against_iceberg import EXTENSIONS
from bench.cpu import cpu_seconds
from bench.results import write_section
from reconciler.plan.actions.rewrite import BinPack, Cluster
from reconciler.spark.session import iceberg, session
from tests.conftest import sqlite_catalog, sqlite_spark_conf
from tests.spark.tables import Bench

FILES, TARGET = 8, 64 << 20
COLUMNS = 200
HASH = "abs(xxhash64(id, {}))"
KINDS = {
    "narrow": (("v double", "rand(1)"), ("d date", "date_add(date'2024-01-01', int(id % 700))")),
    "wide": tuple(
        (f"c{n} {kind}", value.format(HASH.format(n)))
        for n in range(COLUMNS - 2)
        for kind, value in (
            (("int", "int({} % 1000)"), ("double", "{} / 7.0"), ("string", "concat('v', {} % 50)"))[
                n % 3
            ],
        )
    ),
    "texts": tuple(
        (f"t{n} string", f"repeat(hex({HASH.format(n)}), 12 + int(id % 9))") for n in range(2)
    ),
    "nested": (
        ("st struct<a:int,b:string>", "struct(int(id % 90), concat('s', id % 700))"),
        (
            "l array<bigint>",
            f"transform(sequence(0, int(id % 7)), x -> x + {HASH.format(1)} % 1000000)",
        ),
        ("m map<string,double>", "map('a', rand(2), 'b', rand(3))"),
    ),
}
"""By name: columns beside id and the key, and SQL of their values."""
PACKS, PACKED = {"pack": 1, "pack-1MB": 15}, 1_000
"""Merges of so many files of the narrow table, in its largest size times this."""
ROWS = {"narrow": 400_000, "wide": 6_000, "texts": 30_000, "nested": 60_000}
SIZES = (1, 4, 16)
"""Times the rows of a kind."""
UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
SAID = re.compile(r"at most ([\d.,]+) (B|KiB|MiB|GiB) of memory")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=float, default=1.0, help="times the usual number of rows")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--kinds", default=",".join(KINDS))
    arguments = parser.parse_args()
    table = [["kind, size", "MB", "CPU s, ours", "of it verification", "Iceberg", "ours / Iceberg",
              "seconds, ours", "Iceberg", "peak MB, predicted", "found"]]  # fmt: skip
    with tempfile.TemporaryDirectory() as within:
        directory = Path(within)
        conf = {"spark.driver.memory": "4g", **sqlite_spark_conf(directory)}
        spark = session.start(
            {**conf, "spark.sql.extensions": EXTENSIONS}, app="bench kinds", master="local[2]"
        )
        try:
            bench = Bench(spark, sqlite_catalog(directory), directory)
            _ours(bench, _made(bench, "narrow", 4_000))  # both are warm then
            _procedure(bench, _made(bench, "narrow", 4_000))
            for kind in arguments.kinds.split(","):
                of, more = ("narrow", PACKS[kind]) if kind in PACKS else (kind, 1)
                for times in SIZES[-1:] if kind in PACKS else SIZES:
                    rows = int(ROWS[of] * times * more * arguments.rows)
                    table.append(_line(bench, kind, rows, arguments.rounds))
                    print(table[-1], file=sys.stderr, flush=True)
        finally:
            session.stop(spark)
    command = f"python -m bench.four_kinds {' '.join(sys.argv[1:])}".strip()
    print(write_section("Sorts of four kinds", command, table, NOTES))
    return 0


NOTES = """Each table is in 8 files and sorted by a column in random order; the best of the rounds.
Ours compares all rows; Iceberg's procedure compares none. Peak: of memory beyond what the process
had before, predicted for the engine alone, found with the comparison of rows."""


def _line(bench: Bench, kind: str, rows: int, rounds: int) -> list[str]:
    pack = kind in PACKS
    source = _made(bench, "narrow" if pack else kind, rows, PACKED if pack else FILES)
    size = sum(file.file_size_in_bytes for file in bench.files(source))
    ours, theirs = [], []
    for _ in range(rounds):
        ours.append(_ours(bench, _copy(bench, source), pack))
        theirs.append(_procedure(bench, _copy(bench, source), pack))
    (cpu, seconds, check, said, found), other = min(ours), min(theirs)
    return [
        f"{kind}, {rows:,} rows", f"{size / 1e6:,.1f}", f"{cpu:.1f}", f"{check:.1f}",
        f"{other[0]:.1f}", f"{cpu / other[0]:.2f}", f"{seconds:.1f}", f"{other[1]:.1f}",
        f"{said / 1e6:,.0f}", f"{found / 1e6:,.0f}",
    ]  # fmt: skip


def _made(bench: Bench, kind: str, rows: int, files: int = FILES) -> str:
    columns = KINDS[kind]
    name = bench.create(", ".join(["id bigint", "k bigint", *(c for c, _ in columns)]))
    values = ", ".join(["id", HASH.format(99), *(value for _, value in columns)])
    bench.sql(
        f"INSERT INTO {bench.full(name)} SELECT /*+ REPARTITION({files}) */ {values} "
        f"FROM range({rows})"
    )
    return name


def _copy(bench: Bench, source: str) -> str:
    """Return a table with the same files."""
    fields = bench.spark.table(bench.full(source)).schema
    name = bench.create(", ".join(f"{f.name} {f.dataType.simpleString()}" for f in fields))
    append = bench.table(name).newFastAppend()
    for task in iceberg.each(bench.table(source).newScan().planFiles()):
        append.appendFile(task.file())
    append.commit()
    return name


def _ours(bench: Bench, name: str, pack: bool = False) -> tuple[float, float, float, int, int]:
    """Return CPU seconds, seconds, those of verification, and the peak as said and as found."""
    kind, key = (BinPack, ()) if pack else (Cluster, ("k",))
    action = bench.action(name, kind, *key, target_bytes=TARGET)
    request = bench.request(name, action, verify="Full")
    bench.events.clear()
    gc.collect()
    pa.default_memory_pool().release_unused()
    before = _reset_peak()
    cpu, seconds, result = _timed(lambda: bench.run(request))
    assert result.done, result
    check = sum(outcome.verify_cpu_seconds for outcome in result.outcomes)
    said = [found for event in bench.events if (found := SAID.search(event.text))]
    most = max((float(m[1].replace(",", "")) * UNITS[m[2]] for m in said), default=0.0)
    return cpu, seconds, check, int(most), _memory("VmHWM") - before


def _procedure(bench: Bench, name: str, pack: bool = False) -> tuple[float, float]:
    how = "strategy => 'binpack'" if pack else "strategy => 'sort', sort_order => 'k'"
    call = (
        f"CALL rec.system.rewrite_data_files(table => 'jobs.{name}', {how}, "
        "options => map('rewrite-all', 'true', "
        f"'target-file-size-bytes', '{TARGET}'))"
    )
    cpu, seconds, _ = _timed(lambda: bench.sql(call))
    return cpu, seconds


def _timed(act: Callable[[], Any]) -> tuple[float, float, Any]:
    began, cpu = time.monotonic(), cpu_seconds()
    result = act()
    return cpu_seconds() - cpu, time.monotonic() - began, result


def _reset_peak() -> int:
    """Forget the process's highest memory so far; return what it has now."""
    Path("/proc/self/clear_refs").write_text("5")
    return _memory("VmRSS")


def _memory(name: str) -> int:
    (line,) = re.findall(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return int(line) * 1024


if __name__ == "__main__":
    sys.exit(main())
