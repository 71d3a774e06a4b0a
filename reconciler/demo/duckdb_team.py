"""The reporting team that needs no Java: DuckDB runs the queries and writes a query log.

The log is one JSON object per line: the text, its time and duration. It holds no bytes: what DuckDB
counts as read misses the columns of Parquet files. DuckDB reads the Iceberg metadata by its own
extension (`witness`).
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from reconciler.demo import measure, witness
from reconciler.demo.data import CATALOG, FACTS, NAMESPACE, OTHERS, Place, open_catalog
from reconciler.demo.team import QueryRun
from reconciler.demo.tpch import Query


@dataclass(frozen=True, slots=True)
class DuckDbTeam:
    """Runs each query in one embedded DuckDB."""

    place: Place
    """The directory of the demo."""
    engine: ClassVar[str] = witness.ENGINE
    bytes_name: ClassVar[str] = ""
    caution: ClassVar[str] = (
        "DuckDB counts the files that it opens, but not the bytes of columns that it reads.\n"
        "Planned bytes, from footers, lead below.\n"
    )
    import_options: ClassVar[tuple[str, ...]] = ("--dialect", "duckdb")

    def versions(self) -> tuple[str, ...]:
        from importlib.metadata import version

        return tuple(f"{name} {version(name)}" for name in ("duckdb", "duckdb-extension-iceberg"))

    def run_round(
        self, queries: Sequence[Query], afterwards: Sequence[str] = ()
    ) -> tuple[tuple[QueryRun, ...], Path]:
        """Run the queries in this order; return the result of each, and the query log's path.

        Raises UnavailableError if DuckDB cannot read Iceberg tables here.
        """
        tables, held = _tables(self.place)
        log = self.place.logs / f"queries-{len(list(self.place.logs.iterdir())) + 1}.jsonl"
        runs, lines = [], []
        with witness.connect() as connection:
            for query in queries:
                begun = time.time()
                found = witness.opened(connection, query.sql, measure.DIALECT, tables)
                lines.append(_line(query, begun))
                runs.append(
                    QueryRun(
                        query.label,
                        query.name,
                        found.checksum,
                        sum(found.files[name] for name in FACTS),
                        sum(found.scans[name] * held[name] for name in FACTS),
                        None,
                    )
                )
            for statement in afterwards:
                connection.execute(statement)
        log.write_text("".join(lines))
        return tuple(runs), log

    def iceberg_sort(self, table: str, target_bytes: int) -> tuple[str, ...]:
        return ()


def _line(query: Query, begun: float) -> str:
    """Return the query's line of the log. begun: epoch seconds."""
    body: dict[str, Any] = {
        "sql": query.sql,
        "timestamp": round(begun * 1000),
        "durationMs": round((time.time() - begun) * 1000),
        "engine": "duckdb",
        "catalog": CATALOG,
        "schema": NAMESPACE,
    }
    return json.dumps(body) + "\n"


def _tables(place: Place) -> tuple[Mapping[str, str], Mapping[str, int]]:
    """Return where each table's metadata is, and how many data files each fact table holds."""
    catalog = open_catalog(place)
    loaded = {name: catalog.load_table((NAMESPACE, name)) for name in (*FACTS, *OTHERS)}
    held = {
        name: int(loaded[name].current_snapshot().summary["total-data-files"]) for name in FACTS
    }
    return {name: table.metadata_location for name, table in loaded.items()}, held
