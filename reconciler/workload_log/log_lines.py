"""Reads the lines of a SQL log, of which the last may be incomplete."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import IO, Any

from reconciler.workload_log.containers import records_in
from reconciler.workload_log.histories import OWN, FieldMap, mapped, named, recognised
from reconciler.workload_log.importing import Tally, Unreadable
from reconciler.workload_log.packing import Log, open_log

MAX_LINE = 8 << 20
"""Longer lines are skipped. The longest statement that is analysed has 1 MiB, and JSON may write
each of its characters as six."""

LOOKED_AT = 20
"""First records of a log by which its kind is recognised."""


def lines_in(file: IO[bytes], path: Log) -> Iterator[tuple[bytes | None, bool]]:
    """Yield the records as lines of JSON, as `importing.lines_of` does, None for one that is longer
    than MAX_LINE."""
    return records_in(file, path, MAX_LINE)


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
    tally.cut_off(line, 1)
    return None


def kind_of(log: Log, form: str | None, fields: Mapping[str, str]) -> FieldMap:
    """Return the field map of a log. form: name of its format. fields: names of fields by --map.

    Where either is given, the map follows from them. Else it is the one that the log's first
    records fit, or that of our own format if they fit none. Raises UserError if the fields are no
    map.
    """
    if form is not None or fields:
        base = None if form is None else named(form)
        return mapped(fields, base) if fields or base is None else base
    with open_log(log) as file:
        try:
            for line, _ in islice(lines_in(file, log), LOOKED_AT):
                kind = kind_of_line(line or b"")
                if kind is not None:
                    return kind
        except Unreadable:
            pass
    return OWN


def kind_of_line(line: bytes) -> FieldMap | None:
    """Return the map that a record has, None if no known history has such records."""
    return recognised(_object(line) or {})


def complete_lines(path: Log) -> Iterator[bytes]:
    """Yield the lines of a log up to where it is damaged, b"" for a too long one."""
    with open_log(path) as file:
        try:
            for line, _ in lines_in(file, path):
                yield b"" if line is None else line
        except Unreadable:
            return


def is_object(content: bytes) -> bool:
    return _object(content) is not None


def _object(content: bytes) -> dict[str, Any] | None:
    try:
        body = json.loads(content.decode("utf-8-sig"))
    except (ValueError, RecursionError):
        return None
    return body if isinstance(body, dict) else None
