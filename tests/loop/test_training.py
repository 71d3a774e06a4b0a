"""Trees by Woodblock are searched once and kept by their inputs; a plan that cannot have them says
so, and has the tree of `method: Auto`."""

import sys
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from bench.sessions import People, flights
from bench.sessions import settings_of as session_settings
from reconciler.advisor.advice import QD_TREE, AdviceInput, Settings, TreeSettings
from reconciler.advisor.decide import decide
from reconciler.advisor.qdtree.codes import codes_of
from reconciler.advisor.qdtree.greedy import root_of
from reconciler.advisor.qdtree.woodblock import ROUND, Training, trained
from reconciler.loop import training as searches
from reconciler.loop.advised import advise
from reconciler.loop.training import MOST_KEPT, Trees, _read, trained_trees, trees_key
from reconciler.plan import reasons
from reconciler.queries.fragments import workload_of_fragments
from reconciler.queries.open_price import OpenPrice
from reconciler.state.state import StateStore
from reconciler.table.filetable import Int64
from tests.advisor.qdtree.test_woodblock import problem, training
from tests.advisor.qdtree.worlds import random_world

pytestmark = pytest.mark.usefixtures("small_networks")


@pytest.fixture
def store(tmp_path):
    return StateStore(tmp_path / "state")


def test_a_tree_is_searched_once_for_the_same_inputs(store, tmp_path, monkeypatch, extra):
    given = training(random_world(3, rows=600), 5)
    found = trained_trees(store, tmp_path / "cache", "t", [given])
    assert found == Trees({given.name: codes_of(trained(given))})
    calls: list[Training] = []
    monkeypatch.setattr(searches, "trained", lambda one, *rest: calls.append(one) or one.start)
    again = trained_trees(StateStore(tmp_path / "state"), tmp_path / "other", "t", [given])
    assert again == found and calls == []
    trained_trees(store, tmp_path, "t", [replace(given, seed=1)])
    trained_trees(store, tmp_path, "u", [given])  # another table
    assert [one.seed for one in calls] == [1, 0]


def test_a_lost_or_unreadable_note_only_costs_time(store, tmp_path, extra):
    given = training(random_world(3, rows=600), 5)
    found = trained_trees(store, tmp_path, "t", [given])
    for note in (None, "?", [["name"]], [[given.name, ["x"]]], {"a": 1}):
        store.set_note(trees_key("t"), note)
        assert trained_trees(store, tmp_path, "t", [given]) == found


def test_only_the_last_trees_of_a_table_are_kept(store, tmp_path, monkeypatch):
    monkeypatch.setattr(searches, "trained", lambda one, *rest: one.start)
    every = [replace(training(random_world(3), 1), seed=seed) for seed in range(MOST_KEPT + 3)]
    trained_trees(store, tmp_path, "t", every)
    assert [name for name, _ in store.note(trees_key("t"))] == [one.name for one in every[3:]]


def test_what_is_kept_holds_no_value_of_the_table(store, tmp_path, monkeypatch):
    monkeypatch.setattr(searches, "trained", lambda one, *rest: one.start)
    given = training(random_world(3), 1)
    trained_trees(store, tmp_path, "t", [given])
    [[_, codes]] = store.note(trees_key("t"))
    assert all(-1 <= code < len(given.problem.first) for code in codes)


def test_an_interrupted_search_goes_on_from_its_file(store, tmp_path, monkeypatch, extra):
    monkeypatch.setattr(searches, "KEPT_ROUNDS", 1)
    given = training(random_world(4, rows=600), 2 * ROUND)
    whole = codes_of(trained(given))

    class Killed(Exception):
        pass

    rounds: list[int] = []
    packed = searches._packed

    def dies(progress):
        if rounds:
            raise Killed
        rounds.append(progress.rounds)
        return packed(progress)

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(searches, "_packed", dies)
        trained_trees(store, tmp_path, "t", [given])
    kept = _read(tmp_path / "woodblock-t.npz")
    assert kept is not None and kept.rounds == 1 and kept.name == given.lasting
    seen: list[object] = []
    monkeypatch.setattr(
        searches,
        "trained",
        lambda one, start, keep: seen.append(start) or trained(one, start, keep),
    )
    assert trained_trees(store, tmp_path, "t", [given]).codes == {given.name: whole}
    assert getattr(seen[0], "rounds", 0) == 1
    for damaged in (b"", b"PK\x03\x04", (tmp_path / "woodblock-t.npz").read_bytes()[:-200]):
        (tmp_path / "woodblock-t.npz").write_bytes(damaged)
        assert _read(tmp_path / "woodblock-t.npz") is None


def test_without_the_extra_the_package_is_named(store, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "optax", None)
    monkeypatch.setitem(sys.modules, "jax", None)
    given = training(random_world(3), ROUND)
    assert trained_trees(store, tmp_path, "t", [given]) == Trees({}, "jax")
    assert store.note(trees_key("t")) is None


@pytest.fixture(scope="module")
def people():
    """A table of flights, and what people asked of it."""
    random = np.random.default_rng(1)
    table = flights(random, 200)
    asking = People(
        np.full(6, 1 / 6), {field: np.sort(column) for field, column in table.values.items()}
    )
    return table, workload_of_fragments(asking.sessions(random, 0, 1))


def settings_of(table, episodes: int) -> Settings:
    return replace(
        session_settings(table), mode=QD_TREE, open_bytes=1,
        trees=TreeSettings(steps=5, least_rows=1_000, episodes=episodes),
    )  # fmt: skip


def given_of(people, episodes: int) -> AdviceInput:
    table, work = people
    sample = table.sample(np.arange(len(table.files)), 64)
    return AdviceInput(
        table.file_table(), work, settings_of(table, episodes), table.row_groups(), sample
    )


def names(advice) -> list[str]:
    return [item.action.ordering.tree.name for item in advice.actions]


def test_a_decision_asks_for_trees_of_what_it_chose_and_takes_only_better_ones(people):
    auto = decide(given_of(people, 0))
    assert auto.wanted_trees == ()
    given = given_of(people, ROUND)
    first = decide(given)
    assert names(first) == names(auto) and len(first.wanted_trees) == len(first.actions) > 0
    asked = first.wanted_trees[0]
    worse = {asked.name: codes_of(root_of(asked.problem))}
    other = decide(replace(given, trained=worse))
    assert names(other) == names(auto) and other.wanted_trees == first.wanted_trees[1:]


class Ports:
    """What `advise` asks for of a table in memory; counts searches."""

    def __init__(self, table, missing: str = "") -> None:
        self.table, self.missing, self.searched = table, missing, 0

    def footers(self, target, observation, files: Int64):
        return self.table.row_groups()

    def sketch(self, target, observation, files: Int64, columns):
        return self.table.sample(np.arange(len(self.table.files)), 64)

    def open_price(self, table_uuid):
        return OpenPrice(1_000)

    def refusals(self, target, observation):
        return {}

    def trained(self, table_uuid, wanted):
        self.searched += len(wanted)
        if self.missing:
            return Trees({}, self.missing)
        return Trees({one.name: codes_of(trained(one)) for one in wanted})


def planned(people, ports: Ports, episodes: int):
    table, work = people
    given = given_of(people, episodes)
    observation = SimpleNamespace(
        files=given.table, delete_files=given.deletes, operations=given.operations, uuid="t",
        published=None, published_deletes=None, manifest_table=given.manifests, doubled_vectors=(),
    )  # fmt: skip
    return advise(SimpleNamespace(), observation, work, settings_of(table, episodes), ports)[0]


def test_a_plan_without_the_extra_has_autos_tree_and_names_the_command(people, monkeypatch):
    monkeypatch.setattr("reconciler.loop.advised.files_read", lambda seen, actions: [])
    auto = planned(people, Ports(people[0]), 0)
    without = Ports(people[0], "jax")
    found = planned(people, without, 5)
    assert names(found) == names(auto) and without.searched > 0
    [turned] = [one for one in found.rejected if one.reason == reasons.NOT_INSTALLED]
    assert turned.why == reasons.without_woodblock("jax")
    assert not [one for one in auto.rejected if one.reason == reasons.NOT_INSTALLED]


def test_a_plan_has_the_trees_that_were_found(people, monkeypatch, extra):
    monkeypatch.setattr("reconciler.loop.advised.files_read", lambda seen, actions: [])
    ports = Ports(people[0])
    found = planned(people, ports, 5)
    assert ports.searched >= len(found.actions) > 0 and found.wanted_trees == ()
    assert not [one for one in found.rejected if one.reason == reasons.NOT_INSTALLED]


def test_a_search_does_not_change_the_tree_to_start_from(extra):
    world = random_world(3, rows=600)
    made = problem(*world)
    given = Training(made, 20.0, root_of(made), 5)
    assert len(list(trained(given).leaves())) > 1
    assert codes_of(given.start) == (-1,)
