"""Two bounds of time, waited for in real time: the life of the operator's token, and how long a
TableLayout waits for a job that does not end.

`python -m bench.long_waits [NAME ...]` plays all of it at once, or what is named, on two clusters,
in some twenty minutes of mostly waiting; it prints one line each and writes all of them to
bench/RESULTS.md. The token is that of an operator in a pod, of the least life that an API server
grants, and it really expires. The job belongs to a node that no longer answers: its driver, a real
one that was stopped, can neither be stopped nor be seen to have stopped.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import datetime as dt
import json
import signal
import ssl
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from bench.cluster_faults import CONVERGES, OK, in_commit, result_row, staged, started
from bench.results import write_section
from reconciler.kube.connection import SERVICE_ACCOUNT
from reconciler.kube.kinds import TABLE_LAYOUT
from reconciler.operator.launch.job_manifest import GRACE_SECONDS
from reconciler.operator.layout.job_checks import FINALIZER_BOUND
from reconciler.operator.process.watch import SERVER_SECONDS
from tests.cluster.cluster import KUBELET, Cluster
from tests.cluster.pod import KEEP_TOKENS
from tests.operator.scene import (
    ACCOUNT,
    RECONCILES,
    ROOT,
    STAND_IN,
    Driver,
    Operator,
    Scene,
    cache,
    eventually,
    flags,
    make_account,
    metric,
)

TOKEN_SECONDS = 600
"""The least that an API server grants."""
LEEWAY_SECONDS = 60
"""For which it goes on accepting a token that has expired, since clocks differ."""
LATE_SECONDS = SERVER_SECONDS + 60.0
"""Until the last watch that was opened with the token has ended, and a while."""
MOST_REFUSALS = 1.0
"""Requests a second of an operator whose token is refused."""
LATE_BY = 30.0
"""What a deletion may take beyond its bound."""
LOOK_SECONDS = 1.0
CPU = "process_cpu_seconds_total"
OPERATOR_IMAGE, DRIVER_IMAGE = "operator:test", "driver:stand-in"


# The token


@dataclass(frozen=True)
class OperatorPod:
    """`layoutctl operator` in a pod of the node, with a token of ten minutes."""

    stage: Scene
    name: str
    uid: str
    port: int

    @property
    def directory(self) -> Path:
        return self.stage.cluster.directory / "pods" / self.uid

    def token(self) -> str:
        return (self.directory / "volumes" / "account" / "token").read_text()

    def log(self) -> str:
        return (self.directory / "0.log").read_text(errors="replace")

    def refused(self) -> int:
        """Requests of it that the API server has refused for their token."""
        return len(self.stage.cluster.refused(self.stage.namespace))

    def check(self) -> None:
        """The process that was started runs, and nothing happened that it had not foreseen."""
        body = json.loads(self.stage.kubectl("get", "pod", self.name, "-o", "json"))
        (container,) = body["status"]["containerStatuses"]
        assert container["restartCount"] == 0 and "running" in container["state"], container
        assert "Traceback" not in self.log(), self.log()[-4000:]
        assert not self.stage.watchman.problems, self.stage.watchman.problems


def start_in_pod(stage: Scene, **annotations: str) -> OperatorPod:
    make_account(stage.cluster, stage.namespace)
    options = stage.settings(image=DRIVER_IMAGE)
    body = json.dumps(_pod(stage, options, annotations))
    uid = stage.kubectl("create", "-o", "jsonpath={.metadata.uid}", "-f", "-", stdin=body)
    return OperatorPod(stage, ACCOUNT, uid, int(options["metrics-port"]))


def _pod(
    stage: Scene, options: Mapping[str, str], annotations: Mapping[str, str]
) -> dict[str, Any]:
    """The token is projected as for any pod, but for its life."""
    account = [
        {"serviceAccountToken": {"path": "token", "expirationSeconds": TOKEN_SECONDS}},
        {"configMap": {"name": "kube-root-ca.crt"}},
        {
            "downwardAPI": {
                "items": [{"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}]
            }
        },
    ]
    container = {
        "name": "operator",
        "image": OPERATOR_IMAGE,
        "args": ["operator", *flags(options)],
        "env": [{"name": "LAYOUTCTL_CACHE", "value": str(cache(stage.lake.directory))}],
        "volumeMounts": [{"name": "account", "mountPath": str(SERVICE_ACCOUNT), "readOnly": True}],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": ACCOUNT, "annotations": dict(annotations)},
        "spec": {
            "serviceAccountName": ACCOUNT,
            "containers": [container],
            "volumes": [{"name": "account", "projected": {"sources": account}}],
        },
    }


def waits_for_refusal(cluster: Cluster, token: str) -> float:
    """Until the API server no longer accepts the token; how old it was then, in seconds."""
    issued, expires = (_claims(token)[name] for name in ("iat", "exp"))
    assert expires - issued == TOKEN_SECONDS, (issued, expires)
    time.sleep(max(0.0, expires - time.time()))
    seconds = LEEWAY_SECONDS + 60.0
    eventually(lambda: not _accepts(cluster, token), seconds, "the token is refused", LOOK_SECONDS)
    return time.time() - issued


def _claims(token: str) -> dict[str, int]:
    text = token.split(".")[1]
    found: dict[str, int] = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    return found


def _accepts(cluster: Cluster, token: str) -> bool:
    headers = {"Authorization": f"Bearer {token}"}
    request = urllib.request.Request(f"{cluster.url}/version", headers=headers)
    context = ssl.create_default_context(cafile=str(cluster.ca))
    try:
        urllib.request.urlopen(request, context=context, timeout=10).close()
    except urllib.error.HTTPError as error:
        return error.code != 401
    return True


def token_renewed(stage: Scene) -> str:
    """The node renews the file in time. The operator's watches were opened with the first token
    and are opened anew after at most five minutes, when that is refused."""
    pod = start_in_pod(stage)
    stage.apply(approval={"mode": "Manual"})
    stage.waits_for("AwaitingApproval")
    first = pod.token()
    age = waits_for_refusal(stage.cluster, first)
    assert pod.token() != first, "the node has not renewed it"
    reconciles = metric(pod.port, RECONCILES)
    time.sleep(SERVER_SECONDS + 30)
    made = metric(pod.port, RECONCILES) - reconciles
    assert made > 0, pod.log()[-4000:]
    stage.approve()
    seconds = _reacts(stage)
    pod.check()
    return (
        f"first token refused at {age:.0f} s; in the {SERVER_SECONDS + 30} s after that "
        f"{made:.0f} reconciles, and {pod.refused()} requests refused since the start; {seconds}"
    )


def token_renewed_late(stage: Scene) -> str:
    """The node does not renew it: the operator can do nothing, and does little, its watches too."""
    pod = start_in_pod(stage, **{KEEP_TOKENS: "true"})
    stage.apply(approval={"mode": "Manual"})
    stage.waits_for("AwaitingApproval")
    age = waits_for_refusal(stage.cluster, pod.token())
    said = "does not accept the credentials"
    eventually(lambda: said in pod.log(), 60, "the operator is refused", LOOK_SECONDS)
    stage.approve()  # nobody may act on it now
    before = pod.refused(), metric(pod.port, RECONCILES), metric(pod.port, CPU)
    time.sleep(LATE_SECONDS)
    after = pod.refused(), metric(pod.port, RECONCILES), metric(pod.port, CPU)
    refused, made, cpu = (now - then for then, now in zip(before, after, strict=True))
    assert 0 < refused <= MOST_REFUSALS * LATE_SECONDS, f"{refused} refused"
    assert not stage.jobs()
    stage.kubectl("annotate", "pod", pod.name, f"{KEEP_TOKENS}-")
    seconds = _reacts(stage)
    pod.check()
    return (
        f"token refused at {age:.0f} s and renewed {LATE_SECONDS:.0f} s later; in these "
        f"{refused} requests refused, {made:.0f} reconciles, {cpu:.1f} s of CPU; {seconds}"
    )


def _reacts(stage: Scene) -> str:
    """What was approved is run, and what is suspended stops: it writes, and its watches live."""
    began = time.monotonic()
    stage.driver(seconds=180)
    runs = time.monotonic() - began
    (layout,) = stage.api.list(TABLE_LAYOUT, stage.namespace)
    body = json.dumps({"spec": {"suspend": True}})
    name = layout["metadata"]["name"]
    stage.kubectl("patch", "tl", name, "--type=merge", "-p", body)
    asked = time.monotonic()
    stage.waits_for("Suspended", 60)
    stops = time.monotonic() - asked
    eventually(lambda: not stage.living(), 60, "the job has stopped")
    return f"an approval ran after {runs:.1f} s, a suspension was reported after {stops:.1f} s"


# The node that is lost


class Node:
    """The one node of a cluster, lost and back when everybody of `parties` says so."""

    def __init__(self, cluster: Cluster, parties: int):
        stack = ExitStack()
        self._lost = threading.Barrier(
            parties, action=lambda: stack.enter_context(cluster.paused(KUBELET))
        )
        self._back = threading.Barrier(parties, action=stack.close)
        self._stack = stack

    def lost(self) -> None:
        self._lost.wait()

    def back(self) -> None:
        self._back.wait()

    @contextmanager
    def shared(self) -> Iterator[None]:
        """Who fails frees the others and the node."""
        try:
            yield
        except threading.BrokenBarrierError as error:
            raise AssertionError("another one on this node has failed") from error
        except BaseException:
            self._lost.abort()
            self._back.abort()
            self._stack.close()
            raise


def driver_at_work(stage: Scene) -> tuple[Operator, Driver]:
    operator = stage.operator()
    stage.apply()
    driver = stage.driver()
    driver.reaches("start")
    return operator, driver


def waits_for_bound(stage: Scene, operator: Operator, driver: Driver) -> str:
    """Until the TableLayout that is being deleted is gone; it is not before its bound."""
    (layout,) = eventually(lambda: _deleted(stage), 60, "the TableLayout is being deleted")
    uid, asked = layout["metadata"]["uid"], layout["metadata"]["deletionTimestamp"]
    since = dt.datetime.fromisoformat(asked).timestamp()
    before = metric(operator.port, RECONCILES)

    def gone() -> bool:
        now = stage.api.list(TABLE_LAYOUT, stage.namespace)
        return all(item["metadata"]["uid"] != uid for item in now)

    bound = FINALIZER_BOUND.total_seconds()
    eventually(gone, bound + LATE_BY, "the TableLayout is gone", LOOK_SECONDS)
    seconds = time.time() - since
    assert bound <= seconds, f"gone after {seconds:.1f} s"
    (job,) = stage.jobs()
    assert job["metadata"]["name"] == driver.job and job["metadata"]["deletionTimestamp"]
    made = metric(operator.port, RECONCILES) - before
    return f"gone after {seconds:.0f} s and {made:.0f} reconciles"


def _deleted(stage: Scene) -> list[dict[str, Any]]:
    found = stage.api.list(TABLE_LAYOUT, stage.namespace)
    return [item for item in found if item["metadata"].get("deletionTimestamp")]


def waits_for_end(stage: Scene, driver: Driver) -> float:
    """Until the node that is back has ended the driver and its Job is gone; in how many seconds."""
    began = time.monotonic()
    seconds = GRACE_SECONDS + 120.0
    eventually(lambda: not driver.process(), seconds, "the driver has ended", LOOK_SECONDS)
    ended = time.monotonic() - began

    def removed() -> bool:
        return all(job["metadata"]["name"] != driver.job for job in stage.jobs())

    eventually(removed, 120, "its Job is gone", LOOK_SECONDS)
    stage.killed_drivers += 1  # at most: it may have ended by itself
    return ended


def layout_deleted(node: Node, stage: Scene) -> str:
    """kubectl delete tl. The policy makes it anew, and no second job starts beside the lost one,
    whose driver is stopped in a commit and does not move until it is killed after its grace."""
    operator, driver = driver_at_work(stage)
    with in_commit(stage, driver):
        driver.signal(signal.SIGSTOP)
    node.lost()
    stage.kubectl("delete", "tl", "--all", "--wait=false")
    said = waits_for_bound(stage, operator, driver)
    eventually(stage.layout, 60, "its policy makes it anew")
    eventually(
        lambda: stage.condition("Stalled").get("reason") == "ForeignJob", 120, "it does not start"
    )
    time.sleep(30)
    assert list(stage.watchman.jobs.values()) == [driver.job], stage.watchman.jobs
    node.back()
    ended = waits_for_end(stage, driver)
    stage.waits_for("NothingToDo", CONVERGES)
    stage.check()
    return (
        f"{said}; made anew, no second job while the lost one lived; that was ended {ended:.0f} s "
        f"after the node was back, then {len(stage.lake.commits())} commits of another"
    )


def policy_deleted(node: Node, stage: Scene) -> str:
    """kubectl delete tlp. The driver is stopped before a commit; when its object is gone it wakes
    on the lost node, knows of nothing and goes on."""
    operator, driver = driver_at_work(stage)
    driver.signal(signal.SIGSTOP)
    node.lost()
    stage.kubectl("delete", "tlp", "facts", "--wait=false")
    said = waits_for_bound(stage, operator, driver)
    driver.signal(signal.SIGCONT)
    with contextlib.suppress(TimeoutError):
        eventually(stage.lake.commits, 120, "a commit", LOOK_SECONDS)
    late = len(stage.lake.commits())
    stage.lake.check_rows()
    assert not stage.layout()
    node.back()
    ended = waits_for_end(stage, driver)
    stage.lake.check_rows()
    orphaned = len(stage.lake.commits())
    assert not stage.layout()
    stage.apply()
    stage.waits_for("NothingToDo", CONVERGES)
    stage.check()
    return (
        f"{said}; then {late} commits of the lost driver, {orphaned} when it had ended, "
        f"{ended:.0f} s after the node was back; {len(stage.lake.commits())} with the policy again"
    )


# All of it

TOKENS: Mapping[str, Callable[[Scene], str]] = {
    "token-renewed": token_renewed,
    "token-renewed-late": token_renewed_late,
}
NODES: Mapping[str, Callable[[Node, Scene], str]] = {
    "layout-deleted-on-lost-node": layout_deleted,
    "policy-deleted-on-lost-node": policy_deleted,
}


def play_token(cluster: Cluster, name: str, directory: Path) -> str:
    with staged(cluster, name, directory, LOOK_SECONDS) as stage:
        return TOKENS[name](stage)


def play_node(cluster: Cluster, node: Node, name: str, directory: Path) -> str:
    with node.shared(), staged(cluster, name, directory, LOOK_SECONDS) as stage:
        return NODES[name](node, stage)


def plays(names: list[str], base: Path, stack: ExitStack) -> dict[str, Callable[[], str]]:
    """What is to be played, on clusters that live as long as the stack."""
    found: dict[str, Callable[[], str]] = {}
    if tokens := [name for name in TOKENS if name in names]:
        cluster = stack.enter_context(started(base / "tokens"))
        cluster.set_image(DRIVER_IMAGE, ["sh", "-c", STAND_IN])
        program = [sys.executable, "-m", "reconciler.cli.main"]
        cluster.set_image(OPERATOR_IMAGE, program, {"PYTHONPATH": str(ROOT)})
        found |= {name: partial(play_token, cluster, name, base / name) for name in tokens}
    if nodes := [name for name in NODES if name in names]:
        cluster = stack.enter_context(started(base / "nodes"))
        node = Node(cluster, len(nodes))
        found |= {name: partial(play_node, cluster, node, name, base / name) for name in nodes}
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    everything = [*TOKENS, *NODES]
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(everything))
    parser.add_argument("--keep", type=Path, help="keep logs and warehouses in this directory")
    arguments = parser.parse_args()
    if unknown := set(arguments.names) - set(everything):
        parser.error(f"no such name: {', '.join(sorted(unknown))}")
    with ExitStack() as stack:
        scratch = tempfile.TemporaryDirectory(dir="/var/tmp", ignore_cleanup_errors=True)
        base = arguments.keep or Path(stack.enter_context(scratch))
        chosen = plays(arguments.names or everything, base, stack)
        with ThreadPoolExecutor(len(chosen)) as pool:
            rows = list(pool.map(lambda item: result_row(*item), chosen.items()))
    if not arguments.names:
        write(rows)
    return 1 if any(row[1] != OK for row in rows) else 0


def write(rows: list[tuple[str, str, str, str]]) -> None:
    note = (
        "In real time. token-…: an operator in a pod whose token lives for 600 s, the least that "
        "an API server grants (it goes on accepting one for a minute); held: no restart, no "
        "traceback, what is approved runs and what is suspended stops. …-on-lost-node: a driver "
        "stopped in (layout-…) or before (policy-…) a commit on a node that does not answer, its "
        "TableLayout deleted; held: the "
        "object is gone after ten minutes and not before, rows equal as a multiset, never two "
        "Jobs at once, and Converged with nothing open once the node is back."
    )
    head = ("wait", "held", "seconds", "seen")
    write_section("Long waits", "python -m bench.long_waits", [head, *rows], note)


if __name__ == "__main__":
    sys.exit(main())
