"""When two written paths may mean one file, and when two locations may overlap.

One file is written in many ways: by another scheme or host of its store, with `//`, `/./` or
`/../`, percent-encoded, in another case. Here two paths are taken for one file rather than for two:
whoever deletes files compares by these rules, and then leaves one too many.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterable
from urllib.parse import unquote

import numpy as np
import numpy.typing as npt

Steps = tuple[str, ...]

_START = re.compile(r"^(?:([A-Za-z][A-Za-z0-9+.-]*):)?(?://([^/]*))?")
_LOCAL = re.compile(r"^(file:(//(localhost)?)?)?/", re.IGNORECASE)
MOST_DECODINGS = 4
"""Times that a path is percent-decoded: writers and file systems encode a name once each."""

DROPPED = "\n\t\r"
"""What parsers of URLs drop from a path."""


def key_of(path: str) -> str:
    """Return the path below its store's root, equal for all ways to write it."""
    rest = _START.sub("", path, count=1)
    if rest.isascii() and "%" not in rest and "//" not in rest and "/." not in rest:
        return rest.strip("/").lower()
    return "/".join(_steps(rest))


def _steps(rest: str) -> Steps:
    for _ in range(MOST_DECODINGS):
        decoded = unquote(rest, errors="surrogateescape")
        if decoded == rest:
            break
        rest = decoded
    found: list[str] = []
    for step in unicodedata.normalize("NFC", rest).casefold().split("/"):
        if step == "..":
            del found[-1:]
        elif step not in ("", "."):
            found.append(step)
    return tuple(found)


def locations_of(path: str) -> frozenset[Steps]:
    """Return the places that a location may mean: a bucket is the host of one address of its store,
    and the first step of another."""
    found = _START.match(path)
    host = unquote(found[2] or "") if found else ""
    steps = _steps(path[found.end() :] if found else path)
    bucket = host.rpartition("@")[0] or host
    return frozenset({steps, (bucket.casefold(), *steps)} if bucket else {steps})


def overlap(these: Iterable[Steps], those: Iterable[Steps]) -> bool:
    """Whether a place of one lies in, or is, a place of the other."""
    others = tuple(those)
    return any(
        one[: len(other)] == other or other[: len(one)] == one for one in these for other in others
    )


def ambiguous(paths: Collection[str]) -> npt.NDArray[np.bool_]:
    """Return bool[paths]: those that readers look for in two places. Parsers of URLs, such as that
    of PyIceberg, drop line ends and tabs; a file system and Iceberg's Java library keep them."""
    together = "".join(paths)  # hardly any table has such a path
    if not any(each in together for each in DROPPED):
        return np.zeros(len(paths), dtype=np.bool_)
    return np.array([any(each in path for each in DROPPED) for path in paths], np.bool_)


def is_local(path: str) -> bool:
    """Whether the path is of the machine's own file system."""
    return bool(_LOCAL.match(path))


def local_of(path: str) -> str:
    """Return a local path without scheme and host, as the file system takes it."""
    return "/" + _LOCAL.sub("", path, count=1).lstrip("/")
