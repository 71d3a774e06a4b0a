"""The operations that commit our work, each as a value: its content and its own checks.

`commit` has an engine send them, guards every request, and searches for them afterwards. What
applies to all of them (the table, its schema, its history) is checked there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

from reconciler.engines.delete_file import DeleteFile, dangling
from reconciler.engines.manifests import Tasks, WrittenFile
from reconciler.engines.snapshots import SnapshotInfo, short
from reconciler.engines.table import Table
from reconciler.format import plural
from reconciler.plan.actions.partition_specs import same_spec
from reconciler.table import summary_keys
from reconciler.table.schema import SpecField, spec_terms


class Operation(Protocol):
    on_branches: ClassVar[bool]
    """Whether it is audited on a branch: a change of manifests alone changes no row."""

    @property
    def notes(self) -> Mapping[str, str]:
        """Return what the snapshot's summary says of it."""
        ...

    def unfit(self, table: Table) -> str:
        """Return why the table's present specs do not admit it, "" if they do."""
        ...

    def conflict(self, table: Table, head: int, changing: Sequence[SnapshotInfo]) -> str:
        """Return why it does not fit the head any more, "" if it does.

        changing: other writers' snapshots since, without appends; not empty.
        """
        ...


class Plain:
    """An operation of which the summary says nothing, and that fits any specs."""

    __slots__ = ()

    @property
    def notes(self) -> Mapping[str, str]:
        return {}

    def unfit(self, table: Table) -> str:
        return ""


@dataclass(frozen=True, slots=True)
class RewriteFiles(Plain):
    """Data files are replaced by others with the same rows."""

    tasks: Tasks
    """The inputs, with the deletes that were applied to them."""
    added: Sequence[WrittenFile]
    """The new files."""
    sequence_number: int
    """Sequence number of the snapshot that was read. The outputs keep it, so that later deletes
    apply to them too."""
    trees: tuple[str, ...] = field(default=(), kw_only=True)
    """Keys of the trees by which all block ids of the new files are true."""

    on_branches: ClassVar[bool] = True

    @property
    def notes(self) -> Mapping[str, str]:
        return {summary_keys.BLOCK_TREES: ",".join(self.trees)} if self.trees else {}

    def conflict(self, table: Table, head: int, changing: Sequence[SnapshotInfo]) -> str:
        """Equality deletes added since do not count: they apply to the outputs too."""
        live = table.tasks(head, self.tasks)
        gone = len(self.tasks) - len(live)
        deleted = sum(
            file.deletes.positions != self.tasks[path].deletes.positions
            or bool(self.tasks[path].deletes.equality - file.deletes.equality)
            for path, file in live.items()
        )
        by = describe(changing[0])
        if gone:
            return f"{by} replaced {gone} of its files"
        return f"{by} changed the deletes of {deleted} of its files" if deleted else ""


@dataclass(frozen=True, slots=True)
class MoveFiles(RewriteFiles):
    """Data files of one partition spec are replaced by files of another spec."""

    spec_id: int = 0
    """Id of the outputs' spec."""
    fields: tuple[SpecField, ...] = ()
    """Fields of the outputs' spec."""

    def unfit(self, table: Table) -> str:
        """Return why the outputs' spec is not the one that they were written for: it may have been
        removed, and its id given to another one."""
        fields = table.spec_fields(self.spec_id)
        if fields is None:
            return f"partition spec {self.spec_id} was removed"
        if not same_spec(spec_terms(fields), self.fields):
            return f"partition spec {self.spec_id} is another one now"
        return ""

    def conflict(self, table: Table, head: int, changing: Sequence[SnapshotInfo]) -> str:
        """An equality delete of a partitioned spec applies only to data files of that spec: one of
        the inputs' spec would miss the outputs, so that deleted rows came back, and one of the
        outputs' spec would delete rows of inputs to which it did not apply."""
        for snapshot in changing:
            added = table.partitioned_equality(snapshot.id)
            if added:
                files = plural(added, "equality delete file")
                return f"{describe(snapshot)} added {files} of a partitioned spec"
        return super(MoveFiles, self).conflict(table, head, changing)


@dataclass(frozen=True, slots=True)
class RowDelta(Plain):
    """Delete files are added or removed; the data files stay. The rows that readers see must stay
    the same: what `removed` deletes, `added` deletes too.

    Never a RewriteFiles, which would let another writer's rewrite of the same data files bring
    deleted rows back. Rows and deletes that others add meanwhile do not conflict: their sequence
    number is higher, so no removed delete applied to them.
    """

    tasks: Tasks
    """Every data file that a delete file of `added` or `removed` applies to."""
    added: Sequence[DeleteFile] = ()
    """Delete files to add."""
    removed: Sequence[DeleteFile] = ()
    """Delete files to remove."""

    on_branches: ClassVar[bool] = True

    def conflict(self, table: Table, head: int, changing: Sequence[SnapshotInfo]) -> str:
        """A rewrite may keep a sequence number to which a delete file still applies."""
        by = describe(changing[0])
        gone = len(self.tasks) - len(table.tasks(head, self.tasks, bare=True))
        if gone:
            return f"{by} replaced {gone} of its files"
        wide = [file.path for file in self.removed if not file.data_file]
        under = set(table.tasks_under(head, wide)) - set(self.tasks) if wide else ()
        return (
            f"{by} added {plural(len(under), 'file')} to which its deletes apply" if under else ""
        )


@dataclass(frozen=True, slots=True)
class RemoveDeletes(Plain):
    """Delete files that apply to no data file are removed.

    An append cannot make one of them apply again: its sequence number is higher. A rewrite that
    keeps a lower one can.
    """

    files: Sequence[DeleteFile]
    """Delete files to remove."""

    on_branches: ClassVar[bool] = True

    def conflict(self, table: Table, head: int, changing: Sequence[SnapshotInfo]) -> str:
        applied = len(self.files) - len(still_dangling(table, head, self.files))
        by = describe(changing[0])
        return f"{by} added files to which {applied} of its deletes apply" if applied else ""


@dataclass(frozen=True, slots=True)
class NewManifests(Plain):
    """Manifests are replaced by others with the same entries."""

    inputs: Sequence[str]
    """Paths of the manifests to replace."""
    groups: Any
    """The group of each live data file, as `manifests.Manifests.grouped` returns it."""

    on_branches: ClassVar[bool] = False

    def conflict(self, table: Table, head: int, changing: Sequence[SnapshotInfo]) -> str:
        """The engine requires that the manifests are still the head's; what others added is
        kept."""
        present = table.manifest_sizes()
        gone = sum(path not in present for path in self.inputs)
        return f"{gone} of its manifests were replaced" if gone else ""


@dataclass(frozen=True, slots=True)
class Mark(Plain):
    """An append of nothing, for what its summary says."""

    on_branches: ClassVar[bool] = False

    def conflict(self, table: Table, head: int, changing: Sequence[SnapshotInfo]) -> str:
        return ""


def still_dangling(table: Table, head: int, files: Sequence[DeleteFile]) -> list[DeleteFile]:
    """Return those of the delete files that apply to no data file of the snapshot."""
    return dangling(files, table.ages(head, {file.data_file for file in files}))


def describe(snapshot: SnapshotInfo) -> str:
    """Return a short description of another writer's snapshot."""
    verb = {"overwrite": "an overwrite or MERGE", "delete": "a DELETE", "replace": "a rewrite"}
    what = verb.get(snapshot.operation, snapshot.operation)
    return f"{what} (snapshot {short(snapshot.id)})"
