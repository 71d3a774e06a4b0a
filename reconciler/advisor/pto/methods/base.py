"""What every method of choosing a layout takes and returns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from reconciler.advisor.pto.space import CandidateLayout, Label, Space


@dataclass(frozen=True, slots=True)
class Choice:
    """The layout that a method chose."""

    candidate: CandidateLayout
    """The chosen candidate."""
    labelled: int
    """Number of candidates that were simulated to choose it."""
    finer: tuple[Label, ...] = ()
    """Labels of sizes that were simulated besides those of the grid."""


Method = Callable[[Space, int], Choice]
"""(space, seed) -> the chosen candidate. Raises LookupError if the space has no candidate."""
