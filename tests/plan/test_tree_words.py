"""A tree in words names both columns of a condition between them, and shows no value of a query."""

from __future__ import annotations

from reconciler.plan.ordering import by_tree
from reconciler.plan.tree_words import lines
from reconciler.table.cut_tree import Cut, made
from reconciler.table.pairs import Pair
from reconciler.table.schema import Field, Schema

SCHEMA = Schema(
    0, (Field(1, "shipped", "date"), Field(2, "received", "date"), Field(3, "fare", "long"))
)
NODE = (Cut(-1, 1), (Cut(-1, None), None, None), (Cut(3, 4711), None, None))
TREE = made(NODE, [0, 0, 3, 0], [Pair(1, "less", 2)])


def test_conditions_between_columns_are_named_and_values_hidden() -> None:
    found = list(lines(TREE, SCHEMA, 5, show_literals=False))
    assert [one.depth for one in found] == [0, 1, 2, 2, 1, 2, 2]
    assert found[0].leaves == 4 and found[1].leaves == 2
    both = [one.text for one in found if "shipped" in one.text]
    assert len(set(both)) == 2 and all("received" in text for text in both)
    assert not any("4711" in one.text for one in found)
    assert any("4711" in one.text for one in lines(TREE, SCHEMA, 5, show_literals=True))


def test_the_order_of_a_tree_names_the_columns_of_its_conditions() -> None:
    text = by_tree(TREE).text(SCHEMA)
    assert text.index("shipped") < text.index("fare") and "received" in text
