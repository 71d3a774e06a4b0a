"""Reads the records of a log in whatever file they come, each as one line of JSON.

JSON lines are passed on as they are. A JSON array, an answer of an API with a list of records,
objects of several lines, CSV with a header and Parquet are read as a stream: what is held is one
record and one chunk of the file, or a batch of rows.
"""

from __future__ import annotations

import csv
import datetime as dt
import decimal
import io
import json
import re
from collections import Counter
from collections.abc import Iterator
from typing import IO, Any

from reconciler.errors import UnusableLogError
from reconciler.workload_log.importing import MAX_LINE as MAX_RECORD
from reconciler.workload_log.importing import lines_of, unpacked
from reconciler.workload_log.packing import Log, open_parquet, packed_size

CHUNK = 1 << 16
"""Characters of a JSON document that are read at a time."""
HEAD = 1 << 16
"""Bytes at the beginning of a file by which its container is recognised."""
ROWS = 256
"""Rows of a Parquet file that are held at once."""

NO_ROW = b"[]"
"""Takes the place of a row of a CSV whose number of cells differs from that of its header."""

Lines = Iterator[tuple[bytes | None, bool]]

_LIST = re.compile(r'\s*\{.{0,4000}?"(?:QueryExecutions|res|jobs|queries|records|rows|items|data)"'
                   r"\s*:\s*\[(?=\s*[{\]])", re.DOTALL)  # fmt: skip
_BETWEEN = " \t\r\n,\x1e\ufeff"
_DELIMITERS = ",\t;|"
_COLUMN = re.compile(r"[\w .@$()-]{1,128}")


def records_in(file: IO[bytes], log: Log, most: int) -> Lines:
    """Yield each record as a line of JSON, None for one longer than `most` bytes, and whether it
    had ended. Raises Unreadable if the file is damaged, UnusableLogError if its header is."""
    plain = unpacked(file, packed_size(log))
    head = plain.peek(HEAD)[:HEAD]
    if head.startswith(b"PAR1"):
        return _rows(log)
    text = head.decode("utf-8-sig", errors="replace")
    start = text.lstrip()
    listed = _LIST.match(text)
    if start.startswith("[") or listed:
        return _objects(plain, listed.end() if listed else text.index("[") + 1, most)
    if start.startswith("{"):
        first = start.partition("\n")[0]
        if len(first) < len(start) and not _whole(first):
            return _objects(plain, 0, most)
    elif delimiter := delimiter_of(text):
        return _csv(plain, delimiter, str(log), most)
    return lines_of(plain, most)


def _whole(line: str) -> bool:
    """Whether an object that begins in this line is one record of JSON lines, whole or cut off, and
    not an object that is written over several lines. The first line of such an object ends with an
    open bracket or a comma."""
    return not line.rstrip().endswith(("{", "[", ","))


def delimiter_of(text: str) -> str:
    """Return what separates the names in the header of a CSV, "" if the text does not begin with
    one."""
    line = text.lstrip("\ufeff").partition("\n")[0].rstrip("\r")
    for delimiter in _DELIMITERS:
        names = next(csv.reader([line], delimiter=delimiter), [])
        if len(names) > 1 and all(_COLUMN.fullmatch(name.strip()) for name in names):
            return delimiter
    return ""


def _objects(file: io.BufferedReader, start: int, most: int) -> Lines:
    """Yield the objects of an array that begins after `start` characters, or of a sequence."""
    inside = start > 0
    decoder = json.JSONDecoder()
    text = io.TextIOWrapper(file, encoding="utf-8-sig", errors="replace", newline="")
    held = text.read(CHUNK)[start:]
    while True:
        held = held.lstrip(_BETWEEN)
        if not held:
            held = text.read(CHUNK)
            if not held.strip(_BETWEEN):
                if not held:
                    return
                continue
            continue
        if inside and held[0] == "]":
            return
        found, held = _next(decoder, held, text, most)
        if found is None:
            if held:
                yield None, True
            elif inside:
                yield b"{", False
            return
        yield found.replace("\n", " ").replace("\r", " ").encode("utf-8", "replace"), True


def _next(
    decoder: json.JSONDecoder, held: str, text: io.TextIOWrapper, most: int
) -> tuple[str | None, str]:
    """Return the next value's text and the text behind it; (None, "") if the file ends before the
    value does, (None, rest) if the value is broken or too long."""
    while True:
        try:
            _, end = decoder.raw_decode(held)
            if end < len(held) or held[0] in '{["':
                return held[:end], held[end:]
        except (ValueError, RecursionError):
            if len(held) > most:
                return None, held
        more = text.read(max(CHUNK, len(held)))
        if not more:
            return None, ""
        held += more


def _csv(file: io.BufferedReader, delimiter: str, name: str, most: int) -> Lines:
    csv.field_size_limit(max(csv.field_size_limit(), MAX_RECORD))
    ends = _Ends(file)
    text = io.TextIOWrapper(io.BufferedReader(ends), encoding="utf-8-sig", errors="replace",
                            newline="")  # fmt: skip
    rows = csv.reader(text, delimiter=delimiter, strict=False)
    header = [cell.strip() for cell in next(rows, [])]
    twice = [cell for cell, count in Counter(header).items() if count > 1]
    if twice:
        raise UnusableLogError(
            f"{name} has the column {twice[0][:60]!r} {header.count(twice[0])} times in its header",
            do="export it again with one column of each name",
        )
    earlier: bytes | None = None
    first = True
    while True:
        try:
            row = next(rows, None)
        except csv.Error:  # a field beyond the limit: a quote was left open
            row = ["", *header]
        if not first:
            yield earlier, row is not None or ends.by_newline
        if row is None:
            return
        earlier, first = _line(header, row, most), False


def _line(header: list[str], row: list[str], most: int) -> bytes | None:
    if not row:
        return b""
    if len(row) != len(header):
        return NO_ROW
    body = {name: cell for name, cell in zip(header, row, strict=True) if cell != ""}
    line = json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")
    return line if len(line) <= most else None


class _Ends(io.RawIOBase):
    """Remembers whether what was read last ended a line."""

    def __init__(self, file: io.BufferedReader):
        self._file, self.by_newline = file, True

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count = self._file.readinto1(buffer)
        if count:
            self.by_newline = bytes(buffer[count - 1 : count]) == b"\n"
        return count


def _rows(log: Log) -> Lines:
    """Yield the rows of a Parquet file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with open_parquet(log) as source:
        try:
            file = pq.ParquetFile(source)
            for batch in file.iter_batches(batch_size=ROWS):
                for row in batch.to_pylist():
                    yield json.dumps(row, default=_plain, ensure_ascii=False).encode(), True
        except (pa.ArrowException, OSError) as error:
            raise UnusableLogError(
                f"{log} is a damaged Parquet file", do="export the history again"
            ) from error


def _plain(value: Any) -> Any:
    """Return what JSON can hold: a time without a zone stays without one."""
    if isinstance(value, (dt.datetime, dt.date, dt.time)):
        return value.isoformat()
    if isinstance(value, decimal.Decimal):
        return float(value)
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return str(value)
