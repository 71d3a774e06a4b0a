"""Reads and writes single values of Avro's binary encoding, by a schema with Iceberg's field ids.

`catalog.avro` decodes many manifests at once, for questions about all files of a table. A commit
copies entries without loss, whatever their writer stored in them: here the bytes of a record are
walked, so that most of an entry is copied as it is. Format: Apache Avro specification, "Binary
encoding" and "Object container files".
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from reconciler.catalog.avro import read_long

Reader = Callable[[bytes, int], tuple[Any, int]]
"""(data, offset) -> (value, offset behind it)."""
Skipper = Callable[[bytes, int], int]
"""(data, offset) -> offset behind the value."""
Writer = Callable[[bytearray, Any], None]
"""(buffer, value): appends the value's bytes."""

LEVEL = 1
"""Level of compression: higher ones take three times the CPU for a tenth of the bytes."""
_DROPPED = ("doc", "default", "aliases", "namespace", "order")


def write_long(out: bytearray, value: int) -> None:
    value = (value << 1) ^ (value >> 63)
    while value > 0x7F:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)


def shape(node: Any) -> Any:
    """Return a schema without what does not change the meaning of bytes: docs, defaults, names, and
    whether a varint is an int or a long."""
    known: dict[str, Any] = {}

    def walk(node: Any) -> Any:
        if isinstance(node, list):
            return [walk(member) for member in node]
        if isinstance(node, str):
            return "long" if node == "int" else known.get(node, node)
        if "name" in node and node.get("type") in ("record", "fixed"):
            made = {
                key: [{"id": f.get("field-id", f["name"]), "type": walk(f["type"])} for f in value]
                if key == "fields" else value
                for key, value in node.items() if key not in (*_DROPPED, "name")
            }  # fmt: skip
            known[node["name"]] = made
            return made
        if set(node) <= {"type", *_DROPPED}:
            return walk(node["type"])
        nested = ("items", "values")
        return {
            key: walk(value) if key in nested else value
            for key, value in node.items() if key not in _DROPPED
        }  # fmt: skip

    return walk(node)


def is_map(node: Any) -> bool:
    """Whether an array holds pairs of key and value, as Iceberg stores maps whose keys are no
    texts."""
    return node.get("logicalType") == "map" or (
        isinstance(node["items"], dict)
        and [f["id"] for f in node["items"].get("fields", ())] in _PAIRS
    )


_PAIRS = ([117, 118], [119, 120], [121, 122], [138, 139], [126, 127], [129, 130], [111, 112])


def reader(node: Any) -> Reader:
    """Return the reader of a shape: records as dict by field id, maps as dict."""
    if isinstance(node, list):
        return _read_union([reader(member) for member in node])
    kind = node if isinstance(node, str) else node["type"]
    if kind == "record":
        return _read_record([(f["id"], reader(f["type"])) for f in node["fields"]])
    if kind == "array" and is_map(node):
        key, value = (reader(f["type"]) for f in node["items"]["fields"])
        return _read_pairs(key, value)
    if kind == "array":
        return _read_items(reader(node["items"]))
    if kind == "fixed":
        size = int(node["size"])
        return lambda data, at: (data[at : at + size], at + size)
    return _READERS[kind]


def _read_bytes(data: bytes, at: int) -> tuple[bytes, int]:
    size, at = read_long(data, at)
    return data[at : at + size], at + size


def _read_text(data: bytes, at: int) -> tuple[str, int]:
    size, at = read_long(data, at)
    return data[at : at + size].decode(), at + size


_READERS: Mapping[str, Reader] = {
    "null": lambda data, at: (None, at),
    "boolean": lambda data, at: (bool(data[at]), at + 1),
    "int": read_long,
    "long": read_long,
    "float": lambda data, at: (struct.unpack_from("<f", data, at)[0], at + 4),
    "double": lambda data, at: (struct.unpack_from("<d", data, at)[0], at + 8),
    "bytes": _read_bytes,
    "string": _read_text,
}


def _read_union(members: list[Reader]) -> Reader:
    def read(data: bytes, at: int) -> tuple[Any, int]:
        number, at = read_long(data, at)
        return members[number](data, at)

    return read


def _read_record(fields: list[tuple[Any, Reader]]) -> Reader:
    def read(data: bytes, at: int) -> tuple[dict[Any, Any], int]:
        found = {}
        for key, of in fields:
            found[key], at = of(data, at)
        return found, at

    return read


def _blocks(data: bytes, at: int) -> tuple[int, int]:
    """Return the number of items of the next block of an array, 0 at its end."""
    count, at = read_long(data, at)
    if count < 0:
        _, at = read_long(data, at)
    return abs(count), at


def _read_pairs(key: Reader, value: Reader) -> Reader:
    def read(data: bytes, at: int) -> tuple[dict[Any, Any], int]:
        found = {}
        count, at = _blocks(data, at)
        while count:
            for _ in range(count):
                name, at = key(data, at)
                found[name], at = value(data, at)
            count, at = _blocks(data, at)
        return found, at

    return read


def _read_items(item: Reader) -> Reader:
    def read(data: bytes, at: int) -> tuple[list[Any], int]:
        found = []
        count, at = _blocks(data, at)
        while count:
            for _ in range(count):
                one, at = item(data, at)
                found.append(one)
            count, at = _blocks(data, at)
        return found, at

    return read


def skipper(node: Any) -> Skipper:
    """Return what passes over a value of a shape."""
    if isinstance(node, list):
        return _skip_union([skipper(member) for member in node])
    kind = node if isinstance(node, str) else node["type"]
    if kind == "record":
        return _skip_all([skipper(f["type"]) for f in node["fields"]])
    if kind == "array":
        numbers = _numbers_of(node["items"])
        if numbers is not None:
            return _skip_numbers(*numbers)
        return _skip_items(skipper(node["items"]))
    if kind == "fixed":
        size = int(node["size"])
        return lambda data, at: at + size
    return _SKIPPERS[kind]


def _numbers_of(items: Any) -> tuple[int, bool] | None:
    """Return the varints of an item and whether the last of them is a length of bytes; None if it
    is of another form. Most of an entry's bytes are lists of such items."""
    fields = [items] if isinstance(items, str) else [f["type"] for f in items.get("fields", [None])]
    if all(kind in ("int", "long") for kind in fields):
        return len(fields), False
    if fields[-1] in ("bytes", "string") and all(kind in ("int", "long") for kind in fields[:-1]):
        return len(fields), True
    return None


@lru_cache(maxsize=1024)
def _varints(count: int) -> Callable[[bytes, int], Any]:
    """Return what matches so many varints: one call for a whole list."""
    return re.compile(rb"(?:[\x80-\xff]*+[\x00-\x7f]){%d}" % count, re.DOTALL).match


def _skip_numbers(varints: int, sized: bool) -> Skipper:
    def skip_plain(data: bytes, at: int) -> int:
        count, at = _blocks(data, at)
        while count:
            found = _varints(count * varints)(data, at)
            if found is None:
                raise IndexError("a list ends too early")
            at = found.end()
            count, at = _blocks(data, at)
        return at

    def skip_sized(data: bytes, at: int) -> int:
        count, at = _blocks(data, at)
        while count:
            for _ in range(count):
                for _ in range(varints - 1):
                    while data[at] > 0x7F:
                        at += 1
                    at += 1
                byte = data[at]
                if byte < 0x80:
                    at += 1 + (byte >> 1)
                else:
                    size, at = read_long(data, at)
                    at += size
            count, at = _blocks(data, at)
        return at

    return skip_sized if sized else skip_plain


def _skip_long(data: bytes, at: int) -> int:
    while data[at] > 0x7F:
        at += 1
    return at + 1


def _skip_bytes(data: bytes, at: int) -> int:
    size, at = read_long(data, at)
    return at + size


_SKIPPERS: Mapping[str, Skipper] = {
    "null": lambda data, at: at,
    "boolean": lambda data, at: at + 1,
    "int": _skip_long,
    "long": _skip_long,
    "float": lambda data, at: at + 4,
    "double": lambda data, at: at + 8,
    "bytes": _skip_bytes,
    "string": _skip_bytes,
}


def _skip_union(members: list[Skipper]) -> Skipper:
    def skip(data: bytes, at: int) -> int:
        number, at = read_long(data, at)
        return members[number](data, at)

    return skip


def _skip_all(members: list[Skipper]) -> Skipper:
    def skip(data: bytes, at: int) -> int:
        for member in members:
            at = member(data, at)
        return at

    return skip


def _skip_items(item: Skipper) -> Skipper:
    def skip(data: bytes, at: int) -> int:
        count, at = _blocks(data, at)
        while count:
            for _ in range(count):
                at = item(data, at)
            count, at = _blocks(data, at)
        return at

    return skip


def writer(node: Any) -> Writer:
    """Return the writer of a shape, for values as `reader` returns them; a missing field is
    NULL."""
    if isinstance(node, list):
        return _write_optional(node)
    kind = node if isinstance(node, str) else node["type"]
    if kind == "record":
        return _write_record([(f["id"], writer(f["type"])) for f in node["fields"]])
    if kind == "array" and is_map(node):
        key, value = (writer(f["type"]) for f in node["items"]["fields"])
        return _write_pairs(key, value)
    if kind == "array":
        return _write_items(writer(node["items"]))
    if kind == "fixed":
        decimal = node.get("logicalType") == "decimal"
        return _write_decimal(node["size"]) if decimal else _write_fixed(node["size"])
    return _WRITERS[kind]


def _write_fixed(size: int) -> Writer:
    def write(out: bytearray, value: bytes) -> None:
        if len(value) != size:
            raise ValueError(f"a value has {len(value)} bytes, of a type of {size}")
        out += value

    return write


def _write_decimal(size: int) -> Writer:
    """A type that was widened since has more bytes than a value written before."""

    def write(out: bytearray, value: bytes) -> None:
        if len(value) != size:
            value = int.from_bytes(value, "big", signed=True).to_bytes(size, "big", signed=True)
        out += value

    return write


def _write_bytes(out: bytearray, value: bytes) -> None:
    write_long(out, len(value))
    out += value


_WRITERS: Mapping[str, Writer] = {
    "null": lambda out, value: None,
    "boolean": lambda out, value: out.append(1 if value else 0),
    "int": write_long,
    "long": write_long,
    "float": lambda out, value: out.extend(struct.pack("<f", value)),
    "double": lambda out, value: out.extend(struct.pack("<d", value)),
    "bytes": _write_bytes,
    "string": lambda out, value: _write_bytes(out, value.encode()),
}


def _write_optional(members: list[Any]) -> Writer:
    """Iceberg's unions are of null and one other type."""
    null = members.index("null")
    (other,) = (number for number in range(len(members)) if number != null)
    of = writer(members[other])

    def write(out: bytearray, value: Any) -> None:
        if value is None:
            write_long(out, null)
        else:
            write_long(out, other)
            of(out, value)

    return write


def _write_record(fields: list[tuple[Any, Writer]]) -> Writer:
    def write(out: bytearray, value: Mapping[Any, Any]) -> None:
        for key, of in fields:
            of(out, value.get(key))

    return write


def _write_pairs(key: Writer, value: Writer) -> Writer:
    def write(out: bytearray, pairs: Mapping[Any, Any]) -> None:
        if pairs:
            write_long(out, len(pairs))
            for name, one in pairs.items():
                key(out, name)
                value(out, one)
        out.append(0)

    return write


def _write_items(item: Writer) -> Writer:
    def write(out: bytearray, items: list[Any]) -> None:
        if items:
            write_long(out, len(items))
            for one in items:
                item(out, one)
        out.append(0)

    return write


SYNC = b"layoutctl-commit"


def container(header: Mapping[str, str], rows: int, body: bytes) -> bytes:
    """Return an object container file with one compressed block."""
    out = bytearray(b"Obj\x01")
    items = {**header, "avro.codec": "deflate"}
    write_long(out, len(items))
    for key, value in items.items():
        _write_bytes(out, key.encode())
        _write_bytes(out, value.encode())
    out.append(0)
    out += SYNC
    if rows:
        packer = zlib.compressobj(LEVEL, zlib.DEFLATED, -15)
        packed = packer.compress(body) + packer.flush()
        write_long(out, rows)
        write_long(out, len(packed))
        out += packed + SYNC
    return bytes(out)
