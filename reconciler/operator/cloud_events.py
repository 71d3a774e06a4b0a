"""What an event of a catalog says: which table changed, and nothing else. Pure.

CloudEvents 1.0 (cloudevents.io, HTTP protocol binding) in structured, batched and binary mode. Who
sent it is shown by a bearer token, or by a signature of the Standard Webhooks specification
(standardwebhooks.com), which covers the body and the time. Of a signed event only the body counts:
the attributes of binary mode are headers, which nobody signed.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

STRUCTURED, BATCH = "application/cloudevents+json", "application/cloudevents-batch+json"
TOLERANCE_SECONDS = 300.0
"""A signature of another time is refused: whoever recorded it cannot send it again later."""
MOST_EVENTS = 100
"""Events of one batch."""
MOST_NAME = 1024
"""Characters of a table's name."""
_NAMED_BY = ("table", "identifier", "name")
"""Fields that name a table, alone or beside `namespace`."""


class Refused(Exception):
    """The request is no event that is taken."""

    def __init__(self, status: int, why: str) -> None:
        """status: of the HTTP answer. why: a word for the metrics."""
        super().__init__(why)
        self.status, self.why = status, why


@dataclass(frozen=True, slots=True)
class Secrets:
    """What senders prove who they are by."""

    token: bytes = b""
    """Bearer token; empty for none."""
    key: bytes = b""
    """Key of signatures, as text with the prefix whsec_ and base64, or plain; empty for none."""

    def __repr__(self) -> str:
        return "Secrets(...)"


@dataclass(frozen=True, slots=True)
class Told:
    """One event."""

    id: bytes
    """A hash of its source and id, which are the same for a repetition, and may be long."""
    table: str
    """Levels of the table's name joined by dots, with or without the catalog's name before them."""


def told(headers: Mapping[str, str], body: bytes, *, signed: bool) -> list[Told]:
    """Return the events of a request. headers: by lower-case name. signed: as `proved` returned.

    Raises Refused for one that is malformed or names no table.
    """
    events = _events(headers, body, signed)
    if len(events) > MOST_EVENTS:
        raise Refused(413, "malformed")
    return [_told(event) for event in events]


def proved(headers: Mapping[str, str], body: bytes, secrets: Secrets, now: float) -> bool:
    """Return whether a signature proves the sender, and not a token. headers: by lower-case name.
    now: in seconds since 1970. Raises Refused for a forged or late request."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    if secrets.token and scheme.lower() == "bearer":
        if hmac.compare_digest(token.strip().encode(), secrets.token):
            return False
        raise Refused(401, "unauthorized")
    key = key_of(secrets.key)
    if not key or "webhook-signature" not in headers:
        raise Refused(401, "unauthorized")
    sent, moment = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
    wanted = base64.b64encode(
        hmac.new(key, f"{sent}.{moment}.".encode() + body, hashlib.sha256).digest()
    )
    given = [one.partition(",") for one in headers["webhook-signature"].split()]
    if not any(
        version == "v1" and hmac.compare_digest(text.encode(), wanted) for version, _, text in given
    ):
        raise Refused(401, "unauthorized")
    if not moment.isascii() or not moment.isdigit() or abs(now - int(moment)) > TOLERANCE_SECONDS:
        raise Refused(401, "late")
    return True


def key_of(given: bytes) -> bytes:
    """Return the key of signatures that a secret holds, empty for none."""
    if not given.startswith(b"whsec_"):
        return given
    try:
        return base64.b64decode(given[6:], validate=True)
    except binascii.Error:
        return given


def _events(headers: Mapping[str, str], body: bytes, signed: bool) -> list[Mapping[str, Any]]:
    """Return the events as JSON objects, in the form of structured mode."""
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind in (STRUCTURED, BATCH):
        found = _json(body)
        events = found if kind == BATCH else [found]
        if not isinstance(events, list) or not all(isinstance(one, Mapping) for one in events):
            raise Refused(400, "malformed")
        return events
    attributes = {
        name[3:]: unquote(text) for name, text in headers.items() if name.startswith("ce-")
    }
    if signed:
        attributes = {"id": headers.get("webhook-id", ""), "source": "signed", "type": "signed",
                      "specversion": attributes.get("specversion", "")}  # fmt: skip
    return [{**attributes, "data": _json(body) if body else None}]


def _json(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        raise Refused(400, "malformed") from None


def _told(event: Mapping[str, Any]) -> Told:
    required = [event.get(name) for name in ("id", "source", "type")]
    whole = all(isinstance(one, str) and one for one in required)
    if event.get("specversion") != "1.0" or not whole:
        raise Refused(400, "malformed")
    table = next(_names(event), "")
    if not table or len(table) > MOST_NAME:
        raise Refused(422, "unnamed")
    sent = f"{event['source']} {event['id']}".encode("utf-8", "surrogatepass")
    return Told(hashlib.blake2b(sent, digest_size=16).digest(), table)


def _names(event: Mapping[str, Any]) -> Iterator[str]:
    """Yield the names that an event holds, the most definite one first: in its data, in its
    extension attributes, in its subject."""
    for body in (event.get("data"), event):
        if not isinstance(body, Mapping):
            continue
        space = _text(body.get("namespace"))
        for field in _NAMED_BY:
            given = body.get(field)
            inner = next(_names({"data": given}), "") if isinstance(given, Mapping) else ""
            name = inner or _text(given)
            if name and (space or field != "name"):
                yield f"{space}.{name}" if space and not inner else name
    subject = event.get("subject")
    if isinstance(subject, str):
        yield subject.strip("/").replace("/", ".")


def _text(given: Any) -> str:
    """Return the levels joined by dots: of a list, or of a text in any of the usual forms."""
    if isinstance(given, list) and all(isinstance(one, str) for one in given):
        return ".".join(given)
    return given.replace("\x1f", ".") if isinstance(given, str) else ""
