"""The operator's frame on a real API server: watches, queue, lease, outages, and its silence."""

from __future__ import annotations

import asyncio
import json
import threading
import time
import urllib.error
import urllib.request

import pytest
from kopf._cogs.clients import watching

from reconciler.errors import UserError
from reconciler.kube.api import Api
from reconciler.kube.kinds import CATALOG, JOB, POLICY, TABLE_LAYOUT
from reconciler.operator.process.main import run
from reconciler.operator.process.probes import Pages
from reconciler.operator.settings import OperatorSettings
from reconciler.operator.work import Key, Result
from tests.cluster.processes import free_port
from tests.operator.cluster_objects import (
    Recorder,
    catalog,
    layout,
    operator,
    policy,
    settled,
    until,
)
from tests.operator.scene import ACCOUNT, make_account

LAYOUT = "sales.lineitem-7k2m5qd4xz"


@pytest.fixture(scope="session")
def crds(cluster):
    cluster.install_crds()
    return cluster


@pytest.fixture
def api(crds) -> Api:
    return Api.from_environment(str(crds.kubeconfig))


def settings(crds, namespace: str, **more) -> OperatorSettings:
    return OperatorSettings(
        namespaces=(namespace,),
        namespace=namespace,
        kubeconfig=str(crds.kubeconfig),
        **{"metrics_port": 0, "health_port": 0, "secret_interval": 1.0, **more},
    )


def test_changes_reconcile_their_object_once_and_own_status_writes_do_not(
    crds, api, namespace, kubectl
):
    recorder = Recorder()
    api.create(CATALOG, namespace, catalog())
    api.create(POLICY, namespace, policy())
    with operator(settings(crds, namespace), recorder):
        until(lambda: recorder.count("policy", "sales") and recorder.count("catalog"))
        api.create(TABLE_LAYOUT, namespace, layout())
        until(lambda: recorder.count("layout", LAYOUT))
        before = settled(
            lambda: (recorder.count("layout", LAYOUT), recorder.count("policy", "sales"))
        )

        read = api.get(TABLE_LAYOUT, namespace, LAYOUT)
        status = {"observedGeneration": 1, "lastAppliedPlan": "p-3f9a1c0b77de4c21a0be"}
        version = read["metadata"]["resourceVersion"]
        api.put_status(TABLE_LAYOUT, namespace, LAYOUT, status, version)
        until(lambda: recorder.count("policy", "sales") == before[1] + 1)
        assert recorder.count("layout", LAYOUT) == before[0], "its own status made it due"

        kubectl("annotate", "tl", LAYOUT, "layout.lakehouse.dev/requestedAt=now")
        until(lambda: recorder.count("layout", LAYOUT) == before[0] + 1)
        patch = '{"spec": {"approvedPlan": "p-3f9a1c0b77de4c21a0be"}}'
        kubectl("patch", "tl", LAYOUT, "--type=merge", "-p", patch)
        until(lambda: recorder.count("layout", LAYOUT) == before[0] + 2)
        kubectl("delete", "tl", LAYOUT)
        until(lambda: recorder.count("layout", LAYOUT) == before[0] + 3)
        assert recorder.runtime.index.layout(namespace, LAYOUT) is None


def test_the_watches_write_nothing_to_any_object(crds, api, namespace):
    recorder = Recorder()
    api.create(CATALOG, namespace, catalog())
    api.create(POLICY, namespace, policy())
    api.create(TABLE_LAYOUT, namespace, layout())
    before = [
        api.get(CATALOG, namespace, "warehouse"),
        api.get(POLICY, namespace, "sales"),
        api.get(TABLE_LAYOUT, namespace, LAYOUT),
    ]
    with operator(settings(crds, namespace), recorder):
        until(lambda: recorder.count("layout"))
        time.sleep(3)
        calls = recorder.calls()
    after = [
        api.get(CATALOG, namespace, "warehouse"),
        api.get(POLICY, namespace, "sales"),
        api.get(TABLE_LAYOUT, namespace, LAYOUT),
    ]
    assert after == before
    written = {plural for verb, plural in calls if verb not in ("get", "list")}
    assert written <= {"leases"}


def test_job_end_secret_change_and_catalog_recovery_are_triggers(crds, api, namespace, kubectl):
    recorder = Recorder()
    kubectl("create", "secret", "generic", "credentials", "--from-literal=password=one")
    api.create(CATALOG, namespace, catalog(secretRef={"name": "credentials"}))
    api.create(POLICY, namespace, policy())
    api.create(TABLE_LAYOUT, namespace, layout())
    with operator(settings(crds, namespace), recorder):
        until(lambda: recorder.count("layout") and recorder.count("catalog"))
        kinds = ("layout", "launch", "catalog")
        start = settled(lambda: [recorder.count(kind) for kind in kinds])
        job = {
            "metadata": {"name": "tl-x", "labels": {"layout.lakehouse.dev/layout": LAYOUT}},
            "spec": {
                "suspend": True,
                "template": {
                    "spec": {
                        "restartPolicy": "Never",
                        "containers": [{"name": "main", "image": "sh", "args": ["true"]}],
                    }
                },
            },
        }
        api.create(JOB, namespace, job)
        until(lambda: recorder.count("layout") > start[0] and recorder.count("launch") > start[1])
        assert len(recorder.runtime.index.jobs(namespace, LAYOUT)) == 1
        api.delete(JOB, namespace, "tl-x")
        until(lambda: not recorder.runtime.index.jobs(namespace, LAYOUT))

        patch = '{"stringData": {"password": "two"}}'
        kubectl("patch", "secret", "credentials", "--type=merge", "-p", patch)
        until(lambda: recorder.count("catalog") > start[2])

        layouts = settled(lambda: recorder.count("layout"), 3)
        read = api.get(CATALOG, namespace, "warehouse")
        condition = {
            "type": "Ready",
            "status": "True",
            "reason": "CatalogReachable",
            "message": "it answers",
            "lastTransitionTime": "2026-11-20T10:00:00Z",
        }
        api.put_status(
            CATALOG,
            namespace,
            "warehouse",
            {"observedGeneration": 1, "conditions": [condition]},
            read["metadata"]["resourceVersion"],
        )
        until(lambda: recorder.count("layout") > layouts)
        assert ("get", "secrets") in recorder.calls()
        assert "two" not in json.dumps(recorder.runtime.index.catalogs(namespace))


def test_of_two_operators_one_works_and_the_other_takes_over(crds, api, namespace):
    first, second = Recorder(), Recorder()
    api.create(POLICY, namespace, policy())
    with operator(settings(crds, namespace, identity="second"), second) as waiting:
        until(lambda: second.count("policy"))
        with operator(settings(crds, namespace, identity="first"), first):
            until(lambda: first.runtime is not None)
            time.sleep(4)
            assert not first.keys
            waiting.end()
            assert waiting.clean is True
            until(lambda: first.count("policy"))


def test_an_api_server_restart_loses_nothing(crds, api, namespace):
    recorder = Recorder(lambda key: Result(due=time.time() + 1))
    api.create(POLICY, namespace, policy())
    api.create(POLICY, namespace, policy("doomed"))
    with operator(settings(crds, namespace), recorder):
        until(lambda: recorder.count("policy", "doomed"))
        crds.stop_api_server()
        time.sleep(1)
        crds.start_api_server()
        api.create(POLICY, namespace, policy("later"))
        api.delete(POLICY, namespace, "doomed")
        until(lambda: recorder.count("policy", "later"))
        until(lambda: recorder.runtime.index.policy(namespace, "doomed") is None)


def test_revoked_rights_stop_the_watches_and_their_return_repairs_what_was_missed(
    crds, api, namespace, kubectl
):
    kubectl("create", "serviceaccount", "operator")
    account = f"system:serviceaccount:{namespace}:operator"
    token = kubectl("create", "token", "operator").strip()
    kubectl(
        "create",
        "rolebinding",
        "op",
        "--clusterrole=admin",
        f"--serviceaccount={namespace}:operator",
    )
    rules = (
        "create", "role", "op", "--verb=*",
        "--resource=*.layout.lakehouse.dev,jobs.batch,pods,leases.coordination.k8s.io",
    )  # fmt: skip
    kubectl(*rules)
    kubectl("create", "rolebinding", "own", "--role=op", f"--user={account}")
    kubeconfig = crds.directory / f"{namespace}.kubeconfig"
    crds.kubectl("config", "set-cluster", "c", f"--server={crds.url}",
                 f"--certificate-authority={crds.ca}", f"--kubeconfig={kubeconfig}")  # fmt: skip
    crds.kubectl("config", "set-credentials", "u", f"--token={token}", f"--kubeconfig={kubeconfig}")
    crds.kubectl("config", "set-context", "x", "--cluster=c", "--user=u",
                 f"--namespace={namespace}", f"--kubeconfig={kubeconfig}")  # fmt: skip
    crds.kubectl("config", "use-context", "x", f"--kubeconfig={kubeconfig}")
    api.create(POLICY, namespace, policy())
    recorder = Recorder()
    own = settings(crds, namespace)
    with operator(OperatorSettings(**{**_fields(own), "kubeconfig": str(kubeconfig)}), recorder):
        until(lambda: recorder.count("policy", "sales"))
        kubectl("delete", "rolebinding", "own")
        kubectl("delete", "rolebinding", "op")
        crds.stop_api_server()
        crds.start_api_server()
        api.delete(POLICY, namespace, "sales")
        api.create(POLICY, namespace, policy("later"))
        time.sleep(5)
        assert not recorder.count("policy", "later")
        kubectl("create", "rolebinding", "own", "--role=op", f"--user={account}")
        until(lambda: recorder.count("policy", "later"))
        until(lambda: recorder.runtime.index.policy(namespace, "sales") is None)


def test_a_deletion_before_the_watches_list_anew_is_noticed(crds, api, namespace, monkeypatch):
    """A server that restarted no longer knows the version to go on from; the lease outlasts it."""
    gone = {"type": "ERROR", "object": {"code": 410}}
    heard, deaf = watching.watch_objs, threading.Event()

    async def watch_objs(**asked):
        if deaf.is_set():
            await asyncio.sleep(0.1)
            return
        stream = heard(**asked)
        async for event in stream:
            if deaf.is_set():
                await stream.aclose()
                break
            yield event
        while deaf.is_set():
            await asyncio.sleep(0.1)
        yield gone

    monkeypatch.setattr(watching, "watch_objs", watch_objs)
    api.create(POLICY, namespace, policy())
    api.create(POLICY, namespace, policy("second"))
    recorder = Recorder()
    with operator(settings(crds, namespace, relist=86_400.0), recorder):
        until(lambda: recorder.count("policy", "sales"))
        # The listings of the start, and what is repaired after them.
        before = settled(lambda: recorder.count("policy", "sales"), 3)
        deaf.set()
        api.delete(POLICY, namespace, "second", propagation="Background")
        time.sleep(2)
        api.delete(POLICY, namespace, "sales", propagation="Background")
        deaf.clear()
        until(lambda: recorder.runtime.index.policy(namespace, "sales") is None)
        until(lambda: recorder.count("policy", "sales") > before)


def test_watches_that_are_refused_wait_for_a_new_token_and_see_again(crds, api, namespace, kubectl):
    make_account(crds, namespace)
    kubeconfig = crds.user_kubeconfig(namespace, ACCOUNT)

    def renew() -> None:
        kubectl("create", "secret", "generic", "bound")
        bound = ("--bound-object-kind=Secret", "--bound-object-name=bound")
        config = json.loads(kubeconfig.read_text())
        config["users"][0]["user"]["token"] = kubectl("create", "token", ACCOUNT, *bound).strip()
        kubeconfig.write_text(json.dumps(config))

    renew()
    api.create(POLICY, namespace, policy())
    recorder = Recorder()
    own = settings(crds, namespace, relist=86_400.0)
    health = free_port()
    changed = {"kubeconfig": str(kubeconfig), "health_port": health}
    with operator(OperatorSettings(**{**_fields(own), **changed}), recorder):
        until(lambda: _page(health, "/readyz")[0] == 200)
        # A token ends with what it is bound to, once the server's memory of it has faded.
        kubectl("delete", "secret", "bound")
        until(lambda: crds.refused(namespace))
        crds.stop_api_server()  # and with it the watches that were opened before
        crds.start_api_server()
        until(lambda: "watches are not running" in _page(health, "/readyz")[1])
        before = len(crds.refused(namespace))
        time.sleep(5)
        assert len(crds.refused(namespace)) - before < 50
        renew()
        until(lambda: _page(health, "/readyz")[0] == 200)
        until(lambda: recorder.runtime.held())
        time.sleep(3)
        api.create(POLICY, namespace, policy("later"))
        until(lambda: recorder.count("policy", "later"))


def _fields(value: OperatorSettings) -> dict:
    return {name: getattr(value, name) for name in value.__dataclass_fields__}


def test_probes_metrics_and_events_answer(crds, api, namespace, tmp_path):
    recorder = Recorder()
    api.create(POLICY, namespace, policy())
    api.create(CATALOG, namespace, catalog())
    api.create(TABLE_LAYOUT, namespace, layout())
    metrics, health, events = free_port(), free_port(), free_port()
    ports = {"metrics_port": metrics, "health_port": health, "events_port": events}
    token = tmp_path / "token"
    token.write_text("t")
    with operator(settings(crds, namespace, events_token_file=str(token), **ports), recorder):
        until(lambda: recorder.count("policy") and recorder.count("layout", LAYOUT))
        before = recorder.count("layout", LAYOUT)
        until(lambda: _sent(events, "sales.lineitem") == 202)
        until(lambda: recorder.count("layout", LAYOUT) > before)
        until(lambda: _page(health, "/readyz")[0] == 200)
        assert _page(health, "/healthz") == (200, "ok\n")
        text = until(lambda: _page(metrics, "/metrics")[1])
    assert 'layout_objects{kind="TableLayoutPolicy"} 1.0' in text
    assert 'layout_events_total{result="taken"} 1.0' in text
    assert "layout_leader 1.0" in text
    assert 'layout_reconcile_duration_seconds_count{kind="policy",result="success"}' in text


def _sent(port: int, table: str) -> int:
    event = {"specversion": "1.0", "id": "1", "source": "s", "type": "t", "subject": table}
    headers = {"Authorization": "Bearer t", "Content-Type": "application/cloudevents+json"}
    place = f"http://127.0.0.1:{port}/events"
    request = urllib.request.Request(place, json.dumps(event).encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=5) as answer:
            return answer.status
    except OSError:
        return 0


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_lease_that_is_no_longer_renewed_asks_for_a_restart(crds, api, namespace, monkeypatch):
    monkeypatch.setattr("reconciler.operator.process.main.STUCK_SECONDS", 8.0)
    health = free_port()
    with operator(settings(crds, namespace, health_port=health), Recorder()):
        until(lambda: _page(health, "/readyz")[0] == 200)
        monkeypatch.setattr("reconciler.kube.leader.LeaderLease.attempt", _break)
        until(lambda: _page(health, "/healthz") == (503, "lease is stuck\n"))


def _break(self) -> bool:
    raise RuntimeError("as no caller foresaw")


def _page(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except OSError:
        return 0, ""


def test_a_failing_reconcile_backs_off_and_the_others_go_on(crds, api, namespace):
    tried: list[float] = []

    def answer(key: Key) -> Result:
        if key.name == "bad":
            tried.append(time.monotonic())
            raise RuntimeError("broken")
        return Result()

    recorder = Recorder(answer)
    api.create(POLICY, namespace, policy("bad"))
    with operator(settings(crds, namespace), recorder):
        until(lambda: len(tried) >= 4)
        assert tried[3] - tried[0] > 1 + 2 + 4 - 1, "the back-off doubles"
        api.create(POLICY, namespace, policy("good"))
        until(lambda: recorder.count("policy", "good"))


def test_a_port_in_use_is_reported_and_nothing_starts(crds, namespace):
    taken = Pages(0, {})
    try:
        with pytest.raises(UserError, match=f"port {taken.port}"):
            run(settings(crds, namespace, health_port=taken.port), Recorder().build)
    finally:
        taken.stop()
