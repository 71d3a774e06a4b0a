"""What a catalog answered to one commit, as far as its sender can tell."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """What became of a request."""

    ACCEPTED = "accepted"
    """The catalog said that the commit is done."""
    UNSENT = "unsent"
    """The content of the commit was found wrong before anything was sent: what it removes is not
    there any more."""
    REFUSED = "refused"
    """A check of ours or of the library refused it, and nothing of it can arrive."""
    LOST_RACE = "lost race"
    """Another commit came first, and nothing of it can arrive."""
    DENIED = "denied"
    """The catalog lets this user commit nothing."""
    INVALID = "invalid"
    """The library does not make such a snapshot; nothing was sent."""
    UNKNOWN = "unknown"
    """It may have arrived, or may arrive yet."""
    LOST = "lost"
    """The process that sent it is gone, with an unknown outcome."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of one request."""

    kind: Kind
    """Of which kind it is."""
    why: str = ""
    """What the catalog or the library said, one line, "" if it was accepted."""
    error: Exception | None = None
    """What was raised, None if it was accepted."""
    cannot_arrive: bool = False
    """Whether nothing of it can be in the table later, unless it arrived twice."""


ACCEPTED = Answer(Kind.ACCEPTED)
