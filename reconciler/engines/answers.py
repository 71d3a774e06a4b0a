"""What a catalog answered to one commit, as far as its sender can tell."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """What became of a request."""

    ACCEPTED = "accepted"
    """The catalog said that the commit is done."""
    UNSENT = "unsent"
    """Nothing was sent: the library takes no such commit, or the table needs Spark."""
    FAILED = "failed"
    """The storage or the database failed before the request left: nothing of it can arrive."""
    REFUSED = "refused"
    """A check of ours or of the library refused it, or files that it removes are gone; nothing of
    it can arrive."""
    LOST_RACE = "lost race"
    """Another commit came first, and nothing of it can arrive."""
    DENIED = "denied"
    """The catalog lets this user commit nothing."""
    INVALID = "invalid"
    """The library, or the catalog, finds the commit wrong, whatever the table's state is."""
    UNKNOWN = "unknown"
    """It may have arrived, or may arrive yet."""
    LOST = "lost"
    """The process that sent it is gone, with an unknown outcome."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of one request."""

    kind: Kind
    """What the catalog, or the library in front of it, did with the commit."""
    why: str = ""
    """What the catalog or the library said, one line, "" if it was accepted."""
    error: Exception | None = None
    """What was raised, None if nothing was: the catalog's own answer may be all there is."""
    cannot_arrive: bool = False
    """Whether nothing of it can be in the table later, unless it arrived twice."""


ACCEPTED = Answer(Kind.ACCEPTED)
