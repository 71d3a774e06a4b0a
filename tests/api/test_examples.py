"""The template of `layoutctl init` and the example policies are valid as they stand."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reconciler.api.checks import check
from reconciler.api.load import read
from reconciler.api.schema import POLICY
from reconciler.api.source import parse_yaml
from reconciler.api.table_patterns import matches
from reconciler.api.template import SCHEMA_FILE, policy_template
from tests.examples import examples

LAYOUTS = Path(__file__).parents[2] / "layouts"


def test_the_examples_are_valid_without_a_warning() -> None:
    reading = read([LAYOUTS])
    assert reading.problems == []
    assert len(reading.documents.policies) >= 2 and len(reading.documents.catalogs) == 1


def test_the_demo_policy_is_a_dozen_lines() -> None:
    assert len((LAYOUTS / "demo.yaml").read_text().splitlines()) <= 13


@pytest.mark.parametrize(
    ("table", "catalog"),
    [
        (("sales", "orders"), "warehouse"),
        (("Sales Data", "2024", "Order.Items"), "my_catalog"),
        (("売上", "明細"), "123"),
        ("sales.orders_*", "on"),
    ],
)
def test_the_template_is_valid_and_names_its_table(
    table: tuple[str, ...] | str, catalog: str
) -> None:
    text = policy_template(table, catalog)
    assert text.startswith(f"# yaml-language-server: $schema={SCHEMA_FILE}\n")
    (document,), error = parse_yaml(text, "t")
    assert error is None and check(document, POLICY) == []
    assert document.value["spec"]["catalogRef"]["name"] == catalog
    if isinstance(table, tuple):
        assert matches(document.value["spec"]["tables"]["include"][0], table)


@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(
        st.text(st.characters(categories=["L", "N", "P", "Zs"]), min_size=1, max_size=12),
        min_size=2,
        max_size=3,
    )
)
def test_the_template_takes_any_table_name(levels: list[str]) -> None:
    (document,), error = parse_yaml(policy_template(levels, "w"), "t")
    assert error is None and check(document, POLICY) == []
    assert matches(document.value["spec"]["tables"]["include"][0], tuple(levels))


def test_uncommented_hints_of_the_template_are_valid_too() -> None:
    lines = policy_template(("a", "b"), "w").splitlines()
    text = "\n".join(
        line.replace("  # ", "  ", 1) if "  # " in line[:4] else line for line in lines
    )
    (document,), error = parse_yaml(text, "t")
    assert error is None and check(document, POLICY) == []
    assert {"objectives", "budgets"} <= document.value["spec"].keys()
