"""Realised savings are in the unit of predicted ones: bytes of reading, opened files included."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from reconciler.advisor.advice import HORIZON_MS
from reconciler.advisor.measure.credit import Credit, Price, credit_of, written
from reconciler.advisor.measure.past_plan import PastPlan
from reconciler.loop import measure
from reconciler.loop.decision_settings import debt
from reconciler.loop.history import History
from reconciler.loop.measure import window_read
from reconciler.plan.execution import COMMITTED, Outcome
from reconciler.plan.ledger import LedgerEntry, ReadCheck
from reconciler.plan.prediction import Prediction
from reconciler.queries import demanded
from reconciler.queries.demanded import demands
from reconciler.queries.fragments import Fragment, workload_of_fragments
from reconciler.queries.predicate import TRUE
from reconciler.queries.read_cost import read_shape
from reconciler.queries.rewrite_cost import PRIOR_RHO
from reconciler.queries.table_view import CHUNK_OPENS, OPEN_BYTES, ROW_GROUP_OPENS, table_view
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


def _credit(before, after, queries) -> Credit:
    return credit_of(
        written("p-1", 0, tuple(before), after), workload_of_fragments(queries).shapes, Price()
    )


def test_files_not_opened_are_a_realised_saving():
    """As in a prediction, where a merge pays by what need not be opened."""
    many, one = _same_rows(100), _same_rows(3_000)
    assert (len(many), len(one)) == (FILES, 1)
    parts = [many.take(np.arange(10)), many.take(np.arange(10, 30))]
    seen = _credit(parts, one, _queries())
    work = workload_of_fragments(_queries())
    bytes_alone = window_read(many, work).bytes - window_read(one, work).bytes
    assert bytes_alone == pytest.approx(0.0, abs=QUERIES * 10)
    opens = QUERIES * (FILES - 1) * OPENED
    assert seen.exact
    assert seen.least == pytest.approx(opens, rel=0.001)
    assert seen.queries == QUERIES


def test_queries_whose_conditions_are_not_known_earn_nothing():
    seen = _credit([_same_rows(100)], _same_rows(3_000), _queries(full_scan=True))
    assert (seen.least, seen.most, seen.queries, seen.unknown) == (0.0, 0.0, 0.0, QUERIES)
    assert not seen.exact and not seen.none_ran


def test_read_bytes_are_reported_without_the_opens():
    files, work = _same_rows(100), workload_of_fragments(_queries())
    found = window_read(files, work)
    assert found.cost - found.bytes == pytest.approx(QUERIES * FILES * OPENED)
    assert found.bytes < QUERIES * float(files.bytes.sum()) + 1


def test_a_reading_of_recorded_windows_prices_no_window_to_come(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What `demands` has with a weight is read; no forecast is made."""
    files = _same_rows(100)
    some = [
        range_query(number, KEY, 10 * number, 10 * number + 300, event_ms=number * DAY,
                    moving=(-300, 0) if number % 3 else (None, None))
        for number in range(1, QUERIES + 1)
    ]  # fmt: skip
    work = workload_of_fragments(some)
    view = table_view(files, None, None, 128 << 20, OPEN_BYTES)
    expected = demands(work, files.schema, HORIZON_MS)
    cost = sum(float(one.weight @ read_shape(view, one).cost) for one in expected)
    assert sum(int((one.weight == 0.0).sum()) for one in expected) > 0  # windows to come
    priced: list[np.ndarray] = []

    def noted(view, shape):
        priced.append(shape.weight)
        return read_shape(view, shape)

    def forecast(*_):
        raise AssertionError

    monkeypatch.setattr(measure, "read_shape", noted)
    monkeypatch.setattr(demanded, "forecast_rates", forecast)
    assert window_read(files, work).cost == pytest.approx(cost, rel=1e-12)
    assert np.concatenate(priced).sum() == QUERIES
    assert all((weight > 0.0).all() for weight in priced)


def test_a_merge_that_only_saves_opens_is_not_called_unpaid():
    many, one = _same_rows(100), _same_rows(3_000)
    seen = _credit([many], one, _queries())
    size = int(many.bytes.sum())
    plan = PastPlan("p-1", (_entry("p-1", size),), seen, PRIOR_RHO.value, OPEN_BYTES)
    assert seen.until_ms >= HORIZON_MS
    assert seen.least > plan.cost
    assert not plan.not_paid
    short = replace(seen, least=plan.cost - 1.0, most=plan.cost - 1.0)
    assert PastPlan("p-1", plan.entries, short, PRIOR_RHO.value, OPEN_BYTES).not_paid


def _entry(plan: str, size: int, kind: str = "BinPack") -> LedgerEntry:
    outcome = Outcome("x", 1, "a01", COMMITTED, 1, size, size, 3_000, FILES, 1, 1.0, 1.0)
    return LedgerEntry("u", plan, 0, outcome, Prediction(kind=kind))


def test_debt_is_paid_back_by_later_queries_alone():
    """What the recorded ones are found to read less at the commit earns nothing yet. What a commit
    saved is known of all its rewrites together, so the cost of each counts, whatever its kind."""
    check = ReadCheck("p-1", 5, before=100, predicted=60, actual=50, complete=True, saved=5_000)
    entries = (
        _entry("p-1", 10, "Recluster"), _entry("p-2", 10, "Recluster"),
        _entry("p-2", 10, "CompactDeletes"), _entry("p-3", 10), _entry("p-3", 10, "ApplyDeletes"),
    )  # fmt: skip
    fresh = History(entries, (check,))
    assert debt(fresh, PRIOR_RHO).realised == 0.0
    assert debt(fresh, PRIOR_RHO).spent == 40 * PRIOR_RHO.value
    credits = {
        "p-1": Credit(900.0, 900.0, 700.0, 900.0, 3.0, 0.0, 0, 5),
        "p-2": Credit(0.0, 0.0, -200.0, -200.0, 3.0, 0.0, 0, 5),
        "p-3": Credit(0.0, 0.0, 9_000.0, 9_000.0, 3.0, 0.0, 0, 5),
    }
    assert debt(replace(fresh, credits=credits), PRIOR_RHO).realised == 9_500.0
