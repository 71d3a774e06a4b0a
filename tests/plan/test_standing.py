"""Whether a plan and its actions stand: the one judgement of planner, operator and executor."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pytest

from reconciler.plan.actions import action_from_canonical
from reconciler.plan.actions.base import Action
from reconciler.plan.actions.delete_maintenance import (
    CompactDeletes,
    ConvertDeletes,
    DeleteMaintenance,
    RemoveDanglingDeletes,
)
from reconciler.plan.actions.partition_specs import AddSpec, SwitchSpec
from reconciler.plan.actions.rewrite import ApplyDeletes, BinPack, Cluster, Rewrite
from reconciler.plan.actions.set_properties import SetProperties
from reconciler.plan.actions.set_sort_order import SetSortOrder
from reconciler.plan.actions.state import Facts, Validity
from reconciler.plan.actions.upgrade_format import UpgradeFormat
from reconciler.plan.ordering import ARRIVAL, Lexicographic, by_tree
from reconciler.plan.plan import Basis, Plan, freeze
from reconciler.plan.prediction import Prediction
from reconciler.plan.standing import Fallen, Head, Judgement, judge
from reconciler.table.cut_tree import Cut, made
from reconciler.table.filetable import FileTable
from reconciler.table.metadata import TableMetadata
from reconciler.table.schema import PartitionSpec, Schema, SortColumn, SpecField

NOW = dt.datetime(2026, 11, 20, 12, tzinfo=dt.UTC)
BASE, BASE_SEQUENCE = 7, 5


def table(paths: Iterable[str], deletes: Mapping[str, int] | None = None) -> FileTable:
    """deletes: sequence number of the newest delete by path."""
    names = list(paths)
    n = len(names)
    zeros, off = np.zeros(n, dtype=np.int64), np.zeros(n, dtype=bool)
    newest = np.array([(deletes or {}).get(name, -1) for name in names], dtype=np.int64)
    return FileTable(
        schema=Schema(0, ()), specs={0: PartitionSpec(0)}, default_spec_id=0,
        path=np.array(names, dtype=object), spec_id=np.zeros(n, np.int32),
        partition=np.zeros(n, np.int32), partitions=((0, ()),), records=zeros + 10,
        bytes=zeros + 100, sequence=zeros + 1, added_ms=zeros, layout_written=off,
        sort_order_id=zeros, parquet=~off, encrypted=off, position_deleted=zeros,
        delete_files=zeros + (newest >= 0), delete_bytes=zeros, equality_deletes=zeros,
        newest_delete=newest,
    )  # fmt: skip


def rewrite(inputs: str, kind: type[Rewrite] = Cluster) -> Action:
    ordering = ARRIVAL if kind is BinPack else Lexicographic((SortColumn(3),))
    return kind(ordering=ordering, inputs=tuple(inputs))


def plan_of(*actions: Action, base: int | None = BASE) -> Plan:
    inputs = sorted({path for action in actions for path in action.inputs})
    return freeze(
        Basis("rec", ("db", "t"), "u", "h", "built-in", base),
        created=NOW, time_to_live=dt.timedelta(days=7),
        actions=[(action, Prediction(bytes_in=100)) for action in actions], files=table(inputs),
        evidence={},
    )  # fmt: skip


def judged(
    plan: Plan,
    files: FileTable,
    done: Iterable[str] = (),
    now: dt.datetime = NOW,
    **head: Any,
) -> Judgement:
    """Against a head whose history goes back to the plan's base."""
    known: dict[str, Any] = {"uuid": "u", "history": {9: 9, BASE: BASE_SEQUENCE}}
    known["done"] = frozenset((plan.id, key) for key in done)
    return judge(plan, Head(files=files, **(known | head)), now)


def test_an_append_does_not_void_a_plan() -> None:
    found = judged(plan_of(rewrite("ab")), table("abc"))
    assert (found.fallen, found.states["a01"].validity) == (None, Validity.PENDING)


def test_inputs_gone_with_our_id_is_done_and_without_it_is_lost() -> None:
    plan = plan_of(rewrite("ab"))
    done, lost = judged(plan, table("c"), done=["a01"]), judged(plan, table("c"))
    assert (done.fallen, done.states["a01"].validity) == (Fallen.DONE, Validity.DONE)
    assert (lost.fallen, lost.states["a01"].validity) == (Fallen.LOST, Validity.LOST)


def test_one_replaced_input_loses_the_action_and_leaves_the_others_standing() -> None:
    found = judged(plan_of(rewrite("abc")), table("ac"))
    assert found.fallen is Fallen.LOST
    assert found.states["a01"].standing == ("a", "c")


@pytest.mark.parametrize(
    ("sequence", "fallen"), [(BASE_SEQUENCE, None), (BASE_SEQUENCE + 1, Fallen.LOST)]
)
def test_only_deletes_that_are_newer_than_the_plan_lose_an_action(
    sequence: int, fallen: Fallen | None
) -> None:
    """Older ones that another writer merged into one file delete the same rows."""
    found = judged(plan_of(rewrite("ab")), table("ab", {"a": sequence}))
    assert found.fallen is fallen


def test_deletes_on_what_is_left_of_a_begun_action_lose_it() -> None:
    """The executor would not rewrite these files, so that the plan could never end."""
    plan = plan_of(rewrite("abcd"))
    left = judged(plan, table("cdx"), done=["a01"])
    assert (left.fallen, left.states["a01"].standing) == (None, ("c", "d"))
    assert left.states["a01"].begun
    lost = judged(plan, table("cdx", {"c": 6, "d": 6}), done=["a01"])
    assert (lost.fallen, lost.states["a01"].standing) == (Fallen.LOST, ())


def test_a_bin_pack_ends_when_one_file_is_left() -> None:
    plan = plan_of(rewrite("abc", BinPack))
    assert judged(plan, table("cx"), done=["a01"]).fallen is Fallen.DONE
    assert judged(plan, table("c")).states["a01"].standing == ()


def test_done_and_pending_together_stand() -> None:
    plan = plan_of(rewrite("ab"), rewrite("cd"))
    found = judged(plan, table("cdx"), done=["a01"])
    assert found.fallen is None
    assert [one.validity for one in found.states.values()] == [Validity.DONE, Validity.PENDING]


def test_a_plan_falls_with_its_base_snapshot() -> None:
    plan, files = plan_of(rewrite("ab")), table("abc")
    expired = judged(plan, files, history={9: 9}, retained=frozenset({9}))
    assert expired.fallen is Fallen.BASE_EXPIRED
    rolled_back = judged(plan, files, history={9: 9}, retained=frozenset({9, BASE}))
    assert rolled_back.fallen is Fallen.ROLLED_BACK
    assert str(BASE) in expired.why and str(BASE) in rolled_back.why


def test_a_plan_of_another_table_or_past_its_time_does_not_stand() -> None:
    plan, files = plan_of(rewrite("ab")), table("ab")
    assert judged(plan, files, uuid="v").fallen is Fallen.OTHER_TABLE
    assert judged(plan, files, now=plan.expires).fallen is Fallen.TOO_OLD


def test_a_plan_that_is_done_is_done_however_old_it_is() -> None:
    plan = plan_of(rewrite("ab"))
    found = judged(plan, table("x"), done=["a01"], now=plan.expires, history={9: 9})
    assert found.fallen is Fallen.DONE


def test_a_plan_of_an_empty_table_needs_no_history() -> None:
    wanted = SetProperties(old=(("p", None),), new=(("p", "2"),))
    found = judged(plan_of(wanted, base=None), table(""), history={})
    assert (found.fallen, found.states["a01"].validity) == (None, Validity.PENDING)


@pytest.mark.parametrize("kind", [Cluster, BinPack])
@pytest.mark.parametrize("done", [False, True])
def test_an_action_that_can_go_on_is_never_done_and_one_that_is_pending_can(
    kind: type[Rewrite], done: bool
) -> None:
    """Planner and executor agree: pending is what has inputs to work on."""
    action = rewrite("abc", kind)
    states = ("gone", "live", "changed")
    for combination in [(x, y, z) for x in states for y in states for z in states]:
        fates = dict(zip("abc", combination, strict=True))
        live = {path for path, fate in fates.items() if fate != "gone"}
        changed = {path for path, fate in fates.items() if fate == "changed"}
        found = action.judge(Facts(done=done, live=live, changed=changed))
        assert set(found.standing) <= live - changed
        assert (found.validity is Validity.PENDING) <= bool(found.standing)
        assert (found.validity is Validity.DONE) <= (done and not found.standing)
        assert bool(changed) <= (found.validity is Validity.LOST)


@pytest.mark.parametrize(
    ("now", "validity"),
    [("1", Validity.PENDING), ("2", Validity.DONE), ("3", Validity.LOST), (None, Validity.LOST)],
)
def test_property_changes_are_judged_by_value(now: str | None, validity: Validity) -> None:
    action = SetProperties(old=(("p", "1"),), new=(("p", "2"),))
    properties = {} if now is None else {"p": now}
    found = judged(plan_of(action), table(""), metadata=TableMetadata(properties))
    assert found.states["a01"].validity is validity


@pytest.mark.parametrize(
    ("now", "validity"),
    [
        (("identity(3) asc nulls-first",), Validity.PENDING),
        (("identity(1) asc nulls-first",), Validity.DONE),
        (("identity(1) asc nulls-last",), Validity.DONE),
        ((), Validity.LOST),
        (("identity(3) desc nulls-last",), Validity.LOST),
        (("bucket[4](1) asc nulls-first",), Validity.LOST),
    ],
)
def test_a_sort_order_that_is_neither_the_old_nor_the_wanted_one_loses_the_action(
    now: tuple[str, ...], validity: Validity
) -> None:
    action = SetSortOrder(
        key=(SortColumn(1),),
        old=("identity(3) asc nulls-first",),
    )
    assert action_from_canonical(action.canonical()) == action
    found = judged(plan_of(action), table(""), metadata=TableMetadata(sort_terms=now))
    assert found.states["a01"].validity is validity


def test_inputs_may_be_delete_files() -> None:
    plan = plan_of(rewrite("de"))
    found = judged(plan, table("ab"), deletes=frozenset("cde"))
    assert found.states["a01"].validity is Validity.PENDING
    found = judged(plan, table("ab"), deletes=frozenset("c"), done=["a01"])
    assert found.states["a01"].validity is Validity.DONE
    assert judged(plan, table("ab")).fallen is Fallen.LOST


MAINTENANCE = (CompactDeletes, ConvertDeletes, RemoveDanglingDeletes)


@pytest.mark.parametrize("kind", MAINTENANCE, ids=lambda kind: kind.kind)
def test_maintenance_of_deletes_stands_as_long_as_its_delete_files_do(
    kind: type[DeleteMaintenance],
) -> None:
    """Further deletes on the same data files change nothing about it."""
    plan = plan_of(kind(inputs=("d", "e"), spec_id=1, partition=(3,)))
    (item,) = plan.actions
    assert kind.from_canonical(item.action.canonical()) == item.action
    assert item.action.without_files() == kind(spec_id=1)
    busy = table("ab", deletes={"a": BASE_SEQUENCE + 1})
    found = judged(plan, busy, deletes=frozenset("def"))
    assert found.states["a01"].validity is Validity.PENDING
    wanted_gone = kind is RemoveDanglingDeletes  # whoever removes them
    found = judged(plan, busy, deletes=frozenset("ef"))
    assert found.states["a01"].validity is (Validity.PENDING if wanted_gone else Validity.LOST)
    assert found.states["a01"].standing == ("e",)
    found = judged(plan, busy, deletes=frozenset("f"))
    assert found.states["a01"].validity is (Validity.DONE if wanted_gone else Validity.LOST)
    found = judged(plan, busy, deletes=frozenset("f"), done=["a01"])
    assert found.states["a01"].validity is Validity.DONE


def test_applying_deletes_stands_although_more_rows_were_deleted() -> None:
    more = table("ab", deletes={"a": BASE_SEQUENCE + 1})
    plans = [plan_of(rewrite("ab", kind)) for kind in (Cluster, ApplyDeletes)]
    found = [judged(plan, more).states["a01"].validity for plan in plans]
    assert found == [Validity.LOST, Validity.PENDING]


@pytest.mark.parametrize(
    ("now", "validity"),
    [(1, Validity.LOST), (2, Validity.PENDING), (3, Validity.DONE), (4, Validity.DONE)],
)
def test_an_upgrade_is_judged_by_the_format_version(now: int, validity: Validity) -> None:
    action = UpgradeFormat(old=2, new=3)
    assert action_from_canonical(action.canonical()) == action
    found = judged(plan_of(action), table(""), metadata=TableMetadata(format_version=now))
    assert found.states["a01"].validity is validity


@pytest.mark.parametrize(
    ("summary", "accepted", "dangerous"),
    [
        ({}, (), False),
        ({"added-equality-deletes": "0"}, (), False),
        ({"added-equality-deletes": "3"}, (), True),
        ({"added-equality-delete-files": "1"}, ("EqualityDeletes",), False),
        ({"replace-partitions": "true"}, ("EqualityDeletes",), True),
        ({"replace-partitions": "true"}, ("DynamicOverwrites",), False),
    ],
)
def test_commits_since_the_plan_may_speak_against_another_spec(
    summary: dict[str, str], accepted: tuple[str, ...], dangerous: bool
) -> None:
    fields = (SpecField(1, "day"),)
    assert bool(SwitchSpec(1, fields, 0, accepted).danger([{}, summary])) == dangerous
    assert not AddSpec(1, (), 0).danger([{"added-equality-deletes": "3"}])


def test_a_spec_is_added_once_and_writers_are_switched_once() -> None:
    fields = (SpecField(1, "day"), SpecField(2, "bucket[4]"))
    add, switch = AddSpec(1, fields, 0), SwitchSpec(1, fields, 0)
    wanted = ("bucket[4](2)", "day(1)")  # in another order
    for specs, default, states in (
        ({0: ()}, 0, ("pending", "pending")),
        ({0: (), 1: wanted}, 0, ("done", "pending")),
        ({0: (), 1: wanted}, 1, ("done", "done")),
        ({0: (), 1: ("day(1)",)}, 0, ("lost", "lost")),
        ({0: (), 2: ()}, 0, ("lost", "pending")),
        ({0: (), 1: wanted, 2: ()}, 2, ("done", "lost")),
    ):
        now = Facts(metadata=TableMetadata(specs=specs, default_spec_id=default))
        assert (add.judge(now).validity, switch.judge(now).validity) == states


@pytest.mark.parametrize(
    ("kind", "stands"),
    [
        ("decimal(9, 2)", True), ("decimal(18, 2)", True), ("decimal(19, 2)", False),
        ("long", True), ("date", True), ("timestamp", False), ("timestamp_ns", False),
    ],
)  # fmt: skip
def test_a_tree_is_lost_once_its_cuts_are_no_values_of_the_column(kind: str, stands: bool) -> None:
    """A decimal of more than 18 digits is compared as bytes, and a date that became a timestamp by
    its microseconds: rows would go to other leaves."""
    tree = made((Cut(3, None), None, (Cut(3, 20_500), None, None)), [0, 0, 3])
    action = Cluster(ordering=by_tree(tree), inputs=("a",))
    metadata = TableMetadata(columns=frozenset({3}), tops={"price": (3, kind)})
    found = action.judge(Facts(live=("a",), metadata=metadata))
    assert found.validity is (Validity.PENDING if stands else Validity.LOST)
    assert ("another type" in found.why) != stands


@pytest.mark.parametrize("values", [(0,), (0, 1_767_225_600_000_000), (1_767_225_600_000_000,)])
def test_a_tree_that_cuts_timestamps_stands(values: tuple[int, ...]) -> None:
    """Also at the first moment of 1970, which is the same number as a date."""
    node: object = None
    for value in values:
        node = (Cut(3, value), None, node)
    tree = made(node, [0] * (len(values) + 1))
    metadata = TableMetadata(columns=frozenset({3}), tops={"at": (3, "timestamp")})
    found = Cluster(ordering=by_tree(tree), inputs=("a",)).judge(
        Facts(live=("a",), metadata=metadata)
    )
    assert found.validity is Validity.PENDING
