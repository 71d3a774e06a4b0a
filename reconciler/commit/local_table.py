"""A table of a catalog, without a JVM (`engines.table.Table`): its commits, and its other parts.

What only Iceberg's Java library does here raises UnsupportedError; `Action.needs_spark` keeps such
actions from this engine.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NoReturn

from reconciler.commit import errors, updates
from reconciler.commit.local_commit import LocalCommit
from reconciler.commit.local_manifests import LocalManifests
from reconciler.commit.metadata_changes import CHANGES, LocalMetadataChange
from reconciler.commit.table import LiveTable
from reconciler.engines import engine_errors
from reconciler.engines.answers import Kind
from reconciler.engines.commit.metadata import RESENDS
from reconciler.errors import UnavailableError, UnsupportedError
from reconciler.plan.actions.base import Action
from reconciler.table.retention import MAIN


class LocalTable(LocalManifests):
    """A table of a catalog, as executors ask it."""

    errors: engine_errors.Errors = errors

    def fresh(self) -> LocalTable:
        return LocalTable(LiveTable(self.table.config, self.table.identifier), self.cache)

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
