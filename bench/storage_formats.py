"""The manifest cache and the stored blobs as they are, in other forms of Arrow IPC and in Parquet.

    python -m bench.storage_formats [files] [files of an action]      default 100000 1000

Both hold the same table: 16 columns with bounds, half of them text of 20 bytes, and counts. Reading
ends with what the program works on, numpy arrays and paths as str; a changed byte is noticed in
every form but plain IPC. CPU seconds of all threads, the smallest of five.
"""

from __future__ import annotations

import io
import sys
import tempfile
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from reconciler.catalog import segment
from reconciler.catalog.entries import Entries, FieldStats, RawBounds
from reconciler.state import blobs

COLUMNS = 16
MANIFESTS = 100
ROUNDS = 5


def entries(files: int) -> Entries:
    """What is decoded of a partitioned table with `files` data files."""
    rng = np.random.default_rng(7)
    path = np.empty(files, dtype=object)
    path[:] = [
        f"s3://lake/warehouse/sales/orders/data/day={n % 365:03d}/00000-{n}-"
        f"{rng.integers(2**62):016x}-{rng.integers(2**62):016x}-00001.parquet"
        for n in range(files)
    ]
    none = np.full(files, "", dtype=object)

    def numbers(low: int, high: int) -> Any:
        return rng.integers(low, high, files)

    def raw(column: int) -> RawBounds:
        if column % 2:
            data = numbers(0, 2**40).astype("<i8").view(np.uint8).reshape(files, 8)
        else:
            text = np.char.mod("value-%014d", numbers(0, 10**13)).astype("S20")
            data = text.view(np.uint8).reshape(files, 20)
        return RawBounds(data, np.full(files, data.shape[1], dtype=np.int32))

    stats = {
        column: FieldStats(
            raw(column), raw(column), nulls=np.zeros(files, np.int64), nans=None,
            values=numbers(900_000, 1_100_000), sizes=numbers(10_000, 9_000_000),
        )
        for column in range(1, COLUMNS + 1)
    }  # fmt: skip
    return Entries(
        manifests=tuple((f"s3://lake/m/{n}.avro", 1000 + n) for n in range(MANIFESTS)),
        manifest=np.sort(numbers(0, MANIFESTS)).astype(np.int32),
        status=np.ones(files, np.int8), content=np.zeros(files, np.int8),
        snapshot_id=np.repeat(rng.integers(0, 2**62, files // 100 + 1), 100)[:files],
        sequence=np.arange(files) // 100, file_sequence=np.arange(files) // 100, path=path,
        parquet=np.ones(files, bool),
        encrypted=np.zeros(files, bool), records=numbers(900_000, 1_100_000),
        bytes=numbers(60_000_000, 160_000_000), sort_order_id=np.zeros(files, np.int32),
        partition=numbers(0, 365).astype(np.int32),
        partitions=tuple(((1000,), (n,)) for n in range(365)), referenced=none,
        content_bytes=np.zeros(files, np.int64), stats=stats,
    )  # fmt: skip


def ipc(found: Any, path: Path, compression: str | None) -> None:
    options = pa.ipc.IpcWriteOptions(compression=compression, use_threads=False)
    table = segment.to_arrow(found)
    with pa.ipc.new_file(str(path), table.schema, options=options) as writer:
        writer.write_table(table)


def ipc_back(path: Path, *, checked: bool) -> Entries:
    data = path.read_bytes()
    if checked:
        zlib.crc32(data)
    return segment.from_arrow(pa.ipc.open_file(pa.BufferReader(data)).read_all())


def parquet(found: Any, path: Path, compression: str) -> None:
    pq.write_table(
        segment.to_arrow(found), path, compression=compression, write_page_checksum=True,
        use_dictionary=False, write_statistics=False,
    )  # fmt: skip


def parquet_back(path: Path) -> Entries:
    read = pq.read_table(path, use_threads=False, page_checksum_verification=True)
    return segment.from_arrow(read)


def cpu(work: Callable[[], Any]) -> float:
    best = float("inf")
    for _ in range(ROUNDS):
        start = time.process_time()
        work()
        best = min(best, time.process_time() - start)
    return best


def cache_forms(files: int) -> None:
    found = entries(files)
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "x.segment"
        forms: list[tuple[str, Callable[[], Any], Callable[[], Any]]] = [
            ("segment (IPC, lz4, CRC-32)", lambda: segment.write_segment(path, found),
             lambda: segment.read_segment(path)),
            ("Arrow IPC, no checksum", lambda: ipc(found, path, None),
             lambda: ipc_back(path, checked=False)),
            ("Arrow IPC and CRC-32", lambda: ipc(found, path, None),
             lambda: ipc_back(path, checked=True)),
            ("Arrow IPC, zstd, and CRC-32", lambda: ipc(found, path, "zstd"),
             lambda: ipc_back(path, checked=True)),
            ("Parquet, snappy, page CRC", lambda: parquet(found, path, "snappy"),
             lambda: parquet_back(path)),
            ("Parquet, zstd, page CRC", lambda: parquet(found, path, "zstd"),
             lambda: parquet_back(path)),
        ]  # fmt: skip
        for name, write, read in forms:
            wrote, took = cpu(write), cpu(read)
            back = read()
            assert (back.path == found.path).all() and (back.records == found.records).all()
            assert all(
                (back.stats[n].lower.data == stats.lower.data).all()
                for n, stats in found.stats.items()
            )
            size = path.stat().st_size / 2**20
            print(f"{name:28} write {wrote:6.3f} s  read {took:6.3f} s  {size:7.1f} MiB")


def blob_forms(files: int) -> None:
    """The arrays of one action's inputs, as `state` packs them."""
    found = entries(files)
    table = segment.to_arrow(found)
    arrays = {
        name: segment._array(table.column(name))
        for name in table.column_names
        if name not in segment.TEXTS
    }
    header = [found.manifests, found.path.tolist(), found.partitions]

    def feather(compression: str) -> bytes:
        sink = io.BytesIO()
        options = pa.ipc.IpcWriteOptions(compression=compression, use_threads=False)
        with pa.ipc.new_file(sink, table.schema, options=options) as writer:
            writer.write_table(table)
        return sink.getvalue()

    def columnar() -> bytes:
        sink = io.BytesIO()
        pq.write_table(table, sink, compression="zstd", write_statistics=False)
        return sink.getvalue()

    for name, pack, unpack in (
        ("pack (ours: npz, deflate)", lambda: blobs.pack(header, arrays), blobs.unpack),
        ("Arrow IPC, zstd", lambda: feather("zstd"),
         lambda blob: segment.from_arrow(pa.ipc.open_file(pa.BufferReader(blob)).read_all())),
        ("Parquet, zstd", columnar,
         lambda blob: segment.from_arrow(pq.read_table(pa.BufferReader(blob), use_threads=False))),
    ):  # fmt: skip
        blob = pack()
        wrote, took = cpu(pack), cpu(lambda unpack=unpack, blob=blob: unpack(blob))
        kib = len(blob) / 1024
        print(f"{name:28} pack {wrote:7.4f} s  unpack {took:7.4f} s  {kib:7.1f} KiB")


def main() -> None:
    given = [int(number) for number in sys.argv[1:]]
    files, inputs = (*given, *(100_000, 1_000)[len(given) :])
    pa.set_cpu_count(1)
    print(f"manifest cache, {files:,} files x {COLUMNS} columns, pyarrow {pa.__version__}")
    cache_forms(files)
    print(f"blob, {inputs:,} files")
    blob_forms(inputs)


if __name__ == "__main__":
    main()
