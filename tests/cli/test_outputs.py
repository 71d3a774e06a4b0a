"""What plan, apply, status, history, explain and workload print at 80 and at 100 columns.

Golden text beside what must hold for any of it: lines fit, columns sum, ids agree. Golden files are
rewritten by: make golden
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reconciler.advisor.advice import Migration
from reconciler.advisor.migration.risks import risks
from reconciler.cli import explain, explain_query, status
from reconciler.cli.history import render_history
from reconciler.cli.plan_lines import budget_line
from reconciler.format import iec
from reconciler.plan import reasons
from reconciler.plan.budget import Budget, Spent, budget_state
from reconciler.plan.prediction import whole
from reconciler.queries.explain_scan import MOST_QUERIES, explain_scan
from reconciler.queries.fragments import workload_of_fragments
from reconciler.queries.shape import Shape
from reconciler.render import apply_text, explain_text, plan_text, terminal, workload_text
from reconciler.table.deletes import NO_DELETE_FILES
from reconciler.table.observation import Observation
from reconciler.table.schema import SpecField
from reconciler.table.writers import NO_WRITERS
from tests.cli import observations, plans
from tests.cli.golden import golden, too_long
from tests.examples import examples
from tests.said import Said

APPROVAL = "Manual, not approved"


def _scan(sql: str, show_literals: bool) -> dict[str, Any]:
    seen = observations.lineitem(24, 4)
    (fragment,) = explain_query.fragments_of_query(seen, sql, "spark")
    demand = explain_query.demand_of(fragment, seen)
    scan = explain_scan(seen.files, demand.predicate, demand.literals)
    return explain_query.scan_document(
        seen, fragment, demand, scan, 3e9, "exact", show_literals=show_literals
    )


def _query(sql: str, show_literals: bool, width: int) -> str:
    name, scan = observations.lineitem(24, 4).name, _scan(sql, show_literals)
    return explain_text.render_scan(name, scan, 24, width, show_literals=show_literals)


BETWEEN = (
    "SELECT l_comment FROM sales.lineitem "
    "WHERE l_orderkey BETWEEN 3000 AND 9000 AND l_shipdate <= DATE '1970-01-31'"
)


def _file(index: int, width: int, folder: str = "s3://lake/t/data") -> str:
    seen = observations.lineitem(24, 4)
    seen.files.path[:] = [path.replace("s3://lake/t/data", folder) for path in seen.files.path]
    file = explain.file_document(seen.files, plans.advice(seen), f"/{index}.parquet")
    return explain_text.render_file(file, width)


def _table(width: int) -> str:
    seen = observations.lineitem(24, 4)
    found = explain.candidates(seen.files, plans.advice(seen))
    rates = plans.single()["evidence"]["workload"]["rates"]
    body = {
        "table": seen.name, "planId": plans.PLAN_ID, "dataFiles": 24, "rates": rates, **found
    }  # fmt: skip
    return explain_text.render(body, width)


RANGES = "l_shipdate BETWEEN DATE '{}' AND DATE '{}'"
RECORDED = (
    [RANGES.format(f"197{year}-01-01", f"197{year}-01-07") for year in range(10)],
    ["l_shipdate >= DATE '1978-01-01'"],
)


def _recorded(seen: Observation, conditions: Sequence[str]) -> Shape:
    """Queries of one shape, as a log has them."""
    fragments = [
        replace(fragment, position=number, event_ms=number)
        for number, condition in enumerate(conditions)
        for fragment in explain_query.fragments_of_query(
            seen, f"SELECT l_comment FROM sales.lineitem WHERE {condition}", "spark"
        )
    ]
    (batch,) = workload_of_fragments(fragments).shapes
    return batch


def _shapes(width: int) -> str:
    """Show three shapes, two of them with their median query."""
    seen = observations.lineitem()
    found = explain.matching_shapes(plans.recorded_shapes(), "l_shipdate", seen.name)
    shapes = [explain.shape_document(shape) for shape in found]
    for shape, conditions in zip(shapes, RECORDED, strict=False):
        batch = _recorded(seen, conditions)
        shape["medianQuery"] = explain_query.median_query(seen, batch, False)
    return explain_text.render_shapes(shapes, len(seen.files), width)


def _progress(width: int) -> str:
    return "\n".join(apply_text.render_event(text, width) for text in plans.EVENTS)


CASES: dict[str, Callable[[int], str]] = {
    "plan": lambda w: plan_text.render_plan(
        plans.single(), width=w, approval=APPROVAL, following=plans.FOLLOWING
    ),
    "plan-verbose": lambda w: plan_text.render_plan(
        plans.single(), width=w, approval=APPROVAL, verbose=True, following=plans.FOLLOWING
    ),
    "plan-many-actions": lambda w: plan_text.render_plan(
        plans.many_actions(), width=w, following=plans.FOLLOWING
    ),
    "plan-fewer-files": lambda w: plan_text.render_plan(plans.fewer_files(), width=w),
    "plan-harm": lambda w: plan_text.render_plan(plans.harmful(), width=w),
    "plan-empty": lambda w: plan_text.render_plan(plans.empty(), width=w),
    "plan-in-part": lambda w: plan_text.render_plan(
        plans.in_part(), width=w, following=plans.FOLLOWING
    ),
    "plan-waits": lambda w: plan_text.render_plan(plans.waits(), width=w),
    "plan-tables": lambda w: plan_text.render_lines(plans.table_lines(), 8, w),
    "apply-progress": _progress,
    "apply-done": lambda w: apply_text.render_summary(plans.applied(), w),
    "apply-in-part": lambda w: apply_text.render_summary(
        plans.applied(
            state="Blocked, OverBudget",
            message='budget "daily" has too little left for the next action',
            read=apply_text.WindowRead(44 * plans.TIB, 11 * plans.TIB, 30 * plans.TIB, False),
            files=apply_text.FileCount(1_204, None, 702),
        ), w),
    "apply-harm": lambda w: apply_text.render_summary(
        plans.applied(
            read=apply_text.WindowRead(
                44 * plans.TIB, 11 * plans.TIB, 43 * plans.TIB, saved=-3 * plans.TIB
            ),
            files=apply_text.FileCount(230, 250, 1_204),
        ), w),
    "apply-blocked": lambda w: apply_text.render_summary(
        plans.applied(
            ran=False, state="Blocked, AwaitingApproval",
            message=f"nobody has approved {plans.PLAN_ID} yet",
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
    "explain-table": _table,
    "explain-shape": _shapes,
    "workload-import": lambda w: workload_text.render_import(plans.imported(), w),
    "workload-show": lambda w: workload_text.render_show(plans.workload(), w),
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
    assert f" {_total(document, 'filesIn'):,} input files" in text
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


def test_a_plan_names_its_id_and_says_what_its_budgets_leave(said: Said) -> None:
    text = plan_text.render_plan(
        plans.single(), width=80, approval=APPROVAL, following=plans.FOLLOWING
    )
    assert plans.PLAN_ID in text.splitlines()[0]
    said(text[text.index("Budget ") : text.index("Trust ")])
    assert "--out plan.json" in text


def test_an_empty_plan_gives_every_reason_and_no_command_to_apply() -> None:
    document = plans.empty()
    text = " ".join(plan_text.render_plan(document, width=80).split())
    for item in document["evidence"]["rejected"]:
        assert item["what"] in text
    assert "layoutctl apply" not in text


def test_a_refused_migration_is_said_to_its_end_where_the_way_round_is() -> None:
    merges = replace(NO_WRITERS, merges=12, logged=7)
    migration = Migration((SpecField(1, "day"),), 1, False, 0, frozenset(), merges)
    (risk,) = risks(observations.lineitem().files, NO_DELETE_FILES, 2, migration, 0)
    document = plans.empty()
    for reason, in_full in ((reasons.MIGRATION_REFUSED, True), ("BelowFloor", False)):
        entry = {"what": "migrate to day(ts)", "reason": reason, "why": risk.text()}
        document["evidence"]["rejected"] = [entry]
        text = " ".join(plan_text.render_plan(document, width=80).split())
        assert (risk.text() in text) == in_full and "12 MERGEs" in text and "7 MERGEs" in text


def test_candidates_of_many_partitions_are_one_line_and_one_alone_names_its_own() -> None:
    document = plans.empty()
    document["evidence"]["rejected"] = [
        {"what": what, "partition": f"day=2026-10-{day:02d}", "reason": "BelowFloor",
         "why": f"saves 0.{day:02d} % of a year's reading",
         "parts": {"why": ["saves ", f"0.{day:02d}", " % of a year's reading"]}}
        for what, days in (("recluster by device", range(1, 17)), ("recluster by site", [3]))
        for day in days
    ]  # fmt: skip
    lines = plan_text.render_plan(document, width=100).splitlines()
    actions = [line.strip() for line in lines if "recluster by" in line]
    many, alone = actions
    assert "device" in many and " 16 " in many and "0.01 - 0.16 %" in many
    assert "site, day=2026-10-03" in alone and "0.03 %" in alone


def test_a_table_without_a_file_is_reported_as_empty(said: Said) -> None:
    document = plans.empty()
    document["evidence"]["snapshot"] = {"files": 0, "bytes": 0}
    said(plan_text.render_plan(document, width=80).splitlines()[-1])


def test_the_line_of_all_tables_is_their_sum(said: Said) -> None:
    lines = plans.table_lines()
    text = plan_text.render_lines(lines, 8, 100)
    size = iec(sum(line.rewrite_bytes for line in lines))
    actions = sum(line.actions for line in lines)
    assert f"4 tables, {actions} actions, {size} to rewrite." in text
    said(plan_text.render_lines([], 1, 100))


def test_files_that_a_query_reads_and_skips_are_all_files() -> None:
    text = _query(BETWEEN, False, 100)
    read, files = re.search(r"reads (\d+) of (\d+) files", text).groups()  # type: ignore[union-attr]
    skipped = re.findall(r"^  l_\S+ \S+ \?.*? {2,}(\d+) .*(?:bounds|match)$", text, re.MULTILINE)
    assert int(read) + sum(map(int, skipped)) == int(files) == 24
    section = text[text.index("READ BECAUSE") : text.index("\nFILE ")]
    assert sum(int(n) for n in re.findall(r" (\d+) {2,}[\d.]+ [KMG]iB$", section, re.M)) == int(
        read
    )
    assert text.count(".parquet") == min(int(read), explain_text.MOST_FILES)


def test_values_of_a_query_and_bounds_of_files_are_shown_only_when_asked_for() -> None:
    hidden, shown = _query(BETWEEN, False, 100), _query(BETWEEN, True, 100)
    for value in ("3000", "9000", "1970-01-31"):
        assert value not in hidden and value in shown
    assert "--show-literals" in hidden
    assert re.search(r"l_orderkey \d+ \.\. \d+", shown)


def _text(scan: dict[str, Any]) -> str:
    """What a document of a scan says in words."""
    skipped = (f"{item['condition']} {item['because']}" for item in scan["skipped"])
    return " ".join([scan["condition"], *skipped, *(item["because"] for item in scan["read"])])


def test_the_document_of_a_scan_counts_every_file_once_and_holds_no_value_unasked() -> None:
    hidden, shown = _scan(BETWEEN, False), _scan(BETWEEN, True)
    for scan in (hidden, shown):
        files = observations.lineitem(24, 4).files
        skipped, read = scan["skipped"], scan["read"]
        assert sum(item["files"] for item in skipped) == scan["filesSkipped"]
        assert sum(item["files"] for item in read) == scan["filesRead"] == len(scan["files"])
        assert scan["filesRead"] + scan["filesSkipped"] == len(files)
        assert sum(item["bytes"] for item in skipped + read) == files.total_bytes
        assert sum(item["bytes"] for item in scan["files"]) == sum(i["bytes"] for i in read)
    assert hidden["condition"] == "l_orderkey BETWEEN ? AND ? AND l_shipdate <= ?"
    assert shown["condition"] == "l_orderkey BETWEEN 3000 AND 9000 AND l_shipdate <= 1970-01-31"
    assert all("bounds" not in file for file in hidden["files"])
    for value in ("3000", "9000", "1970-01-31"):
        assert value not in _text(hidden) and value in _text(shown)
    assert [bounds["column"] for bounds in shown["files"][0]["bounds"]] == [
        "l_orderkey", "l_shipdate",
    ]  # fmt: skip


def test_a_document_has_each_candidate_with_its_constant_and_raw_bytes() -> None:
    seen = observations.lineitem(24, 4)
    found = explain.candidates(seen.files, plans.advice(seen))
    (chosen,), (considered,) = found["chosen"], found["considered"]
    assert chosen == {
        "label": plans.advice(seen).actions[0].predicted.label, "type": "Recluster",
        "files": 2, "costBytes": 72 << 20, "savingBytes": 3 << 29,
        "savingLowBytes": round(1.1 * plans.GIB), "estimate": "sampled",
        "message": str(plans.advice(seen).actions[0].predicted.reason),
    }  # fmt: skip
    assert (considered["reason"], considered["files"]) == ("BelowCost", 1)
    action = plans.advice(seen).actions[0]
    unknown = replace(action, predicted=replace(action.predicted, saving=whole(float("nan"))))
    (chosen,) = explain.candidates(seen.files, replace(plans.advice(seen), actions=(unknown,)))[
        "chosen"
    ]
    assert chosen["savingBytes"] is None


def test_the_decision_on_a_file_is_its_action_its_reasons_or_that_nothing_proposes_it() -> None:
    seen = observations.lineitem(24, 4)
    decisions = [
        explain.file_document(seen.files, plans.advice(seen), f"/{index}.parquet")["decision"]
        for index in (0, 2, 9)
    ]
    assert [decision["rewritten"] for decision in decisions] == [True, False, False]
    assert decisions[0]["action"] == plans.advice(seen).actions[0].predicted.label
    assert [why["reason"] for why in decisions[1]["reasons"]] == ["BelowCost"]
    assert decisions[2]["reasons"] == []


@pytest.mark.parametrize("width", [60, 80, 100])
def test_a_long_path_stays_whole_to_be_copied(width: int) -> None:
    folder = "s3://lake/warehouse/sales.db/lineitem/data/ingested_at_month=2020-01/" + "x" * 60
    assert _file(9, width, folder).splitlines()[0] == f"{folder}/9.parquet"
    scan = _scan(BETWEEN, False)
    name = "00007-12-" + "0" * 100 + ".parquet"
    scan["files"][0]["path"] = f"{folder}/{name}"
    text = explain_text.render_scan("t", scan, 24, width)
    assert f"  {name}" in text.splitlines()


def test_a_shapes_median_query_opens_the_median_number_of_files_by_weight() -> None:
    seen = observations.lineitem()
    batch = _recorded(seen, RECORDED[0])
    demands = [
        explain_query.demand_of(fragment, seen)
        for condition in RECORDED[0]
        for fragment in explain_query.fragments_of_query(
            seen, f"SELECT l_comment FROM sales.lineitem WHERE {condition}", "spark"
        )
    ]
    opened = [int(explain_scan(seen.files, d.predicate, d.literals).read.sum()) for d in demands]
    assert len(set(opened)) > 5
    median = explain_query.median_query(seen, batch, False)
    assert median["filesRead"] == sorted(opened)[4]
    heavy = int(np.argmax(opened))
    weighted = replace(batch, weight=np.where(np.arange(10) == heavy, 100.0, 1.0))
    assert explain_query.median_query(seen, weighted, False)["filesRead"] == max(opened)
    assert "197" not in _text({"condition": "", **median})


def test_of_very_many_queries_the_median_is_found_among_a_few_of_all_times() -> None:
    seen = observations.lineitem(24, 4)
    batch = _recorded(seen, ["l_orderkey < 1"] + ["l_orderkey < 24000"] * 3 * MOST_QUERIES)
    assert explain_query.median_query(seen, batch, False)["filesRead"] == 24
    unlimited = explain_query.median_query(seen, _recorded(seen, ["l_orderkey IS NOT NULL"]), False)
    assert (unlimited["filesRead"], unlimited["skipped"]) == (24, [])


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


def test_status_has_the_share_of_deleted_rows_where_a_table_has_deletes() -> None:
    rows = plans.status_rows()
    deletes = {"storedRows": 200, "deletedRows": {"atLeast": 0, "estimate": 24, "atMost": 200}}
    exact = {"storedRows": 200, "deletedRows": {"atLeast": 24, "estimate": 24, "atMost": 24}}
    rows[0]["deletes"], rows[1]["deletes"] = deletes, exact
    for width in (80, terminal.UNLIMITED):
        text = status.render_status(rows, plans.NOW, width)
        assert "DELETED ROWS" in text and "0 to 100 %" in text
        assert text.count("12 %") == 1
    assert "DELETED" not in status.render_status(plans.status_rows(), plans.NOW, 80)


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


@settings(max_examples=examples(100))
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
    from reconciler.cli.apply_result import report_list

    error = {"table": ["s", "b"], "error": "no column"}
    body = report_list([{"kind": "ApplyReport", "table": "rec.s.a"}], [error])
    assert (body["apiVersion"], body["kind"]) == (
        "layout.lakehouse.dev/v1alpha1", "ApplyReportList",
    )  # fmt: skip
    assert [item["table"] for item in body["items"]] == ["rec.s.a"]
    assert body["errors"] == [error]


@pytest.mark.parametrize(
    ("limits", "spent", "figures"),
    [
        ({"max_rewrite_bytes": 10 << 20}, (8 << 20, 0.0), ("58.9 MiB", "2.0 of 10.0 MiB")),
        ({"max_rewrite_bytes": 1 << 30}, (1023 << 20, 0.0), ("58.9 MiB", "1.0 MiB of 1.0 GiB")),
        ({"max_rewrite_bytes": 10 << 20}, (99 << 20, 0.0), ("58.9 MiB", "0 B of 10.0 MiB")),
        ({"max_cpu_seconds": 60.0}, (0, 20.0), ("6.0 CPU s", "40 of 60 CPU s")),
        ({"max_rewrite_bytes": 100 << 20, "max_cpu_seconds": 60.0}, (0, 20.0),
         ("58.9 MiB", "6.0 CPU s", "100.0 of 100.0 MiB", "40 of 60 CPU s")),
    ],
)  # fmt: skip
def test_a_budget_says_what_is_needed_and_what_is_left(
    limits: dict[str, Any], spent: tuple[int, float], figures: tuple[str, ...], said: Said
) -> None:
    budget = Budget("daily", per_seconds=86_400, **limits)
    state = budget_state(budget, (Spent(plans.NOW, *spent),), plans.NOW)
    line = budget_line(state, round(58.9 * (1 << 20)), 6.0)
    assert all(figure in line for figure in figures)
    said(line)


@pytest.mark.parametrize(
    ("limits", "held", "figures"),
    [
        ({"max_cpu_seconds": 60}, (3 << 20, 20.0), ["20 CPU s"]),
        ({"max_rewrite_bytes": 1 << 30}, (3 << 20, 20.0), ["3.0 MiB"]),
        ({"max_rewrite_bytes": 1 << 30, "max_cpu_seconds": 60}, (3 << 20, 20.0),
         ["3.0 MiB", "20 CPU s"]),
        ({"max_rewrite_bytes": 1 << 30}, (0, 20.0), []),
        ({"max_cpu_seconds": 60}, (3 << 20, 0.0), []),
    ],
)  # fmt: skip
def test_a_budget_says_what_a_run_without_an_end_holds_in_the_units_that_it_limits(
    limits: dict[str, int], held: tuple[int, float], figures: list[str]
) -> None:
    budget = Budget("daily", per_seconds=86_400, **limits)
    lines = [
        budget_line(budget_state(budget, (Spent(plans.NOW, *held, kind),), plans.NOW), 1 << 20, 6.0)
        for kind in (True, False)
    ]
    more = lines[0].removeprefix(lines[1])
    assert [figure for figure in ("3.0 MiB", "20 CPU s") if figure in more] == figures
    assert bool(more) is bool(figures)


def test_what_was_carried_out_is_marked_and_counts_in_no_total() -> None:
    whole, part = plans.single(), plans.in_part()
    text = plan_text.render_plan(part)
    assert "2 of 4" in text
    for item in part["done"]:
        assert f"done: {item['predicted']['label'][:30]}" in text
    left = sum(item["predicted"]["bytesIn"] for item in part["actions"])
    assert left < sum(item["predicted"].get("bytesIn", 0) for item in whole["actions"])
    assert f"Cost   {iec(left)} rewritten" in text
    inputs = sum(len(item["inputs"]) for item in part["actions"])
    assert f" {inputs} input files" in text
