"""Which of the plans that a policy's people approved are looked up for one table."""

from __future__ import annotations

import datetime as dt
from types import SimpleNamespace
from typing import Any

import pytest

from reconciler.operator.layout import look

NOW = dt.datetime(2026, 11, 20, tzinfo=dt.UTC)


def test_a_plan_of_the_table_is_found_among_many_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """A policy lists the approved plans of all its tables: the table's own directory tells which
    of them are its own, by one listing."""
    read: list[str] = []
    listed: list[str] = []

    def ids(uuid: str) -> frozenset[str]:
        listed.append(uuid)
        return frozenset({"p-39", "p-40", "q-1"})

    actor: Any = SimpleNamespace(
        published_ids=ids, published=lambda uuid, plan_id: read.append(plan_id)
    )
    proposal: Any = SimpleNamespace(
        observation=SimpleNamespace(uuid="u"), plan=SimpleNamespace(policy_hash="h")
    )
    monkeypatch.setattr(look, "head_of", lambda observation: None)
    approved = [f"p-{number}" for number in range(60)]
    assert look._approved_plan(actor, proposal, approved, NOW) == (None, None)
    assert read == ["p-39", "p-40"] and listed == ["u"]


@pytest.mark.parametrize("why", ["", "the policy disables it"])
def test_an_approved_plan_that_the_catalog_forbids_gives_way(
    monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    plan = SimpleNamespace(policy_hash="h")
    actor: Any = SimpleNamespace(
        published_ids=lambda uuid: frozenset({"p-1"}), published=lambda uuid, plan_id: plan
    )
    seen = SimpleNamespace(uuid="u", metadata=SimpleNamespace(bounds=None))
    proposal: Any = SimpleNamespace(observation=seen, plan=SimpleNamespace(policy_hash="h"))
    monkeypatch.setattr(look, "head_of", lambda observation: None)
    monkeypatch.setattr(look, "judge", lambda *_: SimpleNamespace(fallen=None))
    monkeypatch.setattr(look, "judged", lambda *_: ({}, ()))
    monkeypatch.setattr(look, "forbidden_by", lambda *_: why)
    monkeypatch.setattr(look, "_difference", lambda *_: "another")
    found, lost = look._approved_plan(actor, proposal, ["p-1"], NOW)
    assert found is (None if why else plan)
    assert (lost is not None) == bool(why)
