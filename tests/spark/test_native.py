"""The engine's files beside those that Spark writes: entries, executors, and what falls back."""

from __future__ import annotations

import hashlib
import itertools
import json
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from reconciler.catalog.observe import observe_table
from reconciler.engines.schedule import described, native
from reconciler.engines.schedule.refused import DamagedInputError
from reconciler.plan.actions.rewrite import BinPack, Cluster
from reconciler.plan.ordering import Hilbert
from reconciler.spark.schedule import tasks, witness_work
from reconciler.table.refusals import DAMAGED
from tests.spark.equality import add_equality_delete
from tests.spark.tables import Bench

pytestmark = pytest.mark.spark

TYPES = (
    "id bigint, b boolean, i int, f float, d double, dec decimal(9,2), wide decimal(38,4), "
    "day date, at timestamp, local timestamp_ntz, s string, bin binary, "
    "st struct<x:double,y:string>, l array<int>, m map<string,bigint>, empty string, "
    "place double"
)
ROWS = """
  SELECT id, id % 2 = 0, cast(id AS int) - 40, if(id % 9 = 0, float('NaN'), float(id)),
    CASE WHEN id % 5 = 0 THEN NULL WHEN id % 7 = 0 THEN double('NaN') ELSE -0.5d END,
    cast(id / 3 AS decimal(9,2)), cast(id * 1e20 AS decimal(38,4)),
    date_add(date'1960-01-01', cast(id * 31 AS int)), timestamp_seconds(id * 86400 - 1000000000),
    cast(timestamp_seconds(id) AS timestamp_ntz),
    if(id = 3, repeat('z', 5000), concat('name-', id, '-of-a-long-text-\\u00e9')),
    cast(repeat(char(id + 1), 20) AS binary),
    if(id % 4 = 0, NULL, named_struct('x', if(id % 8 = 1, double('NaN'), id), 'y', string(id))),
    array(cast(id AS int), NULL), map('k', id), CAST(NULL AS string), double('NaN')
  FROM range(0, 60, 1, 1)
"""


def _entry(bench: Bench, name: str) -> dict[str, Any]:
    table = bench.table(name)
    core = bench.spark._jvm.org.apache.iceberg
    task = table.newScan().includeColumnStats().planFiles().iterator().next()
    body = json.loads(str(core.ContentFileParser.toJson(task.file(), task.spec())))
    for own in ("file-path", "file-size-in-bytes", "column-sizes", "split-offsets"):
        body.pop(own, None)
    flat: dict[Any, Any] = {}
    for part, found in body.items():
        if isinstance(found, dict):
            pairs = zip(found["keys"], found["values"], strict=True)
            flat |= {(part, key): value for key, value in pairs}
        else:
            flat[part] = found
    return flat


@pytest.mark.parametrize("mode", ["truncate(16)", "full", "counts"])
def test_entries_are_those_of_iceberg_s_own_writer(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    properties = f"'write.metadata.metrics.default'='{mode}', 'format-version'='2'"
    found = []
    for by_spark in (False, True):
        name = bench.create(TYPES, properties, partitioned="b, place")
        bench.sql(f"INSERT INTO {bench.full(name)} {ROWS.replace('id % 2 = 0', 'true')}")
        bench.sql(f"ALTER TABLE {bench.full(name)} WRITE ORDERED BY i")
        before = bench.rows(name)
        with monkeypatch.context() as patch:
            if by_spark:
                patch.setattr(
                    native, "planned", lambda *_: native.Unplanned("a test asks for Spark")
                )
            assert bench.run(bench.request(name, bench.action(name, Cluster, "i"))).done
        assert bench.rows(name) == before
        found.append(_entry(bench, name))
    assert {
        key: pair
        for key in found[0] | found[1]
        if len(set(pair := tuple(str(one.get(key)) for one in found))) > 1
    } == {}


def test_a_task_on_an_executor(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Python process of Spark's rewrites and compares, as in a cluster."""
    monkeypatch.setattr(tasks, "by_driver", lambda spark, opening: False)
    monkeypatch.setattr(witness_work, "by_driver", lambda master, size, opening: False)
    calls, honest = [], described._described
    monkeypatch.setattr(described, "_described", lambda *of: (calls.append(of), honest(*of))[1])
    name = bench.create("id bigint, s string", "'format-version'='3', "
                        "'write.delete.mode'='merge-on-read'")  # fmt: skip
    bench.fill(name, 2, 50, "file * 50 + n, string(n)")
    bench.sql(f"DELETE FROM {bench.full(name)} WHERE id % 10 = 3")
    add_equality_delete(bench, name, {"s": pa.array(["7", None], pa.string())})
    lineage = f"SELECT *, _row_id, _last_updated_sequence_number FROM {bench.full(name)}"
    before = sorted(map(str, bench.sql(lineage)))
    assert bench.run(bench.request(name, bench.action(name, Cluster, "id desc"))).done
    assert sorted(map(str, bench.sql(lineage))) == before
    (file,) = bench.files(name)
    written = pq.read_table(file.file_path.removeprefix("file:"))["id"].to_pylist()
    assert written == sorted(written, reverse=True) and len(written) == 88
    assert len(calls) == 1, "engine and witness share what is asked of the table"
    assert bench.leftovers(name) == []


@pytest.mark.parametrize("key", [(), ("s",), ("a", "s")])
def test_what_the_engine_cannot_write_is_written_by_spark(
    bench: Bench, key: tuple[str, ...]
) -> None:
    name = bench.create("a bigint, s string", "'write.parquet.compression-codec'='lz4'")
    bench.fill(name, 4, 3_000, "pmod(xxhash64(file, n), 97), if(n % 9 = 0, NULL, sha(string(n)))")
    before = bench.queried(name)
    size = bench.size(name)
    kind = Cluster if key else BinPack
    more = {"curve": Hilbert} if len(key) > 1 else {}
    action = bench.action(name, kind, *key, target_bytes=size // 3, **more)
    assert bench.run(bench.request(name, action)).done
    assert bench.queried(name) == before
    assert any(event.text.endswith("lz4") for event in bench.events if event.phase == "verified")
    files = [file.file_path.removeprefix("file:") for file in bench.files(name)]
    assert len(files) in (2, 3)
    if len(key) == 1:
        firsts = sorted((min(v), max(v)) for v in map(_texts, files))
        assert all(one[1] <= other[0] for one, other in itertools.pairwise(firsts))
    if len(key) > 1:
        spans = [(pq.read_table(f)["a"].to_pylist(), _texts(f)) for f in files]
        assert all(len(set(a)) < 97 or max(t) - min(t) < 200 for a, t in spans)


@pytest.mark.parametrize("codec", ["avro", "orc"])
def test_delete_files_that_the_witness_reads_by_the_engine_s_reader_are_left_to_spark(
    bench: Bench, codec: str
) -> None:
    name = bench.create(
        "id bigint, s string",
        f"'write.delete.mode'='merge-on-read', 'write.delete.format.default'='{codec}'",
    )
    bench.fill(name, 1, 50, "n, string(n)")
    bench.sql(f"DELETE FROM {bench.full(name)} WHERE id % 7 = 3")
    before = bench.rows(name)
    seen = observe_table(bench.config, ("jobs", name), bench.directory / "cache")
    assert seen.delete_files.other_format.tolist() == [True], "the plan can say it"
    assert bench.run(bench.request(name, bench.action(name, Cluster, "s"))).done
    assert bench.rows(name) == before and before.total() == 43
    (event,) = [event for event in bench.events if event.phase == "verified"]
    assert "ORC" in event.text


def test_bloom_filters_are_written(bench: Bench) -> None:
    asked = "write.parquet.bloom-filter-enabled.column"
    name = bench.create("a bigint, s string", f"'{asked}.s'='true', '{asked}.a'='false'")
    bench.fill(name, 2, 300, "n, sha(string(n))")
    assert bench.run(bench.request(name, bench.action(name, Cluster, "a"))).done
    (file,) = bench.files(name)
    filters = "SELECT bloom_filter_excludes FROM parquet_bloom_probe(?, 's', ?)"
    path, held = file.file_path.removeprefix("file:"), hashlib.sha1(b"7").hexdigest()
    found = [duckdb.execute(filters, [path, text]).fetchall() for text in (held, "no such text")]
    assert found == [[(False,)], [(True,)]]
    assert duckdb.execute(filters.replace("'s'", "'a'"), [path, "77777"]).fetchall() == [(False,)]


def _texts(path: str) -> list[int]:
    return [int(v[:2], 16) if v else -1 for v in pq.read_table(path)["s"].to_pylist()]


def test_a_damaged_page_is_recorded(bench: Bench) -> None:
    """Its file is named with the column, and no plan takes it again before it has changed."""
    name = bench.create("a bigint, s string", "'write.parquet.compression-codec'='uncompressed'")
    bench.fill(name, 2, 50, "n, concat('text of row ', string(n))")
    before = bench.files(name)
    path = Path(before[1].file_path.removeprefix("file:"))
    path.write_bytes(path.read_bytes().replace(b"text of row 7", b"text of r0w 7", 1))
    request = bench.request(name, bench.action(name, Cluster, "a"))
    with pytest.raises(DamagedInputError) as caught:
        bench.run(request)
    (refusal,) = bench.ledger.refused[request.table_uuid]
    assert (refusal.path, refusal.reason, refusal.column) == (before[1].file_path, DAMAGED, "s")
    assert refusal.changed_ms == path.stat().st_mtime_ns // 1_000_000
    assert "CRC" in str(caught.value.said) and "CRC" not in refusal.detail
    assert bench.files(name) == before and bench.leftovers(name) == []
