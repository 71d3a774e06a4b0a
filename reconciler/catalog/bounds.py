"""Bounds on what the answers and files of a catalog become in memory, checked while they are read.

A catalog, a table or a store may belong to another team. Compressed bytes may unpack to a thousand
times as many, and a few bytes of JSON or Avro may become as many objects. One limit holds for each
answer, metadata file, manifest, footer and stored document: its decoded bytes. A person who runs
`layoutctl` reads their own tables, so that the limit is generous; the operator sets its own, since
all namespaces share its memory.
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from typing import Any, BinaryIO

from reconciler.errors import UnsupportedError
from reconciler.format import iec

DEFAULT_LIMIT = 1 << 30
"""Decoded bytes, unless a process sets another limit."""
VALUE_BYTES = 32
"""Bytes of the limit that each JSON value and each Avro entry counts at least: an object of Python
takes more memory than its text."""
CHUNK = 1 << 16
GZIP, RAW = 31, -15
"""Window sizes by which zlib knows a gzip member and a stream without a header."""
SETTING = "LAYOUTCTL_OPERATOR_ANSWER_LIMIT"

_limit = DEFAULT_LIMIT


class TooLargeError(UnsupportedError):
    """What a catalog or a store answered exceeds the limit of decoded bytes."""


def limit() -> int:
    """Return the limit of this process, in decoded bytes of one answer or file."""
    return _limit


@contextmanager
def limited(decoded: int) -> Iterator[None]:
    """Hold all threads of the process to another limit for a while."""
    global _limit
    before, _limit = _limit, decoded
    try:
        yield
    finally:
        _limit = before


def require(size: int, subject: str) -> None:
    """Raise TooLargeError if the decoded bytes exceed the limit."""
    if size > _limit:
        raise TooLargeError(
            f"{subject} is larger than the limit of {iec(_limit)} after decoding",
            details=("It was not read further, so that it cannot use up the memory of others.",),
            do="expire snapshots or rewrite manifests to make it smaller; in a cluster, "
            f"raise {SETTING} and the operator's memory",
        )


def require_values(text: bytes, subject: str) -> None:
    """Raise TooLargeError if a JSON text has more values than the limit allows.

    Each value but the first of a container follows a comma, and each container has a bracket.
    """
    values = sum(text.count(mark) for mark in (b",", b"[", b"{"))
    require(values * VALUE_BYTES, subject)


def read(stream: Any, subject: str) -> bytes:
    """Return the rest of a binary stream. Raises TooLargeError as soon as it exceeds the limit."""
    parts, size = [], 0
    while part := stream.read(CHUNK):
        size += len(part)
        require(size, subject)
        parts.append(bytes(part))
    return b"".join(parts)


def inflated(data: bytes, subject: str, *, window: int, most: int | None = None) -> bytes:
    """Return decompressed bytes of zlib's formats. window: as zlib's wbits; 31 for gzip, members
    one after another included. most: bytes left of a limit. Raises zlib.error, TooLargeError."""
    most = _limit if most is None else most
    parts, size = [], 0
    while data:
        decoder = zlib.decompressobj(window)
        part = decoder.decompress(data, most - size + 1)
        size += len(part)
        if size > most:
            require(max(size, _limit + 1), subject)
        parts.append(part)
        if not decoder.eof:
            raise zlib.error("the compressed data end too early")
        if window != GZIP:
            break
        data = decoder.unused_data.lstrip(b"\0")
    return b"".join(parts)


def metadata_json(stream: BinaryIO | Any, compressed: bool, subject: str) -> bytes:
    """Return the text of a metadata file."""
    data = read(stream, subject)
    text = inflated(data, subject, window=GZIP) if compressed else data
    require_values(text, subject)
    return text


def require_archive(blob: bytes, subject: str) -> None:
    """Raise TooLargeError if the members of a zip archive together exceed the limit."""
    with zipfile.ZipFile(BytesIO(blob)) as archive:
        require(sum(member.file_size for member in archive.infolist()), subject)
