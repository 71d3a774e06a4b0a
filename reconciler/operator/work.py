"""The types shared by queue and reconciles: a key names an object, a result says when again."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple


class Work(StrEnum):
    """What a worker does with a key. LAUNCH is one key for the whole operator: admission."""

    POLICY = "policy"
    LAYOUT = "layout"
    CATALOG = "catalog"
    LAUNCH = "launch"


class Key(NamedTuple):
    """What to reconcile. namespace and name are "" for LAUNCH."""

    kind: Work
    namespace: str
    name: str


LAUNCH_KEY = Key(Work.LAUNCH, "", "")

GATHER_SECONDS = 2.0
"""A policy is summarised this long after a change of one of its tables: many change together."""
SPREAD_PER_KEY = 0.02
"""Keys that become due by one cause (a catalog is reachable again) are spread out at 50 per
second."""

Trigger = tuple[Key, float]
"""A key, and the seconds until it is due."""


def spread(kind: Work, bodies: Sequence[Mapping[str, Any]]) -> Iterator[Trigger]:
    """Yield keys of many objects that one cause made due: not all at once."""
    within = len(bodies) * SPREAD_PER_KEY
    for body in bodies:
        meta = body["metadata"]
        yield Key(kind, meta.get("namespace", ""), meta["name"]), random.uniform(0, within)


@dataclass(frozen=True, slots=True)
class Result:
    """When a key is due again after its reconcile."""

    due: float | None = None
    """Unix time of the next reconcile without an event; None: only an event or a re-list causes
    one."""
    failed: bool = False
    """Whether the reconcile failed: the key then backs off, from 1 s on, doubled each time."""


Reconcile = Callable[[Key], Result]


@dataclass(frozen=True, slots=True)
class Reconcilers:
    """One function per kind of work, called in worker threads, never twice at once for a key.

    An exception that leaves one counts as a failure and is logged.
    """

    policy: Reconcile
    layout: Reconcile
    catalog: Reconcile
    launch: Reconcile

    def of(self, kind: Work) -> Reconcile:
        return {
            Work.POLICY: self.policy,
            Work.LAYOUT: self.layout,
            Work.CATALOG: self.catalog,
            Work.LAUNCH: self.launch,
        }[kind]
