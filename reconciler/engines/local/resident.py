"""How much memory a process of this machine takes."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path


def resident_bytes(process: int) -> int:
    """Return the memory that is the process's own, without mapped files; 0 once it has ended."""
    table = Path(f"/proc/{process}/statm")
    if not Path("/proc/self/statm").exists():
        return _by_ps(process)
    try:
        _, resident, shared, *_ = table.read_text().split()
    except (OSError, ValueError):
        return 0
    return (int(resident) - int(shared)) * os.sysconf("SC_PAGE_SIZE")


def _by_ps(process: int) -> int:
    """Return all of its resident memory, where the system has no /proc."""
    command = ["ps", "-o", "rss=", "-p", str(process)]
    said = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    return int(said or 0) << 10
