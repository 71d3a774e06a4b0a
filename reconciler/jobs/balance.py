"""Balancing: output files that came out short are written again together with their neighbours.

A task ends a file by its bytes, and how rows compress in their new order is known only when they
are written. So its last file may be any part of one. Files follow each other in the order of the
key, within a task and from one task to the next: joining neighbours needs no sort.
"""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Iterator, Sequence
from typing import Any

from reconciler.core.grouping import output_files
from reconciler.jobs import iceberg, stage

SHORT_SHARE = 0.5
"""Of the target: files below it are joined with a neighbour. At `grouping.SMALL_SHARE`, most tasks
would write their last two files twice."""
FILE_NAME = re.compile(r"(\d+)-\d+-.+-(\d+)\.parquet")
"""Iceberg's OutputFileFactory: partition of the job, task, operation, number within the task."""
POSITION = "_pos"


def in_written_order(files: Sequence[Any]) -> list[Any]:
    """DataFiles in the order of their rows; [] where it is not known, as under names that are not
    Iceberg's own, or where files of several partitions lie between each other."""
    names = [FILE_NAME.fullmatch(str(file.location()).rpartition("/")[2]) for file in files]
    if any(not file.partition().equals(files[0].partition()) for file in files[1:]):
        return []
    placed = [
        (int(name[1]), int(name[2]), number)
        for number, name in enumerate(names)
        if name is not None
    ]
    return [files[number] for *_, number in sorted(placed)] if len(placed) == len(files) else []


def short_runs(sizes: Sequence[int], target_bytes: int) -> list[range]:
    """Runs of neighbouring files that are better written again as one or as equal parts.

    sizes: bytes of files in order. The shortest file is joined with its smaller neighbour until
    none is short. Runs are apart and in order.
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


def even_parts(rows: Sequence[int], parts: int) -> list[list[tuple[int, int, int]]]:
    """Rows of files that follow each other, in equal parts: per part, the number of a file, its
    first row and the row behind its last."""
    ends = list(itertools.accumulate(rows))
    edges = [ends[-1] * part // parts for part in range(parts + 1)]
    return [
        [
            (number, max(low - end + own, 0), min(high - end + own, own))
            for number, (end, own) in enumerate(zip(ends, rows, strict=True))
            if end > low and end - own < high and own
        ]
        for low, high in itertools.pairwise(edges)
    ]


@contextlib.contextmanager
def arranged(
    spark: Any, table: Any, base: str, runs: Sequence[Sequence[Any]], target_bytes: int
) -> Iterator[Any]:
    """The rows of runs of uncommitted DataFiles as the frame to write, a partition per file."""
    with contextlib.ExitStack() as staged:
        frames = []
        for number, run in enumerate(runs):
            sources = []
            for place, file in enumerate(run):
                set_id = f"{base}/short-{number}-{place}"
                task = iceberg.java_list(spark, [stage.task_of_new_file(spark, table, file)])
                staged.enter_context(stage.staged(spark, table, set_id, task))
                sources.append(stage.read(spark, set_id, stage.WHOLE_FILE))
            size = sum(int(file.fileSizeInBytes()) for file in run)
            rows = [int(file.recordCount()) for file in run]
            for part in even_parts(rows, int(output_files(size, target_bytes))):
                frames.append(_part(sources, rows, part))
        yield stage.union(frames)


def _part(sources: Sequence[Any], rows: Sequence[int], part: Sequence[tuple[int, int, int]]) -> Any:
    from pyspark.sql import functions as f

    pieces = []
    for number, low, high in part:
        whole = piece = sources[number]
        if (low, high) != (0, rows[number]):
            piece = whole.where((f.col(POSITION) >= low) & (f.col(POSITION) < high))
        pieces.append(stage.without_lineage_base(piece.select(*whole.columns)))
    return stage.union(pieces).coalesce(1)
