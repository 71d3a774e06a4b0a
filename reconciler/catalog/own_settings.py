"""pyiceberg's own configuration file, parsed once for as long as it is the same.

pyiceberg parses it anew for each of its settings that it looks at: 45 times while a small table is
rewritten, for a third of a second in all. A test counts.
"""

from __future__ import annotations

import copy
import functools
import os
from pathlib import Path
from typing import Any

from pyiceberg.utils import config
from pyiceberg.utils.config import Config

Stamp = tuple[str, int, int, int] | None
"""Path, inode, size and time of change of a file; None without one."""

_parse = Config._from_configuration_files


def parse_once() -> None:
    """Have pyiceberg parse its file again only if another one is found, or if it has changed."""
    Config._from_configuration_files = staticmethod(_settings)  # type: ignore[method-assign]


def _settings() -> Any:
    home = os.path.expanduser("~")  # noqa: PTH111 - as pyiceberg; Path's raises without a home
    found = (os.environ.get(config.PYICEBERG_HOME), home, str(Path.cwd()))
    return copy.deepcopy(_parsed(tuple(map(_stamp, found))))


@functools.lru_cache(maxsize=1)
def _parsed(_: tuple[Stamp, ...]) -> Any:
    return _parse()


def _stamp(directory: str | None) -> Stamp:
    if directory is None:
        return None
    path = Path(directory) / config.PYICEBERG_YML
    try:
        found = path.stat()
    except OSError:
        return None
    return str(path), found.st_ino, found.st_size, found.st_mtime_ns
