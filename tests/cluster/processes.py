"""Child processes that cannot outlive their owner, however it ends."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


def spawn(
    command: Sequence[str], log: Path, env: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Starts a process in a session of its own, its output appended to `log`.

    The kernel kills it when the thread that started it ends, even by SIGKILL; so start it from a
    thread that lives on, as the main one does.
    """
    owner = os.getpid()

    def die_with_owner() -> None:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != owner:  # it ended before the request was made
            os.kill(os.getpid(), signal.SIGKILL)

    with log.open("ab") as output:
        return subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=dict(os.environ if env is None else env),
            start_new_session=True,
            preexec_fn=die_with_owner,
        )


def end(process: subprocess.Popen[bytes], seconds: float) -> None:
    """SIGTERM (which a stopped process gets too), then SIGKILL when that is not heard in time."""
    if process.poll() is None:
        signal_group(process, signal.SIGTERM)
        signal_group(process, signal.SIGCONT)
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            signal_group(process, signal.SIGKILL)
    process.wait()


def signal_group(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    """To the process and what it started in its own group."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)


def running(pid: int) -> bool:
    """Whether the process exists and is not merely waiting to be collected by its parent."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return status.rpartition(")")[2].split()[0] not in ("Z", "X")


def free_port() -> int:
    """A port below the range that the kernel hands out to clients, so that it stays free."""
    for port in _candidates:
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise RuntimeError("no free port below 32000")


_candidates = iter(range(20000 + os.getpid() % 100 * 100, 32000))
