"""Decodes many Avro container files of one schema together: the fast way to read many manifests.

A manifest is small and a table has many, so a reader's fixed cost per file would dominate. Data
blocks of Avro files with one schema can be put behind one header. The schema is first reduced to
what the bytes mean (no logical types, no docs, field names by Iceberg field id), so that manifests
of Spark, pyiceberg and others have the same one. DataFusion then decodes them at once.
"""

from __future__ import annotations

import json
import tempfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa

from reconciler.catalog import bounds

MAGIC = b"Obj\x01"
SYNC = b"layoutctl-sync-1"
MOST_NESTED = 64
"""Levels of an Avro schema. A manifest has six."""
_PRIMITIVE = {"null", "boolean", "int", "long", "float", "double", "bytes", "string"}


class CorruptContainer(ValueError):
    """The bytes are not a readable Avro container file."""


@dataclass(frozen=True, slots=True)
class Container:
    """One Avro file: header metadata, and all its data blocks decompressed and joined.

    Some writers make a block of every entry; a reader's fixed cost per block would dominate.
    """

    metadata: dict[str, bytes]
    rows: int
    body: bytes

    @property
    def schema(self) -> Any:
        return json.loads(self.metadata["avro.schema"])


def parse_container(data: bytes, subject: str = "an Avro file") -> Container:
    """Return header and blocks of an Avro object container file. subject: as errors call it.

    Raises CorruptContainer, and TooLargeError if the blocks unpack to more than the limit.
    """
    try:
        return _parse(data, subject)
    except CorruptContainer:
        raise
    except (IndexError, ValueError, KeyError, OverflowError, zlib.error, pa.ArrowException,
            OSError, RecursionError) as error:  # fmt: skip
        raise CorruptContainer(str(error) or type(error).__name__) from error


def _parse(data: bytes, subject: str) -> Container:
    if data[:4] != MAGIC:
        raise CorruptContainer("it does not begin with Avro's magic number")
    metadata, at = _read_metadata(data, 4)
    sync, at = data[at : at + 16], at + 16
    codec = metadata.get("avro.codec", b"null").decode()
    total, size_in_all, bodies = 0, 0, []
    while at < len(data):
        rows, at = read_long(data, at)
        size, at = read_long(data, at)
        end = at + size
        if rows < 0 or size < 0 or data[end : end + 16] != sync:
            raise CorruptContainer(f"a data block ends without its sync marker near byte {end}")
        bodies.append(_decompress(codec, data[at:end], bounds.limit() - size_in_all, subject))
        total += rows
        size_in_all += len(bodies[-1])
        bounds.require(size_in_all, subject)
        at = end + 16
    if total > size_in_all:
        raise CorruptContainer(f"its {total} entries have fewer bytes than that")
    _require_sized_items(metadata["avro.schema"])
    return Container(metadata, total, b"".join(bodies))


def _read_metadata(data: bytes, at: int) -> tuple[dict[str, bytes], int]:
    metadata: dict[str, bytes] = {}
    while True:
        count, at = read_long(data, at)
        if count == 0:
            return metadata, at
        if count < 0:  # a negative count is followed by the block's size in bytes
            count = -count
            _, at = read_long(data, at)
        if count > len(data):
            raise CorruptContainer(f"its header has {count} entries")
        for _ in range(count):
            key, at = _read_bytes(data, at)
            metadata[key.decode()], at = _read_bytes(data, at)


def _read_bytes(data: bytes, at: int) -> tuple[bytes, int]:
    size, at = read_long(data, at)
    if not 0 <= size <= len(data) - at:
        raise CorruptContainer(f"a text of {size} bytes near byte {at}")
    return data[at : at + size], at + size


def read_long(data: bytes, at: int) -> tuple[int, int]:
    """Return Avro's zig-zag varint, and the offset behind it. Raises CorruptContainer."""
    byte = data[at]
    at += 1
    if byte < 0x80:  # most numbers of a manifest's framing are small
        return (byte >> 1) ^ -(byte & 1), at
    value, shift = byte & 0x7F, 7
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
        shift += 7
        if shift > 63:
            raise CorruptContainer(f"a number is too long near byte {at}")


def _write_long(value: int) -> bytes:
    value = (value << 1) ^ (value >> 63)
    out = bytearray()
    while value > 0x7F:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _decompress(codec: str, block: bytes, most: int, subject: str) -> bytes:
    """Return the plain block. most: bytes left of the limit."""
    if codec == "null":
        return block
    if codec == "deflate":
        return bounds.inflated(block, subject, window=bounds.RAW, most=most)
    if codec == "snappy":  # Avro appends a CRC-32 of the plain bytes
        size, _ = _read_varint(block)
        if size > most:
            bounds.require(bounds.limit() + 1, subject)
        return bytes(pa.decompress(block[:-4], size, codec="snappy"))
    if codec in _STREAMED:
        stream = pa.input_stream(pa.BufferReader(block), compression=_STREAMED[codec])
        return bounds.read(stream, subject)
    raise CorruptContainer(f'its codec "{codec}" is not known')


_STREAMED = {"zstandard": "zstd", "bzip2": "bz2"}


@lru_cache(maxsize=256)
def _require_sized_items(schema: bytes) -> None:
    """Raise CorruptContainer if an array of the schema has items without bytes: a few bytes would
    then announce any number of them. Most manifests of a table have one schema."""
    nodes = list(_types(json.loads(schema), 0))
    named = {node["name"]: node for node in nodes if isinstance(node.get("name"), str)}
    for node in nodes:
        if node.get("type") == "array" and not _has_bytes(node.get("items"), named):
            raise CorruptContainer("its schema has an array whose items have no bytes")


def _types(node: Any, depth: int) -> Iterator[dict[str, Any]]:
    """Yield every type of a schema that is written as an object, and every field."""
    if depth > MOST_NESTED:
        raise CorruptContainer(f"its schema is nested more than {MOST_NESTED} levels deep")
    if isinstance(node, list):
        for member in node:
            yield from _types(member, depth + 1)
    elif isinstance(node, dict):
        yield node
        for key in ("type", "items", "values", "fields"):
            yield from _types(node.get(key), depth + 1)


def _has_bytes(node: Any, named: dict[str, Any]) -> bool:
    """Return whether each value of an Avro type takes at least a byte; the branch of a union
    does."""
    if isinstance(node, str):
        return _has_bytes(named[node], named) if node in named else node != "null"
    if isinstance(node, dict):
        if node.get("type") == "record":
            return any(_has_bytes(item.get("type"), named) for item in node.get("fields") or ())
        if node.get("type") == "fixed":
            return bool(node.get("size"))
        return _has_bytes(node.get("type"), named)
    return True


def _read_varint(data: bytes) -> tuple[int, int]:
    """Read Snappy's preamble: the plain length as an unsigned varint."""
    value = shift = at = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def plain_schema(schema: Any, names: dict[int, str], positional: int) -> str:
    """Return the schema as canonical text without logical types, docs and defaults.

    names: field names by Iceberg field id; other fields keep theirs. positional: the field id of
    the record whose fields are named p0, p1, ... (partition fields have users' names).
    """
    known: dict[str, str] = {}

    def walk(node: Any, numbered: bool = False) -> Any:
        if isinstance(node, list):
            return [walk(member, numbered) for member in node]
        if isinstance(node, str):
            return node if node in _PRIMITIVE else known[node]
        kind = node["type"]
        if kind == "array":
            return {"type": "array", "items": walk(node["items"])}
        if kind == "map":
            return {"type": "map", "values": walk(node["values"])}
        if kind == "record":
            name = declare(node)
            fields = []
            for number, item in enumerate(node["fields"]):
                if _without_bytes(item["type"]):
                    continue  # DataFusion refuses it
                field_id = item.get("field-id", -1)
                label = f"p{number}" if numbered else names.get(field_id, item["name"])
                fields.append({"name": label, "type": walk(item["type"], field_id == positional)})
            return {"type": "record", "name": name, "fields": fields}
        if kind == "fixed":
            return {"type": "fixed", "name": declare(node), "size": node["size"]}
        return walk(kind, numbered)

    def declare(node: dict[str, Any]) -> str:
        plain = f"t{len(known)}"
        known[node["name"]] = plain
        if node.get("namespace"):
            known[f"{node['namespace']}.{node['name']}"] = plain
        return plain

    return json.dumps(walk(schema), separators=(",", ":"))


def _without_bytes(kind: Any) -> bool:
    """Return whether values of the type take no bytes: a partition field whose column was dropped
    has the type null, and the partition of an unpartitioned spec no fields."""
    if not isinstance(kind, dict):
        return bool(kind == "null")
    if kind.get("type") == "record":
        return all(_without_bytes(item["type"]) for item in kind["fields"])
    return _without_bytes(kind.get("type"))


def decode_together(schema: str, containers: Sequence[Container]) -> pa.Table:
    """Return the rows of all containers, in order. All must have been written with `schema`."""
    from datafusion import SessionConfig, SessionContext

    session = SessionContext(SessionConfig().with_target_partitions(1))
    with tempfile.TemporaryDirectory(prefix="layoutctl-") as directory:
        merged = Path(directory) / "merged.avro"
        with merged.open("wb") as out:
            out.write(_header(schema))
            for container in containers:
                if container.rows:
                    out.write(_write_long(container.rows) + _write_long(len(container.body)))
                    out.write(container.body)
                    out.write(SYNC)
        frame = session.read_avro(str(merged))
        return pa.Table.from_batches(frame.collect(), schema=frame.schema())


def _header(schema: str) -> bytes:
    items = (("avro.codec", b"null"), ("avro.schema", schema.encode()))
    out = MAGIC + _write_long(len(items))
    for key, value in items:
        out += _write_long(len(key)) + key.encode() + _write_long(len(value)) + value
    return out + _write_long(0) + SYNC
