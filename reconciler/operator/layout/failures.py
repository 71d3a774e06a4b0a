"""Decides what follows from the way a job ended: by cause, with back-off, and a limit of retries.

Pure. status.failures holds the failures in a row of one cause, and what must change before a
stalled table is tried again (`Scopes`). The table of causes is in docs/design/operator.md.
"""

from __future__ import annotations

import datetime as dt
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from reconciler.api.conditions import Reason
from reconciler.kube.pods import container_states
from reconciler.kube.termination_message import Cause, LastWords, read_last_words
from reconciler.operator.layout.facts import Trouble
from reconciler.operator.layout.table_checks import LONGEST_BACK_OFF
from reconciler.operator.status_text import cut, parse_time, utc

NOT_STARTED = "NotStarted"
CANNOT_START = "CannotStart"
NO_EFFECT = "NoEffect"
FOREIGN_JOB = "ForeignJob"
NOT_CREATED = "NotCreated"
"""Causes that no driver reports: its pod never ran, its image or configuration was refused, it
ended well and changed nothing, another's Job has its name, the API server refused to create it."""

FIRST_WAIT = dt.timedelta(seconds=30)
LONGEST_WAIT = LONGEST_BACK_OFF
MORE_MEMORY = 1.5


@dataclass(frozen=True, slots=True)
class Rule:
    """What follows from failures of one cause."""

    most: int | None
    """Failures in a row before the table stalls; None: it never does."""
    reason: str = ""
    """Reason of Stalled."""
    until_spec: bool = False
    """Whether only a change of the policy or of the layout's spec ends the stall. Otherwise a
    change of the catalog or of its secret ends it too, and a change of the table after the
    back-off."""
    retries: bool = False
    """Whether a stalled table is tried again after the longest back-off, whatever has changed."""


RULES: Mapping[str, Rule] = {
    Cause.OUT_OF_MEMORY: Rule(2, Reason.OUT_OF_MEMORY, True),
    Cause.CONFLICT: Rule(5, Reason.CONFLICT_LOOP, True, retries=True),
    Cause.VERIFICATION_FAILED: Rule(1, Reason.VERIFICATION_FAILED, True),
    Cause.ROLLED_BACK: Rule(1, Reason.ROLLED_BACK, True),
    Cause.LIVE_BRANCHES: Rule(1, Reason.LIVE_BRANCHES),
    Cause.AUDIT_FAILED: Rule(1, Reason.AUDIT_FAILED),
    Cause.USER_ERROR: Rule(1, Reason.JOB_FAILED),
    Cause.UNSUPPORTED: Rule(1, Reason.UNSUPPORTED_TABLE),
    Cause.ACCESS_DENIED: Rule(1, Reason.ACCESS_DENIED),
    NOT_STARTED: Rule(3, Reason.JOB_NOT_STARTED),
    CANNOT_START: Rule(1, Reason.JOB_NOT_STARTED, retries=True),
    NO_EFFECT: Rule(2, Reason.NO_EFFECT),
    FOREIGN_JOB: Rule(1, Reason.FOREIGN_JOB),
    NOT_CREATED: Rule(None),
    Cause.UNAVAILABLE: Rule(None),
    Cause.UNKNOWN: Rule(None),
}


@dataclass(frozen=True, slots=True)
class Scopes:
    """Hashes of what the next attempt depends on."""

    spec: str
    """Hash of the policy and of the layout's spec."""
    world: str
    """Hash of these, the catalog and its secret."""
    table: str = ""
    """Hash of the table's state, which its writers change constantly."""

    def of(self, rule: Rule) -> str:
        return self.spec if rule.until_spec else f"{self.world}.{self.table}"


def scope(*parts: object) -> str:
    text = "\x00".join(str(part) for part in parts)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Failures:
    """status.failures: failures in a row of one cause."""

    count: int
    """Number of failures in a row."""
    cause: str
    """What caused each of them."""
    last: dt.datetime
    """Time of the last one."""
    message: str
    """Message of the last one."""
    until: dt.datetime | None
    """Time before which the next attempt does not start; None for no back-off."""
    scope: str
    """Hash of what must change before a stalled table is tried again."""

    def status(self) -> dict[str, Any]:
        body: dict[str, Any] = {
            "count": self.count,
            "cause": self.cause,
            "lastTime": utc(self.last),
            "message": cut(self.message, 1024),
            "scope": self.scope,
        }
        if self.until is not None:
            body["until"] = utc(self.until)
        return body


def failures_of(status: Mapping[str, Any] | None) -> Failures | None:
    body = (status or {}).get("failures") or {}
    last = parse_time(body.get("lastTime"))
    if not body.get("count") or last is None:
        return None
    return Failures(
        count=int(body["count"]),
        cause=body.get("cause", Cause.UNKNOWN.value),
        last=last,
        message=body.get("message", ""),
        until=parse_time(body.get("until")),
        scope=body.get("scope", ""),
    )


def after(
    known: Failures | None, cause: str, message: str, scopes: Scopes, now: dt.datetime
) -> Failures | None:
    """Return the failures after one more; a job that was stopped does not count."""
    if cause == Cause.STOPPED:
        return known
    rule = RULES.get(cause, RULES[Cause.UNKNOWN])
    in_a_row = known is not None and _alike(known.cause, cause)
    count = known.count + 1 if known is not None and in_a_row else 1
    wait = min(FIRST_WAIT * 2 ** min(count - 1, 12), LONGEST_WAIT)
    if rule.retries and rule.most is not None and count >= rule.most:
        wait = LONGEST_WAIT
    return Failures(count, cause, now, message, now + wait, scopes.of(rule))


def _alike(one: str, other: str) -> bool:
    passing = {Cause.UNAVAILABLE.value, Cause.UNKNOWN.value}
    return one == other or {one, other} <= passing


def trouble(known: Failures | None, scopes: Scopes, now: dt.datetime) -> Trouble:
    """Return the present effect of past failures.

    A failure whose scope has changed since no longer counts. If only the table changed, its
    back-off still applies: a table that is written to constantly would fail again.
    """
    if known is None:
        return Trouble()
    rule = RULES.get(known.cause, RULES[Cause.UNKNOWN])
    changed = rule.most is not None and known.scope != scopes.of(rule)
    if changed and (rule.until_spec or known.scope.partition(".")[0] != scopes.world):
        return Trouble()
    times = "" if known.count == 1 else f" ({known.count} times in a row)"
    message = f"{known.cause}{times}: {known.message}"
    conflict = known.cause == Cause.CONFLICT
    over = rule.retries and known.until is not None and known.until <= now
    if rule.most is not None and known.count >= rule.most and not changed and not over:
        return Trouble(stall=rule.reason, message=message, conflict=conflict)
    factor = MORE_MEMORY if known.cause == Cause.OUT_OF_MEMORY else 1.0
    until = f", next attempt at {utc(known.until)}" if known.until else ""
    return Trouble(
        message=message + until, until=known.until, memory_factor=factor, conflict=conflict
    )


def cause_of(
    pods: Sequence[Mapping[str, Any]], job: Mapping[str, Any] | None, stopped: str = ""
) -> LastWords:
    """Return why a job failed.

    stopped: why the operator stopped it, "" if it did not. Such a driver may leave no message, and
    for as long as its pod is listed the exit code of the signal that ended it.
    """
    words = _cause_seen(pods, job)
    if stopped and words.cause is Cause.UNKNOWN:
        return LastWords(Cause.STOPPED, f"stopped: {stopped}")
    return words


def _cause_seen(pods: Sequence[Mapping[str, Any]], job: Mapping[str, Any] | None) -> LastWords:
    """Return it from the pods' termination messages, their exit, or the Job's condition."""
    for pod in pods:
        for ended in container_states(pod, "terminated"):
            words = read_last_words(ended.get("message") or "")
            if words is not None:
                return words
            if ended.get("reason") == "OOMKilled":
                return LastWords(Cause.OUT_OF_MEMORY, "the driver was killed for its memory")
            if _why_ended(pod):  # its node says more than the exit code
                break
            if ended.get("exitCode") == 137:
                text = "the driver was killed (signal 9), by its node or by a person"
                return LastWords(Cause.UNKNOWN, text)
            if ended.get("reason") in ("StartError", "ContainerCannotRun"):
                why = cut(ended.get("message") or ended["reason"], 300)
                return LastWords(Cause.UNKNOWN, f"the driver's container did not start: {why}")
            if ended:
                code = ended.get("exitCode")
                return LastWords(
                    Cause.UNKNOWN, f"the driver ended with exit code {code} and no message"
                )
        if _why_ended(pod):
            return LastWords(Cause.UNKNOWN, f"the driver's pod was ended: {_why_ended(pod)}")
    for condition in ((job or {}).get("status") or {}).get("conditions") or ():
        if condition.get("type") == "Failed" and condition.get("status") == "True":
            return LastWords(Cause.UNKNOWN, f"the job failed: {_reason_and_message(condition)}")
    return LastWords(Cause.UNKNOWN, "the job was removed before its end was observed")


def _why_ended(pod: Mapping[str, Any]) -> str:
    """Return why a node ended the pod, for example Evicted, "" if it did not."""
    status = pod.get("status") or {}
    return _reason_and_message(status) if status.get("phase") == "Failed" else ""


def _reason_and_message(of: Mapping[str, Any]) -> str:
    return cut(": ".join(str(of[part]) for part in ("reason", "message") if of.get(part)), 300)


REFUSED = frozenset(
    {
        "ErrImagePull",
        "ImagePullBackOff",
        "InvalidImageName",
        "ErrImageNeverPull",
        "ImageInspectError",
        "SignatureValidationFailed",
        "CreateContainerConfigError",
        "CreateContainerError",
    }
)
"""Reasons of a waiting container that seldom pass with time: its image or its configuration."""


def refused(pods: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the kubelet refuses to start a container of the pods."""
    return any(
        waiting.get("reason") in REFUSED
        for pod in pods
        for waiting in container_states(pod, "waiting")
    )


def waiting_for(pods: Sequence[Mapping[str, Any]]) -> str:
    """Return why no container of the pods runs yet, "" if one does or no reason is reported."""
    for pod in pods:
        for waiting in container_states(pod, "waiting"):
            if waiting.get("reason") not in (None, "ContainerCreating", "PodInitializing"):
                return cut(f"{waiting['reason']}: {waiting.get('message') or ''}".rstrip(": "), 200)
        for condition in (pod.get("status") or {}).get("conditions") or ():
            unscheduled = condition.get("type") == "PodScheduled"
            if unscheduled and condition.get("status") == "False":
                return cut(f"unschedulable: {condition.get('message') or ''}", 200)
    return ""
