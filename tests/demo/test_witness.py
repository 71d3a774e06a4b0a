"""DuckDB opens the files that pruning by metadata leaves, and returns the same rows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from reconciler.catalog.metadata import schema_of
from reconciler.catalog.observe import observe_table
from reconciler.demo import compare, data, script, tpch, witness
from reconciler.demo.duckdb_team import DuckDbTeam
from reconciler.errors import UnavailableError
from reconciler.queries.demanded import demands
from reconciler.queries.fragments import workload_of_fragments
from reconciler.queries.pruning import prune
from reconciler.queries.shape import Shape
from reconciler.table.filetable import FileTable
from reconciler.workload_log.sql import SqlReader
from reconciler.workload_log.sql_log import SqlLogImport
from reconciler.workload_log.tables import KnownTable, SchemaMap
from tests.conftest import sqlite_catalog
from tests.demo.duckdb_pruning import as_duckdb_prunes
from tests.workload_log.sinks import MemorySink

HELD, EMPTY = 12, 3
QUERIES = (
    "SELECT v FROM rec.db.t WHERE id BETWEEN 250 AND 310",
    "SELECT v FROM rec.db.t WHERE id = 77",
    "SELECT v FROM rec.db.t WHERE id < 0",
    "SELECT v, s FROM rec.db.t WHERE s = 'k3' AND id >= 900",
    "SELECT v FROM rec.db.t",
    "SELECT v FROM rec.db.t WHERE d >= '2025-01-01' AND d < date '2025-01-01' + interval 1 month",
    "SELECT v FROM rec.db.t WHERE d >= date_add(date '2025-01-01', 350)",
    "WITH x AS (SELECT v FROM rec.db.t WHERE id < 150) SELECT * FROM x, (SELECT max(v) m FROM x)"
    " WHERE v = m",
    "SELECT v FROM rec.db.t WHERE raw = X'000000FAFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF'",
    "SELECT v FROM rec.db.t WHERE raw >= X'00000300' AND raw < X'00000401'",
    "SELECT v FROM rec.db.t WHERE sparse = 950",
)
BY_OURS = [2, 1, 0, 3, HELD, 2, 1, 4, 1, 4, 1]


@pytest.fixture(scope="module")
def duckdb() -> Iterator[Any]:
    with witness.connect() as connection:
        yield connection


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A catalog with a table of twelve files of a hundred rows each, in order of id and of days;
    the first three hold nothing in one column."""
    found = tmp_path_factory.mktemp("witness")
    catalog = SqlCatalog("rec", **dict(sqlite_catalog(found).properties))
    catalog.create_namespace("db")
    table = None
    for n in range(HELD):
        ids = np.arange(100 * n, 100 * n + 100)
        rows = pa.table({
            "id": ids, "v": ids * 7 % 11, "s": [f"k{x % 5}" for x in ids],
            "d": np.datetime64("2025-01-01") + 30 * n + ids % 30,
            "raw": [int(x).to_bytes(4, "big") + b"\xff" * 16 for x in ids],
            "sparse": pa.array(ids, mask=np.full(100, n < EMPTY)),
        })  # fmt: skip
        table = table or catalog.create_table("db.t", rows.schema)
        table.append(rows)
    return found


def test_duckdb_opens_as_many_files_as_pruning_leaves(
    directory: Path, duckdb: Any, tmp_path: Path
) -> None:
    config = sqlite_catalog(directory)
    table = SqlCatalog("rec", **dict(config.properties)).load_table("db.t")
    files = observe_table(config, ("db", "t"), tmp_path / "cache").files
    known = KnownTable(str(table.metadata.table_uuid), "rec.db.t", schema_of(table.metadata))
    by_ours, planned, opened = [], [], []
    for number, sql in enumerate(QUERIES):
        log, sink = tmp_path / f"{number}.jsonl", MemorySink()
        log.write_text(f'{{"sql": "{sql}", "timestamp": "2025-11-20T00:00:00Z"}}\n')
        tables = SchemaMap({("rec", "db", "t"): known})
        SqlLogImport(SqlReader("spark", tables), sink).run(log)
        asked = demands(workload_of_fragments(sink.fragments), files.schema, 1)
        by_ours.append(sum(_left(files, demand) for demand in asked))
        planned.append(sum(_left(as_duckdb_prunes(files), demand) for demand in asked))
        seen = witness.opened(duckdb, sql, "spark", {"t": table.metadata_location})
        opened.append(seen.files["t"])
    assert by_ours == BY_OURS
    assert opened == planned == [*BY_OURS[:-1], BY_OURS[-1] + EMPTY]


def _left(files: FileTable, demand: Shape) -> int:
    """Return the files that the queries of a demand open together."""
    opened = np.full(len(demand), len(files))
    if demand.prunable:
        opened = prune(demand, files).sum(axis=1)
    return round(float(demand.weight @ opened))


def test_rows_are_compared_as_a_multiset(directory: Path, duckdb: Any) -> None:
    catalog = SqlCatalog("rec", **dict(sqlite_catalog(directory).properties))
    tables = {"t": catalog.load_table("db.t").metadata_location}
    texts = (
        "SELECT id FROM t WHERE id < 9",
        "SELECT x.id FROM t x WHERE x.id < 9 ORDER BY id DESC",
        "SELECT id FROM t WHERE id < 8",
    )
    first, again, other = (witness.opened(duckdb, text, "spark", tables).checksum for text in texts)
    assert first == again != other


def test_an_extension_that_is_not_installed_is_one_clear_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(witness, "EXTENSIONS", ("no_such_extension",))
    with pytest.raises(UnavailableError, match="no_such_extension"):
        witness.connect()


def test_the_demo_counts_what_duckdb_opens_beside_what_was_planned(tmp_path: Path) -> None:
    said: list[str] = []
    scale = data.Scale(scale_factor=0.001, parts=4, late_parts=1, target_bytes=1 << 20)
    place = data.prepare(tmp_path)
    demo = script.Demo(place, scale, said.append, DuckDbTeam(place), "the test asks for it")
    script.arrival(demo)
    queries = tpch.draw((("Q6", 2), ("order lookup", 1)), 1, scale.largest_order)
    others = {name: script._schema(demo, name) for name in data.OTHERS}
    layout = script.locations(demo), script._layout(demo, queries, others).round
    found = compare.second_reader(said.append, queries, layout, layout)["second reader"]
    assert found["same rows"] == found["queries"] == 2
    opened, planned = found["files"][0]
    assert opened == planned > 0
    assert found["files"][1] == (opened, planned)
