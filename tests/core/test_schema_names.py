"""Names that Spark, as it starts, cannot tell apart."""

from __future__ import annotations

import pytest

from reconciler.core.schema import Field, Schema


@pytest.mark.parametrize(
    ("names", "told"),
    [
        (("a", "b", "s.a"), ()),
        (("a", "A"), ("a", "A")),
        (("s.a", "s.A", "b"), ("s.a", "s.A")),
        (("s.a", "S.b"), ("s", "S")),
        (("t.element", "T.key", "T.value"), ("t", "T")),
    ],
)
def test_names_that_differ_in_case_only_are_told(
    names: tuple[str, ...], told: tuple[str, ...]
) -> None:
    fields = tuple(Field(number, name, "long") for number, name in enumerate(names, 1))
    assert Schema(0, fields).ambiguous == told
