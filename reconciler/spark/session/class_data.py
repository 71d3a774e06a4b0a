"""Makes the archive of classes that sessions start from: runs one that works like a rewrite."""

from __future__ import annotations

import os
import shlex
import sys
import tempfile
from pathlib import Path
from typing import Any

from reconciler.engines.engine_errors import translated
from reconciler.errors import EXIT_OK, EXIT_USER, ReconcilerError, UnavailableError
from reconciler.spark.session import class_archive, runtime, session, translate
from reconciler.spark.session.settings import CATALOG_PREFIX

CATALOG = "archive"


def make() -> Path:
    """Make the archive of this Java and this Spark, unless it exists; return its path.

    Raises ReconcilerError if no session starts or Java makes no archive, OSError if Spark's
    directory is not writable.
    """
    found = class_archive.archive()
    if found is not None:
        return found
    home = runtime.spark_home()
    with tempfile.TemporaryDirectory(dir=home, prefix=f".{class_archive.PREFIX}") as scratch:
        made = Path(scratch) / "made.jsa"
        with translated(translate, "load Spark's classes"):
            _load_classes(Path(scratch), f"-XX:ArchiveClassesAtExit={shlex.quote(str(made))}")
        if not made.is_file():
            raise UnavailableError(
                "Java made no archive of Spark's classes",
                details=("It makes none with files in a directory of the class path.",),
                do=f"leave it, or move away {home}/conf or what SPARK_CONF_DIR names",
            )
        with made.open("rb") as written:
            os.fsync(written.fileno())
        for stale in home.glob(f"{class_archive.of_java()}-*.jsa"):
            stale.unlink(missing_ok=True)
        # The size is part of the name: a JVM that maps a truncated archive crashes.
        path = home / f"{class_archive.stem()}-{made.stat().st_size}.jsa"
        made.replace(path)
    return path


def _load_classes(scratch: Path, option: str) -> None:
    """Run a session that does what a rewrite does, so that its JVM has loaded those classes."""
    prefix = f"{CATALOG_PREFIX}{CATALOG}"
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
    observed = Observation("rows")
    read = spark.table(table)
    read.observe(
        observed, f.count(f.lit(1)), f.max(f.xxhash64(*read.columns))
    ).sortWithinPartitions("day", f.col("s").desc()).writeTo(table).overwrite(f.lit(True))
    read.repartition(2, "day").join(read.groupBy("day").agg(f.avg("v")), "day").orderBy(
        "id"
    ).collect()


def main() -> int:
    """`python -m reconciler.spark.session.class_data`: make the archive. It is optional."""
    try:
        sys.stdout.write(f"{make()}\n")
        return EXIT_OK
    except ReconcilerError as error:
        note, code = error.render(), error.exit_code
    except OSError as error:
        note, code = f"error: {error}", EXIT_USER
    sys.stderr.write(f"{note}\nSpark sessions start more slowly; nothing else is missing.\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
