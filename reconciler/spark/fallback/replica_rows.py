"""Copies rows of a table into another table by Spark, leaf by leaf of a tree of cuts.

A whole copy gives each leaf files of its own, whatever its size. Appended rows become a few files,
sorted by leaf.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

from reconciler.spark.commit.table import JavaTable, load
from reconciler.spark.fallback import leaf_text, stage
from reconciler.spark.schedule import scan
from reconciler.spark.schedule.scan import ScanTasks
from reconciler.spark.session import iceberg, translate
from reconciler.table.cut_tree import Tree

LEAF = "__layout_leaf"
TARGET_SIZE = "write.target-file-size-bytes"
ROOMY = 2
"""Bytes at which a file of one leaf ends, per byte of the target: most leaves are less."""
GENERATION = "spark.sql.codegen.wholeStage"
"""The JVM does not compile the method that whole-stage generation makes of a tree of hundreds of
leaves, and interprets it, which takes five times as long."""


class JavaCopies:
    """Copies of a table by Spark (`engines.backend.Copies`). source, name: qualified names."""

    def __init__(self, spark: Any, source: str, name: str) -> None:
        self.spark, self.source, self.name = spark, source, name

    def found(self) -> JavaTable | None:
        try:
            return load(self.spark, self.name)
        except Exception as error:
            if translate.is_missing_table(error):
                return None
            raise

    def write_all(
        self, tree: Tree, target_bytes: int, properties: Mapping[str, str], name: str
    ) -> None:
        from pyspark.sql import functions as f

        spark = self.spark
        spark.sql(f"REFRESH TABLE {self.source}")
        rows, inner = _with_leaf(spark, spark.table(self.source), self.source, tree)
        spread = rows.repartitionById(tree.leaves, f.col(LEAF))
        writer = spread.sortWithinPartitions(LEAF, *inner).drop(LEAF).writeTo(self.name)
        own = {
            **properties,
            TARGET_SIZE: str(ROOMY * target_bytes),
            "write.distribution-mode": "none",
        }
        writer = writer.using("iceberg")
        for key, value in own.items():
            writer = writer.tableProperty(key, value)
        with _running(spark, name, f"layoutctl replica {self.name}"):
            writer.createOrReplace()

    def write_appended(self, tree: Tree, between: tuple[int, int], files: int, name: str) -> None:
        spark = self.spark
        spark.sql(f"REFRESH TABLE {self.source}")
        spark.sql(f"REFRESH TABLE {self.name}")
        first, last = between
        reader = spark.read.option("start-snapshot-id", first).option("end-snapshot-id", last)
        rows, inner = _with_leaf(spark, reader.table(self.source), self.source, tree)
        ordered = rows.repartitionByRange(files, LEAF).sortWithinPartitions(LEAF, *inner)
        with _running(spark, name, f"layoutctl replica {self.name}"):
            ordered.drop(LEAF).writeTo(self.name).append()

    def every_task(self, snapshot_id: int) -> ScanTasks:
        return scan.every_task(self.spark, iceberg.load(self.spark, self.source), snapshot_id)

    def held_bytes(self) -> int:
        files = stage.metadata_table(self.spark, iceberg.load(self.spark, self.name), "ALL_FILES")
        distinct = files.select("file_path", "file_size_in_bytes").distinct()
        (row,) = distinct.groupBy().sum("file_size_in_bytes").collect()
        return int(row[0] or 0)

    def empty(self) -> None:
        table = iceberg.load(self.spark, self.name)
        every = self.spark._jvm.org.apache.iceberg.expressions.Expressions.alwaysTrue()
        table.newDelete().deleteFromRowFilter(every).commit()
        self.expire(-1)

    def expire(self, younger_ms: int) -> None:
        table = iceberg.load(self.spark, self.name)
        old = int(table.currentSnapshot().timestampMillis()) - younger_ms
        table.expireSnapshots().expireOlderThan(old).retainLast(1).commit()


def _with_leaf(spark: Any, rows: Any, source: str, tree: Tree) -> tuple[Any, list[Any]]:
    """Return the rows with the number of their leaf, and what those of a leaf are sorted by."""
    from pyspark.sql import functions as f

    columns = _columns(iceberg.load(spark, source), tree)
    leaf = f.expr(leaf_text.leaf_text(tree, columns)).alias(LEAF)
    inner = [f.expr(one) for one in leaf_text.inner_texts(tree, columns, LEAF)]
    return rows.select("*", leaf), inner


def _columns(table: Any, tree: Tree) -> dict[int, tuple[str, str]]:
    """Return SQL and type of the columns of a tree, by field id."""
    schema = table.schema()
    return {
        field: (
            leaf_text.sql_of(str(schema.findColumnName(field)).split(".")),
            str(schema.findType(field)),
        )
        for field in tree.columns
    }


@contextlib.contextmanager
def _running(spark: Any, group: str, text: str) -> Iterator[None]:
    """Give Spark's jobs a group and a description, and switch whole-stage generation off; see
    GENERATION."""
    before = spark.conf.get(GENERATION)
    spark.conf.set(GENERATION, "false")
    spark.sparkContext.setJobGroup(group, text)
    try:
        yield
    finally:
        spark.sparkContext._jsc.clearJobGroup()
        spark.conf.set(GENERATION, before)
