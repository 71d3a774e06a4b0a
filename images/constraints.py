"""Prints the exact versions in requirements.lock as a constraints file for pip.

The lock file has every extra with hashes; an image installs one extra. pip accepts hashes only if
every package has one, the project itself included, so only the versions are passed on.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

_PINNED = re.compile(r"^([A-Za-z0-9._-]+==[^\s\\]+(?:\s*;[^\\]+)?)", re.MULTILINE)


def constraints(lock: str) -> list[str]:
    """`name==version` lines, environment markers included."""
    return [match.group(1).strip() for match in _PINNED.finditer(lock)]


if __name__ == "__main__":
    sys.stdout.write("\n".join(constraints(Path(sys.argv[1]).read_text(encoding="utf-8"))) + "\n")
