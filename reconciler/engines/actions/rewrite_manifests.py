"""Replaces manifests of data files by fewer, ordered by partition.

A first, uncommitted rewrite is read back and compared entry by entry with the head: file,
partition, sequence numbers, and the snapshot that added it. Only then the same rewrite is
committed, and Iceberg compares the number of entries again.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Sequence

from reconciler.engines.actions.content import ContentExecutor
from reconciler.engines.commit import batch, metadata_files
from reconciler.engines.commit.batch import Part
from reconciler.engines.commit.operations import NewManifests
from reconciler.engines.schedule.attempt import Attempt
from reconciler.errors import VerificationError
from reconciler.format import count, iec
from reconciler.plan.actions.rewrite_manifests import RewriteManifests
from reconciler.plan.actions.state import ActionState, Facts
from reconciler.plan.execution import Event, Outcome


class ManifestsExecutor(ContentExecutor[RewriteManifests]):
    def states(self, head: int, done: Collection[str]) -> dict[str, ActionState]:
        self.live = self.run.table.manifest_sizes()
        return {
            key: action.judge(Facts(done=key in done, live=self.live)) for key, action in self.items
        }

    def input_bytes(self, paths: Sequence[str]) -> int:
        return sum(self.live.get(path, 0) for path in paths)

    def dropped(self, attempt: Attempt) -> tuple[Outcome, ...]:
        return ()

    def needed(self, head: int, paths: Sequence[str]) -> Iterable[str]:
        return [path for path in paths if path in self.run.table.manifest_sizes()]

    def work(self, attempt: Attempt, pending: Sequence[tuple[str, RewriteManifests]]) -> bool:
        conflicts = False
        for number, (key, action) in enumerate(pending, start=1):
            if self.run.stopping():
                break
            conflicts |= not self._rewritten(attempt, number, key, action)
        return conflicts

    def _rewritten(self, attempt: Attempt, number: int, key: str, action: RewriteManifests) -> bool:
        """Commit one action; return False if another writer's commit prevents it."""
        started, run = time.monotonic(), self.run
        groups = attempt.table.grouped(action.manifests)
        operation = NewManifests(action.inputs, groups)
        entries = self._verify(attempt, operation)
        size = self.input_bytes(action.inputs)
        title = f"{action.verb}  {count(len(action.inputs))} manifests {iec(size)}"
        text = f"{title}  {count(entries)} entries equal"
        part = Part(
            action_id=key, title=title, verified=Event("verified", text, key),
            inputs=action.inputs, outputs=(), read_bytes=size, written_bytes=size, rows=0,
            cpu_seconds=0.0, verify_cpu_seconds=0.0, seconds=time.monotonic() - started,
        )  # fmt: skip
        run.on_event(part.verified)
        return batch.send(run, attempt, number, operation, [part])

    def _verify(self, attempt: Attempt, operation: NewManifests) -> int:
        """Return the number of live entries, which are the same after the rewrite. Raises
        VerificationError."""
        run = self.run
        change = attempt.table.begin(operation)
        try:
            after = change.entries(operation, attempt.snapshot_id)
            before = attempt.table.entries()
            if before != after:
                raise VerificationError(
                    f"the rewritten manifests of {run.shown} do not hold the same entries",
                    details=("Nothing was committed.",),
                    do="report this; the table is as it was",
                )
            return before[0]
        finally:
            removed = metadata_files.remove_of_commits(run.table, (change.uuid,), change.base)
            removed.required()
