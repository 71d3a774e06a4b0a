"""Converts stored objects to typed documents, or to the condition that says why they are invalid.

The API server has checked schema and rules of its own version; this checks with the offline rules
of this release, so that a value of a newer release or an impossible schedule becomes a condition
with a reason, never a crash. Results are cached by uid and generation.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from threading import Lock
from typing import Any, NamedTuple, TypeVar, cast

from reconciler.api.checks import errors_of
from reconciler.api.conditions import Reason
from reconciler.api.document_codec import from_document
from reconciler.api.documents import Document, Origin
from reconciler.api.version import API_VERSION

KEPT = 20_000

Typed = TypeVar("Typed", bound=Document)


class Refusal(NamedTuple):
    """Why something cannot be done, as a condition shows it."""

    reason: str
    """Reason of the condition."""
    message: str
    """Message of the condition."""


class StoredDocuments:
    """Typed values of stored objects. Thread-safe, bounded."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._known: OrderedDict[tuple[str, int], Document | Refusal] = OrderedDict()

    def read(self, body: Mapping[str, Any], kind: type[Typed]) -> Typed | Refusal:
        meta = body["metadata"]
        key = (str(meta.get("uid", "")), int(meta.get("generation") or 0))
        with self._lock:
            found = self._known.get(key)
            if found is not None:
                self._known.move_to_end(key)
        if found is None:
            found = read_stored(body, kind.__name__)
            with self._lock:
                self._known[key] = found
                while len(self._known) > KEPT:
                    self._known.popitem(last=False)
        return cast("Typed | Refusal", found)


def read_stored(body: Mapping[str, Any], kind: str) -> Document | Refusal:
    """Return the typed value of one stored object, or what is wrong with it."""
    meta = body["metadata"]
    kept = {name: meta[name] for name in ("name", "namespace", "creationTimestamp") if name in meta}
    plain = {"apiVersion": API_VERSION, "kind": kind, "metadata": kept, "spec": body.get("spec")}
    errors = errors_of(plain, kind)
    if errors:
        newer = all("not allowed" in problem.message or "unknown" in problem.message.lower()
                    for problem in errors)  # fmt: skip
        reason = Reason.UNKNOWN_VALUE if newer else Reason.INVALID_SPEC
        shown = "; ".join(f"{problem.field}: {problem.message}" for problem in errors[:5])
        more = f" and {len(errors) - 5} more" if len(errors) > 5 else ""
        return Refusal(reason, shown + more)
    try:
        return from_document(plain, Origin())
    except (KeyError, ValueError, TypeError) as error:
        return Refusal(Reason.UNKNOWN_VALUE, f"spec cannot be read: {error}")
