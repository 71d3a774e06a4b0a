"""An archive of the classes that a session's JVM loads (application class-data sharing, JEP 350).

Loading, parsing and verifying some thirty thousand classes of Spark and Scala is the larger part of
what a session does before its first query; mapped from a file they are simply there. `make setup`
makes the archive once, beside the Spark that it is of; a session that finds none does without.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from reconciler.errors import EXIT_OK, ReconcilerError
from reconciler.jobs import runtime
from reconciler.jobs.translate import translated

PREFIX = "layoutctl-classes-"
CATALOG = "archive"
CHOSEN = re.compile(r"-Xshare:|-XX:(SharedArchiveFile|SharedClassListFile|ArchiveClassesAtExit)=")


def options(chosen: Iterable[str]) -> str:
    """Options that give a JVM of this machine's Spark the archive; "" where there is none.

    chosen: options that this JVM is given anyway: a user's own archive stays.
    """
    if any(CHOSEN.search(given) for given in chosen):
        return ""
    found = _archive()
    return "" if found is None else f"-XX:SharedArchiveFile={shlex.quote(str(found))} -Xlog:cds=off"


def make() -> Path:
    """Makes the archive of this Java and this Spark, unless it is there; returns its path.

    Raises ReconcilerError when no session starts, OSError when Spark's directory takes no file.
    """
    found = _archive()
    if found is not None:
        return found
    home = runtime.spark_home()
    with tempfile.TemporaryDirectory(dir=home, prefix=f".{PREFIX}") as scratch:
        made = Path(scratch) / "made.jsa"
        with translated("load Spark's classes"):
            _load_classes(Path(scratch), f"-XX:ArchiveClassesAtExit={shlex.quote(str(made))}")
        with made.open("rb") as written:
            os.fsync(written.fileno())
        for stale in home.glob(f"{PREFIX}*.jsa"):
            stale.unlink()
        # The size is part of the name: a JVM that maps an archive which was cut short crashes.
        path = home / f"{_stem()}-{made.stat().st_size}.jsa"
        made.replace(path)
    return path


def _archive() -> Path | None:
    for path in runtime.spark_home().glob(f"{_stem()}-*.jsa"):
        if path.stem.rpartition("-")[2] == str(path.stat().st_size):
            return path
    return None


def _stem() -> str:
    """Names an archive by what it must fit: the Java, and the class path with its times."""
    java = Path(shutil.which(runtime.java_command()) or runtime.java_command()).resolve()
    jars = sorted(runtime.spark_home().glob("jars/*.jar"))
    digest = hashlib.sha256()
    for path in (java, java.parents[1] / "release", *jars):
        if path.is_file():
            found = path.stat()
            digest.update(f"{path}\0{found.st_size}\0{int(found.st_mtime)}\n".encode())
    return f"{PREFIX}{digest.hexdigest()[:16]}"


def _load_classes(scratch: Path, option: str) -> None:
    """A session that does what a rewrite does, so that its JVM has loaded the classes of it."""
    from reconciler.jobs import session

    prefix = f"{session.CATALOG_PREFIX}{CATALOG}"
    conf = {
        "spark.driver.memory": "1g",
        # A JVM that does each thing once or twice gains nothing from the optimising compiler.
        "spark.driver.extraJavaOptions": f"-XX:TieredStopAtLevel=1 {option}",
        prefix: "org.apache.iceberg.spark.SparkCatalog",
        f"{prefix}.type": "jdbc",
        f"{prefix}.uri": f"jdbc:sqlite:{scratch}/catalog.db",
        f"{prefix}.warehouse": (scratch / "warehouse").as_uri(),
        f"{prefix}.jdbc.schema-version": "V1",
        "spark.sql.shuffle.partitions": "2",
    }
    spark = session.start(conf, app="classes", master="local[1]")
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
    """`python -m reconciler.jobs.class_data`: makes the archive. Without one everything works."""
    try:
        sys.stdout.write(f"{make()}\n")
    except (ReconcilerError, OSError) as error:
        sys.stderr.write(f"Spark sessions will start more slowly: {error}\n")
    return EXIT_OK


if __name__ == "__main__":
    sys.exit(main())
