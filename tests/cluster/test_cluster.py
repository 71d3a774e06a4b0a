"""The test cluster behaves as a real one where other tests rely on it and leaves nothing behind."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster import binaries, processes
from tests.cluster.cluster import API_SERVER, CONTROLLERS, KUBELET, Cluster, KubectlError
from tests.cluster.fixtures import Kubectl, eventually
from tests.cluster.pod import KILL


def job(name: str, script: str, *, image: str = "sh", **pod: Any) -> str:
    """A Job whose one container runs `script`; `pod` adds to the pod's spec or its container."""
    of_container = {"env", "envFrom", "volumeMounts", "resources", "terminationMessagePolicy"}
    container = {"name": "main", "image": image, "args": [textwrap.dedent(script)]}
    container |= {key: value for key, value in pod.items() if key in of_container}
    spec = {key: value for key, value in pod.items() if key not in of_container}
    template = {"spec": {"restartPolicy": "Never", "containers": [container], **spec}}
    return json.dumps(
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": name},
            "spec": {"backoffLimit": 0, "podReplacementPolicy": "Failed", "template": template},
        }
    )


def only_pod(kubectl: Kubectl, name: str) -> Any:
    (pod,) = json.loads(kubectl("get", "pods", "-l", f"job-name={name}", "-o", "json"))["items"]
    return pod


def state(pod: Any) -> Any:
    return pod["status"]["containerStatuses"][0]["state"]


def finished(kubectl: Kubectl, name: str, seconds: float = 60) -> Any:
    """How the container of a Job's pod ended."""

    def terminated() -> Any:
        pods = json.loads(kubectl("get", "pods", "-l", f"job-name={name}", "-o", "json"))["items"]
        statuses = [s for pod in pods for s in pod["status"].get("containerStatuses", ())]
        return statuses and statuses[0]["state"].get("terminated")

    return eventually(terminated, seconds)


def started(kubectl: Kubectl, name: str) -> str:
    """Name of the Job's pod once its log has a first line."""
    eventually(lambda: _logs(kubectl, name))
    return str(only_pod(kubectl, name)["metadata"]["name"])


def _logs(kubectl: Kubectl, name: str) -> str:
    with contextlib.suppress(KubectlError):
        return kubectl("logs", f"job/{name}")
    return ""


# Control plane


def test_the_server_is_the_pinned_version(cluster: Cluster) -> None:
    pinned = re.search(r"k8s.io/kubernetes (v\S+)", (binaries.HERE / "kube/go.mod").read_text())
    versions = json.loads(cluster.kubectl("version", "-o", "json"))
    assert pinned is not None
    assert versions["serverVersion"]["gitVersion"] == pinned[1]
    assert versions["clientVersion"]["gitVersion"] == pinned[1]


def test_a_service_account_may_do_what_its_role_says_and_no_more(
    cluster: Cluster, kubectl: Kubectl, namespace: str
) -> None:
    kubectl("create", "serviceaccount", "reader")
    kubectl("create", "role", "reader", "--verb=get,list", "--resource=configmaps")
    kubectl("create", "rolebinding", "r", "--role=reader", f"--serviceaccount={namespace}:reader")
    reader = cluster.user_kubeconfig(namespace, "reader")
    assert "kube-root-ca.crt" in kubectl("get", "configmaps", kubeconfig=reader)
    with pytest.raises(KubectlError, match=r"\(Forbidden\)"):
        kubectl("get", "secrets", kubeconfig=reader)
    with pytest.raises(KubectlError, match=r"\(Forbidden\)"):
        cluster.kubectl("get", "configmaps", "-n", "kube-system", kubeconfig=reader)
    kubectl("delete", "rolebinding", "r")
    with pytest.raises(KubectlError, match=r"\(Forbidden\)"):
        kubectl("get", "configmaps", kubeconfig=reader)


def test_requests_with_credentials_that_are_refused_are_kept(
    cluster: Cluster, kubectl: Kubectl, namespace: str
) -> None:
    stranger = cluster.user_kubeconfig(namespace, "default")
    with pytest.raises(KubectlError, match=r"\(Forbidden\)"):
        kubectl("get", "configmaps", kubeconfig=stranger)
    assert not cluster.refused(namespace)
    config = json.loads(stranger.read_text())
    config["users"][0]["user"]["token"] = "wrong"
    stranger.write_text(json.dumps(config))
    with pytest.raises(KubectlError):
        kubectl("get", "configmaps", kubeconfig=stranger)
    events = eventually(lambda: cluster.refused(namespace))
    assert {event["verb"] for event in events} <= {"get", "list"}


def test_objects_survive_an_outage_of_the_api_server(cluster: Cluster, kubectl: Kubectl) -> None:
    kubectl("create", "configmap", "kept", "--from-literal=a=b")
    cluster.stop_api_server()
    try:
        with pytest.raises(KubectlError, match="refused"):
            kubectl("get", "configmap", "kept")
    finally:
        cluster.start_api_server()
    assert kubectl("get", "configmap", "kept", "-o", "jsonpath={.data.a}") == "b"


def test_paused_controllers_make_no_pods_until_they_go_on(
    kubelet: Cluster, kubectl: Kubectl
) -> None:
    with kubelet.paused(CONTROLLERS):
        kubectl("apply", "-f", "-", stdin=job("late", "true"))
        time.sleep(1)
        assert kubectl("get", "pods", "-o", "name") == ""
    kubectl("wait", "--for=condition=Complete", "job/late", "--timeout=60s")


# Pods as processes


def test_a_job_becomes_a_process_with_volumes_environment_and_an_identity(
    kubelet: Cluster, kubectl: Kubectl, namespace: str
) -> None:
    kubectl("create", "configmap", "settings", "--from-literal=mode=quick")
    kubectl("create", "secret", "generic", "login", "--from-literal=password=hunter2")
    fields = {"POD_IP": "status.podIP", "POD_NAMESPACE": "metadata.namespace"}
    env: list[dict[str, Any]] = [
        {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}
        for name, path in fields.items()
    ]
    env += [
        {"name": "MODE", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "mode"}}},
        {"name": "SAID", "value": "$(MODE)/$(POD_NAMESPACE) $$(MODE) $(UNKNOWN)"},
        {"name": "CORES", "valueFrom": {"resourceFieldRef": {"resource": "requests.cpu"}}},
    ]
    script = """
        echo said: $SAID; echo address: $POD_IP; echo cores: $CORES
        echo secret: $(cat /etc/login/password)
        echo account: $(cat /var/run/secrets/kubernetes.io/serviceaccount/namespace)
        touch /etc/login/x 2>/dev/null || echo read-only
        echo scratch > /scratch/a/file && cat /scratch/a/file
        echo inherited: ${CI:-nothing}${VIRTUAL_ENV:-}${KUBECONFIG:-}
    """
    volumes = [
        {"name": "login", "secret": {"secretName": "login"}},
        {"name": "scratch", "emptyDir": {}},
    ]
    mounts = [
        {"name": "login", "mountPath": "/etc/login", "readOnly": True},
        {"name": "scratch", "mountPath": "/scratch/a"},
    ]
    resources = {"requests": {"cpu": "1500m"}}
    kubectl(
        "apply", "-f", "-",
        stdin=job(
            "hello", script, env=env, volumes=volumes, volumeMounts=mounts, resources=resources
        ),
    )  # fmt: skip
    kubectl("wait", "--for=condition=Complete", "job/hello", "--timeout=60s")
    address = only_pod(kubectl, "hello")["status"]["podIP"]
    assert kubectl("logs", "job/hello").splitlines() == [
        f"said: quick/{namespace} $(MODE) $(UNKNOWN)",
        f"address: {address}",
        "cores: 2",
        "secret: hunter2",
        f"account: {namespace}",
        "read-only",
        "scratch",
        "inherited: nothing",
    ]
    assert not Path("/etc/login").exists() and not Path("/scratch").exists()


def test_a_volume_hides_no_checkout_that_lies_below_its_place(
    kubelet: Cluster, kubectl: Kubectl
) -> None:
    root = Path(__file__).parents[2]
    body = json.loads(job("hidden", f"ls {root.parent}; head -c 6 {root}/pyproject.toml"))
    pod = body["spec"]["template"]["spec"]
    pod["volumes"] = [{"name": "above", "emptyDir": {}}]
    pod["containers"][0]["volumeMounts"] = [{"name": "above", "mountPath": str(root.parent)}]
    kubectl("apply", "-f", "-", stdin=json.dumps(body))
    assert finished(kubectl, "hidden")["exitCode"] == 0
    assert {root.name, "[build"} <= set(kubectl("logs", "job/hidden").split())


def test_logs_are_followed_to_the_last_line(kubelet: Cluster, kubectl: Kubectl) -> None:
    script = "for i in 1 2 3; do echo line $i; sleep 0.4; done; echo end"
    kubectl("apply", "-f", "-", stdin=job("talk", script))
    started(kubectl, "talk")
    assert kubectl("logs", "-f", "job/talk").splitlines() == ["line 1", "line 2", "line 3", "end"]
    assert kubectl("logs", "--tail=1", "job/talk") == "end\n"


def test_a_stopping_pod_may_use_its_grace_for_a_last_step(
    kubelet: Cluster, kubectl: Kubectl
) -> None:
    script = "trap 'sleep 1; echo committed > /dev/termination-log; exit 3' TERM\n"
    script += "echo ready; while :; do sleep 0.1; done"
    kubectl("apply", "-f", "-", stdin=job("careful", script, terminationGracePeriodSeconds=120))
    name = started(kubectl, "careful")
    with subprocess.Popen(
        [str(kubelet.programs / "kubectl"), "get", "pod", name, "-w", "-o", "json",
         "-n", only_pod(kubectl, "careful")["metadata"]["namespace"]],
        env=kubelet.environment(), stdout=subprocess.PIPE, text=True,
    ) as watch:  # fmt: skip
        assert watch.stdout is not None
        kubectl("delete", "pod", name, "--wait=true", "--timeout=60s")
        watch.terminate()
        seen = _json_objects(watch.stdout.read())
    ends = [state(pod)["terminated"] for pod in seen if "terminated" in state(pod)]
    assert ends[-1]["exitCode"] == 3
    assert ends[-1]["message"] == "committed\n"
    assert seen[-1]["status"]["phase"] == "Failed"


def _json_objects(text: str) -> list[Any]:
    decoder, at, found = json.JSONDecoder(), 0, []
    while at < len(text.rstrip()):
        value, at = decoder.raw_decode(text, at)
        found.append(value)
        at += len(text[at:]) - len(text[at:].lstrip())
    return found


def test_a_pod_that_does_not_listen_is_killed_after_its_grace(
    kubelet: Cluster, kubectl: Kubectl
) -> None:
    script = "trap '' TERM; echo ready; while :; do sleep 0.1; done"
    kubectl("apply", "-f", "-", stdin=job("deaf", script, terminationGracePeriodSeconds=1))
    name = started(kubectl, "deaf")
    kubectl("delete", "pod", name, "--wait=true", "--timeout=60s")


def test_the_end_of_a_pod_ends_what_it_started(
    kubelet: Cluster, kubectl: Kubectl, tmp_path: Path
) -> None:
    alive = tmp_path / "alive"
    script = f"(while :; do touch {alive}; sleep 0.05; done) & sleep 0.3; echo done"
    kubectl("apply", "-f", "-", stdin=job("parent", script))
    kubectl("wait", "--for=condition=Complete", "job/parent", "--timeout=60s")
    alive.unlink()
    time.sleep(0.3)
    assert not alive.exists()


@pytest.mark.parametrize(
    ("script", "policy", "code", "message"),
    [
        ("echo one line > /dev/termination-log; exit 7", "File", 7, "one line\n"),
        ("echo from the log; exit 1", "FallbackToLogsOnError", 1, "from the log\n"),
        ("echo from the log; exit 1", "File", 1, None),
        ("kill -9 $$", "File", 137, None),
    ],
)
def test_the_pod_shows_how_a_container_ended(
    kubelet: Cluster, kubectl: Kubectl, script: str, policy: str, code: int, message: str | None
) -> None:
    kubectl("apply", "-f", "-", stdin=job("end", script, terminationMessagePolicy=policy))
    end = finished(kubectl, "end")
    assert (end["exitCode"], end["reason"], end.get("message")) == (code, "Error", message)
    kubectl("wait", "--for=condition=Failed", "job/end", "--timeout=60s")


def test_a_pod_can_be_made_to_run_out_of_memory(kubelet: Cluster, kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=job("greedy", "echo ready; sleep 60"))
    kubectl("annotate", "pod", started(kubectl, "greedy"), f"{KILL}=OOM")
    end = finished(kubectl, "greedy")
    assert (end["exitCode"], end["reason"]) == (137, "OOMKilled")


def test_an_image_that_does_not_exist_keeps_the_pod_waiting(
    kubelet: Cluster, kubectl: Kubectl
) -> None:
    kubectl("apply", "-f", "-", stdin=job("nowhere", "true", image="registry.example/none:1"))

    def reason() -> bool:
        return bool(waiting(kubectl, "nowhere").get("reason") == "ErrImagePull")

    eventually(reason)
    assert only_pod(kubectl, "nowhere")["status"]["phase"] == "Pending"
    kubectl("delete", "job", "nowhere", "--cascade=foreground", "--timeout=60s")


def waiting(kubectl: Kubectl, name: str) -> Any:
    pods = json.loads(kubectl("get", "pods", "-l", f"job-name={name}", "-o", "json"))["items"]
    found = [status for pod in pods for status in pod["status"].get("containerStatuses", ())]
    return found[0]["state"].get("waiting", {}) if found else {}


def test_a_missing_secret_keeps_the_pod_waiting_until_it_is_there(
    kubelet: Cluster, kubectl: Kubectl
) -> None:
    source = {"secretKeyRef": {"name": "later", "key": "word"}}
    kubectl(
        "apply", "-f", "-",
        stdin=job("env", "echo $WORD", env=[{"name": "WORD", "valueFrom": source}]),
    )  # fmt: skip
    volume = {"name": "later", "secret": {"secretName": "later"}}
    mount = {"name": "later", "mountPath": "/etc/later"}
    kubectl(
        "apply", "-f", "-",
        stdin=job("volume", "cat /etc/later/word", volumes=[volume], volumeMounts=[mount]),
    )  # fmt: skip
    eventually(lambda: waiting(kubectl, "env").get("reason") == "CreateContainerConfigError")
    assert '"later"' in waiting(kubectl, "env")["message"]
    eventually(lambda: waiting(kubectl, "volume").get("reason") == "ContainerCreating")
    eventually(lambda: "FailedMount" in kubectl("get", "events"))
    kubectl("create", "secret", "generic", "later", "--from-literal=word=hello")
    for name in ("env", "volume"):
        kubectl("wait", "--for=condition=Complete", f"job/{name}", "--timeout=60s")
        assert kubectl("logs", f"job/{name}").strip() == "hello"


def test_a_pod_that_asks_for_more_than_the_node_has_is_unschedulable(
    kubelet: Cluster, kubectl: Kubectl
) -> None:
    kubectl("apply", "-f", "-", stdin=job("big", "true", resources={"requests": {"cpu": "1000"}}))

    def unschedulable() -> bool:
        pods = json.loads(kubectl("get", "pods", "-o", "json"))["items"]
        conditions = [c for pod in pods for c in pod["status"].get("conditions", ())]
        return any(
            c["reason"] == "Unschedulable" and "Insufficient cpu" in c["message"]
            for c in conditions
        )

    eventually(unschedulable)


def test_a_deployment_restarts_what_fails_and_is_rolled_back_to_nothing(
    kubelet: Cluster, kubectl: Kubectl, tmp_path: Path
) -> None:
    mark = tmp_path / "second"
    script = f"if [ -e {mark} ]; then echo second; sleep 600; fi; touch {mark}; echo first; exit 1"
    labels = {"app": "restarting"}
    container = {"name": "main", "image": "sh", "args": [script]}
    template = {
        "metadata": {"labels": labels},
        "spec": {"containers": [container], "terminationGracePeriodSeconds": 1},
    }
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "d"},
        "spec": {"selector": {"matchLabels": labels}, "template": template},
    }
    kubectl("apply", "-f", "-", stdin=json.dumps(deployment))

    def restarted() -> bool:
        pods = json.loads(kubectl("get", "pods", "-o", "json"))["items"]
        statuses = [s for pod in pods for s in pod["status"].get("containerStatuses", ())]
        return any(status["restartCount"] == 1 and status["ready"] for status in statuses)

    eventually(restarted)
    assert kubectl("logs", "deployment/d") == "second\n"
    assert kubectl("logs", "deployment/d", "--previous") == "first\n"
    kubectl("delete", "deployment", "d", "--cascade=foreground", "--timeout=60s")
    assert kubectl("get", "pods", "-o", "name") == ""


def test_a_finished_job_is_removed_after_its_time_to_live(
    kubelet: Cluster, kubectl: Kubectl
) -> None:
    short = json.loads(job("short", "true"))
    short["spec"]["ttlSecondsAfterFinished"] = 1
    kubectl("apply", "-f", "-", stdin=json.dumps(short))
    kubectl("wait", "--for=delete", "job/short", "--timeout=60s")
    eventually(lambda: kubectl("get", "pods", "-o", "name") == "")


def test_pods_run_on_through_an_outage_and_report_after_it(
    kubelet: Cluster, kubectl: Kubectl
) -> None:
    kubectl("apply", "-f", "-", stdin=job("steady", "echo ready; sleep 2; echo done"))
    started(kubectl, "steady")
    kubelet.stop_api_server()
    time.sleep(2.5)
    kubelet.start_api_server()
    kubectl("wait", "--for=condition=Complete", "job/steady", "--timeout=60s")
    assert kubectl("logs", "job/steady").splitlines() == ["ready", "done"]


# Nothing left running


@pytest.fixture
def other_cluster(cluster: Cluster) -> Iterator[tuple[subprocess.Popen[str], str, set[int]]]:
    """A second cluster with a pod that runs, as its own program: (owner, KUBECONFIG, all pids)."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.cluster"],
        stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2],
    ) as owner:  # fmt: skip
        try:
            assert owner.stdout is not None
            config = owner.stdout.readline().strip().partition("=")[2]
            owner.stdout.readline()
            cluster.kubectl(
                "apply", "-f", "-", stdin=job("long", "sleep 604800 & sleep 604800"),
                kubeconfig=Path(config),
            )  # fmt: skip
            eventually(lambda: _descendant_called("sleep", owner.pid))
            yield owner, config, descendants(owner.pid)
        finally:
            owner.kill()


def descendants(root: int) -> set[int]:
    """Processes below `root`, as they are now."""
    parents = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = entry.read_text().rpartition(")")[2].split()
            parents[int(entry.parent.name)] = int(fields[1])
    found = {root}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {root}


def _descendant_called(name: str, root: int) -> bool:
    names = []
    for pid in descendants(root):
        with contextlib.suppress(OSError):
            names.append(Path(f"/proc/{pid}/comm").read_text().strip())
    return names.count(name) >= 2


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=["stopped", "killed"])
def test_nothing_is_left_running_when_the_owner_is(
    other_cluster: tuple[subprocess.Popen[str], str, set[int]], number: signal.Signals
) -> None:
    owner, config, pids = other_cluster
    assert len(pids) >= 7  # etcd, server, controllers, unshare, kubelet, and the pod's
    owner.send_signal(number)
    owner.wait(60)
    eventually(lambda: not [pid for pid in pids if processes.running(pid)])
    assert Path(config).exists() == (number == signal.SIGKILL)


def test_stopping_the_node_ends_its_pods_and_a_new_one_reports_them_lost(
    kubelet: Cluster, kubectl: Kubectl
) -> None:
    kubectl("apply", "-f", "-", stdin=job("lost", "echo ready; sleep 604800"))
    started(kubectl, "lost")
    pods = descendants(kubelet.processes[KUBELET].pid)
    kubelet.stop_kubelet()
    assert not [pid for pid in pods if processes.running(pid)]
    assert "running" in state(only_pod(kubectl, "lost"))
    kubelet.start_kubelet()
    assert finished(kubectl, "lost")["reason"] == "ContainerStatusUnknown"


def test_logs_of_the_programs_are_kept_apart(cluster: Cluster) -> None:
    assert os.access(cluster.directory / f"{API_SERVER}.log", os.R_OK)
    assert (cluster.directory / f"{CONTROLLERS}.log").stat().st_size > 0
