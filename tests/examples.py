"""On how many examples a property is tried.

Each run draws other examples, so that a share of them is enough for a change. All are tried with
LAYOUTCTL_EXAMPLES=all, as `make soak` does.
"""

from __future__ import annotations

import os

from hypothesis import settings

SHARE = 0.15
LEAST = 10


def examples(number: int) -> int:
    """Return how many of `number` examples this run tries."""
    if os.environ.get("LAYOUTCTL_EXAMPLES") == "all":
        return number
    return min(number, max(LEAST, round(number * SHARE)))


def load_profile() -> None:
    """Set the number for properties that name none. An example takes the time that it takes."""
    settings.register_profile("share", max_examples=examples(100), deadline=None)
    settings.load_profile("share")
