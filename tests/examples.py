"""How properties are tried: on which examples, and on how many.

The short suite tries a share of the examples, always the same ones, and does not shrink what fails:
a run is repeatable, and one failure does not take minutes. With LAYOUTCTL_EXAMPLES=N all of them
are tried N times over, others in each run, and what fails is shrunk; `make soak` has N = 20. What
it finds becomes an explicit example.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, Phase, settings

SHARE = 0.1
LEAST = 6
SEEDS = 0.15
"""Share of the seeds of a test that draws its cases itself, of which each is a whole case."""
LEAST_SEEDS = 2
TIMES = int(os.environ.get("LAYOUTCTL_EXAMPLES") or 0)
"""How often all examples are tried; 0: a share of them."""


def examples(number: int) -> int:
    """Return how many of `number` examples this run tries."""
    return number * TIMES if TIMES else min(number, max(LEAST, round(number * SHARE)))


def seeds(number: int) -> range:
    """Return the seeds of a test that draws its cases itself: in the long form N times as many."""
    few = min(number, max(LEAST_SEEDS, round(number * SEEDS)))
    return range(number * TIMES if TIMES else few)


def load_profile() -> None:
    """Set the settings that a property does not set itself.

    Neither an example nor what draws it has a time limit: it would be that of the machine.
    """
    if TIMES:
        settings.register_profile(
            "long",
            max_examples=examples(100),
            deadline=None,
            print_blob=True,
            suppress_health_check=[HealthCheck.too_slow],
        )
    else:
        settings.register_profile(
            "short",
            max_examples=examples(100),
            deadline=None,
            derandomize=True,
            database=None,
            phases=(Phase.explicit, Phase.generate),
            suppress_health_check=[HealthCheck.too_slow],
        )
    settings.load_profile("long" if TIMES else "short")
