"""What may be said about a failure of a foreign library: never what a server answered.

A person who may name a host in a document must not be able to read, in a status or a log, what that
host answers to the operator. So a failed request is described by its method, its host and its
status code, and in a cluster any other foreign error by its type and its system error.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

from reconciler.api.catalog_config import CatalogConfig
from reconciler.catalog.network import current_reach
from reconciler.catalog.properties import redact
from reconciler.errors import first_line

_MOST_CAUSES = 16


def said(error: BaseException, config: CatalogConfig | None = None) -> str:
    """Return the error in one line that is safe to show to the document's author."""
    request = _request_of(error)
    if request:
        return request
    in_cluster = current_reach() is not None or (config is not None and config.reach is not None)
    if in_cluster:
        return _without_text(error)
    text = f"{type(error).__name__}: {first_line(error)}"
    return text if config is None else redact(text, config)


def _request_of(error: BaseException) -> str:
    """ "GET catalog.example.com answered 500" of a failed HTTP request, "" for anything else."""
    for cause in _causes(error):
        response, request = getattr(cause, "response", None), getattr(cause, "request", None)
        status = getattr(response, "status_code", None)
        request = getattr(response, "request", None) or request
        url, method = getattr(request, "url", None), getattr(request, "method", None)
        if not isinstance(url, str):
            continue
        where = f"{method or 'GET'} {_host(url)}"
        if isinstance(status, int):
            return f"{where} answered {status} ({type(error).__name__})"
        return f"{where} failed ({type(cause).__name__})"
    return ""


def _host(url: str) -> str:
    try:
        parts = urlsplit(url)
        return f"{parts.hostname or '?'}:{parts.port}" if parts.port else parts.hostname or "?"
    except ValueError:
        return "?"


def _without_text(error: BaseException) -> str:
    number = next((c.errno for c in _causes(error) if isinstance(c, OSError) and c.errno), None)
    system = f": {os.strerror(number)}" if isinstance(number, int) and number > 0 else ""
    return f"{type(error).__name__}{system}"


def _causes(error: BaseException) -> Iterator[Any]:
    seen: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None and cause not in seen and len(seen) < _MOST_CAUSES:
        seen.append(cause)
        yield cause
        cause = cause.__cause__ or cause.__context__


_DENIED = frozenset({
    "AccessDenied", "AccessDeniedException", "ExpiredToken", "ExpiredTokenException",
    "IncompleteSignature", "InvalidClientTokenId", "InvalidSignatureException",
    "MissingAuthenticationToken", "UnrecognizedClientException",
})  # fmt: skip
"""Codes with which AWS refuses keys or rights (its list of common errors)."""


def is_denied_by_aws(error: BaseException) -> bool:
    """Return whether AWS refused the keys or the right to do it."""
    response = getattr(error, "response", None)  # of botocore's ClientError
    code = response.get("Error", {}).get("Code") if isinstance(response, dict) else None
    return code in _DENIED
