"""Another writer replaces files and expires the snapshots that held them, while a rewrite works.

The files are gone from the storage, and the table is healthy: that is a conflict, not damage.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reconciler.engines.schedule import write
from reconciler.errors import TableDamagedError, VerificationError
from reconciler.plan.actions.rewrite import Cluster
from reconciler.plan.actions.state import Validity
from reconciler.plan.execution import Event
from tests.spark.tables import Bench

pytestmark = pytest.mark.spark

COPY_ON_WRITE = "'format-version'='2', 'write.delete.mode'='copy-on-write'"
MERGE_ON_READ = (
    "'format-version'='2', 'write.delete.mode'='merge-on-read', 'write.delete.granularity'='file'"
)
FILES = 4


def _table(bench: Bench, properties: str = COPY_ON_WRITE) -> str:
    """File k holds the ids k, k + 4, ...: every file covers the whole range."""
    name = bench.create("id bigint, s string", properties)
    for number in range(FILES):
        bench.sql(
            f"INSERT INTO {bench.full(name)} SELECT /*+ COALESCE(1) */ id * {FILES} + {number}, "
            "'x' FROM range(50)"
        )
    return name


def _expire(bench: Bench, name: str) -> None:
    bench.sql(
        f"CALL rec.system.expire_snapshots(table => 'jobs.{name}', "
        "older_than => TIMESTAMP '2100-01-01 00:00:00', retain_last => 1)"
    )


def _local(location: str) -> Path:
    return Path(re.sub(r"^file:/*", "/", location))


def _at(phase: str, *acts: Callable[[], object]) -> Callable[[Event], None]:
    """Acts at the first event of the phase."""
    left = list(acts)

    def on_event(event: Event) -> None:
        while event.phase == phase and left:
            left.pop(0)()

    return on_event


@pytest.mark.parametrize("phase", ["start", "verified", "commit"])
def test_an_input_that_was_replaced_and_expired_is_a_conflict(bench: Bench, phase: str) -> None:
    name = _table(bench)
    request = bench.request(name, bench.action(name, Cluster, "id"))
    delete = f"DELETE FROM {bench.full(name)} WHERE id = 5"
    result = bench.run(request, _at(phase, lambda: bench.sql(delete), lambda: _expire(bench, name)))
    assert (result.commits, result.conflicts) == (0, 1)
    assert result.actions[0].state is Validity.LOST
    ids = bench.ids(name)
    assert ids == [i for i in range(FILES * 50) if i != 5]
    assert bench.leftovers(name) == []
    assert bench.ledger.open_intents(request.table_uuid) == ()


def test_delete_files_that_were_merged_and_expired_are_a_conflict(bench: Bench) -> None:
    """The data files stay live; only the delete files that the rewrite was to apply are gone."""
    name = _table(bench, MERGE_ON_READ)
    for gone in (4, 8):
        bench.sql(f"DELETE FROM {bench.full(name)} WHERE id = {gone}")
    request = bench.request(name, bench.action(name, Cluster, "id"))
    merge = (
        f"CALL rec.system.rewrite_position_delete_files(table => 'jobs.{name}', "
        "options => map('rewrite-all', 'true'))"
    )
    result = bench.run(
        request, _at("start", lambda: bench.sql(merge), lambda: _expire(bench, name))
    )
    assert (result.commits, result.conflicts) == (0, 1)
    assert sum(bench.rows(name).values()) == FILES * 50 - 2
    assert bench.leftovers(name) == []


@pytest.mark.parametrize(
    "harm", [Path.unlink, lambda path: path.write_bytes(b"PAR1")], ids=["gone", "altered"]
)
def test_an_output_that_is_gone_or_altered_before_its_commit_is_not_damage_of_the_table(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, harm: Callable[[Path], object]
) -> None:
    name = _table(bench)
    request = bench.request(name, bench.action(name, Cluster, "id"))
    honest, before = write.read_back, bench.rows(name)

    def read_back(*given: Any) -> Any:
        for file in given[2]:
            path = _local(file.path)
            path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
            harm(path)
        return honest(*given)

    monkeypatch.setattr(write, "read_back", read_back)
    with pytest.raises(VerificationError) as raised:
        bench.run(request)
    text = raised.value.render()
    assert "restore" not in text
    assert "orphan" in text
    assert bench.rows(name) == before
    assert bench.leftovers(name) == []
    assert bench.ledger.open_intents(request.table_uuid) == ()


def test_a_file_that_the_head_still_needs_is_damage_and_is_named(bench: Bench) -> None:
    name = _table(bench)
    request = bench.request(name, bench.action(name, Cluster, "id"))
    lost = _local(request.actions[0].inputs[1])
    with pytest.raises(TableDamagedError) as raised:
        bench.run(request, _at("start", lost.unlink))
    assert lost.name in raised.value.what
    assert bench.leftovers(name) == []
    assert bench.ledger.open_intents(request.table_uuid) == ()
