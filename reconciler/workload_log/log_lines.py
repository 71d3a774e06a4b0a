"""Reads the lines of a SQL log, of which the last may be incomplete."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import IO

from reconciler.workload_log import skip_reasons
from reconciler.workload_log.importing import (
    Tally,
    Unreadable,
    lines_of,
)
from reconciler.workload_log.packing import Log, open_log, packed_size

MAX_LINE = 8 << 20
"""A statement that is analysed has 1 MiB, which JSON may write as six."""


def lines_in(file: IO[bytes], path: Log) -> Iterator[tuple[bytes | None, bool]]:
    """Yield the lines as `importing.lines_of` does, None for one that is longer than MAX_LINE."""
    return lines_of(file, MAX_LINE, packed_size(path))


def first_line(path: Log, tally: Tally) -> bytes | None:
    """Return the first line; None, with the reason counted, if no line can be read yet."""
    with open_log(path) as file:
        try:
            lines = lines_in(file, path)
            line, ended = next(lines, (b"", False))
        except Unreadable as unreadable:
            tally.skip(unreadable.reason)
            return None
    content = b"" if line is None else line
    if ended or is_object(content):
        return content
    if content.strip():
        tally.skip(skip_reasons.INCOMPLETE, 1)
    return None


def complete_lines(path: Log) -> Iterator[bytes]:
    with open_log(path) as file:
        try:
            for line, _ in lines_in(file, path):
                yield b"" if line is None else line
        except Unreadable:
            return


def is_object(content: bytes) -> bool:
    try:
        return isinstance(json.loads(content.decode("utf-8-sig")), dict)
    except (ValueError, RecursionError):
        return False
