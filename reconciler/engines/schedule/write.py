"""Rewrites one group: write, then let the witness compare. Nothing is committed here.

Runs in its own thread beside other groups (see `engines.actions.rewrite`).
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from reconciler.engines.commit import metadata
from reconciler.engines.commit.cleanup import check_prefix, discard
from reconciler.engines.commit.locations import DATA_PATH
from reconciler.engines.manifests import Tasks, WrittenFile
from reconciler.engines.schedule import described, native, witnessing
from reconciler.engines.schedule.asking import DROPPED, Unseen
from reconciler.engines.schedule.attempt import Attempt
from reconciler.engines.schedule.block_ids import blocks_of
from reconciler.engines.schedule.group import Group
from reconciler.engines.schedule.group_rewrite import GroupRewrite
from reconciler.engines.schedule.inputs import refuse_types, types_of
from reconciler.engines.schedule.refused import NotWritableError
from reconciler.engines.schedule.vanished import LEFT_ALONE
from reconciler.engines.schedule.written import Written
from reconciler.engines.table import Table
from reconciler.errors import (
    MemoryExhaustedError,
    TableDamagedError,
    UnavailableError,
    UnsupportedError,
    UserError,
    VerificationError,
    first_line,
)
from reconciler.rewrite.block_ids import Blocks
from reconciler.rewrite.comparison import WitnessResult, WitnessWork
from reconciler.rewrite.files import DataFile
from reconciler.rewrite.task import Unfit
from reconciler.table.left_to_spark import CODEC, DEFAULT_CODEC, ROW_GROUP
from reconciler.table.schema import SortColumn

BATCH_ROWS = "read.parquet.vectorization.batch-size"
READ_ROWS = 1024
"""Rows decoded at a time: the vectors of all columns stay in a core's cache, unlike those of
Iceberg's 5,000 rows. A table's own setting takes precedence."""


def rewrite_group(
    attempt: Attempt,
    number: int,
    group: Group,
    tasks: Tasks,
    begun: Callable[[int], None],
    threads: int,
) -> Written:
    """Write the rows of `tasks` to new files under the attempt's prefix, and verify them.

    begun: is called before rows are read, with the memory that this takes as predicted, 0 if the
    engine's own writer does it. threads: of this process that no other group uses.
    """
    started = time.monotonic()
    order = metadata.sort_order_id(attempt.table, group.action.ordering)
    require_columns(attempt.table, group.action.ordering.key)
    one = GroupRewrite(attempt, number, group, tasks, _overrides(attempt, group), order, threads)
    hashed = witnessing.checks_hashes(attempt.verify, one.base)
    moved = bool(group.action.moves_by)
    blocks = blocks_of(attempt, group.action)
    inputs = described.inputs_as_seen(attempt, tasks, hashed, blocks)
    plan = native.planned(one, inputs, blocks)
    begun(0 if isinstance(plan, native.Unplanned) else plan.memory)
    with contextlib.ExitStack() as made:
        left = plan if isinstance(plan, native.Unplanned) else None
        if not isinstance(plan, native.Unplanned):
            try:
                found = made.enter_context(_by_engine(one, plan, inputs))
            except Unfit as unfit:
                _require_repeat(attempt, one.base, group, str(unfit))
                left = native.Unplanned(str(unfit))
        if left is not None:
            _require_writable(attempt, group, left)
            blocks, inputs = None, described.inputs_as_seen(attempt, tasks, hashed)
            found = Files(made.enter_context(attempt.backend.written_otherwise(one, left.why)))
        files = found.files
        rows, verified = found.verified or witnessing.same_rows(
            attempt, one.base, tasks, files, inputs,
            lambda: read_back(attempt, one.base, files, hashed, moved, blocks),
        )  # fmt: skip
    spent = found.cpu_seconds + attempt.backend.spent(f"{one.base}/write")
    return Written(
        number, group, files, rows, hashed, spent, verified, time.monotonic() - started,
        attempt.repeated.get(one.base, 0), "" if left is None else left.why, blocks,
    )  # fmt: skip


def _require_repeat(attempt: Attempt, base: str, group: Group, why: str) -> None:
    """Raise UnavailableError if the budgets do not cover that Spark reads the group once more."""
    if not attempt.repeats(base, group.bytes):
        raise UnavailableError(
            f"could not rewrite {attempt.name}: Spark has to write a group, because of {why}, and "
            "the budget does not cover reading its files once more",
            details=(LEFT_ALONE,),
            do="leave budget for a second try",
        )


def require_columns(table: Table, key: Sequence[SortColumn]) -> None:
    """Raise UserError if a column that rows are to be ordered by is gone."""
    known = types_of(table)
    for part in key:
        if part.field_id not in known:
            raise UserError(
                f"the clustering key's column with field id {part.field_id} is not in the table",
                details=("It was dropped after the plan was made.",),
                do="plan again",
            )


def _require_writable(attempt: Attempt, group: Group, left: native.Unplanned) -> None:
    """Raise NotWritableError if Spark cannot write the group, MemoryExhaustedError if that is only
    for want of memory. left: why it would have to."""
    try:
        refuse_types(attempt.table, attempt.name, left.why)
        _require_no_tree(group, left.why)
    except UnsupportedError as error:
        if left.for_memory:
            raise MemoryExhaustedError(
                f"could not rewrite {attempt.name}: {left.why}",
                details=(f"Spark cannot write it either: {error.what}.", LEFT_ALONE),
                do="free memory of the machine, or raise spec.engine.executors.memory in a cluster",
            ) from error
        paths = [file.path for file in group.inputs]
        raise NotWritableError(error, left.why, paths) from error


def _require_no_tree(group: Group, reason: str) -> None:
    """Raise UnsupportedError if Spark would have to write leaves, which it cannot end files at."""
    if group.action.ordering.tree is not None:
        raise UnsupportedError(
            "a tree of cuts cannot be written by Spark",
            details=(reason,),
            do="remove the cause, or use clustering.mode Declared for this table",
        )


@dataclass(frozen=True, slots=True)
class Files:
    """What was written and is not committed."""

    files: tuple[WrittenFile, ...]
    """The new files."""
    cpu_seconds: float = 0.0
    """CPU seconds of the engine's task."""
    verified: tuple[int, float] | None = None
    """What `witnessing.same_rows` returns, where the task compared its files before it stored them:
    on every store but the local file system."""


@contextlib.contextmanager
def _by_engine(one: GroupRewrite, plan: native.GroupPlan, inputs: WitnessWork) -> Iterator[Files]:
    """Provide files of `reconciler.rewrite`; they are deleted if anything fails meanwhile."""
    attempt = one.attempt
    made, verified = native.written(attempt, f"{one.base}/write", plan), None
    try:
        if made.compared is not None:
            outputs = tuple(DataFile(file.path, file.rows, file.size) for file in made.files)
            with own_output(attempt):
                verified = witnessing.compared_by_task(attempt, inputs, outputs, made.compared)
        check_prefix(attempt, [file.path for file in made.files])
        files = attempt.backend.entries(one, plan.task.table, made.files)
        yield Files(files, made.cpu_seconds, verified)
    except BaseException:
        discard(attempt.table, [file.path for file in made.files])
        raise


def _overrides(attempt: Attempt, group: Group) -> dict[str, str]:
    changes = {DATA_PATH: attempt.prefix}
    for name, value in ((BATCH_ROWS, str(READ_ROWS)), (CODEC, DEFAULT_CODEC)):
        if name not in attempt.table.properties():
            changes[name] = value
    if group.action.row_group_bytes:
        changes[ROW_GROUP] = str(group.action.row_group_bytes)
    return changes


def read_back(
    attempt: Attempt,
    base: str,
    files: Sequence[WrittenFile],
    hashed: bool,
    moved: bool,
    blocks: Blocks | None = None,
) -> WitnessResult:
    """Return what uncommitted files hold, according to the witness. moved: whether rows moved to
    another partition spec. blocks: the block ids that they must have."""
    with own_output(attempt):
        return witnessing.seen_outputs(attempt, base, files, hashed, moved, blocks)


@contextlib.contextmanager
def own_output(attempt: Attempt) -> Iterator[None]:
    """What this run wrote is read back: damage found here is of none of the table's files."""
    try:
        yield
    except Exception as error:
        if isinstance(error, Unseen) and error.failures[0].column:
            raise  # whole, but not as it must be: the writer's fault
        doing = f"read back what was written for {attempt.name}"
        errors = attempt.backend.errors
        if not isinstance(error, Unseen) and not isinstance(
            errors.translate(error, doing), TableDamagedError
        ):
            raise
        why = errors.text(error).rpartition(" | ")[2]
        raise VerificationError(
            f"verification of {attempt.name} failed: a file that this run wrote cannot be read",
            details=(
                first_line(why),
                DROPPED,
                "All files of the table are as they were.",
            ),
            do=f"see what else changes or removes files below {attempt.prefix.rpartition('/')[0]} "
            "(a removal of orphan files, for example), then run the command again",
        ) from error
