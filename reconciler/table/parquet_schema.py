"""Decodes the schema in a Parquet file's footer: groups, annotations and field ids as they are
stored.

Readers of Parquet interpret a schema (two levels of a list become one, an annotation a type of
theirs); what is checked against the Iceberg specification must be what the file says. The footer is
a FileMetaData in Thrift's compact protocol (Apache Parquet, parquet.thrift); its schema is decoded,
and sizes that pyarrow does not show.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

PHYSICAL = (
    "BOOLEAN", "INT32", "INT64", "INT96", "FLOAT", "DOUBLE", "BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY",
)  # fmt: skip
REPETITION = ("required", "optional", "repeated")
UNITS = {1: "MILLIS", 2: "MICROS", 3: "NANOS"}
UTC, LOCAL = "UTC", "local"
MAGIC = b"PAR1"
"""Begins and ends a Parquet file."""
TRAILER_BYTES = 8
"""Bytes after a footer: its length, and the magic bytes."""
TAIL_BYTES = 1 << 16
"""Bytes at a file's end that are read first: most footers are shorter."""
SIGNATURE_BYTES = 28
"""Bytes of the signature after a footer in plain text of a file with encrypted columns: a nonce and
a tag (Parquet Modular Encryption, "Plaintext footer mode")."""
MOST_RECENT = 8
"""Schemas that are kept, for files of so many forms side by side."""
MOST_DEPTH = 64
"""Levels of nesting of a schema, and of its Thrift structures."""


class NotParquetError(ValueError):
    """The bytes are not the footer of a Parquet file."""


def ending(tail: Callable[[int], bytes], size: int, admit: Callable[[int], None]) -> bytes:
    """Return the last bytes of a file of `size` bytes, its whole footer among them.

    tail: returns so many bytes from the file's end; is called once, or twice for a long footer.
    admit: raises if it refuses a footer of so many bytes. Raises NotParquetError without a footer.
    """
    end = tail(min(size, TAIL_BYTES))
    if len(end) < TRAILER_BYTES + len(MAGIC) or not end.endswith(MAGIC):
        raise NotParquetError("the file does not end as a Parquet file does")
    footer = footer_bytes(end)
    if not 0 < footer + TRAILER_BYTES <= size:
        raise NotParquetError(f"the footer has {footer} bytes in a file of {size}")
    admit(footer)
    return end if footer + TRAILER_BYTES <= len(end) else tail(footer + TRAILER_BYTES)


def footer_bytes(end: bytes) -> int:
    """Return the length of a footer. end: the last bytes of the file, eight at least."""
    return int.from_bytes(end[-TRAILER_BYTES : -len(MAGIC)], "little")


def require_plain(trailer: bytes, decoded: int) -> None:
    """Raise NotParquetError for a file with encrypted columns, before anybody asks pyarrow for one
    of them: it ends the process then.

    trailer: the last bytes of the file, eight at least. decoded: bytes of its footer that pyarrow
    decoded.
    """
    if footer_bytes(trailer) - decoded == SIGNATURE_BYTES:
        raise NotParquetError("columns of the file are encrypted")


@dataclass(frozen=True, slots=True)
class Node:
    """A group or a column of a file's schema."""

    name: str
    """Its name within its group."""
    field_id: int | None
    """Iceberg's field id, None if the file has none for it."""
    repetition: str
    """One of REPETITION."""
    physical: str
    """One of PHYSICAL, "" for a group."""
    length: int
    """Bytes of a FIXED_LEN_BYTE_ARRAY, else 0."""
    annotation: str
    """Its logical type, such as "TIMESTAMP(MICROS,UTC)" or "DECIMAL(9,2)"; "" without one."""
    children: tuple[Node, ...] = ()
    """Of a group."""

    def walk(self) -> Iterator[Node]:
        """Yield the nodes below this one, depth first."""
        for child in self.children:
            yield child
            yield from child.walk()


_recent: tuple[tuple[bytes, Node], ...] = ()
"""The schemas that were decoded last, each after the bytes that it was decoded from."""


def schema_in(footer: bytes) -> Node:
    """Return the root of the schema in a serialised FileMetaData. Raises NotParquetError.

    The files of one writer begin their footers with the same bytes up to the end of the schema, of
    which the schema is a function: these are decoded once.
    """
    global _recent
    for start, known in _recent:
        if footer.startswith(start):
            return known
    reader = _Reader(footer)
    try:
        elements = reader.schema_elements()
        root, used = _node(elements, 0, 0)
    except (IndexError, KeyError, TypeError, AttributeError, ValueError) as error:
        raise NotParquetError("the footer has no Parquet schema") from error
    if used != len(elements):
        raise NotParquetError("the footer's schema has columns outside its root")
    _recent = ((footer[: reader.at], root), *_recent[: MOST_RECENT - 1])
    return root


def text_sizes(footer: bytes) -> list[list[int | None]]:
    """Return the bytes of all values of each column of texts, by row group and column, as far as
    the writer says (SizeStatistics). Raises NotParquetError."""
    reader, groups = _Reader(footer), []
    try:
        for number, kind in reader.fields():
            found = reader.value(kind, 0)
            if number == _ROW_GROUPS:
                groups = found
                break
        return [[_unencoded(chunk) for chunk in group.get(1, ())] for group in groups]
    except (IndexError, KeyError, TypeError, AttributeError, ValueError) as error:
        raise NotParquetError("the footer has no row groups") from error


def _unencoded(chunk: Mapping[int, Any]) -> int | None:
    """Return ColumnMetaData.size_statistics.unencoded_byte_array_data_bytes of a ColumnChunk."""
    found = chunk.get(3, {}).get(16, {}).get(1)
    return found if isinstance(found, int) else None


def _node(elements: list[dict[int, Any]], at: int, depth: int) -> tuple[Node, int]:
    """Return the node at this position, and the position after it."""
    if depth > MOST_DEPTH:
        raise NotParquetError(f"the schema is nested more than {MOST_DEPTH} levels deep")
    element = elements[at]
    count, children, after = element.get(5, 0), [], at + 1
    for _ in range(count):
        child, after = _node(elements, after, depth + 1)
        children.append(child)
    physical = "" if 1 not in element else PHYSICAL[element[1]]
    node = Node(
        name=element[4].decode("utf-8", "replace"),
        field_id=element.get(9),
        repetition=REPETITION[element.get(3, 0)],
        physical=physical,
        length=element.get(2, 0) if physical == "FIXED_LEN_BYTE_ARRAY" else 0,
        annotation=_annotation(element),
        children=tuple(children),
    )
    return node, after


def _annotation(element: Mapping[int, Any]) -> str:
    """Return the logical type; both, if the logical type and the older converted type differ."""
    logical, converted = _logical(element.get(10)), _converted(element)
    if not (logical and converted) or _alike(logical, converted):
        return logical or converted
    return f"{logical} and {converted}"


def _alike(logical: str, converted: str) -> bool:
    """A converted type cannot say that a time is local, so writers give it beside such a type."""
    return logical.replace(LOCAL, UTC) == converted


_CONVERTED = {
    0: "STRING", 1: "MAP", 2: "MAP_KEY_VALUE", 3: "LIST", 4: "ENUM", 6: "DATE",
    7: f"TIME(MILLIS,{UTC})", 8: f"TIME(MICROS,{UTC})",
    9: f"TIMESTAMP(MILLIS,{UTC})", 10: f"TIMESTAMP(MICROS,{UTC})",
    11: "INTEGER(8,unsigned)", 12: "INTEGER(16,unsigned)", 13: "INTEGER(32,unsigned)",
    14: "INTEGER(64,unsigned)", 15: "INTEGER(8,signed)", 16: "INTEGER(16,signed)",
    17: "INTEGER(32,signed)", 18: "INTEGER(64,signed)", 19: "JSON", 20: "BSON", 21: "INTERVAL",
}  # fmt: skip
_LOGICAL = {
    1: "STRING", 2: "MAP", 3: "LIST", 4: "ENUM", 6: "DATE", 11: "UNKNOWN", 12: "JSON", 13: "BSON",
    14: "UUID", 15: "FLOAT16", 16: "VARIANT", 17: "GEOMETRY", 18: "GEOGRAPHY",
}  # fmt: skip


def _converted(element: Mapping[int, Any]) -> str:
    kind = element.get(6)
    if kind is None:
        return ""
    if kind == 5:
        return f"DECIMAL({element.get(8, 0)},{element.get(7, 0)})"
    return _CONVERTED.get(kind, f"converted type {kind}")


def _logical(union: Mapping[int, Any] | None) -> str:
    if not union:
        return ""
    kind, value = next(iter(union.items()))
    if kind == 5:
        return f"DECIMAL({value.get(2, 0)},{value.get(1, 0)})"
    if kind in (7, 8):
        unit = UNITS.get(next(iter(value.get(2, {})), 0), "unknown unit")
        return f"{'TIME' if kind == 7 else 'TIMESTAMP'}({unit},{UTC if value.get(1) else LOCAL})"
    if kind == 10:
        width = value.get(1, 0)
        return f"INTEGER({width},{'signed' if value.get(2) else 'unsigned'})"
    return _LOGICAL.get(kind, f"logical type {kind}")


_TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = 1, 2, 3, 7, 8, 9, 10, 11, 12
_SCHEMA, _ROW_GROUPS = 2, 4


class _Reader:
    """A cursor over Thrift's compact protocol."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def schema_elements(self) -> list[dict[int, Any]]:
        """Return FileMetaData.schema, which comes before the row groups."""
        for number, kind in self.fields():
            if number == _SCHEMA:
                found: list[dict[int, Any]] = self.value(kind, 0)
                return found
            self.value(kind, 0)
        raise NotParquetError("the footer has no schema")

    def fields(self) -> Iterator[tuple[int, int]]:
        number = 0
        while True:
            head = self._byte()
            if head == 0:
                return
            delta, kind = head >> 4, head & 0x0F
            number = number + delta if delta else self._zigzag()
            yield number, kind

    def value(self, kind: int, depth: int) -> Any:
        if depth > MOST_DEPTH:
            raise NotParquetError("the footer is nested too deep")
        if kind in (_TRUE, _FALSE):
            return kind == _TRUE
        if kind == _BYTE:
            return self._byte()
        if kind < _DOUBLE:
            return self._zigzag()
        if kind == _DOUBLE:
            return self._bytes(8)
        if kind == _BINARY:
            return self._bytes(self._varint())
        if kind in (_LIST, _SET):
            return self._list(depth)
        if kind == _STRUCT:
            return {number: self.value(of, depth + 1) for number, of in self.fields()}
        raise NotParquetError(f"the footer has a value of the unknown type {kind}")

    def _list(self, depth: int) -> list[Any]:
        head = self._byte()
        size, kind = head >> 4, head & 0x0F
        size = self._varint() if size == 15 else size
        if size > len(self.data) - self.at:
            raise NotParquetError("a list of the footer is longer than the footer")
        if kind in (_TRUE, _FALSE):  # in a list, a byte each
            return [self._byte() == _TRUE for _ in range(size)]
        return [self.value(kind, depth + 1) for _ in range(size)]

    def _byte(self) -> int:
        value = self.data[self.at]
        self.at += 1
        return value

    def _bytes(self, size: int) -> bytes:
        end = self.at + size
        if end > len(self.data):
            raise NotParquetError("the footer ends within a value")
        value = self.data[self.at : end]
        self.at = end
        return value

    def _varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
            if shift > 63:
                raise NotParquetError("a number of the footer is longer than 64 bits")

    def _zigzag(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)
