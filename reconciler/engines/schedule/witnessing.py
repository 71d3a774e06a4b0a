"""Asks the witness (`reconciler.rewrite`) what files hold, before anything is committed.

The engine says where the work is done; what does it gets names of files and returns sums. Nothing
of a row crosses between processes.
"""

from __future__ import annotations

import hashlib
import heapq
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from reconciler.api.choices import Verification
from reconciler.engines import backend
from reconciler.engines.delete_file import DeleteFile
from reconciler.engines.manifests import Tasks, WrittenFile
from reconciler.engines.schedule.attempt import Attempt
from reconciler.engines.schedule.inputs import types_of
from reconciler.engines.schedule.refused import NotVerified
from reconciler.engines.schedule.written import TaskMetrics
from reconciler.engines.task_file import NO_DELETES
from reconciler.errors import (
    MemoryExhaustedError,
    UnavailableError,
)
from reconciler.format import count, plural
from reconciler.rewrite.block_ids import Blocks
from reconciler.rewrite.columns import Column, columns_of, every
from reconciler.rewrite.comparison import Compared, Exchange, Fingerprint, Seen, Work, differing
from reconciler.rewrite.deletes import Delete, Deletes
from reconciler.rewrite.failures import HOLDS, MEMORY, MISSING, Failure
from reconciler.rewrite.files import DataFile, Table
from reconciler.rewrite.places import Placed
from reconciler.rewrite.storage import local_path
from reconciler.table.physical import Expected
from reconciler.table.refusals import NOT_VERIFIED, Refusal

FILE_COST = 1 << 20
"""Bytes that are read in the time that it takes to open a file."""
LINEAGE_VERSION = 3
"""Format version from which on rows have ids."""
MAPPING = "schema.name-mapping.default"
MOST_NAMED = 3
"""Files that a message names."""


class Unseen(Exception):
    """Files hold what the witness cannot compare."""

    def __init__(self, failures: tuple[Failure, ...]) -> None:
        super().__init__(f"{failures[0].path}: {_clause(failures[0])}")
        self.failures = failures


def checks_hashes(mode: str, group_id: str) -> bool:
    """Whether the rows of a group are hashed; Sampled hashes one group in eight, chosen by its
    id."""
    if mode == Verification.SAMPLED:
        return hashlib.sha256(group_id.encode()).digest()[0] % 8 == 0
    return mode == Verification.FULL


# Describing


def table_of(attempt: Attempt) -> Table:
    """Return the attempt's table."""
    return attempt.once("table", lambda: _described(attempt.table))


def _described(table: backend.Table) -> Table:
    columns = columns_of(table.schema())
    ways: dict[int, tuple[Column, ...]] = {}
    for schema in table.schemas():
        ways |= {way[-1].field_id: way for way in every(columns_of(schema))}
    ways |= {way[-1].field_id: way for way in every(columns)}
    lineage = table.format_version() >= LINEAGE_VERSION
    return Table(columns, ways, table.properties().get(MAPPING), lineage)


def live_deletes(attempt: Attempt) -> Deletes:
    """Return the delete files of the attempt's snapshot by what they apply to."""
    return attempt.once("deletes by place", lambda: Deletes(map(delete_of, live_files(attempt))))


def live_files(attempt: Attempt) -> list[DeleteFile]:
    """Return the delete files of the attempt's snapshot."""

    def asked() -> list[DeleteFile]:
        return attempt.table.delete_files(attempt.snapshot_id)

    return attempt.once("delete files", asked)


def delete_of(file: DeleteFile, sequence: int | None = None) -> Delete:
    """sequence: of a file that is not committed yet."""
    return Delete(
        path=file.path,
        format=file.format,
        sequence=file.sequence if sequence is None else sequence,
        place=file.place,
        everywhere=file.everywhere,
        rows=file.rows,
        data_file=file.data_file,
        keys=file.keys,
        offset=file.offset,
        length=file.size,
    )


def inputs_of(attempt: Attempt, tasks: Tasks, deletes: Deletes | None) -> tuple[DataFile, ...]:
    """Return the committed files of tasks. deletes: that may apply, None for none."""
    sources = attempt.once("identity fields", lambda: _identities(attempt.table))
    places = {} if deletes is None else attempt.table.places(tasks)
    found = []
    for path, task in tasks.items():
        values = sources.get(task.spec_id, ())
        partition = tuple(
            (field_id, kind, task.partition[at])
            for at, field_id, kind in values
            if at < len(task.partition)
        )
        of = () if deletes is None else deletes.of(path, task.sequence, places[path])
        found.append(
            DataFile(path, task.rows, task.size, task.sequence, task.first_row_id, partition, of)
        )
    return tuple(found)


def _identities(table: backend.Table) -> dict[int, list[tuple[int, int, str]]]:
    """Return the identity fields of each spec: their number, source id and the source's type."""
    types = types_of(table)
    return {
        spec_id: [
            (at, one.source_id, types[one.source_id])
            for at, one in enumerate(fields)
            if one.transform == "identity" and one.source_id in types
        ]
        for spec_id, fields in table.specs().items()
    }


def outputs_of(files: Sequence[WrittenFile]) -> tuple[DataFile, ...]:
    """Return files that are not committed yet."""
    return tuple(DataFile(file.path, file.rows, file.size) for file in files)


def _moved(
    attempt: Attempt, files: Sequence[WrittenFile], outputs: Sequence[DataFile]
) -> tuple[DataFile, ...]:
    """Return outputs with the partition that their entries say."""
    places = [file.place for file in files]
    fields = {spec_id: _fields(attempt.table, spec_id) for spec_id, _ in places}
    return tuple(
        replace(
            output,
            moved=tuple(
                replace(field, value=json.loads(key).get(number))
                for number, field in fields[spec_id].items()
            ),
        )
        for output, (spec_id, key) in zip(outputs, places, strict=True)
    )


def _fields(table: backend.Table, spec_id: int) -> dict[str, Placed]:
    """Return the fields of a spec whose column the table has, by field id as JSON has it."""
    types = types_of(table)
    return {
        str(one.field_id): Placed(one.source_id, types[one.source_id], one.transform, None)
        for one in table.specs()[spec_id]
        if one.source_id in types
    }


# Asking


def look(attempt: Attempt, name: str, work: Work) -> Seen:
    """Return what the files of the work hold together. name: of its Spark jobs.

    Raises Unseen, FileNotFoundError for a file that does not exist, MemoryExhaustedError, and
    UnavailableError where a storage gives an error.
    """
    cores = attempt.backend.cores
    parts, costs = _parts(work, cores)
    local = all(local_path(path) is not None for path in _paths(work))
    opening = None if local else attempt.opening()
    bins = [
        [number for at in members for number in parts[at]] for members in balanced(costs, cores)
    ]
    if not bins:
        return Seen()
    seen = Seen()
    for one in attempt.backend.witness(attempt, name, work, bins, sum(costs), opening):
        seen += one
    _raise_first(attempt, seen.failures)
    return seen


def _parts(work: Work, tasks: int) -> tuple[list[Sequence[int]], list[int]]:
    """Return the numbers of files, or exchanges, in parts of which each is looked at by one task,
    and the bytes that each takes."""
    if not work.exchanges:
        return [[n] for n in range(len(work.files))], [f.size + FILE_COST for f in work.files]
    parts: list[Sequence[int]] = []
    costs: list[int] = []
    together: dict[Any, list[int]] = defaultdict(list)
    for number, one in enumerate(work.exchanges):
        shared = next((d for d in one.file.deletes if d.shared), None)
        together[number if shared is None else shared.place].append(number)
    for members in together.values():
        some = [work.exchanges[number] for number in members]
        for part in shares(len(members), *_exchange_costs(some), tasks):
            parts.append([members[at] for at in part])
            costs.append(sum(_exchange_costs([some[at] for at in part])))
    return parts, costs


def _exchange_costs(exchanges: Sequence[Exchange]) -> tuple[int, int]:
    """Return the bytes that are read for each of the exchanges alone, and for all of them."""
    own, shared = 0, dict[str, int]()
    for one in exchanges:
        keyed = any(d.keys for d in one.file.deletes)
        own += one.file.size + FILE_COST if keyed else 0
        for delete in (*one.file.deletes, *one.after):
            if delete.shared:
                shared[delete.path] = delete.length + FILE_COST
            else:
                own += delete.length + FILE_COST
    return own, sum(shared.values())


def shares(number: int, own: int, shared: int, tasks: int) -> list[range]:
    """Return the numbers of data files in parts for at most that many tasks, each of which has as
    much of its own as it reads again of what all of them share. own, shared: bytes."""
    pieces = max(1, min(tasks, number, own // max(shared, 1)))
    return [range(at, number, pieces) for at in range(pieces)]


def _raise_first(attempt: Attempt, failures: tuple[Failure, ...]) -> None:
    if not failures:
        return
    first = next((one for one in failures if one.kind != HOLDS), failures[0])
    if first.kind == MISSING:
        raise FileNotFoundError(2, "No such file or directory", first.path)
    if first.kind == MEMORY:
        raise MemoryExhaustedError(
            f"verification of {attempt.name} failed: there was too little memory to compare "
            f"{first.path}",
            details=(first.detail, NOTHING),
            do="free memory of the machine, or raise spec.engine.executors.memory in a cluster",
            path=first.path,
        )
    if first.kind != HOLDS:
        raise UnavailableError(
            f"verification of {attempt.name} failed: {first.path} could not be read",
            details=(first.detail, NOTHING),
            do="check the storage, and the space in the temporary directory, then run it again",
        )
    raise Unseen(failures)


def _paths(work: Work) -> Iterable[str]:
    for file in work.files:
        yield file.path
        yield from (one.path for one in file.deletes)
    for exchange in work.exchanges:
        yield exchange.file.path
        yield from (one.path for one in (*exchange.file.deletes, *exchange.after))


def balanced(sizes: Sequence[int], tasks: int) -> tuple[tuple[int, ...], ...]:
    """Return the numbers of the sizes in at most `tasks` bins of about equal sums, largest first
    (longest processing time first), none of them empty."""
    number = max(0, min(tasks, len(sizes)))
    bins: list[list[int]] = [[] for _ in range(number)]
    heap = [(0, 0, i) for i in range(number)]
    for item in sorted(range(len(sizes)), key=lambda i: (-sizes[i], i)):
        load, files, i = heapq.heappop(heap)
        bins[i].append(item)
        heapq.heappush(heap, (load + sizes[item], files + 1, i))
    return tuple(tuple(found) for found in bins)


def metrics_of(work: Work, seen: Seen) -> TaskMetrics:
    read = sum(file.size for file in work.files)
    return TaskMetrics(seen.cpu_seconds, read)


# Judging


def same_rows(
    attempt: Attempt,
    base: str,
    tasks: Tasks,
    files: Sequence[WrittenFile],
    work: Work,
    read_back: Callable[[], Seen],
) -> tuple[int, TaskMetrics]:
    """Return the number of rows that are in the inputs and in the outputs, and what it took.

    files: uncommitted; read_back: returns what they hold. work: the
    inputs. Raises NotVerified if the rows are not the same ones.
    """
    try:
        read = look(attempt, f"{base}/verify", work)
    except Unseen as unseen:
        raise _not_seen(attempt, unseen.failures) from unseen
    outputs = outputs_of(files)
    try:
        found = read_back()
    except Unseen as unseen:
        raise _misread(attempt, tasks, unseen.failures[0]) from unseen

    def columns() -> tuple[str, ...]:
        return _differing(attempt, base, work, outputs)

    return _judged(attempt, work, outputs, read, found, columns)


def compared_by_task(
    attempt: Attempt, work: Work, outputs: tuple[DataFile, ...], found: Compared
) -> tuple[int, TaskMetrics]:
    """Return what `same_rows` does of files that the task itself had compared."""
    try:
        _raise_first(attempt, found.before.failures)
    except Unseen as unseen:
        raise _not_seen(attempt, unseen.failures) from unseen
    try:
        _raise_first(attempt, found.after.failures)
    except Unseen as unseen:
        paths = [file.path for file in work.files]
        raise _misread(attempt, paths, unseen.failures[0]) from unseen
    return _judged(attempt, work, outputs, found.before, found.after, lambda: found.differing)


def _judged(
    attempt: Attempt,
    work: Work,
    outputs: tuple[DataFile, ...],
    read: Seen,
    found: Seen,
    columns: Callable[[], tuple[str, ...]],
) -> tuple[int, TaskMetrics]:
    """Raises NotVerified unless the rows are the same. columns: returns those that differ."""
    if read.fingerprint != found.fingerprint:
        raise _other_rows(attempt, work, columns, read.fingerprint, found.fingerprint)
    counted = sum(file.rows for file in outputs)
    if counted != found.fingerprint.rows:
        what = f"wrote {count(found.fingerprint.rows)} rows, of which its manifests count "
        paths = [file.path for file in work.files]
        raise _refused(attempt, paths, f"{what}{count(counted)}")
    return read.fingerprint.rows, metrics_of(work, read) + metrics_of(
        replace(work, files=outputs), found
    )


def inputs_as_seen(
    attempt: Attempt, tasks: Tasks, hashed: bool, blocks: Blocks | None = None
) -> Work:
    """Return the inputs, with the deletes that the witness's own rules apply to them. blocks: the
    block ids that are written anew."""
    deletes = live_deletes(attempt) if _may_apply(attempt, tasks) else None
    table = without_ids(table_of(attempt), blocks)
    return Work(table, inputs_of(attempt, tasks, deletes), hashed=hashed)


def without_ids(table: Table, blocks: Blocks | None) -> Table:
    """Return the table without the column whose values a rewrite changes."""
    if blocks is None:
        return table
    return replace(table, columns=tuple(one for one in table.columns if one != blocks.column))


def _may_apply(attempt: Attempt, tasks: Tasks) -> bool:
    """Return whether deletes may apply to the files.

    Iceberg's scan leaves out an equality delete whose bounds do not meet those of the data file;
    other readers, and the witness, compare keys.
    """
    if any(task.deletes != NO_DELETES for task in tasks.values()):
        return True
    snapshot = attempt.table.snapshot(attempt.snapshot_id)
    summary = {} if snapshot is None else snapshot.summary
    return (summary.get("total-equality-deletes") or "unknown") != "0"


def seen_outputs(
    attempt: Attempt,
    base: str,
    files: Sequence[WrittenFile],
    hashed: bool,
    moved: bool,
    blocks: Blocks | None = None,
) -> Seen:
    """Return what uncommitted files hold. moved: whether rows moved to another partition spec.
    blocks: the block ids that they must have. Raises Unseen, FileNotFoundError."""
    outputs = outputs_of(files)
    if moved:
        outputs = _moved(attempt, files, outputs)
    table = without_ids(table_of(attempt), blocks)
    work = Work(table, outputs, hashed=hashed, form=form_of(attempt), blocks=blocks)
    return look(attempt, f"{base}/verify", work)


def form_of(attempt: Attempt) -> Expected:
    """Return what new files of the attempt's table must hold."""
    return attempt.once("form", lambda: Expected(schema_of(attempt)))


def schema_of(attempt: Attempt) -> dict[str, Any]:
    """Return the schema of the attempt's table as the specification writes it in JSON."""
    return attempt.once("schema", lambda: attempt.table.schema())


def same_deletes(
    attempt: Attempt,
    base: str,
    tasks: Tasks,
    files: Sequence[DeleteFile],
    added: Sequence[DeleteFile],
    removed: Sequence[DeleteFile],
) -> tuple[int, TaskMetrics]:
    """Return how many rows of data files are deleted, before and after delete files are replaced,
    and what it took to compare them.

    files: all delete files of the attempt's snapshot; added ones are not committed yet. Raises
    NotVerified unless the same rows are deleted.
    """
    gone = {file.identity for file in removed}
    new = [delete_of(file, attempt.sequence_number + 1) for file in added]
    kept = [delete_of(file) for file in files if file.identity not in gone]
    later = Deletes((*kept, *new))
    places = attempt.table.places(tasks)
    identities = frozenset(file.identity for file in added)
    exchanges = tuple(
        Exchange(file, later.of(file.path, file.sequence, places[file.path]), identities)
        for file in inputs_of(attempt, tasks, Deletes(map(delete_of, files)))
    )
    work = Work(table_of(attempt), exchanges=exchanges)
    try:
        seen = look(attempt, f"{base}/verify", work)
    except Unseen as unseen:
        own = {file.path for file in added}
        bad = next((one for one in unseen.failures if one.path in own), None)
        if bad is not None:
            what = f"what replaces them cannot be read: {_clause(bad)}"
            raise _deletes_refused(attempt, removed, what) from unseen
        raise _not_seen(attempt, unseen.failures) from unseen
    if seen.changed:
        raise _other_deletes(attempt, removed, seen)
    return seen.hidden, metrics_of(work, seen)


def _other_deletes(attempt: Attempt, removed: Sequence[DeleteFile], seen: Seen) -> NotVerified:
    sums = (
        (sum(one.back for one in seen.changed), "would be back"),
        (sum(one.gone for one in seen.changed), "others would be hidden"),
        (sum(one.repeated for one in seen.changed), "are written twice"),
        (sum(one.stray for one in seen.changed), "are written that no row has"),
        (sum(one.miscounted for one in seen.changed), "are miscounted by manifests"),
    )
    parts = ", ".join(f"{count(number)} {what}" for number, what in sums if number)
    first = f"Of {plural(len(seen.changed), 'data file')}, the first is {seen.changed[0].path}."
    return _deletes_refused(
        attempt, removed, f"of {count(seen.hidden)} deleted rows {parts}", first
    )


def _deletes_refused(
    attempt: Attempt, removed: Sequence[DeleteFile], what: str, *details: str
) -> NotVerified:
    paths = dict.fromkeys(file.path for file in removed)
    detail = f"replacing it failed its verification: {what}"
    return NotVerified(
        f"verification of {attempt.name} failed: {what}",
        details=(*details, "No delete file was replaced; what was written was removed.", LEFT_OUT),
        do=REPORT,
        refusals=[Refusal(path, NOT_VERIFIED, "", detail) for path in paths],
    )


def _other_rows(
    attempt: Attempt,
    work: Work,
    differing_columns: Callable[[], tuple[str, ...]],
    read: Fingerprint,
    found: Fingerprint,
) -> NotVerified:
    paths = [file.path for file in work.files]
    if read.rows != found.rows:
        return _refused(attempt, paths, f"read {count(read.rows)} rows, wrote {count(found.rows)}")
    columns = differing_columns()
    where = f" in {_listed('column', columns)}" if columns else ", though those of no column alone"
    what = f"both have {count(found.rows)} rows, but their contents differ{where}"
    return _refused(attempt, paths, what, columns[0] if len(columns) == 1 else "")


def _misread(attempt: Attempt, paths: Iterable[str], failure: Failure) -> NotVerified:
    """Return the error for an output in a form that readers may misread: no row was compared."""
    what = f"what was written has {_clause(failure)}"
    return _refused(attempt, list(paths), what, failure.column)


def _refused(attempt: Attempt, paths: Sequence[str], what: str, column: str = "") -> NotVerified:
    """paths: the inputs of the group."""
    detail = f"a rewrite of {plural(len(paths), 'file')} failed its verification: {what}"
    return NotVerified(
        f"verification of {attempt.name} failed: {what}",
        details=(f"It rewrote {_named(paths)}.", DROPPED, LEFT_OUT),
        do=REPORT,
        refusals=[Refusal(path, NOT_VERIFIED, column, detail) for path in paths],
    )


def _differing(
    attempt: Attempt, base: str, work: Work, outputs: tuple[DataFile, ...]
) -> tuple[str, ...]:
    """Return the columns whose values differ between inputs and outputs."""
    alone = replace(work, by_column=True)
    before = look(attempt, f"{base}/verify", alone).columns
    after = look(attempt, f"{base}/verify", replace(alone, files=outputs)).columns
    return differing(before, after)


def _not_seen(attempt: Attempt, failures: tuple[Failure, ...]) -> NotVerified:
    more = len(failures) - MOST_NAMED
    first, of = failures[0].path, f", of {len(failures)} such files," if len(failures) > 1 else ""
    return NotVerified(
        f"verification of {attempt.name} failed: {first}{of} cannot be compared",
        details=(
            *(f"{one.path}: {_clause(one)}." for one in failures[:MOST_NAMED]),
            *((f"and {more} more",) if more > 0 else ()),
            DROPPED,
            LEFT_OUT,
        ),
        do=REPORT,
        refusals=[Refusal(one.path, NOT_VERIFIED, one.column, one.detail) for one in failures],
    )


def _clause(failure: Failure) -> str:
    return f'{failure.detail} in column "{failure.column}"' if failure.column else failure.detail


def _listed(name: str, values: Sequence[str]) -> str:
    shown = ", ".join(f'"{value}"' for value in values[:MOST_NAMED])
    more = f" and {len(values) - MOST_NAMED} more" if len(values) > MOST_NAMED else ""
    return f"{name if len(values) == 1 else name + 's'} {shown}{more}"


def _named(paths: Sequence[str]) -> str:
    shown = ", ".join(paths[:MOST_NAMED])
    return f"{shown} and {len(paths) - MOST_NAMED} more" if len(paths) > MOST_NAMED else shown


NOTHING = "Nothing of this group was committed; its files were removed."
DROPPED = "Nothing of this group was committed; its files were removed."
LEFT_OUT = (
    "Later plans leave these files out until the table replaces them, or another version is used."
)
REPORT = "compare what several engines read of these files, and report it as a bug if they agree"
