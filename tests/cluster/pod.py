"""The life of one pod on the test kubelet: wait, run, report, restart, stop.

One asyncio task a pod and no thread, so that hundreds can live at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import json
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.cluster import container
from tests.cluster.api_client import Api
from tests.cluster.container import Image, NotYet, Object, Setting

KILL = "kubelet.test/kill"
"""Annotation by which a test ends a pod's process: KILL, TERM, or OOM (killed for its memory)."""
KEEP_TOKENS = "kubelet.test/keep-tokens"
"""Annotation under which a pod's tokens are not renewed, as by a node that cannot ask for them."""

_ENTER = Path(__file__).with_name("enter.py")
_PROGRAMS = [str(Path(__file__).parents[2]), sys.prefix, sys.base_prefix] + [
    os.environ[name]
    for name in ("LAYOUTCTL_CACHE", "XDG_CACHE_HOME", "JAVA_HOME")
    if name in os.environ and Path(os.environ[name]).is_dir()
]
"""Of what images are made: the checkout, Python, Java, and the cache with Spark's jars."""
_RETRY_SECONDS = 0.5
_RENEWED_AT = 0.8
"""Part of a token's life after which a kubelet asks for another."""
_LONGEST_BACK_OFF = 10.0
_MESSAGE_BYTES, _LOG_BYTES, _LOG_LINES = 4096, 2048, 80

Exits = Callable[[int], Awaitable[int]]
"""Called right after a child was started; awaits its wait status."""


def now() -> str:
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass(slots=True)
class PodRun:
    """One run of the container: pid 0 before it has started."""

    started: str = field(default_factory=now)
    pid: int = 0
    out_of_memory: bool = False


class Pod:
    """A pod bound to this node. `update` and `vanish` tell it what became of its object."""

    def __init__(
        self,
        body: Object,
        setting: Setting,
        api: Api,
        images: Callable[[], Mapping[str, Image]],
        exits: Exits,
    ) -> None:
        self.body = body
        self.setting = setting
        self.ended = False
        self._api, self._images, self._exits = api, images, exits
        self._leaving = asyncio.Event()
        self._deadline = float("inf")
        self._run: PodRun | None = None
        self._restarts = 0
        self._last: dict[str, Any] = {}
        self._conditions: dict[str, dict[str, Any]] = {}
        self._events: set[str] = set()
        self._killer: asyncio.Task[None] | None = None

    @property
    def path(self) -> str:
        metadata = self.body["metadata"]
        return f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"

    @property
    def container(self) -> Object:
        first: Object = self.body["spec"]["containers"][0]
        return first

    def log(self, restart: int | None = None) -> Path:
        """Return the file with the container's output; of its current run if `restart` is None."""
        return self.setting.directory / f"{self._restarts if restart is None else restart}.log"

    def previous_log(self) -> Path:
        return self.log(self._restarts - 1)

    # What happens to it

    def update(self, body: Object) -> None:
        before = self.body["metadata"].get("annotations", {}).get(KILL)
        self.body = body
        metadata = body["metadata"]
        wanted = metadata.get("annotations", {}).get(KILL)
        if wanted and wanted != before:
            self._kill_for_test()
        if "deletionTimestamp" in metadata:
            self._leave(metadata.get("deletionGracePeriodSeconds", 30))

    def vanish(self) -> None:
        """The object is gone, as after a forced deletion."""
        self._leave(0)

    async def live(self) -> None:
        """From bound to ended, and the object removed once its deletion is asked for."""
        self.setting.directory.mkdir(parents=True, exist_ok=True)
        self.update(self.body)
        phase = self.body["status"].get("phase", "Pending")
        if phase in ("Succeeded", "Failed"):
            pass
        elif phase == "Running" and self.body["spec"]["restartPolicy"] == "Never":
            await self._report_lost()
        else:
            await self._prepare_and_run()
        self.ended = True

    async def remove(self) -> None:
        """Removes the object, when that is asked for, after the pod has ended."""
        await self._leaving.wait()
        uid = self.body["metadata"]["uid"]
        options = {"gracePeriodSeconds": 0, "preconditions": {"uid": uid}}
        await self._api.delete(self.path, options)

    # Running

    async def _prepare_and_run(self) -> None:
        while True:
            made = await self._make()
            if made is None:
                await self._report("Failed", {"waiting": {"reason": "ContainerCreating"}})
                return
            status = await self._run_once(*made)
            if self._leaving.is_set() or not self._restarting(status):
                return
            await self._back_off()

    async def _make(self) -> tuple[list[str], dict[str, str]] | None:
        """Command and environment once all that the pod refers to exists; None when it leaves."""
        while not self._leaving.is_set():
            try:
                image = self._image()
                await container.write_volumes(self.body, self.setting, self._api)
                env = await container.environment(
                    self.body, self.container, image, self.setting, self._api
                )
                return container.command(self.container, image, env), env
            except NotYet as why:
                await self._report_waiting(why)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._leaving.wait(), _RETRY_SECONDS)
        return None

    def _image(self) -> Image:
        name = self.container["image"]
        images = self._images()
        if name not in images:
            raise NotYet("ErrImagePull", f'failed to pull image "{name}": not found')
        return images[name]

    async def _run_once(self, command: list[str], env: dict[str, str]) -> int:
        """Runs the container until it ends; its exit code."""
        run = self._run = PodRun()
        self._spawn(run, command, env)
        exited = self._exits(run.pid)
        renewing = asyncio.create_task(self._renew_tokens())
        try:
            await self._report("Running", {"running": {"startedAt": run.started}}, ready=True)
            self._kill_for_test()
            status = await exited
        finally:
            renewing.cancel()
        self._kill_session(run.pid)
        self._run = None
        code = os.waitstatus_to_exitcode(status)
        code = 128 - code if code < 0 else code
        await self._report_ended(run, code)
        return code

    async def _renew_tokens(self) -> None:
        """While the container runs; its tokens are as old as it is."""
        while (seconds := container.token_seconds(self.body)) < float("inf"):
            await asyncio.sleep(_RENEWED_AT * seconds)
            while KEEP_TOKENS in self.body["metadata"].get("annotations", {}):
                await asyncio.sleep(_RETRY_SECONDS)
            with contextlib.suppress(NotYet):
                await container.renew_tokens(self.body, self.setting, self._api)

    def _spawn(self, run: PodRun, command: list[str], env: dict[str, str]) -> None:
        directory = self.setting.directory
        root, spec, message = directory / "root", directory / "spec.json", self.setting.message_file
        root.mkdir(exist_ok=True)
        message.write_bytes(b"")
        spec.write_text(
            json.dumps(
                {
                    "root": str(root),
                    "mounts": container.mounts(self.container, self.setting),
                    "programs": _PROGRAMS,
                    "directory": self.container.get("workingDir", "/"),
                    "command": command,
                }
            )
        )
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        run.pid = os.posix_spawn(
            sys.executable,
            [sys.executable, "-I", "-S", str(_ENTER), str(spec)],
            env,
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, str(self.log()), flags, 0o644),
                (os.POSIX_SPAWN_DUP2, 1, 2),
            ],
            setsid=True,
        )

    def _restarting(self, code: int) -> bool:
        policy = self.body["spec"]["restartPolicy"]
        return policy == "Always" or (policy == "OnFailure" and code != 0)

    async def _back_off(self) -> None:
        """As a kubelet does, only faster: 0.5 s, doubling to 10 s."""
        pause = min(0.5 * 2**self._restarts, _LONGEST_BACK_OFF)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._leaving.wait(), pause)
        self._restarts += 1

    # Ending

    def _leave(self, grace: float) -> None:
        """Asks the process to stop and kills it after the grace; a later, shorter one counts."""
        self._deadline = min(self._deadline, asyncio.get_running_loop().time() + grace)
        self._leaving.set()
        if self._killer is None:
            self._killer = asyncio.create_task(self._stop_by_deadline())

    async def _stop_by_deadline(self) -> None:
        if self._run is not None:
            _signal(self._run.pid, signal.SIGTERM)
        loop = asyncio.get_running_loop()
        while not self.ended and loop.time() < self._deadline:
            await asyncio.sleep(min(0.1, max(0.0, self._deadline - loop.time())))
        if self._run is not None:
            self._kill_session(self._run.pid)

    def _kill_for_test(self) -> None:
        wanted = self.body["metadata"].get("annotations", {}).get(KILL)
        run = self._run
        if not wanted or run is None or not run.pid or self._restarts:
            return
        run.out_of_memory = wanted == "OOM"
        _signal(run.pid, signal.SIGTERM if wanted == "TERM" else signal.SIGKILL)

    def _kill_session(self, leader: int) -> None:
        """Ends what the container's process started, as the end of a container does."""
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and _session(entry) == leader:
                _signal(int(entry.name), signal.SIGKILL)

    # Reporting

    async def _report_waiting(self, why: NotYet) -> None:
        if why.message in self._events:
            return
        self._events.add(why.message)
        state = {"waiting": {"reason": why.reason, "message": why.message}}
        if why.reason == "ContainerCreating":  # a volume: Kubernetes says so in an event only
            state = {"waiting": {"reason": why.reason}}
        await self._report("Pending", state)
        await self._event(_EVENTS.get(why.reason, "Failed"), why.message)

    async def _report_ended(self, run: PodRun, code: int) -> None:
        reason = "OOMKilled" if run.out_of_memory else "Completed" if code == 0 else "Error"
        ended = {
            "exitCode": code,
            "reason": reason,
            "message": self._message(code),
            "startedAt": run.started,
            "finishedAt": now(),
        }
        if self._leaving.is_set() or not self._restarting(code):
            phase = "Succeeded" if code == 0 else "Failed"
            await self._report(phase, {"terminated": ended})
            return
        self._last = {"terminated": ended}
        waiting = {"reason": "CrashLoopBackOff", "message": "restarting failed container"}
        await self._report("Running", {"waiting": waiting})

    async def _report_lost(self) -> None:
        """The node was started anew: what ran on it before is gone."""
        ended = {
            "exitCode": 137,
            "reason": "ContainerStatusUnknown",
            "message": "The container could not be located when the pod was terminated",
        }
        await self._report("Failed", {"terminated": ended})

    def _message(self, code: int) -> str:
        raw = self.setting.message_file.read_bytes()[:_MESSAGE_BYTES]
        policy = self.container.get("terminationMessagePolicy", "File")
        if not raw and code and policy == "FallbackToLogsOnError":
            lines = self.log().read_bytes().splitlines(keepends=True)[-_LOG_LINES:]
            raw = b"".join(lines)[-_LOG_BYTES:]
        return raw.decode(errors="replace")

    async def _report(self, phase: str, state: dict[str, Any], *, ready: bool = False) -> None:
        status = {
            "phase": phase,
            "hostIP": self.setting.node.address,
            "podIP": self.setting.address,
            "podIPs": [{"ip": self.setting.address}],
            "startTime": self.body["status"].get("startTime") or now(),
            "conditions": self._all_conditions(phase, ready),
            "containerStatuses": [
                {
                    "name": self.container["name"],
                    "image": self.container["image"],
                    "imageID": self.container["image"],
                    "restartCount": self._restarts,
                    "ready": ready,
                    "started": ready,
                    "state": state,
                    "lastState": self._last,
                }
            ],
        }
        uid = self.body["metadata"]["uid"]
        await self._api.patch(f"{self.path}/status", {"metadata": {"uid": uid}, "status": status})

    def _all_conditions(self, phase: str, ready: bool) -> list[dict[str, Any]]:
        """Ours, and those that others (the Job controller, a test) have set."""
        holds = {
            "PodReadyToStartContainers": phase == "Running",
            "Initialized": True,
            "Ready": ready,
            "ContainersReady": ready,
            "PodScheduled": True,
        }
        for kind, value in holds.items():
            status = "True" if value else "False"
            if self._conditions.get(kind, {}).get("status") != status:
                self._conditions[kind] = {
                    "type": kind, "status": status, "lastTransitionTime": now(),
                }  # fmt: skip
            if kind.endswith("Ready") and phase == "Succeeded":
                self._conditions[kind]["reason"] = "PodCompleted"
        others = [c for c in self.body["status"].get("conditions", ()) if c["type"] not in holds]
        return [*self._conditions.values(), *others]

    async def _event(self, reason: str, message: str) -> None:
        metadata = self.body["metadata"]
        await self._api.post(
            f"/api/v1/namespaces/{metadata['namespace']}/events",
            {
                "metadata": {"generateName": f"{metadata['name']}."},
                "involvedObject": {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "namespace": metadata["namespace"],
                    "name": metadata["name"],
                    "uid": metadata["uid"],
                },
                "type": "Warning",
                "reason": reason,
                "message": message,
                "source": {"component": "kubelet", "host": self.setting.node.name},
                "firstTimestamp": now(),
                "lastTimestamp": now(),
                "count": 1,
            },
        )


_EVENTS = {"ContainerCreating": "FailedMount"}


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _session(entry: Path) -> int:
    """Session of the process at /proc/PID; 0 when it has ended."""
    try:
        return int((entry / "stat").read_text().rpartition(")")[2].split()[3])
    except OSError:
        return 0
