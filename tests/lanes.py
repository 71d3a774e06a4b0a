"""`python -m tests.lanes test|check [ARGUMENT ...]`: lint and tests in processes side by side.

Of the whole suite, one lane has the shared Spark session, one the other JVMs that tests start, in
pods of a test cluster too, and one the other tests on a test cluster, which wait more than they
work. Files marked `second_session` would make the first lane the longest: the second lane has them,
and starts a session of its own for them. The lanes share the rest (see `sharing`), and a fourth one
has nothing else: it works while others wait. The lanes that would end last have the cores first.
Lint stops them if it fails. What tests write is in memory where there is room: a catalog in SQLite
waits for the disk at each commit, which is half of a lane's time.

The two lanes of "check" share all tests without a JVM, a cluster and S3, but those of the files
that take most CPU (`sharing.LONGEST`): these took two thirds of its time.

Lines are printed as they come, each after its lane's name; the last ones name the tests that failed
and say how each lane ended. Ends with the first exit code that is not 0. An argument, for pytest,
may hold "{lane}", as in --junitxml=build/{lane}.xml.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tests.sharing import LONGEST

_SHARED = "not spark and not cluster"
_QUICK = f"{_SHARED} and not s3 and not soak"
_SESSION = "session and not second_session and not cluster"
_JVM = "(cluster and jvm) or (spark and not cluster and (second_session or not session))"
NICE = {"jvm": 5, "shared": 5}
"""How far the lanes give way to the others, as of `nice`; the others do not."""
LINT = ("make", "--no-print-directory", "lint")
MEMORY = Path("/dev/shm")
"""Directory of a file system in memory, where the machine has one."""
WITH_PODS = ("jvm", "cluster")
"""Lanes whose tests share files with pods, which have a /dev of their own."""
ROOM = 6 << 30
"""Bytes that must be free there; a whole run writes less than half of them."""


def lanes(part: str) -> dict[str, str]:
    """The marker expressions of the lanes of "test" or "check", by the lane's name."""
    if part == "test":
        return {
            "session": f"(({_SESSION}) or ({_SHARED})) and not soak",
            "jvm": f"({_JVM} or ({_SHARED})) and not soak",
            "cluster": f"((cluster and not jvm) or ({_SHARED})) and not soak",
            "shared": f"({_SHARED}) and not soak",
        }
    return {"first": _QUICK, "second": _QUICK}


def left_out(part: str) -> list[str]:
    """Pytest's options that leave out what a part does without."""
    return [f"--ignore={name}" for name in LONGEST] if part == "check" else []


def main(arguments: Sequence[str]) -> int:
    part, *more = arguments
    more = [*left_out(part), *more]
    with tempfile.TemporaryDirectory(prefix="lanes-") as claims, written(MEMORY) as place:
        running = {"lint": output_of(LINT)}
        for lane, marks in lanes(part).items():
            base = [f"--basetemp={place / lane}"] if place and lane not in WITH_PODS else []
            given = [*options(marks, claims), *base, *_named(more, lane)]
            running[lane] = start(given, NICE.get(lane, 0))
        return follow(running)


@contextlib.contextmanager
def written(memory: Path, room: int = ROOM) -> Iterator[Path | None]:
    """A directory in memory for what tests write; None, which is pytest's own place, without room.

    room: bytes that must be free.
    """
    if not memory.is_dir() or shutil.disk_usage(memory).free < room:
        yield None
        return
    with tempfile.TemporaryDirectory(
        prefix="lanes-", dir=memory, ignore_cleanup_errors=True
    ) as place:
        yield Path(place)


def options(marks: str, claims: str) -> list[str]:
    """Pytest's options of one lane.

    With a space before the directory pytest takes it for a place of tests, and then for the root of
    the project: its settings, time limits among them, would not hold.
    """
    return ["-m", marks, f"--claims={claims}"]


def _named(arguments: Sequence[str], lane: str) -> list[str]:
    return [argument.replace("{lane}", lane) for argument in arguments]


def start(arguments: Sequence[str], nice: int = 0) -> subprocess.Popen[str]:
    plugins = ("-p", "tests.sharing", "-p", "tests.durations")
    pytest = (sys.executable, "-u", "-m", "pytest", *plugins)
    return output_of(["nice", "-n", str(nice), *pytest, *arguments], compiled_once(os.environ))


def compiled_once(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a lane: what it compiles is kept, also where the caller does not.

    Without that, each lane and each process that a test starts compiles every module that it
    imports: 16 of the 26 CPU seconds of a collection.
    """
    return {key: value for key, value in environment.items() if key != "PYTHONDONTWRITEBYTECODE"}


def output_of(
    command: Sequence[str], environment: Mapping[str, str] | None = None
) -> subprocess.Popen[str]:
    """Start a process whose output a lane prints. environment: its own one; None: this one's."""
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env=environment,
    )


def follow(running: Mapping[str, subprocess.Popen[str]]) -> int:
    failed: list[str] = []
    printers = [
        threading.Thread(target=_print, args=(lane, process, failed))
        for lane, process in running.items()
    ]
    for thread in printers:
        thread.start()
    try:
        if running["lint"].wait():
            for process in running.values():
                process.send_signal(signal.SIGINT)
        codes = [process.wait() for process in running.values()]
    except KeyboardInterrupt:  # the lanes got it too, and clean up
        codes = [process.wait() for process in running.values()]
    for thread in printers:
        thread.join()
    print(*failed, sep="", end="")
    print(*(f"{lane}: {code}" for lane, code in zip(running, codes, strict=True)), sep=", ")
    return next((code for code in codes if code), 0)


def _print(lane: str, process: subprocess.Popen[str], failed: list[str]) -> None:
    """Print the lines of a process, and keep pytest's summary of what failed."""
    assert process.stdout is not None
    for line in process.stdout:
        print(f"{lane:<8}{line}", end="", flush=True)
        if line.startswith(("FAILED ", "ERROR ")):
            failed.append(f"{lane:<8}{line}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
