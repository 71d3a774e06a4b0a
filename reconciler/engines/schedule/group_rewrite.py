"""A group that an attempt rewrites."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from reconciler.engines.manifests import Tasks
from reconciler.engines.schedule.attempt import Attempt
from reconciler.engines.schedule.group import Group


@dataclass(frozen=True, slots=True)
class GroupRewrite:
    """What every step of the rewrite of one group needs."""

    attempt: Attempt
    """The attempt that rewrites it."""
    number: int
    """The number of the group in the attempt."""
    group: Group
    """Which files are rewritten, and how."""
    tasks: Tasks
    """The scan's tasks of these files."""
    changes: Mapping[str, str]
    """Properties that override the table's."""
    order_id: int
    """Id of the sort order that the new files record."""
    threads: int
    """Threads of this process that no other group uses."""

    @property
    def base(self) -> str:
        """Return what the names of its work begin with."""
        return f"{self.attempt.id}/{self.number}"
