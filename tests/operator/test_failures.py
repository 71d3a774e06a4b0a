"""Failures by cause: what is tried again, when, and what stalls until something changes."""

from __future__ import annotations

import datetime as dt
import json

import pytest

from reconciler.kube.termination_message import Cause
from reconciler.operator.layout.failures import (
    CANNOT_START,
    NO_EFFECT,
    NOT_STARTED,
    Failures,
    Scopes,
    after,
    cause_of,
    failures_of,
    refused,
    trouble,
    waiting_for,
)

NOW = dt.datetime(2026, 11, 20, 12, tzinfo=dt.UTC)
SCOPES = Scopes("spec-1", "world-1")


def repeated(cause: str, times: int) -> Failures:
    known = None
    for _ in range(times):
        known = after(known, cause, "it broke", SCOPES, NOW)
    assert known is not None
    return known


@pytest.mark.parametrize(
    ("cause", "most", "reason"),
    [
        (Cause.OUT_OF_MEMORY, 2, "OutOfMemory"),
        (Cause.CONFLICT, 5, "ConflictLoop"),
        (Cause.VERIFICATION_FAILED, 1, "VerificationFailed"),
        (Cause.ROLLED_BACK, 1, "RolledBack"),
        (Cause.LIVE_BRANCHES, 1, "LiveBranches"),
        (Cause.AUDIT_FAILED, 1, "AuditFailed"),
        (Cause.USER_ERROR, 1, "JobFailed"),
        (Cause.UNSUPPORTED, 1, "UnsupportedTable"),
        (Cause.ACCESS_DENIED, 1, "AccessDenied"),
        (NOT_STARTED, 3, "JobNotStarted"),
        (CANNOT_START, 1, "JobNotStarted"),
        (NO_EFFECT, 2, "NoEffect"),
    ],
)
def test_a_cause_stalls_after_its_number_in_a_row(cause: str, most: int, reason: str) -> None:
    for times in range(1, most):
        assert trouble(repeated(cause, times), SCOPES, NOW).stall == ""
    assert trouble(repeated(cause, most), SCOPES, NOW).stall == reason


def test_out_of_memory_is_tried_once_more_with_half_as_much_again() -> None:
    assert trouble(repeated(Cause.OUT_OF_MEMORY, 1), SCOPES, NOW).memory_factor == 1.5
    assert trouble(repeated(Cause.UNKNOWN, 1), SCOPES, NOW).memory_factor == 1.0


def test_back_off_doubles_from_half_a_minute_to_an_hour() -> None:
    waits = [repeated(Cause.UNAVAILABLE, n).until - NOW for n in (1, 2, 3, 8, 40)]
    assert [wait.total_seconds() for wait in waits] == [30, 60, 120, 3600, 3600]


def test_a_loop_of_conflicts_is_tried_again_every_hour() -> None:
    """The writers may have gone; nobody has to change the policy then."""
    waits = [repeated(Cause.CONFLICT, n).until - NOW for n in (1, 4, 5, 6)]
    assert [wait.total_seconds() for wait in waits] == [30, 240, 3600, 3600]
    known = repeated(Cause.CONFLICT, 5)
    assert trouble(known, SCOPES, known.until).stall == ""
    assert trouble(known, SCOPES, known.until).conflict
    assert not trouble(repeated(Cause.UNKNOWN, 1), SCOPES, NOW).conflict


def test_another_cause_starts_the_count_anew() -> None:
    known = after(repeated(Cause.CONFLICT, 4), Cause.UNAVAILABLE, "m", SCOPES, NOW)
    assert known.count == 1
    assert after(known, Cause.UNKNOWN, "m", SCOPES, NOW).count == 2


def test_a_stopped_job_is_not_a_failure() -> None:
    assert after(None, Cause.STOPPED, "", SCOPES, NOW) is None


def test_a_stall_ends_with_the_change_that_its_cause_waits_for() -> None:
    denied, failed = repeated(Cause.ACCESS_DENIED, 1), repeated(Cause.VERIFICATION_FAILED, 1)
    new_secret = Scopes("spec-1", "world-2")
    assert trouble(denied, new_secret, NOW).stall == ""
    assert trouble(failed, new_secret, NOW).stall == "VerificationFailed"
    assert trouble(failed, Scopes("spec-2", "world-2"), NOW).stall == ""


def test_a_table_that_changes_all_the_time_does_not_shorten_the_back_off() -> None:
    """A job that fails by its user's error would be started again after every append."""
    known = None
    for number in range(4):
        known = after(known, Cause.USER_ERROR, "no such key", table(number), NOW)
    assert trouble(known, table(3), NOW).stall == "JobFailed"
    written = trouble(known, table(4), NOW)
    assert (written.stall, written.until) == ("", NOW + dt.timedelta(minutes=4))
    assert trouble(known, Scopes("spec-1", "world-2", "t3"), NOW).until is None


def table(version: int) -> Scopes:
    return Scopes("spec-1", "world-1", f"t{version}")


def test_failures_survive_their_status() -> None:
    known = repeated(Cause.CONFLICT, 3)
    assert failures_of({"failures": known.status()}) == known
    assert failures_of({"failures": {"count": 0}}) is None


def pod(**terminated: object) -> dict:
    return {"status": {"containerStatuses": [{"state": {"terminated": terminated}}]}}


def test_the_cause_is_the_last_words_else_the_exit_else_the_job() -> None:
    words = json.dumps({"cause": "Conflict", "message": "lost", "do": "", "retry": True})
    assert cause_of([pod(exitCode=5, message=words)], None).cause == Cause.CONFLICT
    assert cause_of([pod(exitCode=137, reason="OOMKilled")], None).cause == Cause.OUT_OF_MEMORY
    killed = cause_of([pod(exitCode=137, reason="Error")], None)
    assert killed.cause == Cause.UNKNOWN and "killed" in killed.message
    assert cause_of([pod(exitCode=4, message="Traceback")], None).cause == Cause.UNKNOWN
    refused = pod(exitCode=128, reason="StartError", message="ENOENT")
    assert "ENOENT" in cause_of([refused], None).message
    late = {"status": {"conditions": [{"type": "Failed", "status": "True", "reason": "Deadline"}]}}
    assert "Deadline" in cause_of([], late).message


def test_what_a_node_or_the_job_controller_says_is_shown() -> None:
    """An evicted pod has exit code 137 too, or no container at all."""
    told = {"phase": "Failed", "reason": "Evicted", "message": "ephemeral storage exceeds 20Gi"}
    killed = pod(exitCode=137, reason="ContainerStatusUnknown")["status"]
    for status in ({**killed, **told}, told):
        found = cause_of([{"status": status}], None)
        assert found.cause == Cause.UNKNOWN
        assert "Evicted" in found.message and "ephemeral storage" in found.message
    words = json.dumps({"cause": "Conflict", "message": "lost", "do": "", "retry": True})
    reported = pod(exitCode=137, message=words)["status"]
    assert cause_of([{"status": {**reported, **told}}], None).cause == Cause.CONFLICT
    condition = {"type": "Failed", "status": "True", "reason": "Deadline", "message": "too long"}
    assert "too long" in cause_of([], {"status": {"conditions": [condition]}}).message


def test_a_driver_that_was_stopped_did_not_fail() -> None:
    ended = pod(exitCode=143, reason="Error")
    assert cause_of([ended], None).cause == Cause.UNKNOWN
    assert cause_of([ended], None, "PlanChanged").cause == Cause.STOPPED
    assert cause_of([], None, "PlanChanged").cause == Cause.STOPPED
    words = json.dumps({"cause": "Conflict", "message": "lost", "do": "", "retry": True})
    assert cause_of([pod(exitCode=5, message=words)], None, "PlanChanged").cause == Cause.CONFLICT
    assert cause_of([], None).cause == Cause.UNKNOWN


def test_a_pod_that_cannot_start_says_why() -> None:
    waiting = {"reason": "ImagePullBackOff", "message": "unknown"}
    stuck = {"status": {"containerStatuses": [{"state": {"waiting": waiting}}]}}
    assert waiting_for([stuck]) == "ImagePullBackOff: unknown"
    assert waiting_for([pod(exitCode=0)]) == ""


def test_a_refused_image_is_tried_again_each_hour_and_at_once_after_a_change() -> None:
    known = repeated(CANNOT_START, 1)
    assert known.until == NOW + dt.timedelta(hours=1)
    assert trouble(known, SCOPES, NOW).stall == "JobNotStarted"
    assert trouble(known, SCOPES, known.until).stall == ""
    corrected = trouble(known, Scopes("spec-1", "world-2"), NOW)
    assert (corrected.stall, corrected.until) == ("", None)


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("ImagePullBackOff", True),
        ("InvalidImageName", True),
        ("CreateContainerConfigError", True),
        ("ContainerCreating", False),
    ],
)
def test_what_the_kubelet_refuses_is_not_what_takes_time(reason: str, expected: bool) -> None:
    pod = {"status": {"containerStatuses": [{"state": {"waiting": {"reason": reason}}}]}}
    assert refused([pod]) is expected
