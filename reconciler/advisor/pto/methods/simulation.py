"""Simulates every candidate and takes the cheapest: the default, because labels cost little here.

The paper labels 12 candidates, because a label takes a physical rewrite of a sample there.
"""

from __future__ import annotations

from reconciler.advisor.pto.methods.base import Choice
from reconciler.advisor.pto.refine import refined, steady
from reconciler.advisor.pto.space import Space, simplest
from reconciler.advisor.pto.trees import grown


def simulation(space: Space, seed: int) -> Choice:
    """Return the candidate with the least cost of reading and rewriting, in refined sizes; of those
    that cost hardly more the simplest. A tree of cuts is one where queries filter on many columns.
    """
    finer = refined(space, space.labels)
    key = simplest(space, (*space.labels, *finer))
    finer = (*finer, *grown(space, key, seed))
    picked = steady(space, simplest(space, (*space.labels, *finer)))
    return Choice(picked.candidate, len(space.labels), (*finer, picked))
