"""Servers that nobody should trust: they accept and never answer, drip, redirect, or answer with
something that is nobody's business. Real sockets on a free port of this machine."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

Answer = Callable[[socket.socket, str, "Silent"], None]


@dataclass
class Silent:
    """requests: the first lines that were received, in order. held: connections that are open."""

    port: int = 0
    requests: list[str] = field(default_factory=list)
    held: list[socket.socket] = field(default_factory=list)

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@contextlib.contextmanager
def serving(answer: Answer, host: str = "127.0.0.1") -> Iterator[Silent]:
    listener = socket.create_server((host, 0), backlog=128)
    server = Silent(listener.getsockname()[1])

    def serve(connection: socket.socket) -> None:
        with contextlib.suppress(OSError), connection:
            while head := connection.recv(65_536):
                line = head.partition(b"\r\n")[0].decode(errors="replace")
                server.requests.append(line)
                answer(connection, line, server)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                server.held.append(connection)
                threading.Thread(target=serve, args=(connection,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield server
    finally:
        for sock in (listener, *server.held):
            with contextlib.suppress(OSError):
                socket.socket.shutdown(sock, socket.SHUT_RDWR)
            sock.close()


def hang(connection: socket.socket, line: str, server: Silent) -> None:
    """Until the client gives up."""
    connection.recv(1)


def drip(connection: socket.socket, line: str, server: Silent) -> None:
    """A byte now and then, so that no timeout of a single read ever passes."""
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
    for _ in range(1_000_000):
        connection.sendall(b" ")
        time.sleep(0.05)


def redirecting(to: str) -> Answer:
    def answer(connection: socket.socket, line: str, server: Silent) -> None:
        target = to or f"{server.uri}/{len(server.requests)}"
        head = f"HTTP/1.1 307 Temporary Redirect\r\nLocation: {target}\r\nContent-Length: 0\r\n\r\n"
        connection.sendall(head.encode())

    return answer


def saying(body: str, status: str = "200 OK") -> Answer:
    def answer(connection: socket.socket, line: str, server: Silent) -> None:
        head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\n"
        connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode())

    return answer
