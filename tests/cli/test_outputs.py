"""What plan, apply, status, history, explain and workload print at 80 and at 100 columns.

Golden text beside what must hold for any of it: lines fit, columns sum, ids agree. Golden files are
rewritten by: make golden
"""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reconciler.cli import apply_text, explain, explain_query, plan_text, status, terminal, workload
from reconciler.cli.history import render_history
from reconciler.core.format import iec
from reconciler.core.scan import explain_scan
from tests.cli import observations, plans
from tests.cli.golden import golden, too_long

APPROVAL = "Manual, not approved"


def _query(sql: str, show_literals: bool, width: int) -> str:
    seen = observations.lineitem(24, 4)
    (fragment,) = explain_query.fragments_of_query(seen, sql, "spark")
    demand = explain_query.demand_of(fragment, seen)
    scan = explain_scan(seen.files, demand.predicate, demand.literals)
    return explain_query.render_scan(
        seen, fragment, demand, scan, 3e9, "exact", show_literals=show_literals, width=width
    )


BETWEEN = (
    "SELECT l_comment FROM sales.lineitem "
    "WHERE l_orderkey BETWEEN 3000 AND 9000 AND l_shipdate <= DATE '1970-01-31'"
)


def _file(index: int, width: int) -> str:
    seen = observations.lineitem(24, 4)
    return explain.explain_file(seen.files, plans.advice(seen), f"/{index}.parquet", width)


def _progress(width: int) -> str:
    return "\n".join(apply_text.render_event(text, width) for text in plans.EVENTS)


CASES: dict[str, Callable[[int], str]] = {
    "plan": lambda w: plan_text.render_plan(plans.single(), width=w, approval=APPROVAL),
    "plan-verbose": lambda w: plan_text.render_plan(
        plans.single(), width=w, approval=APPROVAL, verbose=True
    ),
    "plan-many-actions": lambda w: plan_text.render_plan(plans.many_actions(), width=w),
    "plan-empty": lambda w: plan_text.render_plan(plans.empty(), width=w),
    "plan-tables": lambda w: plan_text.render_lines(plans.table_lines(), 8, w),
    "apply-progress": _progress,
    "apply-done": lambda w: apply_text.render_told(plans.told(), w),
    "apply-blocked": lambda w: apply_text.render_told(
        plans.told(
            ran=False, state="Blocked, AwaitingApproval",
            message=f"approval is Manual and {plans.PLAN_ID} has none",
            following=("layoutctl plan warehouse.sales.lineitem",
                       "layoutctl apply warehouse.sales.lineitem --yes"),
        ), w),
    "status": lambda w: status.render_status(plans.status_rows(), plans.NOW, w),
    "status-short": lambda w: status.render_status(plans.short_status_rows(), plans.NOW, w),
    "history": lambda w: render_history("warehouse.sales.lineitem", plans.past_plans(), w),
    "history-none": lambda w: render_history("warehouse.sales.lineitem", [], w),
    "explain-file-rewritten": lambda w: _file(0, w),
    "explain-file-refused": lambda w: _file(2, w),
    "explain-file-left": lambda w: _file(9, w),
    "explain-query": lambda w: _query(BETWEEN, False, w),
    "explain-query-literals": lambda w: _query(BETWEEN, True, w),
    "explain-shape": lambda w: explain.explain_shape(
        plans.recorded_shapes(), 1184, "l_shipdate", "warehouse.sales.lineitem", w
    ),
    "workload-import": lambda w: workload.render_import(plans.imported(), "trino", w),
    "workload-show": lambda w: workload.render_show(plans.workload(), w),
}  # fmt: skip


@pytest.mark.parametrize("width", [80, 100])
@pytest.mark.parametrize("case", list(CASES))
def test_it_prints_as_agreed_and_within_its_width(case: str, width: int) -> None:
    text = CASES[case](width)
    golden(f"{case}-{width}", text)
    assert too_long(text, width) == []
    assert all(line == line.rstrip() for line in text.splitlines())


def _total(document: dict[str, object], key: str) -> int:
    return sum(a["predicted"].get(key, 0) for a in document["actions"])  # type: ignore[attr-defined]


def test_what_a_summary_leaves_out_is_in_its_last_row() -> None:
    document = plans.many_actions()
    text = plan_text.render_plan(document, width=100)
    rows = [line for line in text.splitlines() if line.startswith("  ~ ")]
    assert len(rows) == plan_text.MOST_ACTIONS
    files = [int(number) for number in re.findall(r"(\d+) files? +[\d.]+ [KMG]iB +->", text)]
    assert sum(files) == _total(document, "filesIn")
    assert f"Cost   {iec(_total(document, 'bytesIn'))} rewritten" in text
    assert f"its {_total(document, 'filesIn'):,} input files are live" in text
    everything = plan_text.render_plan(document, width=100, verbose=True)
    assert sum(line.startswith("  ~ ") for line in everything.splitlines()) == 40


def test_queries_of_all_shapes_add_up_and_every_loser_is_named() -> None:
    document = plans.single()
    text = plan_text.render_plan(document, width=100)
    start = text.index("WHO PAYS TODAY")
    section = text[start : text.index("\n\n", start)]
    queries = [int(n) for n in re.findall(r" {2,}(\d+) {2,}[\d.]+ [KMGT]iB ", section)]
    assert sum(queries) == sum(s["queries"] for s in document["evidence"]["shapes"])
    losers = [s["text"] for s in document["evidence"]["shapes"] if s["worse"]]
    assert losers == ["l_orderkey = ?"]
    assert re.search(r"l_orderkey = \? .*worse$", section, re.MULTILINE)


def test_a_plan_names_its_id_and_says_what_its_budgets_leave() -> None:
    text = plan_text.render_plan(plans.single(), width=80, approval=APPROVAL)
    assert plans.PLAN_ID in text.splitlines()[0]
    assert "Budget daily: 132.0 GiB of 500.0 GiB per 24 h, 0 B used" in text
    assert "       office-hours: its window opens" in text
    assert "--out plan.json" in text and "layoutctl apply plan.json" in text


def test_an_empty_plan_gives_every_reason_and_no_command_to_apply() -> None:
    document = plans.empty()
    text = " ".join(plan_text.render_plan(document, width=80).split())
    for item in document["evidence"]["rejected"]:
        assert item["what"] in text
    assert "leaves this data before a rewrite pays back" in text
    assert "layoutctl apply" not in text and "nothing to do" in text


def test_candidates_of_many_partitions_are_one_line_and_one_alone_names_its_own() -> None:
    document = plans.empty()
    document["evidence"]["rejected"] = [
        {"what": what, "partition": f"day=2026-10-{day:02d}", "reason": "BelowFloor",
         "why": f"would save 0.{day:02d} % of a year's reading"}
        for what, days in (("recluster by device", range(1, 17)), ("recluster by site", [3]))
        for day in days
    ]  # fmt: skip
    lines = plan_text.render_plan(document, width=100).splitlines()
    told = [line.strip() for line in lines if "recluster by" in line]
    assert [re.split(r" {2,}", line) for line in told] == [
        ["recluster by device in 16 partitions", "would save 0.01 - 0.16 % of a year's reading"],
        ["recluster by site, day=2026-10-03", "would save 0.03 % of a year's reading"],
    ]


def test_a_table_without_a_file_is_said_to_be_empty() -> None:
    document = plans.empty()
    document["evidence"]["snapshot"] = {"files": 0, "bytes": 0}
    assert plan_text.render_plan(document, width=80).endswith("The table holds no data file.")


def test_the_line_of_all_tables_is_their_sum() -> None:
    lines = plans.table_lines()
    text = plan_text.render_lines(lines, 8, 100)
    size = iec(sum(line.rewrite_bytes for line in lines))
    actions = sum(line.actions for line in lines)
    assert f"4 tables, {actions} actions, {size} to rewrite." in text
    assert text.endswith("8 tables are converged.")
    assert plan_text.render_lines([], 1, 100) == "1 table is converged."


def test_files_that_a_query_reads_and_skips_are_all_files() -> None:
    text = _query(BETWEEN, False, 100)
    read, files = re.search(r"reads (\d+) of (\d+) files", text).groups()  # type: ignore[union-attr]
    skipped = re.findall(r"^  l_\S+ \S+ \?.*? {2,}(\d+) .*(?:bounds|match)$", text, re.MULTILINE)
    assert int(read) + sum(map(int, skipped)) == int(files) == 24
    section = text[text.index("READ BECAUSE") : text.index("\nFILE ")]
    assert sum(int(n) for n in re.findall(r" (\d+) {2,}[\d.]+ [KMG]iB$", section, re.M)) == int(
        read
    )
    assert text.count(".parquet") == min(int(read), explain_query.MOST_FILES)


def test_values_of_a_query_and_bounds_of_files_are_shown_only_when_asked_for() -> None:
    hidden, shown = _query(BETWEEN, False, 100), _query(BETWEEN, True, 100)
    for value in ("3000", "9000", "1970-01-31"):
        assert value not in hidden and value in shown
    assert "--show-literals" in hidden
    assert re.search(r"l_orderkey \d+ \.\. \d+", shown)


def test_a_scan_skips_what_one_of_its_conditions_rules_out() -> None:
    seen = observations.lineitem(24, 4)
    (fragment,) = explain_query.fragments_of_query(seen, BETWEEN, "spark")
    demand = explain_query.demand_of(fragment, seen)
    scan = explain_scan(seen.files, demand.predicate, demand.literals)
    ruled_out = np.logical_or.reduce([one.rules_out for one in scan.conditions])
    assert (scan.read == ~ruled_out).all()
    assert len(scan.conditions) == 3


def test_a_reason_that_does_not_fit_beside_its_numbers_stands_below_them() -> None:
    narrow = status.render_status(plans.status_rows(), plans.NOW, 80)
    wide = status.render_status(plans.status_rows(), plans.NOW, terminal.UNLIMITED)
    for text in (narrow, wide):
        assert "AwaitingApproval p-71be09c2" in text
        assert "131.0 of 500.0 GiB" in text
    assert len(wide.splitlines()) == 5
    assert "  CatalogUnavailable: catalog" in narrow


def test_a_plan_that_did_not_pay_says_so_and_the_net_is_the_sum() -> None:
    past = plans.past_plans()
    text = render_history("t", past, 100)
    assert text.count("NOT PAID") == 1
    spent = sum(plan.cost for plan in past)
    assert f"-{iec(spent - 20 * plans.GIB)} of reading" in " ".join(text.split())


def test_progress_in_a_pipe_is_one_line_an_event() -> None:
    assert [apply_text.render_event(text, None) for text in plans.EVENTS] == list(plans.EVENTS)


words = st.text("abcdefgh0123456789", min_size=1, max_size=12)
cells = st.lists(words, min_size=0, max_size=8).map(" ".join)


@settings(max_examples=100)
@given(st.lists(st.tuples(cells, words, cells), min_size=1, max_size=6), st.integers(60, 100))
def test_tables_lose_no_word_and_keep_to_their_width(
    rows: list[tuple[str, str, str]], width: int
) -> None:
    lines = terminal.tabulate(rows, "lrl", width)
    assert max(len(line) for line in lines) <= width
    printed = sorted(word for line in lines for word in line.split())
    assert printed == sorted(word for row in rows for cell in row for word in cell.split())


def test_the_width_is_the_terminals_within_bounds_and_100_in_a_pipe(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import sys

    assert terminal.width() == 100
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    for columns, expected in (("80", 80), ("40", 60), ("250", 100), ("x", 100)):
        monkeypatch.setenv("COLUMNS", columns)
        assert terminal.width() == expected


def test_reports_of_many_tables_are_one_document() -> None:
    from reconciler.cli.apply import report_list

    error = {"table": ["s", "b"], "error": "no column"}
    body = report_list([{"kind": "ApplyReport", "table": "rec.s.a"}], [error])
    assert (body["apiVersion"], body["kind"]) == (
        "layout.lakehouse.dev/v1alpha1", "ApplyReportList",
    )  # fmt: skip
    assert [item["table"] for item in body["items"]] == ["rec.s.a"]
    assert body["errors"] == [error]
