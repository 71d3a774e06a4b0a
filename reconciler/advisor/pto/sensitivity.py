"""What other windows of the log, and a smaller sample, would choose among the best layouts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from reconciler.advisor.pto.present import present_readings
from reconciler.advisor.pto.recommendation import DeclaredLayout, Sensitivity
from reconciler.advisor.pto.space import (
    LEAST_ROWS_OF_GROUP,
    CandidateLayout,
    Label,
    Space,
    rows_asked,
    sampled_enough,
    simplest,
)
from reconciler.advisor.simulate.pool import build_pool
from reconciler.queries.shape import Shape
from reconciler.queries.table_view import TableView

SHOWN = 5
"""Best candidates that are shown, each of another partitioning or ordering."""


def best_few(labels: Sequence[Label], picked: Label) -> list[Label]:
    """Return the cheapest candidates of other orderings or partitionings than the chosen one."""
    seen = {(picked.candidate.spec, picked.candidate.ordering)}
    few: list[Label] = []
    enough = sampled_enough(labels, rows_asked(labels))
    for label in sorted(enough, key=lambda item: (item.total, item.candidate)):
        kind = (label.candidate.spec, label.candidate.ordering)
        if kind not in seen:
            seen.add(kind)
            few.append(label)
        if len(few) == SHOWN:
            break
    return few


def sensitivity(
    view: TableView,
    windows: Sequence[tuple[str, tuple[Shape, ...]]],
    space: Space,
    labels: Sequence[Label],
    picked: Label,
    known: Mapping[CandidateLayout, DeclaredLayout],
) -> tuple[Sensitivity, ...]:
    """Return what other windows of the log, and half the sample, would choose among the best.

    windows: (name, queries) of each. known: the best layouts, as the answer shows them.
    """
    few = [picked.candidate, *(item.candidate for item in best_few(labels, picked))]
    full = {label.candidate: label for label in space.label(few)}
    variants: list[tuple[str, Space]] = [
        (name, replace(space, demands=demands, present=present_readings(view, demands)))
        for name, demands in windows
    ]
    half = build_pool(view, sorted(space.pool.columns), len(space.pool) // 2)
    if half is not None:
        variants.append(("half of the sample", space.on(half, space.thin)))
    found = []
    for what, variant in variants:
        try:
            chosen = simplest(variant, variant.label(few), LEAST_ROWS_OF_GROUP).candidate
        except LookupError:
            continue
        label = full[chosen]
        regret = label.total / max(full[picked.candidate].total, 1e-9) - 1.0
        found.append(Sensitivity(what, replace(known[chosen], name="best", front=False), regret))
    return tuple(found)
