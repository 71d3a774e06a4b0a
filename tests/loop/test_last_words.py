"""Every way a run can end has a cause, and the cause says whether trying again helps."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from reconciler import errors
from reconciler.kube.termination_message import Cause
from reconciler.loop.driver_job import last_words, said_by

CAUSES = {
    errors.UserError: Cause.USER_ERROR,
    errors.UnsupportedError: Cause.UNSUPPORTED,
    errors.AccessDeniedError: Cause.ACCESS_DENIED,
    errors.TableNotFoundError: Cause.USER_ERROR,
    errors.TableDamagedError: Cause.USER_ERROR,
    errors.FileMissingError: Cause.USER_ERROR,
    errors.KeyNotFoundError: Cause.USER_ERROR,
    errors.StateError: Cause.USER_ERROR,
    errors.StalePlanError: Cause.CONFLICT,
    errors.RefusedInputsError: Cause.CONFLICT,
    errors.BlockedError: Cause.UNAVAILABLE,
    errors.VetoError: Cause.USER_ERROR,
    errors.RolledBackError: Cause.ROLLED_BACK,
    errors.PausedError: Cause.STOPPED,
    errors.LiveBranchesError: Cause.LIVE_BRANCHES,
    errors.AuditFailedError: Cause.AUDIT_FAILED,
    errors.UnavailableError: Cause.UNAVAILABLE,
    errors.InternalError: Cause.UNKNOWN,
    errors.InterruptedByUser: Cause.STOPPED,
    errors.VerificationError: Cause.VERIFICATION_FAILED,
    errors.ConflictError: Cause.CONFLICT,
    errors.MemoryExhaustedError: Cause.OUT_OF_MEMORY,
    errors.UnknownCommitError: Cause.UNAVAILABLE,
    errors.RefusedAddressError: Cause.USER_ERROR,
    errors.RedirectedError: Cause.UNAVAILABLE,
    errors.UnusableLogError: Cause.USER_ERROR,
}


@pytest.mark.parametrize("kind", CAUSES, ids=lambda kind: kind.__name__)
def test_an_error_has_its_cause(kind: type[errors.ReconcilerError]) -> None:
    words = last_words(kind("subject", details=("Detail.",), do="do this"))
    assert words.cause is CAUSES[kind]
    assert words.message == "subject. Detail"


def test_every_error_is_covered() -> None:
    def below(kind: type) -> set[type]:
        return {kind}.union(*(below(sub) for sub in kind.__subclasses__()))

    shown_elsewhere = {errors.ReconcilerError, errors.InvalidDocuments}
    known = {k for k in below(errors.ReconcilerError) if k.__module__ == "reconciler.errors"}
    assert known - shown_elsewhere == set(CAUSES)


@pytest.mark.parametrize(
    "error",
    [
        KeyError("s3cret-value"),
        errors.InternalError("could not rewrite t", said=("CastError: s3cret-value",)),
        errors.TableDamagedError("a file of t cannot be read", said=("s3cret-value",)),
    ],
    ids=["python", "unknown", "damage"],
)
def test_what_an_engine_said_is_in_the_log_of_the_job_and_stored_nowhere(
    error: BaseException,
) -> None:
    words = last_words(error)
    assert "s3cret" not in words.line()
    assert any("s3cret" in text for text in said_by(error))


def test_a_fault_of_ours_is_unknown_and_one_of_memory_is_not() -> None:
    assert last_words(KeyError("x")).cause is Cause.UNKNOWN
    assert last_words(MemoryError()).cause is Cause.OUT_OF_MEMORY


@pytest.mark.parametrize(
    ("script", "log", "cause"),
    [
        ("import os; os.kill(os.getpid(), 9)", "", Cause.OUT_OF_MEMORY),
        ("raise SystemExit(3)", "Terminating due to java.lang.OutOfMemoryError: Java heap space",
         Cause.OUT_OF_MEMORY),
        ("raise SystemExit(1)", "java.lang.OutOfMemoryError: Metaspace", Cause.OUT_OF_MEMORY),
        ("raise SystemExit(1)", "could not bind", Cause.UNAVAILABLE),
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    "error",
    [errors.UnavailableError("the Spark process ended"), ConnectionRefusedError(111, "refused")],
    ids=["translated", "raw"],
)
def test_a_jvm_that_ended_says_why(
    script: str, log: str, cause: Cause, error: Exception, tmp_path: Path
) -> None:
    process = subprocess.Popen([sys.executable, "-c", script])
    path = tmp_path / "jvm.log"
    path.write_text(log)
    spark = SimpleNamespace(gateway=SimpleNamespace(proc=process), log=path)
    words = last_words(error, spark)
    assert words.cause is cause
    assert "JVM ended" in words.message


def test_an_error_without_a_text_of_its_own_is_reported_by_its_type() -> None:
    """That of a Java exception is asked of a JVM, which may have ended."""

    class Remote(Exception):
        def __str__(self) -> str:
            raise ConnectionRefusedError(111, "refused")

    assert last_words(Remote()).message.startswith(Remote.__name__)
    assert said_by(Remote()) == ()


def test_a_verification_that_failed_is_not_blamed_on_a_jvm(tmp_path: Path) -> None:
    words = last_words(errors.VerificationError("rows differ"), object())
    assert words.cause is Cause.VERIFICATION_FAILED and not words.retry
