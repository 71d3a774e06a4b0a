"""Says why a file is not a log that can be imported: what it is instead, and what is needed.

For the CLI and the operator, after an import that read no query. Reads the beginning of the file;
names fields of records, never their values.
"""

from __future__ import annotations

import csv
import json
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from reconciler.errors import UnusableLogError
from reconciler.workload_log import skip_reasons
from reconciler.workload_log.importing import Tally, Unreadable
from reconciler.workload_log.packing import Log, log_size, open_log

HEAD = 1 << 18
RECORDS = 20
"""Bytes and records of a file that are looked at."""

MOST_FIELDS = 24
NEEDED = 'a log has one JSON object per line, with the fields "sql" and "timestamp"'

_MAGIC = ((b"PAR1", "a Parquet file"), (b"ORC", "an ORC file"), (b"Obj\x01", "an Avro file"),
          (b"PK\x03\x04", "a zip archive"), (b"SQLite format 3", "an SQLite database"),
          (b"BZh", "compressed with bzip2"), (b"\xfd7zXZ", "compressed with xz"),
          (b"%PDF", "a PDF document"))  # fmt: skip
_SQL_NAMES = (
    "query", "querytext", "query_text", "statement", "statementtext", "statement_text", "sqltext",
    "sql_text", "text", "rawquery", "querystring", "query_string", "command",
)  # fmt: skip
_TIME_NAMES = (
    "time", "ts", "@timestamp", "createtime", "create_time", "starttime", "start_time", "created",
    "createdat", "created_at", "eventtime", "event_time", "querystarttime", "query_start_time",
    "begintime", "submittime", "date", "end_time", "endtime",
)  # fmt: skip
"""Names that other logs give the two fields, in lower case, the likelier first."""


def why_unusable(log: Log, name: str, tally: Tally) -> UnusableLogError | None:
    """Return why a file has no line that can be used; None if some lines can, or could when the
    log has grown."""
    usable = tally.kept or tally.earlier or tally.repeated
    of_format = (skip_reasons.NOT_JSON, skip_reasons.NOT_UTF8, skip_reasons.NOT_AN_OBJECT,
                 skip_reasons.NO_SQL, skip_reasons.NO_TIMESTAMP, skip_reasons.INCOMPLETE,
                 skip_reasons.TOO_LONG, skip_reasons.DAMAGED)  # fmt: skip
    if usable or sum(tally.skipped[reason] for reason in of_format) < tally.read:
        return None
    head = _head(log)
    if head is None:
        return UnusableLogError(
            f"{name} is damaged: it cannot be unpacked", do="copy the log again"
        )
    text = head.decode("utf-8-sig", errors="replace")
    if not text.strip():
        empty = "is empty" if not log_size(log) else "has no line with text in it"
        return UnusableLogError(f"{name} {empty}", do="check the path of the log")
    return _not_text(name, head) or _not_lines(name, text) or _other_fields(name, text)


def _head(log: Log) -> bytes | None:
    try:
        with open_log(log) as file:
            return file.read(HEAD)
    except (OSError, EOFError, ValueError, Unreadable):
        return None


def _not_text(name: str, head: bytes) -> UnusableLogError | None:
    for magic, what in _MAGIC:
        if head.startswith(magic):
            return UnusableLogError(
                f"{name} is {what}, not a query log", details=(NEEDED,), do=_convert()
            )
    if b"\x00" in head[:4096]:
        return UnusableLogError(f"{name} is a binary file", details=(NEEDED,), do=_convert())
    return None


def _convert() -> str:
    return 'export the queries as lines of {"sql": "...", "timestamp": "..."}'


def _not_lines(name: str, text: str) -> UnusableLogError | None:
    """Say what a text is whose first lines are no JSON objects."""
    lines = [line for line in text.splitlines() if line.strip()]
    if any(isinstance(_parsed(line), dict) for line in lines[:RECORDS]):
        return None
    file = shlex.quote(name)
    start = text.lstrip()
    if start.startswith("["):
        what, do = "is one JSON array", f"split it: jq -c '.[]' {file} > lines.jsonl"
    elif start.startswith("{") and len(lines) > 1:
        what = "has JSON objects of several lines, or broken ones"
        do = f"write each on one line: jq -c . {file} > lines.jsonl"
    elif start.startswith("{"):
        what, do = "has broken JSON in its first line", "check how the log was written"
    elif columns := _csv_columns(lines):
        what, do = f"looks like CSV, with the columns {_listed(columns)}", _convert()
    else:
        what, do = "is text without JSON in its first line", _convert()
    return UnusableLogError(f"{name} {what}", details=(NEEDED,), do=do)


def _parsed(line: str) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _csv_columns(lines: Sequence[str]) -> list[str]:
    """Return the names in the header of a CSV; [] if the lines do not look like one."""
    head = lines[0][:4096]
    for delimiter in (",", "\t", ";", "|"):
        names = [cell.strip() for cell in next(csv.reader([head], delimiter=delimiter), [])]
        if len(names) > 1 and all(re.fullmatch(r"[\w .@-]{1,60}", cell) for cell in names):
            return names
    return []


def _other_fields(name: str, text: str) -> UnusableLogError | None:
    """Name the fields of records that lack the needed ones."""
    parsed = (_parsed(line) for line in text.splitlines()[: 10 * RECORDS])
    records = [record for record in parsed if isinstance(record, dict)][:RECORDS]
    fields = list(dict.fromkeys(field for record in records for field in _fields_of(record)))
    missing = [
        field
        for field, kind in (("sql", str), ("timestamp", (str, int, float)))
        if not any(isinstance(record.get(field), kind) for record in records)
    ]
    if not missing:
        if "timestamp" in fields:
            what = f'{name} has no "timestamp" that can be read, or no text in "sql"'
            how = "a timestamp is ISO 8601, as 2026-11-20T08:15:00Z, or epoch milliseconds"
            return UnusableLogError(what, details=(how,), do="convert the values of its records")
        return None
    lacks = " and ".join(f'"{field}"' for field in missing)
    seen = "record has" if len(records) == 1 else f"{len(records)} records have"
    details = (f"The first {seen}: {_listed(fields)}.", NEEDED)
    do = f"convert it: jq -c '{_mapping(fields)}' {shlex.quote(name)} > queries.jsonl"
    return UnusableLogError(f"{name} has no {lacks} in its records", details=details, do=do)


def _fields_of(record: Mapping[str, Any]) -> Iterable[str]:
    """Yield the names of fields, those of objects inside them with a dot."""
    for name, value in record.items():
        yield name
        if isinstance(value, dict):
            yield from (f"{name}.{inner}" for inner in value)


def _listed(names: Sequence[str]) -> str:
    shown = [f'"{re.sub(r"[^ -~]", "?", name)[:40]}"' for name in names[:MOST_FIELDS]]
    more = [f"{len(names) - MOST_FIELDS} more"] if len(names) > MOST_FIELDS else []
    return ", ".join([*shown, *more])


def _mapping(fields: Sequence[str]) -> str:
    """Return a jq object that makes the needed fields of those that may hold them."""
    parts = []
    for wanted, names in (("sql", _SQL_NAMES), ("timestamp", _TIME_NAMES)):
        last = {field: field.rpartition(".")[2].lower() for field in fields}
        exact = [field for field in fields if field == wanted]
        ranked = [field for n in names for field in fields if last[field] == n]
        found = (exact or ranked or ["..."])[0]
        parts.append(f"{wanted}: {_jq_path(found)}")
    return "{" + ", ".join(parts) + "}"


def _jq_path(field: str) -> str:
    levels = field.split(".") if field != "..." else []
    plain = all(re.fullmatch(r"[A-Za-z_]\w*", level) for level in levels)
    if not levels:
        return "..."
    return "." + ".".join(levels) if plain else f".[{json.dumps(field)}]"
