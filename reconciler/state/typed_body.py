"""Reads the JSON body of a stored row as the dataclass that it was written from.

A body may come from another release, or from anybody who can write to the catalog: whatever is not
of the field's type is a ValueError that names the field. Fields that this release does not know are
left out.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Hashable, Mapping
from functools import cache
from types import NoneType, UnionType
from typing import Any, TypeVar, cast, get_args, get_origin, get_type_hints

T = TypeVar("T")

_LARGEST = 2**63 - 1


def typed(kind: type[T], body: Any) -> T:
    """Return the value of a dataclass of plain fields: numbers, text, flags, lists of text, and
    null where the field may be None."""
    if not isinstance(body, Mapping):
        raise ValueError("it is not an object")
    known: dict[str, Any] = {}
    for name, hint, required in _fields(cast("Hashable", kind)):
        if name in body:
            known[name] = _value(name, hint, body[name])
        elif required:
            raise ValueError(f"it has no {name}")
    return kind(**known)


@cache
def _fields(kind: Any) -> tuple[tuple[str, Any, bool], ...]:
    hints = get_type_hints(kind)
    missing = dataclasses.MISSING
    return tuple(
        (item.name, hints[item.name], item.default is missing and item.default_factory is missing)
        for item in dataclasses.fields(kind)
    )


def _value(name: str, hint: Any, value: Any) -> Any:
    options = get_args(hint) if get_origin(hint) is UnionType else (hint,)
    if value is None and NoneType in options:
        return None
    wanted = next(option for option in options if option is not NoneType)
    if get_origin(wanted) is tuple and isinstance(value, list | tuple):
        return tuple(_value(f"{name}[{n}]", str, item) for n, item in enumerate(value))
    if wanted is float and type(value) in (int, float) and math.isfinite(value):
        return float(value)
    if wanted is int and type(value) is int and abs(value) <= _LARGEST:
        return value
    if wanted in (str, bool) and type(value) is wanted:
        return value
    raise ValueError(f"{name} is {str(value)[:80]!r}")
