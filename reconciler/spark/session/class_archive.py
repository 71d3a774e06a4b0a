"""Finds the archive of the classes of a session's JVM (class-data sharing, JEP 350).

Loading, parsing and verifying the classes of Spark and Scala is a large part of what a session does
before its first query; classes mapped from a file need none of it. `make setup` makes the archive
once, beside the Spark that it belongs to; a session that finds none starts without it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shlex
from collections.abc import Iterable
from pathlib import Path

from reconciler.spark.session import runtime

PREFIX = "layoutctl-classes-"
MOST_HEAP_BYTES = (32 << 30) - 1
"""A JVM with a larger heap has no compressed references and cannot use an archive made with
them."""

_CHOSEN = re.compile(
    r"-Xshare:|-XX:(Shared(Archive|ClassList)File|ArchiveClassesAtExit|AOT\w+)="
    r"|-XX:\+UseZGC|-XX:-UseCompressed"
)
OPTIONS_FOR_EVERY_JVM = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS")
"""Environment variables with options of every JVM."""
OPTIONS_FOR_DRIVERS = (*OPTIONS_FOR_EVERY_JVM, "SPARK_SUBMIT_OPTS")
"""Environment variables with options of a JVM that is launched here."""


def options(chosen: Iterable[str], heap: str) -> str:
    """Return options that give a JVM of this machine's Spark the archive; "" if none is usable.

    chosen: options that this JVM gets anyway. A user's own archive takes precedence, and a JVM
    without compressed references would lose even Java's own. heap: as in spark.driver.memory.
    """
    given = [*chosen, *(os.environ.get(name, "") for name in OPTIONS_FOR_DRIVERS)]
    if any(_CHOSEN.search(each) for each in given) or heap_bytes(heap) > MOST_HEAP_BYTES:
        return ""
    found = archive()
    return (
        "" if found is None else f"-XX:SharedArchiveFile={shlex.quote(str(found))} -Xlog:cds*=off"
    )


def heap_bytes(text: str) -> int:
    """Return the bytes of a size as Spark reads it: "8g", "8192m", a bare number in MiB; else a
    large one."""
    found = re.fullmatch(r"(\d+)([kmgt]?)b?", text.strip().lower())
    if found is None:
        return 1 << 62
    return int(found.group(1)) << {"k": 10, "": 20, "m": 20, "g": 30, "t": 40}[found.group(2)]


def archive() -> Path | None:
    for path in runtime.spark_home().glob(f"{stem()}-*.jsa"):
        with contextlib.suppress(OSError):  # another process may be replacing it
            if path.stem.rpartition("-")[2] == str(path.stat().st_size):
                return path
    return None


def stem() -> str:
    """Return an archive's name from what it must match: the Java, and the class path with its
    times."""
    java = _java()
    jars = sorted(runtime.spark_home().glob("jars/*.jar"))
    digest = hashlib.sha256()
    for path in (java, java.parents[1] / "release", *jars):
        if path.is_file():
            found = path.stat()
            digest.update(f"{path}\0{found.st_size}\0{int(found.st_mtime)}\n".encode())
    return f"{of_java()}-{digest.hexdigest()[:16]}"


def of_java() -> str:
    """Return the prefix of the names of all archives of this Java, old ones too."""
    return f"{PREFIX}{hashlib.sha256(str(_java()).encode()).hexdigest()[:8]}"


def _java() -> Path:
    return Path(runtime.java_command()).resolve()
