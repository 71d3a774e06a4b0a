"""What every method of choosing a layout takes and returns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from reconciler.advisor.pto.space import CandidateLayout, Space


@dataclass(frozen=True, slots=True)
class Choice:
    """labelled: how many candidates were simulated to choose this one."""

    candidate: CandidateLayout
    labelled: int


Method = Callable[[Space, int], Choice]
"""(space, seed) -> the chosen candidate. Raises LookupError if the space has no candidate."""
