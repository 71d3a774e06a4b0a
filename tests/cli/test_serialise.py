"""JSON is printed as the standard library indents it."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from reconciler.cli.options import Output
from reconciler.cli.serialise import serialise

LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
VALUES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner)
        | st.dictionaries(st.text() | st.integers(), inner, max_size=4)
    ),
)


@given(VALUES)
def test_json_is_that_of_the_standard_library(value: object) -> None:
    assert serialise(value, Output.JSON) == json.dumps(value, indent=2, ensure_ascii=False) + "\n"
