"""Says which conditions of the recorded queries no cut serves: LIKE a pattern beyond a prefix,
conditions between columns, and those that compute with a column, by arithmetic or a function.

Bounds say nothing of these. Only conditions between two columns of one type out of `pairs.TYPES`
can be cut by, where rows get block ids.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from reconciler.format import plural
from reconciler.queries.predicate import EXPRESSION, Ref, uncut_of
from reconciler.queries.shape import Shape
from reconciler.table.pairs import Pair
from reconciler.table.schema import Schema

SHOWN = 3
"""Conditions that are named, those of the most reading."""


def uncut(
    demands: Sequence[Shape],
    reads: Sequence[float],
    schema: Schema,
    cuttable: Collection[Pair] = (),
) -> str:
    """Return which conditions no cut serves, each with the share of the reads of queries that have
    it; "" if there are none.

    reads: bytes that the queries of each shape read. cuttable: conditions that trees may be cut by.
    """
    found, every = dict[Ref, float](), 0.0
    for demand, read in zip(demands, reads, strict=True):
        own = [
            ref
            for ref in uncut_of(demand.predicate)
            if ref.pair not in cuttable and _exists(ref, schema)
        ]
        for ref in own:
            found[ref] = found.get(ref, 0.0) + read
        every += read if own else 0.0
    if not found:
        return ""
    total = max(sum(reads), 1e-300)
    heaviest = sorted(found, key=lambda ref: (-found[ref], ref.field_id, ref.transform))
    named = [f"{in_words(ref, schema)} ({found[ref] / total:.0%})" for ref in heaviest[:SHOWN]]
    more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
    return (
        f"no cut serves {plural(len(found), 'condition')} of queries that read "
        f"{every / total:.0%} of all bytes: {', '.join(named)}{more}"
    )


def _exists(ref: Ref, schema: Schema) -> bool:
    """Whether queries can still ask for it: its columns were not dropped."""
    right = () if ref.pair is None else (ref.pair.right,)
    return all(field in schema.by_id for field in (ref.field_id, *right))


def in_words(ref: Ref, schema: Schema) -> str:
    """Return a condition as text, without its pattern."""
    name, pair = schema.name_of(ref.field_id), ref.pair
    if ref.transform == EXPRESSION:
        return f"an expression of {name}"
    return f"{name} LIKE ?" if pair is None else f"{name} {pair.sign} {schema.name_of(pair.right)}"
