"""How updates and deletes are to be written: what is decided and set of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from reconciler.advisor.advice import Advice, AdviceInput, DeletePolicy, Settings
from reconciler.advisor.decide import decide
from reconciler.advisor.deletes.mode import CostInputs, mode_choices
from reconciler.advisor.deletes.mode_cost import (
    Way,
)
from reconciler.plan import reasons
from reconciler.plan.execution import COMMITTED, Outcome
from reconciler.plan.ledger import LedgerEntry, cpu_calibration, throughput
from reconciler.plan.prediction import Prediction
from reconciler.plan.prediction_interval import Calibration
from reconciler.queries.rewrite_cost import PRIOR_THROUGHPUT
from reconciler.table.deletes import Scope
from reconciler.table.metadata import TableMetadata
from reconciler.table.operations import Encoding, Kind, Operations, RowOperation
from reconciler.table.schema import PartitionField, PartitionSpec
from tests.advisor.test_deletes import Delete, history, queries, world
from tests.advisor.worlds import DAY, SETTINGS, arrived, workload
from tests.said import Said

MB = 1 << 20
FILES = 50


# Decisions


def merges(
    count: int = 8,
    kind: Kind = Kind.MERGE,
    encoding: Encoding = Encoding.COPY_ON_WRITE,
    *,
    rows: int | None = 30,
    files: int | None = FILES,
    engine: str = "spark",
    added_files: int = 1,
) -> Operations:
    """One a day, up to now."""
    return Operations(
        tuple(
            RowOperation(
                n, SETTINGS.now_ms - n * DAY, kind, encoding, rows, False, files, 1, None,
                0 if kind is Kind.DELETE else 30, added_files, 0, engine,
            )
            for n in range(count)
        ),
        count * DAY,
    )  # fmt: skip


def table() -> Any:
    """50 files of 20 MB: copying them costs more than an operation's fixed time."""
    files = arrived(np.random.default_rng(0)).file_table()
    sizes = np.full(len(files), 20 * MB)
    return replace(files, bytes=sizes)


def advice(
    operations: Operations,
    *,
    weight: float = 0.01,
    properties: dict[str, str] | None = None,
    version: int = 2,
    policy: DeletePolicy | None = None,
    **changes: Any,
) -> Advice:
    settings: Settings = replace(
        SETTINGS, target_bytes=20 * MB, mode="None",
        metadata=TableMetadata(properties or {}, format_version=version),
        deletes=policy or DeletePolicy(mode="Auto"), **changes,
    )  # fmt: skip
    asked = queries(weight) if weight else workload()
    return decide(AdviceInput(table(), asked, settings, operations=operations))


def properties_set(found: Advice) -> dict[str, str]:
    return {
        name: value
        for item in found.actions
        if item.action.kind == "SetProperties"
        for name, value in item.action.new  # type: ignore[attr-defined]
    }


LAZY = {"write.merge.mode": "merge-on-read"}


def test_auto_sets_the_mode_that_costs_less_and_keeps_it_then() -> None:
    found = properties_set(advice(merges()))
    assert found.items() >= LAZY.items()
    assert properties_set(advice(merges(), properties=found)) == {}


def test_auto_goes_back_to_copy_on_write_where_all_is_read_often() -> None:
    few = merges(encoding=Encoding.MERGE_ON_READ, rows=1, files=2)
    assert properties_set(advice(few, weight=1e7, properties=LAZY, version=3)) == {
        "write.merge.mode": "copy-on-write"
    }


def test_auto_keeps_the_present_mode_unless_the_gain_exceeds_what_is_uncertain() -> None:
    """Between the two ends there are readings where either mode may cost less."""
    kept, changed = 0, []
    for weight in np.geomspace(1e4, 1e10, 25).tolist():
        eager, lazy = (advice(merges(), weight=weight, properties=p, version=3) for p in ({}, LAZY))
        (a,), (b,) = eager.modes, lazy.modes
        assert dict(a.costs) == dict(b.costs)
        kept += not a.changes and not b.changes
        changed.append((a.changes, b.changes))
        for one in (a, b):
            assert one.gain is not None
            assert one.gain.low <= one.gain.mid <= one.gain.high
            assert one.changes is (one.best is not one.present and one.sure > 0.05)
            assert (one.sure > 0) is (one.gain.low > 0)
    assert kept >= 5 and changed[0] == (True, False) and changed[-1] == (False, True)


def test_without_queries_nothing_is_set_and_the_readings_that_decide_are_said() -> None:
    found = advice(merges(), weight=0.0)
    assert properties_set(found) == {}
    (choice,) = found.modes
    assert choice.costs == () and choice.even is not None
    assert choice.even.low < choice.even.mid < choice.even.high


def test_rows_that_the_history_does_not_hold_widen_the_interval() -> None:
    known, unknown = (
        advice(merges(kind=Kind.UPDATE, rows=rows), weight=50.0).modes[0] for rows in (30, None)
    )
    (way, *_) = [way for way, _ in known.costs if way.lazy]
    widths = [dict(one.costs)[way].high - dict(one.costs)[way].low for one in (known, unknown)]
    assert widths[1] > 2 * widths[0]


@pytest.mark.parametrize("engine", ["trino", "flink", ""])
def test_operations_of_engines_that_do_not_read_the_properties_are_left_alone(engine: str) -> None:
    found = advice(merges(engine=engine))
    assert properties_set(found) == {} and found.modes == ()


@pytest.mark.parametrize(
    ("mode", "version", "wanted"),
    [
        ("CopyOnWrite", 2, "copy-on-write"),
        ("MergeOnRead", 2, "merge-on-read"),
        ("MergeOnRead", 3, "merge-on-read"),
        ("Keep", 2, None),
    ],
)
def test_a_declared_mode_is_set_for_every_kind(mode: str, version: int, wanted: str | None) -> None:
    other = {"copy-on-write": "merge-on-read", "merge-on-read": "copy-on-write", None: "x"}[wanted]
    present = {f"write.{kind}.mode": other for kind in ("delete", "update", "merge")}
    found = advice(
        Operations(), properties=present, version=version, policy=DeletePolicy(mode=mode)
    )
    expected = dict.fromkeys(present, wanted) if wanted else {}
    assert properties_set(found) == expected
    again = advice(
        Operations(), properties={**present, **expected}, version=version,
        policy=DeletePolicy(mode=mode),
    )  # fmt: skip
    assert properties_set(again) == {}


def test_many_files_a_partition_are_worth_a_shuffle_when_writing() -> None:
    scattered = {**LAZY, "write.merge.distribution-mode": "none"}
    for added, wanted in ((1, None), (40, "hash")):
        found = properties_set(advice(merges(added_files=added), properties=scattered))
        assert found.get("write.merge.distribution-mode") == wanted


def test_partition_granularity_gives_way_where_readers_open_the_files_of_all_partitions() -> None:
    lazy = {**LAZY, "write.delete.granularity": "partition"}
    few = merges(encoding=Encoding.MERGE_ON_READ, files=2)
    found = advice(few, weight=1e4, properties=lazy)
    assert found.modes[0].best is Way.FILE
    assert properties_set(found) == {"write.delete.granularity": "file"}


# Format version 3


def upgrade(found: Advice) -> list[str]:
    return [item.action.kind for item in found.actions if item.action.kind == "UpgradeFormat"]


@pytest.mark.parametrize("version", [1, 2, 3])
def test_an_upgrade_is_planned_if_demanded(version: int) -> None:
    policy = DeletePolicy(mode="Keep", format_version="Upgrade")
    found = advice(Operations(), version=version, policy=policy)
    assert upgrade(found) == (["UpgradeFormat"] if version < 3 else [])


@pytest.mark.parametrize("mode", ["MergeOnRead", "Auto"])
def test_merge_on_read_is_set_only_after_the_upgrade_of_format_1(mode: str) -> None:
    """A DELETE by Spark fails on a table that has the property in format 1."""
    policy = DeletePolicy(mode=mode, format_version="Upgrade")
    first, then = (advice(merges(), version=version, policy=policy) for version in (1, 3))
    assert (upgrade(first), properties_set(first)) == (["UpgradeFormat"], {})
    assert set(properties_set(then).values()) == {"merge-on-read"}


def test_an_upgrade_is_planned_if_it_pays_and_never_unless_the_policy_allows_it(
    said: Said,
) -> None:
    policy = DeletePolicy(mode="Auto", format_version="Auto")
    often = merges(encoding=Encoding.MERGE_ON_READ, rows=30_000)
    pays = advice(often, weight=1e5, properties=LAZY, policy=policy)
    assert upgrade(pays) == ["UpgradeFormat"]
    kept = advice(often, weight=1e5, properties=LAZY)
    assert upgrade(kept) == []
    (note,) = kept.notes
    said(note)
    for unknown in (
        advice(often, weight=0.0, policy=policy),
        advice(Operations(), policy=policy),
    ):
        assert upgrade(unknown) == []
        assert reasons.UPGRADE_UNPAID in [item.reason for item in unknown.rejected]


def test_an_upgrade_that_saves_next_to_nothing_is_not_worth_it() -> None:
    """However certain it is, and however large a part of the cost: it cannot be undone."""
    policy = DeletePolicy(mode="Auto", format_version="Auto")
    often = merges(encoding=Encoding.MERGE_ON_READ, rows=1000)
    found = advice(often, weight=3e3, properties=LAZY, policy=policy)
    (choice,) = found.modes
    assert choice.sure_upgrade > 0.05
    assert upgrade(found) == []


@pytest.mark.parametrize(("days", "refused"), [(1, True), (6, True), (8, False)])
def test_an_upgrade_is_refused_while_another_engine_may_compact(days: int, refused: bool) -> None:
    policy = DeletePolicy(
        mode="Keep", format_version="Upgrade", compacted_ms=SETTINGS.now_ms - days * DAY
    )
    found = advice(Operations(), policy=policy)
    assert (upgrade(found) == []) is refused
    assert (reasons.COMPACTED_ELSEWHERE in [item.reason for item in found.rejected]) is refused


# Advice


def test_equality_deletes_are_advised_on_with_what_they_cost(said: Said) -> None:
    files, deletes = world([Delete(Scope.EQUALITY, 500, snapshot=n) for n in range(3)])
    given = AdviceInput(
        files, workload(), replace(SETTINGS, deletes=DeletePolicy(mode="Auto")), deletes=deletes,
        operations=history(3, DAY),
    )  # fmt: skip
    found = decide(given)
    (note,) = found.notes
    said(note)
    assert properties_set(found) == {}


def test_a_merge_into_a_bucketed_table_names_the_bucket_counts_that_need_no_shuffle(
    said: Said,
) -> None:
    files = table()
    spec = PartitionSpec(0, (PartitionField(1, 1000, "bucket[12]", "id_bucket"),))
    bucketed = replace(files, specs={0: spec}, default_spec_id=0)
    settings = replace(SETTINGS, deletes=DeletePolicy(mode="Auto"))
    (note,) = decide(AdviceInput(bucketed, workload(), settings, operations=merges())).notes
    assert "3, 4, 6, 12, 24" in note
    said(note)
    assert not decide(AdviceInput(files, workload(), settings, operations=merges())).notes


def rewrites(count: int, ratio: float) -> list[LedgerEntry]:
    """Of 100 MB each, which took so many times the CPU of the constants."""
    cpu = 4.5 * ratio
    return [
        LedgerEntry(
            "u", f"p-{n}", n,
            Outcome("t", 1, "a01", COMMITTED, 1, 100 * MB, 100 * MB, 9, 1, 1, cpu, cpu),
            Prediction(kind="BinPack", cpu_millis=4_500),
        )
        for n in range(count)
    ]  # fmt: skip


def test_measured_rewrites_calibrate_the_costs_of_all_modes() -> None:
    """A machine that takes twice the CPU for rewrites probably takes more for statements too."""
    entries = rewrites(6, 2.0)
    measured, calibration = throughput(entries), cpu_calibration(entries)
    assert measured.label == "measured" and calibration.low == pytest.approx(2.0)
    slow, prior = (
        advice(merges(), throughput=t, cpu_calibration=c).modes[0]
        for t, c in ((measured, Calibration(1.0, 1.0, 1.0, 6)), (PRIOR_THROUGHPUT, Calibration()))
    )
    assert (slow.speed.label, slow.speed.actions) == ("measured", 6)
    for way, cost in slow.costs:
        assert 1.3 < cost.mid / dict(prior.costs)[way].mid < 2.0
        assert cost.label == "measured"


def test_the_interval_of_the_seconds_reflects_how_much_was_measured() -> None:
    widths = []
    for count in (0, 1, 6):
        model = throughput(rewrites(count, 1.0))
        (choice,) = advice(merges(), throughput=model).modes
        cost = dict(choice.costs)[Way.COPY_ON_WRITE]
        widths.append(cost.high / cost.low)
    assert widths[0] > 1.5 * widths[1] > 1.5 * widths[2]


@pytest.mark.parametrize(("inserted", "dearer"), [((0, 0), False), ((0, 5), True), (None, True)])
def test_a_merge_that_inserts_nothing_finds_its_rows_without_a_shuffle(
    inserted: tuple[int, ...] | None, dearer: bool
) -> None:
    """One whose engine does not count may insert."""
    plain = merges(2)
    counts = inserted or (None, None)
    every = tuple(
        replace(one, inserted_rows=count) for one, count in zip(plain.every, counts, strict=True)
    )
    (choice,) = advice(replace(plain, every=every)).modes
    (update,) = advice(merges(2, kind=Kind.UPDATE)).modes
    costs = [dict(one.costs)[Way.COPY_ON_WRITE].mid for one in (choice, update)]
    assert (costs[0] > 1.2 * costs[1]) is dearer


@pytest.mark.parametrize(
    ("transform", "kind", "certain"),
    [
        ("bucket[12]", Kind.MERGE, True),
        ("identity", Kind.MERGE, False),
        ("identity", Kind.UPDATE, False),
    ],
)
def test_a_condition_may_leave_partitions_out_but_never_buckets(
    transform: str, kind: Kind, certain: bool
) -> None:
    """Ten partitions, of which an operation changes one: which rows a MERGE reads depends on ON."""
    files = replace(table(), records=np.full(FILES, 200_000))
    spec = PartitionSpec(0, (PartitionField(1, 1000, transform, "part"),))
    parted = replace(
        files, specs={0: spec}, partition=np.arange(len(files)) % 10,
        partitions=tuple((0, (n,)) for n in range(10)),
    )  # fmt: skip
    given = CostInputs(parted, 2, {}, 0.0, PRIOR_THROUGHPUT, Calibration())
    (choice,) = mode_choices(given, merges(kind=kind, files=5, rows=30))
    cost = dict(choice.costs)[Way.PARTITION]
    known = mode_choices(replace(given, files=files), merges(kind=kind, files=5, rows=30))
    whole = dict(known[0].costs)[Way.PARTITION]
    assert (cost.mid == pytest.approx(whole.mid, rel=0.05)) is certain
