"""What follows from conflicts with other writers: how long work waits, and which work. Pure.

A rewrite that lost its inputs to another writer would lose them again while that writer goes on,
and each attempt delays the maintenance that would succeed. So each conflict in a row lengthens the
quiet period of the table, and only work that the quiet period concerns waits.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from reconciler.plan.actions.base import Action

FIRST_HOLD_MS = 60_000
LONGEST_HOLD_MS = 15 * 60_000
"""The default of spec.layout.files.quietPeriod: conflicts make nobody wait longer than that."""


@dataclass(frozen=True, slots=True)
class Conflicts:
    """Number of executions in a row that lost work to other writers and committed nothing of its
    class. A success of one class says nothing about the other."""

    data: int = 0
    """The number for rewrites of data files."""
    rest: int = 0
    """The number for everything else, such as maintenance of delete files, which seldom
    conflicts."""

    @property
    def most(self) -> int:
        return max(self.data, self.rest)

    @property
    def hold_ms(self) -> int:
        """How long a partition must be quiet at least: doubled by each conflict in a row."""
        if not self.most:
            return 0
        return min(FIRST_HOLD_MS << min(self.most - 1, 10), LONGEST_HOLD_MS)

    def after(self, lost: Collection[Action], done: Collection[Action]) -> Conflicts:
        """Return them after one more execution. lost: its actions whose inputs others replaced or
        deleted from, or whose commits they made conflict; done: those that it committed."""
        return Conflicts(
            0 if _data(done) else self.data + _data(lost),
            0 if _rest(done) else self.rest + _rest(lost),
        )

    def concern(self, actions: Collection[Action]) -> bool:
        """Whether one of the actions is of a class that conflicted last."""
        return (self.data > 0 and _data(actions)) or (self.rest > 0 and _rest(actions))


NO_CONFLICTS = Conflicts()


def _data(actions: Collection[Action]) -> bool:
    return any(action.rewrites_data for action in actions)


def _rest(actions: Collection[Action]) -> bool:
    return not all(action.rewrites_data for action in actions)
