"""Computes the next and the last start of a cron schedule in a time zone, clock changes included.

A schedule at fixed hours starts once on every day that it names: a local time that a clock change
skips starts right after the change, one that occurs twice starts the first time. A schedule by the
hour or the minute (`*`, `*/15`) follows real time: skipped times do not start, repeated ones start
twice. CronSim only finds matching local times; this module turns them into instants.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from zoneinfo import ZoneInfo

from cronsim import CronSim

DAY = dt.timedelta(days=1)
SECOND = dt.timedelta(seconds=1)


def next_start(schedule: str, zone: ZoneInfo, now: dt.datetime) -> dt.datetime:
    """Return the first start after `now`, in UTC. Raises CronSimError; StopIteration if there is
    none."""
    local, slack = _local(zone, now), _slack(zone, now)
    found: dt.datetime | None = None
    for naive in CronSim(schedule, local - slack):
        later = [moment for moment in _moments(schedule, zone, naive) if moment > now]
        found = min([*later, *([found] if found else [])], default=None)
        if found is not None and naive > local + slack:
            return found
    raise StopIteration


def last_start(schedule: str, zone: ZoneInfo, now: dt.datetime) -> dt.datetime:
    """Return the last start at or before `now`, in UTC. Raises as `next_start`."""
    local, slack = _local(zone, now), _slack(zone, now)
    found: dt.datetime | None = None
    for naive in CronSim(schedule, local + slack + SECOND, reverse=True):
        earlier = [moment for moment in _moments(schedule, zone, naive) if moment <= now]
        found = max([*earlier, *([found] if found else [])], default=None)
        if found is not None and naive < local - slack:
            return found
    raise StopIteration


def _local(zone: ZoneInfo, now: dt.datetime) -> dt.datetime:
    """Return wall-clock time without a zone, in whole seconds."""
    return now.astimezone(zone).replace(tzinfo=None, microsecond=0)


def _slack(zone: ZoneInfo, now: dt.datetime) -> dt.timedelta:
    """Return how far the order of wall-clock times and instants may differ: by a clock change near
    `now`."""
    offsets = [(now + shift).astimezone(zone).utcoffset() for shift in (-DAY, 0 * DAY, DAY)]
    known = [offset for offset in offsets if offset is not None]
    return max(known) - min(known)


def _moments(schedule: str, zone: ZoneInfo, naive: dt.datetime) -> Iterator[dt.datetime]:
    """Yield the instants at which a local time of the schedule occurs: none, one or two."""
    first = naive.replace(tzinfo=zone, fold=0).astimezone(dt.UTC)
    second = naive.replace(tzinfo=zone, fold=1).astimezone(dt.UTC)
    real_time = any(part.startswith("*") for part in schedule.split()[:2])
    if first < second:  # it occurs twice
        yield first
        if real_time:
            yield second
    elif first > second:  # it is skipped: fold 0 uses the old offset, fold 1 the new one
        if not real_time:
            yield _end_of_gap(zone, second, first)
    else:
        yield first


def _end_of_gap(zone: ZoneInfo, before: dt.datetime, after: dt.datetime) -> dt.datetime:
    """Return the instant of the clock change, which is between the two, to the second."""
    old = before.astimezone(zone).utcoffset()
    while after - before > SECOND:
        middle = (before + (after - before) / 2).replace(microsecond=0)
        if middle == before:
            break
        if middle.astimezone(zone).utcoffset() == old:
            before = middle
        else:
            after = middle
    return after
