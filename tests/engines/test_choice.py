"""Which engine carries out a plan, for what it needs and what the machine has."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reconciler.api.choices import EngineType
from reconciler.engines.choice import LONGEST_SECONDS, Machine, Needs, choose
from tests.said import Said

GIB = 1 << 30
LAPTOP = Machine(cores=8, memory_bytes=8 * GIB, disk_bytes=100 * GIB)
BARE = replace(LAPTOP, spark="no java was found")
SMALL = Needs(group_bytes=GIB // 2, seconds=60.0)
ODD = replace(SMALL, unsupported="the table has format 3")
LARGE = {
    "disk": replace(SMALL, group_bytes=50 * GIB),
    "time": replace(SMALL, seconds=LONGEST_SECONDS + 1.0),
}


def test_auto_takes_this_machine_where_the_plan_fits() -> None:
    assert choose(EngineType.AUTO, SMALL, LAPTOP).engine is EngineType.LOCAL
    assert choose(EngineType.AUTO, SMALL, BARE).engine is EngineType.LOCAL


def test_what_only_spark_can_do_goes_there_and_says_why() -> None:
    found = choose(EngineType.AUTO, ODD, LAPTOP)
    assert (found.engine, found.refused) == (EngineType.SPARK, False)
    assert ODD.unsupported in found.why


def test_without_spark_it_is_refused_with_both_reasons() -> None:
    found = choose(EngineType.AUTO, ODD, BARE)
    assert found.refused
    assert ODD.unsupported in found.why
    assert BARE.spark in found.why


def test_spark_is_not_taken_where_each_of_its_commits_raises() -> None:
    stopped = replace(LARGE["time"], stops_spark="a property is no number")
    assert choose(EngineType.AUTO, stopped, LAPTOP).engine is EngineType.LOCAL
    found = choose(EngineType.SPARK, stopped, LAPTOP)
    assert found.refused and stopped.stops_spark in found.why
    assert choose(EngineType.AUTO, replace(stopped, unsupported="x"), LAPTOP).refused


@pytest.mark.parametrize("needs", LARGE.values(), ids=LARGE)
def test_what_is_too_large_goes_to_spark(needs: Needs) -> None:
    assert choose(EngineType.AUTO, needs, LAPTOP).engine is EngineType.SPARK


def test_files_of_another_store_need_space_for_their_copies() -> None:
    needs = replace(SMALL, group_bytes=2 * GIB)
    assert choose(EngineType.AUTO, needs, LAPTOP).engine is EngineType.LOCAL
    assert choose(EngineType.AUTO, replace(needs, remote=True), LAPTOP).engine is EngineType.SPARK


def test_a_machine_with_hardly_any_memory_gives_the_plan_to_spark() -> None:
    assert choose(EngineType.AUTO, SMALL, replace(LAPTOP, memory_bytes=1 << 20)).engine is (
        EngineType.SPARK
    )


def test_too_large_without_spark_still_runs_here_and_says_so() -> None:
    found = choose(EngineType.AUTO, LARGE["time"], BARE)
    assert (found.engine, found.refused) == (EngineType.LOCAL, False)
    assert BARE.spark in found.why


@pytest.mark.parametrize("asked", [EngineType.LOCAL, EngineType.SPARK])
def test_what_was_asked_for_is_taken_whatever_fits(asked: EngineType) -> None:
    assert choose(asked, LARGE["disk"], LAPTOP).engine is asked


def test_local_that_cannot_is_refused_not_replaced() -> None:
    found = choose(EngineType.LOCAL, ODD, LAPTOP)
    assert (found.engine, found.refused) == (EngineType.LOCAL, True)


def test_spark_that_cannot_start_is_refused() -> None:
    assert choose(EngineType.SPARK, SMALL, BARE).refused


def test_the_least_memory_bounds_the_processes() -> None:
    assert replace(LAPTOP, memory_bytes=GIB).slots == 2
    assert replace(LAPTOP, memory_bytes=1).slots == 1


def test_a_plan_that_rewrites_no_rows_names_no_size_of_groups(said: Said) -> None:
    said(choose(EngineType.AUTO, Needs(), LAPTOP).why)
