"""Finds all problems of one document: its structure, its rules, and what only offline checks see.

The structure is checked as the API server does it (a test compares the verdicts with jsonschema's),
but with more than a verdict: the field's own words, what is allowed, and a suggestion.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from reconciler.api import rules
from reconciler.api.catalog_checks import (
    REQUIRED,
    PropertyProblem,
    allowed_keys,
    has_user_info,
    is_credential,
    property_problems,
)
from reconciler.api.pod_settings import problems as pod_problems
from reconciler.api.quantities import format_bytes
from reconciler.api.schema import (
    CATALOG,
    POLICY,
    SERVER_METADATA,
    quantity_kind,
    structural_schema,
    walk_schema,
    with_defaults,
)
from reconciler.api.source import Path, RawDocument, Unclear, part_of, show_path
from reconciler.api.spark_settings import refusal
from reconciler.api.table_patterns import split_identifier
from reconciler.errors import Problem

Schema = Mapping[str, Any]
Usable = Callable[[Path], bool]
"""Whether the value at a path matches the schema, as far as a check of it needs."""


@dataclass(frozen=True, slots=True)
class Finding:
    """at_key: the caret is at the field's key instead of its value. blocks: checks that read the
    value are skipped. meant: the field that a misspelt one probably stands for."""

    path: Path
    message: str
    hint: str = ""
    at_key: bool = False
    severity: str = "error"
    blocks: bool = True
    meant: Path = ()


def check(document: RawDocument, kind: str) -> list[Problem]:
    """Return every problem of one document of a known kind, in the order of the file."""
    found = list(findings(document, kind))
    placed = [
        document.problem(
            item.path, item.message, item.hint, at_key=item.at_key, severity=item.severity
        )
        for item in found
    ]
    return sorted(document.problems + placed, key=lambda p: (p.line, p.column))


def findings(document: RawDocument, kind: str) -> Iterator[Finding]:
    """Yield findings of structure, rules and offline checks at once, of the parts that each can
    read."""
    body = document.value
    structure = list(structural_findings(document, kind))
    yield from structure
    if not isinstance(body, dict):
        return
    broken = _broken(structure, body)
    whole = with_defaults(body, structural_schema(kind))
    unsettled = [path for path in document.repeated if _is_scalar(document, path)]
    meant = {item.meant for item in structure if item.meant and not _given(body, item.meant)}
    for violation in rules.violations(kind, whole, [*broken, *unsettled], meant):
        yield Finding(violation.field, violation.rule.message, _rule_hint(violation), at_key=True)

    def usable(path: Path) -> bool:
        return not any(path[: len(fault)] == fault for fault in broken)

    if kind == POLICY:
        yield from _policy_findings(whole, usable)
    if kind == CATALOG:
        yield from _catalog_findings(whole, usable)


def broken_paths(document: RawDocument, kind: str) -> list[Path]:
    """Return the paths of values that do not match the schema."""
    return _broken(structural_findings(document, kind), document.value)


def _broken(structure: Iterable[Finding], body: Any) -> list[Path]:
    return [*(item.path for item in structure if item.blocks), *_unclear(body)]


def _is_scalar(document: RawDocument, path: Path) -> bool:
    place = document.positions.get(path)
    return place is not None and place.text is not None


def _given(body: Any, path: Path) -> bool:
    for part in path[:-1]:
        body = body[part]  # the parents of a misspelt field do exist
    return body.get(path[-1]) is not None


def structural_findings(document: RawDocument, kind: str) -> Iterator[Finding]:
    """Yield findings on types, enums, bounds, patterns, required, unknown and repeated fields."""
    yield from _Walk(document, kind).value((), document.value, structural_schema(kind))


def _unclear(value: Any, path: Path = ()) -> Iterator[Path]:
    if isinstance(value, Unclear):
        yield path
    elif isinstance(value, (dict, list)):
        pairs = value.items() if isinstance(value, dict) else enumerate(value)
        for key, item in pairs:
            yield from _unclear(item, (*path, key))


def _rule_hint(violation: rules.Violation) -> str:
    return _RULE_HINTS.get(violation.rule.message, "")


_RULE_HINTS = {
    "Automatic approval needs at least one budget": "add spec.budgets, or use mode Manual",
    "fields are given exactly when mode is Declared": "mode: Declared with fields, or neither",
    "keys are given exactly when mode is Declared": "mode: Declared with keys, or neither",
    "a budget has either per or schedule": "per: 24h, or schedule with duration",
    "a Hilbert curve needs at least two keys": "name a second key, or use Lexicographic",
    "approvedPlans and automaticUpTo need mode Manual": "Automatic is limited by budgets instead",
    "no property may name a class to load": "remove it; file systems are chosen by the URI",
}


class _Walk:
    """One pass over a document beside its structural schema."""

    def __init__(self, document: RawDocument, kind: str):
        self.positions = document.positions
        self.kind = kind

    def value(self, path: Path, value: Any, schema: Schema) -> Iterator[Finding]:
        if schema.get("type") == "object":
            yield from self._object(path, value, schema)
        elif schema.get("type") == "array":
            yield from self._array(path, value, schema)
        else:
            yield from self._scalar(path, value, schema)

    def _object(self, path: Path, value: Any, schema: Schema) -> Iterator[Finding]:
        properties = schema.get("properties")
        if not isinstance(value, dict):
            names = ", ".join(properties or ())
            hint = f"fields: {names}" if names else "names and values"
            yield self._wrong(path, value, "a mapping", hint)
            return
        for name in schema.get("required", ()):
            if value.get(name) is None:
                about = schema["properties"][name].get("description", "")
                yield Finding((*path, name), "is required", _first_sentence(about), at_key=True)
        most = schema.get("maxProperties")
        if most is not None and len(value) > most:
            yield _too_many(path, len(value), most)
        for name, item in value.items():
            if path == () and name == "status":
                continue  # only the operator writes it
            child = (properties or {}).get(name)
            if child is None and isinstance(schema.get("additionalProperties"), dict):
                child = schema["additionalProperties"]
            if child is not None and item is not None:  # nulls of known fields are dropped
                yield from self.value((*path, name), item, child)
            elif child is None and not (path == ("metadata",) and name in SERVER_METADATA):
                yield self._unknown((*path, name), schema)

    def _array(self, path: Path, value: Any, schema: Schema) -> Iterator[Finding]:
        if not isinstance(value, list):
            text = self._text(path, value)
            scalar = not isinstance(value, dict)
            yield self._wrong(path, value, "a list", f"[{text}]" if scalar else "")
            return
        least, most = schema.get("minItems", 0), schema.get("maxItems")
        if len(value) < least:
            yield Finding(path, f"needs at least {least} {'entry' if least == 1 else 'entries'}")
        if most is not None and len(value) > most:
            yield _too_many(path, len(value), most)
        for number, item in enumerate(value):
            yield from self.value((*path, number), item, schema["items"])
        yield from self._repeated(path, value, schema)

    def _repeated(self, path: Path, value: list[Any], schema: Schema) -> Iterator[Finding]:
        """Yield repeated items of sets and repeated keys of list-maps."""
        kind = schema.get("x-kubernetes-list-type")
        if kind not in ("set", "map"):
            return
        key = schema.get("x-kubernetes-list-map-keys", [None])[0]
        seen: set[str] = set()
        for number, item in enumerate(value):
            identity = item.get(key) if kind == "map" and isinstance(item, dict) else item
            if not isinstance(identity, str):
                continue
            if identity in seen:
                yield Finding((*path, number), f"{_quote(identity)} is listed twice", blocks=False)
            seen.add(identity)

    def _scalar(self, path: Path, value: Any, schema: Schema) -> Iterator[Finding]:
        wrong = self._wrong_type(path, value, schema)
        if wrong is not None:
            yield wrong
            return
        choices = schema.get("enum")
        if choices is not None and value not in choices:
            hint = _choose(str(value), choices)
            yield Finding(path, f"{self._text(path, value)} is not allowed", hint)
        elif isinstance(value, str):
            yield from self._string(path, value, schema)
        elif "minimum" in schema and value < schema["minimum"]:
            hint = f"at least {_bound(schema, 'minimum')}"
            yield Finding(path, f"{self._text(path, value)} is too small", hint)
        elif "maximum" in schema and value > schema["maximum"]:
            hint = f"at most {_bound(schema, 'maximum')}"
            yield Finding(path, f"{self._text(path, value)} is too large", hint)

    def _string(self, path: Path, value: str, schema: Schema) -> Iterator[Finding]:
        patterns = [schema.get("pattern"), *(part["pattern"] for part in schema.get("allOf", ()))]
        fits = all(_compiled(pattern).search(value) for pattern in patterns if pattern)
        most = schema.get("maxLength")
        if len(value) < schema.get("minLength", 0) and (value == "" or "pattern" not in schema):
            least = schema["minLength"]
            message = "is empty" if value == "" else f"is shorter than {least} characters"
            yield Finding(path, message, _expected(path, schema))
        elif most is not None and len(value) > most:
            yield Finding(path, f"is longer than {most} characters", _expected(path, schema))
        elif not fits or len(value) < schema.get("minLength", 0):
            hint = _expected(path, schema)
            meant = _meant(value, schema)
            hint = f"{hint}. Did you mean {meant}?" if meant else hint
            yield Finding(path, f"{self._text(path, value)} is not {_noun(path, schema)}", hint)

    def _wrong_type(self, path: Path, value: Any, schema: Schema) -> Finding | None:
        """Return a finding, None if the value has the schema's scalar type."""
        wanted = "integer-or-string" if _int_or_string(schema) else schema.get("type")
        is_text = isinstance(value, str)
        is_whole = isinstance(value, int) and not isinstance(value, bool)
        if (
            (wanted == "string" and is_text)
            or (wanted == "integer" and is_whole)
            or (wanted == "boolean" and isinstance(value, bool))
            or (wanted == "integer-or-string" and (is_text or is_whole))
        ):
            return None
        noun = {"string": "text", "integer": "a whole number", "boolean": "true or false"}
        name = noun.get(str(wanted), _noun(path, schema))
        if isinstance(value, (dict, list)) or value is None:
            return self._wrong(path, value, name, _expected(path, schema))
        written = self._written(path, value)
        if wanted == "string":
            return Finding(path, f"{written} is {_kind_of(value)}, not text", _quoting(written))
        if wanted == "integer" and is_text and re.fullmatch(r"-?[0-9]+", value):
            return Finding(path, f'"{value}" is text, not {name}', f"without quotes: {value}")
        if wanted == "boolean" and is_text:
            return Finding(path, f"{_quote(value)} is text, not {name}", "true | false")
        expected = _expected(path, schema)
        return Finding(path, f"{self._text(path, value)} is not {name}", expected)

    def _wrong(self, path: Path, value: Any, expected: str, hint: str = "") -> Finding:
        what = self._text(path, value)
        if isinstance(value, (dict, list)):
            what = "a mapping" if isinstance(value, dict) else "a list"
        return Finding(path, f"is {what}, not {expected}", hint)

    def _unknown(self, path: Path, schema: Schema) -> Finding:
        """Return the finding on an unknown field, with a suggestion."""
        name = str(path[-1])
        names = list(schema.get("properties", {}))
        parent = show_path(path[:-1]) or "the document"
        close = _closest(name, names)
        if close:
            hint = f"Did you mean {close}?"
        elif elsewhere := _homes(self.kind, name):
            hint = f"{name} belongs to {' or '.join(elsewhere)}"
        else:
            hint = f"fields: {', '.join(names)}"
        message = f"is not a field of {parent}"
        meant = (*path[:-1], close) if close else ()
        return Finding(path, message, hint, at_key=True, blocks=False, meant=meant)

    def _written(self, path: Path, value: Any) -> str:
        """Return a scalar as written in the file: `1.50`, not 1.5."""
        place = self.positions.get(path)
        text = place.text if place is not None and place.text is not None else _plain(value)
        return "(hidden)" if _sensitive(path, text) else _short(text)

    def _text(self, path: Path, value: Any) -> str:
        if not isinstance(value, str):
            return "empty" if value is None else self._written(path, value)
        return '"(hidden)"' if _sensitive(path, value) else _quote(value)


def _too_many(path: Path, count: int, most: int) -> Finding:
    return Finding(path, f"holds {count} entries, at most {most} are allowed", blocks=False)


def _sensitive(path: Path, text: str) -> bool:
    named = any(isinstance(part, str) and is_credential(part) for part in path)
    return (named and "secretRef" not in path) or has_user_info(text)


def _plain(value: Any) -> str:
    if isinstance(value, Unclear):
        return value.text
    return str(value).lower() if isinstance(value, bool) else str(value)


def _quote(text: str) -> str:
    return json.dumps(_short(text), ensure_ascii=False)


def _short(text: str) -> str:
    return text if len(text) <= 60 else text[:57] + "..."


def _kind_of(value: Any) -> str:
    if isinstance(value, Unclear):
        return value.why
    return "a boolean to YAML" if isinstance(value, bool) else "a number to YAML"


def _quoting(written: str) -> str:
    return f'quote it: "{written}"'


def _first_sentence(text: str) -> str:
    return re.split(r"(?<=[a-z0-9])\. ", text, maxsplit=1)[0].rstrip(".")


def _closest(word: str, choices: list[str]) -> str | None:
    folded = {choice.lower(): choice for choice in choices}
    close = difflib.get_close_matches(word.lower(), list(folded), n=1, cutoff=0.6)
    return folded[close[0]] if close else None


def _choose(value: str, choices: list[str]) -> str:
    close = _closest(value, choices)
    listed = " | ".join(choices)
    return f"{listed}. Did you mean {close}?" if close and len(choices) > 1 else listed


@cache
def _homes(kind: str, name: str) -> tuple[str, ...]:
    """Return up to two places of the spec where a field of this name exists."""
    found = [
        path.rpartition(".")[0]
        for path, _ in walk_schema(structural_schema(kind)["properties"]["spec"], "spec")
        if path.rpartition(".")[2] == name
    ]
    return tuple(found) if len(found) <= 2 else ()


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    """Compile a pattern: Go's $ matches only at the very end, Python's also before a last
    newline."""
    return re.compile(pattern[:-1] + r"\Z" if pattern.endswith("$") else pattern)


def _int_or_string(schema: Schema) -> bool:
    return bool(schema.get("x-kubernetes-int-or-string"))


def _bound(schema: Schema, which: str) -> str:
    value = int(schema[which])
    return f"{format_bytes(value)} bytes" if _int_or_string(schema) else f"{value:,}"


def _noun(path: Path, schema: Schema) -> str:
    """Return what a pattern or quantity describes, with its article."""
    kind = quantity_kind(schema)
    if kind == "bytes":
        return "a size"
    if kind == "duration":
        zero = "allOf" in schema
        return "a duration longer than zero" if zero else "a duration"
    if kind == "decimal":
        return "a decimal number of at least 1"
    pattern = schema.get("pattern", "")
    if "p-[0-9a-f]" in pattern:
        return "a plan id"
    if path[:2] == ("spec", "tables"):
        return "a table name or pattern"
    if path[-1:] == ("schedule",):
        return "a cron schedule"
    if path[-1:] == ("transform",):
        return "a partition transform"
    return "a valid name" if pattern.startswith("^[a-z") else "in the expected form"


def _expected(path: Path, schema: Schema) -> str:
    """Return the expected form, with an example."""
    if "enum" in schema:
        return " | ".join(schema["enum"])
    noun = _noun(path, schema)
    auto = "Auto, or " if str(schema.get("pattern", "")).startswith("^(Auto") else ""
    known = {
        "a size": f"{auto}a whole number of bytes, or one with Ki, Mi, Gi, Ti or Pi, as in 512Mi",
        "a duration": "hours, minutes, seconds, as in 1h30m",
        "a duration longer than zero": "hours, minutes, seconds, as in 1h30m",
        "a decimal number of at least 1": 'at most 4 decimals, in quotes, as in "1.5"',
        "a plan id": "p- and 20 hexadecimal digits, as plan prints it",
        "a table name or pattern": "levels joined by dots, as in sales.orders_*; "
        "backticks quote a level",
        "a cron schedule": 'minute hour day month weekday, as in "0 8 * * mon-fri"',
        "a partition transform": "identity | year | month | day | hour | bucket[N] | truncate[N]",
        "a valid name": "lower-case letters, digits and dashes",
    }
    if noun in known:
        return known[noun]
    if schema.get("type") == "boolean":
        return "true | false"
    if schema.get("type") == "integer" and "maximum" in schema:
        return f"{schema['minimum']:,} to {schema['maximum']:,}"
    return _first_sentence(schema.get("description", ""))


_UNIT_HOURS = {"d": 24, "day": 24, "days": 24, "w": 168, "week": 168, "weeks": 168}
_LONG_UNITS = {"hour": "h", "hours": "h", "hr": "h", "min": "m", "mins": "m", "minute": "m"}
_LONG_UNITS |= {"minutes": "m", "sec": "s", "secs": "s", "second": "s", "seconds": "s"}


def _meant(value: str, schema: Schema) -> str | None:
    """Return the quantity that a common other spelling means."""
    kind = quantity_kind(schema)
    match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)\s*", value)
    if match is None or kind not in ("bytes", "duration"):
        return None
    number, unit = match[1], match[2].lower()
    if kind == "duration" and "." not in number:
        if unit in _UNIT_HOURS:
            return f"{int(number) * _UNIT_HOURS[unit]}h"
        short = _LONG_UNITS.get(unit, unit if unit in ("h", "m", "s") else None)
        return f"{int(number)}{short}" if short and int(number) else None
    if kind == "bytes" and unit[:1] in tuple("kmgtp"):
        letter = unit[0]
        whole = float(number) * 1024
        if "." not in number:
            return f"{int(number)}{letter.upper()}i"
        smaller = {"m": "Ki", "g": "Mi", "t": "Gi", "p": "Ti"}.get(letter)
        return f"{int(whole)}{smaller}" if smaller and whole.is_integer() else None
    return None


def _policy_findings(body: Any, usable: Usable) -> Iterator[Finding]:
    reference: Path = ("spec", "catalogRef", "name")
    catalog = part_of(body, reference) if usable(reference) else None
    for which in ("include", "exclude"):
        at: Path = ("spec", "tables", which)
        for number, pattern in enumerate(part_of(body, at) or () if usable(at) else ()):
            if usable((*at, number)):
                yield from _pattern_findings(catalog, (*at, number), pattern)
    budgets: Path = ("spec", "budgets")
    for number, budget in enumerate(part_of(body, budgets) or () if usable(budgets) else ()):
        if usable((*budgets, number)):
            yield from _schedule_findings((*budgets, number), budget, usable)


def _pattern_findings(catalog: str | None, path: Path, pattern: str) -> Iterator[Finding]:
    levels = split_identifier(pattern)
    if len(levels) == 1 and "*" not in pattern:
        yield Finding(
            path,
            f"{_quote(pattern)} names no namespace and matches no table",
            "NAMESPACE.TABLE",
            severity="warning",
        )
    elif len(levels) > 2 and levels[0] == catalog:
        rest = pattern.partition(".")[2]
        yield Finding(
            path,
            f"{_quote(pattern)} begins with the catalog's name",
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
        yield Finding(schedule, f"{_quote(budget['schedule'])} {why}", hint)
    if "timeZone" in budget and usable(zone):
        known, close = _time_zone(budget["timeZone"])
        if not known:
            hint = f"Did you mean {close}?" if close else "a name such as Europe/Berlin"
            name = _quote(budget["timeZone"])
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
        return not names, _closest(name, names)


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
    close = _closest(key, allowed)
    return f"Did you mean {close}?" if close else f"allowed: {', '.join(allowed)}"
