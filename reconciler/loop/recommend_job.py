"""Makes the recommendation of a recommend job in its pod, stores it and sums it up.

The same code as `layoutctl recommend` (loop.recommend). It reads; the only things written are the
sample, the stored document and what it used of the budgets.
"""

from __future__ import annotations

import datetime as dt
import math
import resource
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from reconciler.api.catalog_config import CatalogConfig
from reconciler.api.run_document import RecommendRun
from reconciler.errors import InterruptedByUser, UserError, VetoError
from reconciler.loop.ports import Target
from reconciler.loop.reader import Reader
from reconciler.loop.recommend import Options, Recommended, recommended
from reconciler.loop.recommendation_document import (
    described,
    policy_of,
    recommendation_document,
    stored_form,
)
from reconciler.plan.ledger import Reservation
from reconciler.plan.run_ids import run_reservation
from reconciler.state.plan_store import PlanStore

GRACE_SECONDS = 60
"""CPU seconds after the limit in which the error is reported; then the kernel ends the process."""
MOST_SUMMARY = 256


def recommend_for(
    run: RecommendRun,
    catalog: CatalogConfig,
    reader: Reader,
    plans: PlanStore,
    used_seconds: Callable[[], float],
    clock: Callable[[], dt.datetime],
) -> dict[str, Any]:
    """Return the summary of a new recommendation, in raw bytes and seconds.

    used_seconds: CPU seconds that the job has used, executors included. Raises UserError for input
    that allows none, VetoError for a table that another owner claims.
    """
    target = Target(catalog, run.table)
    seen = reader.observe(target)
    other = reader.owner(seen)
    if other:
        raise VetoError(f"OwnedElsewhere: {seen.name} is claimed by {other}, not by {run.owner}")
    held = Reservation(
        id=run_reservation(run.run_id, run.attempt, time.time_ns() // 1000),
        table_uuid=seen.uuid,
        plan_id=run.run_id,
        policy=run.policy_key,
        rewrite_bytes=0,
        cpu_seconds=float(run.cpu_limit_seconds),
    )
    reader.store.reserve(held)
    try:
        made = recommended(target, reader, options_of(run), clock())
        document = recommendation_document(made)
        uri, digest = plans.put_recommendation(seen.uuid, run.run_id, stored_form(document))
    finally:
        reader.store.settle(replace(held, used_cpu_seconds=round(used_seconds(), 1)))
    return {**summary(made, document), "id": run.run_id, "uri": uri, "digest": digest}


def options_of(run: RecommendRun) -> Options:
    recommend = run.policy.spec.recommend
    assert recommend is not None  # read_recommend_run refuses a policy without it
    return Options(sample_bytes=recommend.sample_bytes)


def bound_process(seconds: int, elsewhere: float = 0.0) -> None:
    """Have this process raise UserError when it and others have used so many CPU seconds, and end
    it soon after; and raise InterruptedByUser when it is asked to end. The main thread only.

    elsewhere: CPU seconds that its executors and its JVM have used.
    """

    def stopped(*_: object) -> None:
        raise InterruptedByUser("stopped as asked; a recommendation has nothing to finish")

    def over(*_: object) -> None:
        # The signal comes again each second: one at the end of the interpreter would kill it.
        resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))
        raise UserError(
            f"the recommendation used more than {seconds} CPU seconds, which were reserved for it",
            do="lower spec.recommend.sampleBytes",
        )

    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    most = seconds + GRACE_SECONDS
    limit = most if hard == resource.RLIM_INFINITY else min(most, hard)
    left = max(1, seconds - math.ceil(elsewhere))
    signal.signal(signal.SIGTERM, stopped)
    signal.signal(signal.SIGXCPU, over)
    resource.setrlimit(resource.RLIMIT_CPU, (min(left, limit), limit))


def summary(made: Recommended, document: dict[str, Any]) -> dict[str, Any]:
    """Return what status.recommendation shows, in raw bytes and seconds."""
    answer = made.recommendation
    chosen = answer.chosen
    body: dict[str, Any] = {
        "time": document["time"],
        "snapshotId": document["snapshotId"],
        "method": document["method"],
        "better": chosen is not None,
        "summary": _cut(answer.keep if chosen is None else _text(made)),
        "savesPercent": max(0, min(100, round(document["savesPercent"]))),
        "sample": {
            "rows": document["sample"]["rows"],
            "files": document["sample"]["files"],
            "bytesRead": document["sample"]["bytesRead"],
            "rowsPerRowGroup": int(document["sample"]["rowsPerSmallestRowGroup"]),
        },
        "reading": {
            "now": round(answer.today.recorded.bytes),
            "queries": document["workload"]["queries"],
        },
    }
    if chosen is None:
        return body
    best = next(item for item in document["layouts"] if item["name"] == chosen.name)
    body["reading"] |= {
        "after": best["read"]["bytes"],
        "low": best["read"]["low"],
        "high": best["read"]["high"],
    }
    body["rewriteBytes"] = best["rewrite"]["firstBytes"]
    body["cpuSeconds"] = best["rewrite"]["cpuSeconds"]
    body["layout"] = policy_of(chosen, made)
    return body


def _text(made: Recommended) -> str:
    chosen = made.recommendation.chosen
    assert chosen is not None
    return described(chosen, made.observation.schema)


def _cut(text: str) -> str:
    return text if len(text) <= MOST_SUMMARY else text[: MOST_SUMMARY - 1] + "…"
