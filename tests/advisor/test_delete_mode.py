"""How updates and deletes are to be written: the cost model, and what is set of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from bench.delete_modes import (
    COMPACTION,
    FORMATS,
    MAJOR,
    MODEL,
    PACKED,
    PACKING,
    SPARSE,
    Cost,
    Found,
    Reading,
    Written,
    chosen,
    fit,
    known_before,
    left_out,
    measured_seconds,
    modelled,
    operation_of,
    reading_of,
    terms_of,
)
from reconciler.advisor.advice import Advice, AdviceInput, DeletePolicy, Settings
from reconciler.advisor.decide import decide
from reconciler.advisor.deletes.mode import Setting, mode_choices
from reconciler.advisor.deletes.mode_cost import (
    Known,
    Operation,
    Statement,
    Way,
    break_even,
    cost_of,
    gain_of,
    least_share,
    seconds,
    write_seconds,
)
from reconciler.plan import reasons
from reconciler.plan.execution import COMMITTED, Outcome
from reconciler.plan.ledger import LedgerEntry, cpu_calibration, throughput
from reconciler.plan.prediction import Prediction
from reconciler.plan.prediction_interval import Calibration
from reconciler.queries.machine_speed import LASTING
from reconciler.queries.rewrite_cost import PRIOR_THROUGHPUT, ThroughputSample
from reconciler.table.deletes import Scope
from reconciler.table.metadata import TableMetadata
from reconciler.table.operations import Encoding, Kind, Operations, RowOperation
from reconciler.table.schema import PartitionField, PartitionSpec
from tests.advisor.test_deletes import Delete, history, queries, world
from tests.advisor.worlds import DAY, SETTINGS, arrived, workload
from tests.said import Said

MB = 1 << 20
FILES = 50


def operation(**changes: Any) -> Operation:
    """A micro-batch on lineitem: 60,000 of 6 million rows updated by MERGE, in eight buckets of one
    file of 19 MB each, and 200 rows inserted."""
    base = Operation(
        statement=Statement.MERGE, scanned=6e6, rows=60_000, added=60_200, files=8, bytes=155e6,
        partitions=8, shared=8, reads=0.0, share=1.0,
    )  # fmt: skip
    return replace(base, **changes)


CASES = {
    "sparse": (operation(rows=200, added=400), 23.83, 5.89, 5.63),
    "micro-batch": (operation(), 24.67, 6.21, 6.36),
    "batch": (
        operation(rows=375_000, added=375_200, files=1, bytes=19.4e6, share=1 / 8),
        6.29, 7.47, 7.36,
    ),
}  # fmt: skip
"""By name: operation, and the CPU seconds measured with copy-on-write, with positions by partition
and with vectors (bench/RESULTS.md, "Write modes", lineitem at scale 1)."""
OTHERS = {
    "merge of matched rows": (
        operation(statement=Statement.MATCHED, rows=200, added=200, scanned=1.2e6, bytes=31e6),
        4.5, 0.6,
    ),
    "update": (
        operation(statement=Statement.UPDATE, rows=60_000, added=60_000, scanned=1.2e6, bytes=31e6),
        4.1, 1.4,
    ),
    "delete": (
        operation(statement=Statement.DELETE, rows=60_000, added=0, scanned=1.2e6, bytes=31e6),
        4.0, 0.41,
    ),
}  # fmt: skip
"""Statements on 1.2 million rows: copy-on-write, in a young session of a shared machine, and
positions by partition, in a session that had compiled its code, without the optimising compiler."""


@pytest.mark.parametrize("case", CASES)
def test_the_model_is_near_what_was_measured(case: str) -> None:
    one, eager, partition, vectors = CASES[case]
    for way, cpu in (
        (Way.COPY_ON_WRITE, eager), (Way.PARTITION, partition), (Way.VECTORS, vectors)
    ):  # fmt: skip
        assert write_seconds(way, one, PRIOR_THROUGHPUT) == pytest.approx(cpu, rel=0.25)


@pytest.mark.parametrize("case", OTHERS)
def test_a_statement_costs_what_it_takes_to_find_its_rows(case: str) -> None:
    one, eager, lazy = OTHERS[case]
    found = write_seconds(Way.COPY_ON_WRITE, one, PRIOR_THROUGHPUT)
    assert found == pytest.approx(eager, rel=0.25)
    assert write_seconds(Way.PARTITION, one, PRIOR_THROUGHPUT) == pytest.approx(lazy, rel=0.25)


@pytest.mark.parametrize("case", CASES)
def test_merge_on_read_is_dearer_the_more_is_read_and_copy_on_write_is_not(case: str) -> None:
    one = CASES[case][0]
    for way in Way:
        costs = [
            seconds(way, replace(one, reads=r), PRIOR_THROUGHPUT) for r in (0, 1, 30, 900, 3e4)
        ]
        assert costs == sorted(costs)
        assert (costs[0] == costs[-1]) is (way is Way.COPY_ON_WRITE)
    even = break_even(Known(one, ()), (Way.VECTORS,), PRIOR_THROUGHPUT)
    if case == "batch":  # merge-on-read costs more even if nobody reads
        assert even is None
        return
    assert even is not None
    for reads, sign in ((even.mid * 0.9, 1), (even.mid * 1.1, -1)):
        known = Known(replace(one, reads=reads), ())
        gain = gain_of(Way.COPY_ON_WRITE, Way.VECTORS, known, PRIOR_THROUGHPUT)
        assert gain.mid * sign > 0


def test_the_rarer_a_batch_changes_the_same_file_the_more_readings_lie_between() -> None:
    hot, anywhere = operation(reads=10.0), operation(reads=10.0, share=0.01)
    costs = [seconds(Way.VECTORS, one, PRIOR_THROUGHPUT) for one in (hot, anywhere)]
    assert costs[0] < costs[1]


def test_an_interval_covers_every_corner() -> None:
    known = Known(operation(reads=5.0), (("reading", (0.3, 3.0)), ("rewriting", (0.5, 2.0))))
    for way in (Way.COPY_ON_WRITE, Way.VECTORS):
        found = cost_of(way, known, PRIOR_THROUGHPUT)
        every = [seconds(way, one, PRIOR_THROUGHPUT) for one in known.corners()]
        assert len(every) == 4 and found.low == min(every) and found.high == max(every)
        assert found.low <= found.mid <= found.high


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


def test_an_upgrade_is_planned_if_it_pays_and_never_unless_the_policy_allows_it(
    said: Said,
) -> None:
    policy = DeletePolicy(mode="Auto", format_version="Auto")
    often = merges(encoding=Encoding.MERGE_ON_READ)
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
    found = advice(merges(encoding=Encoding.MERGE_ON_READ), weight=1e3, properties=LAZY,
                   policy=policy)  # fmt: skip
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
    cpu = 21.5 * ratio
    return [
        LedgerEntry(
            "u", f"p-{n}", n,
            Outcome("t", 1, "a01", COMMITTED, 1, 100 * MB, 100 * MB, 9, 1, 1, cpu, cpu),
            Prediction(kind="BinPack", cpu_millis=21_500),
        )
        for n in range(count)
    ]  # fmt: skip


def test_measured_rewrites_calibrate_the_costs_of_all_modes() -> None:
    """A machine that takes twice the CPU for rewrites probably takes more for statements too."""
    entries = rewrites(6, 2.0 * LASTING)
    measured, calibration = throughput(entries), cpu_calibration(entries)
    assert measured.label == "measured" and calibration.low == pytest.approx(2.0 * LASTING)
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


def test_what_is_not_known_of_the_machine_does_not_hold_back_a_choice() -> None:
    """A slower machine takes more under every mode: it widens the seconds, not what is saved."""
    known = Known(operation(reads=10.0), (("machine", (0.2, 5.0)),))
    gain = gain_of(Way.COPY_ON_WRITE, Way.VECTORS, known, PRIOR_THROUGHPUT)
    assert gain.high > 10 * gain.low > 0
    assert least_share(Way.COPY_ON_WRITE, Way.VECTORS, known, PRIOR_THROUGHPUT) > 0.45


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
    given = Setting(parted, 2, {}, 1.0, PRIOR_THROUGHPUT, Calibration())
    (choice,) = mode_choices(given, merges(kind=kind, files=5, rows=30))
    cost = dict(choice.costs)[Way.PARTITION]
    known = mode_choices(replace(given, files=files), merges(kind=kind, files=5, rows=30))
    whole = dict(known[0].costs)[Way.PARTITION]
    assert (cost.mid == pytest.approx(whole.mid, rel=0.05)) is certain


# The bench


def stored() -> Found:
    """What `bench.deletes` found at scale 1 on 2026-11-25, in CPU seconds: an operation, a
    compaction and a rewrite in each case."""
    found = Found(6_001_215, 155_000_000, noise=0.015)
    for case, (_, *costs), (compaction, back), major in (
        ("sparse", CASES["sparse"], (0.65, 0.82), 18.44),
        ("micro-batch, 1 %", CASES["micro-batch"], (0.86, 0.85), 16.91),
        ("batch, half of a bucket", CASES["batch"], (1.85, 0.92), 15.56),
    ):
        after = {"sparse": 0.81, "micro-batch, 1 %": 0.91}.get(case, 1.09)
        for way, cpu in zip(MODEL, costs, strict=True):
            found.by[case, way] = Written("t", Cost(cpu, cpu), 10, 0.60, 0.60, 0.60, after)
        found.maintenance[case, COMPACTION] = (Cost(compaction, 1.0), after, back)
        for title in (MAJOR, PACKED, PACKING):  # the last two: as if they gave back all of it
            found.maintenance[case, title] = (Cost(major, 1.0), after, 0.60)
        found.ledger[case] = [ThroughputSample("pack", 155_000_000, major, major, 32)]
    return found


def test_constants_fitted_to_two_cases_predict_the_third() -> None:
    """The terms are right, not just fitted: each case without its own measurements."""
    ratios = left_out(stored())
    assert len(ratios) == 9
    for case, ratio in ratios.items():
        assert ratio == pytest.approx(1.0, rel=0.25), case


def test_a_ledger_of_the_other_cases_keeps_the_model_within_a_quarter() -> None:
    found = stored()
    for (case, way), one in found.by.items():
        cost = modelled(way, operation_of(found, case), known_before(found, case))
        assert cost.mid == pytest.approx(one.each.cpu, rel=0.25)
        assert cost.low < one.each.cpu < cost.high


def test_auto_takes_the_mode_that_was_cheapest_in_the_bench() -> None:
    """Among those of format 2, at every number of readings."""
    every = chosen(stored())
    assert len(every) == 12
    ways = FORMATS["format 2"]
    assert {one.auto(ways) for one in every} == set(ways)
    for one in every:
        assert one.regret(ways) <= 1.05, (one.case, one.reads)


def test_a_reading_of_the_bench_is_the_mean_without_its_ends() -> None:
    assert reading_of([9.0, 2.0, 1.0, 2.0, 2.0]) == Reading(2.0, 0.0)
    assert reading_of([1.0, 2.0, 4.0, 5.0]) == Reading(3.0, pytest.approx(1.0))


@pytest.mark.parametrize("reads", [0.0, 1000.0])
def test_the_bench_ends_a_loss_by_what_gives_it_back_for_least(reads: float) -> None:
    """Packing small data files beside vectors gives back all of it here, for a tenth of a rewrite
    of the files."""
    dear, cheap = stored(), stored()
    for case in cheap.cases:
        _, before, after = cheap.maintenance[case, PACKING]
        cheap.maintenance[case, PACKING] = (Cost(1.6, 1.6), before, after)
    costs = [measured_seconds(SPARSE, "vectors", reads, found) for found in (dear, cheap)]
    assert (costs[1] < 0.8 * costs[0]) is (reads > 0)


@pytest.mark.parametrize(("lost", "near"), [(0.02, True), (0.2, False)])
def test_the_bench_does_not_hold_the_noise_of_a_reading_against_a_choice(
    lost: float, near: bool
) -> None:
    """At 100 readings the model takes vectors: 0.02 CPU s of one are noise, 0.2 are not."""
    found = stored()
    one = found.by["sparse", "vectors"]
    one.first = one.after = one.before + lost
    one.each.cpu = 1.03 * found.by["sparse", "copy-on-write"].each.cpu
    (choice,) = (c for c in chosen(found) if (c.case, c.reads) == ("sparse", 100))
    ways = FORMATS["format 3"]
    assert choice.auto(ways) == "vectors"
    assert choice.regret(ways) > (1.0 if near else 1.3)
    assert choice.near(ways) is near


@pytest.mark.parametrize(("slower", "factor"), [(0, 1.0), (2, 2.0)])
def test_the_fit_of_the_bench_finds_what_was_changed(slower: int, factor: float) -> None:
    """The third term is that of the written rows."""
    found = stored()
    for case, way in found.by:
        terms, kept = terms_of(found, case, way)
        terms[slower] *= factor
        found.by[case, way].each.cpu = kept + sum(terms)
    expected = [factor if n == slower else 1.0 for n in range(3)]
    assert fit(found, found.cases).tolist() == pytest.approx(expected)
