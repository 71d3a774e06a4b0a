"""Plans a group for `reconciler.rewrite`, which rewrites it from file to file, and has it run.

What cannot be written as the table asks goes through the engine's own writer (`write`), with the
reason.
"""

from __future__ import annotations

import contextlib
import math
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace

from reconciler.api.served_properties import staged_properties
from reconciler.api.task_memory import Limits
from reconciler.catalog.listing import changed_ms
from reconciler.engines import table
from reconciler.engines.engine_errors import Errors
from reconciler.engines.manifests import Tasks
from reconciler.engines.schedule import described, input_forms
from reconciler.engines.schedule.attempt import Attempt
from reconciler.engines.schedule.group import Group
from reconciler.engines.schedule.group_rewrite import GroupRewrite
from reconciler.engines.schedule.inputs import types_of
from reconciler.engines.schedule.refused import DamagedInputError, EngineError, ended
from reconciler.engines.schedule.vanished import LEFT_ALONE, RESTORE
from reconciler.engines.task_file import NO_DELETES
from reconciler.errors import InternalError, MemoryExhaustedError, UnavailableError
from reconciler.format import iec
from reconciler.plan.actions.rewrite import Rewrite
from reconciler.rewrite import memory
from reconciler.rewrite.block_ids import Blocks
from reconciler.rewrite.columns import leaves
from reconciler.rewrite.comparison import Check, WitnessWork
from reconciler.rewrite.deletes import Delete
from reconciler.rewrite.failures import (
    BROKEN,
    ENDED,
    LOST,
    MEMORY,
    MISSING,
    STORAGE,
    UNFIT,
    Failure,
)
from reconciler.rewrite.files import DataFile
from reconciler.rewrite.storage import Opening, local_path
from reconciler.rewrite.task import (
    ATTEMPT,
    NUMBER,
    Field,
    FileProperties,
    Key,
    Made,
    Order,
    Resources,
    Task,
    Unfit,
)
from reconciler.table import numbers
from reconciler.table.flags import flag
from reconciler.table.left_to_spark import (
    BLOOM,
    CODEC,
    DEFAULT_CODEC,
    DEFAULT_ROW_GROUP,
    DICTIONARY,
    LEVEL,
    PAGE_BYTES,
    PAGE_LIMIT,
    ROW_GROUP,
    why_left_to_spark,
)
from reconciler.table.numbers import number, share
from reconciler.table.refusals import DAMAGED, Refusal
from reconciler.table.row_group_bytes import PAGE_ROWS, row_group_rows

BLOOM_BYTES, BLOOM_FPP = 1 << 20, 0.01
"""Most bytes of a Bloom filter, and its share of false positives, by default."""
CODECS = {"zstd": ("zstd", 3), "gzip": ("gzip", 6), "snappy": ("snappy", None),
          "uncompressed": ("none", None)}  # fmt: skip
"""Arrow's name of a codec, and the level that Iceberg's writer takes by default."""
SMALLER = 4
"""The row groups of a task of little memory may be this many times smaller than asked for."""


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """The task that writes a group, with what it may use."""

    task: Task
    """The task."""
    opening: Opening | None
    """How files of another store are opened; None if all are local."""
    resources: Resources
    """Memory and threads that the task may use."""
    memory: int
    """Bytes of memory that the task takes at most, as predicted."""
    check: Check | None
    """How the task compares its files with its inputs before it stores them; None for local files,
    which it writes in place."""

    @property
    def work(self) -> tuple[Task, Opening | None, Resources, Check | None]:
        """Return the arguments of `rewrite.task_calls.rewritten`, which an engine calls."""
        return self.task, self.opening, self.resources, self.check


@dataclass(frozen=True, slots=True)
class Unplanned:
    """A group that the engine has no task for."""

    why: str
    """The reason, as a clause."""
    for_memory: bool = False
    """Whether a task has too little memory for it."""


def planned(
    one: GroupRewrite, inputs: WitnessWork, blocks: Blocks | None = None
) -> GroupPlan | Unplanned:
    """Return the engine's task for the group, or why it has none.

    inputs: as the witness sees them. blocks: the block ids that rows get.
    """
    attempt, group, tasks = one.attempt, one.group, one.tasks
    properties = {**staged_properties(attempt.table.properties()), **one.changes}
    shape, deletes = described.table_of(attempt), _applied(attempt, tasks)
    formats = {delete.format for own in deletes.values() for delete in own}
    reason = why_left_to_spark(leaves(shape.columns), properties, formats)
    if reason:
        return Unplanned(reason)
    files = _files(attempt, group, tasks, deletes)
    files_of = [file.path for file in files] + [d.path for f in files for d in f.deletes]
    paths = _paths(one)
    local = all(local_path(path) is not None for path in (*files_of, *paths))
    opening = None if local else attempt.opening()
    given = attempt.backend.resources(opening, one.threads)
    decoded = input_forms.decoded(attempt, [(file.path, file.size) for file in files])
    rows = fitting_rows(group, _group_rows(properties, group), given.memory_bytes, decoded)
    needed = _needed(group, rows, decoded)
    if needed > given.memory_bytes:
        given = attempt.backend.more(opening, given, needed)
    if needed > given.memory_bytes:
        has = iec(given.memory_bytes)
        why = f"a row group of it needs {iec(needed)} of memory, and a task has {has}"
        return Unplanned(why, for_memory=True)
    file_rows = group.target_bytes / _stored_row(group) if _files_by_rows(group) else 0.0
    task = Task(
        shape, files, _order(group), paths, rows, _file_properties(properties, rows),
        _moves(attempt.table, group), file_rows, blocks, decoded,
    )  # fmt: skip
    check = None
    if opening is not None:
        limits = Limits.within(given.memory_bytes)
        check = Check(inputs, described.form_of(attempt), limits, blocks)
    most = memory.peak(task, needed, given.memory_bytes)
    return GroupPlan(task, opening, given, most, check)


def _file_properties(table: Mapping[str, str], group_rows: int) -> FileProperties:
    """Return how files are written. table: its properties. group_rows: most rows of a row group."""
    name = table.get(CODEC, DEFAULT_CODEC).lower()
    codec, usual = CODECS[name]
    return FileProperties(
        codec, numbers.level(table.get(LEVEL), name, usual), number(table, PAGE_BYTES, 1 << 20),
        number(table, PAGE_LIMIT, PAGE_ROWS), number(table, DICTIONARY, 2 << 20),
        blooms_of(table, group_rows),
    )  # fmt: skip


def blooms_of(properties: Mapping[str, str], group_rows: int) -> dict[str, tuple[int, float]]:
    """Return `FileProperties.blooms` by a table's properties: for the distinct values that are
    given, else for all rows of a row group, within the bytes that a filter may take."""
    most = number(properties, numbers.BLOOM_BYTES, BLOOM_BYTES)
    found = {}
    for name in properties:
        enabled, _, column = name.partition(".column.")
        if enabled == f"{BLOOM}enabled" and flag(properties, name, default=False):
            fpp = share(properties, f"{numbers.BLOOM_FPP}.column.{column}", BLOOM_FPP)
            ndv = number(properties, f"{numbers.BLOOM_NDV}.column.{column}", group_rows)
            fits = int(most * 8 * math.log(2) ** 2 / -math.log(fpp))
            found[column] = (max(1, min(ndv, fits)), fpp)
    return found


def _order(group: Group) -> Order:
    ordering = group.action.ordering
    keys = tuple(Key(c.field_id, c.direction == "desc") for c in ordering.key)
    return Order(keys, ordering.curve, ordering.tree)


def _files_by_rows(group: Group) -> bool:
    """Return whether the task finds out how many files there are, by the rows that each partition
    or leaf turns out to have; else the plan counts them (`Group.files`)."""
    return bool(group.action.moves_by) or group.action.ordering.tree is not None


def _applied(attempt: Attempt, tasks: Tasks) -> dict[str, tuple[Delete, ...]]:
    """Return the deletes of each file as Iceberg's own scan found them: the witness applies them by
    rules of its own."""
    if all(file.deletes == NO_DELETES for file in tasks.values()):
        return {}
    known = {file.identity: described.delete_of(file) for file in described.delete_files(attempt)}
    keyed = {path: one for (path, _), one in known.items() if one.keys}
    return {
        path: (
            *(known[identity] for identity in sorted(file.deletes.positions)),
            *(keyed[of] for of in sorted(file.deletes.equality)),
        )
        for path, file in tasks.items()
    }


def _files(
    attempt: Attempt, group: Group, tasks: Tasks, deletes: dict[str, tuple[Delete, ...]]
) -> tuple[DataFile, ...]:
    """Return the group's inputs in order of arrival, which rows with equal keys keep."""
    by_path = {file.path: file for file in described.inputs_of(attempt, tasks, None)}
    return tuple(
        replace(by_path[file.path], deletes=deletes.get(file.path, ())) for file in group.inputs
    )


def _group_rows(properties: Mapping[str, str], group: Group) -> int:
    """Return the most rows of a row group of the table's size."""
    configured = number(properties, ROW_GROUP, DEFAULT_ROW_GROUP)
    return row_group_rows(configured, _stored_row(group))


def _stored_row(group: Group) -> float:
    """Return the expected bytes of a row when written."""
    live = max(1, round(group.rows * group.live_bytes / max(group.bytes, 1)))
    return max(group.output_bytes / live, 1e-9)


def _moves(table: table.Table, group: Group) -> tuple[Field, ...]:
    """Return the fields of the spec that rows move to; () if they stay in their partition."""
    if not group.action.moves_by:
        return ()
    types = types_of(table)
    return tuple(
        Field(one.source_id, one.name, one.transform, types[one.source_id])
        for one in table.specs()[group.action.into]
    )


def _needed(group: Group, rows: int, decoded: int) -> int:
    """Return the memory that a task needs at least, with its rows on disk. rows: of a row group to
    write. decoded: as in `fitting_rows`."""
    return int(min(rows, group.rows) * _row_memory(group, decoded)) + _keys_bytes(group)


def _row_memory(group: Group, decoded: int) -> float:
    """Return the memory of a row while it is gathered and written. decoded: as in
    `fitting_rows`."""
    stored = round(_stored_row(group) * group.rows)
    return max(1, memory.gathered(decoded, stored)) / max(1, group.rows)


def _keys_bytes(group: Group) -> int:
    return keys_bytes(group.action, group.rows, group.target_bytes / _stored_row(group))


def keys_bytes(action: Rewrite, rows: int, file_rows: float) -> int:
    """Return the bytes of memory of the ranks of a group's rows. file_rows: rows of a file of the
    target size."""
    if action.ordering.tree is not None:
        return memory.of_leaves(rows, len(action.moves_by or ()), file_rows)
    return memory.of_keys(rows, action.ordered_columns)


def fitting_rows(group: Group, rows: int, memory_bytes: int, decoded: int = 0) -> int:
    """Return the most rows of a row group that this memory holds.

    rows: those that the table asks for. They are divided by SMALLER at most: a table asks for a
    size, and smaller row groups are read as well. decoded: bytes of the group's rows in memory, 0
    if that is not known.
    """
    fit = (memory_bytes - _keys_bytes(group)) / _row_memory(group, decoded)
    return max(min(rows, int(fit)), -(-rows // SMALLER))


def _paths(one: GroupRewrite) -> tuple[str, ...]:
    """Return the paths of the outputs, which the table's location provider chooses."""
    group, name = one.group, uuid.uuid4()
    numbers = [NUMBER] if _files_by_rows(group) else [f"{at:05d}" for at in range(group.files)]
    names = [f"{one.number:05d}-{at}-{name}-{ATTEMPT}.parquet" for at in numbers]
    beside = None if group.action.moves_by else one.tasks
    attempt, into = one.attempt, group.action.into
    return attempt.backend.output_paths(attempt, one.changes, into, beside, names)


# Running


def written(attempt: Attempt, name: str, plan: GroupPlan) -> Made:
    """Write the group's files.

    name: of the work. Raises Unfit, DamagedInputError, FileNotFoundError, UnavailableError.
    """
    found = attempt.backend.run_task(attempt, name, plan)
    if isinstance(found, Failure):
        raise raised(attempt, found, plan.opening)
    return found


def raised(attempt: Attempt, failure: Failure, opening: Opening | None) -> Exception:
    """Return the error of a failure of the engine."""
    doing = f"rewrite {attempt.name}"
    if failure.kind == MISSING:
        return FileNotFoundError(2, "No such file or directory", failure.path)
    if failure.kind in (ENDED, LOST):
        return ended(doing, failure, LEFT_ALONE)
    if failure.kind == UNFIT:
        return Unfit(failure.detail)
    if failure.kind == MEMORY:
        return MemoryExhaustedError(
            f"could not {doing}: there was too little memory for the rows of a row group",
            details=(failure.detail, LEFT_ALONE),
            do="free memory of the machine, or raise spec.engine.executors.memory in a cluster",
        )
    if failure.kind == STORAGE:
        return _of_storage(attempt.backend.errors, doing, failure)
    if failure.kind == BROKEN:
        return EngineError(doing, failure.path, failure.detail, failure.said)
    io = None if opening is None else opening.open(failure.path)
    changed = changed_ms(io, failure.path)
    refusal = Refusal(failure.path, DAMAGED, failure.column, failure.detail, changed)
    return DamagedInputError(
        f"could not {doing}: {failure.path} cannot be read",
        said=(failure.said,) if failure.said else (),
        details=(refusal.sentence, LEFT_ALONE),
        do=RESTORE,
        refusals=(refusal,),
    )


def _of_storage(errors: Errors, doing: str, failure: Failure) -> Exception:
    text = failure.detail.removeprefix(f"[Errno {failure.number}] ")
    error = OSError(failure.number, text) if failure.number else OSError(text)
    with contextlib.suppress(OSError):
        found = errors.translate(error, doing)
        if not isinstance(found, InternalError):
            return found
    return UnavailableError(  # an error that is not known, such as of a name that is too long
        f"could not {doing}: a file could not be read or written",
        details=(failure.detail, LEFT_ALONE),
        do="check the storage, and the space in the temporary directory, then run it again",
    )
