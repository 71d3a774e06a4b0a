"""Which inputs later plans leave out because of a group's error: the same work would fail again.

What may pass by itself (storage, credentials, conflicts, a JVM that ended) leaves nothing. What
rests on the files, on this version or on the memory of tasks is recorded with what it rests on.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace

from reconciler.api.choices import EngineType
from reconciler.engines.engine_errors import Errors
from reconciler.engines.schedule.attempt import Attempt
from reconciler.engines.schedule.run import Run
from reconciler.errors import (
    InternalError,
    MemoryExhaustedError,
    ReconcilerError,
    TableDamagedError,
    UnavailableError,
    UnsupportedError,
    VerificationError,
)
from reconciler.rewrite.failures import LOST, Failure
from reconciler.table.refusals import (
    FAILED,
    NOT_WRITABLE,
    OUT_OF_MEMORY,
    Refusal,
    circumstances,
)

LEFT_OUT = (
    "Later plans leave the files out until the table replaces them, or another version or other "
    "memory is used."
)


class NotWritableError(UnsupportedError):
    """The engine leaves files to Spark, which cannot write them either."""

    def __init__(self, error: UnsupportedError, reason: str, paths: Collection[str]) -> None:
        super().__init__(error.what, details=(*error.details, LEFT_OUT), do=error.do)
        detail = f"left to Spark, which cannot write it, because {reason}"
        self.refusals = tuple(Refusal(path, NOT_WRITABLE, "", detail) for path in paths)


class DamagedInputError(TableDamagedError):
    """An input is damaged. refusals: this input, which no plan takes again before it changes."""

    def __init__(
        self, what: str, *, said: tuple[str, ...], details: tuple[str, ...], do: str,
        refusals: tuple[Refusal, ...],
    ) -> None:  # fmt: skip
        super().__init__(what, said=said, details=details, do=do)
        self.refusals = refusals


class NotVerified(VerificationError):
    """refusals: the inputs that no plan takes again before they change."""

    def __init__(
        self, what: str, *, details: tuple[str, ...], do: str, refusals: Iterable[Refusal]
    ) -> None:
        super().__init__(what, details=details, do=do)
        self.refusals = tuple(refusals)


class EngineError(InternalError):
    """The engine failed by an error of its own. path: of the file that it failed at, "" if it
    concerns no single one. kind: the error's name."""

    def __init__(self, doing: str, path: str, kind: str, said: str) -> None:
        at = f" at {path}" if path else ""
        super().__init__(
            f"could not {doing}: the engine failed{at} ({kind})",
            said=(said,),
            details=("Nothing of this step was committed.", LEFT_OUT),
            do="report it with the run's log",
        )
        self.path, self.kind = path, kind


class EndedError(MemoryExhaustedError):
    """A process ended, perhaps for want of memory, and nobody saw a second one end: the inputs are
    left out of no later plan."""


def ended(doing: str, failure: Failure, left: str) -> UnavailableError:
    """Return the error of a process that ended. failure: of kind ENDED or LOST. left: what is as it
    was."""
    if failure.kind == LOST:  # more memory would not help
        return UnavailableError(
            f"could not {doing}: {failure.detail}",
            details=(left,),
            do="see why machines are lost (evicted, preempted, node gone), then run it again",
        )
    return EndedError(
        f"could not {doing}: {failure.detail}",
        details=(left,),
        do="leave budget for a second try, or raise spec.engine.executors.memory in a cluster",
    )


def record(run: Run, attempt: Attempt, paths: Collection[str], error: Exception) -> None:
    """Record the inputs of a group that its error leaves out of later plans. paths: of all of
    them."""
    found = _named(error)
    if not found and not attempt.cancelled.is_set():
        found = [*_blamed(run.table.errors, error, paths, f"rewrite {attempt.name}")]
    memory = run.request.memory_bytes
    if run.request.engine is EngineType.LOCAL:  # whose memory is what is free at the time
        found = [one for one in found if one.reason != OUT_OF_MEMORY]
    made = [replace(one, under=circumstances(one.reason, memory)) for one in found]
    if made:
        run.ledger.record_refusals(run.request.table_uuid, made)


def _named(error: Exception) -> list[Refusal]:
    """Return the refusals that the error itself has."""
    if isinstance(error, (NotVerified, DamagedInputError, NotWritableError)):
        return list(error.refusals)
    return []


def _blamed(
    errors: Errors, error: Exception, paths: Collection[str], doing: str
) -> Iterator[Refusal]:
    known = _translated(errors, error, doing)
    if isinstance(known, EndedError):
        return
    path = known.path if isinstance(known, (MemoryExhaustedError, EngineError)) else ""
    reason, detail = FAILED, f"a rewrite with it failed ({errors.error_class(error)})"
    if isinstance(known, MemoryExhaustedError):
        reason, detail = OUT_OF_MEMORY, "a rewrite with it took more memory than a task has"
    elif isinstance(known, EngineError):
        detail = f"a rewrite with it failed ({known.kind})"
    elif known is not None and (
        type(known) not in (InternalError, TableDamagedError) or errors.is_missing_file(error)
    ):
        return
    for one in [path] if path in paths else sorted(paths):
        yield Refusal(one, reason, "", detail)


def _translated(errors: Errors, error: Exception, doing: str) -> ReconcilerError | None:
    """Return the error for people, None for one of this version's own code."""
    if isinstance(error, ReconcilerError):
        return error
    try:
        return errors.translate(error, doing)
    except Exception as unknown:
        if unknown is error:
            return None
        raise
