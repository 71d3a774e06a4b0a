"""Rewrites output files that are too small, together with their neighbours.

A task ends a file by its bytes, and how well rows compress in their new order is known only when
they are written, so its last file may have any size. Files follow each other in the order of the
key, within a task and from one task to the next, so joining neighbours needs no sort.
"""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from reconciler.plan.grouping import output_files
from reconciler.plan.small_files import WRITTEN_SHARE
from reconciler.spark import stage

SHORT_SHARE = WRITTEN_SHARE
"""Files below this share of the target are joined with a neighbour; else the next plan finds them
small.

With `grouping.SMALL_SHARE`, most tasks would write their last two files twice.
"""
FILE_NAME = re.compile(r"(\d+)-\d+-.+-(\d+)\.parquet")
"""Iceberg's OutputFileFactory: partition of the job, task, operation, number within the task."""
POSITION = "_pos"
"""Number of a row in its file. Counted, because staged reads of format 3 do not show Iceberg's."""


def in_written_order(files: Sequence[Any]) -> list[list[Any]]:
    """Return the DataFiles of each partition in the order of their rows; [] if it is not known,
    because names are not Iceberg's own."""
    placed: dict[Any, list[tuple[int, int, int]]] = {}
    for number, file in enumerate(files):
        name = FILE_NAME.fullmatch(str(file.location()).rpartition("/")[2])
        if name is None:
            return []
        where = str(file.partition().toString()) if len(files) > 1 else ""
        placed.setdefault(where, []).append((int(name[1]), int(name[2]), number))
    return [[files[number] for *_, number in sorted(own)] for own in placed.values()]


def short_runs(sizes: Sequence[int], target_bytes: int) -> list[range]:
    """Return runs of neighbouring files to write again as one file or as equal parts.

    sizes: bytes of files in order. The smallest file is joined with its smaller neighbour until
    none is too small. Runs are disjoint and in order.
    """
    joined = [(range(i, i + 1), size) for i, size in enumerate(sizes)]
    while len(joined) > 1:
        at = min(range(len(joined)), key=lambda i: joined[i][1])
        if joined[at][1] >= SHORT_SHARE * target_bytes:
            break
        neighbours = [i for i in (at - 1, at + 1) if 0 <= i < len(joined)]
        left = min(at, min(neighbours, key=lambda i: joined[i][1]))
        (first, size), (second, more) = joined[left : left + 2]
        joined[left : left + 2] = [(range(first.start, second.stop), size + more)]
    return [run for run, _ in joined if len(run) > 1]


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows of one file of a run, from `first` up to but not including `end`."""

    file: int
    first: int
    end: int


def even_parts(rows: Sequence[int], parts: int) -> list[list[Piece]]:
    """Return the rows of consecutive files in equal, non-empty parts."""
    ends = list(itertools.accumulate(rows))
    edges = sorted({ends[-1] * part // parts for part in range(parts + 1)})
    return [
        [
            Piece(number, max(low - end + own, 0), min(high - end + own, own))
            for number, (end, own) in enumerate(zip(ends, rows, strict=True))
            if end > low and end - own < high and own
        ]
        for low, high in itertools.pairwise(edges)
    ]


@contextlib.contextmanager
def joined(
    spark: Any, table: Any, base: str, runs: Sequence[Sequence[Any]], target_bytes: int
) -> Iterator[Any]:
    """Yield the frame to write: the rows of runs of uncommitted DataFiles, one partition per
    file."""
    with contextlib.ExitStack() as staged:
        frames = []
        for number, run in enumerate(runs):
            sources = []
            for place, file in enumerate(run):
                set_id = f"{base}/short-{number}-{place}"
                task = stage.tasks_of_new_files(spark, table, [file])
                staged.enter_context(stage.staged(spark, table, set_id, task))
                sources.append(stage.read(spark, set_id, stage.WHOLE_FILE))
            size = sum(int(file.fileSizeInBytes()) for file in run)
            rows = [int(file.recordCount()) for file in run]
            for part in even_parts(rows, int(output_files(size, target_bytes))):
                frames.append(_part(sources, rows, part))
        yield stage.union(frames)


def _part(sources: Sequence[Any], rows: Sequence[int], part: Sequence[Piece]) -> Any:
    from pyspark.sql import functions as f

    pieces = []
    for piece in part:
        whole = source = sources[piece.file]
        if (piece.first, piece.end) != (0, rows[piece.file]):
            place = f.col(POSITION)
            numbered = whole.coalesce(1).withColumn(POSITION, f.monotonically_increasing_id())
            source = numbered.where((place >= piece.first) & (place < piece.end)).drop(POSITION)
        pieces.append(stage.without_lineage_base(source))
    return stage.union(pieces).coalesce(1)
