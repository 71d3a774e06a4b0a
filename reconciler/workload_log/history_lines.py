"""Translates a record of a system's query history to the fields of the project's own format.

The record's field map (`histories`) says where they are. The reader of SQL logs then reads every
history in one way.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

from reconciler.table.times import DAY_MS, HOUR_MS
from reconciler.workload_log import skip_reasons
from reconciler.workload_log.histories import FieldMap, Paths, has, recognised, value_of
from reconciler.workload_log.join_ranges import join_ranges
from reconciler.workload_log.line_fields import epoch_ms, event_time
from reconciler.workload_log.scan_reports import statement_of

FAILED_STATES = ("FAIL", "FAILED", "FAILED_WITH_ERROR", "CANCELED", "CANCELLED", "ABORT",
                 "INCIDENT", "FAILED_WITH_INCIDENT")  # fmt: skip
_NO_ERROR = (None, "", 0, "0", False, "false", "null", "NULL", "\\N", "None", "{}", "[]")
_YES = (True, 1, "true", "True", "TRUE", "t", "T", "1")
_REDACTED = re.compile(r"\W*(?:sql |query |statement )?(?:text )?(?:is |was )?"
                       r"(?:redacted|masked|hidden|encrypted|removed)\b.{0,40}",
                       re.IGNORECASE | re.DOTALL)  # fmt: skip
_EXECUTE = re.compile(r"\s*EXECUTE\s+(?!IMMEDIATE\b)[^\s;]+(?:\s+USING\s+(?P<values>.*?))?\s*;?\s*",
                      re.IGNORECASE | re.DOTALL)  # fmt: skip
_TRINO_ID = re.compile(r"(\d{8})_(\d{6})_\d{5}_\w{1,20}")
_AMOUNT = re.compile(r"([0-9.]+(?:[eE][+-]?\d+)?)\s*(ns|us|ms|s|m|h|d|S|M|H)?")
_UNITS = {"ns": 1e-6, "us": 1e-3, "ms": 1.0, "s": 1e3, "m": 6e4, "h": HOUR_MS, "d": DAY_MS}
"""Milliseconds in a unit."""
_PART = r"([0-9.]{1,30}(?:[eE][+-]?\d{1,3})?)"
_SPAN = re.compile(rf"P(?:{_PART}D)?(?:T(?:{_PART}H)?(?:{_PART}M)?(?:{_PART}S)?)?")
_SPAN_UNITS = (DAY_MS, HOUR_MS, 6e4, 1e3)
"""ISO 8601's spelling of a duration, such as PT1M30.5S, and milliseconds in each of its parts."""


def translated(
    record: Mapping[str, Any], kind: FieldMap, line: bytes, file_ms: int | None
) -> dict[str, Any] | str:
    """Return the record in the fields of `sql_log`, or why it is skipped.

    line: the record's text, which identifies it where its kind has no ids. file_ms: when the file
    was changed, in epoch milliseconds.
    """
    if kind.marks and not all(any(has(record, p) for p in paths) for paths in kind.marks):
        other = recognised(record)
        if other is not None and other is not kind:
            return skip_reasons.OTHER_HISTORY
    reason = _why_not(record, kind)
    if reason:
        return reason
    sql = statement_of(record) if kind.scan_report else _statement(record, kind)
    if not sql.strip():
        return skip_reasons.NO_SQL
    found = {name: value_of(record, paths) for name, paths in _texts(kind)}
    found["sql"] = sql
    found["timestamp"] = _time(value_of(record, kind.time), kind)
    if kind.file_time:
        found["queryId"] = "record-" + hashlib.sha256(line).hexdigest()[:32]
        if found["timestamp"] is None:
            found["timestamp"] = file_ms
    found["durationMs"] = _duration(record, kind)
    found["recordedBytes"] = amount(value_of(record, kind.size), 1.0)
    found["tableBytes"] = _inputs(value_of(record, kind.inputs))
    found["weight"] = _number(value_of(record, kind.weight))
    plan = value_of(record, kind.plan)
    found["joinRanges"] = join_ranges(plan) if isinstance(plan, str) else None
    return {name: value for name, value in found.items() if value is not None}


def is_redacted(sql: str) -> bool:
    """Whether a system put this text in the place of a statement."""
    return len(sql) < 80 and _REDACTED.fullmatch(sql) is not None


def _texts(kind: FieldMap) -> tuple[tuple[str, Paths], ...]:
    return (
        ("queryId", kind.query_id), ("catalog", kind.catalog), ("schema", kind.schema),
        ("sessionId", kind.session), ("application", kind.agent), ("engine", kind.engine),
        ("timezone", kind.zone),
    )  # fmt: skip


def _why_not(record: Mapping[str, Any], kind: FieldMap) -> str:
    """Return why a record tells of no reading of data, "" if it does."""
    state = value_of(record, kind.state)
    if kind.ended and isinstance(state, str) and state.strip().upper() not in kind.ended:
        failed = state.strip().upper() in FAILED_STATES
        return skip_reasons.FAILED if failed else skip_reasons.NOT_ENDED
    error = value_of(record, kind.failed)
    if isinstance(error, (str, int, float)) and error not in _NO_ERROR:
        return skip_reasons.FAILED
    if isinstance(error, (dict, list)) and error:
        return skip_reasons.FAILED
    cached = value_of(record, kind.cached)
    if isinstance(cached, (str, int, bool)) and cached in _YES:
        return skip_reasons.CACHED
    return ""


def _statement(record: Mapping[str, Any], kind: FieldMap) -> str:
    """Return the text of the statement. Where it executes a prepared statement whose text the
    record has, this is an EXECUTE IMMEDIATE of that text with the values."""
    sql = value_of(record, kind.sql)
    if not isinstance(sql, str):
        return ""
    prepared = value_of(record, kind.prepared)
    executes = _EXECUTE.fullmatch(sql) if isinstance(prepared, str) else None
    if executes is None:
        return sql
    text = prepared.replace("'", "''")
    values = f" USING {executes['values']}" if executes["values"] else ""
    return f"EXECUTE IMMEDIATE '{text}'{values}"


def _time(value: Any, kind: FieldMap) -> Any:
    """Return epoch milliseconds, or the text if its zone is open."""
    if isinstance(value, str):
        text = value.strip()
        of_id = _TRINO_ID.fullmatch(text)
        if of_id is not None:
            at = dt.datetime.strptime("".join(of_id.groups()), "%Y%m%d%H%M%S")
            return int(at.replace(tzinfo=dt.UTC).timestamp() * 1000)
        number = _number(text)
        if number is None:
            at_ms, zoneless = event_time(text, dt.UTC)
            return at_ms if at_ms is not None and (kind.utc or not zoneless) else text
        value = number
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return epoch_ms(value)


def _duration(record: Mapping[str, Any], kind: FieldMap) -> int | None:
    for path, unit in kind.duration:
        measured = amount(value_of(record, (path,)), unit)
        if measured is not None:
            return measured
    began, until = (_time(value_of(record, paths), kind) for paths in (kind.began, kind.until))
    spans = isinstance(began, int) and isinstance(until, int) and began <= until
    return until - began if spans else None


def _number(value: Any) -> float | None:
    try:
        return None if isinstance(value, bool) or value is None else float(value)
    except (TypeError, ValueError, OverflowError):
        return None


def amount(value: Any, unit: float) -> int | None:
    """Return a number times `unit`, or a text such as 1.5s or PT1M30.5S in milliseconds."""
    if isinstance(value, str):
        text = value.strip()
        if text.startswith("P"):
            value, unit = _span(text), 1.0
        else:
            match = _AMOUNT.fullmatch(text)
            if match is None:
                return None
            if match[2]:
                unit = _UNITS[match[2].lower() if len(match[2]) == 1 else match[2]]
            value = match[1]
    number = _number(value)
    return int(number * unit) if number is not None and 0 <= number < 1e18 else None


def _span(text: str) -> float | None:
    """Return the milliseconds of a duration of ISO 8601, None if the text is none."""
    match = _SPAN.fullmatch(text)
    parts = match.groups() if match else ()
    named = [(_number(part), ms) for part, ms in zip(parts, _SPAN_UNITS, strict=False) if part]
    numbers = [number * ms for number, ms in named if number is not None]
    return sum(numbers) if numbers and len(numbers) == len(named) else None


def _inputs(value: Any) -> dict[str, int] | None:
    """Return by schema.table the bytes that the query read of each table, all its scans together;
    None where the record does not say. value: a list of inputs, or its JSON text."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return None
    if not isinstance(value, list):
        return None
    found: dict[str, int] = {}
    for item in value:
        if isinstance(item, dict) and isinstance(item.get("table"), str):
            size = amount(item.get("physicalInputBytes"), 1.0)
            if size is not None:
                schema = item.get("schema", item.get("schemaName", ""))
                name = f"{schema}.{item['table']}".lower()
                found[name] = found.get(name, 0) + size
    return found or None
