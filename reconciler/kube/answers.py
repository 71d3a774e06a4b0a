"""What the API server takes and answers: bodies as JSON, and refusals as errors."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from reconciler.kube.errors import (
    ApiError,
    ApiUnavailable,
    from_answer,
)

JSON = "application/json"
APPLY = "application/apply-patch+yaml"


def encoded(body: Mapping[str, Any], content: str) -> bytes:
    """Return the body as bytes; server-side apply reads YAML, of which not every JSON text is
    valid."""
    text = _json_as_yaml(body) if content == APPLY else json.dumps(body, separators=(",", ":"))
    return text.encode()


_ESCAPE = re.compile(r"\\(?:u(d[89ab]..)\\u(d[c-f]..)|.)")
"""Any escape of a JSON string; groups: those of a character beyond the first 65,536."""


def _json_as_yaml(plain: Any) -> str:
    """Return JSON text that YAML reads too.

    YAML has no surrogate pairs, but one escape of eight digits, and no unescaped DEL. Keys may have
    up to 1,024 characters, escapes counted: the longest name that an API server accepts as a key
    has 317.
    """

    def joined(match: re.Match[str]) -> str:
        if match[1] is None:
            return match[0]
        high, low = int(match[1], 16), int(match[2], 16)
        return f"\\U{0x10000 + ((high & 0x3FF) << 10) + (low & 0x3FF):08x}"

    return _ESCAPE.sub(joined, json.dumps(plain)).replace("\x7f", "\\x7f")


def refusal(response: Any, subject: str) -> ApiError:
    try:
        document = json.loads(response.data)
    except ValueError:
        document = {}
    known = document if isinstance(document, dict) else {}
    return from_answer(int(response.status), known, subject)


def no_answer(subject: str, error: Exception) -> ApiUnavailable:
    import urllib3

    cause = error.__cause__ or error
    unavailable = ApiUnavailable(
        f"{subject}: no answer from the API server",
        details=(f"{type(cause).__name__}: {' '.join(str(cause).split())}"[:500],),
        do="check that the cluster of the kubeconfig context can be reached",
    )
    unavailable.immediate = isinstance(error, urllib3.exceptions.ProtocolError)
    return unavailable
