"""A table as Iceberg's Java library has it (`engines.table.Table`)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, cast

from reconciler.engines import engine_errors, table
from reconciler.engines.schedule.attempt import Attempt
from reconciler.plan.actions.base import Action
from reconciler.spark.commit import metadata_changes
from reconciler.spark.commit.history import JavaHistory
from reconciler.spark.commit.java_commit import JavaCommit, begun
from reconciler.spark.commit.query import JavaRows, asked
from reconciler.spark.commit.reading import JavaManifests
from reconciler.spark.commit.storage import JavaStorage
from reconciler.spark.session import iceberg, translate
from reconciler.table.retention import MAIN


class JavaTable(JavaHistory, JavaStorage, JavaManifests):
    """A table of a catalog, as executors ask it."""

    errors: engine_errors.Errors = translate

    def __init__(self, spark: Any, name: str, java: Any) -> None:
        """name: the qualified name in Spark SQL. java: the org.apache.iceberg.Table."""
        self.spark, self.name, self.java = spark, name, java
        self.shown = str(java.name())

    def fresh(self) -> JavaTable:
        return load(self.spark, self.name)

    def begin(self, operation: Any, branch: str = MAIN) -> JavaCommit:
        return begun(self, operation, branch)

    def change(self, action: Action) -> metadata_changes.JavaMetadataChange:
        return metadata_changes.asked_by(self, action)

    def without(
        self, heads: Mapping[str, int | None], snapshots: Collection[int]
    ) -> metadata_changes.JavaMetadataChange:
        return metadata_changes.without(self, heads, snapshots)

    def with_statistics(
        self, snapshot_id: int, document: Mapping[str, Any]
    ) -> metadata_changes.JavaMetadataChange:
        return metadata_changes.with_statistics(self, snapshot_id, document)

    def keep_on_branch(self, branch: str, snapshots: int) -> None:
        self.java.manageSnapshots().setMinSnapshotsToKeep(branch, snapshots).commit()

    def query(self, text: str, versions: Mapping[str, int]) -> JavaRows:
        return asked(self, text, versions)


def load(spark: Any, name: str) -> JavaTable:
    """Return the table of a qualified name, loaded anew from its catalog."""
    return JavaTable(spark, name, iceberg.load(spark, name))


def spark_of(attempt: Attempt) -> Any:
    """Return the session of an attempt of this engine."""
    return java_session(attempt.table)


def java_session(table: table.Table) -> Any:
    """Return the session of a table of this engine."""
    return cast(JavaTable, table).spark


def java_of(table: table.Table) -> Any:
    """Return the org.apache.iceberg.Table of a table of this engine."""
    return cast(JavaTable, table).java


def catalog_of(table: table.Table) -> str:
    """Return the name in Spark of the table's catalog."""
    return iceberg.levels(table.name)[0]
