"""What an engine's errors mean."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Protocol

from reconciler.errors import ReconcilerError


class Errors(Protocol):
    """What the engine's errors mean."""

    def lost(self, error: BaseException) -> bool:
        """Whether the process that does the engine's work is gone: the outcome is unknown."""
        ...

    def message(self, error: BaseException) -> str:
        """Return one line that says what happened, never a stack."""
        ...

    def text(self, error: BaseException) -> str:
        """Return what the error and its causes say, with the names of their classes."""
        ...

    def error_class(self, error: BaseException) -> str:
        """Return the name of the class of the error, without its text."""
        ...

    def is_missing_file(self, error: BaseException) -> bool:
        """Whether a file was not found, and it is not that one may not open it."""
        ...

    def is_missing_table(self, error: BaseException) -> bool:
        """Whether the catalog has no table of that name."""
        ...

    def is_unwritable(self, error: BaseException) -> bool:
        """Whether the storage is full or read-only: any further write fails too."""
        ...

    def translate(self, error: BaseException, doing: str) -> ReconcilerError:
        """Return the error for people. doing: "rewrite sales.lineitem". Raises it as it is if it is
        one of this version's own code."""
        ...


@contextlib.contextmanager
def translated(errors: Errors, doing: str) -> Iterator[None]:
    """Run a block; `doing` ("rewrite sales.lineitem") is the subject of any error."""
    try:
        yield
    except ReconcilerError:
        raise
    except Exception as error:
        raise errors.translate(error, doing) from error
