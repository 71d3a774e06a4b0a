"""A tree of cuts on a real table, as a user has it planned and written: what later queries read.

    python -m bench.qdtree [--rows 6400000] [--seed 1] [--target 2Mi]

People explore six columns of a table of flights (`bench.sessions`); their log is imported, and
`layoutctl` plans and rewrites the table three times from the same start: as it chooses, and by the
two Hilbert curves that a person might declare. What is counted are the rows in the files, and in
the row groups, that the bounds in manifests and footers leave to the queries of the week after, by
pyarrow and a comparison of its own; rows are compared with the originals by DuckDB.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench.lake import POLICY, Lake
from bench.results import write_section
from bench.sessions import FILES, LATER_DAYS, NAMES, RECORDED_DAYS, SCHEMA, People, flights
from reconciler.queries.fragments import Fragment

KEYS = "departure_delay, air_time", "arrival_delay, distance, departure_hour"
CLUSTERINGS = {
    "chosen": "mode: WorkloadAware",
    "curve_of_two": f"mode: Declared, curve: Hilbert, keys: [{KEYS[0]}]",
    "curve_of_three": f"mode: Declared, curve: Hilbert, keys: [{KEYS[1]}]",
}
"""Of each table's policy."""


def sql_of(query: Fragment, now: dt.datetime) -> dict[str, Any]:
    """Return a query as a line of a log."""
    names, literals = {n: f.name for n, f in enumerate(SCHEMA.fields, 1)}, query.literals
    parts = [
        f"{names[part.ref.field_id]} {part.op} {literals[part.slot]}"
        for part in query.predicate.children
    ]
    at = now - dt.timedelta(days=RECORDED_DAYS) + dt.timedelta(milliseconds=query.event_ms)
    return {
        "timestamp": at.strftime("%Y-%m-%dT%H:%M:%SZ"), "engine": "trino", "user": "people",
        "sql": f"SELECT * FROM rec.lake.NAME WHERE {' AND '.join(parts)}",
    }  # fmt: skip


def read_share(files: Sequence[str], later: Sequence[Fragment]) -> tuple[float, float, int]:
    """Return the rows in the files, and in the row groups, that bounds leave, of all rows x
    queries; and how many files there are."""
    low, high, rows, owner = [], [], [], []
    for number, path in enumerate(files):
        footer = pq.read_metadata(path.removeprefix("file://"))
        for group in range(footer.num_row_groups):
            row_group = footer.row_group(group)
            stats = [row_group.column(c).statistics for c in range(len(NAMES))]
            low.append([one.min for one in stats])
            high.append([one.max for one in stats])
            rows.append(row_group.num_rows)
            owner.append(number)
    groups = np.array(low), np.array(high), np.array(rows)
    begins = np.flatnonzero(np.diff(owner, prepend=-1))
    whole = (
        np.minimum.reduceat(groups[0], begins), np.maximum.reduceat(groups[1], begins),
        np.add.reduceat(groups[2], begins),
    )  # fmt: skip
    return _share(whole, later), _share(groups, later), len(files)


def _share(pieces: tuple[np.ndarray, np.ndarray, np.ndarray], later: Sequence[Fragment]) -> float:
    low, high, rows = pieces
    read = 0
    for query in later:
        alive = np.ones(len(rows), dtype=bool)
        for part in query.predicate.children:
            column, value = part.ref.field_id - 1, query.literals[part.slot]
            alive &= high[:, column] >= value if part.op == ">=" else low[:, column] <= value
        read += int(rows[alive].sum())
    return read / (int(rows.sum()) * len(later))


def _sum_of(files: Sequence[str]) -> Any:
    names = ", ".join(f"'{path.removeprefix('file://')}'" for path in files)
    return duckdb.sql(
        f"SELECT count(*), sum(hash(f)::HUGEINT) FROM read_parquet([{names}]) f"
    ).fetchone()


def measured(rows: int, seed: int, target: str) -> list[list[str]]:
    random = np.random.default_rng(seed)
    table = flights(random, rows // FILES)
    people = People(
        random.dirichlet(np.full(len(NAMES), 6.0)),
        {field: np.sort(column) for field, column in table.values.items()},
    )
    asked = people.sessions(random, 0, RECORDED_DAYS)
    later = people.sessions(random, RECORDED_DAYS, LATER_DAYS)
    now = dt.datetime.now(dt.UTC)
    found = []
    with tempfile.TemporaryDirectory() as directory:
        lake = Lake(Path(directory))
        catalog = lake.opened()
        data = pa.table({
            name: pa.array(table.values[n].astype(np.int32)) for n, name in enumerate(NAMES, 1)
        })  # fmt: skip
        for name in CLUSTERINGS:
            made = catalog.create_table(f"lake.{name}", data.schema)
            for part in range(FILES):
                made.append(data.slice(part * (rows // FILES), rows // FILES))
        first = [
            task.file.file_path for task in catalog.load_table("lake.chosen").scan().plan_files()
        ]
        found.append(_row("before", first, later))
        for name, clustering in CLUSTERINGS.items():
            (lake.directory / "policy.yaml").write_text(
                POLICY % (clustering, f"targetSize: {target}")
            )
            log = "\n".join(json.dumps(sql_of(one, now)).replace("NAME", name) for one in asked)
            (lake.directory / "log.jsonl").write_text(log + "\n")
            command = [sys.executable, "-m", "reconciler.cli.main"]
            lake.run([*command, "workload", "import", "--dialect", "trino", "log.jsonl"])
            print(lake.run([*command, "plan", "-f", "policy.yaml", f"rec.lake.{name}"]).stdout)
            applied = [*command, "apply", "-f", "policy.yaml", f"rec.lake.{name}", "--auto-approve"]
            print(lake.run(applied).stdout)
            files = [
                task.file.file_path
                for task in catalog.load_table(f"lake.{name}").scan().plan_files()
            ]
            if _sum_of(files) != _sum_of(first):
                raise SystemExit(f"{name} has other rows than before")
            found.append(_row(name, files, later))
    return found


def _row(name: str, files: Sequence[str], later: Sequence[Fragment]) -> list[str]:
    by_files, by_groups, count = read_share(files, later)
    return [name, str(count), f"{by_files:.4f}", f"{by_groups:.4f}"]


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.qdtree")
    parser.add_argument("--rows", type=int, default=6_400_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--target", default="2Mi", help="size of files to write")
    options = parser.parse_args(arguments)
    head = ["layout", "files", "rows read, by files", "rows read, by row groups"]
    rows = [head, *measured(options.rows, options.seed, options.target)]
    print(write_section("A tree on a real table", f"python -m bench.qdtree --rows {options.rows} "
                        f"--seed {options.seed}", rows, __doc__.split("\n\n")[2]))  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
