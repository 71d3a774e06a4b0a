"""Makes an older snapshot the current one: what a plan wrote leaves the table.

The request names the snapshot that has to be current, so that no other writer's commit is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from reconciler.engines.actions.metadata_change import MetadataExecutor
from reconciler.engines.commit.standing import AGAIN
from reconciler.errors import StalePlanError
from reconciler.format import plural
from reconciler.plan.actions.roll_back import RollBack
from reconciler.plan.actions.state import ActionState, Facts

REQUESTS = 16
"""Files that are asked for at the same time."""


def missing(paths: Sequence[str], there: Callable[[str], bool]) -> list[str]:
    """Return those of the files that do not exist. there: asks the storage for one."""
    with ThreadPoolExecutor(REQUESTS, thread_name_prefix="restored") as pool:
        return [
            path for path, found in zip(paths, pool.map(there, paths), strict=True) if not found
        ]


class RollBackExecutor(MetadataExecutor[RollBack]):
    def state(self, action: RollBack, facts: Facts) -> ActionState:
        return action.judge(self.with_log(facts))

    def before(self, action: RollBack) -> Any:
        """Raise StalePlanError if a file that comes back is gone: another program may have deleted
        files although a snapshot has them."""
        gone = missing(action.restored, self.run.table.has_file)
        if gone:
            raise StalePlanError(
                f"plan {self.run.request.plan_id} of {self.run.shown} is no longer valid: "
                f"{plural(len(gone), 'file')} of the older snapshot cannot be found",
                details=(f"for example {gone[0]}", "Nothing was changed."),
                do=AGAIN,
            )
