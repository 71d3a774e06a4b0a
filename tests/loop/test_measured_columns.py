"""What reading costs is measured by columns that the table still has, and never fails a run."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from reconciler.errors import InternalError
from reconciler.loop.local_actor import LocalActor
from reconciler.queries.fragments import workload_of_fragments
from reconciler.spark.schedule import read_cost
from reconciler.state.store import Store
from tests.advisor.worlds import DAY, range_query
from tests.cli.observations import lineitem


class _Notes:
    def __init__(self) -> None:
        self.kept: dict[str, Any] = {}

    def note(self, key: str) -> Any:
        return self.kept.get(key)

    def set_note(self, key: str, value: Any) -> None:
        self.kept[key] = value

    note_as: Any = Store.note_as


def _measured(
    monkeypatch: pytest.MonkeyPatch, measure: Any, started: bool = True
) -> dict[str, Any]:
    query = replace(range_query(1, 2, 0, 10, event_ms=DAY), projection=(2, 7, 99))
    after = SimpleNamespace(
        observation=lineitem(4, 1),
        queries=SimpleNamespace(workload=workload_of_fragments([query])),
        target=SimpleNamespace(catalog=None, identifier=("s", "t")),
    )
    notes = _Notes()
    actor = SimpleNamespace(spark=SimpleNamespace(started=started), store=notes)
    monkeypatch.setattr(read_cost, "measure_rho", measure)
    LocalActor.measure_rho(cast(Any, actor), cast(Any, after), cast(Any, None))
    return notes.kept


def test_a_dropped_column_is_left_out_and_a_list_is_read_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[Any] = []

    def measure(*arguments: Any) -> Any:
        asked.extend(arguments[-1])
        return SimpleNamespace(ratio=2.0)

    assert list(_measured(monkeypatch, measure).values()) == [[2.0]]
    assert asked == [("l_shipdate",), ("l_tags",)]


def test_spark_is_not_started_for_a_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    def measure(*arguments: Any) -> Any:
        pytest.fail("the run did without Spark")

    assert _measured(monkeypatch, measure, started=False) == {}


def test_what_cannot_be_measured_fails_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: Any) -> Any:
        raise InternalError("could not read s.t")

    assert _measured(monkeypatch, fail) == {}
