"""Fragments of an earlier version read back equal: every kind of node and literal."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reconciler.queries.fragment_codec import (
    ROW_TYPES,
    fragment_from_row,
    members_from_json,
    members_to_json,
    predicate_from_json,
)
from reconciler.queries.fragments import Fragment
from reconciler.queries.predicate import (
    Always,
    And,
    Comparison,
    First,
    In,
    IsNaN,
    IsNull,
    Not,
    Or,
    Ref,
    StartsWith,
)
from tests.examples import examples
from tests.said import Said
from tests.state.old_version import row

REFS = st.builds(
    Ref, st.integers(1, 9), st.sampled_from(["identity", "month", "bucket[16]", "truncate[4]"])
)
LEAVES = st.one_of(
    st.builds(Comparison, REFS, st.sampled_from(["<", "<=", "=", "!=", ">", ">="]), st.just(0)),
    st.builds(In, REFS, st.integers(0, 5)),
    st.builds(StartsWith, REFS, st.integers(0, 5)),
    st.builds(IsNull, REFS),
    st.builds(IsNaN, REFS),
    st.builds(First, REFS, st.booleans(), st.integers(1, 10_000)),
    st.builds(Always, st.booleans()),
)
TREES = st.recursive(
    LEAVES,
    lambda child: st.one_of(
        st.builds(Not, child),
        st.builds(And, st.lists(child, min_size=1, max_size=3).map(tuple)),
        st.builds(Or, st.lists(child, min_size=1, max_size=3).map(tuple)),
    ),
    max_leaves=6,
)
SCALARS = st.one_of(
    st.integers(-(1 << 63), (1 << 63) - 1), st.floats(allow_nan=False), st.binary(max_size=20)
)
LITERALS = st.one_of(SCALARS, st.lists(SCALARS, max_size=4).map(tuple))
FRAGMENTS = st.builds(
    Fragment,
    source=st.text(max_size=12),
    position=st.integers(0, 1 << 62),
    table_uuid=st.uuids().map(str),
    predicate=TREES,
    literals=st.lists(LITERALS, max_size=3).map(tuple),
    moving=st.lists(st.none() | st.integers(-(1 << 62), 1 << 62), max_size=3).map(tuple),
    projection=st.lists(st.integers(1, 99), max_size=5).map(tuple),
    weight=st.floats(0, 1e9),
    event_ms=st.integers(0, 1 << 44),
    engine=st.sampled_from(["spark", "trino"]),
    recorded_bytes=st.none() | st.integers(0, 1 << 60),
    duration_ms=st.none() | st.integers(0, 1 << 40),
    full_scan=st.booleans(),
    unbound=st.none() | TREES,
    elsewhere=st.booleans(),
)


@given(FRAGMENTS)
@settings(max_examples=examples(150))
def test_a_stored_fragment_reads_back_equal(fragment: Fragment) -> None:
    stored = json.loads(json.dumps(row(fragment, 1)))
    assert fragment_from_row(stored) == fragment
    assert {name for name, _ in ROW_TYPES} == stored.keys() - {"shard", "imported_ms"}


def test_infinities_and_negative_zero_survive() -> None:
    values = (float("inf"), float("-inf"), -0.0, (1 << 63) - 1, b"", b"\x00\xff")
    fragment = Fragment(
        "s", 1, "u", Always(True), values, (None,) * 6, (), 1.0, 0, "spark"
    )  # fmt: skip
    back = fragment_from_row(row(fragment, 1))
    assert [repr(value) for value in back.literals] == [repr(value) for value in values]
    (members,) = members_from_json([members_to_json(values)])
    assert repr(members) == repr(values)


def test_a_foreign_row_is_refused(said: Said) -> None:
    with pytest.raises(ValueError) as refused:
        predicate_from_json('["xor", 1, 2]')
    said(refused.value)
