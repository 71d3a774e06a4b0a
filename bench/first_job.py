"""A first small job as a user pays for it: whole processes, the start of everything included.

    python -m bench.first_job [--rounds 5] [--files 12] [--rows 900] [--beside CHECKOUT]

`layoutctl apply` sorts a small table in a process of its own, in turns with a plain Spark calling
Iceberg's procedure for the same and, with --beside, with the `layoutctl` of another checkout. Every
process gets a table of its own. Writes bench/RESULTS.md.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.lake import Lake
from bench.results import write_section
from reconciler.spark.session import runtime
from tests.conftest import SMALL_SESSION, sqlite_spark_conf

HERE = Path(__file__).parents[1]
PROCEDURE = """
import json, sys
from pyspark.sql import SparkSession
builder = SparkSession.builder.master("local[*]")
for key, value in json.loads(sys.argv[1]).items():
    builder = builder.config(key, value)
spark = builder.getOrCreate()
spark.sql(f"CALL rec.system.rewrite_data_files(table => '{sys.argv[2]}', strategy => 'sort', "
          "sort_order => 'k', options => map('rewrite-all', 'true'))").collect()
process = spark.sparkContext._gateway.proc
spark.stop()
process.stdin.close()
process.wait()  # its CPU counts as that of a child
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="besides one to warm up")
    parser.add_argument("--files", type=int, default=12)
    parser.add_argument("--rows", type=int, default=900, help="of a file")
    parser.add_argument("--beside", type=Path, help="another checkout, for its layoutctl")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="layout-bench-") as scratch:
        lake = Lake(Path(scratch))
        size, tables = _tables(lake, arguments)
        played: dict[str, list[tuple[float, float]]] = {}
        for turn in range(arguments.rounds + 1):
            for name, command, environment in _contenders(lake, arguments.beside):
                found = _spent(lake, [*command, tables.pop()], environment)
                print(f"{turn} {name}: {found[0]:.2f} s, {found[1]:.2f} CPU s", file=sys.stderr)
                if turn:
                    played.setdefault(name, []).append(found)
    notes = f"{arguments.files} files, {size / 1024:.0f} KiB. Medians; ratios are of one round."
    if arguments.beside:
        named = ["git", "-C", str(arguments.beside), "rev-parse", "--short", "HEAD"]
        notes += f" Before: {subprocess.check_output(named, text=True).strip()}."
    beside = " --beside CHECKOUT" if arguments.beside else ""
    command_line = f"python -m bench.first_job --rounds {arguments.rounds}{beside}"
    print(write_section("A first small job", command_line, _rows(played), notes))
    return 0


def _tables(lake: Lake, arguments: argparse.Namespace) -> tuple[int, list[str]]:
    """Make a table for each process; return the bytes of one, and their names."""
    import numpy as np
    import pyarrow as pa

    catalog = lake.opened()
    rng, names, size = np.random.default_rng(1), [], 0
    for number in range((arguments.rounds + 1) * (3 if arguments.beside else 2)):
        schema = pa.schema([("k", pa.int64()), ("v", pa.float64()), ("s", pa.string())])
        table = catalog.create_table(f"lake.t{number}", schema)
        for _ in range(arguments.files):
            keys, values = rng.integers(0, 1 << 30, arguments.rows), rng.random(arguments.rows)
            texts = [f"row {row}" for row in range(arguments.rows)]
            table.append(pa.table({"k": keys, "v": values, "s": texts}))
        size = sum(task.file.file_size_in_bytes for task in table.scan().plan_files())
        names.append(f"rec.lake.t{number}")
    return size, names


def _contenders(lake: Lake, beside: Path | None) -> list[tuple[str, list[str], Mapping[str, str]]]:
    """Return name, command and environment of each; the command gets a table's name."""
    import json

    conf = {
        **{k: v for k, v in SMALL_SESSION.items() if k.startswith("spark.driver.memory")},
        **sqlite_spark_conf(lake.directory),
        "spark.jars": ",".join(
            f"file:{path}" for path in runtime.session_jars(sqlite_spark_conf(lake.directory))
        ),
        "spark.ui.enabled": "false",
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
    }
    checkouts = {"ours": HERE, **({"before": beside} if beside else {})}
    found: list[tuple[str, list[str], Mapping[str, str]]] = [
        (
            name,
            lake.applying("k"),
            {"PYTHONPATH": str(path), "LAYOUTCTL_STATE": str(lake.directory / f"state-{name}")},
        )
        for name, path in checkouts.items()
    ]
    procedure = [sys.executable, "-c", PROCEDURE, json.dumps(conf)]
    return [*found, ("Iceberg's procedure in a plain Spark", procedure, {})]


def _spent(lake: Lake, command: list[str], environment: Mapping[str, str]) -> tuple[float, float]:
    """Run the command; return its seconds and CPU seconds, its children included."""
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    lake.run(command, environment)
    seconds, after = time.monotonic() - begun, resource.getrusage(resource.RUSAGE_CHILDREN)
    return seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _rows(played: Mapping[str, Sequence[tuple[float, float]]]) -> list[list[str]]:
    rows = [["", "seconds", "CPU s", "ours / it, seconds", "ours / it, CPU"]]
    for name, runs in played.items():
        ratios = [
            statistics.median(a[part] / b[part] for a, b in zip(played["ours"], runs, strict=True))
            for part in (0, 1)
        ]
        medians = [statistics.median(run[part] for run in runs) for part in (0, 1)]
        rows.append([name, *(f"{m:.1f}" for m in medians), *(f"{r:.2f}" for r in ratios)])
    return rows


if __name__ == "__main__":
    sys.exit(main())
