"""Work that is done, whoever did it, or that became impossible, ends: no kind of action is planned
or tried for ever."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from reconciler.catalog.observe import observe_table
from reconciler.catalog.orphans import find_orphans
from reconciler.errors import EXIT_BLOCKED, EXIT_USER, ReconcilerError
from reconciler.plan.actions.base import Action
from reconciler.plan.actions.bin_pack import BinPack
from reconciler.plan.actions.cluster import Cluster
from reconciler.plan.actions.expire_snapshots import ExpireSnapshots
from reconciler.plan.actions.remove_orphans import RemoveOrphans
from reconciler.plan.actions.rewrite_manifests import RewriteManifests
from reconciler.plan.actions.set_properties import SetProperties
from reconciler.plan.actions.state import Validity
from reconciler.plan.actions.upgrade_format import UpgradeFormat
from reconciler.plan.execution import ExecutionRequest, ExecutionResult
from reconciler.plan.plan import Plan, freeze
from reconciler.plan.prediction import Prediction
from reconciler.plan.standing import head_of, judge
from reconciler.spark import iceberg
from reconciler.table.orphans import Search
from tests.spark.disturbed import killed_at
from tests.spark.equality import on_disk
from tests.spark.ledger import FileLedger
from tests.spark.tables import Bench
from tests.spark.test_kills import DAY_MS, _manifests, _orphans, _snapshots

pytestmark = pytest.mark.spark

CODEC = "write.metadata.compression-codec"
NOW = dt.datetime.now(dt.UTC)
Made = tuple[str, Action]


def _packed(bench: Bench) -> Made:
    name = bench.create("id bigint", "'format-version'='2'")
    bench.fill(name, 3, 5, "n")
    return name, bench.action(name, BinPack, target_bytes=1 << 20)


def _sorted(bench: Bench) -> Made:
    name = bench.create("id bigint", "'format-version'='2'")
    bench.fill(name, 3, 5, "n * 3 + file")
    return name, bench.action(name, Cluster, "id")


def _removal(bench: Bench) -> Made:
    """Of the files as a search names them."""
    name, _ = _orphans(bench)
    found = _found(bench, name)
    assert len(found) == 2
    return name, RemoveOrphans(tuple(sorted(found)), 2 * DAY_MS)


def _found(bench: Bench, name: str) -> frozenset[str]:
    where = bench.config, ("jobs", name), bench.directory / "cache"
    orphans = find_orphans(*where, Search(2 * DAY_MS), int(NOW.timestamp() * 1000))
    return frozenset(file.path for file in orphans.files)


def _upgrade(bench: Bench) -> Made:
    name = bench.create("id bigint", "'format-version'='2'")
    bench.append(name, {"id": [1]})
    return name, UpgradeFormat(2, 3)


def _properties(bench: Bench) -> Made:
    name = bench.create("id bigint")
    bench.append(name, {"id": [1]})
    return name, SetProperties(((CODEC, None),), ((CODEC, "gzip"),))


MADE: dict[type[Action], Callable[[Bench], Made]] = {
    BinPack: _packed,
    Cluster: _sorted,
    RewriteManifests: _manifests,
    ExpireSnapshots: _snapshots,
    RemoveOrphans: _removal,
    UpgradeFormat: _upgrade,
    SetProperties: _properties,
}


def _planned(bench: Bench, name: str, action: Action) -> tuple[Plan, ExecutionRequest]:
    seen = observe_table(bench.config, ("jobs", name), bench.directory / "cache")
    plan = freeze(
        catalog=bench.config.name, table=("jobs", name), table_uuid=seen.uuid, policy_digest="d",
        policy="p", base_snapshot_id=seen.snapshot_id, created=NOW,
        time_to_live=dt.timedelta(days=7), actions=[(action, Prediction(label="x"))],
        files=seen.files, evidence={},
    )  # fmt: skip
    request = bench.request(name, action, plan=plan.id)
    return plan, replace(request, action_ids=(plan.actions[0].id,))


def _stands(bench: Bench, name: str, plan: Plan) -> bool:
    """Whether a planner still takes the plan for one that has something to do."""
    seen = observe_table(bench.config, ("jobs", name), bench.directory / "cache")
    metadata = replace(seen.metadata, orphans=_found(bench, name))
    found = judge(plan, head_of(replace(seen, metadata=metadata)), NOW)
    pending = any(one.validity is Validity.PENDING for one in found.states.values())
    return found.fallen is None and pending


def _by_somebody(bench: Bench, name: str, action: Action, request: ExecutionRequest) -> None:
    """Another machine, with a ledger of its own, does the same under another plan."""
    own, bench.ledger = bench.ledger, FileLedger(bench.directory / "other.db")
    try:
        assert bench.run(replace(request, plan_id="p-other")).done
    finally:
        bench.ledger = own


def _partly(bench: Bench, name: str, action: Action, request: ExecutionRequest) -> None:
    if isinstance(action, RemoveOrphans):
        Path("/" + action.files[0].removeprefix("file:").lstrip("/")).unlink()
    elif isinstance(action, ExpireSnapshots):
        first = ExpireSnapshots(action.snapshots[:1], 0, 1)
        assert bench.run(bench.request(name, first, plan="p-other")).done
    elif action.inputs and not isinstance(action, RewriteManifests):
        some = action.on(action.inputs[:2])
        assert bench.run(bench.request(name, some, plan="p-other")).done
    else:
        pytest.skip("it is done as a whole")


def _impossible(bench: Bench, name: str, action: Action, request: ExecutionRequest) -> None:
    """Everything that the action is about is gone."""
    full = bench.full(name)
    bench.sql(f"INSERT OVERWRITE {full} SELECT 1000")
    bench.expire(name)
    for path in on_disk(bench.table(name).location()).rglob("o?.parquet"):
        path.unlink()
    if isinstance(action, SetProperties):
        bench.sql(f"ALTER TABLE {full} SET TBLPROPERTIES ('{CODEC}'='none')")


def _killed_before(bench: Bench, name: str, action: Action, request: ExecutionRequest) -> None:
    with killed_at(iceberg, "ancestors_until"):
        bench.run(request)


def _killed_after(bench: Bench, name: str, action: Action, request: ExecutionRequest) -> None:
    with killed_at(bench.ledger, "record_outcomes"):
        bench.run(request)


SITUATIONS = (_by_somebody, _partly, _impossible, _killed_before, _killed_after)


@pytest.mark.parametrize("situation", SITUATIONS, ids=lambda it: it.__name__[1:])
@pytest.mark.parametrize("kind", MADE, ids=lambda it: it.kind)
def test_work_that_is_done_or_impossible_ends(
    bench: Bench, kind: type[Action], situation: Callable[..., None]
) -> None:
    name, action = MADE[kind](bench)
    plan, request = _planned(bench, name, action)
    assert _stands(bench, name, plan)
    situation(bench, name, action, request)
    ended: ExecutionResult | ReconcilerError
    try:
        ended = bench.run(request)
    except ReconcilerError as error:
        assert error.exit_code in (EXIT_USER, EXIT_BLOCKED), error
        ended = error
    assert not _stands(bench, name, plan), ended
    if situation in (_killed_before, _killed_after):
        assert isinstance(ended, ExecutionResult) and ended.done
    assert bench.leftovers(name) == [] and bench.ledger.open_intents(plan.table_uuid) == ()
