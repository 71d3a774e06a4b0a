"""Why no layout can serve the queries of a table: by kinds of queries, with how many each has."""

from __future__ import annotations

from collections.abc import Iterator

from reconciler.advisor.situation import Situation
from reconciler.plan import reasons
from reconciler.plan.sentence import Sentence
from reconciler.queries.demanded import predicate_columns
from reconciler.queries.predicate import only_null_tests
from reconciler.queries.shape import Shape
from reconciler.queries.table_view import projected_bytes
from reconciler.table.filetable import Float64

NEARLY_ALL = 0.8
"""Share of the bytes that queries need from which on no layout can spare them much."""


def why_nothing_helps(situation: Situation) -> Sentence | str:
    """Return why no layout can serve the queries, "" if one might."""
    needed = everything = 0.0
    for demand, whole, matching in _needs(situation):
        needed += float(demand.executions @ matching)
        everything += float(demand.executions.sum()) * whole
    matches_most = needed >= NEARLY_ALL * everything > 0.0
    usable = [demand for demand in situation.expected.demands if _is_usable(demand, matches_most)]
    schema = situation.table.schema
    if usable and not any(predicate_columns(demand.predicate, schema) for demand in usable):
        return reasons.NO_ORDERED_COLUMN
    if usable and not matches_most:
        return ""
    counts = _counts(situation, matches_most)
    present = [why for why, queries in counts.items() if round(queries)]
    if len(present) > 1:
        return reasons.by_queries([(why, round(counts[why])) for why in present])
    return present[0] if present else reasons.NO_CONDITION


def _needs(situation: Situation) -> Iterator[tuple[Shape, float, Float64]]:
    """Yield each shape with the bytes of its columns, and those of them that match each query."""
    for demand, reading in situation.expected.readings:
        whole = float(projected_bytes(situation.table, demand.projection).sum())
        yield demand, whole, reading.matching


def _is_usable(demand: Shape, matches_most: bool) -> bool:
    """`IS NOT NULL` is ignored if nearly every row meets it, because engines add it to the keys of
    joins."""
    return demand.prunable and not (matches_most and only_null_tests(demand.predicate))


def _counts(situation: Situation, matches_most: bool) -> dict[str, float]:
    """Return the number of queries of each kind, the most frequent first."""
    counts = dict.fromkeys(reasons.OF_QUERIES, 0.0)
    for demand, whole, matching in _needs(situation):
        queries = float(demand.weight.sum())
        if demand.full_scan:
            counts[reasons.NOT_ANALYSED] += queries
        elif not _is_usable(demand, matches_most):
            counts[reasons.NO_CONDITION] += queries
        else:
            most = float(demand.weight[matching >= NEARLY_ALL * whole].sum())
            counts[reasons.MATCHES_MOST] += most
            counts[reasons.READS_LITTLE] += queries - most
    shapes = situation.given.workload.shapes
    asked = sum(float(batch.weight.sum()) * batch.elsewhere for batch in shapes)
    counts[reasons.CONDITION_ELSEWHERE] = min(asked, counts[reasons.NO_CONDITION])
    counts[reasons.NO_CONDITION] -= counts[reasons.CONDITION_ELSEWHERE]
    return dict(sorted(counts.items(), key=lambda item: -item[1]))
