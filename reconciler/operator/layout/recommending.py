"""Decides when a recommendation is due, and what status and conditions say of it; pure.

A recommendation is information: nothing here changes what is planned. A recommend job that fails
leaves the last recommendation as it is, and is retried after a back-off of its own.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping, Sequence
from typing import Any

from reconciler.api.conditions import ConditionType, Reason
from reconciler.api.conditions import Status as Truth
from reconciler.api.document_codec import policy_document
from reconciler.api.documents import Recommend, TableLayoutPolicy
from reconciler.api.identity import hash_inputs
from reconciler.api.version import API_VERSION
from reconciler.kube.names import recommendation_id
from reconciler.kube.pods import container_states
from reconciler.kube.termination_message import Cause, LastWords
from reconciler.operator import due
from reconciler.operator.conditions import Body, Condition
from reconciler.operator.status_text import cut, parse_time, short_bytes, short_duration, utc

FIRST_WAIT = dt.timedelta(minutes=5)
LONGEST_WAIT = dt.timedelta(hours=24)
NEEDS_OTHER_INPUT = frozenset(
    {Cause.USER_ERROR, Cause.UNSUPPORTED, Cause.ACCESS_DENIED, Cause.OUT_OF_MEMORY}
)
"""Causes that a retry on the same table with the same queries does not change."""
UNREADABLE = LastWords(Cause.UNKNOWN, "the job ended without a result that can be read")
SHOWN = (
    "id", "time", "snapshotId", "method", "better", "savesPercent", "digest", "uri", "layout",
)  # fmt: skip
MOST_SUMMARY, MOST_MESSAGE = 256, 512


def due_now(name: str, recommend: Recommend, status: Body, now: dt.datetime) -> bool:
    """Whether the clock allows another recommendation; its inputs may still be the old ones."""
    known = status.get("recommendation") or {}
    until = parse_time((known.get("failures") or {}).get("until"))
    if until is not None and now < until:
        return False
    made = parse_time(known.get("time"))
    return made is None or now >= due.next_look(name, recommend.interval_seconds, made)


def wanted_id(
    recommend: Recommend, status: Body, uuid: str, location: str, workload: Mapping[str, Any]
) -> str:
    """Return the id of the recommendation for these inputs, "" if it was made or refused already.

    location: of the table's metadata. workload: the recorded queries, as status.observed has them.
    """
    known = status.get("recommendation") or {}
    failed = known.get("failures") or {}
    asked = (workload.get("queries"), workload.get("until"))
    run_id = recommendation_id(API_VERSION, uuid, location, *asked, recommend.sample_bytes)
    refused = failed.get("id") == run_id and failed.get("cause") in NEEDS_OTHER_INPUT
    return "" if refused or known.get("id") == run_id else run_id


def queries_of(observed: Mapping[str, Any]) -> int:
    """Return how many queries were known when the table was observed."""
    return int((observed.get("workload") or {}).get("queries") or 0)


# What came of a job


def result_of(pods: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """Return the summary in the termination message of a driver that succeeded, None for none."""
    for pod in pods:
        for ended in container_states(pod, "terminated"):
            text = ended.get("message") or ""
            try:
                found = json.loads(text.strip().split("\n")[-1])["recommendation"]
                return found if isinstance(found, dict) and "id" in found else None
            except (ValueError, KeyError, TypeError, RecursionError):
                continue
    return None


def recommendation_status(found: Mapping[str, Any]) -> Body:
    """Return status.recommendation: the summary with rounded quantities."""
    sample, reading = found.get("sample") or {}, found.get("reading") or {}
    body: Body = {name: found[name] for name in SHOWN if found.get(name) is not None}
    body["summary"] = cut(str(found.get("summary", "")), MOST_SUMMARY)
    body["sample"] = {**sample, "bytesRead": short_bytes(sample.get("bytesRead", 0))}
    body["reading"] = {
        name: value if name == "queries" else short_bytes(value) for name, value in reading.items()
    }
    if "rewriteBytes" in found:
        body["rewriteBytes"] = short_bytes(found["rewriteBytes"])
        body["cpuTime"] = short_duration(float(found.get("cpuSeconds", 0.0)))
    return body


def after_failure(status: Body, run_id: str, words: LastWords, now: dt.datetime) -> Body:
    """Return status.recommendation after a job that failed; one that was stopped does not count."""
    known = dict(status.get("recommendation") or {})
    if words.cause is Cause.STOPPED:
        return known
    count = int((known.get("failures") or {}).get("count") or 0) + 1
    wait = min(FIRST_WAIT * 2 ** min(count - 1, 12), LONGEST_WAIT)
    known["failures"] = {
        "count": count,
        "id": run_id,
        "cause": words.cause.value,
        "message": cut(f"{words.message}. {words.do}".rstrip(". "), MOST_MESSAGE),
        "until": utc(now + wait),
    }
    return known


# The condition


def better_layout_known(
    policy: object, status: Body, observed: Mapping[str, Any], held_back: str
) -> Condition | None:
    """Return BetterLayoutKnown, None for a policy that asks for no recommendations.

    observed: of the table now. held_back: why a job that is due does not start.
    """
    if not isinstance(policy, TableLayoutPolicy) or policy.spec.recommend is None:
        return None
    known = status.get("recommendation") or {}
    truth, reason, message = _known(policy, known, observed, held_back)
    failed = known.get("failures") or {}
    if known.get("id") and failed:
        message += f". The last attempt failed: {failed.get('message', '')}"
    return Condition(ConditionType.BETTER_LAYOUT_KNOWN, truth, reason, message)


def _known(
    policy: TableLayoutPolicy, known: Body, observed: Mapping[str, Any], held_back: str
) -> tuple[Truth, Reason, str]:
    if known.get("id") and not known.get("better"):
        return Truth.FALSE, Reason.LAYOUT_KEPT, f"{known.get('summary', '')}"
    if known.get("id") and _declares(policy, known.get("layout") or {}):
        return Truth.FALSE, Reason.LAYOUT_DECLARED, f"the policy declares {known['summary']}"
    if known.get("id"):
        return Truth.TRUE, Reason.LAYOUT_RECOMMENDED, _text(known)
    failed = known.get("failures") or {}
    if failed:
        return Truth.UNKNOWN, Reason.RECOMMENDATION_FAILED, str(failed.get("message", ""))
    if not queries_of(observed):
        text = "no queries are known for the table, so no layout is better than another"
        return Truth.UNKNOWN, Reason.NO_QUERIES, text
    text = held_back or "the first recommend job has not ended"
    return Truth.UNKNOWN, Reason.NOT_RECOMMENDED_YET, text


def _text(known: Body) -> str:
    reading = known.get("reading") or {}
    return (
        f"{known['summary']}: the recorded queries would read {known.get('savesPercent', 0)} % "
        f"less ({reading.get('now')} -> {reading.get('after')}, {reading.get('low')} to "
        f"{reading.get('high')}); rewriting costs {known.get('rewriteBytes')} once"
    )


def _declares(policy: TableLayoutPolicy, layout: Mapping[str, Any]) -> bool:
    """Whether the policy's layout has each part of the recommended one."""
    own = policy_document(policy)
    merged = {**own["layout"]}
    for part, fields in layout.items():
        merged[part] = {**merged.get(part, {}), **fields}
    return hash_inputs({**own, "layout": merged}) == hash_inputs(own)
