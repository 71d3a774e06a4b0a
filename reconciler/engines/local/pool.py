"""Runs work in processes of its own on this machine, each with a limit on its memory.

A process does one piece of work and ends, so that nothing of it stays in memory. It has a scratch
directory, which is removed with it. The system's memory killer, a limit or a crash of a library
ends that process alone, and the plan goes on.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Client, Connection, wait
from pathlib import Path
from typing import Any, TypeVar

from reconciler.engines.local.messages import LISTENS, Raised, packed, unpacked
from reconciler.engines.local.resident import resident_bytes
from reconciler.rewrite.storage import prefix_without_leftovers

T = TypeVar("T")
PREFIX = "layout-pool-"
"""Begins the names of directories of pools."""
OPENS_STORES = "reconciler.catalog.vended"
"""A module by which a process opens files of another store: pyiceberg and the border to it."""
LOOK_SECONDS = 0.1
"""Time between two looks at a process: whether it answered, is to stop, or takes too much."""
START_SECONDS = 300.0
"""Within which the server must listen: it loads libraries, which may lie on a slow network."""
END_SECONDS = 60.0
"""Within which the server must end, or it is killed."""
OVER = 1.5
"""A process may take this many times the memory that its work was given: a prediction is at most
1.16 too low, and what the system counts includes what Arrow freed and keeps."""


class Killed(Exception):
    """The process ended before it answered."""


class OutOfMemory(Killed):
    """The process took more memory than it may."""


class Cancelled(Exception):
    """The work was not needed any more."""


@dataclass(frozen=True, slots=True)
class Limit:
    """What one piece of work may take."""

    memory_bytes: int
    """Given to the work."""
    base_bytes: int
    """Memory of a process that has read nothing yet, in bytes."""

    @property
    def most(self) -> int:
        """Return the bytes of memory beyond which its process is killed."""
        return int(OVER * self.memory_bytes) + self.base_bytes


class Pool:
    """Starts processes through one server; may be used by several threads."""

    def __init__(self, slots: int, *, remote: bool = False) -> None:
        """slots: how many processes may work at a time; a further one waits. remote: whether files
        are in another store, so that the server loads what opens them for all processes."""
        self._slots = threading.BoundedSemaphore(slots)
        self._lock = threading.Lock()
        self._server: subprocess.Popen[bytes] | None = None
        self._listens = False
        self._directory: Path | None = None
        self._loads = (OPENS_STORES,) if remote else ()

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the server and every process that still works, and remove their scratch."""
        with self._lock:
            server, self._server = self._server, None
            directory, self._directory = self._directory, None
            listens = self._listens
        if server is not None:
            assert server.stdin is not None and server.stdout is not None
            server.stdin.close()
            if listens:  # another one has started no process
                with contextlib.suppress(subprocess.TimeoutExpired):
                    server.wait(END_SECONDS)
            server.kill()
            server.wait()
            server.stdout.close()
        if directory is not None:
            shutil.rmtree(directory, ignore_errors=True)

    def begin(self) -> None:
        """Start the server; it loads what processes need while this one does other work."""
        with self._lock:
            self._launch()

    def run(
        self,
        work: Callable[..., T],
        *arguments: Any,
        limit: Limit,
        stopping: Callable[[], bool] = lambda: False,
    ) -> T:
        """Return what `work` returns, in a process of its own; raise what it raises.

        work: a function of a module, and arguments that can be pickled. Raises Cancelled, Killed.
        """
        with self._slot(stopping), self._scratch() as scratch, self._connected() as connection:
            process = _begun(connection, (str(scratch), packed((work, arguments))))
            try:
                answer = _awaited(connection, process, limit, stopping)
            except BaseException:
                _end(process)
                raise
        if isinstance(answer, Raised):
            raise answer.error
        return answer.value  # type: ignore[no-any-return]

    @contextlib.contextmanager
    def _slot(self, stopping: Callable[[], bool]) -> Iterator[None]:
        while not self._slots.acquire(timeout=LOOK_SECONDS):
            if stopping():
                raise Cancelled
        try:
            yield
        finally:
            self._slots.release()

    @contextlib.contextmanager
    def _scratch(self) -> Iterator[Path]:
        made = Path(tempfile.mkdtemp(dir=self._started()))
        try:
            yield made
        finally:
            shutil.rmtree(made, ignore_errors=True)

    @contextlib.contextmanager
    def _connected(self) -> Iterator[Connection]:
        try:
            made = Client(str(self._started() / "socket"), "AF_UNIX")
        except OSError as error:
            raise Killed("the process that starts others is gone") from error
        with made:
            yield made

    def _started(self) -> Path:
        """Return the pool's directory; start the server at first, and again if it has ended."""
        with self._lock:
            if self._server is not None and self._server.poll() is not None:
                shutil.rmtree(self._directory or "", ignore_errors=True)
                self._server = self._directory = None
            server, directory = self._launch()
            if not self._listens:
                self._listens = _listening(server)
            return directory

    def _launch(self) -> tuple[subprocess.Popen[bytes], Path]:
        """Return the server and the pool's directory; a server that is started here may not listen
        yet."""
        if self._server is None or self._directory is None:
            within = Path(tempfile.gettempdir())
            prefix = prefix_without_leftovers(PREFIX, within)
            self._directory = Path(tempfile.mkdtemp(prefix=prefix, dir=within))
            self._listens = False
            self._server = _server(self._directory / "socket", self._loads)
        return self._server, self._directory


def _server(address: Path, loads: Sequence[str]) -> subprocess.Popen[bytes]:
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1"}  # no thread when it forks
    command = (sys.executable, "-m", "reconciler.engines.local.server", str(address), *loads)
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, close_fds=True
    )


def _listening(server: subprocess.Popen[bytes]) -> bool:
    """Wait until the server listens. Raises Killed if it ended before, or takes too long."""
    out = server.stdout
    assert out is not None
    if not wait([out.fileno()], START_SECONDS):
        server.kill()
        server.wait()
        raise Killed(f"the process that starts others said nothing in {START_SECONDS:g} s")
    said = out.readline()
    if said != LISTENS:
        said += out.read()
        code, why = server.wait(), said.decode(errors="replace")
        raise Killed(f"the process that starts others ended with code {code}: {why or 'no reason'}")
    out.close()
    return True


def _begun(connection: Connection, call: tuple[str, bytes]) -> int:
    """Give a new process its work, and return its id. Raises Killed."""
    try:
        process = int(connection.recv())
        connection.send(call)
    except (EOFError, OSError) as error:
        raise Killed("a process ended before it began to work") from error
    return process


def _awaited(
    connection: Connection, process: int, limit: Limit, stopping: Callable[[], bool]
) -> Any:
    """Return the answer of a process. Raises Cancelled, Killed."""
    while not connection.poll(LOOK_SECONDS):
        if stopping():
            raise Cancelled
        if resident_bytes(process) > limit.most:
            raise OutOfMemory(f"it took more than {limit.most} bytes of memory")
    try:
        return unpacked(connection.recv())
    except (EOFError, OSError) as error:
        raise Killed("a process ended without an answer, as one that was killed") from error


def _end(process: int) -> None:
    """Kill a process that has not answered, and what it started."""
    with contextlib.suppress(OSError):
        os.killpg(process, signal.SIGKILL)
