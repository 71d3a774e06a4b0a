"""Identifies the processes that may still send a commit, and whether they are gone
(docs/design/definitions.md#fenced).

A writer is the Python process and its JVM. After the Python process is killed, the JVM lives for a
moment in which it can still finish a commit, so both are recorded before the commit is sent.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import time
from pathlib import Path

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def identity(*pids: int) -> str:
    """Return an opaque text that names these processes of this host and boot."""
    started = [[pid, _start_time(pid)] for pid in pids]
    return json.dumps({**_place(), "processes": started}, separators=(",", ":"))


def is_dead(writer: str) -> bool:
    """Return True only if every process of the writer is known to be gone."""
    try:
        processes = json.loads(writer)["processes"]
        return is_local(writer) and not any(_alive(pid, start) for pid, start in processes)
    except (ValueError, KeyError, TypeError):
        return False


def is_local(writer: str) -> bool:
    """Whether the writer ran where this process runs, so that its death can be observed at all.

    Host names are reused, and containers of one host share its boot: process ids are meaningful
    only within one namespace of one boot.
    """
    try:
        body = json.loads(writer)
        return bool(body["boot"]) and {key: body[key] for key in ("host", "boot")} == _place()
    except (ValueError, KeyError, TypeError):
        return False


def _place() -> dict[str, str]:
    try:
        namespace = str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        namespace = ""
    return {"host": f"{platform.node()} {namespace}".strip(), "boot": _boot()}


def wait_until_dead(writer: str, seconds: float) -> bool:
    """Wait for a JVM that lost its driver to end by itself."""
    deadline = time.monotonic() + seconds
    while not is_dead(writer):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.2)
    return True


def _alive(pid: int, start: str) -> bool:
    return bool(start) and _start_time(pid) == start


def _boot() -> str:
    if _BOOT_ID.is_file():
        return _BOOT_ID.read_text().strip()
    return _output(["sysctl", "-n", "kern.boottime"])


def _start_time(pid: int) -> str:
    """Return a text that differs between two processes that had the same pid; "" for a dead
    process."""
    stat = Path(f"/proc/{pid}/stat")
    if not _BOOT_ID.is_file():
        return _output(["ps", "-o", "lstart=", "-p", str(pid)])
    try:
        fields = stat.read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    state, started = fields[0], fields[19]
    return "" if state in ("Z", "X") else started


def _output(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.strip()


def own_identity(jvm_pid: int | None) -> str:
    return identity(os.getpid(), *([jvm_pid] if jvm_pid else []))
