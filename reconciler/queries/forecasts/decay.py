"""A forecast in which old executions fade: a mean with a half-life of 7 days."""

from __future__ import annotations

import numpy as np

from reconciler.queries.rates import WEEK_MS, Forecast, Outlook, RateHistory
from reconciler.queries.shape import MIN_SPAN_MS

HALF_LIFE_MS = WEEK_MS


def decayed_forecast(history: RateHistory, horizon_ms: int) -> Forecast:
    """Return a mean in which executions fade with a half-life of 7 days.

    rate = decayed weight / decayed span; the span is at least 24 h.
    """
    tau = HALF_LIFE_MS / np.log(2.0)
    span = float(max(history.until_ms - history.since_ms, MIN_SPAN_MS))
    decayed_span = tau * (1.0 - np.exp(-span / tau))
    age = (history.until_ms - history.event_ms).astype(np.float64)
    executions = history.weight * np.exp(-age / tau) / decayed_span * horizon_ms
    bucket_ms = float(history.length_ms.mean())
    return Forecast(executions, Outlook("decay", history.since_ms, history.until_ms, bucket_ms))
