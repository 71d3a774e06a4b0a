"""Converts equality deletes into the positions of the rows that they delete.

The engine reads the columns of keys and compares null, NaN and zeros as Iceberg's readers do
(`rewrite.read`); what a new delete file hides includes rows that are deleted by position. The
witness (`witnessing.same_deletes`) applies the deletes by rules and a reader of its own, so that it
sees a row that was not read, not found or not written, and one that the specification keeps.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from reconciler.engines.delete_file import DeleteFile
from reconciler.engines.deletes import writing
from reconciler.engines.deletes.replacement import Replacement
from reconciler.engines.deletes.wanted import Wanted
from reconciler.engines.manifests import Tasks
from reconciler.engines.schedule.attempt import Attempt
from reconciler.engines.schedule.inputs import refuse_partitions
from reconciler.engines.table import Table
from reconciler.engines.task_file import TaskFile
from reconciler.errors import UnsupportedError
from reconciler.rewrite.columns import LIST, MAP, Column, columns_of


@dataclass
class HiddenRows:
    """The hidden rows that earlier attempts of a run found. A data file and its delete files never
    change, so that only data files are read again to which other delete files apply since."""

    rows: dict[str, tuple[frozenset[tuple[str, int]], bytes]] = field(default_factory=dict)
    """By data file: identities of the delete files that applied to it, and the rows that they hid
    as a portable bitmap."""

    def known(self, path: str, applied: Iterable[DeleteFile]) -> bytes | None:
        """Return the rows that these delete files hide, None if the data file must be read."""
        marks, body = self.rows.get(path, (None, None))
        return body if marks == _marks(applied) else None


def _marks(applied: Iterable[DeleteFile]) -> frozenset[tuple[str, int]]:
    return frozenset(file.identity for file in applied)


def refuse(table: Table, name: str, inputs: Iterable[DeleteFile]) -> None:
    """Raise UnsupportedError for identity columns that a reader may not compare."""
    repeated = dict(_repeated(columns_of(table.schema())))
    for field_id in sorted({field_id for file in inputs for field_id in file.keys}):
        if field_id in repeated:
            raise UnsupportedError(
                f"{name} has equality deletes on {repeated[field_id]}, a member of a list or a map",
                details=("Converting them is not supported. The table was left as it was.",),
                do="let the engine that writes them compact them, or set "
                "spec.deletes.compaction: Major",
            )


def _repeated(
    columns: Sequence[Column], within: str = "", inside: bool = False
) -> Iterator[tuple[int, str]]:
    """Yield field id and dotted name of each column inside a list or a map."""
    for column in columns:
        name = f"{within}{column.name}"
        if inside:
            yield column.field_id, name
        yield from _repeated(column.children, f"{name}.", inside or column.type in (LIST, MAP))


def key_bytes(
    table: Table,
    snapshot_id: int,
    inputs: Sequence[DeleteFile],
    files: Sequence[DeleteFile],
    hidden_rows: HiddenRows,
) -> int:
    """Return the stored bytes of the identity columns of the data files under the inputs that must
    be read. files: all delete files of the snapshot."""
    tasks = _under(table, snapshot_id, inputs, files)
    applied = table.applied(tasks, files) if hidden_rows.rows else {}
    ids = _ids(inputs)
    return sum(
        _stored(file, ids)
        for path, file in tasks.items()
        if path not in applied or hidden_rows.known(path, applied[path]) is None
    )


def _under(
    table: Table, snapshot_id: int, inputs: Sequence[DeleteFile], files: Sequence[DeleteFile]
) -> Tasks:
    return table.tasks_under(snapshot_id, [file.path for file in inputs], _ids(files))


def _ids(files: Iterable[DeleteFile]) -> set[int]:
    return {field_id for file in files for field_id in file.keys}


def _stored(file: TaskFile, ids: set[int]) -> int:
    """Return the bytes of columns; of the whole file where the manifest does not hold them."""
    return sum(file.sizes[i] for i in ids & file.sizes.keys()) if file.sizes else file.size


def replacement_for(
    attempt: Attempt,
    base: str,
    inputs: Sequence[DeleteFile],
    files: Sequence[DeleteFile],
    hidden_rows: HiddenRows,
) -> Replacement:
    """Write position deletes in place of the inputs, and return them with what is removed. files:
    all delete files of the snapshot. hidden_rows: gets the rows that were found."""
    tasks = _under(attempt.table, attempt.snapshot_id, inputs, files)
    if not tasks:
        return Replacement(tasks, (), inputs, "they apply to no data file")
    refuse_partitions(attempt.table, tasks, attempt.name)
    applied = attempt.table.applied(tasks, files)
    wanted = _wanted(tasks, applied, hidden_rows)
    made = writing.written(attempt, base, tasks, wanted, keep=True)
    hidden_rows.rows = {path: (_marks(applied[path]), body) for path, body in made.rows.items()}
    changed = frozenset(file.data_file for file in made.files)
    removed = [*inputs, *_folded(attempt, tasks, inputs, files, changed)]
    return Replacement(tasks, made.files, removed, cpu_seconds=made.cpu_seconds)


def _wanted(
    tasks: Tasks, applied: Mapping[str, Sequence[DeleteFile]], hidden_rows: HiddenRows
) -> dict[str, Wanted]:
    return {
        path: Wanted(own, True, hidden_rows.known(path, own), _stored(tasks[path], _ids(own)))
        for path, own in applied.items()
    }


def _folded(
    attempt: Attempt,
    tasks: Tasks,
    inputs: Sequence[DeleteFile],
    files: Sequence[DeleteFile],
    changed: frozenset[str],
) -> list[DeleteFile]:
    """Return the position deletes whose rows the new delete files hold too."""
    positions = [file for file in files if not file.keys]
    own = [file for file in positions if file.data_file in changed]
    keys, everywhere = {f.partition_key for f in inputs}, any(f.everywhere for f in inputs)
    wide = [f for f in positions if not f.data_file and (everywhere or f.partition_key in keys)]
    if not wide:
        return own
    paths = [file.path for file in wide]
    under = attempt.table.tasks_under(attempt.snapshot_id, paths)
    return own if set(under) - set(tasks) else [*own, *wide]
