"""The metrics page is the index's truth, bounded in series, and breaks on no stored object."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from types import SimpleNamespace

import pytest

from reconciler.api.prices import Prices
from reconciler.kube.kinds import POLICY, TABLE_LAYOUT
from reconciler.operator.index import Index
from reconciler.operator.layout.endings import achieved
from reconciler.operator.layout.subject import Subject
from reconciler.operator.layout.writer import LayoutWriter
from reconciler.operator.process.metrics import Metrics
from reconciler.operator.work import Work
from reconciler.plan.execution import COMMITTED, Outcome
from reconciler.plan.ledger import LedgerEntry
from reconciler.plan.money import Usage
from reconciler.plan.prediction import Prediction


def layout(name, status="True", reason="NothingToDo", **more):
    conditions = [{"type": "Converged", "status": status, "reason": reason}]
    return {
        "metadata": {"name": name, "namespace": "ns", "uid": name, "resourceVersion": "1"},
        "spec": {"table": {"namespace": ["sales"], "name": name}, "policyRef": {"name": "p"}},
        "status": {"conditions": conditions, **more},
    }


def page(index, *, waiting=None, per_table=False):
    metrics = Metrics()
    metrics.show(index, lambda: waiting or {}, per_table=per_table)
    return metrics.text().decode()


def test_tables_jobs_and_budgets_are_those_of_the_objects():
    index = Index()
    index.put(TABLE_LAYOUT, layout("a"))
    index.put(TABLE_LAYOUT, layout("b", "False", "OverBudget", job={"phase": "Running"}))
    index.put(TABLE_LAYOUT, layout("c", "False", "OverBudget", job={"phase": "Succeeded"}))
    budget = {
        "name": "daily",
        "rewriteBytes": {"spent": "1.5Ki", "reserved": "42Mi"},
        "cpuTime": {"spent": "2h"},
    }
    meta = {"name": "p", "namespace": "ns", "uid": "p", "resourceVersion": "1"}
    index.put(POLICY, {"metadata": meta, "spec": {}, "status": {"budgets": [budget]}})
    text = page(index, waiting={Work.LAYOUT: (3, 12.5)})
    expected = (
        'layout_tables{converged="False",namespace="ns",reason="OverBudget"} 2.0',
        'layout_tables{converged="True",namespace="ns",reason="NothingToDo"} 1.0',
        'layout_jobs{namespace="ns",phase="Running"} 1.0',
        'layout_budget_bytes{budget="daily",namespace="ns",policy="p",state="spent"} 1536.0',
        'layout_budget_cpu_seconds{budget="daily",namespace="ns",policy="p",state="spent"} 7200.0',
        'layout_queue_depth{kind="layout"} 3.0',
        'layout_queue_oldest_seconds{kind="layout"} 12.5',
        'layout_objects{kind="TableLayout"} 3.0',
    )
    for line in expected:
        assert line in text, line
    assert "layout_table_" not in text


def test_series_per_table_only_when_asked():
    index = Index()
    saved = {"atLeastBytes": -5, "atMostBytes": 7, "queries": 3}
    index.put(TABLE_LAYOUT, layout("a", observed={"scanAmplification": "3.42", "saved": saved},
                                   plan={"rewriteBytes": "2Ki"}))  # fmt: skip
    fresh = {"saved": {"queries": 0, "since": "2026-11-20T10:00:00Z"}}
    index.put(TABLE_LAYOUT, layout("b", observed=fresh))
    text = page(index, per_table=True)
    labels = '{namespace="ns",table="sales.a",table_layout="a"}'
    assert f"layout_table_scan_amplification{labels} 3.42" in text
    assert f"layout_table_pending_bytes{labels} 2048.0" in text
    assert f"layout_table_converged{labels} 1.0" in text
    for bound, size in (("least", -5.0), ("most", 7.0)):
        of = labels.replace("{", f'{{bound="{bound}",')
        assert f"layout_table_saved_bytes{of} {size}" in text
    assert text.count("layout_table_saved_bytes{") == 2, "no query has run since is not 0"


def test_thousands_of_tables_and_policies_make_no_more_series_than_a_hundred_would():
    def series(tables, *, per_table=False):
        index = Index()
        for number in range(tables):
            state = ("True", "NothingToDo") if number % 3 else ("False", "AwaitingApproval")
            index.put(TABLE_LAYOUT, layout(f"t{number}", *state, job={"phase": "Running"}))
            meta = {"namespace": "ns", "uid": f"p{number}", "resourceVersion": "1"}
            budget = {"name": "daily", "rewriteBytes": {"spent": f"{number}Gi", "reserved": "0"}}
            index.put(POLICY, {"metadata": {**meta, "name": f"p{number}"}, "spec": {},
                               "status": {"budgets": [budget]}})  # fmt: skip
        text = page(index, per_table=per_table)
        return text, sum(not line.startswith("#") for line in text.splitlines())

    few, count = series(300)
    many, more = series(4_000)
    assert more == count < 600
    assert "layout_budgets_left_out 100.0" in few and "layout_budgets_left_out 3800.0" in many
    assert 'policy="p3999"' in many and 'policy="p1"' not in many, "those that are used most"
    assert series(300, per_table=True)[1] > 4 * 300


def test_statuses_of_another_version_make_no_new_series_and_no_error():
    index = Index()
    for number in range(50):
        strange = layout(f"t{number}", "False", f"Reason{number}", plan={"rewriteBytes": "many"})
        index.put(TABLE_LAYOUT, strange)
    index.put(TABLE_LAYOUT, {**layout("x"), "status": {}})
    text = page(index, per_table=True)
    assert 'layout_tables{converged="False",namespace="ns",reason="Other"} 50.0' in text
    assert "Reason7" not in text


def test_counters_count():
    metrics = Metrics()
    metrics.reconciled(Work.POLICY, True, 0.1)
    metrics.called("get", "jobs", 0, 0.2)
    metrics.launched("ns")
    metrics.finished("ns", "OutOfMemory")
    metrics.rewrote("ns", 1024)
    metrics.leads(True)
    text = metrics.text().decode()
    assert 'layout_reconcile_duration_seconds_count{kind="policy",result="error"} 1.0' in text
    assert (
        'layout_kube_api_duration_seconds_count{code="none",resource="jobs",verb="get"} 1.0' in text
    )
    assert 'layout_jobs_launched_total{namespace="ns"} 1.0' in text
    assert 'layout_jobs_finished_total{cause="OutOfMemory",namespace="ns"} 1.0' in text
    assert 'layout_rewritten_bytes_total{namespace="ns"} 1024.0' in text
    assert "layout_leader 1.0" in text


EURO = Prices("EUR", cpu_hour=Decimal(36), tib_read=Decimal(1024))
"""A GiB read costs 1, a CPU second 0.01."""


def value(metrics: Metrics, name: str, **labels: str) -> float:
    """Of a series; 0 if it is not on the page."""
    return metrics.registry.get_sample_value(name, labels) or 0.0


def test_what_is_spent_is_counted_in_bytes_of_reading_and_in_money():
    metrics = Metrics()
    metrics.spent("ns", 4 * 2.0**30, Usage(read_bytes=2**30, cpu_seconds=100), EURO)
    metrics.spent("ns", 2.0**30, Usage(read_bytes=2**30), None)
    assert value(metrics, "layout_spent_bytes_total", namespace="ns") == 5 * 2**30
    money = value(metrics, "layout_money_total", namespace="ns", currency="EUR", kind="spent")
    assert money == pytest.approx(1 + 1)


def test_each_change_of_what_a_status_says_was_saved_is_counted_once():
    """A loss is counted apart: the saving of a table may fall, a counter may not."""
    metrics, body = Metrics(), {**layout("a"), "status": {}}
    api = SimpleNamespace(
        put_status=lambda kind, ns, name, status, version: {**body, "status": status}
    )
    runtime = SimpleNamespace(
        api=api, index=Index(), metrics=metrics, enqueue=lambda key, due: None
    )
    clock = lambda: dt.datetime(2026, 11, 20, tzinfo=dt.UTC)  # noqa: E731
    writer = LayoutWriter(SimpleNamespace(runtime=runtime, clock=clock))
    catalog = SimpleNamespace(document=SimpleNamespace(spec=SimpleNamespace(prices=EURO)))
    subject = Subject(body, None, None, catalog, clock())
    for saved in (None, {"queries": 0}, {"atLeastBytes": 2 << 30}, {"atLeastBytes": 5 << 30},
                  {"atLeastBytes": 5 << 30, "queries": 9}, {"atLeastBytes": 4 << 30}):  # fmt: skip
        writer.put(subject, {"observed": {} if saved is None else {"saved": saved}})
    assert value(metrics, "layout_saved_bytes_total", namespace="ns") == 5 << 30
    assert value(metrics, "layout_lost_bytes_total", namespace="ns") == 1 << 30
    kinds = {
        kind: value(metrics, "layout_money_total", namespace="ns", currency="EUR", kind=kind)
        for kind in ("saved", "lost")
    }
    assert kinds["saved"] > 5 and kinds["saved"] == pytest.approx(5 * kinds["lost"])


def test_a_saving_that_is_unknown_for_a_while_is_neither_lost_nor_saved_again():
    metrics, body = Metrics(), {**layout("a"), "status": {}}
    api = SimpleNamespace(
        put_status=lambda kind, ns, name, status, version: {**body, "status": status}
    )
    runtime = SimpleNamespace(
        api=api, index=Index(), metrics=metrics, enqueue=lambda key, due: None
    )
    clock = lambda: dt.datetime(2026, 11, 20, tzinfo=dt.UTC)  # noqa: E731
    writer = LayoutWriter(SimpleNamespace(runtime=runtime, clock=clock))
    catalog = SimpleNamespace(document=SimpleNamespace(spec=SimpleNamespace(prices=None)))
    subject = Subject(body, None, None, catalog, clock())
    for saved in ({"atLeastBytes": 5 << 30}, None, {"queries": 3}, {"atLeastBytes": 6 << 30}):
        observed = {} if saved is None else {"saved": saved}
        writer.put(subject, {**subject.body["status"], "observed": observed})
    assert value(metrics, "layout_saved_bytes_total", namespace="ns") == 6 << 30
    assert value(metrics, "layout_lost_bytes_total", namespace="ns") == 0


def test_an_attempt_costs_by_the_rho_of_its_plan():
    def entry(size: int, predicted: Prediction) -> LedgerEntry:
        outcome = Outcome("a", 1, "x", COMMITTED, 1, size, size, 1, 1, 1, 2.0, 1.0)
        return LedgerEntry("u", "p", 0, outcome, predicted)

    known = Prediction(cost=30, bytes_in=10)
    assert achieved([entry(100, known), entry(7, known)]).cost == 3 * 107
    assert achieved([entry(100, Prediction())]).cost == 400  # the prior
