"""The index: readers own what they get, versions never go back, groups follow their objects."""

from __future__ import annotations

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from reconciler.kube.kinds import CATALOG, JOB, POD, POLICY, TABLE_LAYOUT
from reconciler.operator.index import REQUESTED_AT, Index
from tests.examples import examples


def layout(name="a", version="1", uid="u1", policy="p", catalog="c", **status):
    return {
        "metadata": {
            "name": name,
            "namespace": "ns",
            "uid": uid,
            "resourceVersion": version,
            "managedFields": [{"manager": "x"}],
            "annotations": {REQUESTED_AT: "now", "other/annotation": "long"},
        },
        "spec": {"policyRef": {"name": policy}, "catalogRef": {"name": catalog}},
        "status": status,
    }


def test_only_what_reconciles_read_is_kept():
    index = Index()
    index.put(TABLE_LAYOUT, layout())
    kept = index.layout("ns", "a")
    assert kept["kind"] == "TableLayout"
    assert kept["apiVersion"] == "layout.lakehouse.dev/v1alpha1"
    assert "managedFields" not in kept["metadata"]
    assert kept["metadata"]["annotations"] == {REQUESTED_AT: "now"}
    labels = {"layout.lakehouse.dev/layout": "a", "app": "spark"}
    pod = {
        "metadata": {"name": "p", "namespace": "ns", "uid": "u", "labels": labels},
        "spec": {"containers": [{"env": [{"name": "PASSWORD", "value": "planted"}]}]},
        "status": {"phase": "Running", "podIPs": [], "conditions": []},
    }
    index.put(POD, pod)
    assert "planted" not in json.dumps(index.pods("ns", "a"))
    assert index.pods("ns", "a")[0]["status"] == {"phase": "Running"}


def test_a_reader_may_change_what_it_got():
    index = Index()
    index.put(TABLE_LAYOUT, layout(observedGeneration=1))
    index.layout("ns", "a")["status"]["observedGeneration"] = 99
    assert index.layout("ns", "a")["status"]["observedGeneration"] == 1


def test_an_older_version_of_the_same_object_is_passed_over():
    index = Index()
    index.put(TABLE_LAYOUT, layout(version="10", observedGeneration=2))
    assert index.put(TABLE_LAYOUT, layout(version="9", observedGeneration=1)) is None
    assert index.put(TABLE_LAYOUT, layout(version="10", observedGeneration=2)) is None
    assert index.layout("ns", "a")["status"] == {"observedGeneration": 2}
    before, now = index.put(TABLE_LAYOUT, layout(version="3", uid="u2"))
    assert (before["metadata"]["uid"], now["metadata"]["uid"]) == ("u1", "u2")


def test_the_end_of_an_object_does_not_remove_its_successor():
    index = Index()
    index.put(TABLE_LAYOUT, layout(uid="u2", version="20"))
    assert index.remove(TABLE_LAYOUT, layout(uid="u1", version="19")) is None
    assert index.layout("ns", "a") is not None
    assert index.remove(TABLE_LAYOUT, layout(uid="u2", version="21")) is not None
    # The watch may have removed it before the list did, which then knows no uid any more.
    assert index.remove(TABLE_LAYOUT, layout(uid="", version="21")) is None
    assert index.layout("ns", "a") is None


def test_groups_answer_who_depends_on_whom():
    index = Index()
    for name in ("b", "a"):
        index.put(TABLE_LAYOUT, layout(name))
    index.put(TABLE_LAYOUT, layout("c", policy="other"))
    meta = {"name": "p", "namespace": "ns", "uid": "u", "resourceVersion": "1"}
    index.put(POLICY, {"metadata": meta, "spec": {"catalogRef": {"name": "c"}}})
    index.put(CATALOG, {"metadata": {**meta, "name": "c"}, "spec": {"secretRef": {"name": "s"}}})
    job = {**meta, "name": "j", "labels": {"layout.lakehouse.dev/layout": "a"}}
    index.put(JOB, {"metadata": job, "spec": {}, "status": {"active": 1}})

    def names(found):
        return [body["metadata"]["name"] for body in found]

    assert names(index.layouts_of_policy("ns", "p")) == ["a", "b"]
    assert names(index.layouts_of_catalog("ns", "c")) == ["a", "b", "c"]
    assert names(index.policies_of_catalog("ns", "c")) == ["p"]
    assert names(index.catalogs_of_secret("ns", "s")) == ["c"]
    assert names(index.jobs("ns", "a")) == ["j"]
    assert index.layouts_of_policy("elsewhere", "p") == []
    index.put(TABLE_LAYOUT, layout("a", version="2", policy="other"))
    assert names(index.layouts_of_policy("ns", "p")) == ["b"]
    assert names(index.layouts_of_policy("ns", "other")) == ["a", "c"]


def test_a_document_of_another_version_refers_to_nothing_and_breaks_nothing():
    index = Index()
    for number, spec in enumerate(({"catalogRef": "text"}, {"catalogRef": {"name": 7}}, {}, None)):
        meta = {"name": f"p{number}", "namespace": "ns", "uid": str(number), "resourceVersion": "1"}
        index.put(POLICY, {"metadata": meta, "spec": spec})
    assert len(index.policies("ns")) == 4
    assert index.policies_of_catalog("ns", "7") == []


def test_secrets_are_versions_only():
    index = Index()
    assert index.put_secret("ns", "s", "1")
    assert not index.put_secret("ns", "s", "1")
    assert index.put_secret("ns", "s", "2")
    assert index.secret_version("ns", "s") == "2"
    assert index.remove_secret("ns", "s")
    assert not index.remove_secret("ns", "s")
    assert index.secret_version("ns", "s") is None


operations = st.lists(
    st.tuples(
        st.sampled_from(["put", "remove"]),
        st.sampled_from(["a", "b", "c"]),
        st.sampled_from(["p", "q"]),
        st.integers(1, 50),
    ),
    max_size=40,
)


@settings(max_examples=examples(100), deadline=None)
@given(operations)
def test_groups_always_agree_with_the_objects(script):
    index = Index()
    for action, name, policy, version in script:
        body = layout(name, str(version), policy=policy)
        if action == "put":
            index.put(TABLE_LAYOUT, body)
        else:
            index.remove(TABLE_LAYOUT, body)
    grouped = [
        (policy, body["metadata"]["name"])
        for policy in ("p", "q")
        for body in index.layouts_of_policy("ns", policy)
    ]
    truth = [
        (body["spec"]["policyRef"]["name"], body["metadata"]["name"]) for body in index.layouts()
    ]
    assert sorted(grouped) == sorted(truth)
    assert index.counts()["TableLayout"] == len(truth)


def test_layouts_are_found_by_a_job_that_is_not_over():
    index = Index()
    for number, phase in enumerate(("Running", "Succeeded", "Unheard", None), start=1):
        status = {} if phase is None else {"job": {"name": "tl-x", "phase": phase}}
        body = {
            "metadata": {
                "name": f"t{number}",
                "namespace": "ns",
                "uid": f"u{number}",
                "resourceVersion": str(number),
            },
            "spec": {
                "catalogRef": {"name": "c"},
                "table": {"namespace": ["a.b"], "name": f"t{number}"},
            },
            "status": status,
        }
        index.put(TABLE_LAYOUT, body)
    names = [body["metadata"]["name"] for body in index.layouts_with_job()]
    assert names == ["t1", "t3"]
    ended = {**index.layout("ns", "t1"), "status": {"job": {"name": "x", "phase": "Failed"}}}
    ended["metadata"]["resourceVersion"] = "9"
    index.put(TABLE_LAYOUT, ended)
    assert [body["metadata"]["name"] for body in index.layouts_with_job()] == ["t3"]


def test_what_no_status_speaks_of_yet_is_known():
    index = Index()
    for name, generation, observed in (("old", 3, 3), ("edited", 4, 3), ("new", 1, -1)):
        meta = {"name": name, "namespace": "ns", "uid": name, "resourceVersion": "1"}
        body = {"metadata": {**meta, "generation": generation}, "spec": {}}
        index.put(POLICY, {**body, "status": {"observedGeneration": observed}})
    assert index.unobserved(POLICY) == {("ns", "edited"), ("ns", "new")}
