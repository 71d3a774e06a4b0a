"""Property and sort order changes: recorded with what they replace, never over another's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from reconciler.plan.actions.base import Action
from reconciler.plan.actions.partition_specs import AddSpec, SpecField, SwitchSpec
from reconciler.plan.actions.roll_back import RollBack
from reconciler.plan.actions.set_properties import SetProperties
from reconciler.plan.actions.set_sort_order import SetSortOrder
from reconciler.plan.actions.state import Validity
from reconciler.spark.commit import metadata
from reconciler.spark.commit.metadata_changes import (
    AddedSpec,
    ChangeOf,
    Properties,
    RolledBack,
    SortOrder,
    SwitchedSpec,
)
from reconciler.table.schema import SortColumn
from tests.spark.tables import Bench

pytestmark = pytest.mark.spark

TARGET = "write.target-file-size-bytes"


def _table(bench: Bench) -> str:
    name = bench.create("id bigint, s string", f"'{TARGET}'='1000'")
    bench.sql(f"INSERT INTO {bench.full(name)} VALUES (1, 'a')")
    return name


def _set(old: str | None, new: str) -> Action:
    return SetProperties(old=((TARGET, old),), new=((TARGET, new),))


def test_a_property_is_set_and_the_old_value_recorded(bench: Bench) -> None:
    name = _table(bench)
    request = bench.request(name, _set("1000", "2000"))
    result = bench.run(request)
    assert result.done
    assert bench.table(name).properties().get(TARGET) == "2000"
    assert result.outcomes[0].detail == f"{TARGET}: 1000 -> 2000"
    assert bench.run(request).outcomes == ()
    assert bench.ledger.open_intents(request.table_uuid) == ()


def test_a_property_that_someone_else_changed_is_left_alone(bench: Bench) -> None:
    name = _table(bench)
    result = bench.run(bench.request(name, _set("512", "2000")))
    assert result.actions[0].state is Validity.LOST
    assert "'1000'" in result.actions[0].detail
    assert bench.table(name).properties().get(TARGET) == "1000"


def test_a_sort_order_is_set_once(bench: Bench) -> None:
    name = _table(bench)
    action = SetSortOrder(key=(SortColumn(2, "desc"), SortColumn(1)))
    result = bench.run(bench.request(name, action))
    assert result.done
    assert result.outcomes[0].detail.endswith("unsorted -> s desc, id asc")
    again = bench.run(bench.request(name, action))
    assert (again.done, again.outcomes) == (True, ())


def _order(*terms: str) -> Action:
    key = (SortColumn(2, "desc"), SortColumn(1))
    return SetSortOrder(key=key, old=terms)


@pytest.mark.parametrize(
    ("present", "term"),
    [
        ("id ASC NULLS FIRST", "identity(1) asc nulls-first"),
        ("id ASC NULLS LAST", "identity(1) asc nulls-last"),
        ("bucket(4, id) DESC NULLS LAST", "bucket[4](1) desc nulls-last"),
    ],
)
def test_a_sort_order_that_someone_else_set_is_left_alone(
    bench: Bench, present: str, term: str
) -> None:
    name = _table(bench)
    bench.sql(f"ALTER TABLE {bench.full(name)} WRITE ORDERED BY {present}")
    assert metadata.sort_terms(bench.table(name)) == (term,)
    before = bench.table(name).sortOrder().toString()
    result = bench.run(bench.request(name, _order()))
    assert result.actions[0].state is Validity.LOST
    assert "someone else" in result.actions[0].detail
    assert result.outcomes == ()
    assert bench.table(name).sortOrder().toString() == before
    assert bench.run(bench.request(name, _order(term))).done


def _slip_in(
    monkeypatch: pytest.MonkeyPatch, executor: type[ChangeOf], act: Callable[[], Any]
) -> list[Any]:
    """Let another writer act once, after ours has read the metadata that it changes; return what
    the act returned, nothing before it."""
    original, slipped = executor.changed, []

    def changed(self: ChangeOf, base: Any, action: Any) -> Any:
        wanted = original(self, base, action)
        if not slipped:
            slipped.append(act())
        return wanted

    monkeypatch.setattr(executor, "changed", changed)
    return slipped


def test_a_change_that_slips_in_before_the_commit_is_not_overwritten(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = _table(bench)
    order = f"ALTER TABLE {bench.full(name)} WRITE ORDERED BY id"
    _slip_in(monkeypatch, SortOrder, lambda: bench.sql(order))
    result = bench.run(bench.request(name, _order()))
    assert result.actions[0].state is Validity.LOST
    assert metadata.sort_terms(bench.table(name)) == ("identity(1) asc nulls-first",)


def test_a_harmless_change_before_the_commit_is_kept_and_ours_made_on_top(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = _table(bench)
    theirs = f"ALTER TABLE {bench.full(name)} SET TBLPROPERTIES ('theirs'='kept')"
    _slip_in(monkeypatch, Properties, lambda: bench.sql(theirs))
    result = bench.run(bench.request(name, _set("1000", "2000"), _order()))
    assert result.done
    assert bench.table(name).properties().get("theirs") == "kept"
    assert bench.table(name).properties().get(TARGET) == "2000"


def test_an_append_before_a_rollback_is_kept(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    name = _table(bench)
    to, old = _head(bench, name), bench.paths(name)
    bench.sql(f"INSERT INTO {bench.full(name)} VALUES (2, 'b')")
    over = _head(bench, name)
    append = f"INSERT INTO {bench.full(name)} VALUES (3, 'c')"
    slipped = _slip_in(monkeypatch, RolledBack, lambda: bench.sql(append))
    action = RollBack(snapshot_id=to, over=over, restored=tuple(old))
    result = bench.run(bench.request(name, action))
    assert slipped and result.actions[0].state is Validity.LOST
    assert bench.ids(name) == [1, 2, 3]
    last = RollBack(snapshot_id=over, over=_head(bench, name))
    assert bench.run(bench.request(name, last)).done
    assert bench.ids(name) == [1, 2]


def _head(bench: Bench, name: str) -> int:
    return int(bench.table(name).currentSnapshot().snapshotId())


BY_TEXT = (SpecField(2, "identity"),)


@pytest.mark.parametrize("executor", [AddedSpec, SwitchedSpec])
def test_an_append_before_the_commit_of_a_spec_is_kept_and_the_spec_made_on_top(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, executor: type[ChangeOf]
) -> None:
    name = _table(bench)
    append = f"INSERT INTO {bench.full(name)} VALUES (2, 'b')"
    slipped = _slip_in(monkeypatch, executor, lambda: bench.sql(append))
    result = bench.run(bench.request(name, AddSpec(1, BY_TEXT), SwitchSpec(1, BY_TEXT, old=0)))
    assert result.done and len(slipped) == 1
    table = bench.table(name)
    assert metadata.facts(table).metadata.default_spec_id == table.spec().specId() == 1
    assert bench.rows(name).total() == 2


def test_a_spec_that_slips_in_before_ours_is_not_overwritten(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = _table(bench)
    theirs = f"ALTER TABLE {bench.full(name)} ADD PARTITION FIELD bucket(4, id)"
    slipped = _slip_in(monkeypatch, AddedSpec, lambda: bench.sql(theirs))
    result = bench.run(bench.request(name, AddSpec(1, BY_TEXT)))
    assert len(slipped) == 1 and result.actions[0].state is Validity.LOST
    (field,) = bench.table(name).spec().fields()
    assert field.transform().toString() == "bucket[4]"
