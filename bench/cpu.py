"""CPU seconds of a process and all that it started."""

from __future__ import annotations

import os
from pathlib import Path


def cpu_seconds() -> float:
    """Return the CPU seconds of this process and all below it, those that have ended included."""
    ticks = os.sysconf("SC_CLK_TCK")
    total, left = 0, [os.getpid()]
    while left:
        pid = left.pop()
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            for task in Path(f"/proc/{pid}/task").iterdir():
                left += [int(child) for child in (task / "children").read_text().split()]
        except OSError:
            continue
        total += sum(map(int, fields[11:15]))
    return total / ticks
