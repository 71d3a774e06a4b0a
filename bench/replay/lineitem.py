"""Lineitem's dates and keys in miniature, and queries of ranges of one of its columns."""

from __future__ import annotations

from reconciler.queries.fragments import Fragment
from reconciler.queries.predicate import And, Comparison, Ref
from reconciler.table.schema import Field, Schema

ORDER, SHIP, COMMIT, PART, PRICE = 1, 2, 3, 4, 5
SCHEMA = Schema(
    1,
    (
        Field(ORDER, "l_orderkey", "long"),
        Field(SHIP, "l_shipdate", "date"),
        Field(COMMIT, "l_commitdate", "date"),
        Field(PART, "l_partkey", "long"),
        Field(PRICE, "l_extendedprice", "double"),
    ),
)
COLUMNS = (ORDER, SHIP, COMMIT, PART)
ROW_BYTES = 32
BETWEEN = {
    column: And((Comparison(Ref(column), ">=", 0), Comparison(Ref(column), "<=", 1)))
    for column in COLUMNS
}


def query(
    position: int,
    column: int,
    low: int,
    width: int,
    at_ms: int,
    weight: float,
    projection: tuple[int, ...] | None = None,
) -> Fragment:
    """Return a range of one column. projection: field ids, ascending; the column and the price if
    not given."""
    return Fragment(
        source="bench", position=position, table_uuid="t", predicate=BETWEEN[column],
        literals=(low, low + width), moving=(None, None),
        projection=projection or (column, PRICE), weight=weight, event_ms=at_ms, engine="bench",
    )  # fmt: skip
