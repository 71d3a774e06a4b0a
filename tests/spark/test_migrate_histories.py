"""The law for migrations: whatever other writers commit while files move, the move changes no row.

Writers act after the rows were read, and within the commit loop: before the first attempt, and
between it and the next. What readers see directly after the last of them is what they see at the
end, whether the files moved or not.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

from reconciler.engines.commit import commit
from reconciler.plan.actions.migrate import Migrate
from reconciler.plan.actions.partition_specs import AddSpec
from reconciler.plan.execution import Event
from reconciler.table.schema import SpecField
from tests.spark.equality import add_equality_delete, upsert
from tests.spark.tables import Bench

pytestmark = pytest.mark.spark

ID, K = 1, 2
DAYS, BUCKETS = SpecField(K, "truncate[2]"), SpecField(ID, "bucket[2]")
ACTS = st.tuples(
    st.sampled_from(
        ["append", "equality old", "equality new", "equality all", "position", "merge", "upsert"]
    ),
    st.integers(0, 7),
)


@st.composite
def scenes(draw: st.DrawFn) -> dict[str, Any]:
    """At least one writer, of which some come between two attempts of one commit."""
    return {
        "version": draw(st.sampled_from([2, 3])),
        "merges": draw(st.sampled_from(["copy-on-write", "merge-on-read"])),
        "target": draw(st.sampled_from([(DAYS,), (BUCKETS,), (BUCKETS, DAYS), ()])),
        "verified": draw(st.lists(ACTS, max_size=1)),
        "first": draw(st.lists(ACTS, max_size=2)),
        "second": draw(st.lists(ACTS, max_size=1)),
    }


def scene(**acts: Any) -> dict[str, Any]:
    quiet = {"version": 2, "merges": "copy-on-write", "target": (BUCKETS,)}
    return quiet | {"verified": [], "first": [], "second": []} | acts


@pytest.mark.parametrize("tried", [2, pytest.param(60, marks=pytest.mark.soak)])
def test_no_row_is_lost_or_comes_back(bench: Bench, tried: int) -> None:
    @example(scene(verified=[("equality old", 1)]))
    @example(scene(first=[("equality old", 2)]))
    @example(scene(first=[("append", 1)], second=[("equality old", 3)]))
    @example(scene(first=[("upsert", 2)], second=[("merge", 5)]))
    @example(
        scene(version=3, merges="merge-on-read", verified=[("merge", 1)], first=[("upsert", 1)])
    )
    @example(scene(version=3, target=(), first=[("equality old", 0)]))
    @settings(
        max_examples=tried, deadline=None, phases=(Phase.explicit, Phase.generate),
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(scenes())
    def holds(drawn: dict[str, Any]) -> None:
        _assert_kept(bench, drawn)

    holds()


def _assert_kept(bench: Bench, drawn: dict[str, Any]) -> None:
    name = bench.create(
        "id BIGINT, k INT",
        f"'format-version'='{drawn['version']}', 'write.delete.mode'='merge-on-read', "
        f"'write.merge.mode'='{drawn['merges']}', 'commit.retry.min-wait-ms'='1'",
        "truncate(4, k)",
    )
    bench.sql(f"INSERT INTO {bench.full(name)} SELECT id, cast(id % 8 AS INT) FROM RANGE(0, 64)")
    old = _file_of_small_k(bench, name)
    actions = (
        AddSpec(1, drawn["target"], 0),
        bench.action(name, Migrate, output_spec_id=1, fields=drawn["target"], target_bytes=1 << 20),
    )
    seen: list[Counter[str]] = [bench.rows(name)]

    def act(doing: tuple[str, int]) -> None:
        what, number = doing
        full, key = bench.full(name), {"id": pa.array([number, number + 8])}
        if what == "append":
            bench.sql(f"INSERT INTO {full} VALUES ({1_000 + number}, {number})")
        elif what == "position":
            bench.sql(f"DELETE FROM {full} WHERE id = {number + 16}")
        elif what == "merge":
            bench.sql(
                f"MERGE INTO {full} t USING (SELECT id, cast(id % 8 AS INT) AS k FROM "
                f"RANGE({number}, {number + 2}) UNION ALL SELECT {3_000 + number}, {number}) s "
                "ON t.id = s.id WHEN MATCHED THEN UPDATE SET k = (s.k + 1) % 8 "
                "WHEN NOT MATCHED THEN INSERT *"
            )
        elif what == "upsert":
            _upsert(bench, name, number % 4, drawn["version"])
        elif what == "equality old":
            add_equality_delete(bench, name, key, like=old)
        elif what == "equality new":
            _under_the_new_spec(bench, name, key)
        else:
            _of_all(bench, name, key)
        seen.append(bench.rows(name))

    left = list(drawn["verified"])

    def on_event(event: Event) -> None:
        while event.phase == "verified" and left:
            act(left.pop())

    honest, calls = commit.Guard.allows, []

    def validate(guard: commit.Guard, snapshots: Any) -> bool:
        """Others commit after our checks have passed: Iceberg tries again, with the checks."""
        verdict = honest(guard, snapshots)
        calls.append(verdict)
        for doing in drawn["first"] if len(calls) == 1 else drawn["second"][: len(calls) == 2]:
            act(doing)
        return verdict

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(commit.Guard, "allows", validate)
        bench.run(bench.request(name, *actions, plan=f"p-{name}"), on_event)
    assert calls
    assert bench.rows(name) == seen[-1]


def _file_of_small_k(bench: Bench, name: str) -> str:
    """Return a data file of the partition of k below 4, in which every other act finds rows."""
    files = bench.sql(
        f"SELECT file_path FROM {bench.full(name)}.files WHERE content = 0 AND "
        "partition.k_trunc = 0"
    )
    return str(files[0].file_path)


def _under_the_new_spec(bench: Bench, name: str, key: dict[str, Any]) -> None:
    """Delete in a partition of the target spec, as a writer does that has been switched already."""
    table = bench.table(name)
    spec = table.specs().get(1)
    if not spec.isPartitioned():
        _of_all(bench, name, key)
        return
    full = bench.full(name)
    core = bench.spark._jvm.org.apache.iceberg
    builder = core.TableMetadata.buildFrom(table.operations().current())
    changed = builder.setDefaultPartitionSpec(1).build()
    table.operations().commit(table.operations().current(), changed)
    bench.sql(f"INSERT INTO {full} VALUES (2000, 3)")
    like = bench.sql(f"SELECT file_path FROM {full}.files WHERE spec_id = 1 AND content = 0")
    add_equality_delete(bench, name, key, like=like[-1].file_path)


def _upsert(bench: Bench, name: str, number: int, version: int) -> None:
    """Replace the row with this key, and a new one twice, as a checkpoint of Flink that still
    follows the old spec does."""
    keys = pa.array([number, 4_000 + number, 4_000 + number])
    columns = {"id": keys, "k": pa.array([number] * 3, pa.int32())}
    upsert(bench, name, columns, ["id", "k"], 0, "k_trunc=0", positions=version < 3)


def _of_all(bench: Bench, name: str, key: dict[str, Any]) -> None:
    """Delete everywhere: an equality delete of an unpartitioned spec."""
    table = bench.table(name)
    specs = {int(n): spec for n, spec in dict(table.specs()).items()}
    plain = [n for n, spec in specs.items() if not spec.isPartitioned()]
    if not plain:
        core = bench.spark._jvm.org.apache.iceberg
        current = table.operations().current()
        spec = core.PartitionSpec.unpartitioned()
        table.operations().commit(current, current.addPartitionSpec(spec))
        plain = [
            int(n) for n, s in dict(bench.table(name).specs()).items() if not s.isPartitioned()
        ]
    add_equality_delete(bench, name, key, spec_id=plain[0])
