"""Realised savings are in the unit of predicted ones: bytes of reading, opened files included."""

from __future__ import annotations

import numpy as np
import pytest

from reconciler.cli.history import HORIZON_MS, PastPlan
from reconciler.loop.decision_settings import History, debt
from reconciler.loop.measure import Realised, realised_saving, window_read
from reconciler.plan.execution import COMMITTED, Outcome
from reconciler.plan.ledger import LedgerEntry, ReadCheck
from reconciler.plan.prediction import Prediction
from reconciler.queries.fragments import Fragment, batch_fragments
from reconciler.queries.predicate import TRUE
from reconciler.queries.rewrite_cost import PRIOR_RHO
from reconciler.queries.table_view import CHUNK_OPENS, OPEN_BYTES, ROW_GROUP_OPENS
from tests.advisor.worlds import DAY, KEY, VALUE, arrived, range_query

FILES, QUERIES = 30, 40
OPENED = OPEN_BYTES * (1.0 + ROW_GROUP_OPENS + 2 * CHUNK_OPENS)
"""What opening a file and reading its row group of two columns is worth."""


def _same_rows(rows_per_file: int):
    """In order of the key, so that a range of keys needs as many bytes whatever the files."""
    table = arrived(np.random.default_rng(0), rows=3_000, rows_per_file=rows_per_file)
    return table.file_table()


def _everything(position: int, full_scan: bool = False) -> Fragment:
    """Reads every row: no layout saves bytes, fewer files save opens."""
    if full_scan:
        return Fragment(
            source="log", position=position, table_uuid="u", predicate=TRUE, literals=(),
            moving=(), projection=(KEY, VALUE), weight=1.0, event_ms=position * DAY,
            engine="spark", full_scan=True,
        )  # fmt: skip
    return range_query(position, KEY, 0, 10_000, event_ms=position * DAY)


def _queries(full_scan: bool = False) -> list[Fragment]:
    return [_everything(number, full_scan) for number in range(1, QUERIES + 1)]


@pytest.mark.parametrize("full_scan", [False, True])
def test_files_not_opened_are_a_realised_saving(full_scan):
    """As in a prediction, where a merge pays by what need not be opened."""
    many, one = _same_rows(100), _same_rows(3_000)
    assert (len(many), len(one)) == (FILES, 1)
    seen = realised_saving([many.take(np.arange(10)), many.take(np.arange(10, 30))], one,
                           _queries(full_scan), 0)  # fmt: skip
    work = batch_fragments(_queries(full_scan))
    bytes_alone = window_read(many, work).bytes - window_read(one, work).bytes
    assert bytes_alone == pytest.approx(0.0, abs=QUERIES * 10)
    opens = QUERIES * (FILES - 1) * OPENED
    assert seen.saved == pytest.approx(opens, rel=0.001)
    assert seen.queries == QUERIES


def test_read_bytes_are_reported_without_the_opens():
    files, work = _same_rows(100), batch_fragments(_queries())
    found = window_read(files, work)
    assert found.cost - found.bytes == pytest.approx(QUERIES * FILES * OPENED)
    assert found.bytes < QUERIES * float(files.bytes.sum()) + 1


def test_a_merge_that_only_saves_opens_is_not_called_unpaid():
    many, one = _same_rows(100), _same_rows(3_000)
    seen = realised_saving([many], one, _queries(), 0)
    size = int(many.bytes.sum())
    outcome = Outcome("x", 1, "a01", COMMITTED, 1, size, size, 3_000, FILES, 1, 1.0, 1.0)
    entry = LedgerEntry("u", "p-1", 0, outcome, Prediction(kind="BinPack"))
    plan = PastPlan("p-1", (entry,), seen, PRIOR_RHO.value, OPEN_BYTES)
    assert seen.until_ms >= HORIZON_MS
    assert plan.saved is not None and plan.saved > plan.cost
    assert not plan.not_paid
    short = Realised(plan.cost - 1.0, seen.queries, seen.until_ms, False)
    assert PastPlan("p-1", (entry,), short, PRIOR_RHO.value, OPEN_BYTES).not_paid


def test_debt_is_paid_back_in_the_unit_that_it_is_owed_in():
    """By what the window was found to save with its opens; by bytes where a record has no more."""
    kept = ReadCheck("p-1", 5, before=100, predicted=60, actual=50, complete=True, saved=5_000)
    short = ReadCheck("p-0", 4, before=100, predicted=60, actual=50, complete=True)
    worse = ReadCheck("p-2", 6, before=100, predicted=60, actual=50, complete=True, saved=-7)
    assert debt(History(checks=(kept,)), PRIOR_RHO).realised == 5_000
    assert debt(History(checks=(kept, short, worse)), PRIOR_RHO).realised == 5_050
