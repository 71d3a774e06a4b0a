"""The services of the process that its reconciles are built with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from reconciler.operator.work import Key, Reconcilers

if TYPE_CHECKING:
    from reconciler.kube.api import Api
    from reconciler.operator.index import Index
    from reconciler.operator.process.metrics import Metrics
    from reconciler.operator.settings import OperatorSettings


@dataclass(frozen=True, slots=True)
class Runtime:
    """The services that reconciles are built with."""

    api: Api
    """The Kubernetes API."""
    index: Index
    """The objects as the watches know them."""
    settings: OperatorSettings
    """The operator's settings."""
    metrics: Metrics
    """The exported metrics."""
    enqueue: Callable[[Key, float | None], None]
    """Adds a key, from any thread, to run at a Unix time, None for now. Of two times the earlier
    one counts."""
    held: Callable[[], bool]
    """Returns whether this process leads at this moment; it is called right before each launch."""
    stopping: Callable[[], bool]
    """Returns whether the process is about to end, so that nothing long may start."""


Build = Callable[[Runtime], Reconcilers]
