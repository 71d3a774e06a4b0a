"""The rest of what carrying a plan out asks of a table (`engines.table.Table`), without a JVM.

What only Iceberg's Java library does here raises UnsupportedError; `Action.needs_spark` keeps such
actions from this engine.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn, cast

from reconciler.catalog import s3_uploads
from reconciler.commit import compared, content, errors, fields, reachable, updates
from reconciler.commit.local_commit import LocalCommit
from reconciler.commit.local_files import LiveTasks, LocalFiles
from reconciler.commit.local_history import snapshot_info
from reconciler.commit.metadata_changes import CHANGES, LocalMetadataChange
from reconciler.commit.table import LiveTable
from reconciler.engines import engine_errors
from reconciler.engines.answers import Kind
from reconciler.engines.commit import locations
from reconciler.engines.commit.metadata import RESENDS
from reconciler.engines.delete_file import DeleteFile
from reconciler.engines.manifests import Content, Tasks
from reconciler.engines.snapshots import SnapshotInfo
from reconciler.engines.table import PartitionField
from reconciler.errors import UnavailableError, UnsupportedError
from reconciler.plan.actions.base import Action
from reconciler.table.paths import is_local, local_of
from reconciler.table.retention import MAIN
from reconciler.table.schema import SpecField


class LocalTable(LocalFiles):
    """A table of a catalog, as executors ask it."""

    errors: engine_errors.Errors = errors

    def fresh(self) -> LocalTable:
        return LocalTable(LiveTable(self.table.config, self.table.identifier), self.cache)

    # History

    def snapshots(self) -> Iterable[SnapshotInfo]:
        return [snapshot_info(one) for one in self.state.snapshots.values()]

    def spec_fields(self, spec_id: int) -> tuple[SpecField, ...] | None:
        found = self.specs().get(spec_id)
        if found is None:
            return None
        return tuple(
            SpecField(one.source_id, one.transform) for one in found if one.transform != "void"
        )

    def specs(self) -> Mapping[int, tuple[PartitionField, ...]]:
        return {
            int(spec["spec-id"]): tuple(
                PartitionField(int(one["field-id"]), int(one["source-id"]), str(one["name"]),
                               str(one["transform"]))
                for one in spec["fields"]
            )
            for spec in self.state.metadata["partition-specs"]
        }  # fmt: skip

    def metadata_log(self) -> list[str]:
        log = self.state.metadata.get("metadata-log") or ()
        return [self.state.location, *(str(one["metadata-file"]) for one in log)]

    def columns_unknown_to_spark(self) -> list[str]:
        """Return []: nothing writes in this engine's place."""
        return []

    # Storage

    def end_uploads(self, prefix: str) -> None:
        if s3_uploads.on_s3(prefix):
            s3_uploads.end_uploads(self.table.io.properties, prefix)

    def remove_empty_directories(self, prefix: str) -> None:
        root = local_of(prefix) if is_local(prefix) else None
        if root is None:
            return
        for directory, _, _ in os.walk(root, topdown=False):
            with contextlib.suppress(OSError):  # it is not empty
                Path(directory).rmdir()

    # Manifests

    def applied(self, tasks: Tasks, files: Sequence[DeleteFile]) -> dict[str, list[DeleteFile]]:
        own, known = cast(LiveTasks, tasks), {file.identity: file for file in files}
        return {
            path: [known[one] for one in identities if one in known]
            for path, identities in own.live.applying(own.rows).items()
        }

    def require_once(self, files: Iterable[DeleteFile]) -> None:
        seen: set[tuple[str, int]] = set()
        for file in files:
            if file.identity in seen:
                raise UnsupportedError(
                    f"{self.shown} has {file.path} in two manifest entries",
                    details=("Removing a path removes all of its entries. Nothing was changed.",),
                    do="let a writer of the table remove the file, and add it once",
                )
            seen.add(file.identity)

    def added_paths(self, snapshot_id: int) -> list[str]:
        return content.added_paths(self, snapshot_id)

    def content_of(self, snapshot_id: int) -> Content:
        return content.of_snapshot(self, snapshot_id)

    def used_specs(self) -> frozenset[int]:
        return frozenset(
            int(one[fields.M_SPEC])
            for snapshot_id in self.state.snapshots
            for one in self.table.manifests(snapshot_id)
        )

    def manifest_sizes(self) -> dict[str, int]:
        found = self.table.manifests(self.head())
        return {str(one[fields.M_PATH]): int(one[fields.M_LENGTH]) for one in found}

    def manifests(self, snapshot_id: int) -> Mapping[str, int]:
        return {
            str(one[fields.M_PATH]): int(one[fields.M_SNAPSHOT])
            for one in self.table.manifests(snapshot_id)
        }

    def grouped(self, groups: int) -> dict[str, int]:
        head = self.head()
        paths = [] if head is None else self.live(head).by_partition()
        return {path: number * groups // len(paths) for number, path in enumerate(paths)}

    def entries(self) -> tuple[int, str]:
        head = self.head()
        if head is None:
            return 0, "0"
        path = str(self.state.snapshots[head]["manifest-list"])
        return compared.live_entries(self.table.io, path)

    def frozen(self, expiring: Collection[int]) -> reachable.Reached:
        return reachable.reached(self.table, expiring)

    def unneeded(self, before: Any) -> dict[str, int]:
        kept, roots = cast(reachable.Reached, before), locations.roots(self)
        now = reachable.reached(self.table, known=kept)
        return reachable.unneeded(self.table, kept, now, roots)

    def mentioned(self, paths: Collection[str]) -> list[str]:
        return reachable.mentioned(self.table, paths)

    # Commits

    def begin(self, operation: Any, branch: str = MAIN) -> LocalCommit:
        return LocalCommit(self, branch)

    def change(self, action: Action) -> LocalMetadataChange:
        make = CHANGES.get(type(action))
        if make is None:
            self._needs_spark(action.kind)
        return make(self, action)

    def without(
        self, heads: Mapping[str, int | None], snapshots: Collection[int]
    ) -> LocalMetadataChange:
        made: list[Any] = []
        for name, head in heads.items():
            if head is None:
                made += updates.drop_branch(name)
            else:
                made += updates.set_branch(self.state, name, head)
        if snapshots:
            made += updates.expire(snapshots, {})
        held = updates.hold(self.state, self.state.refs)
        return LocalMetadataChange(self, self.state, tuple(made), tuple(held), {}, {})

    def with_statistics(self, snapshot_id: int, document: Mapping[str, Any]) -> LocalMetadataChange:
        made = updates.set_statistics(snapshot_id, document)
        held = updates.hold(self.state, [MAIN])
        return LocalMetadataChange(self, self.state, tuple(made), tuple(held), {}, {})

    def keep_on_branch(self, branch: str, snapshots: int) -> None:
        for _ in range(RESENDS):
            self.refresh()
            made = updates.keep_on_branch(self.state, branch, snapshots)
            held = updates.hold(self.state, [branch])
            answer = LocalMetadataChange(self, self.state, tuple(made), tuple(held), {}, {}).send()
            if answer.kind is not Kind.LOST_RACE:
                break
        if answer.kind is not Kind.ACCEPTED:
            raise UnavailableError(f"branch {branch} of {self.shown} was not kept: {answer.why}")

    def query(self, text: str, versions: Mapping[str, int]) -> NoReturn:
        self._needs_spark("checks on a branch")

    def _needs_spark(self, what: str) -> NoReturn:
        raise UnsupportedError(
            f"{self.shown} needs Spark: {what}",
            details=("Nothing was changed.",),
            do="run it with --engine Spark, or set spec.engine.type to Spark",
        )
