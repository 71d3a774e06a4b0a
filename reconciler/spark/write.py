"""Rewrites one group: read, arrange, write, read back, compare. Nothing is committed here.

Runs in its own thread beside other groups (see `actions.rewrite`); rows never leave the JVM.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from reconciler.errors import TableDamagedError, UserError, VerificationError, first_line
from reconciler.rewrite.witness import Seen
from reconciler.spark import (
    arrange,
    balance,
    metadata,
    metrics,
    moved,
    native,
    pilot,
    stage,
    uuid_bounds,
    verify,
    witnessing,
)
from reconciler.spark.attempt import Attempt
from reconciler.spark.group import Compression, Group
from reconciler.spark.metrics import TaskMetrics
from reconciler.spark.scan import ScanTasks
from reconciler.spark.translate import java_text, translate
from reconciler.spark.witnessing import Unseen
from reconciler.table.row_group_bytes import PAGE_ROWS

MIN_SPLIT = 4 << 20
"""Below this many bytes of written files another task costs more than it saves."""
OPEN_COST = 128 << 10
"""Bytes that are read in the time that it takes to open a file. Iceberg's 4 MiB give each of a
thousand small files a task of its own, which costs more than to read it."""
READ_ROWS = 1024
"""Rows decoded at a time: the vectors of all columns stay in a core's cache, unlike those of
Iceberg's 5,000 rows. A table's own setting takes precedence."""
OPEN_BYTES = 64 << 20
"""Maximum bytes of the open pages of all columns: 20,000 rows of 3 KiB."""
MOVED_ROLL = 1.25
"""Size, in targets, at which a file of rows that get another partition ends."""
BUFFERED_VALUE = 8
"""Bytes of a buffered value before compression, at most."""
ROLL_CHECK_ROWS = 1_000
"""Iceberg's writer compares its length with the file size after every so many rows."""
PAGE_EDGE = 0.15
"""Part of a page, at its end, in which no file is meant to end: its length there is known too
badly, and a page later it is a page longer."""
NOTICEABLE = 0.05
"""Open pages of less than this share of a file hardly move its end."""


@dataclass(frozen=True, slots=True)
class Written:
    """A group's verified, uncommitted output. files: org.apache.iceberg.DataFile objects."""

    number: int
    group: Group
    files: tuple[Any, ...]
    rows: int
    bytes: int
    hashed: bool
    metrics: TaskMetrics
    verify_metrics: TaskMetrics
    seconds: float

    @property
    def paths(self) -> tuple[str, ...]:
        return tuple(str(file.location()) for file in self.files)


def rewrite_group(attempt: Attempt, number: int, group: Group, tasks: ScanTasks) -> Written:
    """Write the rows of `tasks` to new files under the attempt's prefix, and verify them."""
    started = time.monotonic()
    spark, base = attempt.spark, f"{attempt.id}/{number}"
    hashed = verify.checks_hashes(attempt.verify, base)
    table = stage.overridden(spark, attempt.table, _overrides(attempt, group))
    order = metadata.sort_order_id(attempt.table, group.action.ordering)
    plan = native.planned(attempt, number, group, tasks, table)
    made = (
        _by_spark(attempt, group, tasks, table, base, order)
        if isinstance(plan, str)
        else _by_engine(attempt, group, tasks, table, base, order, plan)
    )
    with made as (group, files, spent):
        rows, verified = witnessing.same_rows(
            attempt, base, tasks, files, lambda: read_back(attempt, base, files, hashed), hashed
        )
    return Written(
        number,
        group,
        files,
        rows,
        sum(int(file.fileSizeInBytes()) for file in files),
        hashed,
        spent + metrics.of_job_group(spark, f"{base}/write"),
        verified,
        time.monotonic() - started,
    )


Files = tuple[Group, tuple[Any, ...], TaskMetrics]
"""A group as it was written, its org.apache.iceberg.DataFile objects, and what a task of the engine
took."""


@contextlib.contextmanager
def _by_engine(
    attempt: Attempt,
    group: Group,
    tasks: ScanTasks,
    table: Any,
    base: str,
    order: int,
    plan: native.Plan,
) -> Iterator[Files]:
    """Provide files of `reconciler.rewrite`; they are deleted if anything fails meanwhile."""
    files, made = native.written(attempt, f"{base}/write", group, tasks, table, plan, order)
    try:
        check_prefix(attempt, files)
        with _own_output(attempt):
            files = uuid_bounds.corrected(attempt.spark, table, files)
        yield group, files, TaskMetrics(made.cpu_seconds, made.read_bytes)
    except BaseException:
        with contextlib.suppress(Exception):
            discard(attempt.table, [file.path for file in made.files])
        raise


@contextlib.contextmanager
def _by_spark(
    attempt: Attempt, group: Group, tasks: ScanTasks, table: Any, base: str, order: int
) -> Iterator[Files]:
    """Provide files that Spark wrote; they are deleted if anything fails meanwhile."""
    spark = attempt.spark
    with (
        _output(attempt, table, f"{base}/out") as new_files,
        _output(attempt, table, f"{base}/balanced") as balanced_files,
    ):
        _job_group(attempt, group, f"{base}/write")
        with arrange.Source(spark, table, base, tasks) as source:
            group = _informed(attempt, table, base, group, source)
            frame, roll = _arranged(attempt, source, group), roll_bytes(group, *_shape(table))
            stage.write(frame, f"{base}/out", group.action.into, roll, order)
            files = tuple(new_files())
        check_prefix(attempt, files)
        with _own_output(attempt):
            files = _balanced(attempt, table, base, group, files, balanced_files, order)
            files = uuid_bounds.corrected(spark, table, files)
        yield group, files, TaskMetrics()


@contextlib.contextmanager
def _output(attempt: Attempt, table: Any, set_id: str) -> Iterator[Callable[[], list[Any]]]:
    """Provide a set to write to; its files are deleted if anything fails before it ends."""
    with stage.rewriting(attempt.spark, table, set_id) as new_files:
        try:
            yield new_files
        except BaseException:
            with contextlib.suppress(Exception):
                for file in new_files():
                    with contextlib.suppress(Exception):  # some are deleted already
                        discard(attempt.table, [str(file.location())])
            raise


def _arranged(attempt: Attempt, source: arrange.Source, group: Group) -> Any:
    """Return the frame to write. Without partitions, a move arranges rows as any rewrite does."""
    if group.action.moves_by:
        return moved.arranged(source, group, attempt.catalog)
    return arrange.arranged(source, group)


def _informed(
    attempt: Attempt, table: Any, base: str, group: Group, source: arrange.Source
) -> Group:
    """Return the group with the compression measured so far, or by a pilot."""
    moves = bool(group.action.moves_by)  # a few rows would be written to many partitions
    chosen = pilot.portions(group) if group.expected is None and not moves else []
    if not chosen:
        return group if moves else _with_pages(table, group)
    with _output(attempt, table, f"{base}/pilot") as pilot_files:
        frame, spec = pilot.frame(source, group, chosen), group.action.into
        stage.write(frame, f"{base}/pilot", spec, stage.WHOLE_FILE)
        files = pilot_files()
        check_prefix(attempt, files)
        with _own_output(attempt):
            sizes = [pilot.sizes_of(table, file) for file in files]
        discard(attempt.table, [str(file.location()) for file in files])
    return replace(group, expected=pilot.expected(group, chosen, sizes))


def _with_pages(table: Any, group: Group) -> Group:
    """Return the group with what its pages hold before they are compressed, by an input's footer,
    if files end within a task and that matters."""
    known = group.expected or Compression(group.planned_share)
    if known.page_bytes is not None or group.files == group.tasks:
        return group
    if group.rows < PAGE_ROWS * group.files:  # no page is full when a file ends
        return group
    open_bytes = _open_bytes(group, *_shape(table))
    if open_bytes < NOTICEABLE * group.output_bytes / group.files:
        return group
    return replace(group, expected=replace(known, page_bytes=pilot.page_bytes_of(table, group)))


def _balanced(
    attempt: Attempt,
    table: Any,
    base: str,
    group: Group,
    files: Sequence[Any],
    balanced_files: Callable[[], list[Any]],
    order: int,
) -> tuple[Any, ...]:
    """Return the output, with files that are too small written again together with neighbours of
    their partition."""
    short = [
        [part[i] for i in run]
        for part in balance.in_written_order(files)
        for run in balance.short_runs([int(f.fileSizeInBytes()) for f in part], group.target_bytes)
    ]
    if not short:
        return tuple(files)
    with balance.joined(attempt.spark, table, base, short, group.target_bytes) as frame:
        stage.write(frame, f"{base}/balanced", group.action.into, stage.WHOLE_FILE, order)
    replaced = {str(file.location()) for run in short for file in run}
    discard(attempt.table, sorted(replaced))
    kept = [file for file in files if str(file.location()) not in replaced]
    return (*kept, *balanced_files())


def _overrides(attempt: Attempt, group: Group) -> dict[str, str]:
    changes = {stage.DATA_PATH: attempt.prefix}
    for name, value in ((stage.BATCH_ROWS, str(READ_ROWS)), (stage.CODEC, stage.DEFAULT_CODEC)):
        if attempt.table.properties().get(name) is None:
            changes[name] = value
    if group.action.row_group_bytes:
        changes[stage.ROW_GROUP] = str(group.action.row_group_bytes)
    return changes


def _job_group(attempt: Attempt, group: Group, name: str) -> None:
    description = f"layoutctl {group.action.kind} {attempt.name}"
    attempt.spark.sparkContext.setJobGroup(name, description)


def _shape(table: Any) -> tuple[int, int]:
    """Return the number of columns, and the size at which the table's writer ends a row group."""
    row_group = table.properties().get(stage.ROW_GROUP)
    return int(table.schema().columns().size()), int(row_group or stage.DEFAULT_ROW_GROUP)


def roll_bytes(group: Group, columns: int, row_group_bytes: int) -> int:
    """Return the file size at which a task begins its next file.

    A task of f files (`Group.begins`) gets f equal parts and slack s, in parts. Its rows may take f
    s parts more than expected, or as much less before its last file has only SHORT_SHARE of a part
    and is written twice (`balance`): f s = 1 - SHORT_SHARE - (f - 1) s. The writer counts the rows
    of its open pages at their size before compression (`_length_at`). If that size is not known,
    the most that compression may save there is added, or files of a few megabytes would end far too
    early. A task of one file ends it early only if it grows far beyond the expected size.
    """
    if group.action.moves_by:
        # Each partition begins a file; what the last one of it has too little of is balanced.
        slack = _open_bytes(group, columns, row_group_bytes)
        return int(MOVED_ROLL * group.target_bytes + min(slack, group.target_bytes))
    per_task = -(-group.files // group.tasks)
    part = group.output_bytes / group.files
    if per_task == 1:
        return max(int(2.0 * part), OPEN_BYTES)
    slack = (1.0 - balance.SHORT_SHARE) / (2 * per_task - 1)
    known = group.expected
    if known is not None and known.page_bytes is not None:
        return int(_length_at(group, slack, known.page_bytes, row_group_bytes))
    return int(part * (1.0 + slack) + min(_open_bytes(group, columns, row_group_bytes), part))


def _length_at(group: Group, slack: float, page_bytes: float, row_group_bytes: int) -> float:
    """Return the length that a writer reports of a file with the rows of a part and its slack.

    The length grows by plain rows and falls when a page is full (or a row group, if that is less).
    A file only ends where it is longer than ever before, so the nearest such number of rows is
    taken.
    """
    stored = group.output_bytes / max(group.rows, 1)
    held = stored + page_bytes / PAGE_ROWS
    page = min(float(PAGE_ROWS), row_group_bytes / max(held, 1e-9))
    full, rest = divmod(group.rows / group.files * (1.0 + slack), page)
    first = page * (1.0 - stored / held)
    if full and rest < first:
        last = max(first, (1.0 - PAGE_EDGE) * page)
        last = min(last, max(page - ROLL_CHECK_ROWS, 0.0))
        if rest + page - last < first - rest:
            full, rest = full - 1, last
        else:
            rest = first
    return full * page * stored + rest * held


def _open_bytes(group: Group, columns: int, row_group_bytes: int) -> float:
    """Return the bytes that compression saves on the pages that are open when a file ends.

    Full pages of uncompressed numbers are assumed, the largest case, or a whole row group if it
    ends before its first pages do.
    """
    row_group_rows = row_group_bytes / (BUFFERED_VALUE * columns)
    open_rows = min(PAGE_ROWS, group.rows / group.files, row_group_rows)
    return open_rows * max(0.0, BUFFERED_VALUE * columns - group.bytes / max(group.rows, 1))


def check_prefix(attempt: Attempt, files: Sequence[Any]) -> None:
    marker = f"/{attempt.prefix.rpartition('/')[2]}/"
    strays = [str(file.location()) for file in files if marker not in str(file.location())]
    if strays:
        raise UserError(
            f"{attempt.name} has a location provider that ignores write.data.path",
            details=(f"It placed an output file at {strays[0]}.", "Nothing was committed."),
            do="leave the table out of the policy, or use Iceberg's own location provider",
        )


def read_back(attempt: Attempt, base: str, files: Sequence[Any], hashed: bool) -> Seen:
    """Return what uncommitted files hold, according to the witness."""
    with _own_output(attempt):
        return witnessing.seen_outputs(attempt, base, files, hashed)


def even_split(spark: Any, sizes: Sequence[int]) -> int:
    """Return the bytes that one task reads of files of these sizes, so that all cores are busy to
    the end."""
    return max(MIN_SPLIT, sum(sizes) // (2 * int(spark.sparkContext.defaultParallelism)))


def discard(table: Any, paths: Sequence[str]) -> None:
    """Delete output files that were never sent in a commit, or whose commit was refused."""
    for path in paths:
        table.io().deleteFile(path)


@contextlib.contextmanager
def _own_output(attempt: Attempt) -> Iterator[None]:
    """What this run wrote is read back: damage found here is of none of the table's files."""
    try:
        yield
    except Exception as error:
        doing = f"read back what was written for {attempt.name}"
        if not isinstance(error, Unseen) and not isinstance(
            translate(error, doing), TableDamagedError
        ):
            raise
        why = java_text(error).rpartition(" | ")[2]
        raise VerificationError(
            f"verification of {attempt.name} failed: a file that this run wrote cannot be read",
            details=(
                first_line(why),
                witnessing.DROPPED,
                "All files of the table are as they were.",
            ),
            do=f"see what else changes or removes files below {attempt.prefix.rpartition('/')[0]} "
            "(a removal of orphan files, for example), then run the command again",
        ) from error
