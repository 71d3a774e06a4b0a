"""Checks a catalog's properties: only the allow-list of its type, and no credential.

A catalog document is as powerful as its properties, so nothing else is accepted: no class to load,
no credential outside the secret, no user or password inside a URI.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import parse_qsl, urlsplit

from reconciler.api.catalog_properties import (
    CATALOG_PROPERTIES,
    HEADER,
    REST,
    SQL,
    is_credential,
    listed,
    property_of,
)

REQUIRED: dict[str, tuple[str, ...]] = {REST: ("uri",), SQL: ("uri", "warehouse")}

_USER_INFO = re.compile(r"(?:[A-Za-z][A-Za-z0-9+.-]*:)+(//)?[^/?#]*@")


@dataclass(frozen=True, slots=True)
class PropertyProblem:
    """key: the property, "" if one is missing. The message never holds a value."""

    key: str
    message: str
    hint: str = ""


def allowed_keys(catalog_type: str, *, secret: bool = False) -> tuple[str, ...]:
    """Return the keys of `properties`, or of the secret, for one type of catalog."""
    return tuple(
        entry.name
        for entry in CATALOG_PROPERTIES
        if catalog_type in entry.types and entry.secret == secret
    )


def has_line_end(key: str, value: str) -> bool:
    """Whether a header's value would end its line: what follows would be another header."""
    return key.startswith(HEADER) and any(ord(one) < 32 or ord(one) == 127 for one in value)


def has_user_info(value: str) -> bool:
    """Whether a URI contains a user, a password, or a credential in its query."""
    if _USER_INFO.match(value):
        return True
    try:
        query = urlsplit(value).query
    except ValueError:
        return False
    return any(is_credential(name) or name.lower() == "user" for name, _ in parse_qsl(query))


def property_problems(
    catalog_type: str, properties: Mapping[str, str | None]
) -> list[PropertyProblem]:
    """Return all problems of a catalog's properties. None as a value: given, but not readable."""
    found = [
        PropertyProblem("", f"{key} is required for type {catalog_type}", _description(key))
        for key in REQUIRED[catalog_type]
        if key not in properties
    ]
    for key, value in properties.items():
        found += _one(catalog_type, key, value)
    return found


def _one(catalog_type: str, key: str, value: str | None) -> list[PropertyProblem]:
    found = listed(key, catalog_type)
    allowed = found is not None and not found.secret
    where = "put it into a Secret and name that in spec.secretRef"
    if not allowed and is_credential(key):
        return [PropertyProblem(key, "credentials do not belong in properties", where)]
    if not allowed and key.endswith("impl"):
        return []  # reported by the rule against classes to load
    if not allowed:
        return [PropertyProblem(key, _not_allowed(catalog_type, key))]
    if value is None:
        return []
    if has_line_end(key, value):
        return [PropertyProblem(key, "a header is one line")]
    if has_user_info(value):
        return [PropertyProblem(key, "a URI must not carry a user, password or token", where)]
    return []


def _description(key: str) -> str:
    return next(entry.description for entry in CATALOG_PROPERTIES if entry.name == key)


def _not_allowed(catalog_type: str, key: str) -> str:
    other = property_of(key)
    if other is not None:
        return f"{key} is a property of type {min(other.types)}, not of type {catalog_type}"
    return f"{key} is not an allowed property of type {catalog_type}"
