"""Names of objects: always valid, never the same for two things."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from reconciler.kube.names import job_name, table_layout_name

LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
SUBDOMAIN = re.compile(rf"{LABEL}(\.{LABEL})*")
levels = st.lists(st.text(min_size=1, max_size=60), min_size=1, max_size=5)


@given(st.text(max_size=30), levels)
def test_a_layout_name_is_a_subdomain_and_fits_a_label_value(catalog: str, path: list[str]) -> None:
    name = table_layout_name(catalog, path)
    assert SUBDOMAIN.fullmatch(name)
    assert len(name) <= 51


@given(st.text(max_size=10), levels, st.text(max_size=10), levels)
def test_two_tables_have_two_names(
    one: str, first: list[str], other: str, second: list[str]
) -> None:
    same = (one, first) == (other, second)
    assert (table_layout_name(one, first) == table_layout_name(other, second)) == same


def test_separators_inside_levels_do_not_collide() -> None:
    assert table_layout_name("w", ["a.b", "c"]) != table_layout_name("w", ["a", "b.c"])
    assert table_layout_name("w", ["A"]) != table_layout_name("w", ["a"])
    assert table_layout_name("w.a", ["b"]) != table_layout_name("w", ["a", "b"])


def test_the_slug_reads_like_the_table() -> None:
    assert table_layout_name("w", ["sales", "lineitem"]).startswith("sales.lineitem-")
    assert table_layout_name("w", ["Große Daten", "T 1"]).startswith("gro-e-daten.t-1-")
    assert table_layout_name("w", ["数据"]).startswith("table-")


def test_names_never_change() -> None:
    """The name is how a restarted operator finds its objects again."""
    name = table_layout_name("warehouse", ["sales", "lineitem"])
    assert name == "sales.lineitem-dtqjn5gvit"
    assert job_name(name, "p-3f9a1c0b77de4c21a0be", 1) == "tl-dtqjn5gvit-3f9a1c0b77de-1"


@given(st.text(max_size=30), levels, st.text("0123456789abcdef", min_size=20, max_size=20))
def test_a_job_name_fits_a_label(catalog: str, path: list[str], plan: str) -> None:
    name = job_name(table_layout_name(catalog, path), f"p-{plan}", 10**9)
    assert re.fullmatch(LABEL, name)
    assert len(name) <= 63
