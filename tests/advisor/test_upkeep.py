"""Housekeeping is planned where the policy asks for it, and once it is due."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from reconciler.advisor.advice import Advice, AdviceInput, Migration, Settings
from reconciler.advisor.decide import decide
from reconciler.plan import reasons
from reconciler.plan.actions import action_from_canonical
from reconciler.plan.actions.expire_snapshots import ExpireSnapshots
from reconciler.plan.actions.remove_orphans import RemoveOrphans
from reconciler.plan.actions.remove_specs import RemoveSpecs
from reconciler.plan.actions.rewrite_manifests import RewriteManifests
from reconciler.plan.actions.state import Facts, Validity
from reconciler.table.deletes import NO_DELETE_FILES
from reconciler.table.manifests import ManifestTable, manifest_table
from reconciler.table.metadata import TableMetadata
from reconciler.table.orphans import Listed, Orphans, Search
from reconciler.table.retention import BRANCH, MAIN, Ref, Retention, Snapshot, SnapshotLog
from reconciler.table.spec_use import idle_specs
from tests.advisor import worlds
from tests.advisor.worlds import SETTINGS, arrived, workload

HOUR_MS = 3_600_000
LOG = SnapshotLog(
    tuple(
        Snapshot(n, n - 1 or None, n * HOUR_MS, {"removed-files-size": "100",
                                                 "deleted-data-files": "1"})
        for n in range(1, 31)
    ),
    (Ref(MAIN, BRANCH, 30),),
)  # fmt: skip
METADATA = TableMetadata(log=LOG)
ASKED = replace(
    SETTINGS, mode="None", metadata=METADATA, now_ms=31 * HOUR_MS, expire=Retention(10 * HOUR_MS, 5)
)


TABLE = arrived(np.random.default_rng(0), rows=2_000)


def advise(settings: Settings) -> Advice:
    return worlds.advise(TABLE, workload(), settings)


def test_old_snapshots_expire_and_the_plan_says_what_that_frees() -> None:
    (found,) = advise(ASKED).actions
    assert found.action == ExpireSnapshots(tuple(range(1, 21)), 10 * HOUR_MS, 5)
    predicted = found.predicted
    assert (predicted.removed_files, predicted.removed_bytes) == (20, 2_000)
    assert (predicted.kind, predicted.estimate) == ("ExpireSnapshots", "exact")
    assert not predicted.rewrites
    assert action_from_canonical(found.action.canonical()) == found.action


def test_nothing_expires_unless_the_policy_asks() -> None:
    assert advise(replace(ASKED, expire=None)).actions == ()


def test_a_few_old_snapshots_wait_for_more() -> None:
    some = advise(replace(ASKED, expire=Retention(28 * HOUR_MS, 1)))
    assert some.actions == ()
    assert [item.reason for item in some.rejected].count(reasons.NOT_DUE) == 1
    assert advise(replace(ASKED, expire=Retention(99 * HOUR_MS, 1))).actions == ()


@pytest.mark.parametrize("value", ["false", "False", "no"])
def test_a_table_whose_files_may_be_anothers_is_left_alone(value: str) -> None:
    forbidden = replace(METADATA, properties={"gc.enabled": value})
    found = advise(replace(ASKED, metadata=forbidden))
    assert found.actions == ()
    assert reasons.NOT_REMOVABLE in [item.reason for item in found.rejected]
    facts = Facts(metadata=forbidden)
    assert ExpireSnapshots((1,), HOUR_MS, 1).judge(facts).validity is Validity.LOST
    assert RemoveOrphans(("a",), HOUR_MS).judge(facts).validity is Validity.LOST


@pytest.mark.parametrize(
    "metadata",
    [
        replace(METADATA, properties={"s3.delete-enabled": "false"}),
        replace(METADATA, delete_enabled=False),
    ],
)
def test_a_store_that_deletes_no_file_is_left_to_its_service(metadata: TableMetadata) -> None:
    orphan = Listed("s3://lake/t/data/left.parquet", 10, 0)
    asked = replace(
        ASKED, metadata=metadata, remove_orphans=Search(HOUR_MS, 0), orphans=Orphans((orphan,))
    )
    found = advise(asked)
    assert found.actions == ()
    assert [item.reason for item in found.rejected].count(reasons.LEFT_TO_SERVICE) == 2
    assert len(advise(replace(asked, metadata=METADATA)).actions) == 2


def test_snapshots_that_work_of_ours_needs_stay() -> None:
    needed = replace(ASKED, expire=Retention(10 * HOUR_MS, 5, frozenset({7})))
    (found,) = advise(needed).actions
    assert found.action.snapshots == tuple(range(1, 7))


def test_an_action_is_done_when_its_snapshots_are_gone_and_lost_when_a_ref_needs_one() -> None:
    action = ExpireSnapshots((1, 2), HOUR_MS, 5)
    rest = SnapshotLog(LOG.snapshots[2:], LOG.refs)
    tagged = SnapshotLog(LOG.snapshots, (*LOG.refs, Ref("t", "tag", 2)))
    branched = SnapshotLog(LOG.snapshots, (*LOG.refs, Ref("b", BRANCH, 6)))
    short = SnapshotLog(LOG.snapshots[:4], (Ref(MAIN, BRANCH, 4),))
    for log, state in (
        (LOG, Validity.PENDING), (rest, Validity.DONE), (tagged, Validity.LOST),
        (branched, Validity.LOST), (short, Validity.LOST),
    ):  # fmt: skip
        assert action.judge(Facts(metadata=TableMetadata(log=log))).validity is state
    partly = SnapshotLog(LOG.snapshots[1:], LOG.refs)
    assert action.judge(Facts(metadata=TableMetadata(log=partly))).validity is Validity.PENDING


MANIFESTS = manifest_table(
    tuple(f"m{n:02d}" for n in range(20)),
    np.full(20, 10_000),
    frozenset(),
    np.tile(np.arange(20), 30),
    np.repeat(np.arange(30), 20),
)
"""30 partitions, each with a file in each of 20 small manifests."""


def with_manifests(manifests: ManifestTable, **more: object) -> Advice:
    given = AdviceInput(
        TABLE.file_table(), workload(),
        replace(ASKED, expire=None, rewrite_manifests=True, **more),
        manifests=manifests,
    )  # fmt: skip
    return decide(given)


def test_scattered_manifests_are_rewritten_with_what_a_query_reads_before_and_after() -> None:
    (found,) = with_manifests(MANIFESTS).actions
    assert found.action == RewriteManifests(MANIFESTS.path, manifests=1)
    predicted = found.predicted
    assert (predicted.files_in, predicted.files_out, predicted.bytes_in) == (20, 1, 200_000)
    assert "20.0 -> 1.0" in predicted.label
    assert not predicted.rewrites_data
    small = replace(METADATA, properties={"commit.manifest.target-size-bytes": "50000"})
    (found,) = with_manifests(MANIFESTS, metadata=small).actions
    assert found.predicted.files_out == 4


def test_manifests_are_left_where_a_rewrite_gains_little() -> None:
    few = manifest_table(
        ("a", "b", "c"), np.full(3, 10_000), frozenset(), np.arange(3), np.zeros(3, dtype=int)
    )
    assert with_manifests(few).actions == ()
    full = replace(MANIFESTS, bytes=np.full(20, 8 << 20))
    ordered = replace(full, held_by=np.ones(30, dtype=np.int64))
    assert with_manifests(ordered).actions == ()
    assert advise(replace(ASKED, expire=None)).actions == ()


SPECS = replace(METADATA, specs={0: (), 1: ("day(3)",), 2: ("month(3)",)}, default_spec_id=1)
UNUSED = replace(SPECS, unused_specs=frozenset((0,)))
SPECS_ASKED = replace(ASKED, expire=None, metadata=UNUSED, remove_specs_ms=20 * HOUR_MS)


def test_unused_specs_are_removed_only_where_the_policy_asks() -> None:
    (found,) = advise(SPECS_ASKED).actions
    assert found.action == RemoveSpecs((0,), 20 * HOUR_MS)
    assert not found.predicted.rewrites
    assert action_from_canonical(found.action.canonical()) == found.action
    assert advise(replace(SPECS_ASKED, remove_specs_ms=None)).actions == ()


def test_specs_wait_for_the_history_for_the_snapshots_and_for_a_migration() -> None:
    short = advise(replace(SPECS_ASKED, remove_specs_ms=40 * HOUR_MS))
    held = advise(replace(SPECS_ASKED, metadata=replace(UNUSED, unused_specs=frozenset())))
    moves = Migration((), spec_id=0, exists=True, present=1)
    moving = advise(replace(SPECS_ASKED, migration=moves))
    for waits in (short, held, moving):
        assert "RemoveSpecs" not in [item.action.kind for item in waits.actions]
        (why,) = [item for item in waits.rejected if str(item.what) == "remove partition specs"]
        assert why.reason == reasons.SPEC_IN_USE
    assert short.upkeep_due_ms == (1 + 40) * HOUR_MS  # the oldest snapshot is of hour 1


@pytest.mark.parametrize(
    ("specs", "state", "why"),
    [
        ((0,), Validity.PENDING, ""),
        ((7,), Validity.DONE, "gone"),
        ((0, 2), Validity.LOST, "spec 2 "),
        ((0, 1), Validity.LOST, "spec 1 "),
    ],
)
def test_the_newest_spec_and_the_writers_are_never_removed(
    specs: tuple[int, ...], state: Validity, why: str
) -> None:
    found = RemoveSpecs(specs).judge(Facts(metadata=UNUSED))
    assert found.validity is state and why in found.why


def test_a_spec_with_files_is_never_removed() -> None:
    used = replace(SPECS, unused_specs=frozenset())
    assert RemoveSpecs((0,)).judge(Facts(metadata=used)).validity is Validity.LOST


def test_only_a_history_that_is_long_enough_shows_which_specs_are_idle() -> None:
    files, now = TABLE.file_table(), 31 * HOUR_MS
    found = idle_specs(SPECS, files, NO_DELETE_FILES, 20 * HOUR_MS, now)
    assert found == ()  # its files have spec 0
    newer = replace(SPECS, specs={**SPECS.specs, 3: ("hour(3)",)}, default_spec_id=0)
    assert idle_specs(newer, files, NO_DELETE_FILES, 20 * HOUR_MS, now) == (1, 2)
    assert idle_specs(newer, files, NO_DELETE_FILES, 31 * HOUR_MS, now) == ()
    deletes = replace(NO_DELETE_FILES, spec_id=np.array([2]))
    assert idle_specs(newer, files, deletes, 20 * HOUR_MS, now) == (1,)
