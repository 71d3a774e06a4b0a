"""Housekeeping from the policy to Converged, on a real table."""

from __future__ import annotations

import datetime as dt
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from reconciler.api.choices import EngineType
from reconciler.commit.manifest import ManifestWriter
from reconciler.engines.actions.one_by_one import OneByOneExecutor
from reconciler.engines.commit import cleanup, metadata
from reconciler.errors import VerificationError
from reconciler.loop import reader
from reconciler.loop.local_actor import LocalActor
from reconciler.loop.step import CONVERGED, run_until_converged
from reconciler.state.state import StateStore
from tests.loop.conftest import rows_of
from tests.loop.test_step import EVERYTHING, multiset, never, quiet, step_of
from tests.spark.disturbed import killed_at

LATER = dt.datetime.now(dt.UTC) + dt.timedelta(hours=2)
NONE = {"layout": {"clustering": {"mode": "None"}, "files": {"minInputFiles": 100}}}
EXPIRE = {"expireSnapshots": {"olderThan": "0s", "retainLast": 2}}


@pytest.fixture
def appended(iceberg_catalog):
    """Six appends; the third is tagged."""
    iceberg_catalog.create_namespace_if_not_exists("loop")
    table = iceberg_catalog.create_table("loop.upkeep", schema=rows_of(0, 10).schema)
    for number in range(6):
        table.append(rows_of(number, 10))
        if number == 2:
            table.manage_snapshots().create_tag(
                table.metadata.current_snapshot_id, "release"
            ).commit()
    return table


def test_snapshots_expire_by_the_policy_and_the_table_converges(catalog_config, appended, tmp_path):
    rows, refs = multiset(appended), dict(appended.metadata.refs)
    actor = LocalActor(StateStore(tmp_path / "state"), tmp_path / "cache")
    actor.engine = EngineType.LOCAL
    left = step_of(catalog_config, "upkeep", LATER, **NONE)
    assert left.propose(actor).plan.empty
    step, steps = step_of(catalog_config, "upkeep", LATER, maintenance=EXPIRE, **NONE), []
    done = run_until_converged(step, actor, EVERYTHING, quiet, never, steps.append)
    assert done.state.state == CONVERGED, done.state
    (planned,) = steps[0].before.plan.actions
    assert (planned.action.kind, len(planned.action.snapshots)) == ("ExpireSnapshots", 3)
    assert multiset(appended) == rows
    assert dict(appended.metadata.refs) == refs
    assert len(appended.metadata.snapshots) == 3
    assert appended.scan(snapshot_id=refs["release"].snapshot_id).to_arrow().num_rows == 30
    (entry,) = actor.store.ledger(done.after.observation.uuid)
    assert entry.outcome.detail.startswith("snapshots: 6 -> 3; ")


def test_a_standing_plan_keeps_the_snapshot_that_it_was_made_on(
    catalog_config, make_table, tmp_path
):
    table = make_table("upkeep_needed", files=6, rows=200)
    actor = LocalActor(StateStore(tmp_path / "state"), tmp_path / "cache")
    declared = {"layout": {"clustering": {"mode": "Declared", "keys": ["day"]}}}
    first = step_of(catalog_config, "upkeep_needed", LATER, **declared).propose(actor)
    actor.put_plan(first.plan)
    for number in range(6, 9):
        table.refresh().append(rows_of(number, 200))
    step = step_of(catalog_config, "upkeep_needed", LATER, maintenance=EXPIRE, **NONE)
    (planned,) = step.propose(actor).plan.actions
    assert first.plan.base_snapshot_id not in planned.action.snapshots
    assert len(planned.action.snapshots) == 5


ORPHANS = {"removeOrphans": {"olderThan": "48h"}}
DAYS = {"old.parquet": 3, "young.parquet": 1, "old.txt": 9, "old-m0.avro": 3}


def put(table, name, days):
    """A file that nothing refers to, as many days old."""
    directory = "metadata" if name.endswith(".avro") else "data"
    path = Path("/" + table.location().removeprefix("file:").lstrip("/")) / directory / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x" * 1_000)
    then = LATER.timestamp() - days * 86_400
    os.utime(path, (then, then))
    return path


def test_files_that_nothing_refers_to_are_removed_and_the_table_converges(
    catalog_config, iceberg_catalog, tmp_path
):
    iceberg_catalog.create_namespace_if_not_exists("loop")
    table = iceberg_catalog.create_table("loop.orphans", schema=rows_of(0, 10).schema)
    for number in range(3):
        table.append(rows_of(number, 10))
    rows, head = multiset(table), table.metadata.current_snapshot_id
    for path in Path("/" + table.location().removeprefix("file:").lstrip("/")).rglob("*"):
        os.utime(path, (0, 0))  # what is referred to stays, however old
    made = {name: put(table, name, days) for name, days in DAYS.items()}
    made["attempt"] = put(table, "layout-p-0123456789abcdef0123-1-7/old.parquet", 3)
    actor = LocalActor(StateStore(tmp_path / "state"), tmp_path / "cache")
    actor.engine = EngineType.LOCAL
    step, steps = step_of(catalog_config, "orphans", LATER, maintenance=ORPHANS, **NONE), []
    done = run_until_converged(step, actor, EVERYTHING, quiet, never, steps.append)
    assert done.state.state == CONVERGED, done.state
    (planned,) = steps[0].before.plan.actions
    assert (planned.action.kind, len(planned.action.files)) == ("RemoveOrphans", 2)
    assert (planned.predicted.removed_files, planned.predicted.removed_bytes) == (2, 2_000)
    gone = {name for name, path in made.items() if not path.exists()}
    assert gone == {"old.parquet", "old-m0.avro"}
    table.refresh()
    assert (multiset(table), table.metadata.current_snapshot_id) == (rows, head)
    (entry,) = actor.store.ledger(done.after.observation.uuid)
    assert entry.outcome.detail.startswith("2 files removed")


def test_a_table_without_orphans_is_listed_once_a_day(
    catalog_config, iceberg_catalog, tmp_path, monkeypatch
):
    iceberg_catalog.create_namespace_if_not_exists("loop")
    table = iceberg_catalog.create_table("loop.listed", schema=rows_of(0, 10).schema)
    table.append(rows_of(0, 10))
    actor = LocalActor(StateStore(tmp_path / "state"), tmp_path / "cache")
    listings, honest = [], reader.find_orphans

    def counted(*arguments, **named):
        listings.append(arguments)
        return honest(*arguments, **named)

    monkeypatch.setattr(reader, "find_orphans", counted)

    def planned(hours, **search):
        asked = {"removeOrphans": {**ORPHANS["removeOrphans"], **search}}
        moment = LATER + dt.timedelta(hours=hours)
        step = step_of(catalog_config, "listed", moment, maintenance=asked, **NONE)
        found = step.propose(actor)
        return len(listings), found.advice.upkeep_due_ms, [i.action.kind for i in found.pending]

    def due(hours):
        return int((LATER + dt.timedelta(hours=hours)).timestamp() * 1000)

    assert planned(0) == (1, due(24), [])
    assert planned(23) == (1, due(24), [])
    assert planned(23, prefix="data/x/") == (2, due(47), [])  # another question
    assert planned(46, prefix="data/x/")[0] == 2
    assert planned(48)[0] == 3
    put(table, "old.parquet", 3)
    assert planned(71) == (3, due(72), [])
    assert planned(72) == (4, None, ["RemoveOrphans"])
    assert planned(72)[0] == 5  # as long as there are some


def refused(found):
    (why,) = [it for it in found.advice.rejected if str(it.what) == "remove orphans"]
    return str(why.why)


def test_files_of_a_table_below_stay_and_what_cannot_be_asked_refuses_the_removal(
    catalog_config, iceberg_catalog, tmp_path
):
    iceberg_catalog.create_namespace_if_not_exists("loop")
    table = iceberg_catalog.create_table("loop.outer", schema=rows_of(0, 10).schema)
    table.append(rows_of(0, 10))
    below = f"{table.location()}/data/inner"
    inner = iceberg_catalog.create_table("loop.inner", schema=rows_of(0, 10).schema, location=below)
    inner.append(rows_of(0, 10))
    for path in Path("/" + table.location().removeprefix("file:").lstrip("/")).rglob("*"):
        os.utime(path, (0, 0))
    old = put(table, "old.parquet", 3)
    actor = LocalActor(StateStore(tmp_path / "state"), tmp_path / "cache")
    step = step_of(catalog_config, "outer", LATER, maintenance=ORPHANS, **NONE)
    found = step.propose(actor)
    (planned,) = found.plan.actions
    assert [Path(path).name for path in planned.action.files] == [old.name]
    assert " 2 metadata files " in planned.predicted.reason  # of the table below
    actor.put_plan(found.plan)
    damaged = old.parent / "inner" / "metadata" / "00009-x.metadata.json"
    damaged.write_bytes(b"{")
    again = step.propose(actor)
    assert again.plan.empty and "00009-x.metadata.json" in refused(again)
    damaged.unlink()
    assert step.propose(actor).plan.id == found.plan.id


def test_a_removal_whose_files_are_gone_is_done_and_never_stands_again(
    catalog_config, iceberg_catalog, tmp_path
):
    """Whoever removed them: within the day in which the table is not listed, too."""
    iceberg_catalog.create_namespace_if_not_exists("loop")
    table = iceberg_catalog.create_table("loop.gone", schema=rows_of(0, 10).schema)
    table.append(rows_of(0, 10))
    files = [put(table, name, 3) for name in ("a.parquet", "b-m0.avro")]
    actor = LocalActor(StateStore(tmp_path / "state"), tmp_path / "cache")
    plans = []
    for hours in (0, 0.2, 0.4, 0.6, 12, 25):
        moment = LATER + dt.timedelta(hours=hours)
        found = step_of(catalog_config, "gone", moment, maintenance=ORPHANS, **NONE).propose(actor)
        plans.append([item.action.kind for item in found.pending])
        if found.pending:
            actor.put_plan(found.plan)
        for path in files:
            path.unlink(missing_ok=True)
    assert plans == [["RemoveOrphans"], [], [], [], [], []]


def test_a_removal_of_many_files_of_which_some_are_gone_ends(
    catalog_config, iceberg_catalog, tmp_path
):
    """Somebody removes 5 of 1,005 after they were planned."""
    iceberg_catalog.create_namespace_if_not_exists("loop")
    table = iceberg_catalog.create_table("loop.many", schema=rows_of(0, 10).schema)
    table.append(rows_of(0, 10))
    files = [put(table, f"o{number}.parquet", 3) for number in range(1_005)]
    actor = LocalActor(StateStore(tmp_path / "state"), tmp_path / "cache")
    actor.engine = EngineType.LOCAL
    step = step_of(catalog_config, "many", LATER, maintenance=ORPHANS, **NONE)
    planned = step.propose(actor).plan
    actor.put_plan(planned)
    for path in files[::201]:
        path.unlink()
    steps = []
    done = run_until_converged(step, actor, EVERYTHING, quiet, never, steps.append)
    assert done.state.state == CONVERGED, done.state
    assert steps[0].before.plan.id == planned.id
    assert not any(path.exists() for path in files)
    for hours in (12, 25, 49):
        moment = LATER + dt.timedelta(hours=hours)
        found = step_of(catalog_config, "many", moment, maintenance=ORPHANS, **NONE).propose(actor)
        assert found.plan.empty


@pytest.mark.parametrize(
    ("place", "moment"), [(metadata, "apply"), (cleanup, "discard"), (OneByOneExecutor, "record")]
)
def test_an_expiry_that_was_cut_short_ends(catalog_config, appended, tmp_path, place, moment):
    """Before its commit, before its files are removed, and before it is recorded."""
    rows = multiset(appended)
    actor = LocalActor(StateStore(tmp_path / "state"), tmp_path / "cache")
    actor.engine = EngineType.LOCAL
    step = step_of(catalog_config, "upkeep", LATER, maintenance=EXPIRE, **NONE)
    with killed_at(place, moment):
        run_until_converged(step, actor, EVERYTHING, quiet, never, quiet)
    done = run_until_converged(step, actor, EVERYTHING, quiet, never, quiet)
    assert done.state.state == CONVERGED, done.state
    assert len(appended.refresh().metadata.snapshots) == 3 and multiset(appended) == rows
    assert done.after.plan.empty and step.propose(actor).plan.empty


def test_old_specs_are_removed_once_no_snapshot_uses_them(catalog_config, make_table, tmp_path):
    """LATER is two hours on: the history is then long enough for one hour, not for three."""
    table = make_table("old_specs", files=1, rows=50)
    for transform in ("day", "month"):
        with table.update_spec() as update:
            if transform == "month":
                update.remove_field("date_day")
            update.add_field("date", transform)
    rows = multiset(table)
    actor = LocalActor(StateStore(tmp_path / "state"), tmp_path / "cache")
    actor.engine = EngineType.LOCAL

    def proposed(time: str):
        asked = {"removeSpecs": {"unusedFor": time}}
        return step_of(catalog_config, "old_specs", LATER, maintenance=asked, **NONE)

    assert len(table.refresh().metadata.partition_specs) == 3
    waits = proposed("3h").propose(actor)
    assert waits.plan.empty
    (why,) = [it for it in waits.advice.rejected if str(it.what) == "remove partition specs"]
    assert "3 h" in str(why.why)
    steps = []
    done = run_until_converged(proposed("1h"), actor, EVERYTHING, quiet, never, steps.append)
    assert done.state.state == CONVERGED, done.state
    (planned,) = steps[0].before.plan.actions
    assert planned.action.specs == (1,)  # spec 0 has the file, 2 is the writers' and the newest
    left = table.refresh().metadata.partition_specs
    assert sorted(spec.spec_id for spec in left) == [0, 2]
    assert multiset(table) == rows and done.after.plan.empty


def entries_of(table: Any) -> Counter[str]:
    """The live entries of the head by pyiceberg, with all of their fields."""
    found: Counter[str] = Counter()
    for manifest in table.refresh().current_snapshot().manifests(table.io):
        for one in manifest.fetch_manifest_entry(table.io):
            file = one.data_file
            found[repr((
                one.snapshot_id, one.sequence_number, one.file_sequence_number,
                manifest.partition_spec_id, file.file_path, file.partition, file.record_count,
                sorted((file.lower_bounds or {}).items()),
                sorted((file.upper_bounds or {}).items()),
                sorted(file.column_sizes.items()), sorted(file.null_value_counts.items()),
                file.split_offsets,
            ))] += 1  # fmt: skip
    return found


def many_manifests(iceberg_catalog: Any, name: str) -> Any:
    """A partitioned table of 40 appends, each with a manifest of its own."""
    iceberg_catalog.create_namespace_if_not_exists("loop")
    table = iceberg_catalog.create_table(f"loop.{name}", schema=rows_of(0, 10).schema)
    with table.update_spec() as update:
        update.add_field("id", "bucket[2]")
    for number in range(40):
        table.append(rows_of(number, 10))
    return table


def test_small_manifests_become_few_with_the_same_entries(
    catalog_config: Any, iceberg_catalog: Any, tmp_path: Path
) -> None:
    table = many_manifests(iceberg_catalog, "manifests")
    before, rows = entries_of(table), multiset(table)
    assert len(table.current_snapshot().manifests(table.io)) == 40
    actor = LocalActor(StateStore(tmp_path / "state"), tmp_path / "cache")
    actor.engine = EngineType.LOCAL
    asked, late = {"rewriteManifests": "Auto"}, rows_of(99, 10)

    def beside(event: Any) -> None:
        """Another writer appends right before the commit."""
        if event.phase == "verified" and len(entries_of(table)) == len(before):
            table.refresh().append(late)

    step = step_of(catalog_config, "manifests", LATER, maintenance=asked, **NONE)
    steps: list[Any] = []
    done = run_until_converged(step, actor, EVERYTHING, beside, never, steps.append)
    assert done.state.state == CONVERGED, done.state
    assert steps[0].before.plan.actions[0].action.kind == "RewriteManifests"
    assert before <= entries_of(table)
    assert multiset(table) == rows + Counter(tuple(r.values()) for r in late.to_pylist())
    assert len(table.current_snapshot().manifests(table.io)) <= 3


def test_manifests_that_the_plan_itself_replaces_are_not_lost(
    catalog_config: Any, iceberg_catalog: Any, tmp_path: Path
) -> None:
    table = many_manifests(iceberg_catalog, "manifests_packed")
    rows = multiset(table)
    actor = LocalActor(StateStore(tmp_path / "state"), tmp_path / "cache")
    actor.engine = EngineType.LOCAL
    packed = {"layout": {"clustering": {"mode": "None"}, "files": {"minInputFiles": 30}}}
    asked = {"rewriteManifests": "Auto"}
    step = step_of(catalog_config, "manifests_packed", LATER, maintenance=asked, **packed)
    steps: list[Any] = []
    done = run_until_converged(step, actor, EVERYTHING, quiet, never, steps.append)
    assert done.state.state == CONVERGED, done.state
    kinds = [one.action.kind for one in steps[0].before.plan.actions]
    assert len(kinds) > 1 and kinds[-1] == "RewriteManifests"
    assert all(one.result is None or one.result.done for one in steps)
    assert multiset(table) == rows


def test_manifests_that_would_lose_an_entry_are_not_committed(
    catalog_config: Any, iceberg_catalog: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """pyiceberg reads what our own code wrote: here that leaves out a file."""
    table = many_manifests(iceberg_catalog, "manifests_lost")
    head, honest = table.current_snapshot().snapshot_id, ManifestWriter.put
    seen: list[Any] = []

    def leaves_out(writer: ManifestWriter, entry: Any) -> None:
        seen.append(entry)
        if len(seen) != 17:
            honest(writer, entry)

    monkeypatch.setattr(ManifestWriter, "put", leaves_out)
    actor = LocalActor(StateStore(tmp_path / "state"), tmp_path / "cache")
    actor.engine = EngineType.LOCAL
    asked = {"rewriteManifests": "Auto"}
    step = step_of(catalog_config, "manifests_lost", LATER, maintenance=asked, **NONE)
    before = set(Path(table.location().removeprefix("file://")).rglob("*.avro"))
    with pytest.raises(VerificationError):
        run_until_converged(step, actor, EVERYTHING, quiet, never, quiet)
    assert len(seen) >= 80
    assert table.refresh().current_snapshot().snapshot_id == head
    assert set(Path(table.location().removeprefix("file://")).rglob("*.avro")) == before
