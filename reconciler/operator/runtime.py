"""The services of the process that its reconciles are built with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from reconciler.operator.work import Key, Reconcilers

if TYPE_CHECKING:
    from reconciler.kube.api import Api
    from reconciler.operator.index import Index
    from reconciler.operator.metrics import Metrics
    from reconciler.operator.settings import OperatorSettings


@dataclass(frozen=True, slots=True)
class Runtime:
    """The services that reconciles are built with.

    enqueue(key, due): from any thread; due is Unix time, None for now; the earlier time wins.
    held(): whether this process leads at this moment; called right before each launch. stopping():
    the process is about to end; start nothing long.
    """

    api: Api
    index: Index
    settings: OperatorSettings
    metrics: Metrics
    enqueue: Callable[[Key, float | None], None]
    held: Callable[[], bool]
    stopping: Callable[[], bool]


Build = Callable[[Runtime], Reconcilers]
