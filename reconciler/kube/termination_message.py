"""The termination message of a driver pod: one JSON line in its termination log, for the operator.

It names the cause of the end, and the cause decides what follows (operator: failures by cause).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import StrEnum

MOST_BYTES = 4096
"""Bytes that the kubelet keeps of a termination log."""


class Cause(StrEnum):
    OUT_OF_MEMORY = "OutOfMemory"
    CONFLICT = "Conflict"
    VERIFICATION_FAILED = "VerificationFailed"
    ROLLED_BACK = "RolledBack"
    LIVE_BRANCHES = "LiveBranches"
    AUDIT_FAILED = "AuditFailed"
    USER_ERROR = "UserError"
    UNSUPPORTED = "Unsupported"
    ACCESS_DENIED = "AccessDenied"
    UNAVAILABLE = "Unavailable"
    UNKNOWN = "Unknown"
    STOPPED = "Stopped"


WORTH_A_RETRY = frozenset(
    {Cause.OUT_OF_MEMORY, Cause.CONFLICT, Cause.UNAVAILABLE, Cause.UNKNOWN, Cause.STOPPED}
)
"""The other causes need a change of the spec, the secret or the table first."""


@dataclass(frozen=True, slots=True)
class LastWords:
    """message: what went wrong, with its subject in it. do: what a person should do, "" for
    nothing."""

    cause: Cause
    message: str
    do: str = ""

    @property
    def retry(self) -> bool:
        return self.cause in WORTH_A_RETRY

    def line(self) -> str:
        """Return the JSON line of at most MOST_BYTES: a long message is cut, the JSON stays
        valid."""
        kept, do = self.message, self.do[: MOST_BYTES // 8]
        while True:
            body = {"cause": self.cause.value, "message": kept, "do": do, "retry": self.retry}
            line = json.dumps(body, ensure_ascii=False)
            over = len(line.encode("utf-8", "replace")) - MOST_BYTES
            if over <= 0:
                return line
            kept = kept[: max(0, len(kept) - max(over // 4, 1) - 1)] + "…"


def read_last_words(text: str) -> LastWords | None:
    """Return the message, None if the text is not ours: a summary, a killed process, another
    program."""
    try:
        # Not splitlines(): JSON strings may contain U+0085 and similar.
        body = json.loads(text.strip().split("\n")[-1])
        return LastWords(Cause(body["cause"]), str(body["message"]), str(body.get("do") or ""))
    except (ValueError, KeyError, TypeError, IndexError, RecursionError):
        return None
