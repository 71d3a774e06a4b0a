"""Makes and finds an archive of the classes of a session's JVM (class-data sharing, JEP 350).

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
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from reconciler.errors import EXIT_OK, EXIT_USER, ReconcilerError, UnavailableError
from reconciler.spark import runtime
from reconciler.spark.translate import translated

PREFIX = "layoutctl-classes-"
CATALOG = "archive"
MOST_HEAP_BYTES = (32 << 30) - 1
"""A JVM with a larger heap has no compressed references and cannot use an archive made with
them."""

_CHOSEN = re.compile(
    r"-Xshare:|-XX:(Shared(Archive|ClassList)File|ArchiveClassesAtExit|AOT\w+)="
    r"|-XX:\+UseZGC|-XX:-UseCompressed"
)
_ENVIRONMENT = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS")


def options(chosen: Iterable[str], heap: str) -> str:
    """Return options that give a JVM of this machine's Spark the archive; "" if none is usable.

    chosen: options that this JVM gets anyway. A user's own archive takes precedence, and a JVM
    without compressed references would lose even Java's own. heap: as in spark.driver.memory.
    """
    given = [*chosen, *(os.environ.get(name, "") for name in _ENVIRONMENT)]
    if any(_CHOSEN.search(each) for each in given) or heap_bytes(heap) > MOST_HEAP_BYTES:
        return ""
    found = _archive()
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


def make() -> Path:
    """Make the archive of this Java and this Spark, unless it exists; return its path.

    Raises ReconcilerError if no session starts or Java makes no archive, OSError if Spark's
    directory is not writable.
    """
    found = _archive()
    if found is not None:
        return found
    home = runtime.spark_home()
    with tempfile.TemporaryDirectory(dir=home, prefix=f".{PREFIX}") as scratch:
        made = Path(scratch) / "made.jsa"
        with translated("load Spark's classes"):
            _load_classes(Path(scratch), f"-XX:ArchiveClassesAtExit={shlex.quote(str(made))}")
        if not made.is_file():
            raise UnavailableError(
                "Java made no archive of Spark's classes",
                details=("It makes none with files in a directory of the class path.",),
                do=f"leave it, or move away {home}/conf or what SPARK_CONF_DIR names",
            )
        with made.open("rb") as written:
            os.fsync(written.fileno())
        for stale in home.glob(f"{_of_java()}-*.jsa"):
            stale.unlink(missing_ok=True)
        # The size is part of the name: a JVM that maps a truncated archive crashes.
        path = home / f"{_stem()}-{made.stat().st_size}.jsa"
        made.replace(path)
    return path


def _archive() -> Path | None:
    for path in runtime.spark_home().glob(f"{_stem()}-*.jsa"):
        with contextlib.suppress(OSError):  # another process may be replacing it
            if path.stem.rpartition("-")[2] == str(path.stat().st_size):
                return path
    return None


def _stem() -> str:
    """Return an archive's name from what it must match: the Java, and the class path with its
    times."""
    java = _java()
    jars = sorted(runtime.spark_home().glob("jars/*.jar"))
    digest = hashlib.sha256()
    for path in (java, java.parents[1] / "release", *jars):
        if path.is_file():
            found = path.stat()
            digest.update(f"{path}\0{found.st_size}\0{int(found.st_mtime)}\n".encode())
    return f"{_of_java()}-{digest.hexdigest()[:16]}"


def _of_java() -> str:
    """Return the prefix of the names of all archives of this Java, old ones too."""
    return f"{PREFIX}{hashlib.sha256(str(_java()).encode()).hexdigest()[:8]}"


def _java() -> Path:
    return Path(runtime.java_command()).resolve()


def _load_classes(scratch: Path, option: str) -> None:
    """Run a session that does what a rewrite does, so that its JVM has loaded those classes."""
    from reconciler.spark import session

    prefix = f"{session.CATALOG_PREFIX}{CATALOG}"
    conf = {
        "spark.master": "local[1]",  # overrides the environment
        "spark.driver.memory": "1g",
        # A JVM that does each thing only once or twice gains nothing from the optimising compiler.
        "spark.driver.extraJavaOptions": f"-XX:TieredStopAtLevel=1 {option}",
        prefix: "org.apache.iceberg.spark.SparkCatalog",
        f"{prefix}.type": "jdbc",
        f"{prefix}.uri": f"jdbc:sqlite:{scratch}/catalog.db",
        f"{prefix}.warehouse": f"file:{scratch}/warehouse",
        f"{prefix}.jdbc.schema-version": "V1",
        "spark.sql.shuffle.partitions": "2",
    }
    spark = session.start(conf, app="classes")
    try:
        _rehearse(spark)
    finally:
        session.stop(spark)


def _rehearse(spark: Any) -> None:
    from pyspark.sql import Observation
    from pyspark.sql import functions as f

    table = f"{CATALOG}.rehearsal.rows"
    spark.sql(f"CREATE NAMESPACE {CATALOG}.rehearsal")
    spark.sql(f"CREATE TABLE {table} (id bigint, day date, v double, s string) USING iceberg")
    rows = spark.range(1000).select(
        "id",
        f.date_add(f.lit("2024-01-01").cast("date"), f.pmod("id", f.lit(90)).cast("int")).alias(
            "day"
        ),
        f.rand(1).alias("v"),
        f.col("id").cast("string").alias("s"),
    )
    for _ in range(2):
        rows.writeTo(table).append()
    told = Observation("rows")
    read = spark.table(table)
    read.observe(told, f.count(f.lit(1)), f.max(f.xxhash64(*read.columns))).sortWithinPartitions(
        "day", f.col("s").desc()
    ).writeTo(table).overwrite(f.lit(True))
    read.repartition(2, "day").join(read.groupBy("day").agg(f.avg("v")), "day").orderBy(
        "id"
    ).collect()


def main() -> int:
    """`python -m reconciler.spark.class_data`: make the archive. It is optional."""
    try:
        sys.stdout.write(f"{make()}\n")
        return EXIT_OK
    except ReconcilerError as error:
        told, code = error.render(), error.exit_code
    except OSError as error:
        told, code = f"error: {error}", EXIT_USER
    sys.stderr.write(f"{told}\nSpark sessions start more slowly; nothing else is missing.\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
