"""Plan identity, freezing and validity."""

import base64
import contextlib
import datetime as dt
import json
import zlib
from dataclasses import replace

import numpy as np
import pytest
import rfc8785
from hypothesis import given, settings
from hypothesis import strategies as st

from reconciler.errors import InternalError, UserError
from reconciler.plan.actions import action_from_canonical
from reconciler.plan.actions.base import Action
from reconciler.plan.actions.migrate import Migrate
from reconciler.plan.actions.rewrite import BinPack, Cluster, Recluster
from reconciler.plan.actions.set_properties import SetProperties
from reconciler.plan.actions.set_sort_order import SetSortOrder
from reconciler.plan.ordering import Lexicographic, by_tree, ordering_of
from reconciler.plan.plan import (
    Basis,
    canonical_json,
    freeze,
    plan_from_document,
    plan_id,
    stored_form,
)
from reconciler.plan.prediction import Prediction
from reconciler.table.cut_tree import PREFIX, VERSION, Cut, NotATree, Tree, made, tree_of
from reconciler.table.filetable import FileTable
from reconciler.table.schema import PartitionSpec, Schema, SortColumn

NOW = dt.datetime(2026, 11, 20, 12, 0, 0, 123, tzinfo=dt.UTC)


def table(paths, deletes=0) -> FileTable:
    n = len(paths)
    ints = lambda value: np.full(n, value, dtype=np.int64)  # noqa: E731
    bools = np.zeros(n, dtype=bool)
    return FileTable(
        schema=Schema(0, ()), specs={0: PartitionSpec(0)}, default_spec_id=0,
        path=np.array(paths, dtype=object), spec_id=np.zeros(n, np.int32),
        partition=np.zeros(n, np.int32), partitions=((0, ()),), records=ints(10), bytes=ints(100),
        sequence=ints(1), added_ms=ints(0), layout_written=bools, sort_order_id=ints(0),
        parquet=~bools, encrypted=bools, position_deleted=ints(deletes), delete_files=ints(deletes),
        delete_bytes=ints(0), equality_deletes=ints(0), newest_delete=ints(-1),
    )  # fmt: skip


def cluster(inputs) -> Action:
    return Cluster(ordering=Lexicographic((SortColumn(3),)), inputs=tuple(inputs))


def make(actions, files):
    return freeze(
        Basis("rec", ("db", "t"), "u", "h", "built-in", 7),
        created=NOW, time_to_live=dt.timedelta(days=7),
        actions=[(a, Prediction(bytes_in=100)) for a in actions], files=files,
        evidence={"queries": 3},
    )  # fmt: skip


scalars = st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1), st.floats(), st.binary(max_size=5))
keys = st.lists(
    st.builds(SortColumn, st.integers(1, 9), st.sampled_from(["asc", "desc"])), max_size=2
).map(tuple)
rewrites = st.builds(
    lambda kind, **fields: kind(**fields),
    st.sampled_from([BinPack, Cluster, Recluster]),
    spec_id=st.integers(0, 3),
    partition=st.lists(scalars, max_size=2).map(tuple),
    ordering=st.builds(ordering_of, st.sampled_from(["Lexicographic", "Hilbert"]), keys),
    target_bytes=st.integers(0, 2**40),
    inputs=st.sets(st.text(min_size=1, max_size=8)).map(lambda s: tuple(sorted(s))),
)
changes = st.dictionaries(st.text(max_size=5), st.tuples(st.none() | st.text(), st.text())).map(
    lambda found: SetProperties(
        old=tuple(sorted((name, old) for name, (old, _) in found.items())),
        new=tuple(sorted((name, new) for name, (_, new) in found.items())),
    )
)
orders = st.builds(SetSortOrder, key=keys, old=st.lists(st.text()).map(tuple))
actions = rewrites | changes | orders


@pytest.mark.parametrize("kind", [Recluster, Migrate])
def test_a_column_of_block_ids_survives_the_canonical_form(kind):
    action = kind(inputs=("a",), target_bytes=5, row_group_bytes=3, block_column="block")
    assert action_from_canonical(action.canonical()) == action


@given(actions)
def test_an_action_survives_its_canonical_form(action):
    body = json.loads(canonical_json(action.canonical()))
    assert repr(action_from_canonical(body)) == repr(action)


@settings(deadline=None)
@given(st.lists(actions, max_size=3))
def test_a_plan_document_round_trips_and_keeps_its_digest(items):
    plan = make(items, table(["a"]))
    again = plan_from_document(json.loads(json.dumps(plan.document())))
    assert again.digest() == plan.digest()


def test_a_tree_is_in_a_plan_once_and_named_by_its_hash():
    tree = made((Cut(3, 7), (Cut(4, b"x", True), None, None), None), [4, 0, 3])
    items = [Recluster(ordering=by_tree(tree), inputs=(path,)) for path in ("a", "b")]
    plan = make(items, table(["a", "b"]))
    body = json.loads(stored_form(plan))
    assert body["trees"] == {tree.name: tree.text}
    assert [item["tree"] for item in body["actions"]] == [tree.name] * 2
    again = plan_from_document(body)
    assert again.digest() == plan.digest()
    assert [item.action.ordering.tree for item in again.actions] == [tree, tree]


@pytest.mark.parametrize("forged", ["missing", "other", "cut off", "later version", "no tree"])
def test_a_forged_tree_is_refused(forged):
    tree = made((Cut(3, 7), None, None), [0, 3])
    body = json.loads(stored_form(make([Recluster(ordering=by_tree(tree), inputs=("a",))],
                                       table(["a"]))))  # fmt: skip
    other = made((Cut(3, 8), None, None), [0, 3])
    text = {
        "other": other.text, "cut off": tree.text[:-12], "no tree": "x" * 40,
        "later version": tree.text.replace(":1:", f":{VERSION + 1}:"),
    }  # fmt: skip
    body["trees"] = {} if forged == "missing" else {tree.name: text[forged]}
    with pytest.raises(UserError) as raised:
        plan_from_document(body)
    assert raised.value.exit_code == 1


@given(st.binary(max_size=60), st.integers(0, 3))
def test_garbage_is_no_tree(data, place):
    tree = made((Cut(3, 7), (Cut(4, None), None, None), None), [4, 0, 3])
    packed = base64.b64encode(zlib.compress(data)).decode()
    texts = f"{PREFIX}{VERSION}:{packed}", f"{PREFIX}{packed}", packed, tree.text + packed
    with contextlib.suppress(NotATree):
        tree_of(texts[place])


def test_a_tree_of_as_many_columns_as_leaves_is_refused_before_anything_is_held_of_them():
    count = 60_000
    nodes = (*(node for number in range(count) for node in (number, -1)), -1)
    forged = Tree(tuple(Cut(one + 1, 7) for one in range(count)), nodes, (0,) * (count + 1))
    with pytest.raises(NotATree):
        tree_of(forged.text)


def test_plan_id_ignores_predictions_clock_and_snapshot():
    files = table(["a", "b"])
    plan = make([cluster(["a", "b"])], files)
    later = freeze(
        Basis("rec", ("db", "t"), "u", "h", "other", 8),
        created=NOW + dt.timedelta(days=1), time_to_live=dt.timedelta(hours=1),
        actions=[(cluster(["a", "b"]), Prediction())], files=files, evidence={},
    )  # fmt: skip
    assert later.id == plan.id
    assert later.digest() != plan.digest()
    assert plan.id.startswith("p-")
    assert len(plan.id) == 22


def test_plan_id_depends_on_inputs_order_of_actions_and_policy():
    one, two = cluster(["a"]), cluster(["b"])
    ids = {
        plan_id("u", "h", [one, two]), plan_id("u", "h", [two, one]), plan_id("u", "h", [one]),
        plan_id("u", "g", [one, two]), plan_id("v", "h", [one, two]),
    }  # fmt: skip
    assert len(ids) == 5


@settings(deadline=None)
@given(st.lists(actions, max_size=3), st.lists(actions, max_size=3))
def test_one_plan_id_means_one_plan(ours, theirs):
    """Equal ids if and only if the same work in the same order, however a document spells it."""
    same = [repr(action) for action in ours] == [repr(action) for action in theirs]
    assert (plan_id("u", "h", ours) == plan_id("u", "h", theirs)) is same
    body = make(ours, table(["a"])).document()
    for action in body["actions"]:
        action.get("inputs", []).reverse()
    assert plan_from_document(body).document() == make(ours, table(["a"])).document()


def test_a_plan_that_names_an_input_twice_is_refused(said):
    body = make([cluster(["a", "a", "b"])], table(["a", "b"])).document()
    with pytest.raises(UserError, match="plan document") as refused:
        plan_from_document(body)
    said(refused.value.render())


texts = st.text(st.characters(exclude_categories=["Cs"]) | st.characters(min_codepoint=0xD000))
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**65), 2**65) | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
)


@given(values)
def test_the_canonical_form_is_that_of_rfc_8785_and_has_integers_of_64_bits(value):
    try:
        expected = rfc8785.dumps(value)
    except rfc8785.IntegerDomainError:
        if largest(value) > 2**63 - 1:
            with pytest.raises(ValueError):
                canonical_json(value)
        else:
            assert json.loads(canonical_json(value)) == value
    except ValueError:
        with pytest.raises(ValueError):
            canonical_json(value)
    else:
        assert canonical_json(value) == expected


def largest(value):
    """The integer of the greatest magnitude, -1 without one."""
    if isinstance(value, dict | list):
        inner = value.values() if isinstance(value, dict) else value
        return max(map(largest, inner), default=-1)
    return abs(value) if type(value) is int else -1


@pytest.mark.parametrize("size", [2**53, 10**17, 2**63 - 1])
def test_a_plan_of_a_petabyte_table_has_a_digest_and_is_read_back(size):
    evidence = {"cost": {
        "tableBytes": size, "yearlyRead": size, "cpuMillis": 1, "millis": 1, "cores": 1,
        "rhoMilli": 1, "rhoLabel": "x",
    }}  # fmt: skip
    plan = replace(make([cluster(["a", "b"])], table(["a", "b"])), evidence=evidence)
    again = plan_from_document(json.loads(stored_form(plan)))
    assert again.digest() == plan.digest() and again.evidence == evidence


def test_a_plan_that_would_be_refused_is_not_stored(said):
    evidence = {"totals": [{"name": "deleted rows", "unit": "percent", "now": 1, "atLeast": 3}]}
    plan = replace(make([cluster(["a", "b"])], table(["a", "b"])), evidence=evidence)
    with pytest.raises(InternalError) as refused:
        stored_form(plan)
    said(refused.value)


def test_an_edited_plan_is_refused(said):
    body = make([cluster(["a", "b"])], table(["a", "b"])).document()
    body["actions"][0]["inputs"].append("c")
    with pytest.raises(UserError) as refused:
        plan_from_document(body)
    said(refused.value)


@pytest.mark.parametrize("body", [None, [], {}, {"kind": "LayoutPlan"}, "text", 3])
def test_garbage_is_not_a_plan(body, said):
    with pytest.raises(UserError) as refused:
        plan_from_document(body)
    said(refused.value)


def test_floats_have_no_canonical_form(said):
    with pytest.raises(ValueError) as refused:
        canonical_json({"a": [1, {"b": 0.5}]})
    said(refused.value)


def test_canonical_json_ignores_the_order_of_fields():
    one, other = {"a": 1, "b": {"c": 2, "d": 3}}, {"b": {"d": 3, "c": 2}, "a": 1}
    assert canonical_json(one) == canonical_json(other)


def test_the_old_order_of_an_unsorted_table_has_no_place_in_the_canonical_form():
    action = SetSortOrder(key=(SortColumn(1),))
    assert action.canonical() == {
        "type": "SetSortOrder",
        "key": [{"fieldId": 1, "direction": "asc"}],
    }
