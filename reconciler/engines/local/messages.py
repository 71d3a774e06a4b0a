"""What the process that plans and a process that works tell each other."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from typing import Any

LISTENS = b"\n"
"""What the server writes once it listens; instead of it, the error for which it does not."""


@dataclass(frozen=True, slots=True)
class Returned:
    """The work was done."""

    value: Any
    """What it returned."""


@dataclass(frozen=True, slots=True)
class Raised:
    """The work failed by an error."""

    error: BaseException
    """The error itself, or a RuntimeError with its text if it cannot be sent."""

    @staticmethod
    def of(error: BaseException) -> Raised:
        try:
            pickle.loads(pickle.dumps(error))
        except Exception:  # of any class that cannot be made again from its arguments
            return Raised(RuntimeError(f"{type(error).__name__}: {error}"))
        return Raised(error)


def packed(value: Any) -> bytes:
    return pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)


def unpacked(message: bytes) -> Any:
    return pickle.loads(message)
