"""Lines per second of `workload import` for 50 templates, with the state store left out.

Run: python -m bench.workload_import [lines]
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

from reconciler.queries.fragments import Fragment
from reconciler.table.schema import Field, Schema
from reconciler.workload_log.identity import Keys
from reconciler.workload_log.sql import SqlReader
from reconciler.workload_log.sql_log import SqlLogImport
from reconciler.workload_log.tables import KnownTable, SchemaMap

COLUMNS = (("id", "long"), ("day", "date"), ("amount", "decimal(12,2)"), ("kind", "string"),
           ("seen", "timestamptz"))  # fmt: skip
TEMPLATES = 50


class Counting:
    """A sink that only counts, so that reading is what is measured."""

    def __init__(self) -> None:
        self.count = 0
        self.cursors: dict[str, str] = {}

    def append_fragments(self, fragments: Iterable[Fragment]) -> None:
        self.count += sum(1 for _ in fragments)

    def recorded_positions(self) -> Keys:
        return np.empty(0, dtype=np.int64)

    def cursor(self, source: str) -> str | None:
        return self.cursors.get(source)

    def set_cursor(self, source: str, value: str) -> None:
        self.cursors[source] = value

    def record_skips(self, table_uuid: str | None, counts: Mapping[str, int]) -> None:
        pass


def query(number: int) -> str:
    template, value = number % TEMPLATES, number // TEMPLATES
    return (
        f"SELECT t.kind, sum(t.amount) AS s{template} FROM db.t JOIN db.u ON t.id = u.id"
        f" WHERE t.day BETWEEN DATE '2025-{1 + value % 12:02d}-01'"
        f" AND DATE '2026-01-{template % 28 + 1:02d}'"
        f" AND (t.id = {value} OR u.kind IN ('a{value}', 'b'))"
        f" AND t.seen >= now() - INTERVAL '{template + 1}' DAY GROUP BY t.kind"
    )


def main() -> None:
    lines = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    schema = Schema(0, tuple(Field(i + 1, n, t) for i, (n, t) in enumerate(COLUMNS)))
    tables = SchemaMap({("db", n): KnownTable(n, n, schema) for n in ("t", "u")})
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "log.jsonl"
        with path.open("w") as file:
            for number in range(lines):
                stamp = 1_760_000_000_000 + number * 1000
                file.write(json.dumps({"sql": query(number), "timestamp": stamp}) + "\n")
        sink = Counting()
        start = time.perf_counter()
        tally = SqlLogImport(SqlReader("trino", tables), sink).run(path)
        seconds = time.perf_counter() - start
        print(f"{tally.read} lines, {sink.count} fragments: {tally.read / seconds:,.0f} lines/s")
        start = time.perf_counter()
        SqlLogImport(SqlReader("trino", tables), sink).run(path)
        print(f"again, nothing new: {lines / (time.perf_counter() - start):,.0f} lines/s")


if __name__ == "__main__":
    main()
