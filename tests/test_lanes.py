"""Each test of the suite is in one lane, and the quick part starts nothing heavy."""

from __future__ import annotations

import itertools

import pytest
from _pytest.mark.expression import Expression

from tests.lanes import lanes

MARKERS = ("spark", "cluster", "s3", "faults")


def chosen(part: str, marks: frozenset[str]) -> int:
    """How many lanes of the part run a test with these markers."""
    expressions = [lane[lane.index("-m") + 1] for lane in lanes(part).values()]
    return sum(
        Expression.compile(text).evaluate(lambda name, **_: name in marks) for text in expressions
    )


@pytest.mark.parametrize(
    "marks",
    [frozenset(c) for n in range(len(MARKERS) + 1) for c in itertools.combinations(MARKERS, n)],
    ids=lambda marks: "+".join(sorted(marks)) or "plain",
)
def test_each_test_is_in_one_lane(marks: frozenset[str]) -> None:
    assert chosen("test", marks) == (0 if "faults" in marks else 1)
    assert chosen("check", marks) == (0 if marks else 2)  # by directory, then


def test_the_quick_part_splits_by_directory() -> None:
    first, second = lanes("check").values()
    assert {f"--ignore={path}" for path in first[2:]} == set(second[2:])
