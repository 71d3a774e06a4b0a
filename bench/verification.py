"""What the verification of a rewrite costs, in CPU seconds of the process and all that it started.

    python -m bench.verification [rows] [rounds]        default 1200000 3
    python -m bench.verification --compare FILE ...     the section, from what it has printed

A table like lineitem, 16 columns in 12 files, is sorted by its key, and 12 files of 1,000 rows are
merged, with `verify: Full` and with `Counts`, in turn in one session. Versions are compared by what
this prints in the working tree of each, run in turn.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

from bench.cpu import cpu_seconds
from reconciler.plan.actions.rewrite import BinPack, Recluster
from reconciler.spark.session import session
from tests.conftest import SMALL_SESSION, sqlite_catalog, sqlite_spark_conf
from tests.spark.tables import Bench

FILES = 12
SMALL_ROWS = 1_000
LINEITEM = """
  id div 4 AS l_orderkey, hash(id) % 200000 AS l_partkey, hash(id, 1) % 10000 AS l_suppkey,
  int(id % 7) AS l_linenumber, cast(hash(id, 2) % 50 AS decimal(15,2)) AS l_quantity,
  cast(hash(id, 3) % 10000000 / 100 AS decimal(15,2)) AS l_extendedprice,
  cast(hash(id, 4) % 10 / 100 AS decimal(15,2)) AS l_discount,
  cast(hash(id, 5) % 8 / 100 AS decimal(15,2)) AS l_tax,
  substring('ANR', int(pmod(hash(id, 6), 3)) + 1, 1) AS l_returnflag,
  substring('OF', int(pmod(hash(id, 7), 2)) + 1, 1) AS l_linestatus,
  date_add(date '1992-01-01', int(pmod(hash(id, 8), 2500))) AS l_shipdate,
  date_add(date '1992-02-01', int(pmod(hash(id, 9), 2500))) AS l_commitdate,
  date_add(date '1992-03-01', int(pmod(hash(id, 10), 2500))) AS l_receiptdate,
  element_at(array('COLLECT COD', 'NONE', 'TAKE BACK RETURN', 'DELIVER IN PERSON'),
             int(pmod(hash(id, 11), 4)) + 1) AS l_shipinstruct,
  element_at(array('AIR', 'FOB', 'MAIL', 'RAIL', 'REG AIR', 'SHIP', 'TRUCK'),
             int(pmod(hash(id, 12), 7)) + 1) AS l_shipmode,
  concat_ws(' ', substring(sha1(string(id)), 1, 5 + int(pmod(hash(id, 13), 12))), 'slyly',
            substring(sha1(string(-id)), 1, 8)) AS l_comment
"""
KINDS = ("sort", "merge")


def measured(bench: Bench, kind: str, mode: str, rows: int, number: int) -> float:
    name = bench.create("id bigint")
    bench.sql(f"DROP TABLE {bench.full(name)}")
    files = f"FROM range(0, {rows if kind == 'sort' else FILES * SMALL_ROWS}, 1, {FILES})"
    bench.sql(f"CREATE TABLE {bench.full(name)} USING iceberg AS SELECT {LINEITEM} {files}")
    if kind == "sort":
        action = bench.action(name, Recluster, "l_shipdate", target_bytes=64 << 20)
    else:
        action = bench.action(name, BinPack, target_bytes=64 << 20)
    request = bench.request(name, action, plan=f"p-{number}", verify=mode)
    begun = cpu_seconds()
    assert bench.run(request).done
    return cpu_seconds() - begun


def run(rows: int, rounds: int) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as made:
        directory = Path(made)
        (directory / "warehouse").mkdir()
        spark = session.start(
            {**SMALL_SESSION, **sqlite_spark_conf(directory)}, app="bench", master="local[2]"
        )
        bench = Bench(spark, sqlite_catalog(directory), directory)
        number = 0
        for turn in range(rounds + 1):  # the first one compiles
            for kind in KINDS:
                for mode in ("Full", "Counts") if turn % 2 else ("Counts", "Full"):
                    number += 1
                    spent = measured(bench, kind, mode, rows, number)
                    if turn:
                        found.setdefault(f"{kind} {mode}", []).append(round(spent, 2))
        session.stop(spark)
    return found


def compare(lines: list[dict[str, Any]]) -> None:
    from bench.results import write_section

    times: dict[tuple[str, str], list[float]] = defaultdict(list)
    for line in lines:
        for key, values in line["seconds"].items():
            times[line["version"], key] += values
    table = [["", "version", "Full", "Counts", "Full less Counts"]]
    for kind in KINDS:
        for version in dict.fromkeys(line["version"] for line in lines):
            full, counts = (times[version, f"{kind} {mode}"] for mode in ("Full", "Counts"))
            apart = [a - b for a, b in zip(full, counts, strict=True)]
            table.append([kind, version, _shown(full), _shown(counts), _shown(apart)])
    notes = (
        f"Sort: {lines[0]['rows']:,} rows like lineitem, 16 columns, 12 files. Merge: 12 files of "
        "1,000 such rows. CPU seconds of one execution in a warm session: median (least to most) "
        "of all turns; a turn runs both modes, and their difference is of one turn. With Counts "
        "rows are still counted: f8e8b73 reads the written files back for it, today's only their "
        "footers. Versions ran one after the other, each in sessions of its own. Other work shared "
        "the machine: modes of one version differ by up to 0.5 s from turn to turn by chance."
    )
    print(write_section("Cost of verification", "python -m bench.verification", table, notes))


def _shown(values: list[float]) -> str:
    return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


def main() -> None:
    if sys.argv[1:2] == ["--compare"]:
        logs = [Path(name).read_text().splitlines() for name in sys.argv[2:]]
        compare([json.loads(line) for log in logs for line in log])
        return
    rows, rounds = (int(text) for text in (*sys.argv[1:3], "1200000", "3")[:2])
    found = run(rows, rounds)
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True
    ).stdout.strip()
    print(json.dumps({"version": commit, "rows": rows, "seconds": found}))


if __name__ == "__main__":
    main()
