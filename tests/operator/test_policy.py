"""Policies: which tables they get, what they make of them, and when they let go."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from reconciler.kube.errors import Invalid
from reconciler.kube.kinds import POLICY, TABLE_LAYOUT
from reconciler.operator.catalog.reconcile import MISSES, Listing, _missing
from reconciler.operator.index import trim
from reconciler.operator.policy.reconcile import Policies
from reconciler.operator.ports import Problem
from reconciler.operator.process.watch import triggers
from reconciler.operator.work import Key, Work
from tests.operator.worlds import GIB, NAMESPACE, Operator, World


def policies(world: World, operator: Operator, *tables: str, gone: bool = False) -> Policies:
    listed = frozenset(("sales", name) for name in tables)
    return Policies(
        operator.layouts.runtime,
        world,
        world.documents,
        lambda: world.now,
        lambda namespace, catalog: listed,
        lambda namespace, catalog, table: gone,
    )


def reconcile(world: World, operator: Operator, found: Policies, name: str = "facts") -> Any:
    world.relist(operator)
    return found.reconcile(Key(Work.POLICY, NAMESPACE, name))


def layouts(world: World) -> dict[str, str]:
    """Table -> policy."""
    return {
        body["spec"]["table"]["name"]: body["spec"]["policyRef"]["name"]
        for body in world.server.all(TABLE_LAYOUT)
    }


def condition(world: World, kind: str, policy: str = "facts") -> dict[str, Any]:
    stored = world.server.objects[(POLICY.plural, NAMESPACE, policy)]
    found = [c for c in stored["status"]["conditions"] if c["type"] == kind]
    return found[0] if found else {}


def test_each_matched_table_gets_one_layout_and_a_second_round_changes_nothing() -> None:
    world = World()
    operator = world.operator()
    names = [f"t{n:03d}" for n in range(500)]
    found = policies(world, operator, *names)
    reconcile(world, operator, found)
    assert len(layouts(world)) == 500
    reconcile(world, operator, found)
    before = sum(operator.api.counted.values())
    reconcile(world, operator, found)
    assert sum(operator.api.counted.values()) == before


def test_the_status_says_unknown_until_tables_are_known_then_their_sum() -> None:
    world = World()
    world.table("a")
    world.table("b", GIB)
    operator = world.operator()
    found = policies(world, operator, "a", "b")
    reconcile(world, operator, found)
    assert condition(world, "Converged")["status"] == "Unknown"
    world.turn(operator, 2)
    reconcile(world, operator, found)
    assert condition(world, "Ready")["status"] == "True"
    assert condition(world, "Converged")["reason"] == "RewriteRunning"
    stored = world.server.objects[(POLICY.plural, NAMESPACE, "facts")]["status"]
    assert stored["summary"]["tables"] == "1/2"


def test_an_exact_name_beats_a_pattern_but_takes_nothing_that_is_held() -> None:
    world = World()
    operator = world.operator()
    found = policies(world, operator, "a", "b")
    reconcile(world, operator, found)
    world.policy("exact", tables={"include": ["sales.b", "sales.c"]})
    wider = policies(world, operator, "a", "b", "c")
    reconcile(world, operator, wider)
    reconcile(world, operator, wider, "exact")
    assert layouts(world) == {"a": "facts", "b": "facts", "c": "exact"}
    stored = world.server.objects[(POLICY.plural, NAMESPACE, "exact")]["status"]
    assert stored["tables"]["conflicting"] == 1


def test_a_table_that_is_no_longer_selected_is_released_and_another_policy_takes_it() -> None:
    world = World()
    operator = world.operator()
    found = policies(world, operator, "a", "b")
    reconcile(world, operator, found)
    world.policy("other", tables={"include": ["sales.b"]})
    world.policy(tables={"include": ["sales.*"], "exclude": ["sales.b"]})
    reconcile(world, operator, found, "other")
    assert layouts(world)["b"] == "facts"
    reconcile(world, operator, found)
    reconcile(world, operator, found, "other")
    assert layouts(world) == {"a": "facts", "b": "other"}


def test_a_claim_does_not_move_while_a_job_lives() -> None:
    world = World()
    name = world.table("b", GIB)
    operator = world.operator()
    found = policies(world, operator, "b")
    reconcile(world, operator, found)
    job = world.started(operator, 2)
    world.policy("other", tables={"include": ["sales.b"]})
    world.policy(tables={"include": ["sales.none"]})
    for _ in range(3):
        reconcile(world, operator, found)
        reconcile(world, operator, found, "other")
        world.turn(operator)
    assert world.layout(name)["spec"]["policyRef"]["name"] == "facts"
    world.end(job)
    world.turn(operator, 2)
    reconcile(world, operator, found, "other")
    assert layouts(world) == {"b": "other"}


def test_a_catalog_that_is_lost_during_a_reconcile_does_not_end_it() -> None:
    world = World(budgets=[{"name": "daily", "per": "24h", "maxRewriteBytes": "3Gi"}])
    world.table("a", GIB)
    operator = world.operator()
    found, handles = policies(world, operator, "a"), iter([world.catalog])
    lost = Problem("CatalogUnavailable", "it does not answer", False)
    found.catalogs = SimpleNamespace(handle=lambda namespace, name: next(handles, lost))
    reconcile(world, operator, found)
    assert condition(world, "Ready")["status"] == "True"


def test_who_waits_for_a_table_is_called_when_its_policy_lets_it_go() -> None:
    world = World()
    operator = world.operator()
    found = policies(world, operator, "a", "b")
    reconcile(world, operator, found)
    world.policy("other", tables={"include": ["sales.b"]})
    reconcile(world, operator, found, "other")
    waiting = Key(Work.POLICY, NAMESPACE, "other")
    operator.asked.clear()
    reconcile(world, operator, found)
    assert waiting not in operator.asked
    world.policy(tables={"include": ["sales.a"]})
    reconcile(world, operator, found)  # lets it go, and is called again when it is gone
    reconcile(world, operator, found)
    assert operator.asked.count(waiting) == 1
    reconcile(world, operator, found, "other")
    assert layouts(world) == {"a": "facts", "b": "other"}


def test_a_layout_that_its_deleted_policy_left_behind_goes_to_the_next_one() -> None:
    world = World()
    operator = world.operator()
    found = policies(world, operator, "a")
    reconcile(world, operator, found)
    world.policy("other", tables={"include": ["sales.*"]})
    reconcile(world, operator, found, "other")
    world.server.remove(POLICY, NAMESPACE, "facts")  # --cascade=orphan
    operator.asked.clear()
    reconcile(world, operator, found)
    assert Key(Work.POLICY, NAMESPACE, "other") in operator.asked
    reconcile(world, operator, found, "other")
    assert layouts(world) == {"a": "other"}
    (layout,) = world.server.all(TABLE_LAYOUT)
    (owner,) = layout["metadata"]["ownerReferences"]
    assert owner["name"] == "other"


def test_a_policy_that_moves_to_another_catalog_lets_go_of_tables_of_the_same_names() -> None:
    world = World()
    operator = world.operator()
    found = policies(world, operator, "a")
    reconcile(world, operator, found)
    world.policy(catalogRef={"name": "lakehouse"})
    for _ in range(2):
        reconcile(world, operator, found)
    (layout,) = world.server.all(TABLE_LAYOUT)
    assert layout["spec"]["catalogRef"]["name"] == "lakehouse"


def test_a_missing_table_is_retired_only_when_it_is_gone_for_certain() -> None:
    world = World()
    operator = world.operator()
    reconcile(world, operator, policies(world, operator, "a", "b"))
    reconcile(world, operator, policies(world, operator, "a"))
    assert set(layouts(world)) == {"a", "b"}
    reconcile(world, operator, policies(world, operator, "a", gone=True))
    assert set(layouts(world)) == {"a"}


def test_misses_count_whole_listings_and_end_with_a_sighting() -> None:
    table, other = ("sales", "a"), ("sales", "b")
    known = Listing(frozenset({table, other}))
    for number in range(1, MISSES + 1):
        known = Listing(frozenset({other}), _missing(known, {other}, ()))
        assert known.missing == {table: number}
    assert _missing(known, {table, other}, ()) == {}


def test_a_table_that_went_while_no_operator_looked_is_missed_too() -> None:
    table, other = ("sales", "a"), ("sales", "b")
    first = Listing(frozenset({other}), _missing(None, {other}, [table, other]))
    assert first.missing == {table: 1}
    listing = first
    for _ in range(3 * MISSES):
        listing = Listing(frozenset({other}), _missing(listing, {other}, [table, other]))
    assert listing.missing[table] > 3 * MISSES  # as long as its TableLayout is there


def test_a_value_of_a_newer_version_is_a_condition() -> None:
    world = World()
    world.policy(layout={"clustering": {"mode": "OfTomorrow"}})
    operator = world.operator()
    reconcile(world, operator, policies(world, operator, "a"))
    assert condition(world, "Stalled")["reason"] == "UnknownValue"
    assert condition(world, "Ready")["status"] == "False"
    assert not layouts(world)


def test_a_schedule_that_no_rule_of_the_server_judges_is_a_condition() -> None:
    world = World()
    budget = {"name": "x", "schedule": "99 99 * * *", "duration": "1h", "maxRewriteBytes": "0"}
    world.policy(budgets=[budget])
    operator = world.operator()
    reconcile(world, operator, policies(world, operator, "a"))
    assert condition(world, "Stalled")["reason"] == "InvalidSpec"


def test_what_people_wrote_into_a_layout_stays() -> None:
    world = World()
    operator = world.operator()
    found = policies(world, operator, "a")
    reconcile(world, operator, found)
    body = world.server.all(TABLE_LAYOUT)[0]
    body["spec"]["approvedPlan"] = "p-" + "0" * 20
    world.server.put(TABLE_LAYOUT, body)
    world.policy(objectives={"maxFileCount": 5})
    reconcile(world, operator, found)
    after = world.server.all(TABLE_LAYOUT)[0]["spec"]
    assert after["approvedPlan"] == "p-" + "0" * 20
    assert after["layoutHash"] != body["spec"]["layoutHash"]


def test_a_table_that_the_server_refuses_does_not_hold_up_the_others() -> None:
    world = World()
    operator = world.operator()
    api = operator.api

    def before(verb: str, kind: Any, name: str) -> None:
        if verb == "apply" and name.startswith("sales.b-"):
            raise Invalid(f"TableLayout {name}: not valid")

    api.before = before
    found = policies(world, operator, "a", "b", "c")
    assert not reconcile(world, operator, found).failed
    assert set(layouts(world)) == {"a", "c"}
    assert [reason for reason, _ in api.events] == ["TableRefused"]
    assert condition(world, "Converged")["status"] == "Unknown"


FOREIGN_SPECS = [
    {"policyRef": {"name": "other", "generation": 1}},
    {"policyRef": {"name": "nobody", "generation": 1}},
    {"layoutHash": "sha256:" + "1" * 64},
]


@pytest.mark.parametrize("edit", FOREIGN_SPECS)
@pytest.mark.parametrize("selected", ["sales.a", "sales.b"])
def test_a_layout_whose_spec_was_edited_stays_with_its_policy_and_is_restored(
    edit: dict[str, Any], selected: str
) -> None:
    """Whether or not the policy that the edit names selects the table as well."""
    world = World()
    name = world.table("a", GIB)
    operator = world.operator()
    found = policies(world, operator, "a", "b")
    world.policy("other", tables={"include": [selected]})
    reconcile(world, operator, found)
    job = world.started(operator, 2)
    before = world.layout(name)
    edited = {**before, "spec": {**before["spec"], **edit}}
    world.server.put(TABLE_LAYOUT, edited)
    for _ in range(2):
        reconcile(world, operator, found, "other")
        world.turn(operator)
    assert world.living() == [job]  # nothing was stopped, deleted, or started under another policy
    reconcile(world, operator, found)
    after = world.layout(name)
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert after["spec"] == before["spec"]
    assert not after["metadata"].get("deletionTimestamp")


def test_an_edit_of_what_a_policy_writes_calls_that_policy() -> None:
    world = World()
    name = world.table("a")
    operator = world.operator()
    reconcile(world, operator, policies(world, operator, "a"))
    before = trim(TABLE_LAYOUT, world.layout(name))
    for edit in FOREIGN_SPECS:
        now = {**before, "spec": {**before["spec"], **edit}}
        called = {key for key, _ in triggers(TABLE_LAYOUT, before, now, operator.index)}
        assert Key(Work.POLICY, NAMESPACE, "facts") in called
