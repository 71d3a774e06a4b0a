"""Copies rows of a table into another table by Spark, leaf by leaf of a tree of cuts.

A whole copy gives each leaf files of its own, whatever its size. Appended rows become a few files,
sorted by leaf. Spark only writes files. The commit names the metadata that was judged, so that a
table that somebody else makes under the name meanwhile is never written to.
"""

from __future__ import annotations

import contextlib
import json
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, cast

from reconciler.engines.backend import Copied, CopyWork
from reconciler.engines.commit.cleanup import discard
from reconciler.engines.manifests import Tasks
from reconciler.engines.table import Table
from reconciler.spark.commit.metadata_changes import JavaMetadataChange
from reconciler.spark.commit.table import JavaTable, java_of, load
from reconciler.spark.fallback import leaf_text, stage
from reconciler.spark.schedule import scan
from reconciler.spark.schedule.scan import ScanTasks
from reconciler.spark.session import iceberg, translate
from reconciler.table.cut_tree import Tree
from reconciler.table.numbers import FILE_BYTES
from reconciler.table.replica import OF

LEAF = "__layout_leaf"
ROOMY = 2
"""Bytes at which a file of one leaf ends, per byte of the target: most leaves are less."""
GENERATION = "spark.sql.codegen.wholeStage"
"""The JVM does not compile the method that whole-stage generation makes of a tree of hundreds of
leaves, and interprets it, which takes five times as long."""
REQUIRED = ("required", "element-required", "value-required")
"""What the JSON of a schema says of a field that has no NULL."""


class JavaCopies:
    """Copies of a table by Spark (`engines.backend.Copies`). name: the other table's qualified
    name."""

    def __init__(self, spark: Any, name: str) -> None:
        self.spark, self.name = spark, name

    def found(self) -> JavaTable | None:
        try:
            return load(self.spark, self.name)
        except Exception as error:
            if translate.is_missing_table(error):
                return None
            raise

    def create(self, source: Table, properties: Mapping[str, str]) -> JavaTable | None:
        catalog, *inner = iceberg.levels(self.name)
        schema = _plain_schema(self.spark, java_of(source))
        try:
            made = self.spark.create(catalog, inner, schema, properties)
        except Exception as error:
            if translate.is_taken_name(error):
                return None
            raise
        return JavaTable(self.spark, self.name, made)

    def write_all(
        self,
        source: Table,
        made: Table,
        tasks: Tasks,
        properties: Mapping[str, str],
        work: CopyWork,
    ) -> Copied:
        from pyspark.sql import functions as f

        def spread(rows: Any, inner: list[Any]) -> Any:
            found = rows.repartitionById(work.tree.leaves, f.col(LEAF))
            return found.sortWithinPartitions(LEAF, *inner)

        own = {**properties, FILE_BYTES: str(ROOMY * work.target_bytes)}
        draft = _replacing(self.spark, java_of(source), made, own)
        wanted = cast(ScanTasks, tasks).java_tasks(list(tasks))
        return self._written(source, draft, wanted, spread, work)

    def write_appended(
        self, source: Table, made: Table, between: tuple[int, int], files: int, work: CopyWork
    ) -> Copied:
        def spread(rows: Any, inner: list[Any]) -> Any:
            return rows.repartitionByRange(files, LEAF).sortWithinPartitions(LEAF, *inner)

        first, last = between
        wanted = java_of(source).newIncrementalAppendScan()
        tasks = scan.planned(self.spark, wanted.fromSnapshotExclusive(first).toSnapshot(last))
        return self._written(source, _Draft(self.spark, made), tasks, spread, work)

    def _written(
        self,
        source: Table,
        draft: _Draft,
        tasks: Any,
        spread: Callable[[Any, list[Any]], Any],
        work: CopyWork,
    ) -> Copied:
        """Write the rows of the tasks (java.util.List) as Spark spreads them, and commit them."""
        if tasks.isEmpty():  # which Spark does not stage
            return draft.sent([])
        spark, java, name = self.spark, java_of(source), f"layoutctl-copy-{uuid.uuid4()}"
        changes = {"write.distribution-mode": "none"}
        staged = stage.overridden(spark, draft.java, changes)
        with (
            stage.staged(spark, java, f"{name}/in", tasks),
            stage.rewriting(spark, staged, f"{name}/out") as new_files,
            _running(spark, work.name, f"layoutctl replica {self.name}"),
        ):
            try:
                rows, inner = _with_leaf(stage.read(spark, f"{name}/in"), java, work.tree)
                stage.write(
                    spread(rows, inner).drop(LEAF), f"{name}/out", draft.spec_id,
                    ROOMY * work.target_bytes,
                )  # fmt: skip
            except BaseException:
                with contextlib.suppress(Exception):
                    discard(draft.made, [str(file.location()) for file in new_files()])
                raise
            return draft.sent(new_files())

    def every_task(self, source: Table, snapshot_id: int) -> ScanTasks:
        return scan.every_task(self.spark, java_of(source), snapshot_id)

    def held_bytes(self, made: Table) -> int:
        files = stage.metadata_table(self.spark, java_of(made), "ALL_FILES")
        distinct = files.select("file_path", "file_size_in_bytes").distinct()
        (row,) = distinct.groupBy().sum("file_size_in_bytes").collect()
        return int(row[0] or 0)

    def empty(self, made: Table) -> Copied:
        return _replacing(self.spark, java_of(made), made, {}).sent([])

    def expire(self, made: Table, snapshots: Collection[int]) -> None:
        """The time of an expiry of Iceberg's own is the epoch, so that no snapshot goes by the
        table's default age. Ages of branches and tags still count."""
        if snapshots:
            expiry = java_of(made).expireSnapshots().expireOlderThan(0)
            for one in snapshots:
                expiry = expiry.expireSnapshotId(one)
            expiry.commit()
        made.refresh()


class _Draft:
    """A commit of rows to a table, on its metadata as it is now. start: the
    org.apache.iceberg.TableMetadata that has none of them, None for its own."""

    def __init__(self, spark: Any, made: Table, start: Any = None) -> None:
        operations = java_of(made).operations()
        self.made, self._spark, self._base = made, spark, operations.current()
        transactions = spark._jvm.org.apache.iceberg.Transactions
        if start is None:
            self._all = transactions.newTransaction(made.shown, operations)
        else:
            self._all = transactions.replaceTableTransaction(made.shown, operations, start)
        self.java = self._all.table()

    @property
    def spec_id(self) -> int:
        return int(self.java.spec().specId())

    def sent(self, files: Collection[Any]) -> Copied:
        """Commit these data files in a snapshot, also where there are none. They are deleted if the
        commit cannot arrive."""
        append = self._all.newFastAppend()
        for file in files:
            append.appendFile(file)
        append.set(OF, str(self._base.properties().get(OF)))
        append.commit()
        snapshot, wanted = self.java.currentSnapshot(), self.java.operations().current()
        answer = JavaMetadataChange(self.made, self._base, wanted, {}, {}).send()
        if answer.cannot_arrive:
            self._discard(files, snapshot)
        return Copied(answer, int(snapshot.snapshotId()))

    def _discard(self, files: Collection[Any], snapshot: Any) -> None:
        """Delete what only the refused snapshot needs."""
        paths = [str(file.location()) for file in files]
        for one in iceberg.each(snapshot.allManifests(self.java.io())):
            if int(one.snapshotId()) == int(snapshot.snapshotId()):
                paths.append(str(one.path()))
        with contextlib.suppress(Exception):
            discard(self.made, [*paths, str(snapshot.manifestListLocation())])


def _replacing(spark: Any, source: Any, made: Table, properties: Mapping[str, str]) -> _Draft:
    """Return a commit that replaces all rows, under the columns of the source. The UUID and the
    history stay, as in Iceberg's own replacement of a table."""
    core, own = spark._jvm.org.apache.iceberg, spark._jvm.java.util.HashMap()
    for name, value in properties.items():
        own.put(name, value)
    base = java_of(made).operations().current()
    start = base.buildReplacement(
        _plain_schema(spark, source), core.PartitionSpec.unpartitioned(),
        core.SortOrder.unsorted(), base.location(), own,
    )  # fmt: skip
    return _Draft(spark, made, start)


def _plain_schema(spark: Any, table: Any) -> Any:
    """Return the columns of a table as Spark would write them to a new one: any may be NULL, and
    none has a default value."""
    body = _plain(iceberg.schema_document(spark, table.schema()))
    body.pop("identifier-field-ids", None)
    return spark._jvm.org.apache.iceberg.SchemaParser.fromJson(json.dumps(body))


def _plain(part: Any) -> Any:
    if isinstance(part, list):
        return [_plain(one) for one in part]
    if not isinstance(part, dict):
        return part
    kept = {key: _plain(value) for key, value in part.items() if key not in stage.DEFAULTS}
    return {**kept, **{key: False for key in REQUIRED if key in kept}}


def _with_leaf(rows: Any, source: Any, tree: Tree) -> tuple[Any, list[Any]]:
    """Return the columns of the source, without the lineage of rows, with the number of their leaf,
    and what rows of a leaf are sorted by."""
    from pyspark.sql import functions as f

    columns = _columns(source, tree)
    own = [
        f.col(iceberg.quoted(str(one.name()))) for one in iceberg.each(source.schema().columns())
    ]
    leaf = f.expr(leaf_text.leaf_text(tree, columns)).alias(LEAF)
    inner = [f.expr(one) for one in leaf_text.inner_texts(tree, columns, LEAF)]
    return rows.select(*own, leaf), inner


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
