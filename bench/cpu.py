"""CPU seconds of a process and all that it started."""

from __future__ import annotations

import os
from pathlib import Path


def cpu_seconds() -> float:
    """Return the CPU seconds of this process and all below it, those that have ended included."""
    spent: dict[int, int] = {}
    children: dict[int, list[int]] = {}
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            fields = (directory / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        children.setdefault(int(fields[1]), []).append(int(directory.name))
        spent[int(directory.name)] = sum(map(int, fields[11:15]))
    total, left = 0, [os.getpid()]
    while left:
        pid = left.pop()
        total += spent.get(pid, 0)
        left += children.get(pid, [])
    return total / os.sysconf("SC_CLK_TCK")
