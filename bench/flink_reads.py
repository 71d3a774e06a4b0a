"""Flink reads what each kind of action wrote, on a table of format 2.

    python -m bench.flink_reads

One table gets each kind of action of the engine without a JVM, while others append and delete
(`bench.trino_kinds`). After each, a batch query of Flink returns all rows, and aggregates under
conditions; they are compared with the rows that this program keeps. Then come tables of formats 2
and 3 along trees of cuts with block ids (`bench.tree_reads`). Ends with code 1 if any answer
differs. Needs Flink's jars (make flink). Takes a few minutes.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.results import write_section
from bench.tree_reads import Engine, written_and_read
from bench.trino_kinds import Ask, story
from tests.conftest import sqlite_catalog
from tests.flink.job import catalog_statement, command, on_sqlite

NOTE = """Flink 2.1 in batch mode, format 2: one table, after each kind of action of the Local
engine: all rows, and aggregates under eight conditions."""


def main() -> int:
    wrong: list[str] = []
    rows = [("read after", "wrong answers")]
    with tempfile.TemporaryDirectory(prefix="layout-flink-") as scratch:
        sqlite_catalog(Path(scratch))
        with _flink(Path(scratch)) as ask:
            for kind, problems in story(Path(scratch), ask):
                print(f"after {kind}: {len(problems)} wrong answers", flush=True)
                rows.append((kind, str(len(problems))))
                wrong += [f"{kind}: {problem}" for problem in problems]
            wrong += written_and_read(Path(scratch), Engine("Flink", "spark", ask))
    write_section("Flink reads each kind of action", "python -m bench.flink_reads", rows, NOTE)
    print("\n".join(wrong) or "all rows are as they were")
    return 1 if wrong else 0


@contextlib.contextmanager
def _flink(directory: Path) -> Iterator[Ask]:
    """Start a mini cluster on the catalog; provides a function from SQL to rows."""
    log = directory / "flink.log"
    with (
        log.open("w") as errors,
        subprocess.Popen(
            [*command("SqlAnswers"), catalog_statement("rec", on_sqlite(directory)),
             "USE CATALOG rec"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True,
        ) as process,
    ):  # fmt: skip
        assert process.stdin is not None and process.stdout is not None
        queries, answers = process.stdin, process.stdout

        def ask(sql: str) -> list[list[Any]]:
            print(sql, file=queries, flush=True)
            rows = []
            while (line := answers.readline()) != "\n":
                if not line:
                    raise SystemExit(f"Flink ended:\n{log.read_text()}")
                if line.startswith("["):
                    rows.append(json.loads(line))
            return rows

        try:
            yield ask
        finally:
            process.kill()


if __name__ == "__main__":
    sys.exit(main())
