"""`python -m tests.lanes test|check [ARGUMENT ...]`: the tests in two pytest processes at a time.

Of the whole suite, one lane has the shared Spark session and every JVM that tests start on this
machine; the other has the test cluster and all the rest. Lines are printed as they come, each after
its lane's name. Ends with the first lane's exit code that is not 0. An argument may hold "{lane}",
as in --junitxml=build/{lane}.xml.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

Lane = tuple[str, ...]
"""Pytest's arguments."""

_HERE = Path(__file__).parent
_QUICK = "not spark and not cluster and not s3 and not faults"
_DECISIONS = ("advisor", "api", "plan", "queries", "table", "workload_log")


def lanes(part: str) -> dict[str, Lane]:
    """The lanes of "test" or "check" by name; together they have each of its tests once."""
    if part == "test":
        return {
            "spark": ("-m", "spark and not cluster and not faults"),
            "cluster": ("-m", "(cluster or not spark) and not faults"),
        }
    first = [str(_HERE / name) for name in _DECISIONS]
    return {
        "decide": ("-m", _QUICK, *first),
        "rest": ("-m", _QUICK, *(f"--ignore={path}" for path in first)),
    }


def main(arguments: Sequence[str]) -> int:
    part, *more = arguments
    running = {
        lane: subprocess.Popen(
            [sys.executable, "-u", "-m", "pytest", *chosen,
             *(argument.replace("{lane}", lane) for argument in more)],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
        )
        for lane, chosen in lanes(part).items()
    }  # fmt: skip
    printers = [
        threading.Thread(target=_print, args=(lane, process)) for lane, process in running.items()
    ]
    for thread in printers:
        thread.start()
    try:
        codes = [process.wait() for process in running.values()]
    except KeyboardInterrupt:  # the lanes got it too, and clean up
        codes = [process.wait() for process in running.values()]
    for thread in printers:
        thread.join()
    return next((code for code in codes if code), 0)


def _print(lane: str, process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        print(f"{lane:<8}{line}", end="", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
