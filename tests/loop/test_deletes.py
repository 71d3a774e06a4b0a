"""Tables with delete files, from the observation to Converged, on real tables.

The rows are those that DuckDB reads in the files that pyiceberg names, by the specification's rule.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Callable
from typing import Any

import pyarrow.parquet as pq
import pytest

from reconciler.loop.gating import Approvals
from reconciler.loop.local_actor import LocalActor
from reconciler.loop.step import CONVERGED, run_step, run_until_converged
from tests.delete_commits import delete_equal, delete_positions
from tests.loop.conftest import rows_of
from tests.loop.test_local_engine import data_files, live_rows
from tests.loop.test_step import EVERYTHING, never, quiet, step_of

LATER = dt.datetime.now(dt.UTC) + dt.timedelta(hours=2)
"""After the quiet period of the deletes that the tests make."""
MINOR = {"deletes": {"compaction": "Minor"}}


def deleted_by_position(table: Any, rests: tuple[int, ...], of: int) -> None:
    """A position delete file for each data file and rest of its days."""
    for path in data_files(table):
        days = pq.read_table(path.removeprefix("file://"), columns=["day"])["day"].to_pylist()
        for rest in rests:
            gone = [at for at, day in enumerate(days) if day % of == rest]
            delete_positions(table.refresh(), path, gone)


def delete_files(table: Any) -> Counter[int]:
    """How many delete files of each content the head has."""
    table.refresh()
    entries = (
        entry
        for manifest in table.current_snapshot().manifests(table.io)
        for entry in manifest.fetch_manifest_entry(table.io)
    )
    return Counter(int(one.data_file.content) for one in entries if int(one.data_file.content))


def kinds(steps: list[Any]) -> set[str]:
    return {item.action.kind for step in steps for item in step.before.plan.actions}


def test_a_table_with_many_deleted_rows_drops_them_and_converges(
    catalog_config: Any, make_table: Callable[..., Any], actor: LocalActor
) -> None:
    table = make_table("deleted", files=6, rows=2_000)
    deleted_by_position(table, (0, 1, 2), 7)
    rows, steps = live_rows(table), list[Any]()
    step = step_of(catalog_config, "deleted", now=LATER)
    done = run_until_converged(step, actor, EVERYTHING, quiet, never, steps.append)
    assert done.state.state == CONVERGED, done.state
    assert live_rows(table) == rows
    assert "ApplyDeletes" in kinds(steps)
    assert done.after.observation.files.records.sum() == sum(rows.values())


def test_many_position_deletes_become_one_for_each_data_file(
    catalog_config: Any, make_table: Callable[..., Any], actor: LocalActor
) -> None:
    table = make_table("local_compacted", files=2, rows=2_000)
    deleted_by_position(table, tuple(range(12)), 400)
    rows, before, steps = live_rows(table), set(data_files(table)), list[Any]()
    step = step_of(catalog_config, "local_compacted", now=LATER, **MINOR)
    run_until_converged(step, actor, EVERYTHING, quiet, never, steps.append)
    assert "CompactDeletes" in kinds(steps)
    assert live_rows(table) == rows
    assert (set(data_files(table)), delete_files(table)) == (before, {1: 2})


def test_equality_deletes_become_positions(
    catalog_config: Any, make_table: Callable[..., Any], actor: LocalActor
) -> None:
    """Rows that come back under a deleted key after the delete stay."""
    table = make_table("local_converted", files=3, rows=2_000)
    for first in range(0, 6_000, 500):
        delete_equal(table.refresh(), "id", list(range(first, first + 20)))
    table.refresh().append(rows_of(0, 30))  # ids 0 to 29, of which 20 were deleted
    rows, before, steps = live_rows(table), set(data_files(table)), list[Any]()
    assert sum(rows.values()) == 6_000 - 12 * 20 + 30
    step = step_of(catalog_config, "local_converted", now=LATER, **MINOR)
    run_until_converged(step, actor, EVERYTHING, quiet, never, steps.append)
    assert "ConvertDeletes" in kinds(steps)
    assert live_rows(table) == rows
    assert set(data_files(table)) == before
    assert set(delete_files(table)) == {1}


@pytest.mark.parametrize("phase", ["start", "verified"])
def test_a_delete_that_arrives_during_a_conversion_stays(
    catalog_config: Any, make_table: Callable[..., Any], actor: LocalActor, phase: str
) -> None:
    table = make_table(f"local_converting_{phase}", files=3, rows=2_000)
    for first in range(0, 6_000, 500):
        delete_equal(table.refresh(), "id", list(range(first, first + 20)))
    step = step_of(catalog_config, f"local_converting_{phase}", now=LATER, **MINOR)
    expected: list[Counter[Any]] = []

    def disturb(event: Any) -> None:
        if event.phase == phase and not expected:
            delete_equal(table.refresh(), "id", [100, 3_100])
            delete_positions(table.refresh(), data_files(table)[0], [3, 4])
            table.refresh().append(rows_of(9, 50))
            expected.append(live_rows(table))

    run_until_converged(step, actor, EVERYTHING, disturb, never, quiet)
    assert expected
    assert live_rows(table) == expected[0]


def test_a_conversion_waits_on_a_branch_until_a_person_publishes_it(
    catalog_config: Any, make_table: Callable[..., Any], actor: LocalActor
) -> None:
    """An append comes meanwhile; the deletes are then committed to main as they were verified."""
    table = make_table("local_waiting", files=3, rows=2_000)
    for first in range(0, 6_000, 500):
        delete_equal(table.refresh(), "id", list(range(first, first + 20)))
    candidate = {"branch": "candidate", "approval": "Required"}
    step = step_of(catalog_config, "local_waiting", now=LATER, safety=candidate, **MINOR)
    held = run_step(step, actor, EVERYTHING, quiet, never)
    assert held.result is not None
    assert held.result.waiting >= 1
    assert [item.action.kind for item in held.after.pending] == ["Publish"]
    table.refresh().append(rows_of(0, 30))
    rows = live_rows(table)
    plan = step.propose(actor).plan
    done = run_step(step, actor, Approvals(plan.id), quiet, never)
    assert done.result is not None and done.result.done
    assert live_rows(table) == rows
    assert set(delete_files(table)) == {1}
    assert set(table.refresh().metadata.refs) == {"main"}
