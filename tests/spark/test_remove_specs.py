"""Unused partition specs: none goes that a snapshot, a writer or the next spec's id needs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from reconciler.engines.commit import metadata
from reconciler.plan.actions.remove_specs import RemoveSpecs
from reconciler.plan.actions.state import Validity
from reconciler.spark.commit.metadata_changes import RemovedSpecs
from tests.gateway import LATE, TWICE, Gateway
from tests.spark.tables import Bench, intact

pytestmark = pytest.mark.spark

REMOVES = "remove-partition-specs"
"""Stands in the request of every such commit."""


def evolved(bench: Bench) -> str:
    """Specs 0 (bucket) and 1 (truncate) without a file in any snapshot, and 2, which has all."""
    name = bench.create("id BIGINT", partitioned="bucket(2, id)")
    full = bench.full(name)
    bench.sql(f"INSERT INTO {full} SELECT id FROM RANGE(0, 40, 1, 1)")
    bench.sql(f"ALTER TABLE {full} REPLACE PARTITION FIELD bucket(2, id) WITH truncate(20, id)")
    bench.sql(f"ALTER TABLE {full} REPLACE PARTITION FIELD truncate(20, id) WITH bucket(4, id)")
    bench.sql(f"INSERT OVERWRITE {full} SELECT id FROM RANGE(0, 40, 1, 1)")
    bench.sql(f"DELETE FROM {full} WHERE id % 4 = 1")  # the manifest of spec 0 leaves the head
    bench.table(name).newFastAppend().commit()
    bench.expire(name)
    return name


def specs_of(bench: Bench, name: str) -> set[int]:
    return set(bench.live(name).facts().metadata.specs)


def write_under(bench: Bench, name: str, spec: int) -> None:
    """Append as a writer does that planned by an older spec."""
    rows = bench.spark.range(500, 501).toDF("id")
    rows.writeTo(bench.full(name)).option("output-spec-id", str(spec)).append()


def remove(bench: Bench, name: str, *specs: int) -> Any:
    return bench.run(bench.request(name, RemoveSpecs(specs)))


def test_unused_specs_go_and_the_next_one_gets_a_new_id(bench: Bench) -> None:
    name = evolved(bench)
    rows = bench.rows(name)
    result = remove(bench, name, 0, 1)
    assert result.done
    assert result.outcomes[0].detail == "partition specs: 0, 1, 2 -> 2"
    assert specs_of(bench, name) == {2} and bench.rows(name) == rows
    intact(bench, name, rows)
    assert remove(bench, name, 0, 1).outcomes == ()
    bench.sql(f"ALTER TABLE {bench.full(name)} ADD PARTITION FIELD truncate(5, id)")
    write_under(bench, name, 3)
    assert specs_of(bench, name) == {2, 3}
    assert sum(bench.rows(name).values()) == sum(rows.values()) + 1


def test_the_newest_spec_stays_and_so_does_the_writers(bench: Bench) -> None:
    name = evolved(bench)
    full = bench.full(name)
    bench.sql(f"ALTER TABLE {full} REPLACE PARTITION FIELD bucket(4, id) WITH bucket(2, id)")
    bench.sql(f"INSERT OVERWRITE {full} SELECT id FROM RANGE(0, 40, 1, 1)")
    bench.table(name).newFastAppend().commit()
    bench.expire(name)
    assert int(bench.table(name).spec().specId()) == 0
    for spec in (2, 0):
        result = remove(bench, name, 1, spec)
        assert result.actions[0].state is Validity.LOST
        assert f"spec {spec} " in result.actions[0].detail
    assert specs_of(bench, name) == {0, 1, 2}
    assert remove(bench, name, 1).done and specs_of(bench, name) == {0, 2}


def test_a_spec_that_any_snapshot_has_files_of_stays(bench: Bench) -> None:
    name = evolved(bench)
    full = bench.full(name)
    write_under(bench, name, 1)
    bench.sql(f"ALTER TABLE {full} CREATE TAG release")
    bench.sql(f"INSERT OVERWRITE {full} SELECT id FROM RANGE(0, 40, 1, 1)")
    bench.table(name).newFastAppend().commit()
    bench.expire(name)
    assert {row.spec_id for row in bench.files(name)} == {2}
    result = remove(bench, name, 0, 1)
    assert result.actions[0].state is Validity.LOST
    assert result.actions[0].detail.endswith("spec 1")
    assert specs_of(bench, name) == {0, 1, 2}
    assert len(bench.sql(f"SELECT * FROM {full} VERSION AS OF 'release'")) == 31


@pytest.mark.parametrize("served", ["bench", "gateway_bench"])
def test_a_writer_that_slips_in_before_the_commit_keeps_its_spec(
    request: pytest.FixtureRequest, served: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench: Bench = request.getfixturevalue(served)
    name, original, slipped = evolved(bench), RemovedSpecs.changed, []

    def changed(self: Any, base: Any, action: RemoveSpecs) -> Any:
        wanted = original(self, base, action)
        if not slipped:
            slipped.append(action)
            write_under(bench, name, 1)
        return wanted

    monkeypatch.setattr(RemovedSpecs, "changed", changed)
    result = remove(bench, name, 0, 1)
    assert slipped and result.actions[0].state is Validity.LOST
    assert specs_of(bench, name) == {0, 1, 2}
    assert bench.rows(name)["Row(id=500)"] == 1


@pytest.mark.rest
@pytest.mark.parametrize("fault", [TWICE, LATE])
def test_a_request_that_is_answered_wrongly_removes_them_once(
    gateway_bench: Bench, gateway: Gateway, fault: str
) -> None:
    bench = gateway_bench
    name = evolved(bench)
    rows = bench.rows(name)
    gateway.fails(fault, REMOVES)
    result = remove(bench, name, 0, 1)
    if fault == LATE:
        gateway.release()
    assert gateway.faults == 1 and result.done and len(result.outcomes) == 1
    assert specs_of(bench, name) == {2}
    intact(bench, name, rows)


@pytest.mark.rest
def test_a_request_that_arrives_after_a_writer_is_refused(
    gateway_bench: Bench, gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The catalog delivers our request late; meanwhile the spec is used again."""
    bench = gateway_bench
    name = evolved(bench)
    clock = SimpleNamespace(sleep=lambda seconds: write_under(bench, name, 0))
    monkeypatch.setattr(metadata, "time", clock)
    gateway.fails(LATE, REMOVES)
    result = remove(bench, name, 0, 1)
    gateway.release()
    assert result.actions[0].state is Validity.LOST
    assert specs_of(bench, name) == {0, 1, 2}
    assert bench.rows(name)["Row(id=500)"] == 1
