"""Finds what only offline checks see.

These are patterns that match nothing, cron fields out of range, unknown time zones, and properties,
Spark settings and pod fields that are not allowed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from reconciler.api.catalog_checks import (
    REQUIRED,
    PropertyProblem,
    allowed_keys,
    property_problems,
)
from reconciler.api.catalog_properties import is_credential
from reconciler.api.check_query import refused
from reconciler.api.expected import closest, quote
from reconciler.api.pod_settings import problems as pod_problems
from reconciler.api.schema import AUDITED_TABLE, CATALOG, POLICY
from reconciler.api.source import Path, part_of
from reconciler.api.spark_settings import refusal
from reconciler.api.structure import Finding
from reconciler.api.table_patterns import split_identifier

CHECK_HINT = "one SELECT over {table} and {main}, which returns no row if all is well"

Usable = Callable[[Path], bool]
"""Whether the value at a path matches the schema, as far as a check of it needs."""


def offline_findings(kind: str, body: Any, usable: Usable) -> Iterator[Finding]:
    """Yield the findings on a document with its defaults filled in."""
    if kind == POLICY:
        yield from _policy_findings(body, usable)
    if kind == CATALOG:
        yield from _catalog_findings(body, usable)


def _policy_findings(body: Any, usable: Usable) -> Iterator[Finding]:
    reference: Path = ("spec", "catalogRef", "name")
    catalog = part_of(body, reference) if usable(reference) else None
    for which in ("include", "exclude"):
        at: Path = ("spec", "tables", which)
        for number, pattern in enumerate(part_of(body, at) or () if usable(at) else ()):
            if usable((*at, number)):
                yield from _pattern_findings(catalog, (*at, number), pattern)
    query: Path = ("spec", "safety", "check")
    text = part_of(body, query) if usable(query) else None
    if text and AUDITED_TABLE in text and (why := refused(text)):
        yield Finding(query, f"the query cannot be the check: {why}", CHECK_HINT)
    budgets: Path = ("spec", "budgets")
    for number, budget in enumerate(part_of(body, budgets) or () if usable(budgets) else ()):
        if usable((*budgets, number)):
            yield from _schedule_findings((*budgets, number), budget, usable)


def _pattern_findings(catalog: str | None, path: Path, pattern: str) -> Iterator[Finding]:
    levels = split_identifier(pattern)
    if len(levels) == 1 and "*" not in pattern:
        yield Finding(
            path,
            f"{quote(pattern)} names no namespace and matches no table",
            "NAMESPACE.TABLE",
            severity="warning",
        )
    elif len(levels) > 2 and levels[0] == catalog:
        rest = pattern.partition(".")[2]
        yield Finding(
            path,
            f"{quote(pattern)} begins with the catalog's name",
            f"tables are named without it. Did you mean {rest}?",
            severity="warning",
        )


def _schedule_findings(at: Path, budget: Mapping[str, Any], usable: Usable) -> Iterator[Finding]:
    """Yield findings that the API server cannot make: a cron field out of range, an unknown zone.

    Such a budget would be stored and then allow nothing.
    """
    schedule, zone = (*at, "schedule"), (*at, "timeZone")
    if "schedule" in budget and usable(schedule) and (why := _cron_error(budget["schedule"])):
        hint = 'minute hour day month weekday, as in "0 8 * * mon-fri"'
        yield Finding(schedule, f"{quote(budget['schedule'])} {why}", hint)
    if "timeZone" in budget and usable(zone):
        known, close = _time_zone(budget["timeZone"])
        if not known:
            hint = f"Did you mean {close}?" if close else "a name such as Europe/Berlin"
            name = quote(budget["timeZone"])
            yield Finding(zone, f"{name} is not a known time zone", hint)


def _cron_error(schedule: str) -> str:
    import datetime as dt

    from cronsim import CronSim, CronSimError

    try:
        next(CronSim(schedule, dt.datetime(2024, 1, 1, tzinfo=dt.UTC)))
    except CronSimError as error:
        return f"is not a cron schedule: {str(error)[:1].lower()}{str(error)[1:]}"
    except StopIteration:
        return "never comes"
    return ""


def _time_zone(name: str) -> tuple[bool, str | None]:
    """Return (known, the nearest name). Without a time zone database every name counts as known."""
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

    try:
        ZoneInfo(name)
        return True, None
    except (ZoneInfoNotFoundError, ValueError, OSError):
        names = sorted(available_timezones())
        return not names, closest(name, names)


def _catalog_findings(body: Any, usable: Usable) -> Iterator[Finding]:
    at: Path = ("spec", "properties")
    properties = part_of(body, at)
    if isinstance(properties, dict):
        catalog_type = part_of(body, ("spec", "type")) if usable(("spec", "type")) else None
        readable = {
            key: item if isinstance(item, str) and usable((*at, key)) else None
            for key, item in properties.items()
        }
        for problem in _property_problems(catalog_type, readable):
            path = (*at, problem.key) if problem.key else at
            hint = problem.hint or _property_hint(str(catalog_type), problem.key)
            yield Finding(path, problem.message, hint, at_key=True)
    settings: Path = ("spec", "jobs", "sparkConf")
    conf = part_of(body, settings)
    for key, value in conf.items() if isinstance(conf, dict) else ():
        yield from _spark_findings((*settings, key), key, value)
    template: Path = ("spec", "jobs", "podTemplate")
    pod = part_of(body, template)
    for place, why in pod_problems(pod) if isinstance(pod, dict) else ():
        hint = "put it into the job image or the Secret of the catalog, or leave it out"
        yield Finding((*template, *place), f"this is not allowed: {why}", hint, at_key=True)


def _property_problems(
    catalog_type: str | None, properties: Mapping[str, str | None]
) -> list[PropertyProblem]:
    """Return the problems; without a known type, those that every type has."""
    if catalog_type is not None:
        return property_problems(catalog_type, properties)
    first, *others = (property_problems(each, properties) for each in REQUIRED)
    return [problem for problem in first if all(problem in found for found in others)]


def _spark_findings(at: Path, key: str, value: Any) -> Iterator[Finding]:
    if is_credential(key):
        hint = "put it into the Secret that spec.secretRef names"
        yield Finding(at, "credentials do not belong in sparkConf", hint, at_key=True)
    elif why := refusal(key, value) if isinstance(value, str) else "":
        hint = "put it into the job image, or leave it out"
        yield Finding(at, f"this setting is not allowed: {why}", hint, at_key=True)


def _property_hint(catalog_type: str, key: str) -> str:
    allowed = list(allowed_keys(catalog_type))
    close = closest(key, allowed)
    return f"Did you mean {close}?" if close else f"allowed: {', '.join(allowed)}"
