"""Trino reads what a rewrite wrote: every type that Spark has too, and predicates on each column.

    python -m bench.trino_reads --server DIRECTORY --java DIRECTORY

DIRECTORY is an unpacked trino-server of release 476 or later with sqlite-jdbc's jar in
plugin/iceberg, and a JDK that it runs on. Tables of every type with NULLs and extreme values are
written by pyiceberg in several files, and `layoutctl apply` sorts them with bloom filters and small
row groups. The rows that Trino returns, all of them and those of an equality on each column, are
compared with the rows that this program keeps. Then one table gets each kind of action of the
engine without a JVM, and is compared after each (`bench.trino_kinds`). Last come tables along trees
of cuts with block ids, read by queries and by routed ones (`bench.tree_reads`). Between them, one
table is analyzed by Trino, rewritten and expired (`bench.trino_statistics`). Ends with code 1 if
any answer differs. Takes some ten minutes.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime as dt
import json
import random
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa

from bench.lake import Lake
from bench.results import write_section
from bench.tree_reads import Engine, written_and_read
from bench.trino_kinds import story
from bench.trino_statistics import analyzed

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("yes", pa.bool_()),
        ("small", pa.int32()),
        ("big", pa.int64()),
        ("single", pa.float32()),
        ("twice", pa.float64()),
        ("money", pa.decimal128(9, 2)),
        ("more", pa.decimal128(18, 4)),
        ("most", pa.decimal128(38, 10)),
        ("day", pa.date32()),
        ("at", pa.timestamp("us")),
        ("at_zone", pa.timestamp("us", "UTC")),
        ("word", pa.string()),
        ("key", pa.uuid()),
        ("four", pa.binary(4)),
        ("bytes", pa.binary()),
    ]
)
NOTE = """Trino 476 by JDK 25, format 2. First come 5 tables of every type, sorted by one column
each; then one table, after each kind of action of the Local engine: all rows, and aggregates under
eight conditions."""
SORTED = ("id", "word", "most", "key", "at")
"""Columns by which a table of its own is sorted."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", type=Path, required=True)
    parser.add_argument("--java", type=Path, required=True)
    parser.add_argument("--rows", type=int, default=2000, help="of a table")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="layout-trino-") as scratch:
        lake = Lake(Path(scratch))
        kept = {key: _rewritten(lake, key, arguments.rows) for key in SORTED}
        with _trino(lake.directory, arguments.server, arguments.java) as ask:
            wrong = [problem for key, rows in kept.items() for problem in _compared(ask, key, rows)]
            print(f"{len(kept)} tables of {arguments.rows} rows were read", flush=True)
            rows = [("read after", "wrong answers"), ("types and predicates", str(len(wrong)))]
            for kind, problems in story(lake.directory, ask):
                print(f"after {kind}: {len(problems)} wrong answers", flush=True)
                rows.append((kind, str(len(problems))))
                wrong += [f"{kind}: {problem}" for problem in problems]
            found = analyzed(lake, _shown(arguments.rows), "word", ask)
            rows.append(("statistics of ANALYZE, rewritten and expired", str(len(found))))
            wrong += found
            wrong += written_and_read(lake.directory, Engine("Trino", "trino", ask, (2,)))
    write_section("Trino reads each kind of action", "python -m bench.trino_reads", rows, NOTE)
    print("\n".join(wrong) or "all rows are as they were")
    return 1 if wrong else 0


def _rows(count: int) -> list[dict[str, Any]]:
    rng = random.Random(7)
    made = []
    for number in range(count):
        moment = dt.datetime(1900, 1, 1) + dt.timedelta(
            days=rng.randrange(90_000), microseconds=rng.randrange(86_400_000_000)
        )
        row = {
            "id": number,
            "yes": rng.random() < 0.5,
            "small": rng.choice((-(2**31), 2**31 - 1, rng.randrange(50))),
            "big": rng.choice((-(2**63), 2**63 - 1, rng.randrange(50))),
            "single": rng.choice((0.0, 1.5, -2.25, 3.0e38)),
            "twice": rng.choice((0.0, 1.5, -2.25, 1.0e308)),
            "money": Decimal(rng.randrange(-(10**9) + 1, 10**9)) / 100,
            "more": Decimal(rng.randrange(-(10**18) + 1, 10**18)).scaleb(-4),
            "most": Decimal(rng.randrange(-(10**28), 10**28)).scaleb(-10),
            "day": moment.date(),
            "at": moment,
            "at_zone": moment.replace(tzinfo=dt.UTC),
            "word": rng.choice(("", "a", "é", "z" * 40, f"w{number}", "\U0001f600")),
            "key": uuid.UUID(int=rng.getrandbits(128)),
            "four": rng.randbytes(4),
            "bytes": rng.choice((b"", b"\x00", b"\xff" * 20, rng.randbytes(5))),
        }
        made.append({k: None if k != "id" and rng.random() < 0.1 else v for k, v in row.items()})
    return made


def _shown(count: int) -> pa.Table:
    """Return rows of the types of which Trino shows statistics."""
    names = ["id", "small", "twice", "money", "day", "at", "word", "bytes"]
    return pa.Table.from_pylist(_rows(count), pa.schema([SCHEMA.field(name) for name in names]))


def _rewritten(lake: Lake, key: str, count: int) -> list[dict[str, Any]]:
    """Make a table, have it rewritten, and return its rows."""
    rows = _rows(count)
    properties = {"write.parquet.row-group-size-bytes": "65536"} | {
        f"write.parquet.bloom-filter-enabled.column.{name}": "true" for name in ("word", "big")
    }
    table = lake.opened().create_table(f"lake.by_{key}", SCHEMA, properties=properties)
    for start in range(6):
        part = [{**r, "key": r["key"] and r["key"].bytes} for r in rows[start::6]]
        table.append(pa.Table.from_pylist(part, SCHEMA))
    done = lake.run([*lake.applying(f"mode: Declared, keys: [{key}]"), f"rec.lake.by_{key}"])
    if " 1 commit," not in done.stdout:
        raise SystemExit(f"nothing was rewritten:\n{done.stdout}")
    return rows


@contextlib.contextmanager
def _trino(directory: Path, server: Path, java: Path) -> Iterator[Any]:
    """Start a server on the catalog; provides a function from SQL to rows."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    etc = directory / "etc"
    (etc / "catalog").mkdir(parents=True)
    (etc / "config.properties").write_text(
        f"node.environment=bench\nnode.bind-ip=127.0.0.1\nnode.internal-address=127.0.0.1\n"
        f"coordinator=true\n"
        f"node-scheduler.include-coordinator=true\nhttp-server.http.port={port}\n"
        f"discovery.uri=http://127.0.0.1:{port}\nplugin.dir={server}/plugin\n"
    )
    (etc / "catalog" / "rec.properties").write_text(
        "connector.name=iceberg\niceberg.catalog.type=jdbc\nfs.hadoop.enabled=true\n"
        "iceberg.jdbc-catalog.catalog-name=rec\niceberg.jdbc-catalog.driver-class=org.sqlite.JDBC\n"
        f"iceberg.jdbc-catalog.connection-url=jdbc:sqlite:{directory}/catalog.db\n"
        f"iceberg.jdbc-catalog.default-warehouse-dir=file://{directory}/warehouse\n"
        "iceberg.jdbc-catalog.schema-version=V0\n"
    )
    command = [
        str(java / "bin/java"), "-Xmx2g", "--add-modules=jdk.incubator.vector",
        f"-Dnode.config={etc}/node.properties", f"-Dconfig={etc}/config.properties",
        f"-Dcatalog.config-dir={etc}/catalog",
        "-cp", f"{server}/lib/*", "io.trino.server.TrinoServer",
    ]  # fmt: skip
    log = directory / "trino.log"
    with log.open("w") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, cwd=directory)
    try:
        _await(process, port, log)
        yield lambda sql: _asked(port, sql)
    finally:
        process.terminate()
        process.wait()


def _await(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    for _ in range(300):
        with contextlib.suppress(OSError, RuntimeError):
            _asked(port, "SELECT 1")
            return
        if process.poll() is not None:
            break
        time.sleep(1)
    raise SystemExit(f"Trino did not start:\n{log.read_text()[-3000:]}")


def _asked(port: int, sql: str) -> list[list[Any]]:
    headers = {"X-Trino-User": "bench", "X-Trino-Catalog": "rec", "X-Trino-Schema": "lake"}
    url = f"http://127.0.0.1:{port}/v1/statement"
    request, rows = urllib.request.Request(url, sql.encode(), headers), []
    while True:
        with urllib.request.urlopen(request, timeout=60) as answer:
            body = json.load(answer)
        if "error" in body:
            raise RuntimeError(body["error"]["message"])
        rows += body.get("data", [])
        if "nextUri" not in body:
            return rows
        request = urllib.request.Request(body["nextUri"], headers=headers)


def _compared(ask: Any, key: str, rows: Sequence[dict[str, Any]]) -> list[str]:
    """Return what differs between Trino's answers and the rows."""
    wrong, names = [], SCHEMA.names
    shown = ", ".join(_as_text(name) for name in names)
    found = Counter(tuple(row) for row in ask(f"SELECT {shown} FROM by_{key}"))
    expected = Counter(tuple(_text(name, row[name]) for name in names) for row in rows)
    for row in list(found - expected)[:3] + list(expected - found)[:3]:
        wrong.append(f"by_{key}: {row} in {found[row]} rows instead of {expected[row]}")
    for name in names[1:]:
        for value in list(dict.fromkeys(row[name] for row in rows))[:8]:
            where = "IS NULL" if value is None else f"= {_literal(name, value)}"
            ((count,),) = ask(f"SELECT count(*) FROM by_{key} WHERE {name} {where}")
            if count != sum(row[name] == value for row in rows):
                wrong.append(f"by_{key}: {name} {where} in {count} rows")
    return wrong


def _as_text(name: str) -> str:
    kind = SCHEMA.field(name).type
    if pa.types.is_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return f"to_hex({name})"
    if name == "at_zone":
        return f"CAST(CAST({name} AT TIME ZONE 'UTC' AS timestamp(6)) AS varchar)"
    return (
        name
        if name in ("id", "yes", "small", "big", "single", "twice")
        else (f"CAST({name} AS varchar)")
    )


def _text(name: str, value: Any) -> Any:
    """Return a value as Trino's answer in JSON shows what `_as_text` selects."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, bytes):
        return value.hex().upper()
    if isinstance(value, Decimal):
        return f"{value:.{SCHEMA.field(name).type.scale}f}"
    if isinstance(value, dt.datetime):
        return value.strftime("%Y-%m-%d %H:%M:%S.%f")
    return str(value)


def _literal(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, bytes):
        return f"X'{value.hex()}'"
    if isinstance(value, str):
        return f"'{value}'"
    if isinstance(value, float):
        return f"{'REAL' if name == 'single' else 'DOUBLE'} '{value!r}'"
    if isinstance(value, int):
        return f"BIGINT '{value}'"
    text = _text(name, value)
    kinds = {"day": "DATE", "at": "TIMESTAMP", "key": "UUID"}
    if name == "at_zone":
        return f"TIMESTAMP '{text} UTC'"
    return f"{kinds.get(name, 'DECIMAL')} '{text}'"


if __name__ == "__main__":
    sys.exit(main())
