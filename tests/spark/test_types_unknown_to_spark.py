"""Tables with times of day and nanoseconds, which Spark cannot read, are kept like all others."""

from __future__ import annotations

import json
import os

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from reconciler.engines.commit import commit
from reconciler.errors import UnsupportedError
from reconciler.plan.actions.base import Action
from reconciler.plan.actions.delete_maintenance import ConvertDeletes
from reconciler.plan.actions.expire_snapshots import ExpireSnapshots
from reconciler.plan.actions.remove_orphans import RemoveOrphans
from reconciler.plan.actions.rewrite import Cluster
from reconciler.plan.actions.rewrite_manifests import RewriteManifests
from reconciler.plan.ordering import Lexicographic
from reconciler.spark.session import iceberg
from reconciler.table.schema import SortColumn
from tests.spark.disturbed import killed_at
from tests.spark.equality import add_equality_delete, on_disk
from tests.spark.tables import Bench

pytestmark = pytest.mark.spark

FILES, ROWS = 6, 20
MINUTE_US, NOON_NS, HOUR_NS = 60_000_000, 1_700_000_000_123_456_789, 3_600_000_000_000
DAY_MS = 86_400_000
SHIFTS, SHIFT = {2: "time", 3: "timestamp_ns"}, 21_600_000_000
"""Type of the column that partitions, and its only value."""
ARROW = {"long": pa.int64(), "time": pa.time64("us"), "timestamp_ns": pa.timestamp("ns"),
         "timestamptz_ns": pa.timestamp("ns", tz="UTC")}  # fmt: skip

Stored = tuple[int, int, int | None]
"""Id, microseconds of the day, nanoseconds since 1970."""


def _model(version: int) -> set[Stored]:
    return {
        (n, n * 37 % 1_440 * MINUTE_US + n, NOON_NS + n * 1_001 if version == 3 else None)
        for n in range(FILES * ROWS)
    }


def _columns(version: int) -> dict[str, str]:
    columns = {"id": "long", "at": "time", "shift": SHIFTS[version]}
    if version == 3:
        columns |= {"moment": "timestamp_ns", "zoned": "timestamptz_ns"}
    return columns


def _place(version: int) -> tuple[int, ...]:
    """The partition of all rows."""
    return (SHIFT, NOON_NS // HOUR_NS) if version == 3 else (SHIFT,)


def _create(bench: Bench, version: int, codec: str = "zstd") -> str:
    """An empty table, whose partitions have values of such a type."""
    core = bench.spark._jvm.org.apache.iceberg
    name = f"unknown_{version}_{codec}"
    fields = [
        {"id": number, "name": column, "required": False, "type": kind}
        for number, (column, kind) in enumerate(_columns(version).items(), start=1)
    ]
    body = {"type": "struct", "schema-id": 0, "fields": fields}
    schema = core.SchemaParser.fromJson(json.dumps(body))
    spec = core.PartitionSpec.builderFor(schema).identity("shift")
    if version == 3:
        spec = spec.hour("moment")
    given = bench.spark._jvm.java.util.HashMap()
    given.put("format-version", str(version))
    given.put("write.parquet.compression-codec", codec)
    given.put("commit.manifest-merge.enabled", "false")
    session = bench.spark._jsparkSession
    catalog = core.spark.Spark3Util.loadIcebergCatalog(session, bench.config.name)
    named = core.catalog.TableIdentifier.parse(f"jobs.{name}")
    catalog.createTable(named, schema, spec.build(), given)
    return name


def _fill(bench: Bench, name: str, version: int) -> None:
    """One file and commit for each sixth of the model, written by Arrow."""
    table, core = bench.table(name), bench.spark._jvm.org.apache.iceberg
    rows, kinds = sorted(_model(version)), _columns(version)
    partition = core.PartitionData(table.spec().partitionType())
    for number, value in enumerate(_place(version)):
        partition.set(number, value)
    for number in range(FILES):
        some = [(row[0], row[1], SHIFT, row[2], row[2]) for row in rows[number::FILES]]
        arrays = [
            pa.array([row[at] for row in some], pa.int64()).cast(ARROW[kind])
            for at, kind in enumerate(kinds.values())
        ]
        schema = pa.schema([
            pa.field(column, values.type, metadata={"PARQUET:field_id": str(field_id)})
            for field_id, (column, values) in enumerate(zip(kinds, arrays, strict=True), start=1)
        ])  # fmt: skip
        path = bench.directory / name / f"{number}.parquet"
        path.parent.mkdir(exist_ok=True)
        pq.write_table(pa.table(arrays, schema=schema), path)
        metrics = core.parquet.ParquetUtil.fileMetrics(
            table.io().newInputFile(f"file:{path}"), core.MetricsConfig.getDefault()
        )
        file = core.DataFiles.builder(table.spec()).withPath(f"file:{path}").withFormat("PARQUET")
        file = file.withFileSizeInBytes(path.stat().st_size).withMetrics(metrics)
        table.newAppend().appendFile(file.withPartition(partition).build()).commit()


def _paths(bench: Bench, name: str) -> tuple[str, ...]:
    tasks = iceberg.each(bench.table(name).newScan().planFiles())
    return tuple(sorted(str(task.file().location()) for task in tasks))


def _rows(bench: Bench, name: str, version: int) -> set[Stored]:
    """What DuckDB reads of the live data files, of which no row is twice; moments in a zone are as
    those in none, by Arrow, which has all of their digits."""
    files = [path.removeprefix("file:") for path in _paths(bench, name)]
    read = f"read_parquet({files}, hive_partitioning=false) r"
    moment = "epoch_ns(moment)" if version == 3 else "NULL"
    query = f"SELECT id, epoch_us(r.at), {moment} FROM {read}"
    found = [(row[0], row[1], row[2]) for row in duckdb.sql(query).fetchall()]
    for path in files if version == 3 else ():
        held = pq.read_table(on_disk(path))
        assert held["zoned"].cast(pa.int64()).equals(held["moment"].cast(pa.int64()))
    assert len(set(found)) == len(found)
    return set(found)


def _live_ids(bench: Bench, name: str) -> set[int]:
    """What Iceberg's own library reads, deletes applied."""
    read = bench.spark._jvm.org.apache.iceberg.data.IcebergGenerics.read(bench.table(name))
    return {int(row.getField("id")) for row in iceberg.each(read.build())}


def _clustered(inputs: tuple[str, ...], version: int) -> Cluster:
    by_time = Lexicographic((SortColumn(2, "asc"),))
    return Cluster(inputs=inputs, partition=_place(version), ordering=by_time)


def _run(bench: Bench, name: str, action: Action, plan: str) -> None:
    result = bench.run(bench.request(name, action, plan=plan))
    assert result.done, (result, bench.events[-1])


@pytest.mark.parametrize("version", [2, 3])
def test_such_a_table_is_rewritten_cleaned_and_maintained(bench: Bench, version: int) -> None:
    name = _create(bench, version)
    _fill(bench, name, version)
    model, before = _model(version), _paths(bench, name)
    request = bench.request(name, _clustered(before, version))
    with killed_at(commit, "send"):
        bench.run(request)
    assert _paths(bench, name) == before, "it was killed between write and commit"
    root = on_disk(bench.table(name).location())
    assert list(root.glob("data/**/layout-*/**/*.parquet"))
    assert bench.run(request).done
    after = _paths(bench, name)
    assert set(after).isdisjoint(before) and _rows(bench, name, version) == model
    left = set(root.glob("data/**/layout-*/**/*.parquet"))
    assert left == set(map(on_disk, after)), "what the killed run wrote is gone"
    assert bench.ledger.open_intents(request.table_uuid) == ()

    if version == 2:
        return
    gone = sorted(model)[3:50:7]
    keys = {"zoned": pa.array([row[2] for row in gone], pa.timestamp("ns", tz="UTC"))}
    delete = add_equality_delete(bench, name, keys, like=after[0])
    ids = {row[0] for row in model - set(gone)}
    assert _live_ids(bench, name) == ids
    _run(bench, name, ConvertDeletes(inputs=(delete,), partition=_place(version)), "p-2")
    assert _live_ids(bench, name) == ids

    table = bench.table(name)
    listed = iceberg.each(table.currentSnapshot().dataManifests(table.io()))
    _run(bench, name, RewriteManifests(tuple(sorted(str(m.path()) for m in listed)), 1), "p-3")
    old = [int(one.snapshotId()) for one in iceberg.each(bench.table(name).snapshots())][:-1]
    _run(bench, name, ExpireSnapshots(tuple(sorted(old)), 0, 1), "p-4")
    orphan = root / "data" / "orphan.parquet"
    orphan.write_bytes(b"x")
    kept = list(map(on_disk, after))
    for path in (orphan, *kept):
        os.utime(path, (0, 0))
    planned = tuple(f"file:{path}" for path in (orphan, *kept))
    _run(bench, name, RemoveOrphans(planned, 2 * DAY_MS), "p-5")
    assert not orphan.exists() and _live_ids(bench, name) == ids
    assert _rows(bench, name, version) == model, "data files are as they were"


def test_what_only_spark_could_write_is_refused(bench: Bench) -> None:
    name = _create(bench, 2, codec="lz4")
    _fill(bench, name, 2)
    before = _paths(bench, name)
    with pytest.raises(UnsupportedError, match=r": at \(time\)"):
        bench.run(bench.request(name, _clustered(before, 2)))
    assert _paths(bench, name) == before
