"""Decides which lines of logs are the same query, for the readers and the state.

A query keeps its identity in whatever file it is found: after the log was rotated, cut, joined,
compressed or written with other line ends. With the engine's id of the query that is the id;
without one, its time and its text. The state keeps one fragment per identity, so that reading a
query again, after a crash or by another importer at the same time, changes nothing.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from reconciler.table.times import DAY_MS

SOURCE = "query"
"""The `source` of fragments whose position is an identity. Earlier versions stored the log's."""

ID_FIELDS = ("queryId", "query_id", "queryID", "QUERY_ID", "queryExecutionId", "query_execution_id",
             "statementId", "statement_id", "jobId", "job_id")  # fmt: skip
UNIQUE_LENGTH = 16
"""Ids of at least this length, with a letter or a sign in them, are unique over time: UUIDs, and
those of Trino, Snowflake, Databricks, BigQuery and Athena. Numbers of this length are fingerprints
of a query's text (PostgreSQL's query_id) and identify no execution."""

_MASK = (1 << 63) - 1
_NEXT_SCAN = 0x5851F42D4C957F2D
_NEXT_OCCURRENCE = 0x14057B7EF767814F
"""Odd steps through the 63 bits of positions: those of one query never coincide."""
_LINE_ENDS = re.compile(r"\r\n?")

Keys = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Identity:
    """The identity of one execution of a query, as far as one line gives it."""

    key: int
    """63 bits of a hash; equal for the same query in every log."""

    named: bool
    """Whether it comes from the engine's id: further lines with it are events of the same query.
    Otherwise equal lines of one log are separate executions."""


def identity_of(query_id: str, event_ms: int, sql: str, names: tuple[str, ...]) -> Identity:
    """Return the identity of a query. query_id: "" if the log has none. names: the catalog and
    schema of the line, which decide what its text means.

    A short id may be used again after a restart of the engine: it counts with the text, within a
    day.
    """
    if query_id and len(query_id) >= UNIQUE_LENGTH and not query_id.lstrip("-").isdigit():
        return Identity(_hash("id", query_id), True)
    text = (_LINE_ENDS.sub("\n", sql) if "\r" in sql else sql).strip().rstrip("; \t\n")
    if query_id and len(query_id) < UNIQUE_LENGTH:
        return Identity(_hash("day", query_id, str(event_ms // DAY_MS), *names, text), True)
    return Identity(_hash("time", str(event_ms), *names, text), False)


def query_id(body: dict[str, object]) -> str:
    """Return the engine's id of the query in a line of a log, "" if it has none."""
    for name in ID_FIELDS:
        value = body.get(name)
        if isinstance(value, (str, int)) and not isinstance(value, bool):
            return str(value).strip()[:200]
    return ""


def execution_key(execution_id: int, start_ms: int, plan: str) -> int:
    """Return the key of a Spark SQL execution, which every copy and every part of its event log
    gives: ids count from 0 in each application, so that its start and its plan belong to it."""
    return _hash("spark", str(execution_id), str(start_ms), plan)


def position(key: int, occurrence: int, table_uuid: str, scan: int) -> int:
    """Return the `position` of a fragment: the n-th execution with this key, its n-th scan of the
    table."""
    shifted = key + occurrence * _NEXT_OCCURRENCE + scan * _NEXT_SCAN + _of_table(table_uuid)
    return shifted & _MASK


@lru_cache(maxsize=4096)
def _of_table(table_uuid: str) -> int:
    return _hash("table", table_uuid)


def _hash(*parts: str) -> int:
    text = "\x00".join(parts).encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest()) & _MASK


class Occurrences:
    """Counts how often each key was read in one log, in 8 bytes a line."""

    def __init__(self) -> None:
        self._runs: list[Keys] = []

    def add(self, keys: Sequence[int]) -> list[int]:
        """Return for each key how often it was added before, earlier in this call too."""
        found = np.array(keys, dtype=np.int64)
        order = np.argsort(found, kind="stable")
        ranked = found[order]
        before = np.empty(len(found), dtype=np.int64)
        before[order] = np.arange(len(found)) - np.searchsorted(ranked, ranked)
        for run in self._runs:
            before += np.searchsorted(run, found, "right") - np.searchsorted(run, found, "left")
        self._runs.append(ranked)
        while len(self._runs) > 1 and len(self._runs[-2]) <= 2 * len(self._runs[-1]):
            merged = np.concatenate((self._runs.pop(), self._runs.pop()))
            self._runs.append(np.sort(merged))
        return before.tolist()


def contained(sorted_positions: Keys, wanted: Sequence[int]) -> list[bool]:
    """Return for each position whether it is among the sorted ones."""
    if not len(sorted_positions) or not len(wanted):
        return [False] * len(wanted)
    values = np.array(wanted, dtype=np.int64)
    at = np.minimum(np.searchsorted(sorted_positions, values), len(sorted_positions) - 1)
    found: list[bool] = (sorted_positions[at] == values).tolist()
    return found
