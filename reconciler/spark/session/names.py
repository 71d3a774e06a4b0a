"""What names mean in the JVM, kept: py4j asks for each part of a name whenever it is used.

A package is what no class is found for: the JVM looks for one in every jar of Spark and, as a name
without a known package may be that of an imported class, in eight packages as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

PACKAGES = (
    "java.lang.invoke",
    "java.lang.management",
    "java.net",
    "java.nio",
    "java.util.concurrent",
    "java.util.function",
    "java.util.regex",
    "java.util.stream",
    "org.apache.hadoop.fs",
    "org.apache.iceberg.catalog",
    "org.apache.iceberg.data",
    "org.apache.iceberg.deletes",
    "org.apache.iceberg.expressions",
    "org.apache.iceberg.io",
    "org.apache.iceberg.parquet",
    "org.apache.iceberg.relocated.com.google.common.collect",
    "org.apache.iceberg.types",
    "org.apache.iceberg.util",
    "py4j.reflection",
)
"""Packages that every session uses, and py4j itself."""
OF_SPARK = (
    "org.apache.iceberg.spark",
    "org.apache.spark.network.util",
    "org.apache.spark.sql.catalyst",
)
"""Packages that are used where Spark runs."""
CLASSES = (
    "PythonUtils",
    "org.apache.spark.SparkThrowableHelper",
    "org.apache.spark.sql.Observation",
    "org.apache.spark.sql.api.python.PythonSQLUtils",
    "org.apache.spark.sql.catalyst.trees.PySparkCurrentOrigin",
    "org.apache.spark.sql.classic.SparkSession",
    "org.apache.spark.sql.classic.SparkSession$",
    "org.apache.spark.sql.expressions.Window",
    "org.apache.spark.sql.functions",
    "org.apache.spark.sql.internal.SQLConf",
    "org.apache.spark.sql.types.Metadata",
    "org.apache.spark.util.Utils",
)
"""Classes that PySpark asks for by these names, for each column or error."""


def remember(jvm: Any, packages: Sequence[str], classes: Sequence[str] = ()) -> None:
    """Look the names up once."""
    for name in packages:
        at = jvm
        for part in name.split("."):
            setattr(at, part, found := getattr(at, part))
            at = found
    for name in classes:
        setattr(jvm, name, getattr(jvm, name))
