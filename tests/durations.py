"""A pytest plugin (`-p tests.durations`): where the time goes, by file, at the end of the run.

Seconds count fixtures too, which a file pays for when it is the first that asks. CPU is that of
pytest and of all processes below it, JVMs among them; on a busy machine it says more than seconds.
"""

from __future__ import annotations

import os
import time
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

SHOWN = 25
_PROC = Path("/proc")
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(slots=True)
class Spent:
    tests: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0


class Durations:
    """Adds up what the tests of a file take. Reads the clocks when another file begins."""

    def __init__(self) -> None:
        self.spent: dict[str, Spent] = {}
        self._tests = 0
        self._wall, self._cpu = time.monotonic(), cpu_below(os.getpid())

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(
        self, item: pytest.Item, nextitem: pytest.Item | None
    ) -> Generator[None, Any, Any]:
        result = yield
        self._tests += 1
        if nextitem is None or nextitem.path != item.path:
            self._add(item.nodeid.partition("::")[0])
        return result

    def pytest_collection_finish(self) -> None:
        self._add("(collection)")

    def _add(self, name: str) -> None:
        wall, cpu = time.monotonic(), cpu_below(os.getpid())
        mine = self.spent.setdefault(name, Spent())
        mine.tests += self._tests
        mine.seconds += wall - self._wall
        mine.cpu_seconds += max(cpu - self._cpu, 0.0)
        self._tests, self._wall, self._cpu = 0, wall, cpu

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        for line in report(self.spent):
            terminalreporter.write_line(line)


def report(spent: Mapping[str, Spent]) -> list[str]:
    """Return a table of the longest files, and the sums of all."""
    every = Spent(
        sum(file.tests for file in spent.values()),
        sum(file.seconds for file in spent.values()),
        sum(file.cpu_seconds for file in spent.values()),
    )
    longest = sorted(spent.items(), key=lambda item: -item[1].seconds)[:SHOWN]
    rows = [*longest, (f"(all {len(spent)} files)", every)]
    lines = [f"{mine.seconds:8.1f} {mine.cpu_seconds:8.1f} {mine.tests:6}  {name}"
             for name, mine in rows]  # fmt: skip
    return [" seconds    CPU s  tests  file", *lines]


def cpu_below(pid: int) -> float:
    """Return the CPU seconds of a process, of those below it, and of those that they waited for.

    Without /proc: of this process and of ended ones alone.
    """
    if not (_PROC / "self" / "stat").exists():
        times = os.times()
        return times.user + times.system + times.children_user + times.children_system
    parents: dict[int, int] = {}
    seconds: dict[int, float] = {}
    for entry in _PROC.iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:  # it ended meanwhile
                continue
            parents[int(entry.name)] = int(fields[1])
            seconds[int(entry.name)] = sum(map(int, fields[11:15])) / _TICKS
    return sum(value for each, value in seconds.items() if _is_below(each, pid, parents))


def _is_below(pid: int, ancestor: int, parents: Mapping[int, int]) -> bool:
    while pid != ancestor and pid in parents:
        pid = parents[pid]
    return pid == ancestor


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Durations(), "durations of files")
