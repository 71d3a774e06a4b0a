"""What starting the command line costs, without doing anything: CPU, wall time, imported modules.

    python -m bench.start [--rounds 7] [--beside CHECKOUT]

The last command is an `apply` on a table that needs nothing. Each command runs in a process of its
own, in turns, with --beside also that of another checkout; the least of the rounds counts, because
other work on the machine only adds.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.cpu import cpu_seconds
from bench.lake import Lake
from bench.results import write_section

HERE = Path(__file__).parents[1]
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


Run = tuple[float, float, list[str]]
"""CPU seconds, wall seconds and the imported modules of one process."""
Found = dict[tuple[str, ...], list[list[Run]]]
"""The runs of each command, of this checkout and then of the other one."""


def started(lake: Lake, command: tuple[str, ...], checkout: Path) -> Run:
    """Run the command of a checkout in a process of its own."""
    before, begun = cpu_seconds(), time.perf_counter()
    environment = {"PYTHONPATH": str(checkout), "PYTHONDONTWRITEBYTECODE": ""}
    ended = lake.run([sys.executable, "-c", RUN, *command], environment)
    wall = time.perf_counter() - begun
    return cpu_seconds() - before, wall, ended.stderr.splitlines()[-1].split()[1:]


def nothing_to_do(lake: Lake) -> tuple[str, ...]:
    """Make a table of one file; return the command that finds nothing to do there."""
    import pyarrow as pa

    rows = pa.table({"k": list(range(1000)), "v": [1.0] * 1000})
    lake.opened().create_table("lake.t", rows.schema).append(rows)
    return tuple(lake.applying("mode: Declared, keys: [k]")[3:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--beside", type=Path, help="another checkout")
    asked = parser.parse_args()
    checkouts = [HERE, *([asked.beside] if asked.beside else [])]
    found = in_turns(checkouts, asked.rounds)
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    note = (
        f"The least of {asked.rounds} runs in turns; the machine's load was {load} at the end. "
        f"Heavy: {', '.join(HEAVY)}. The apply is of a table of one file, on SQLite."
    )
    line = f"python -m bench.start --rounds {asked.rounds}"
    if asked.beside:
        named = ["git", "-C", str(asked.beside), "rev-parse", "--short", "HEAD"]
        note += f" Before: {subprocess.check_output(named, text=True).strip()}."
        line += " --beside CHECKOUT"
    print(write_section("Start of the command line", line, table(found), note))


def in_turns(checkouts: list[Path], rounds: int) -> Found:
    """Run every command in every checkout in each round, and once before, to compile modules."""
    with tempfile.TemporaryDirectory(prefix="layout-bench-") as scratch:
        lake = Lake(Path(scratch))
        commands = (*COMMANDS, nothing_to_do(lake))
        found: Found = {command: [[] for _ in checkouts] for command in commands}
        for turn in range(rounds + 1):
            for command in commands:
                for place, checkout in enumerate(checkouts):
                    run = started(lake, command, checkout)
                    if turn:
                        found[command][place].append(run)
    return found


def table(found: Found) -> list[tuple[str, ...]]:
    """Return the rows of RESULTS.md."""
    heads = ("command", "CPU s", "wall s", "modules", "heavy packages")
    beside = any(len(runs) > 1 for runs in found.values())
    rows: list[tuple[str, ...]] = [(*heads, "CPU / before") if beside else heads]
    for command, runs in found.items():
        modules = runs[0][0][2]
        heavy = [name for name in HEAVY if name in modules]
        cpu, wall = min(run[0] for run in runs[0]), min(run[1] for run in runs[0])
        ratio = [f"{cpu / min(run[0] for run in other):.2f}" for other in runs[1:]]
        rows.append(
            (f"`layoutctl {' '.join(command)}`", f"{cpu:.2f}", f"{wall:.2f}", str(len(modules)),
             ", ".join(heavy) or "none", *ratio)
        )  # fmt: skip
    return rows


if __name__ == "__main__":
    main()
