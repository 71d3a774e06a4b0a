"""Candidates that were considered and not done: their partitions, and one line for similar ones.

A table with many partitions has a candidate for each; those with the same title and reason become
one line, with their numbers as ranges. Plan documents keep an entry per candidate, each with its
sentences and, beside them, with what of these sentences is a number.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from reconciler.plan.reasons import partition_text
from reconciler.plan.sentence import Sentence, sentence, with_ranges
from reconciler.table.filetable import FileTable

PARTS = "parts"


@dataclass(frozen=True, slots=True)
class Line:
    """A line of "CONSIDERED, NOT DONE"."""

    what: str
    """What was considered."""
    reason: str
    """One of the constants of `plan.reasons`."""
    why: str
    """The reason with its numbers."""


def partitions_of(files: FileTable, inputs: Iterable[Sequence[str]]) -> list[str]:
    """Return, per candidate, the one partition of all its inputs, "" if there is more than one."""
    row_of = files.row_of
    return [_partition_of(files, [row_of[p] for p in paths if p in row_of]) for paths in inputs]


def _partition_of(files: FileTable, rows: Sequence[int]) -> str:
    numbers = np.unique(files.partition[np.array(rows, dtype=np.int64)])
    if len(numbers) != 1:
        return ""
    spec_id, values = files.partitions[int(numbers[0])]
    spec = files.specs.get(spec_id)
    return partition_text(spec, values, files.schema) if spec else ""


def parts(what: Sentence, why: Sentence) -> dict[str, Any]:
    """Return what an entry of a document holds beside its sentences: their parts, if any is a
    number."""
    if not (what.numbers or why.numbers):
        return {}
    return {PARTS: {"what": list(what.parts), "why": list(why.parts)}}


def merged(rejected: Sequence[Mapping[str, Any]]) -> list[Line]:
    """Return the lines of a plan's `evidence.rejected`; its `partition` and `parts` may be
    missing."""
    alike: dict[tuple[Any, ...], list[_Entry]] = {}
    for number, item in enumerate(rejected):
        entry = _Entry(
            _sentence(item, "what"), item.get("reason", ""), _sentence(item, "why"),
            item.get("partition") or "",
        )  # fmt: skip
        by_itself = "" if entry.partition else str(number)
        key = (entry.what.form, entry.reason, entry.why.form, by_itself)
        alike.setdefault(key, []).append(entry)
    return [_line(entries) for entries in alike.values()]


@dataclass(frozen=True, slots=True)
class _Entry:
    what: Sentence
    reason: str
    why: Sentence
    partition: str


def _sentence(item: Mapping[str, Any], key: str) -> Sentence:
    found = (item.get(PARTS) or {}).get(key)
    return sentence(*found) if found else sentence(item[key])


def _line(entries: Sequence[_Entry]) -> Line:
    what = with_ranges([entry.what for entry in entries])
    places = {entry.partition: None for entry in entries if entry.partition}
    why = with_ranges([entry.why for entry in entries])
    return Line(in_partitions(what, places), entries[0].reason, why)


def in_partitions(title: str, partitions: Collection[str]) -> str:
    """Return the title with its one partition, or with the number of partitions."""
    if len(partitions) > 1:
        return f"{title} in {len(partitions):,} partitions"
    return ", ".join([title, *partitions])
