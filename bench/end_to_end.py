"""Maintenance as a user pays for it: whole processes, with every start included.

    python -m bench.end_to_end [--rounds 2] [--cases "sort 0.01,sort 0.3,pack,no-op"]
                               [--beside CHECKOUT]

`layoutctl apply` takes turns with a plain Spark that calls Iceberg's procedure for the same. Each
process gets a table of its own with the same rows: TPC-H lineitem of a scale, sorted by a date, or
1,000 files of 60 KB, which are merged. Ours compares all rows, the procedure compares none. The
name "Spark" stands for `layoutctl apply --engine Spark`. --beside adds the `layoutctl` of another
checkout. Writes bench/RESULTS.md.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.against_iceberg import generate
from bench.cpu import cpu_seconds
from bench.lake import Lake
from bench.results import write_section
from reconciler.spark.session import runtime
from tests.conftest import SMALL_SESSION, sqlite_spark_conf

HERE = Path(__file__).parents[1]
LOCAL, PROCEDURE = "Local", "Iceberg's procedure"
ARGUMENTS = {
    "sort": ", strategy => 'sort', sort_order => 'l_shipdate', "
    "options => map('rewrite-all', 'true')",
    "pack": "",
}
SCRIPT = """
import json, sys
from pyspark.sql import SparkSession
builder = SparkSession.builder.master("local[*]")
for key, value in json.loads(sys.argv[1]).items():
    builder = builder.config(key, value)
spark = builder.getOrCreate()
spark.sql(f"CALL rec.system.rewrite_data_files(table => '{sys.argv[3]}'{sys.argv[2]})").collect()
process = spark.sparkContext._gateway.proc
spark.stop()
process.stdin.close()
process.wait()  # its CPU counts as that of a child
"""
CLUSTERING = {"sort": "mode: Declared, keys: [l_shipdate]", "pack": "mode: None"}


@dataclass(frozen=True)
class Case:
    """What is measured."""

    name: str
    """Its name, as an argument gives it: "sort 0.3", "pack", "no-op"."""
    work: str
    """"sort" or "pack"."""
    scale: float
    """Scale of lineitem, of which the table holds the rows."""
    files: int
    """Files that the table has before."""
    engines: tuple[str, ...]
    """Engines of `layoutctl apply` that take part."""


CASES = (
    Case("sort 0.01", "sort", 0.01, 12, (LOCAL, "Spark")),
    Case("sort 0.3", "sort", 0.3, 16, (LOCAL, "Spark")),
    Case("sort 1", "sort", 1, 16, (LOCAL,)),
    Case("sort 3", "sort", 3, 48, (LOCAL,)),
    Case("pack", "pack", 0.6, 1000, (LOCAL,)),
    Case("no-op", "pack", 0.01, 1, (LOCAL,)),
)


Played = Mapping[str, list[tuple[float, float]]]
"""Seconds and CPU seconds of each round, by the name of each contender."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--cases", default=",".join(case.name for case in CASES))
    parser.add_argument("--beside", type=Path, help="another checkout, for its layoutctl")
    arguments = parser.parse_args()
    rows = [["", "seconds", "CPU s", "of its seconds", "of its CPU"]]
    for case in (case for case in CASES if case.name in arguments.cases.split(",")):
        with tempfile.TemporaryDirectory(prefix="layout-bench-") as scratch:
            size, played = _play(Path(scratch), case, arguments)
        rows += _rows(case, size, played)
    notes = (
        "Medians; the last two columns are those of `layoutctl` over Iceberg's procedure in a "
        "fresh Spark, each of one round. A no-op finds nothing to do; it has no rival."
    )
    command = f"python -m bench.end_to_end --rounds {arguments.rounds}"
    command += f" --cases '{arguments.cases}'"
    print(write_section("End to end", command, rows, notes))
    return 0


def _play(directory: Path, case: Case, arguments: argparse.Namespace) -> tuple[int, Played]:
    """Return the bytes of a table, and the runs."""
    lake = Lake(directory)
    contenders = list(_contenders(lake, case, arguments.beside))
    size, tables = _tables(lake, case, arguments.rounds * len(contenders))
    played: Played = {name: [] for name, _, _ in contenders}
    for turn in range(arguments.rounds):
        for name, command, environment in contenders:
            found = _spent(lake, [*command, tables.pop()], environment)
            text = f"{case.name}, {turn} {name}: {found[0]:.2f} s, {found[1]:.2f} CPU s"
            print(text, file=sys.stderr)
            played[name].append(found)
    return size, played


def _tables(lake: Lake, case: Case, count: int) -> tuple[int, list[str]]:
    """Make the tables; return the bytes of one, and their names."""
    import pyarrow.parquet as pq

    catalog, names, size = lake.opened(), [], 0
    rows = pq.read_table(generate(lake.directory, case.scale))
    step = -(-rows.num_rows // case.files)
    for number in range(count):
        table = catalog.create_table(f"lake.t{number}", rows.schema)
        with table.transaction() as change, change.update_snapshot().fast_append() as append:
            for data_file in _written(table, rows, step):
                append.append_data_file(data_file)
        size = sum(task.file.file_size_in_bytes for task in table.scan().plan_files())
        names.append(f"rec.lake.t{number}")
    return size, names


def _written(table, rows, step) -> Iterable[object]:  # type: ignore[no-untyped-def]
    """Write the rows into files of so many rows each; return pyiceberg's entries."""
    from pyiceberg.io.pyarrow import _dataframe_to_data_files

    for begin in range(0, rows.num_rows, step):
        part = rows.slice(begin, step)
        yield from _dataframe_to_data_files(table.metadata, part, table.io)


def _contenders(
    lake: Lake, case: Case, beside: Path | None
) -> Iterable[tuple[str, list[str], Mapping[str, str]]]:
    """Yield name, command and environment of each; the command gets a table's name."""
    checkouts = {"": HERE, **({"before, ": beside} if beside else {})}
    for before, path in checkouts.items():
        for engine in case.engines:
            state = f"state-{before}{engine}".replace(" ", "")
            env = {"PYTHONPATH": str(path), "LAYOUTCTL_STATE": str(lake.directory / state)}
            applying = lake.applying(CLUSTERING[case.work])
            yield f"{before}{engine}", [*applying, "--engine", engine], env
    if case.name == "no-op":
        return
    conf = {
        "spark.driver.memory": SMALL_SESSION["spark.driver.memory"],
        "spark.sql.extensions": SMALL_SESSION["spark.sql.extensions"],
        **sqlite_spark_conf(lake.directory),
        "spark.jars": ",".join(
            f"file:{path}" for path in runtime.session_jars(sqlite_spark_conf(lake.directory))
        ),
        "spark.ui.enabled": "false",
    }
    yield PROCEDURE, [sys.executable, "-c", SCRIPT, json.dumps(conf), ARGUMENTS[case.work]], {}


def _spent(lake: Lake, command: list[str], environment: Mapping[str, str]) -> tuple[float, float]:
    """Run the command; return its seconds and CPU seconds, its children included."""
    before, begun = cpu_seconds(), time.monotonic()
    lake.run(command, environment)
    return time.monotonic() - begun, cpu_seconds() - before


def _rows(case: Case, size: int, played: Played) -> Iterable[list[str]]:
    for name, mine in played.items():
        medians = [statistics.median(run[part] for run in mine) for part in (0, 1)]
        ratios: Sequence[str] = ("", "")
        if PROCEDURE in played and name != PROCEDURE:
            pairs = list(zip(mine, played[PROCEDURE], strict=True))
            ratios = [f"{statistics.median(a[p] / b[p] for a, b in pairs):.2f}" for p in (0, 1)]
        what = f"{case.name} ({size / 1e6:,.1f} MB, {case.files} files): {name}"
        yield [what, *(f"{m:.1f}" for m in medians), *ratios]


if __name__ == "__main__":
    sys.exit(main())
