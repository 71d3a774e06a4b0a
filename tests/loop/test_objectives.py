"""What a table shows of an objective that cannot be judged: unknown is neither zero nor met."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from reconciler.advisor.advice import AdviceInput, Objectives
from reconciler.advisor.decide import decide
from reconciler.loop.evidence import total_lines
from reconciler.loop.history import History
from reconciler.loop.step import CONVERGED, IDLE, TableState, state_of
from reconciler.operator.layout.look import _observed
from reconciler.render.totals_text import total_text
from tests.advisor.worlds import SETTINGS, arrived, workload
from tests.cli.observations import lineitem
from tests.said import Said

LIMIT = 10.0
NOW = dt.datetime(2026, 11, 20, 10, tzinfo=dt.UTC)


class Proposed:
    """A proposal without work on a table whose files have deletes."""

    def __init__(self, position: int, equality: int):
        files = arrived(np.random.default_rng(0), rows=20_000).file_table()
        files = replace(
            files,
            position_deleted=files.records * position // 100,
            equality_deletes=(np.arange(len(files)) < equality).astype(np.int64),
        )
        self.settings = replace(SETTINGS, objectives=Objectives(max_deleted_rows_percent=LIMIT))
        self.advice = decide(AdviceInput(files, workload(), self.settings))
        assert not self.advice.actions
        self.pending: tuple[Any, ...] = ()
        self.observation = lineitem(12, 3)
        self.queries = type("RecordedQueries", (), {"workload": workload()})
        self.history = History()


def _state(proposal: Any) -> TableState:
    return state_of(proposal, None)


def _line(proposal: Any) -> dict[str, Any]:
    (line,) = (
        line
        for line in total_lines(proposal.advice, proposal.queries.workload)
        if line["name"] == "deleted rows"
    )
    return line


@pytest.mark.parametrize(
    ("position", "equality", "state", "shown"),
    [
        (0, 0, CONVERGED, "0 %"),
        (0, 2, IDLE, "-"),
        (5, 2, IDLE, "at least 5 %"),
        (50, 2, IDLE, "at least 50 %"),
    ],
)
def test_equality_deletes_keep_a_table_from_converged_and_its_share_unknown(
    position: int, equality: int, state: str, shown: str, said: Said
) -> None:
    proposal: Any = Proposed(position, equality)
    found, line = _state(proposal), _line(proposal)
    assert found.state == state
    assert found.reason == ("ObjectiveUnreachable" if equality else "")
    said(found.message)
    assert total_text(line, "now") == shown
    assert ("met" in line["objective"].split()) is not bool(equality)


def test_the_status_has_no_share_of_deleted_rows_that_is_not_known() -> None:
    counted: Any = Proposed(5, 0)
    unknown: Any = Proposed(5, 2)
    assert _observed(counted, NOW)["deletedRowsPercent"] == 5
    assert "deletedRowsPercent" not in _observed(unknown, NOW)
