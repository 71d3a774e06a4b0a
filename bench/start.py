"""What starting the command line costs, without doing anything: CPU, wall time, imported modules.

Run with `python -m bench.start`. Each command runs in a process of its own, in turns; the least of
the rounds counts, because other work on the machine only adds.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time

from bench.results import write_section

ROUNDS = 7
COMMANDS = (
    ("--help",),
    ("version",),
    ("observe", "--help"),
    ("plan", "--help"),
    ("recommend", "--help"),
    ("apply", "--help"),
    ("operator", "--help"),
)
HEAVY = ("pyspark", "kopf", "kubernetes", "matplotlib", "sklearn", "optuna", "pyiceberg", "numpy")
RUN = """
import atexit, sys
atexit.register(lambda: print(len(sys.modules), *sys.modules, file=sys.stderr))
from reconciler.cli.main import main
sys.argv = ["layoutctl", *sys.argv[1:]]
main()
"""


def started(command: tuple[str, ...]) -> tuple[float, float, list[str]]:
    """Return CPU seconds, wall seconds and the imported modules of one process."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    begun = time.perf_counter()
    ended = subprocess.run(
        [sys.executable, "-c", RUN, *command], capture_output=True, text=True, check=True
    )
    wall = time.perf_counter() - begun
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return cpu, wall, ended.stderr.splitlines()[-1].split()[1:]


def main() -> None:
    found = {command: [started(command)] for command in COMMANDS}
    for _ in range(ROUNDS - 1):
        for command in COMMANDS:
            found[command].append(started(command))
    rows: list[tuple[str, ...]] = [("command", "CPU s", "wall s", "modules", "heavy packages")]
    for command, runs in found.items():
        modules = runs[0][2]
        heavy = [name for name in HEAVY if name in modules]
        cpu, wall = (min(run[place] for run in runs) for place in (0, 1))
        rows.append(
            (f"`layoutctl {' '.join(command)}`", f"{cpu:.2f}", f"{wall:.2f}", str(len(modules)),
             ", ".join(heavy) or "none")
        )  # fmt: skip
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    note = (
        f"The least of {ROUNDS} runs in turns; the machine's load was {load} at the end. Heavy: "
        f"{', '.join(HEAVY)}."
    )
    print(write_section("Start of the command line", "python -m bench.start", rows, note))


if __name__ == "__main__":
    main()
