"""Documents of dicts, lists and scalars that differ from a good one in one place."""

from __future__ import annotations

import copy
import itertools
from typing import Any

Place = tuple[Any, ...]
"""The keys and indices that lead to a value; () is the document."""


def places(value: Any, path: Place = (), *, items: int | None = None) -> list[Place]:
    """The places of a value and of all within it. items: of each list, at most; None: all."""
    inner: Any = value.items() if isinstance(value, dict) else ()
    inner = itertools.islice(enumerate(value), items) if isinstance(value, list) else inner
    return [path, *(p for key, item in inner for p in places(item, (*path, key), items=items))]


def replaced(document: Any, place: Place, value: Any, removed: bool = False) -> Any:
    """A copy with the value in this place, or without the place."""
    if not place:
        return value
    body = copy.deepcopy(document)
    at: Any = body
    for key in place[:-1]:
        at = at[key]
    if removed:
        del at[place[-1]]
    else:
        at[place[-1]] = value
    return body
