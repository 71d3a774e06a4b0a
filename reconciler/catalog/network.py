"""Holds the network calls of one catalog to what it may reach, and ends them at their deadline.

A `Border` is set for the thread in which a call to a catalog runs. While it is set, each socket of
this thread is checked right before it connects: what counts is the numeric address that is about
to be connected to, so that neither a redirect nor a name that resolves otherwise the second time
gets around it. The check is an audit hook of the interpreter (PEP 578), which sees the connections
of every library that is written in Python. Clients in C and C++ (pyarrow's object stores, database
drivers) open their sockets unseen: for them `check_host` resolves the name first.
"""

from __future__ import annotations

import contextlib
import contextvars
import re
import socket
import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import urlsplit

from reconciler.api.catalog_config import CatalogConfig
from reconciler.api.places import DATABASE_OPTIONS
from reconciler.api.reach import Reach
from reconciler.errors import RefusedAddressError

ALLOW = (
    "allow it with LAYOUTCTL_OPERATOR_ALLOWED_NETWORKS (chart: allowedNetworks), or name another"
)
_AUTHORITIES = (
    "adls.blob-storage-authority", "adls.dfs-storage-authority", "adls.account-host",
)  # fmt: skip
_HOST = re.compile(r"[A-Za-z0-9._-]{1,253}|\[?[0-9A-Fa-f:.]+\]?")
_STRANGE = re.compile(r"[\\\s\x00-\x1f]")
_REGION = re.compile(r"[A-Za-z0-9-]{1,64}")


Item = TypeVar("Item")
Result = TypeVar("Result")
Sockets = weakref.WeakSet[socket.socket]


@dataclass(eq=False)
class Border:
    """reach: None lets everything through, as on a person's own machine. shared: where sockets are
    noted beside the border's own, because a later call may find them connected."""

    reach: Reach | None
    shared: Sockets | None = None
    _sockets: Sockets = field(default_factory=weakref.WeakSet)
    _is_cut: bool = False

    def note(self, sock: socket.socket) -> None:
        if self._is_cut:
            raise ConnectionAbortedError("the time for this call is over")
        self._sockets.add(sock)
        if self.shared is not None:
            self.shared.add(sock)

    def cut(self) -> None:
        """Ends what hangs and lets nothing new begin."""
        self._is_cut = True
        shut(self._sockets)


def shut(sockets: Sockets) -> None:
    """A read or connect that blocks in another thread returns at once."""
    for sock in list(sockets):
        with contextlib.suppress(OSError):
            socket.socket.shutdown(sock, socket.SHUT_RDWR)  # not TLS's, which waits for the reader


_BORDER: contextvars.ContextVar[Border | None] = contextvars.ContextVar("border", default=None)
_REACH: contextvars.ContextVar[Reach | None] = contextvars.ContextVar("reach", default=None)
_hook_lock = threading.Lock()
_hooked = False


@contextlib.contextmanager
def within_border(border: Border) -> Iterator[None]:
    """For the current thread."""
    _install()
    token = _BORDER.set(border)
    try:
        yield
    finally:
        _BORDER.reset(token)


def current_reach() -> Reach | None:
    """What this thread may reach; None where nothing limits it."""
    border = _BORDER.get()
    return _REACH.get() if border is None else border.reach


@contextlib.contextmanager
def on_behalf(reach: Reach | None) -> Iterator[None]:
    """For a thread that must also reach its own process (a driver its JVM): no socket is checked,
    but addresses that are checked by name are, and failures are reported as in the cluster."""
    token = _REACH.set(reach)
    try:
        yield
    finally:
        _REACH.reset(token)


def carried(work: Callable[[Item], Result]) -> Callable[[Item], Result]:
    """The work for the threads of a pool, under the border of the thread that calls this."""
    context = contextvars.copy_context()
    return lambda item: context.copy().run(work, item)


def _install() -> None:
    """Once for the process: an audit hook cannot be removed. Without a border it lets all pass."""
    global _hooked
    with _hook_lock:
        if not _hooked:
            sys.addaudithook(_audit)
            _hooked = True


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if event not in ("socket.connect", "socket.__new__"):
        return
    border = _BORDER.get()
    if border is None:
        return
    if event == "socket.__new__":  # TLS goes on with a new socket object on an old connection
        border.note(arguments[0])
    elif border.reach is not None:
        _check_socket(border.reach, arguments[0], arguments[1])


def _check_socket(reach: Reach, sock: socket.socket, address: Any) -> None:
    if sock.family not in (socket.AF_INET, socket.AF_INET6):
        if not reach.local_files:
            raise _refused("a socket of this machine", "it is not a network address")
        return
    host = str(address[0])
    why = reach.refusal(host) if _is_numeric(host) else _refusal_of_name(reach, host)
    if why:
        raise _refused(host, why)


def check_host(reach: Reach | None, host: str) -> None:
    """Raises RefusedAddressError if a name, or one of the addresses it has now, may not be reached.

    A name that does not resolve is let through: a proxy may know it, and a connection fails.
    """
    if reach is None or not host:
        return
    why = reach.refusal(host) if _is_numeric(host) else _refusal_of_name(reach, host)
    if why:
        raise _refused(host, why)


def check_uri(reach: Reach | None, uri: str) -> None:
    """As `check_host`, of a URI. What does not plainly name one host may be read as another."""
    if reach is None:
        return
    try:
        host = urlsplit(uri).hostname or ""
    except ValueError:
        host = ""
    if _HOST.fullmatch(host) is None or _STRANGE.search(uri):
        raise _refused("an address", "it does not name one host")
    check_host(reach, host)


def check_properties(reach: Reach | None, properties: Mapping[str, Any]) -> None:
    """Every address that a client is given, by a document, a server or a table.

    A region becomes a part of a host name, so it may hold nothing but what regions hold.
    """
    if reach is None:
        return
    for name, value in properties.items():
        if not isinstance(value, str):
            continue
        if value[:8].lower().startswith(("http://", "https://")):
            check_uri(reach, value)
        elif name.endswith((".endpoint", "-uri", ".host")) or name in _AUTHORITIES:
            check_uri(reach, f"//{value}")
        if name.endswith("region") and not _REGION.fullmatch(value):
            raise _refused(f"the region of {name}", "a region holds letters, digits and dashes")
        if name == "adls.account-name" and not _REGION.fullmatch(value):
            raise _refused(f"the account of {name}", "it holds letters, digits and dashes")


def check_config(config: CatalogConfig) -> None:
    """The addresses of a catalog's own configuration."""
    if config.reach is None:
        return
    properties = dict(config.properties)
    if config.type == "sql":
        check_database(config.reach, properties.pop("uri", ""))
    check_properties(config.reach, properties)


def check_database(reach: Reach, uri: str) -> None:
    """A database's driver connects by itself, and its URI may carry options: only options that
    name no other host, file or plug-in, and one host that resolves."""
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        url = make_url(uri)
    except (ArgumentError, ValueError) as error:
        raise _refused("the database", "its URI cannot be parsed") from error
    if url.get_backend_name() == "sqlite":
        if not reach.local_files:
            raise _refused("the database", "it is a file of this machine")
        return
    strange = sorted(url.query.keys() - DATABASE_OPTIONS)
    if strange:
        raise _refused("the database", f"its URI has the option {strange[0]}")
    if _HOST.fullmatch(url.host or "") is None:
        raise _refused("the database", "its URI does not name one host")
    check_host(reach, url.host or "")


def _is_numeric(host: str) -> bool:
    for family in (socket.AF_INET, socket.AF_INET6):
        with contextlib.suppress(OSError):
            socket.inet_pton(family, host.partition("%")[0])
            return True
    return False


def _refusal_of_name(reach: Reach, host: str) -> str:
    """The system's own resolver also reads forms such as 2130706433, 0x7f.1 and 127.1."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return ""
    addresses = dict.fromkeys(str(item[4][0]) for item in found)
    return next((why for address in addresses if (why := reach.refusal(address))), "")


def _refused(host: str, why: str) -> RefusedAddressError:
    return RefusedAddressError(f"{host} may not be reached from the cluster: {why}", do=ALLOW)
