"""One rewrite of Parquet files by one engine, in a process of its own.

    python -m bench.native_engines ENGINE KIND DIRECTORY FILE ...

ENGINE: ours | ours-spilled | DuckDB | DataFusion | polars. KIND: pack | sort (by l_shipdate) |
hilbert (l_shipdate and l_partkey, ours only). All write zstd of level 3 into DIRECTORY: ours five
files, the others one, with the row groups that they take by default. Prints one line of JSON:
seconds and CPU seconds without start-up, of ours also the CPU of comparing rows by the witness, the
peak memory of the process, and the bytes written. polars is no dependency: `pip install polars`.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

KEYS = {"pack": (), "sort": ("l_shipdate",), "hilbert": ("l_shipdate", "l_partkey")}
OUTPUTS = 5
THREADS = 2
Act = Callable[[], object]


def main(arguments: Sequence[str]) -> int:
    engine, kind, directory, *files = arguments
    made = ENGINES[engine](KEYS[kind], Path(directory), files)
    cpu, begun = _cpu(), time.monotonic()
    check = made()
    found = {"seconds": time.monotonic() - begun, "cpu": _cpu() - cpu}
    found["peak"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    cpu = _cpu()
    if callable(check):
        check()
        found["check"] = _cpu() - cpu
    found["bytes"] = sum(path.stat().st_size for path in Path(directory).rglob("*.parquet"))
    print(json.dumps(found))
    return 0


def _cpu() -> float:
    own = resource.getrusage(resource.RUSAGE_SELF)
    return own.ru_utime + own.ru_stime


def _ours(memory: int, keys: Sequence[str], directory: Path, files: Sequence[str]) -> Act:
    from reconciler.rewrite.columns import columns_of, every
    from reconciler.rewrite.comparison import WitnessWork
    from reconciler.rewrite.files import DataFile, TableShape
    from reconciler.rewrite.rewriting import rewritten
    from reconciler.rewrite.task import Key, Order, Resources, Task
    from reconciler.rewrite.witness import Limits, witnessed

    columns = columns_of(iceberg_schema(pq.read_schema(files[0])))
    ways = {way[-1].field_id: way for way in every(columns)}
    named = {column.name: column.field_id for column in columns}
    mapping = json.dumps([{"field-id": i, "names": [name]} for name, i in named.items()])
    table = TableShape(columns, ways, mapping, False)
    given = [
        DataFile(path, pq.read_metadata(path).num_rows, Path(path).stat().st_size, 1)
        for path in files
    ]
    order = Order(tuple(Key(named[key]) for key in keys), curve=len(keys) > 1)
    paths = tuple(f"{directory}/{number}.parquet" for number in range(OUTPUTS))
    task = Task(table, tuple(given), order, paths, sum(one.rows for one in given))

    def act() -> Act:
        made = rewritten(task, None, Resources(memory, THREADS))
        written = tuple(DataFile(one.path, one.rows, one.size) for one in made.files)

        def check() -> None:
            seen = [
                witnessed(WitnessWork(table, tuple(ones)), range(len(ones)), None, Limits())
                for ones in (given, written)
            ]
            assert seen[0].fingerprint == seen[1].fingerprint

        return check

    return act


def iceberg_schema(schema: pa.Schema) -> Mapping[str, Any]:
    """Return the schema in JSON, ids in the order of the columns."""

    def kind(given: pa.DataType) -> str:
        if pa.types.is_decimal(given):
            return f"decimal({given.precision}, {given.scale})"
        return {"int64": "long", "int32": "int", "date32[day]": "date"}.get(str(given), "string")

    fields = [
        {"id": number, "name": field.name, "required": False, "type": kind(field.type)}
        for number, field in enumerate(schema, 1)
    ]
    return {"type": "struct", "fields": fields}


def _duckdb(keys: Sequence[str], directory: Path, files: Sequence[str]) -> Act:
    import duckdb

    connection = duckdb.connect()
    connection.execute(f"SET threads = {THREADS}")
    by = f"ORDER BY {', '.join(keys)}" if keys else ""
    text = (
        f"COPY (SELECT * FROM read_parquet({list(files)!r}) {by}) TO '{directory}/o.parquet' "
        "(FORMAT parquet, COMPRESSION zstd, COMPRESSION_LEVEL 3)"
    )
    return lambda: connection.execute(text).fetchall() and None


def _datafusion(keys: Sequence[str], directory: Path, files: Sequence[str]) -> Act:
    from datafusion import SessionConfig, SessionContext, col

    context = SessionContext(SessionConfig().with_target_partitions(THREADS))

    def act() -> None:
        rows = context.read_parquet(files[0])
        for path in files[1:]:
            rows = rows.union(context.read_parquet(path))
        if keys:
            rows = rows.sort(*(col(key).sort() for key in keys))
        rows.write_parquet(str(directory / "o"), compression="zstd", compression_level=3)

    return act


def _polars(keys: Sequence[str], directory: Path, files: Sequence[str]) -> Act:
    import polars

    def act() -> None:
        rows = polars.scan_parquet(list(files))
        rows = rows.sort(*keys) if keys else rows
        path = directory / "o.parquet"
        rows.sink_parquet(path, compression="zstd", compression_level=3, maintain_order=bool(keys))

    return act


ENGINES: Mapping[str, Callable[[Sequence[str], Path, Sequence[str]], Act]] = {
    "ours": lambda *given: _ours(1 << 40, *given),
    "ours-spilled": lambda *given: _ours(1, *given),
    "DuckDB": _duckdb,
    "DataFusion": _datafusion,
    "polars": _polars,
}

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
