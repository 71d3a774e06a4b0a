"""Selections agree with asking every policy about every table, whatever changed in between."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from reconciler.api.documents import TableLayoutPolicy
from reconciler.api.table_patterns import literal_beginning, matches, selects
from reconciler.kube.kinds import POLICY
from reconciler.operator.index import Index
from reconciler.operator.policy.selection import Selections
from reconciler.operator.stored import StoredDocuments
from tests.examples import examples

TABLES = frozenset(
    (*levels, name)
    for levels in (("a",), ("a", "b"), ("ab",), ("x.y",))
    for name in ("t", "ta", "tab", "b")
)
PATTERNS = (
    "a.t", "a.*", "a.t*", "a.b.*", "a.**", "**.t", "**", "*.t", "ab.ta", "`x.y`.*", "a.*b", "a.**.t"
)  # fmt: skip

steps = st.lists(
    st.tuples(
        st.sampled_from(["p", "q", "r", "s"]),
        st.sampled_from(["c", "d"]),
        st.lists(st.sampled_from(PATTERNS), min_size=0, max_size=3, unique=True),
        st.lists(st.sampled_from(PATTERNS), max_size=1),
    ),
    min_size=1,
    max_size=8,
)


def body(
    name: str, catalog: str, include: list[str], exclude: list[str], version: int
) -> dict[str, Any]:
    return {
        "metadata": {
            "name": name,
            "namespace": "ns",
            "uid": name,
            "generation": version,
            "resourceVersion": str(version),
        },
        "spec": {
            "catalogRef": {"name": catalog},
            "tables": {"include": include, "exclude": exclude},
        },
    }


@given(steps)
@settings(max_examples=examples(120), deadline=None)
def test_tables_and_rivals_are_those_that_all_with_all_would_find(
    script: list[tuple[str, str, list[str], list[str]]],
) -> None:
    """An empty include stands for a policy that is deleted."""
    index, documents = Index(), StoredDocuments()
    found = Selections(index, documents)
    alive: dict[str, TableLayoutPolicy] = {}
    for version, (name, catalog, include, exclude) in enumerate(script, 1):
        stored = body(name, catalog, include, exclude, version)
        if include:
            index.put(POLICY, stored)
            read = documents.read(stored, TableLayoutPolicy)
            assert isinstance(read, TableLayoutPolicy), read
            alive[name] = read
        else:
            index.remove(POLICY, stored)
            alive.pop(name, None)
        for policy in alive.values():
            mine = [table for table in sorted(TABLES) if selects(policy.spec.tables, table)]
            assert found.tables(policy, TABLES) == mine
            for table in mine:
                others = {
                    other.name
                    for other in alive.values()
                    if other.name != policy.name
                    and other.spec.catalog.name == policy.spec.catalog.name
                    and selects(other.spec.tables, table)
                }
                assert {other.name for other in found.rivals(policy, table)} == others


@given(st.sampled_from(PATTERNS), st.sampled_from(sorted(TABLES)))
@settings(max_examples=examples(150), deadline=None)
def test_whatever_a_pattern_matches_begins_as_the_pattern_does(
    pattern: str, table: tuple[str, ...]
) -> None:
    beginning, whole = literal_beginning(pattern)
    name = "\x00".join(table)
    if matches(pattern, table):
        assert name.startswith(beginning)
    if whole:
        assert matches(pattern, table) == (name == beginning)
