"""Property and sort order changes: recorded with what they replace, never over another's."""

from __future__ import annotations

import pytest

from reconciler.core.actions import Action, ActionType
from reconciler.core.plan import Validity
from reconciler.core.schema import SortColumn
from tests.jobs.tables import Bench

pytestmark = pytest.mark.spark

TARGET = "write.target-file-size-bytes"


def _table(bench: Bench) -> str:
    name = bench.create("id bigint, s string", f"'{TARGET}'='1000'")
    bench.sql(f"INSERT INTO {bench.full(name)} VALUES (1, 'a')")
    return name


def _set(old: str | None, new: str) -> Action:
    return Action(
        ActionType.SET_PROPERTIES, properties_old=((TARGET, old),), properties_new=((TARGET, new),)
    )


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
    assert "was set to '1000' by someone else" in result.actions[0].detail
    assert bench.table(name).properties().get(TARGET) == "1000"


def test_a_sort_order_is_set_once(bench: Bench) -> None:
    name = _table(bench)
    action = Action(ActionType.SET_SORT_ORDER, key=(SortColumn(2, "desc"), SortColumn(1)))
    result = bench.run(bench.request(name, action))
    assert result.done
    assert result.outcomes[0].detail == "sort order: unsorted -> s desc, id asc"
    again = bench.run(bench.request(name, action))
    assert (again.done, again.outcomes) == (True, ())
