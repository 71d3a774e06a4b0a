"""Structured logs of the operator: one JSON object per line, with the present table and plan.

No secret is logged: values registered with `conceal`, credentials in URLs, bearer tokens and values
of keys that look like credentials are replaced, in messages and in tracebacks.
"""

from __future__ import annotations

import datetime as dt
import json
import logging
import re
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

HIDDEN = "***"
SHORTEST_SECRET = 4
"""Shorter values are not replaced everywhere: the log would be unreadable."""
MAX_MESSAGE = 8000

_PATTERNS = (
    re.compile(r"(?i)(?<=://)[^/\s:@]+(?::[^/\s@]*)?(?=@)"),
    re.compile(r"(?i)[?&]sig=([^&\s\"']+)"),  # of Azure's addresses
    re.compile(r"(?i)(?<=bearer )[A-Za-z0-9._~+/=-]{8,}"),
    re.compile(
        r"(?i)(?:[\w.-]*(?:password|passwd|secret|token|credential|access[-_.]?key|"
        r"session[-_.]?key|signature)[\w.-]*)[\"']?\s*[=:]\s*[\"']?([^\s\"',;&})]+)"
    ),
)

_context: ContextVar[dict[str, str]] = ContextVar("log_context", default={})  # noqa: B039
_secrets: set[str] = set()
_secrets_lock = threading.Lock()


def conceal(values: Iterable[str]) -> None:
    """Hide these values from now on in log lines and in what `redact` returns."""
    with _secrets_lock:
        _secrets.update(value for value in values if len(value) >= SHORTEST_SECRET)


def redact(text: str) -> str:
    """Return the text without anything that is, or looks like, a credential."""
    with _secrets_lock:
        known = sorted(_secrets, key=len, reverse=True)
    for value in known:
        if value in text:
            text = text.replace(value, HIDDEN)
    for pattern in _PATTERNS:
        text = pattern.sub(_hide, text)
    return text


def _hide(match: re.Match[str]) -> str:
    if not match.re.groups:
        return HIDDEN
    start, end = match.span(1)
    whole, offset = match.group(0), match.start()
    return whole[: start - offset] + HIDDEN + whole[end - offset :]


@contextmanager
def about(**fields: str) -> Iterator[None]:
    """Add these fields to every line logged inside: table, plan, policy, catalog, job."""
    token = _context.set({**_context.get(), **fields})
    try:
        yield
    finally:
        _context.reset(token)


class JsonLines(logging.Formatter):
    """{"time", "level", "logger", "message", table, plan, ..., "error"} on one line."""

    def format(self, record: logging.LogRecord) -> str:
        when = dt.datetime.fromtimestamp(record.created, dt.UTC)
        line = {
            "time": when.strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": redact(record.getMessage())[:MAX_MESSAGE],
            **_context.get(),
        }
        if record.exc_info:
            line["error"] = redact(self.formatException(record.exc_info))[-MAX_MESSAGE:]
        return json.dumps(line, ensure_ascii=False)


def configure(level: str) -> None:
    """Configure this process's logs. From the watch layer only actionable lines are kept."""
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(JsonLines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    quiet = logging.WARNING if level != "DEBUG" else logging.DEBUG
    for name in ("kopf", "asyncio", "urllib3", "pyiceberg", "aiohttp"):
        logging.getLogger(name).setLevel(quiet)
    # kopf runs in a thread, where it must not handle signals; it warns about that each time.
    logging.getLogger("kopf._core.reactor.running").setLevel(logging.ERROR)
