"""Why candidates of a recommendation were not chosen."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from reconciler.advisor.pto.partitionings import text_of
from reconciler.advisor.pto.space import (
    Label,
    Space,
    rated,
    rows_asked,
    sampled_enough,
    skips_nothing,
)
from reconciler.plan.ordering import Ordering
from reconciler.table.schema import PartitionSpec, Schema

TOO_THIN = "too few sampled rows per row group to judge it"


def fell(space: Space, labels: Sequence[Label], picked: Label) -> tuple[tuple[str, str], ...]:
    """Return each partitioning and ordering that was simulated and not chosen, the cheapest first,
    with by how much its best sizes cost more."""
    together: dict[tuple[int, int], list[Label]] = {}
    for label in labels:
        together.setdefault((label.candidate.spec, label.candidate.ordering), []).append(label)
    together.pop((picked.candidate.spec, picked.candidate.ordering), None)
    schema, asked = space.pool.files.schema, rows_asked(labels)
    enough = {pair: sampled_enough(mine, asked) for pair, mine in together.items()}

    def least(pair: tuple[int, int]) -> float:
        return min((label.total for label in enough[pair]), default=np.inf)

    return tuple(
        (text_of_pair(space, *pair, schema), _why_it_fell(space, enough[pair], picked))
        for pair in sorted(together, key=lambda pair: (least(pair), pair))
    )


def _why_it_fell(space: Space, enough: Sequence[Label], picked: Label) -> str:
    if not enough:
        return TOO_THIN
    cheapest = min(enough, key=lambda label: label.total)
    more = cheapest.total / max(picked.total, 1e-9) - 1.0
    side = "more" if more >= 0.0 else "less"
    return (
        f"costs {100 * abs(more):.1f} % {side}, reads {_times(cheapest, picked)}"
        f"{_although_cheaper(space, cheapest, picked)}"
    )


def _although_cheaper(space: Space, label: Label, picked: Label) -> str:
    """Return why a cheaper layout was not chosen; "" for one that costs as much or more."""
    if label.total >= picked.total:
        return ""
    if skips_nothing(space, label):
        return "; no query skips more by it, it only stores less"
    if rated(space, label) >= rated(space, picked):
        return "; a tree has to leave 5 % less to read than a key"
    return "; there is more to declare"


def _times(label: Label, picked: Label) -> str:
    ratio = float(label.ahead.sum()) / max(float(picked.ahead.sum()), 1.0)
    return f"{ratio:.2f}x the bytes"


def text_of_pair(space: Space, spec: int, ordering: int, schema: Schema) -> str:
    return described(space.partitionings[spec].spec, space.ordering(ordering), schema)


def described(spec: PartitionSpec, ordering: Ordering, schema: Schema) -> str:
    """Return `partitioned by month(ts), sorted by a, b`."""
    parts, order = text_of(spec, schema), ordering.text(schema)
    parted = "" if parts == "none" else f"partitioned by {parts}, "
    if not order:
        return f"{parted}unsorted"
    return f"{parted}{'sorted' if ordering.lead else 'clustered'} by {order}"
