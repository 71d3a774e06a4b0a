"""Replaces manifests of data files by fewer, ordered by partition.

A first, uncommitted rewrite is read back and compared entry by entry with the head: file,
partition, sequence numbers, and the snapshot that added it. Only then the same rewrite is
committed, and Iceberg compares the number of entries again.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Sequence, Set
from dataclasses import replace

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
from reconciler.table import summary_keys


class ManifestsExecutor(ContentExecutor[RewriteManifests]):
    def states(self, head: int, done: Collection[str]) -> dict[str, ActionState]:
        self.live = self.run.table.manifest_sizes()
        return {key: self._state(key in done, action) for key, action in self.items}

    def _state(self, done: bool, action: RewriteManifests) -> ActionState:
        gone = {path for path in action.inputs if path not in self.live}
        if done or not gone or not self._replaced_by_plan(gone):
            return action.judge(Facts(done=done, live=self.live))
        state = action.judge(Facts(done=True, live=self.live))
        return replace(state, why="commits of the same plan replaced its manifests")

    def _replaced_by_plan(self, paths: Set[str]) -> bool:
        """Whether the newest commits are the plan's own, and the snapshot before them has the
        manifests: each commit writes those anew whose files it replaces."""
        table, plan = self.run.table, self.run.request.plan_id
        for snapshot in table.ancestors():
            if snapshot.summary.get(summary_keys.PLAN_ID) != plan:
                return paths <= table.manifests(snapshot.id).keys()
        return False

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
