"""What `bench.deletes` makes of its measurements, beside the cost model."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bench.delete_modes import (
    BATCH,
    COMPACTION,
    FORMATS,
    MAJOR,
    MODEL,
    PACKED,
    PACKING,
    SPARSE,
    Cost,
    Decay,
    Found,
    Maintenance,
    Opened,
    Reading,
    Written,
    chosen,
    decayed,
    fit,
    given_back,
    known_before,
    left_out,
    measured_seconds,
    modelled,
    operation_of,
    reading_of,
    rewriting,
    terms_of,
)
from bench.statements import Fit, Line, without
from reconciler.advisor.deletes.mode_cost import Statement
from reconciler.queries.rewrite_cost import PRIOR_THROUGHPUT, ThroughputSample
from tests.advisor.test_mode_cost import CASES, operation


def maintenance(cpu: float, before: float, after: float) -> Maintenance:
    nothing = Opened(0, 0, 0, 0)
    return Maintenance(Cost(cpu, 1.0), before, after, nothing, nothing)


def stored() -> Found:
    """What `bench.deletes` found at scale 1 on 2026-11-25, in CPU seconds: an operation, a
    compaction and a rewrite in each case. The ledger's rewrites are of the same files by Arrow, as
    `bench.against_iceberg` found. What readings lose by the first operation is of smaller
    tables (docs/design/write-modes.md)."""
    found = Found(6_001_215, 155_000_000, noise=0.015)
    for case, (_, *costs), (compaction, back), major in (
        ("sparse", CASES["sparse"], (0.65, 0.82), 18.44),
        ("micro-batch, 1 %", CASES["micro-batch"], (0.86, 0.85), 16.91),
        ("batch, half of a bucket", CASES["batch"], (1.85, 0.92), 15.56),
    ):
        after = {"sparse": 0.81, "micro-batch, 1 %": 0.91}.get(case, 1.09)
        first = 0.60 + {"sparse": 0.04, "micro-batch, 1 %": 0.09}.get(case, 0.02)
        for way, cpu in zip(MODEL, costs, strict=True):
            found.by[case, way] = Written("t", Cost(cpu, cpu), 10, 0.60, first, first, after)
        found.maintenance[case, COMPACTION] = maintenance(compaction, after, back)
        for title in (MAJOR, PACKED, PACKING):  # the last two: as if they gave back all of it
            found.maintenance[case, title] = maintenance(major, after, 0.60)
        found.ledger[case] = [ThroughputSample("pack", 155_000_000, 5.6, 5.6, 32)]
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
    """Among those of format 2, at every number of readings. Micro-batches with 100 readings cost
    the same both ways, for all that is known of a reading."""
    every = chosen(stored())
    assert len(every) == 12
    ways = FORMATS["format 2"]
    assert {one.auto(ways) for one in every} == set(ways)
    for one in every:
        assert one.near(ways) and one.regret(ways) <= 1.15, (one.case, one.reads)
    assert sum(one.regret(ways) <= 1.05 for one in every) >= 11
    assert {one.auto(ways) for one in every if one.reads == 1000} == {"copy-on-write"}


def test_a_reading_of_the_bench_is_the_mean_without_its_ends() -> None:
    assert reading_of([9.0, 2.0, 1.0, 2.0, 2.0]) == Reading(2.0, 0.0)
    assert reading_of([1.0, 2.0, 4.0, 5.0]) == Reading(3.0, pytest.approx(1.0))


@pytest.mark.parametrize("reads", [0.0, 1000.0])
def test_the_bench_ends_a_loss_by_what_gives_it_back_for_least(reads: float) -> None:
    """Packing small data files beside vectors gives back all of it here, for a tenth of a rewrite
    of the files."""
    dear, cheap = stored(), stored()
    for case in cheap.cases:
        one = cheap.maintenance[case, PACKING]
        cheap.maintenance[case, PACKING] = replace(one, cost=Cost(1.6, 1.6))
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


@pytest.mark.parametrize("reads", [1.0, 100.0])
def test_the_bench_counts_what_the_first_operation_takes_of_every_reading_of_its_files(
    reads: float,
) -> None:
    """A batch takes eight buckets in turns, so there are eight times as many readings of each
    before the next operation on it. No maintenance but the end of all deletes gives it back."""
    costs = []
    for case in (SPARSE, BATCH):
        found = stored()
        one = found.by[case, "vectors"]
        one.first, one.after = one.before + 0.1, one.before + 0.1
        costs.append(measured_seconds(case, "vectors", reads, found) - one.each.cpu)
    assert costs == pytest.approx([0.1 * reads, 0.8 * reads])


def test_what_compaction_gives_back_is_a_part_of_what_was_lost() -> None:
    opened = Opened(8, 0, 0, 4)
    clean, worn = (
        Decay(title, None, opened, Reading(cpu, 0.01), Reading(cpu, 0.0))
        for title, cpu in (("clean", 1.0), ("worn", 1.2))
    )
    half = Decay("half", Cost(1.0, 1.0), opened, Reading(1.1, 0.01), Reading(1.2, 0.01))
    every = [clean, worn, half]
    assert given_back(every, half, True) == pytest.approx((50.0, 100 * 0.01 / 0.1 * 1.5**0.5))
    assert given_back(every, half, False) == pytest.approx((0.0, 10.0))
    found = Found(1, 1, decay=every)
    assert [row[4] for row in decayed(found)[1:]] == ["-", "-", "50 (12)"]
    assert given_back([worn, clean, half], half, True) == (0.0, float("inf"))


def test_the_bench_compares_rewrites_with_their_constants() -> None:
    """Of 155 MB in 32 files, 5.6 CPU seconds."""
    modelled = PRIOR_THROUGHPUT.cpu_seconds("pack", 155_000_000, 32)
    expected = [cpu / modelled for cpu in (5.6, 5.6, 5.6)]
    assert rewriting(stored()) == pytest.approx(expected)


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


def test_constants_of_a_statement_are_found_from_other_sizes() -> None:
    """With them a size that was left out costs what it did; lines are of twice the model's copy."""
    expected = Fit(fixed=0.3, find=2e-7, whole=2.0)
    lines = []
    for rows in (1e6, 2e6, 4e6):
        one = operation(statement=Statement.UPDATE, scanned=rows, bytes=26 * rows, rows=rows / 100)
        for way in MODEL:
            line = Line(way, one, Cost(1.0, 1.0))
            lines.append(replace(line, cost=Cost(expected.seconds(line), 1.0)))
    found = without(lines, lines[0])
    assert (found.fixed, found.find, found.whole) == pytest.approx((0.3, 2e-7, 2.0))
    assert all(found.seconds(line) == pytest.approx(line.cost.cpu) for line in lines)
    assert lines[0].model < lines[0].cost.cpu
