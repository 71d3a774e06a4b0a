"""What carries out an action: an executor for each kind, or one for several kinds together."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Generic, TypeVar

from reconciler.engines.schedule.run import Run
from reconciler.plan.actions.base import Action
from reconciler.plan.actions.state import ActionState

SomeAction = TypeVar("SomeAction", bound=Action)


class Executor(ABC, Generic[SomeAction]):
    """Carries out the actions of its kinds, all those of one plan; items: each with its id."""

    def __init__(self, run: Run, items: Sequence[tuple[str, SomeAction]]) -> None:
        self.run, self.items = run, items

    def check(self) -> None:
        """Raise if an action cannot be carried out, before anything is written."""

    @abstractmethod
    def carry_out(self) -> None:
        """Carry out what is pending; what others changed meanwhile is left alone."""

    @abstractmethod
    def judge(self) -> dict[str, ActionState]:
        """Return how its actions stand on the present head, by their ids."""
