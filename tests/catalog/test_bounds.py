"""Small answers and files that would unpack to gigabytes are refused before they do.

The peak of memory is what Python allocates (tracemalloc): a bomb of 64 times the limit must not
show in it. The writers of the bombs are zlib, Avro by hand and a plain HTTP server.
"""

from __future__ import annotations

import gzip
import io
import json
import threading
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from reconciler.api.catalog_config import CatalogConfig
from reconciler.catalog import avro, bounds
from reconciler.catalog.avro import CorruptContainer, parse_container
from reconciler.catalog.bounds import TooLargeError
from reconciler.catalog.load import connect, list_tables, load_table
from reconciler.catalog.observe import observe_table
from reconciler.state import blobs

LIMIT = 1 << 20
BOMB = 64 << 20


@pytest.fixture(autouse=True)
def small() -> Iterator[None]:
    with bounds.limited(LIMIT):
        yield


def peak_of(work: Callable[[], Any]) -> int:
    """Return the most bytes that Python holds while the work runs and raises TooLargeError."""
    tracemalloc.start()
    try:
        with pytest.raises(TooLargeError):
            work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def packed(size: int, window: int) -> bytes:
    """Return a compressed run of spaces, made without holding it."""
    packer = zlib.compressobj(9, wbits=window)
    parts = [packer.compress(b" " * (1 << 20)) for _ in range(size >> 20)]
    return b"".join([*parts, packer.flush()])


class Server:
    """A REST catalog that answers one config and then `body` to everything."""

    def __init__(self, body: bytes, encoding: str = ""):
        self.body, self.encoding, self.asked = body, encoding, 0
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                config = self.path.startswith("/v1/config")
                body = b'{"defaults":{},"overrides":{}}' if config else outer.body
                outer.asked += not config
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                if outer.encoding and not config:
                    self.send_header("Content-Encoding", outer.encoding)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                try:
                    self.wfile.write(body)
                except OSError:
                    return

            def log_message(self, *_: Any) -> None:
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.uri = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def served() -> Iterator[Callable[..., tuple[Server, CatalogConfig]]]:
    servers: list[Server] = []

    def serve(*arguments: Any, **named: Any) -> tuple[Server, CatalogConfig]:
        server = Server(*arguments, **named)
        servers.append(server)
        return server, CatalogConfig("c", "rest", {"type": "rest", "uri": server.uri})

    yield serve
    for server in servers:
        server.stop()


@pytest.mark.parametrize(
    ("encoding", "body"),
    [
        pytest.param("gzip", lambda: packed(BOMB, 31), id="gzip"),
        pytest.param("deflate", lambda: packed(BOMB, 15), id="deflate"),
        pytest.param("", lambda: b"[" + b"0," * LIMIT + b"0]", id="plain"),
        pytest.param("gzip, gzip", lambda: gzip.compress(packed(BOMB, 31)), id="gzip twice"),
        pytest.param("", lambda: b"[" + b"[]," * (LIMIT // 32) + b"[]]", id="many values"),
    ],
)
def test_an_answer_is_read_up_to_the_limit(
    served: Any, encoding: str, body: Callable[[], bytes]
) -> None:
    _, config = served(body(), encoding)
    catalog = connect(config)
    assert peak_of(lambda: load_table(catalog, config, ("a", "t"))) < 12 * LIMIT


def test_pages_without_end_are_one_listing(served: Any) -> None:
    names = [{"namespace": ["a"], "name": f"t{number}"} for number in range(1000)]
    page = {"identifiers": names, "next-page-token": "more"}
    server, config = served(json.dumps(page).encode())
    catalog = connect(config)
    peak_of(lambda: list_tables(catalog, config, ("a",), 30.0))
    assert server.asked <= LIMIT // len(server.body) + 1


def test_answers_below_the_limit_are_read(served: Any) -> None:
    page = {"identifiers": [{"namespace": ["a"], "name": "ü"}]}
    _, config = served(gzip.compress(json.dumps(page).encode()), "gzip")
    assert list_tables(connect(config), config, ("a",), 30.0) == [("a", "ü")]


def test_nested_answers_are_refused(served: Any) -> None:
    deep = 25_000
    _, config = served(b'{"metadata":' + b"[" * deep + b"]" * deep + b"}")
    with pytest.raises(Exception) as found:
        load_table(connect(config), config, ("a", "t"))
    assert getattr(found.value, "exit_code", None) in (1, 5)


def avro_file(codec: str, block: bytes, rows: int, schema: Any = None) -> bytes:
    """Return an Avro container with one block."""
    schema = schema or {"type": "record", "name": "r", "fields": [{"name": "a", "type": "bytes"}]}
    items = (("avro.codec", codec.encode()), ("avro.schema", json.dumps(schema).encode()))
    out = avro.MAGIC + avro._write_long(len(items))
    for key, value in items:
        out += avro._write_long(len(key)) + key.encode() + avro._write_long(len(value)) + value
    out += avro._write_long(0) + avro.SYNC
    return out + avro._write_long(rows) + avro._write_long(len(block)) + block + avro.SYNC


def by_arrow(codec: str) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, codec) as out:
        for _ in range(BOMB >> 20):
            out.write(b" " * (1 << 20))
    return sink.getvalue().to_pybytes()


SNAPPY_PREAMBLE = b"\xff\xff\xff\x7f" + b"0000"
"""Announces 256 MiB."""


@pytest.mark.parametrize(
    ("codec", "block"),
    [
        ("deflate", lambda: packed(BOMB, -15)),
        ("zstandard", lambda: by_arrow("zstd")),
        ("bzip2", lambda: by_arrow("bz2")),
        ("snappy", lambda: SNAPPY_PREAMBLE),
        ("null", lambda: b" " * (LIMIT + 1)),
    ],
)
def test_a_manifest_unpacks_up_to_the_limit(codec: str, block: Callable[[], bytes]) -> None:
    data = avro_file(codec, block(), 1)
    assert peak_of(lambda: parse_container(data)) < 6 * LIMIT


def test_many_blocks_are_limited_together() -> None:
    block = zlib.compress(b" " * 600_000)[2:-4]
    one = avro_file("deflate", block, 1)
    start = one.index(avro.SYNC) + 16
    peak_of(lambda: parse_container(one + one[start:] * 20))


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "record", "name": "r", "fields": [
            {"name": "a", "type": {"type": "array", "items": "null"}}]},
        {"type": "record", "name": "r", "fields": [
            {"name": "e", "type": {"type": "record", "name": "none", "fields": []}},
            {"name": "a", "type": ["null", {"type": "array", "items": "none"}]}]},
        {"type": "record", "name": "r", "fields": [
            {"name": "a", "type": {"type": "array", "items": {"type": "fixed", "name": "f",
                                                             "size": 0}}}]},
    ],
)  # fmt: skip
def test_arrays_of_nothing_are_refused(schema: Any) -> None:
    """Nine bytes could announce 2^62 items."""
    with pytest.raises(CorruptContainer):
        parse_container(avro_file("null", avro._write_long(1 << 60) + b"\x00", 1, schema))


def test_entries_without_bytes_are_refused() -> None:
    with pytest.raises(CorruptContainer):
        parse_container(avro_file("null", b"", 1 << 40))


def test_a_deep_schema_is_refused() -> None:
    schema: Any = "int"
    for _ in range(100):
        schema = {"type": "array", "items": schema}
    with pytest.raises(CorruptContainer):
        parse_container(avro_file("null", b"\x00", 1, schema))


def test_a_metadata_file_is_read_up_to_the_limit(catalog: Any, config: CatalogConfig) -> None:
    table = catalog.create_table("sales.t", pa.schema([("id", pa.int64())]))
    bomb = Path(table.metadata_location.removeprefix("file://")).with_name("9.gz.metadata.json")
    bomb.write_bytes(packed(BOMB, 31))
    _point_to(catalog, f"file://{bomb}")
    with pytest.raises(TooLargeError):
        load_table(catalog, config, ("sales", "t"))
    plain = gzip.compress(
        Path(table.metadata_location.removeprefix("file://")).read_bytes()[:-1]
    ) + gzip.compress(b"}")
    bomb.write_bytes(plain)  # two members: still one file
    assert (
        load_table(catalog, config, ("sales", "t")).metadata.table_uuid == table.metadata.table_uuid
    )


def _point_to(catalog: Any, location: str) -> None:
    from sqlalchemy import text

    with catalog.engine.begin() as connection:
        connection.execute(
            text("UPDATE iceberg_tables SET metadata_location = :l"), {"l": location}
        )


def test_a_manifest_of_a_table_is_read_up_to_the_limit(
    catalog: Any, config: CatalogConfig, tmp_path: Path
) -> None:
    table = catalog.create_table("sales.t", pa.schema([("id", pa.int64())]))
    table.append(pa.table({"id": pa.array([1, 2], pa.int64())}))
    found = catalog.load_table("sales.t")
    manifest = found.current_snapshot().manifests(found.io)[0].manifest_path
    Path(manifest.removeprefix("file://")).write_bytes(avro_file("deflate", packed(BOMB, -15), 1))
    with pytest.raises(TooLargeError):
        observe_table(config, ("sales", "t"), tmp_path / "cache")


def test_a_stored_block_of_arrays_is_limited_before_it_is_unpacked() -> None:
    buffer = io.BytesIO()
    np.savez_compressed(buffer, header=np.zeros(8 * LIMIT, dtype=np.uint8))
    assert peak_of(lambda: blobs.unpack(buffer.getvalue())) < LIMIT
