"""What every method of choosing a layout takes and returns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from reconciler.advisor.pto.space import CandidateLayout, Label, Space


@dataclass(frozen=True, slots=True)
class Choice:
    """labelled: how many candidates were simulated to choose this one. finer: the labels of sizes
    beside those of the candidates that were simulated as well."""

    candidate: CandidateLayout
    labelled: int
    finer: tuple[Label, ...] = ()


Method = Callable[[Space, int], Choice]
"""(space, seed) -> the chosen candidate. Raises LookupError if the space has no candidate."""
