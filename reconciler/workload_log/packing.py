"""Reads log files as plain bytes, unpacking gzip, zstd, lz4, or lz4 blocks as Spark writes them.

For the log readers. The packing is detected from a file's first bytes, because the suffixes of
rotated and unfinished logs are not reliable.
"""

from __future__ import annotations

import gzip
import io
import shlex
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

from reconciler.errors import UnusableLogError, UserError

_BUFFER = 1 << 16
"""Bytes unpacked at a time."""

_FRAME_READ = 1 << 14
"""Bytes of zstd and lz4 that are unpacked at a time: at most so many are lost where a log is
truncated, beside its last block, which holds 128 KiB in zstd."""
_GZIP = b"\x1f\x8b"
_FRAMES = {b"\x28\xb5\x2f\xfd": "zstd", b"\x04\x22\x4d\x18": "lz4"}
_BLOCK = b"LZ4Block"
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
"""The byte order marks that begin a text in UTF-16, as some Windows shells write it."""
_BLOCK_HEADER = struct.Struct("<8sBiii")
_MAX_BLOCK = 1 << 26


@dataclass(frozen=True, slots=True)
class StreamedLog:
    """A log that is no file of the user's: it is in an object store, whence it is read as a stream
    and never copied, or it came by standard input."""

    name: str
    """Its file name, for messages."""

    size: int
    """Bytes as stored."""

    opened: Callable[[], IO[bytes]]
    """Opens it at its beginning. Raises OSError."""

    seekable: Callable[[], Any] | None = None
    """Opens it for reading at any place, as Parquet needs it. Raises OSError."""

    modified_ms: int | None = None
    """When it was written, in epoch milliseconds."""

    def __str__(self) -> str:
        return self.name


Log = Path | StreamedLog


def log_size(log: Log) -> int:
    """Return the bytes of a log as it is stored."""
    return log.size if isinstance(log, StreamedLog) else log.stat().st_size


def modified_ms(log: Log) -> int | None:
    """Return when a log was changed, in epoch milliseconds; None if the store does not say."""
    if isinstance(log, StreamedLog):
        return log.modified_ms
    try:
        return log.stat().st_mtime_ns // 1_000_000
    except OSError:
        return None


def open_parquet(log: Log) -> Any:
    """Return the file for reading at any place. Raises UserError."""
    if isinstance(log, Path):
        return _readable(log)
    if log.seekable is None:
        raise UserError(f"{log} cannot be read at any place", do="store it where that is possible")
    return log.seekable()


def packed_size(log: Log) -> int | None:
    """The log's size where it is compressed, None where it is plain. Raises UserError."""
    with _readable(log) as file:
        head = file.read(len(_BLOCK))
    packed = head.startswith(_GZIP) or head == _BLOCK or head[:4] in _FRAMES
    return log_size(log) if packed else None


def _readable(log: Log) -> IO[bytes]:
    try:
        if isinstance(log, StreamedLog):
            return log.opened()
        return log.open("rb", buffering=1 << 20)
    except OSError as error:
        raise UserError(
            f"cannot read {log}: {error.strerror or error}",
            do="check the path and its permissions",
        ) from error


def open_log(log: Log) -> IO[bytes]:
    """Return the log's bytes, unpacked. Raises UserError if it is in UTF-16 or unreadable."""
    with _readable(log) as file:
        head = file.read(len(_BLOCK))
    if head.startswith(_UTF16):
        raise UnusableLogError(
            f"{log} is encoded in UTF-16; a log is read as UTF-8",
            do=f"convert it: iconv -f UTF-16 -t UTF-8 {shlex.quote(str(log))} > utf8.jsonl",
        )
    file = _readable(log)
    if head.startswith(_GZIP):
        return cast(IO[bytes], _Gzip(file))
    if head == _BLOCK:
        blocks: io.RawIOBase = _Lz4Blocks(file)
        return io.BufferedReader(blocks, _BUFFER)
    codec = _FRAMES.get(head[:4])
    if codec is not None:
        frames: io.RawIOBase = _Frames(file, codec)
        return io.BufferedReader(frames, _BUFFER)
    return file


class _Gzip(gzip.GzipFile):
    """Closes the file that it unpacks, too."""

    def __init__(self, file: IO[bytes]):
        super().__init__(fileobj=file, mode="rb")
        self._packed = file

    def close(self) -> None:
        super().close()
        self._packed.close()


class _Frames(io.RawIOBase):
    """Frames of zstd or lz4. One read that reaches damage loses all that it has unpacked before, so
    that no read is large."""

    def __init__(self, file: IO[bytes], codec: str):
        import pyarrow as pa

        self._stream = pa.input_stream(file, compression=codec)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray) -> int:  # type: ignore[override]
        return int(self._stream.readinto(memoryview(buffer)[:_FRAME_READ]))

    def close(self) -> None:
        self._stream.close()
        super().close()


class _Lz4Blocks(io.RawIOBase):
    """Blocks of lz4-java's LZ4BlockOutputStream: a header each, then raw or lz4 bytes."""

    def __init__(self, file: IO[bytes]):
        self._file, self._rest = file, memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray) -> int:  # type: ignore[override]
        while not self._rest:
            header = self._file.read(_BLOCK_HEADER.size)
            if not header:
                return 0
            self._rest = memoryview(self._block(header))
        count = min(len(buffer), len(self._rest))
        buffer[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count

    def _block(self, header: bytes) -> bytes:
        """Read one block. Raises OSError if the file is truncated or damaged."""
        import pyarrow as pa

        if len(header) < _BLOCK_HEADER.size:
            raise OSError("cut off")
        magic, token, packed, size, _ = _BLOCK_HEADER.unpack(header)
        if magic != _BLOCK or not (0 <= packed <= _MAX_BLOCK and 0 <= size <= _MAX_BLOCK):
            raise OSError("not a block")
        body = self._file.read(packed)
        if len(body) < packed:
            raise OSError("cut off")
        if token & 0xF0 == 0x10 or size == 0:
            return body
        return bytes(pa.Codec("lz4_raw").decompress(body, decompressed_size=size, asbytes=True))

    def close(self) -> None:
        self._file.close()
        super().close()
