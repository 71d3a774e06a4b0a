"""Functions that tests run in processes of a pool."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path


def where() -> tuple[int, str]:
    """Return the process, and a file that it leaves in its temporary directory."""
    handle, path = tempfile.mkstemp()
    os.close(handle)
    return os.getpid(), path


def product(a: int, b: int) -> int:
    return a * b


def fail(path: str) -> None:
    raise FileNotFoundError(2, "No such file or directory", path)


class Odd(Exception):
    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one} and {two}")


def fail_oddly() -> None:
    raise Odd(1, 2)


def take(mebibytes: int) -> int:
    taken = bytearray(mebibytes << 20)
    for at in range(0, len(taken), 4096):
        taken[at] = 1
    time.sleep(2)
    return len(taken)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def leave(code: int) -> None:
    os._exit(code)


def wait(note: str, *, child: bool = False) -> None:
    """Write one's process id, and that of a process that one started, then wait for ever."""
    ids = [os.getpid()]
    if child:
        command = [sys.executable, "-c", "import time; time.sleep(600)"]
        ids.append(subprocess.Popen(command).pid)
    Path(note).write_text(" ".join(map(str, ids)))
    time.sleep(600)


def wait_with_child(note: str) -> None:
    wait(note, child=True)


def imported_by(work: Callable[..., object], *arguments: object) -> tuple[object, list[str]]:
    """Return what the work returns, and the modules that the process imported for it."""
    before = set(sys.modules)
    return work(*arguments), sorted(set(sys.modules) - before)


def burn(seconds: float) -> float:
    """Use so much CPU; return what the process used."""
    while time.process_time() < seconds:
        pass
    return time.process_time()
