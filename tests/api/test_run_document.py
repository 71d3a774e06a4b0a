"""The run document: reads back as it was written, and anything else is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.api.choices import EngineType
from reconciler.api.document_codec import from_document
from reconciler.api.documents import IcebergCatalog, TableLayoutPolicy
from reconciler.api.run_document import RunDocument, read_run
from reconciler.errors import UserError
from tests.said import Said


def document(kind: str, **spec: Any) -> Any:
    return from_document(
        {
            "apiVersion": "layout.lakehouse.dev/v1alpha1",
            "kind": kind,
            "metadata": {"name": "sales-facts", "namespace": "analytics"},
            "spec": spec,
        }
    )


def run_document(**changes: Any) -> RunDocument:
    catalog = document(
        "IcebergCatalog",
        type="rest",
        catalogName="warehouse",
        properties={"uri": "http://rest:8181"},
        secretRef={"name": "warehouse-credentials"},
        system={"plans": {"uri": "s3://lake/plans"}},
    )
    policy = document(
        "TableLayoutPolicy",
        catalogRef={"name": "warehouse"},
        tables={"include": ["sales.*"]},
        budgets=[{"name": "daily", "per": "24h", "maxRewriteBytes": "1Ti"}],
    )
    assert isinstance(catalog, IcebergCatalog) and isinstance(policy, TableLayoutPolicy)
    made = RunDocument(
        catalog=catalog,
        policy=policy,
        table=("sales", "line item"),
        plan_uri="s3://lake/plans/p.json",
        plan_digest="sha256:" + "a" * 64,
        plan_id="p-" + "0" * 20,
        attempt=1,
        action_ids=("a01", "a02"),
        bytes_limit=1 << 40,
        cpu_limit_seconds=None,
        policy_key="analytics/sales-facts",
        owner="analytics/sales-facts",
        engine=EngineType.SPARK,
    )
    return replace(made, **changes)


def test_what_was_written_is_read() -> None:
    made = run_document()
    assert read_run(made.text()) == made


@given(
    st.lists(st.text(min_size=1, max_size=20), min_size=1, max_size=4),
    st.none() | st.integers(0, 1 << 60),
    st.integers(0, 1000),
)
def test_every_table_name_and_limit_is_read(
    table: list[str], limit: int | None, attempt: int
) -> None:
    made = run_document(
        table=tuple(table), bytes_limit=limit, cpu_limit_seconds=limit, attempt=attempt
    )
    assert read_run(made.text()) == made


def edited(**changes: Any) -> str:
    return json.dumps({**json.loads(run_document().text()), **changes})


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("", "JSON"),
        ("[]", "JSON object"),
        (edited(version="run/v2"), "'run/v2'"),
        (edited(evenIfLost=True), "evenIfLost"),
        (json.dumps({"version": "run/v1"}), "actionIds"),
        (edited(attempt=True), "attempt"),
        (edited(bytesLimit=1.5), "bytesLimit"),
        (edited(bytesLimit=-1), "bytesLimit"),
        (edited(actionIds=[""]), "actionIds"),
        (edited(planDigest="sha256:abc"), "planDigest"),
        (edited(policy={"kind": "Secret"}), "TableLayoutPolicy"),
    ],
    ids=[
        "empty", "list", "version", "unknown", "missing", "attempt", "fraction", "negative",
        "action", "digest", "policy",
    ],
)  # fmt: skip
def test_anything_else_is_refused(text: str, named: str, said: Said) -> None:
    with pytest.raises(UserError) as raised:
        read_run(text)
    said(raised.value)
    assert named in raised.value.what


def test_an_unknown_field_of_a_nested_document_is_refused() -> None:
    body = json.loads(run_document().text())
    body["policy"]["spec"]["recluster"]["turbo"] = "yes"
    with pytest.raises(UserError, match="turbo"):
        read_run(json.dumps(body))


def test_a_credential_among_the_properties_is_refused() -> None:
    body = json.loads(run_document().text())
    body["catalog"]["spec"]["properties"]["token"] = "hunter2-planted"
    with pytest.raises(UserError) as raised:
        read_run(json.dumps(body))
    assert "hunter2-planted" not in raised.value.render()


def test_one_that_no_environment_takes_is_refused_when_it_is_written(said: Said) -> None:
    with pytest.raises(UserError) as refused:
        run_document(table=("x" * 200_000,)).text()
    said(refused.value)


@pytest.mark.parametrize("start", ["", '{"version":'])
def test_a_document_that_is_nested_too_deeply_is_refused(start: str, said: Said) -> None:
    with pytest.raises(UserError) as refused:
        read_run(start + "[" * 200_000)
    said(refused.value)
