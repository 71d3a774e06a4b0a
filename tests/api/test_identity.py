"""policyHash inputs: what voids a reviewed plan and what does not."""

from __future__ import annotations

from typing import Any

import pytest
import rfc8785
from hypothesis import given, settings
from hypothesis import strategies as st

from reconciler.api.builtin import builtin_policy
from reconciler.api.document_codec import from_document, to_document
from reconciler.api.documents import TableLayoutPolicy
from reconciler.api.identity import hash_inputs
from reconciler.api.schema import POLICY
from reconciler.api.support import not_acted_on
from reconciler.api.table_patterns import matches
from reconciler.api.version import API_VERSION
from tests.examples import examples


def policy(**spec: Any) -> TableLayoutPolicy:
    body = {"catalogRef": {"name": "w"}, "tables": {"include": ["a.b"]}, **spec}
    document = from_document(
        {"apiVersion": API_VERSION, "kind": POLICY, "metadata": {"name": "p"}, "spec": body}
    )
    assert isinstance(document, TableLayoutPolicy)
    return document


DEFAULTS: dict[str, Any] = {
    "objectives": {},
    "layout": {
        "partitioning": {"mode": "Keep"},
        "clustering": {"mode": "WorkloadAware", "curve": "Lexicographic", "applyToWrites": False},
        "files": {"targetSize": "Auto", "minInputFiles": 5, "quietPeriod": "900s"},
    },
    "recluster": {"aggressiveness": "Balanced"},
    "deletes": {"mode": "Auto"},
}


def test_defaults_written_out_hash_as_nothing() -> None:
    assert hash_inputs(policy()) == hash_inputs(policy(**DEFAULTS)) == {}


@pytest.mark.parametrize(
    "spec",
    [
        {"tables": {"include": ["a.b", "c.*"], "exclude": ["c.d"]}},
        {"interval": "1h"},
        {"suspend": True},
        {"safety": {"verify": "Counts"}},
        {"budgets": [{"name": "a", "per": "1h", "maxCpuTime": "1h"}]},
        {"approval": {"planTTL": "1h"}},
        {"engine": {"maxConcurrentJobs": 9}},
    ],
    ids=lambda spec: next(iter(spec)),
)
def test_what_does_not_determine_a_plan_is_not_hashed(spec: dict[str, Any]) -> None:
    assert hash_inputs(policy(**spec)) == {}


def test_quantities_are_whole_numbers_however_they_are_written() -> None:
    spec = {
        "objectives": {"maxScanAmplification": "1.50"},
        "layout": {"files": {"targetSize": "524288Ki", "quietPeriod": "1h"}},
    }
    other = {
        "objectives": {"maxScanAmplification": "1.5"},
        "layout": {"files": {"targetSize": 536870912, "quietPeriod": "60m"}},
    }
    expected = {
        "objectives": {"maxScanAmplification": 15000},
        "layout": {"files": {"targetSize": 536870912, "quietPeriod": 3600}},
    }
    assert hash_inputs(policy(**spec)) == hash_inputs(policy(**other)) == expected


def test_the_order_of_keys_counts() -> None:
    one = policy(layout={"clustering": {"mode": "Declared", "keys": ["a", "b"]}})
    two = policy(layout={"clustering": {"mode": "Declared", "keys": ["b", "a"]}})
    assert hash_inputs(one) != hash_inputs(two)


def test_an_identity_transform_is_a_default() -> None:
    fields = [{"column": "a"}, {"column": "b", "transform": "day"}]
    explicit = [{"column": "a", "transform": "identity"}, {"column": "b", "transform": "day"}]
    one = policy(layout={"partitioning": {"mode": "Declared", "fields": fields}})
    two = policy(layout={"partitioning": {"mode": "Declared", "fields": explicit}})
    assert hash_inputs(one) == hash_inputs(two)


sizes = st.one_of(
    st.just("Auto"), st.integers(1000, 2**50), st.integers(1, 9999).map(lambda n: f"{n}Mi")
)
specs = st.fixed_dictionaries(
    {},
    optional={
        "objectives": st.fixed_dictionaries(
            {},
            optional={
                "maxScanAmplification": st.integers(10, 99).map(lambda n: f"{n // 10}.{n % 10}"),
                "maxSmallFilePercent": st.integers(0, 100),
                "maxFileCount": st.integers(1, 10**9),
            },
        ),
        "layout": st.fixed_dictionaries(
            {},
            optional={
                "files": st.fixed_dictionaries(
                    {},
                    optional={
                        "targetSize": sizes,
                        "minInputFiles": st.integers(2, 100),
                        "quietPeriod": st.integers(1, 10**6).map(lambda n: f"{n}s"),
                    },
                ),
                "clustering": st.sampled_from(
                    [
                        {"mode": "None"},
                        {"mode": "Declared", "keys": ["é", "b"], "curve": "Hilbert"},
                    ]
                ),
            },
        ),
        "recluster": st.sampled_from([{}, {"aggressiveness": "Aggressive"}]),
        "deletes": st.sampled_from([{}, {"mode": "Keep"}, {"compaction": "Minor"}]),
        "suspend": st.booleans(),
        "budgets": st.lists(
            st.builds(
                lambda size, cpu: {"per": "24h", "maxRewriteBytes": size, "maxCpuTime": f"{cpu}s"},
                st.integers(0, 2**60),
                st.integers(10, 10**7),
            ),
            max_size=3,
        ).map(lambda items: [{"name": f"b{i}", **item} for i, item in enumerate(items)]),
    },
)


@settings(max_examples=examples(80), deadline=None)
@given(specs)
def test_documents_round_trip_and_hash_the_same_afterwards(spec: dict[str, Any]) -> None:
    document = policy(**spec)
    printed = to_document(document)
    again = from_document(printed)
    assert again == document
    assert to_document(again) == printed
    assert isinstance(again, TableLayoutPolicy)
    assert hash_inputs(again) == hash_inputs(document) == hash_inputs(printed["spec"])
    text = rfc8785.dumps(hash_inputs(document)).decode()
    assert "." not in text.replace("é", "") and "null" not in text
    assert not_acted_on(again) == not_acted_on(document)


def test_the_built_in_policy_is_all_defaults_for_that_table_only() -> None:
    built_in = builtin_policy(("my.db", "t*"), "some_catalog")
    assert hash_inputs(built_in) == {} and not_acted_on(built_in) == []
    assert built_in.spec.catalog.name == "some_catalog"
    (pattern,) = built_in.spec.tables.include
    assert matches(pattern, ("my.db", "t*")) and not matches(pattern, ("my.db", "tx"))
    assert str(built_in.origin) == "(built in)"


def test_housekeeping_that_is_asked_for_with_every_default_is_hashed() -> None:
    """An absent object means that nothing is done: it does not equal one of defaults only."""
    asked = hash_inputs(policy(maintenance={"expireSnapshots": {}}))
    assert asked == {"maintenance": {"expireSnapshots": {}}}
    written = {"expireSnapshots": {"olderThan": "5h", "retainLast": 20}}
    assert hash_inputs(policy(maintenance=written)) == {
        "maintenance": {"expireSnapshots": {"olderThan": 18_000}}
    }
    assert hash_inputs(policy(maintenance={})) == {}
