"""Decoding of manifests: any codec, any order of keys, missing lists, many files at once."""

from __future__ import annotations

import bz2
import json
import os
import resource
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestEntry,
    ManifestEntryStatus,
    write_manifest,
)
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, NestedField, StringType

from reconciler.catalog import avro
from reconciler.catalog.entries import NULL, Entries, concatenate, select
from reconciler.catalog.manifest import entries_of, entry_schema, partition_columns
from reconciler.catalog.segment import ManifestCache, read_segment, write_segment
from tests.examples import examples

SCHEMA = Schema(NestedField(1, "a", LongType()), NestedField(2, "s", StringType()), schema_id=0)
BY_A = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "a"))


def entry(number: int, **values: Any) -> ManifestEntry:
    given_values: dict[str, Any] = {
        "content": DataFileContent.DATA,
        "file_path": f"file:/t/{number}.parquet",
        "file_format": FileFormat.PARQUET,
        "partition": Record(),
        "record_count": number,
        "file_size_in_bytes": 10 * number,
        "column_sizes": None,
        "value_counts": None,
        "null_value_counts": None,
        "nan_value_counts": None,
        "lower_bounds": None,
        "upper_bounds": None,
        "key_metadata": None,
        "split_offsets": None,
        "equality_ids": None,
        "sort_order_id": None,
        **values,
    }
    return ManifestEntry.from_args(
        status=ManifestEntryStatus.ADDED,
        snapshot_id=7,
        sequence_number=None,
        file_sequence_number=None,
        data_file=DataFile.from_args(**given_values),
    )


def write(path: Path, entries: list[ManifestEntry], spec: PartitionSpec, version: int = 2) -> bytes:
    output = PyArrowFileIO().new_output(f"file://{path}")
    with write_manifest(version, spec, SCHEMA, output, 7, "null") as writer:  # type: ignore[arg-type]
        for item in entries:
            writer.add(item)
    return path.read_bytes()


def decode(*files: bytes) -> Entries:
    containers = [avro.parse_container(data) for data in files]
    table = avro.decode_together(entry_schema(containers[0]), containers)
    keys = [(f"m{number}", len(data)) for number, data in enumerate(files)]
    rows = [container.rows for container in containers]
    return entries_of(table, keys, rows, partition_columns(containers[0]))


def recoded(data: bytes, codec: str) -> bytes:
    """The same container file, its blocks compressed by another codec."""
    container = avro.parse_container(data)
    metadata = {**container.metadata, "avro.codec": codec.encode()}
    out = avro.MAGIC + avro._write_long(len(metadata))
    for key, value in metadata.items():
        out += avro._write_long(len(key)) + key.encode() + avro._write_long(len(value)) + value
    out += avro._write_long(0) + avro.SYNC
    packed = _compressed(codec, container.body)
    out += avro._write_long(container.rows) + avro._write_long(len(packed)) + packed
    return out + avro.SYNC


def _compressed(codec: str, block: bytes) -> bytes:
    if codec == "deflate":
        return zlib.compress(block)[2:-4]
    if codec == "snappy":
        return pa.compress(block, codec="snappy", asbytes=True) + struct.pack(
            ">I", zlib.crc32(block)
        )
    if codec == "zstandard":
        return pa.compress(block, codec="zstd", asbytes=True)
    return bz2.compress(block) if codec == "bzip2" else block


@pytest.mark.parametrize("codec", ["null", "deflate", "snappy", "zstandard", "bzip2"])
def test_every_codec_of_the_specification_is_read(tmp_path: Path, codec: str) -> None:
    plain = write(tmp_path / "m.avro", [entry(n) for n in range(300)], UNPARTITIONED_PARTITION_SPEC)
    assert decode(recoded(plain, codec)).records.tolist() == list(range(300))


def test_an_unknown_codec_is_named(tmp_path: Path) -> None:
    plain = write(tmp_path / "m.avro", [entry(1)], UNPARTITIONED_PARTITION_SPEC)
    with pytest.raises(avro.CorruptContainer, match="lz77"):
        avro.parse_container(plain.replace(b"\x08null", b"\x08lz77", 1))


@pytest.mark.parametrize("cut", [3, 10, 200, -17, -1])
def test_a_cut_file_is_corrupt_and_never_shorter(tmp_path: Path, cut: int) -> None:
    plain = write(tmp_path / "m.avro", [entry(n) for n in range(5)], UNPARTITIONED_PARTITION_SPEC)
    with pytest.raises(avro.CorruptContainer):
        avro.parse_container(plain[:cut])


@pytest.mark.parametrize(
    "header",
    [
        b"\x80" * 6 + b"\x01" + b"\x03" + b"\0" * 64,  # 2^41 entries, the first of -2 bytes
        b"\x02\x01" + b"\0" * 64,  # one entry, the name of which has -1 bytes
        b"\x02\x7e" + b"\0" * 8,  # a name of 63 bytes where eight are left
    ],
)
def test_a_header_of_garbage_is_refused_at_once(header: bytes) -> None:
    with pytest.raises(avro.CorruptContainer):
        avro.parse_container(avro.MAGIC + header)


COUNTS = st.none() | st.dictionaries(st.integers(1, 6), st.integers(0, 2**40), max_size=6)
BOUNDS = st.none() | st.dictionaries(st.integers(1, 6), st.binary(max_size=80), max_size=6)


@settings(max_examples=examples(40), deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.lists(st.tuples(COUNTS, COUNTS, BOUNDS, BOUNDS, st.booleans()), min_size=1, max_size=12),
    st.integers(1, 3),
)
def test_statistics_are_matched_by_key_whatever_their_order(
    tmp_path_factory: pytest.TempPathFactory, items: list[Any], files: int
) -> None:
    directory = tmp_path_factory.mktemp("m")
    entries = [
        entry(
            number,
            null_value_counts=nulls,
            column_sizes=sizes,
            lower_bounds=lower,
            upper_bounds=upper,
            key_metadata=b"k" if encrypted else None,
            sort_order_id=number if encrypted else None,
        )
        for number, (nulls, sizes, lower, upper, encrypted) in enumerate(items)
    ]
    pieces = [entries[number::files] for number in range(min(files, len(entries)))]
    data = [
        write(directory / f"{n}.avro", piece, UNPARTITIONED_PARTITION_SPEC)
        for n, piece in enumerate(pieces)
    ]
    found = decode(*data)
    write_segment(directory / "x.segment", found)
    back = read_segment(directory / "x.segment")
    assert back is not None
    for seen in (found, back):
        _compare(seen, [item for piece in pieces for item in piece])
    half = np.arange(0, len(found), 2)
    _compare(select(back, half), [item for piece in pieces for item in piece][::2])
    _compare(
        concatenate([select(found, half), found]),
        [item for piece in pieces for item in piece][::2]
        + [item for piece in pieces for item in piece],
    )


def test_a_segment_that_does_not_fit_leaves_nothing(tmp_path: Path) -> None:
    found = decode(write(tmp_path / "1.avro", [entry(1)], UNPARTITIONED_PARTITION_SPEC))
    directory = tmp_path / "cache"
    directory.mkdir()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64, hard))
    try:
        with pytest.raises(OSError):
            write_segment(directory / "x.segment", found)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list(directory.iterdir()) == []


def _compare(found: Entries, entries: list[ManifestEntry]) -> None:
    assert found.path.tolist() == [item.data_file.file_path for item in entries]
    assert found.encrypted.tolist() == [item.data_file.key_metadata is not None for item in entries]
    for row, item in enumerate(entries):
        for name, counts in (
            ("nulls", item.data_file.null_value_counts),
            ("sizes", item.data_file.column_sizes),
        ):
            for key in range(1, 7):
                stats = found.stats.get(key)
                array = getattr(stats, name) if stats else None
                value = NULL if array is None else int(array[row])
                assert value == (counts or {}).get(key, NULL)
        _compare_bounds(found, row, item)


def _compare_bounds(found: Entries, row: int, item: ManifestEntry) -> None:
    for name, bounds in (
        ("lower", item.data_file.lower_bounds),
        ("upper", item.data_file.upper_bounds),
    ):
        for key in range(1, 7):
            stats = found.stats.get(key)
            array = getattr(stats, name) if stats else None
            raw = (bounds or {}).get(key)
            length = -1 if array is None else int(array.length[row])
            if raw is None:
                assert length == -1
            elif len(raw) <= 64:
                assert length == len(raw)
                assert bytes(array.data[row, :length]) == raw
            elif name == "lower":
                assert length == len(raw) and bytes(array.data[row]) == raw[:64]
            elif length == -1:
                assert raw[:64] == b"\xff" * 64
            else:
                assert bytes(array.data[row]).rstrip(b"\0") > raw


@pytest.mark.parametrize("version", [1, 2])
def test_old_and_new_manifests_inherit_what_they_do_not_hold(tmp_path: Path, version: int) -> None:
    items = [entry(n, partition=Record(n % 3)) for n in range(6)]
    found = decode(write(tmp_path / "m.avro", items, BY_A, version))
    assert (found.sequence == NULL).all()
    assert found.content.tolist() == [0] * 6
    assert [found.partitions[n] for n in found.partition] == [((1000,), (n % 3,)) for n in range(6)]


def test_fixed_types_that_are_named_once_and_referred_to_later_are_understood() -> None:
    """Java writes a repeated named type by name only."""
    schema = {
        "type": "record",
        "name": "manifest_entry",
        "fields": [
            {
                "name": "data_file",
                "field-id": 2,
                "type": {
                    "type": "record",
                    "name": "r2",
                    "fields": [
                        {
                            "name": "partition",
                            "field-id": 102,
                            "type": {
                                "type": "record",
                                "name": "r102",
                                "fields": [
                                    {
                                        "name": "odd name!",
                                        "field-id": 1000,
                                        "type": [
                                            "null",
                                            {
                                                "type": "fixed",
                                                "name": "decimal_9_2",
                                                "size": 4,
                                                "logicalType": "decimal",
                                                "precision": 9,
                                                "scale": 2,
                                            },
                                        ],
                                    },
                                    {
                                        "name": "again",
                                        "field-id": 1001,
                                        "type": ["null", "decimal_9_2"],
                                    },
                                ],
                            },
                        }
                    ],
                },
            }
        ],
    }
    container = avro.Container({"avro.schema": json.dumps(schema).encode()}, 0, b"")
    assert [c.precision for c in partition_columns(container)] == [9, 9]
    plain = json.loads(entry_schema(container))
    fields = plain["fields"][0]["type"]["fields"][0]["type"]["fields"]
    assert [item["name"] for item in fields] == ["p0", "p1"]
    assert fields[1]["type"][1] == fields[0]["type"][1]["name"]


@pytest.mark.parametrize("spec", [UNPARTITIONED_PARTITION_SPEC, BY_A])
def test_the_partition_by_a_dropped_column_is_null(tmp_path: Path, spec: PartitionSpec) -> None:
    """Iceberg's library gives such a field the type null, whose values have no bytes."""
    items = [entry(n, partition=Record(*([n] if spec.fields else []))) for n in range(3)]
    written = avro.parse_container(write(tmp_path / "m.avro", items, spec))
    schema = written.schema
    (file,) = (one for one in schema["fields"] if one["field-id"] == 2)
    (where,) = (one for one in file["type"]["fields"] if one["field-id"] == 102)
    gone = {"name": "gone", "field-id": 1007, "type": "null", "default": None}
    where["type"]["fields"].insert(0, gone)
    metadata = {**written.metadata, "avro.schema": json.dumps(schema).encode()}
    container = avro.Container(metadata, written.rows, written.body)
    table = avro.decode_together(entry_schema(container), [container])
    found = entries_of(table, [("m", 1)], [3], partition_columns(container))
    ids = (1007, *(field.field_id for field in spec.fields))
    values = [(None, *([n] if spec.fields else [])) for n in range(3)]
    assert [found.partitions[n] for n in found.partition] == [(ids, one) for one in values]
    assert found.path.tolist() == [item.data_file.file_path for item in items]


def test_an_empty_manifest_is_not_an_error(tmp_path: Path) -> None:
    plain = write(tmp_path / "m.avro", [entry(1)], UNPARTITIONED_PARTITION_SPEC)
    container = avro.parse_container(plain)
    empty = avro.Container(container.metadata, 0, b"")
    table = avro.decode_together(entry_schema(empty), [empty])
    assert len(entries_of(table, [("m", 1)], [0], ())) == 0


def test_the_cache_keeps_to_its_limit_and_evicts_what_was_used_longest_ago(tmp_path: Path) -> None:
    plain = write(tmp_path / "m.avro", [entry(n) for n in range(50)], UNPARTITIONED_PARTITION_SPEC)
    found, size = decode(plain), 0
    for number in range(40):
        cache = ManifestCache(tmp_path, f"table-{number:02d}", max_bytes=10 * size or 1 << 30)
        cache.store(found)
        size = size or sum(path.stat().st_size for path in cache.directory.iterdir())
        os.utime(cache.directory, (number, number))
        cache.tidy()
        left = sorted(path.name for path in cache.root.iterdir())
        assert len(left) <= 11  # a tenth of the limit is written between two looks
    assert left[-10:] == [f"table-{number:02d}" for number in range(30, 40)]


def test_a_process_lists_the_cached_tables_after_a_part_of_the_limit_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[str] = []
    monkeypatch.setattr(ManifestCache, "_evict", lambda self: looks.append(self.directory.name))
    plain = write(tmp_path / "m.avro", [entry(n) for n in range(50)], UNPARTITIONED_PARTITION_SPEC)
    found = decode(plain)
    write_segment(tmp_path / "one.segment", found)
    size = (tmp_path / "one.segment").stat().st_size
    for number in range(101):  # a look at first, and after each 25 segments
        cache = ManifestCache(tmp_path, f"{number}", max_bytes=25 * 100 * size)
        cache.store(found)
        cache.tidy()
    assert looks == ["0", "25", "50", "75", "100"]
