"""Has hidden rows of data files found and written by `reconciler.rewrite.hidden`."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from reconciler.engines.commit.cleanup import discard
from reconciler.engines.commit.locations import DATA_PATH
from reconciler.engines.delete_file import VECTORS_VERSION, DeleteFile
from reconciler.engines.deletes import replacement
from reconciler.engines.deletes.wanted import Hidden, Wanted
from reconciler.engines.manifests import Tasks
from reconciler.engines.schedule import asking, described, native
from reconciler.engines.schedule.attempt import Attempt
from reconciler.errors import UnsupportedError
from reconciler.rewrite.deletes import Delete
from reconciler.rewrite.failures import Failure
from reconciler.rewrite.hidden import Found, Group, Target, Task
from reconciler.rewrite.storage import Opening, local_path
from reconciler.rewrite.task import ATTEMPT, NUMBER
from reconciler.table import numbers
from reconciler.table.deletes import PartitionKey
from reconciler.table.left_to_spark import CODEC, DEFAULT_CODEC, LEVEL

CODECS = {
    "zstd": "zstd", "gzip": "gzip", "snappy": "snappy", "brotli": "brotli", "lz4_raw": "lz4",
    "lz4": "lz4", "uncompressed": "none",
}  # fmt: skip
"""Arrow's name of a codec. Parquet has replaced LZ4 in Hadoop's frames by LZ4_RAW, which is
written for both."""
LEAST_PIECE = 16 << 20
"""Bytes of their own for which data files that share deletes are worth another task, which reads
the shared ones again."""
ROW_BYTES = 16
"""Memory of a position: in bitmaps, and while it is written."""
KEPT_BYTES = 128 << 20
"""Most bytes of bitmaps of hidden rows that the driver keeps in case of a conflict."""


def written(
    attempt: Attempt, base: str, tasks: Tasks, wanted: Mapping[str, Wanted], keep: bool = False
) -> Hidden:
    """Write the hidden rows of data files, one delete file for each that has some; the delete files
    are not committed. base: names the work. keep: whether the rows are handed back too."""
    engine = attempt.backend
    with engine.readable_deletes(attempt, _distinct(wanted.values())) as deletes:
        work = _tasks(attempt, tasks, wanted, deletes, keep)
        opening, found = _carried_out(attempt, f"{base}/write", work, wanted)
    made = [one for one in found if not isinstance(one, Failure)]
    new = [file for one in made for file in one.files]
    failures = [one for one in found if isinstance(one, Failure)]
    if failures:
        discard(attempt.table, sorted({file.path for file in new}))
        raise native.raised(attempt, failures[0], opening)
    files = engine.delete_entries(attempt, tasks, new)
    with replacement.uncommitted(attempt, [file.path for file in files]):
        if files and not engine.reads(attempt, files, new):
            raise replacement.mismatch(attempt, "Iceberg reads other positions than were written")
    rows = {path: body for one in made for path, body in one.rows.items()}
    return Hidden(files, rows, sum(one.cpu_seconds for one in made))


def _tasks(
    attempt: Attempt,
    tasks: Tasks,
    wanted: Mapping[str, Wanted],
    deletes: Mapping[tuple[str, int], Delete],
    keep: bool,
) -> list[Task]:
    """deletes: as the engine reads them, by identity."""
    by_partition = _targets(attempt, tasks, wanted, deletes)
    memory, slots = attempt.backend.task_room()
    changes = {DATA_PATH: attempt.prefix}
    pieces: list[Sequence[Target]] = []
    costs: list[int] = []
    for key in sorted(by_partition):
        parts = _pieces(by_partition[key], wanted, memory, slots)
        pieces += parts
        costs += [_cost(part, wanted) for part in parts]
    vectors = attempt.table.format_version() >= VECTORS_VERSION
    codec, level = ("", None) if vectors else _codec(attempt)
    bins = asking.balanced(costs, slots)
    made = []
    for number, members in enumerate(bins):
        name = f"{number:05d}-{NUMBER}-{uuid.uuid4()}-{ATTEMPT}-deletes"
        groups = tuple(
            Group(
                tuple(pieces[at]),
                "" if vectors else _path(attempt, changes, tasks, pieces[at], name),
            )
            for at in members
        )
        (puffin,) = (
            attempt.backend.output_paths(attempt, changes, 0, None, [f"{name}.puffin"])
            if vectors
            else ("",)
        )
        kept = KEPT_BYTES // len(bins) if keep else 0
        shape = described.table_of(attempt)
        made.append(Task(shape, groups, puffin, codec, level, kept))
    return made


def _targets(
    attempt: Attempt,
    tasks: Tasks,
    wanted: Mapping[str, Wanted],
    deletes: Mapping[tuple[str, int], Delete],
) -> dict[PartitionKey, list[Target]]:
    """Return the data files with their deletes, by partition. deletes: as `_tasks` takes them."""
    keys = attempt.table.partition_keys(tasks)
    found: dict[PartitionKey, list[Target]] = {}
    for file in described.inputs_of(attempt, tasks.subset(wanted), None):
        one = wanted[file.path]
        own = {f.identity for f in one.applied if f.data_file and not f.keys and one.stays}
        target = Target(
            replace(file, deletes=tuple(deletes[f.identity] for f in one.applied)),
            frozenset((deletes[f].path, deletes[f].offset) for f in own),
            one.known,
        )
        found.setdefault(keys[file.path], []).append(target)
    return found


def _pieces(
    targets: Sequence[Target], wanted: Mapping[str, Wanted], memory: int, slots: int
) -> list[Sequence[Target]]:
    """Return data files of one partition in pieces that each fit the memory of a task, and of which
    each has as much of its own as it reads again of what they share."""
    files = _distinct(wanted[one.file.path] for one in targets)
    rows = sum(file.rows for file in files if not file.keys)
    shared = sum(file.size for file in files if not file.data_file)
    own = _cost(targets, wanted) - shared
    number = max(
        -(-rows * ROW_BYTES // memory), min(slots, own // max(shared, LEAST_PIECE))
    )  # fmt: skip
    number = max(1, min(number, len(targets)))
    return [targets[at::number] for at in range(number)]


def _cost(targets: Sequence[Target], wanted: Mapping[str, Wanted]) -> int:
    """Return the bytes that are read."""
    some = [wanted[one.file.path] for one in targets]
    keys = sum(one.key_bytes for one in some if one.known is None)
    return keys + sum(file.size for file in _distinct(some))


def _distinct(wanted: Iterable[Wanted]) -> list[DeleteFile]:
    """Return the delete files that apply, each once: each of a thousand data files may have the
    same thousand of them, as the same objects."""
    return list({id(file): file for one in wanted for file in one.applied}.values())


def _path(
    attempt: Attempt,
    changes: Mapping[str, str],
    tasks: Tasks,
    targets: Sequence[Target],
    name: str,
) -> str:
    """Return the path of delete files in the partition of the data files."""
    of = targets[0].file.path
    spec_id, names = tasks[of].spec_id, [f"{name}.parquet"]
    (path,) = attempt.backend.output_paths(attempt, changes, spec_id, tasks, names, of)
    return path


def _codec(attempt: Attempt) -> tuple[str, int | None]:
    """Return the codec of the table's position delete files, and its level."""

    def named(name: str, default: str) -> str:
        given = attempt.table.properties()
        own = given.get(name.replace("write.", numbers.DELETES, 1))
        return own or given.get(name) or default

    codec = named(CODEC, DEFAULT_CODEC).lower()
    if codec not in CODECS:
        raise UnsupportedError(
            f"{attempt.name} asks for delete files with the codec {codec}",
            details=(f"They are written with {', '.join(CODECS)}. Nothing was written.",),
            do=f"set the table's property {CODEC.replace('write.', numbers.DELETES)} to one of "
            "these",
        )
    return CODECS[codec], numbers.level(named(LEVEL, ""), codec, None)


def _carried_out(
    attempt: Attempt, name: str, work: Sequence[Task], wanted: Mapping[str, Wanted]
) -> tuple[Opening | None, Sequence[Found | Failure]]:
    paths = [path for task in work for path in _paths(task)]
    opening = None if all(local_path(p) is not None for p in paths) else attempt.opening()
    size = sum(_cost(group.targets, wanted) for task in work for group in task.groups)
    return opening, attempt.backend.find_hidden(attempt, name, work, size, opening)


def _paths(task: Task) -> Iterator[str]:
    yield task.vectors or task.groups[0].path
    for group in task.groups:
        for one in group.targets:
            yield one.file.path
            yield from (delete.path for delete in one.file.deletes)
