"""A first small job as a user pays for it: whole processes, the start of everything included.

    python -m bench.first_job [--rounds 5] [--files 12] [--rows 900] [--beside CHECKOUT]

`layoutctl apply` sorts a small table in a process of its own, in turns with a plain Spark calling
Iceberg's procedure for the same and, with --beside, with the `layoutctl` of another checkout. Every
process gets a table of its own. Writes bench/RESULTS.md.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.results import write_section
from reconciler.spark.session import runtime
from tests.conftest import SMALL_SESSION, sqlite_spark_conf

HERE = Path(__file__).parents[1]
POLICY = """\
apiVersion: layout.lakehouse.dev/v1alpha1
kind: TableLayoutPolicy
metadata: {name: first}
spec:
  catalogRef: {name: rec}
  tables: {include: ["lake.*"]}
  layout: {clustering: {mode: Declared, keys: [k]}, files: {minInputFiles: 2}}
"""
PROCEDURE = """
import json, sys
from pyspark.sql import SparkSession
builder = SparkSession.builder.master("local[*]")
for key, value in json.loads(sys.argv[1]).items():
    builder = builder.config(key, value)
spark = builder.getOrCreate()
spark.sql(f"CALL rec.system.rewrite_data_files(table => '{sys.argv[2]}', strategy => 'sort', "
          "sort_order => 'k', options => map('rewrite-all', 'true'))").collect()
spark.stop()
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="besides one to warm up")
    parser.add_argument("--files", type=int, default=12)
    parser.add_argument("--rows", type=int, default=900, help="of a file")
    parser.add_argument("--beside", type=Path, help="another checkout, for its layoutctl")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="layout-bench-") as scratch:
        directory = Path(scratch)
        size, tables = _tables(directory, arguments)
        played: dict[str, list[tuple[float, float]]] = {}
        for turn in range(arguments.rounds + 1):
            for name, command, environment in _contenders(directory, arguments.beside):
                found = _spent([*command, tables.pop()], directory, environment)
                print(f"{turn} {name}: {found[0]:.2f} s, {found[1]:.2f} CPU s", file=sys.stderr)
                if turn:
                    played.setdefault(name, []).append(found)
    notes = f"{arguments.files} files, {size / 1024:.0f} KiB. Medians; ratios are of one round."
    command_line = f"python -m bench.first_job {' '.join(sys.argv[1:])}".strip()
    print(write_section("A first small job", command_line, _rows(played), notes))
    return 0


def _tables(directory: Path, arguments: argparse.Namespace) -> tuple[int, list[str]]:
    """Make a table for each process; return the bytes of one, and their names."""
    import numpy as np
    import pyarrow as pa
    from pyiceberg.catalog.sql import SqlCatalog

    (directory / "warehouse").mkdir()
    uri, warehouse = f"sqlite:///{directory}/catalog.db", f"file://{directory}/warehouse"
    (directory / ".pyiceberg.yaml").write_text(
        f"catalog:\n  rec:\n    type: sql\n    uri: {uri}\n    warehouse: {warehouse}\n"
    )
    (directory / "first.yaml").write_text(POLICY)
    catalog = SqlCatalog("rec", uri=uri, warehouse=warehouse)
    catalog.create_namespace("lake")
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


def _contenders(
    directory: Path, beside: Path | None
) -> list[tuple[str, list[str], Mapping[str, str]]]:
    """Return name, command and environment of each; the command gets a table's name."""
    import json

    conf = {
        **{k: v for k, v in SMALL_SESSION.items() if k.startswith("spark.driver.memory")},
        **sqlite_spark_conf(directory),
        "spark.jars": ",".join(
            f"file:{path}" for path in runtime.session_jars(sqlite_spark_conf(directory))
        ),
        "spark.ui.enabled": "false",
    }
    apply = [sys.executable, "-m", "reconciler.cli.main", "apply", "-f", "first.yaml"]
    checkouts = {"ours": HERE, **({"before": beside} if beside else {})}
    found: list[tuple[str, list[str], Mapping[str, str]]] = [
        (
            name,
            [*apply, "--auto-approve"],
            {"PYTHONPATH": str(path), "LAYOUTCTL_STATE": str(directory / f"state-{name}")},
        )
        for name, path in checkouts.items()
    ]
    procedure = [sys.executable, "-c", PROCEDURE, json.dumps(conf)]
    return [*found, ("Iceberg's procedure in a plain Spark", procedure, {})]


def _spent(
    command: Sequence[str], directory: Path, environment: Mapping[str, str]
) -> tuple[float, float]:
    """Run the command; return its seconds and CPU seconds, its children included."""
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    env: dict[str, Any] = {**os.environ, "PYICEBERG_HOME": str(directory), **environment}
    done = subprocess.run(command, cwd=directory, env=env, capture_output=True, text=True)
    seconds, after = time.monotonic() - begun, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise SystemExit(f"{command[:4]} failed:\n{done.stdout}\n{done.stderr[:3000]}")
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
