from __future__ import annotations

import re
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reconciler.api import table_patterns
from reconciler.api.document_codec import from_document
from reconciler.api.documents import TableLayoutPolicy, TableSelector
from reconciler.api.schema import POLICY
from reconciler.api.table_patterns import (
    choose_policy,
    covers,
    is_exact,
    matches,
    policies_for,
    quote_identifier,
    same_tables,
    selects,
    split_identifier,
)
from reconciler.api.version import API_VERSION
from reconciler.errors import UserError
from tests.examples import examples
from tests.said import Said


@pytest.mark.parametrize(
    ("pattern", "table", "expected"),
    [
        ("sales.lineitem", "sales.lineitem", True),
        ("sales.lineitem", "sales.LineItem", False),
        ("sales.orders_*", "sales.orders_eu", True),
        ("sales.orders_*", "sales.orders_", True),
        ("sales.*", "sales.a.b", False),
        ("*", "sales.a", False),
        ("*.*", "sales.a", True),
        ("sales.**", "sales.a", True),
        ("sales.**", "sales.a.b", True),
        ("sales.**", "sales2.a", False),
        ("**", "sales.a.b", True),
        ("**.orders", "sales.eu.orders", True),
        ("**.orders", "sales.preorders", False),
        ("sales.**.orders", "sales.orders", True),
        ("sales.**.orders", "sales.a.b.orders", True),
        ("sales.**.orders", "sales.aorders", False),
        ("sales.o**", "sales.orders.x", True),
        ("**.**.x", "x", True),
        ("*_tmp", "a_tmp", True),
        ("a*b*c", "abbc", True),
        ("a*b*c", "acb", False),
        ("sales.?", "sales.x", False),
        ("sales.a+", "sales.aa", False),
    ],
)
def test_patterns(pattern: str, table: str, expected: bool) -> None:
    assert matches(pattern, tuple(table.split("."))) is expected


def test_backticks_quote_dots_blanks_and_stars() -> None:
    assert matches("`my.db`.`Order Items`", ("my.db", "Order Items"))
    assert not matches("`my.db`.x", ("my", "db", "x"))
    assert matches("a.`*`", ("a", "*"))
    assert not matches("a.`*`", ("a", "b"))
    assert matches("a.`t``k`", ("a", "t`k"))
    assert is_exact("a.`*`") and not is_exact("a.*")


@pytest.mark.parametrize("text", ["", ".", "a.", ".a", "a..b", "a b", "`a", "a`b`", "``"])
def test_malformed_names_are_refused(text: str) -> None:
    with pytest.raises(ValueError):
        split_identifier(text)
    with pytest.raises(ValueError):
        matches(text, ("a",))


levels = st.lists(
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), min_size=1),
    min_size=1,
    max_size=4,
).map(tuple)


@given(levels)
def test_a_quoted_identifier_matches_that_table_only(table: tuple[str, ...]) -> None:
    pattern = quote_identifier(table)
    assert split_identifier(pattern) == table
    assert is_exact(pattern)
    assert matches(pattern, table)
    assert not matches(pattern, (*table, "x"))


@given(
    st.lists(st.text("ab*", min_size=1, max_size=4), min_size=1, max_size=4),
    st.lists(st.text("ab", min_size=1, max_size=3), min_size=1, max_size=4),
)
def test_matching_agrees_with_regular_expressions(pattern: list[str], table: list[str]) -> None:
    parts = []
    for number, level in enumerate(pattern):
        last = number == len(pattern) - 1
        if level == "**" and not last:
            parts.append(r"(.*\.)?")
            continue
        parts.append(re.sub(r"\*\*|\*", lambda m: ".*" if m[0] == "**" else "[^.]*", level))
        parts.append("" if last else r"\.")
    # A whole-level ** may also take an empty text, as in the product: "a.**.b" is not "a..b".
    expected = re.fullmatch("".join(parts), ".".join(table)) is not None
    assert matches(".".join(pattern), tuple(table)) is expected


def test_many_stars_take_no_exponential_time() -> None:
    assert not matches("a." + "a*" * 200 + "b", ("a", "a" * 250))


def policy(
    name: str, include: list[str], created: str = "", catalog: str = "w"
) -> TableLayoutPolicy:
    metadata = {"name": name, **({"creationTimestamp": created} if created else {})}
    spec = {"catalogRef": {"name": catalog}, "tables": {"include": include, "exclude": ["s.x*"]}}
    document = from_document(
        {"apiVersion": API_VERSION, "kind": POLICY, "metadata": metadata, "spec": spec}
    )
    assert isinstance(document, TableLayoutPolicy)
    return document


def names(*policies: TableLayoutPolicy, table: tuple[str, ...] = ("s", "t")) -> list[str]:
    return [item.name for item in policies_for(table, "w", policies)]


def test_an_exact_name_beats_a_pattern_even_of_an_older_policy() -> None:
    assert names(policy("a", ["s.*"], "2020-01-01T00:00:00Z"), policy("b", ["s.t"])) == ["b", "a"]


def test_the_older_policy_beats_the_younger_and_a_stored_one_beats_a_file() -> None:
    old, new = (
        policy("z", ["s.*"], "2020-01-01T00:00:00Z"),
        policy("a", ["**"], "2021-01-01T00:00:00Z"),
    )
    assert names(policy("0", ["*.*"]), new, old) == ["z", "a", "0"]


def test_equal_policies_are_taken_by_name() -> None:
    assert names(policy("b", ["s.*"]), policy("a", ["s.*"])) == ["a", "b"]


def test_exclusion_and_the_catalog_hold() -> None:
    assert names(policy("a", ["s.*"]), table=("s", "xy")) == []
    assert names(policy("a", ["s.*"], catalog="other")) == []


def test_two_files_that_name_one_table_are_an_error_and_patterns_are_not(said: Said) -> None:
    both = [policy("a", ["s.t"]), policy("b", ["s.t"])]
    with pytest.raises(UserError) as raised:
        choose_policy(("s", "t"), "w", both)
    said(raised.value)
    assert len(raised.value.details) == 2
    chosen = choose_policy(("s", "t"), "w", [policy("a", ["s.*"]), policy("b", ["s.t"])])
    assert chosen is not None and chosen.name == "b"
    assert choose_policy(("x", "t"), "w", both) is None


@pytest.mark.parametrize(
    ("pattern", "other", "all_of_it"),
    [
        ("s.*", "s.a*", True),
        ("**", "s.**", True),
        ("*.*", "s.*", True),
        ("s.**", "s.*", True),
        ("s.*", "s.**", False),
        ("s.a*", "s.*", False),
        ("s.t", "s.*", False),
        ("s.*.**.t", "s.**.t", False),
        ("s.*", "s.t", True),
        ("`s`.*", "s.*", True),
    ],
)
def test_one_pattern_covers_another_only_where_it_matches_all_that_it_does(
    pattern: str, other: str, all_of_it: bool
) -> None:
    assert covers(pattern, other) is all_of_it


def test_quoting_makes_no_other_pattern_but_a_quoted_star_does() -> None:
    assert same_tables("`s`.*") == same_tables("s.*")
    assert same_tables("s.`*`") != same_tables("s.*")


few_patterns = st.lists(
    st.sampled_from(["a", "b", "*", "**", "a*", "*b", "a**"]), min_size=1, max_size=4
).map(".".join)


@given(few_patterns, few_patterns, st.lists(st.sampled_from(["a", "b", "ab"]), min_size=1))
def test_a_covering_pattern_matches_whatever_the_other_does(
    pattern: str, other: str, table: list[str]
) -> None:
    if covers(pattern, other) and matches(other, tuple(table)):
        assert matches(pattern, tuple(table))


def steps(work: Callable[[], object]) -> int:
    """Return how many lines of the module a call runs."""
    count = 0

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal count
        if frame.f_code.co_filename != table_patterns.__file__:
            return None
        count += event == "line"
        return trace

    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(None)
    return count


MOST = 512
"""The length to which the schema limits a pattern."""

odd_patterns = st.tuples(
    st.lists(st.sampled_from(["*", "**", "a", "b", ".", "`*`", "***"]), min_size=1, max_size=5),
    st.integers(1, MOST),
    st.sampled_from(["", "b", ".b", ".*", ".**", ".**.a"]),
).map(
    lambda drawn: (
        re.sub(r"\.+", ".", "".join(drawn[0]) * drawn[1])[: MOST - 6].strip(".") + drawn[2]
    )
)


@given(odd_patterns, st.lists(st.sampled_from(["a" * 40, "ab" * 40, "b"]), min_size=1, max_size=40))
@settings(max_examples=examples(60))
def test_any_pattern_is_matched_in_steps_linear_in_pattern_and_name(
    pattern: str, table: list[str]
) -> None:
    try:
        split_identifier(pattern)
    except ValueError:
        return
    policy_of = TableSelector(include=("**",), exclude=(pattern,))
    length = len(pattern) + sum(map(len, table)) + len(table)
    table_patterns._compile.cache_clear()
    assert steps(lambda: matches(pattern, tuple(table))) <= 40 * length
    table_patterns._compile.cache_clear()
    assert steps(lambda: selects(policy_of, tuple(table))) <= 80 * length
    table_patterns._compile.cache_clear()
    assert steps(lambda: covers(pattern, pattern)) <= 200 * len(pattern) + 2000


def test_a_policy_of_many_patterns_of_many_stars_is_checked_in_few_steps() -> None:
    """64 patterns of 30 stars, each against 64 others: what `validate` does with a policy."""
    stars = "*".join("abcdefghij" * 3)
    included = [f"s.{stars}{number}" for number in range(64)]
    excluded = [f"s.*{stars}*{number}" for number in range(64)]
    covered: set[tuple[int, int]] = set()

    def compare() -> None:
        for number, pattern in enumerate(included):
            for other, exclude in enumerate(excluded):
                if covers(exclude, pattern):
                    covered.add((number, other))

    assert steps(compare) < 64 * 64 * 6_000
    assert covered == {
        (number, other)
        for number in range(64)
        for other in range(64)
        if str(number).endswith(str(other))
    }


def test_three_stars_are_two() -> None:
    assert same_tables("a.x***y") == same_tables("a.x**y")
    assert matches("a.x***y", ("a", "x", "y")) and matches("a.***", ("a", "b", "c"))
