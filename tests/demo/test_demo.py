"""The demo from its first line to its last, on little data: the real verbs, engines and files.

The verbs are the same for both teams. What is Spark's alone is in `test_spark_team`, with a real
round; the whole demo with it is three JVMs, and a test of `make soak`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from reconciler.demo import data, script, tpch
from reconciler.demo.duckdb_team import DuckDbTeam
from reconciler.demo.spark_team import SparkTeam

SCALE = data.Scale(scale_factor=0.02, parts=24, late_parts=2, target_bytes=512 << 10)
ROUND_ONE = tuple((name, 2 if name == "Q14" else 1) for name, _ in tpch.ROUND_ONE)
ROUND_TWO = tuple((name, min(times, 4)) for name, times in tpch.ROUND_TWO)
"""The demo's queries, fewer times each: 15 of them are carried out instead of 29."""


@pytest.fixture(
    scope="module",
    params=[DuckDbTeam, pytest.param(SparkTeam, marks=[pytest.mark.jvm, pytest.mark.soak])],
)
def ran(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Mapping[str, Any], str, Path]:
    """The demo's numbers, everything that it printed, and its directory."""
    place = data.prepare(tmp_path_factory.mktemp("demo") / "here")
    lines: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tpch, "ROUND_ONE", ROUND_ONE)
        patch.setattr(tpch, "ROUND_TWO", ROUND_TWO)
        facts = script.run(
            script.Demo(place, SCALE, lines.append, request.param(place), "the test asks for it")
        )
    return facts, "\n".join(lines), place.root


def test_results_are_the_same_after_the_rewrite(ran: tuple[Mapping[str, Any], str, Path]) -> None:
    facts, printed, _ = ran
    assert facts["same results"] == sum(times for _, times in ROUND_ONE)
    assert "checksums equal" in printed


def test_the_workload_reads_at_most_0_35_of_before(
    ran: tuple[Mapping[str, Any], str, Path],
) -> None:
    facts, _, _ = ran
    assert facts["planned after"] <= 0.35 * facts["planned before"]


def test_no_engine_opens_a_file_that_was_not_planned(
    ran: tuple[Mapping[str, Any], str, Path],
) -> None:
    facts, _, _ = ran
    assert facts["files agree"]


def test_the_plan_names_who_gets_slower_and_the_rewrite_is_verified(
    ran: tuple[Mapping[str, Any], str, Path],
) -> None:
    _, printed, _ = ran
    assert "worse" in printed
    assert "hash equal" in printed


def test_afterwards_nothing_is_left_to_do(ran: tuple[Mapping[str, Any], str, Path]) -> None:
    _, printed, _ = ran
    last = printed[printed.index("=== And now?") :]
    assert re.search("2 .*converged", last) or last.count("Converged") >= 2


def test_the_report_has_its_findings(ran: tuple[Mapping[str, Any], str, Path]) -> None:
    _, _, root = ran
    page = (root / "report.html").read_text()
    assert any("l_shipdate" in finding for finding in re.findall("<h2>(.*?)</h2>", page))
    assert "; before, " in page


def test_no_literal_of_a_query_is_printed(ran: tuple[Mapping[str, Any], str, Path]) -> None:
    _, printed, _ = ran
    assert "1995-01-01" not in printed
