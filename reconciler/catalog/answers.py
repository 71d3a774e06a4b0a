"""Bounds the answers of REST catalogs, token servers and request signers while they are read.

pyiceberg reads whole answers through the `requests` library, from several places. The one function
of that library that every request passes is replaced by one that reads the body in parts and stops
at the limit (`bounds`), so that a small compressed answer cannot unpack to gigabytes.
"""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import requests
from requests.adapters import HTTPAdapter

from reconciler.catalog import bounds

_send = HTTPAdapter.send
_listed: contextvars.ContextVar[list[int] | None] = contextvars.ContextVar("listed", default=None)


@contextlib.contextmanager
def one_listing() -> Iterator[None]:
    """Hold all answers within to one limit together: a server may send pages without end."""
    token = _listed.set([0])
    try:
        yield
    finally:
        _listed.reset(token)


def _bounded_send(
    self: HTTPAdapter, request: requests.PreparedRequest, stream: bool = False, **options: Any
) -> requests.Response:
    """Send the request and read its answer up to the limit. Raises TooLargeError."""
    response = _send(self, request, stream=True, **options)
    if not stream:
        try:
            _read(response, f"an answer of {urlsplit(request.url or '').hostname}")
        except BaseException:
            response.close()
            raise
    return response


def _read(response: requests.Response, subject: str) -> None:
    encoding = response.headers.get("Content-Encoding", "")
    if "," in encoding:  # each coding would multiply the size again
        raise bounds.TooLargeError(
            f"{subject} is compressed more than once ({encoding[:40]})",
            do="have the server compress its answers once, or not at all",
        )
    listed = _listed.get()
    parts, size = [], 0
    for part in response.iter_content(bounds.CHUNK):
        size += len(part)
        bounds.require(size + (listed[0] if listed else 0), subject)
        parts.append(part)
    content = b"".join(parts)
    bounds.require_values(content, subject)
    if listed is not None:
        listed[0] += size
    response._content = content
    response._content_consumed = True
    if response.encoding is None:  # JSON is UTF-8; a guess reads a large answer several times
        response.encoding = "utf-8"


def bound_answers() -> None:
    """Replace the function of `requests`, once for the process."""
    HTTPAdapter.send = _bounded_send  # type: ignore[method-assign,assignment]
