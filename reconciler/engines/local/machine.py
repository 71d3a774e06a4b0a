"""What this machine has for processes of a pool: as it is configured, or measured."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from reconciler.engines.choice import Machine

GROUP = Path("/sys/fs/cgroup")


def of_this(spark: str) -> Machine:
    """Measure this machine. spark: why Spark cannot run here, "" if it can."""
    free = shutil.disk_usage(tempfile.gettempdir()).free
    return Machine(cores(), available_bytes(), free, spark)


def cores() -> int:
    """Return the cores that this process may use: of its affinity, and of its container."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return max(1, min(usable or 1, _quota() or usable or 1))


def _quota() -> int | None:
    """Return the whole cores of the container's quota; None without one."""
    try:
        quota, period = (GROUP / "cpu.max").read_text().split()
    except (OSError, ValueError):
        return None
    return None if quota == "max" else max(1, int(quota) // int(period))


def _reclaimable() -> int:
    """Return the bytes of files that the container's memory holds and the system gives up when
    memory is asked for."""
    lines = (GROUP / "memory.stat").read_text().splitlines()
    found = [line.split() for line in lines]
    return sum(int(words[1]) for words in found if words[:1] == ["inactive_file"])


def available_bytes() -> int:
    """Return the bytes that this process and others may still allocate, of the machine or of its
    control group."""
    limits = [os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    meminfo = Path("/proc/meminfo")
    if meminfo.exists():
        found = [line.split() for line in meminfo.read_text().splitlines()]
        limits = [int(w[1]) << 10 for w in found if w[0] == "MemAvailable:"] or limits
    try:
        most = (GROUP / "memory.max").read_text().strip()
        if most != "max":
            used = int((GROUP / "memory.current").read_text()) - _reclaimable()
            limits.append(int(most) - max(0, used))
    except OSError:  # no control group of version 2
        pass
    return min(limits)
