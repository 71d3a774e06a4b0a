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
from itertools import islice
from typing import Any

from reconciler.errors import UnusableLogError
from reconciler.workload_log import skip_reasons
from reconciler.workload_log.histories import NAMES, OWN
from reconciler.workload_log.importing import Tally, Unreadable
from reconciler.workload_log.log_lines import lines_in
from reconciler.workload_log.packing import Log, log_size, open_log

HEAD = 1 << 18
RECORDS = 20
"""Bytes and records of a file that are looked at."""

MOST_FIELDS = 24
NEEDED = "a log is JSON lines, a JSON array, CSV with a header, or Parquet: one record a query"

_MAGIC = ((b"PAR1", "a Parquet file without rows"), (b"ORC", "an ORC file"),
          (b"Obj\x01", "an Avro file"),
          (b"PK\x03\x04", "a zip archive"), (b"SQLite format 3", "an SQLite database"),
          (b"BZh", "compressed with bzip2"), (b"\xfd7zXZ", "compressed with xz"),
          (b"%PDF", "a PDF document"))  # fmt: skip
_MAGIC_OF_OTHERS = tuple(magic for magic, _ in _MAGIC if magic != b"PAR1")
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


def why_unusable(
    log: Log, name: str, tally: Tally, form: str = OWN.name
) -> UnusableLogError | None:
    """Return why a file has no line that can be used; None if some lines can, or could when the
    log has grown. form: the format that it was read as."""
    usable = tally.kept or tally.earlier or tally.repeated
    of_format = (skip_reasons.NOT_JSON, skip_reasons.NOT_UTF8, skip_reasons.NOT_AN_OBJECT,
                 skip_reasons.NO_SQL, skip_reasons.NO_TIMESTAMP, skip_reasons.INCOMPLETE,
                 skip_reasons.TOO_LONG, skip_reasons.DAMAGED, skip_reasons.RAGGED,
                 skip_reasons.REDACTED, skip_reasons.OTHER_HISTORY)  # fmt: skip
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
    redacted = tally.skipped[skip_reasons.REDACTED]
    if redacted and redacted == tally.read:
        return _redacted(name)
    records = [] if head.startswith(_MAGIC_OF_OTHERS) else _records(log)
    if records:
        kind = next((other for other, _ in tally.others.most_common(1)), "")
        return _other_fields(name, form, kind, records)
    return _not_text(name, head) or _not_lines(name, text)


def _records(log: Log) -> list[dict[str, Any]]:
    """Return the first records of a log, whatever container they come in."""
    found: list[dict[str, Any]] = []
    with open_log(log) as file:
        try:
            for line, _ in islice(lines_in(file, log), 10 * RECORDS):
                record = _parsed((line or b"").decode("utf-8-sig", errors="replace"))
                if isinstance(record, dict) and record:
                    found.append(record)
        except (Unreadable, UnusableLogError):
            pass
    return found[:RECORDS]


def _redacted(name: str) -> UnusableLogError:
    return UnusableLogError(
        f"the SQL texts in {name} are redacted",
        details=("Without their conditions no layout can be chosen.",),
        do="export it with a role that may read the texts",
    )


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


def _not_lines(name: str, text: str) -> UnusableLogError:
    """Say what a text is that has no records."""
    lines = [line for line in text.splitlines() if line.strip()]
    start = text.lstrip()
    if start.startswith(("[", "{")):
        what, do = "has broken JSON in its first record", "check how the log was written"
    elif columns := _csv_columns(lines):
        what = f"is CSV without a row, with the columns {_listed(columns)}"
        do = "export it again"
    else:
        what, do = "is text without records", _convert()
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


def _other_fields(
    name: str, form: str, kind: str, records: Sequence[dict[str, Any]]
) -> UnusableLogError:
    """Name the fields of records, and how to map them. kind: the format that most records are of,
    if it is known to be another one than they were read as."""
    fields = list(dict.fromkeys(field for record in records for field in _fields_of(record)))
    if "base_objects_accessed" in {field.lower() for field in fields}:
        return _access_history(name)
    of = f"The first record has: {_listed(list(_fields_of(records[0])))}."
    guess = _mapping(fields)
    if kind not in ("", form):
        what = f"{name} was read as {form}, and its records are of the format {kind}"
        return UnusableLogError(what, details=(of,), do=f"read it as --format {kind}")
    if form != OWN.name:
        what = f"{name} was read as {form}, and no record has a text and a time that can be read"
        details = (of, "A time is ISO 8601, as 2026-11-20T08:15:00Z, or a number since 1970.")
        return UnusableLogError(what, details=details, do=f"name other fields: --map {guess}")
    missing = [
        field
        for field, kind in (("sql", str), ("timestamp", (str, int, float)))
        if not any(isinstance(record.get(field), kind) for record in records)
    ]
    if not missing:
        what = f'{name} has no "timestamp" that can be read, or no text in "sql"'
        how = "a timestamp is ISO 8601, as 2026-11-20T08:15:00Z, or epoch milliseconds"
        return UnusableLogError(what, details=(how,), do="convert the values of its records")
    details = (of, f"Known formats: {', '.join(NAMES)}.")
    return UnusableLogError(
        f"{name} is not recognised as a query history",
        details=details,
        do=f"name the fields: --map {guess}, and --dialect",
    )


def _access_history(name: str) -> UnusableLogError:
    return UnusableLogError(
        f"{name} is Snowflake's ACCESS_HISTORY, which has no SQL text",
        details=("Columns without conditions do not show which files a query needs.",),
        do="export it joined: SELECT * FROM access_history JOIN query_history USING (query_id)",
    )


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
    """Return what --map needs, with the fields that may hold the text and the time."""
    parts = []
    for wanted, names in (("sql", _SQL_NAMES), ("timestamp", _TIME_NAMES)):
        last = {field: field.rpartition(".")[2].lower() for field in fields}
        exact = [field for field in fields if field == wanted]
        ranked = [field for n in names for field in fields if last[field] == n]
        found = (exact or ranked or ["FIELD"])[0]
        parts.append(f"{wanted}={found}")
    text = ",".join(parts)
    return text if re.fullmatch(r"[\w.,=@-]+", text) else shlex.quote(text)
