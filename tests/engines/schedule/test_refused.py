"""Which errors of a group leave its inputs out of later plans: none that may pass by itself."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from reconciler.api.choices import EngineType
from reconciler.engines.schedule import refused
from reconciler.engines.schedule.refused import DamagedInputError, EngineError, NotWritableError
from reconciler.errors import (
    AccessDeniedError,
    BlockedError,
    ConflictError,
    MemoryExhaustedError,
    TableDamagedError,
    UnavailableError,
    UnsupportedError,
    UserError,
    VerificationError,
)
from reconciler.rewrite.failures import ENDED, Failure
from reconciler.spark.session import translate
from reconciler.table.refusals import (
    DAMAGED,
    FAILED,
    NOT_WRITABLE,
    OUT_OF_MEMORY,
    Refusal,
    circumstances,
)

A, B, MEMORY = "file:/a", "file:/b", 7
NO_TYPE = UnsupportedError("t has columns of types that Spark cannot write: at (time)", do="leave")
BROKEN = Refusal(A, DAMAGED, "s", "it cannot be decoded", 5)

LEFT_OUT: dict[str, tuple[Exception, str, set[str]]] = {
    "an error of this code": (OverflowError("date value out of range"), FAILED, {A, B}),
    "an error of the engine": (EngineError("rewrite t", "", "TypeError", "x"), FAILED, {A, B}),
    "one at a file": (EngineError("rewrite t", B, "TypeError", "x"), FAILED, {B}),
    "one at another's file": (EngineError("rewrite t", "file:/c", "E", "x"), FAILED, {A, B}),
    "memory": (MemoryExhaustedError("too little"), OUT_OF_MEMORY, {A, B}),
    "memory for a file": (MemoryExhaustedError("too little", path=A), OUT_OF_MEMORY, {A}),
    "a killed container": (RuntimeError("Container killed on request"), OUT_OF_MEMORY, {A, B}),
    "what cannot be written": (NotWritableError(NO_TYPE, "of x", [A, B]), NOT_WRITABLE, {A, B}),
    "a damaged file": (
        DamagedInputError("bad", said=(), details=(), do="restore", refusals=(BROKEN,)),
        DAMAGED, {A},
    ),
    "damage somewhere": (TableDamagedError("a file cannot be read", do="restore"), FAILED, {A, B}),
}  # fmt: skip
PASSING: dict[str, Exception] = {
    "storage": UnavailableError("the storage gave an error"),
    "rights": AccessDeniedError("refused"),
    "a lease": BlockedError("lost"),
    "a process that ended with its machine": refused.ended(
        "rewrite t", Failure("", "", "it ended", ENDED), "no budget"
    ),
    "a conflict": ConflictError("another writer"),
    "a setting": UserError("a location provider ignores write.data.path"),
    "outputs that somebody removed": VerificationError("cannot be read"),
    "a file that was replaced": FileNotFoundError(2, "No such file or directory", A),
    "a full disk": OSError(28, "No space left on device"),
    "a JVM that ended": ConnectionResetError("reset by peer"),
}


def _recorded(
    error: Exception, *, cancelled: bool = False, engine: EngineType = EngineType.SPARK
) -> list[Refusal]:
    found: list[Refusal] = []
    ledger = SimpleNamespace(record_refusals=lambda _, some: found.extend(some))
    request = SimpleNamespace(memory_bytes=MEMORY, table_uuid="u", engine=engine)
    table = SimpleNamespace(errors=translate)
    run: Any = SimpleNamespace(request=request, ledger=ledger, table=table)
    attempt: Any = SimpleNamespace(name="t", cancelled=SimpleNamespace(is_set=lambda: cancelled))
    refused.record(run, attempt, [A, B], error)
    return found


@pytest.mark.parametrize("case", LEFT_OUT)
def test_what_would_fail_again_is_recorded_with_what_it_rests_on(case: str) -> None:
    error, reason, paths = LEFT_OUT[case]
    found = _recorded(error)
    assert {one.path for one in found} == paths
    assert {(one.reason, one.under) for one in found} == {(reason, circumstances(reason, MEMORY))}
    assert "date value" not in "".join(one.text for one in found)  # no value of the table


@pytest.mark.parametrize("case", PASSING)
def test_what_may_pass_by_itself_is_not(case: str) -> None:
    assert _recorded(PASSING[case]) == []


def test_memory_of_this_machine_is_no_reason_to_leave_files_out() -> None:
    """It is what was free at the time."""
    for error, reason, paths in LEFT_OUT.values():
        found = _recorded(error, engine=EngineType.LOCAL)
        assert {one.path for one in found} == (set() if reason == OUT_OF_MEMORY else paths)


def test_nothing_is_recorded_of_groups_that_are_stopped_because_another_one_failed() -> None:
    assert _recorded(OverflowError("x"), cancelled=True) == []
    assert _recorded(LEFT_OUT["a damaged file"][0], cancelled=True) == [BROKEN]
