"""Moves data files into the partitions of another spec."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from reconciler.engines.actions.rewrite import RewriteExecutor
from reconciler.engines.commit.operations import MoveFiles, RewriteFiles
from reconciler.engines.manifests import Tasks, WrittenFile
from reconciler.engines.schedule.attempt import Attempt
from reconciler.plan.actions.migrate import Migrate
from reconciler.plan.actions.state import ActionState, Validity


class MigrateExecutor(RewriteExecutor):
    """All its actions have the same target: a plan follows one policy."""

    def judge(self) -> dict[str, ActionState]:
        """Without the target spec, nothing of an action can be carried out."""
        states = super().judge()
        return {key: self._with_spec(action, states[key]) for key, action in self.items}

    def _with_spec(self, action: Any, state: ActionState) -> ActionState:
        exists = self.run.table.spec_fields(action.into) is not None
        if state.validity is Validity.DONE or exists:
            return state
        return ActionState(Validity.LOST, why=f"spec {action.into} does not exist")

    def _operation(
        self, attempt: Attempt, tasks: Tasks, files: Sequence[WrittenFile]
    ) -> RewriteFiles:
        target: Migrate = self.items[0][1]  # type: ignore[assignment]
        return MoveFiles(tasks, files, attempt.sequence_number, target.into, target.fields)
