"""A length of time and a key that programs share have one home each."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator

from tests.sources import PACKAGE, nodes, trees

TIMES = "table/times.py"
LENGTHS = {3_600_000, 86_400_000, 86_400_000_000}
"""Milliseconds of an hour and a day, microseconds of a day."""


def sources() -> Iterator[tuple[str, ast.Module]]:
    for path, tree in trees().items():
        yield path.relative_to(PACKAGE).as_posix(), tree


def test_the_length_of_a_day_or_an_hour_is_written_once() -> None:
    found = {
        place.relative_to(PACKAGE).as_posix()
        for place, every in nodes().items()
        for node in every
        if isinstance(node, ast.Constant) and node.value in LENGTHS
    }
    assert found - {TIMES} == set(), "import it from table/times.py"


def test_a_key_of_ours_has_one_constant() -> None:
    homes = defaultdict(set)
    for place, tree in sources():
        for node in tree.body:
            value = node.value if isinstance(node, (ast.Assign, ast.AnnAssign)) else None
            if isinstance(value, ast.Constant) and str(value.value).startswith("layout."):
                homes[value.value].add(place)
    assert {key: places for key, places in homes.items() if len(places) > 1} == {}
    assert homes["layout.plan-id"] == {"table/summary_keys.py"}
