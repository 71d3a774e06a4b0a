"""Which change makes which key due; above all, which does not."""

from __future__ import annotations

import copy

import pytest

from reconciler.kube.kinds import CATALOG, JOB, POD, POLICY, TABLE_LAYOUT
from reconciler.operator.index import REQUESTED_AT, Index
from reconciler.operator.process.watch import triggers
from reconciler.operator.work import GATHER_SECONDS, LAUNCH_KEY, Key, Work

LABELS = {"layout.lakehouse.dev/layout": "t"}


def body(name, *, spec=None, status=None, generation=1, labels=None, **meta):
    return {
        "metadata": {
            "name": name,
            "namespace": "ns",
            "uid": f"u-{name}",
            "resourceVersion": "1",
            "generation": generation,
            "labels": labels or {},
            **meta,
        },
        "spec": spec or {},
        "status": status or {},
    }


def table(**more):
    spec = {"policyRef": {"name": "p"}, "catalogRef": {"name": "c"}}
    return body("t", spec=spec, **more)


@pytest.fixture
def index():
    index = Index()
    index.put(TABLE_LAYOUT, table())
    index.put(POLICY, body("p", spec={"catalogRef": {"name": "c"}}))
    return index


def keys(kind, before, now, index):
    return {key for key, _ in triggers(kind, before, now, index)}


P, T = Key(Work.POLICY, "ns", "p"), Key(Work.LAYOUT, "ns", "t")


def test_a_new_generation_or_a_request_reconciles_a_policy_and_its_status_does_not(index):
    old = body("p")
    assert keys(POLICY, None, old, index) == {P}
    assert keys(POLICY, old, body("p", generation=2), index) == {P}
    assert keys(POLICY, old, body("p", status={"observedGeneration": 1}), index) == set()
    asked = body("p", annotations={REQUESTED_AT: "2026-11-20T10:00:00Z"})
    assert keys(POLICY, old, asked, index) == {P, T}
    assert keys(POLICY, asked, copy.deepcopy(asked), index) == set()
    assert keys(POLICY, old, None, index) == {P, T}
    assert P in keys(POLICY, old, body("p", deletionTimestamp="now"), index)


def test_a_layouts_status_reconciles_its_policy_later_and_not_itself(index):
    old, new = table(), table(status={"observedGeneration": 1})
    assert list(triggers(TABLE_LAYOUT, old, new, index)) == [(P, GATHER_SECONDS)]
    approved = table(generation=2)
    assert keys(TABLE_LAYOUT, old, approved, index) == {T}
    assert keys(TABLE_LAYOUT, old, None, index) == {T, P}


def test_a_catalog_that_is_back_or_changed_reconciles_all_that_depend_on_it(index):
    def ready(status):
        return body("c", status={"conditions": [{"type": "Ready", "status": status}]})

    own = Key(Work.CATALOG, "ns", "c")
    assert keys(CATALOG, ready("False"), ready("True"), index) == {P, T}
    assert keys(CATALOG, ready("True"), ready("True"), index) == set()
    assert keys(CATALOG, ready("True"), body("c", generation=2), index) == {own, P, T}
    assert keys(CATALOG, None, body("c"), index) == {own, P, T}


def test_a_job_reconciles_its_table_and_may_free_a_place_for_another(index):
    running, done = ({"active": 1}, {"succeeded": 1})
    old = body("j", labels=LABELS, status=running)
    assert keys(JOB, None, old, index) == {T, LAUNCH_KEY}
    assert keys(JOB, old, body("j", labels=LABELS, status=done), index) == {T, LAUNCH_KEY}
    assert keys(JOB, old, None, index) == {T, LAUNCH_KEY}
    assert keys(JOB, old, copy.deepcopy(old), index) == set()
    assert keys(JOB, None, body("j"), index) == set()


def test_pods_matter_when_they_end_and_not_when_they_come(index):
    def pod(phase, **more):
        return body("x", labels=LABELS, status={"phase": phase}, **more)

    assert keys(POD, None, pod("Pending"), index) == set()
    assert keys(POD, pod("Pending"), pod("Running"), index) == set()
    assert keys(POD, pod("Running"), pod("Failed"), index) == {T}
    assert keys(POD, pod("Running"), pod("Running", deletionTimestamp="now"), index) == {T}
    assert keys(POD, pod("Running"), None, index) == {T}
    assert keys(POD, pod("Succeeded"), pod("Succeeded"), index) == set()
