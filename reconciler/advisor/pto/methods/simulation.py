"""Simulates every candidate and takes the cheapest: the default, because labels cost little here.

The paper labels 12 candidates, because a label takes a physical rewrite of a sample there.
"""

from __future__ import annotations

from reconciler.advisor.pto.methods.base import Choice
from reconciler.advisor.pto.refine import refined
from reconciler.advisor.pto.space import Space, best


def simulation(space: Space, seed: int) -> Choice:
    """Return the candidate with the least cost of reading and rewriting, in refined sizes."""
    finer = refined(space, space.labels)
    return Choice(best((*space.labels, *finer)).candidate, len(space.labels), finer)
