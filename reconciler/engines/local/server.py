"""Makes a process for each piece of work: it has loaded what work needs, and forks itself.

Run as `python -m reconciler.engines.local.server SOCKET [MODULE...]`, the modules being loaded as
well. It is a program of its own, and no fork
of the process that plans: that one has threads, and a fork of it could hang in their locks. Loading
Arrow and DuckDB takes half a second; a fork takes milliseconds.

Each connection is one piece of work: the child sends its process id, receives a function with its
arguments, and sends what it returned or raised. Server and children end when the process that
started them does.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection, Listener
from pathlib import Path

from reconciler.engines.local.messages import LISTENS, Raised, Returned

SILENT = 40
"""Exit code of a child that could not answer."""
LAST_SECONDS = 1.0
"""For which children may end once nobody waits for them: they do so by themselves."""


def main(address: str, *modules: str) -> None:
    """Serve until standard input ends."""
    listener = _listening(address, modules)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that started it
    signal.signal(signal.SIGCHLD, _reap)  # so that their CPU counts as this process's
    with listener:
        os.write(1, LISTENS)
        _watch_for_the_end(address)
        while True:
            try:
                connection = listener.accept()
            except OSError:  # the other side gave up
                continue
            with contextlib.suppress(OSError):  # no memory, or too many processes: it says nothing
                if os.fork() == 0:
                    _work(listener, connection)
            connection.close()


def _listening(address: str, modules: Sequence[str]) -> Listener:
    """Load what work needs, and listen. Whoever waits for that is sent the error of what fails."""
    try:
        _load(modules)
        return Listener(address, "AF_UNIX")
    except BaseException as error:
        os.write(1, f"{type(error).__name__}: {error}".encode())
        raise


def _load(modules: Sequence[str]) -> None:
    """Import what work needs, once for all children, which never search it for garbage: the search
    would also copy its memory for each of them."""
    gc.disable()
    import duckdb  # noqa: F401
    import pyarrow.parquet  # noqa: F401

    import reconciler.rewrite.task_calls
    import reconciler.rewrite.witness  # noqa: F401

    for name in modules:
        importlib.import_module(name)
    gc.freeze()
    gc.enable()


def _reap(*_: object) -> None:
    """Forget the children that have ended."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _watch_for_the_end(address: str) -> None:
    """End the server, and with it what children wait for, once its starter is gone.

    A fork takes no thread with it, so that each child has a watch of its own.
    """

    def watch() -> None:
        while os.read(0, 1):
            pass
        with contextlib.suppress(OSError):
            Path(address).unlink()
        last = time.monotonic() + LAST_SECONDS
        with contextlib.suppress(ChildProcessError):
            while time.monotonic() < last:
                if not os.waitpid(-1, os.WNOHANG)[0]:
                    time.sleep(0.005)
        os._exit(0)

    threading.Thread(target=watch, daemon=True).start()


def _work(listener: Listener, connection: Connection) -> None:
    """Carry out one piece of work, in a child; never returns."""
    code = SILENT
    with contextlib.suppress(BaseException):
        os.setpgid(0, 0)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        listener.close()
        connection.send(os.getpid())
        scratch, call = connection.recv()
        os.environ["TMPDIR"] = scratch
        os.environ.pop("SPARK_LOCAL_DIRS", None)
        _forget_directory()
        connection.send(_answer(connection, call))
        code = 0
    os._exit(code)


def _forget_directory() -> None:
    import tempfile

    tempfile.tempdir = None


def _answer(connection: Connection, call: bytes) -> bytes:
    """Return the pickled answer. The process ends if the other side closes the connection."""
    from reconciler.engines.local.messages import packed, unpacked

    threading.Thread(target=_end_with, args=(connection,), daemon=True).start()
    try:
        work, arguments = unpacked(call)
        return packed(Returned(work(*arguments)))
    except BaseException as error:  # its own answer, whatever it is
        return packed(Raised.of(error))


def _end_with(connection: Connection) -> None:
    connection.poll(None)  # nothing more is sent: it is readable only at its end
    os._exit(SILENT)


if __name__ == "__main__":
    main(*sys.argv[1:])
