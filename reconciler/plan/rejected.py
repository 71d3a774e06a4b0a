"""Builds the lines of "CONSIDERED, NOT DONE": the partition of each candidate, similar ones merged.

A table with many partitions has a candidate for each; those with the same title and reason are
merged into one line, with their numbers as ranges. Plan documents keep an entry per candidate.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from reconciler.plan.reasons import partition_text
from reconciler.table.filetable import FileTable

_NUMBER = re.compile(r"(?<![\w.:\-])-?\d+(?:,\d{3})*(?:\.\d+)?(?![\d:\-])")
"""A number on its own, not part of a name or a date."""

_FILES = re.compile(r"(?<![\w.:\-])\d+(?:,\d{3})*(?= files\b)")
"""In titles, which contain names of columns, only counts of files are numbers."""


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


def told_together(rejected: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """Return (what, why) per line. rejected: of a plan's evidence; `partition` may be missing
    there."""
    alike: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for number, item in enumerate(rejected):
        what, why = _FILES.sub("#", item["what"]), _NUMBER.sub("#", item["why"])
        by_itself = "" if item.get("partition") else str(number)
        alike.setdefault((what, item.get("reason", ""), why, by_itself), []).append(item)
    return [_line(items) for items in alike.values()]


def _line(items: Sequence[Mapping[str, Any]]) -> tuple[str, str]:
    what = _ranges([item["what"] for item in items], _FILES)
    why = _ranges([item["why"] for item in items], _NUMBER)
    return in_partitions(what, {p for item in items if (p := item.get("partition"))}), why


def in_partitions(title: str, partitions: Collection[str]) -> str:
    """Return the title with its one partition, or with the number of partitions."""
    if len(partitions) > 1:
        return f"{title} in {len(partitions):,} partitions"
    return ", ".join([title, *partitions])


def _ranges(texts: Sequence[str], pattern: re.Pattern[str]) -> str:
    """Merge texts that differ only in numbers: `saves 0.2 - 0.4x of what it costs`."""
    columns = list(zip(*(pattern.findall(text) for text in texts), strict=True))
    ends = iter([sorted(set(numbers), key=_value) for numbers in columns])

    def span(_: re.Match[str]) -> str:
        found = next(ends)
        return found[0] if len(found) == 1 else f"{found[0]} - {found[-1]}"

    return pattern.sub(span, texts[0])


def _value(number: str) -> float:
    return float(number.replace(",", ""))
