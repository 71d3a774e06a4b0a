"""Markdown of plans: found and replaced by its first line, never too long, nothing cut unsaid."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from documents import plan, shape

from reconciler.errors import UserError
from reconciler.render.against import Against, read_base
from reconciler.render.markdown import MAX_CHARACTERS, render_plan, render_plans
from tests.said import Said


def cells(text: str, first: str) -> list[str]:
    """The other cells of the table's row that starts with `first`."""
    (line,) = [line for line in text.splitlines() if line.startswith(f"| {first} |")]
    return [cell.strip() for cell in line.split("|")[2:-1]]


def test_it_starts_with_the_marker_and_a_headline(said: Said) -> None:
    first, second = render_plan({**plan(), "digest": "sha256:ab"}).split("\n\n")[:2]
    _, marker, table, plan_id, digest, _ = first.split()
    assert (marker, table) == ("layoutctl:plan", "warehouse.sales.lineitem")
    assert plan_id.startswith("p-") and digest == "sha256:ab"
    said(second)


def test_who_gets_slower_stands_outside_the_fold() -> None:
    text = render_plan(plan())
    visible = text.split("<details>")[0]
    assert cells(visible, "`l_c1 BETWEEN ? AND ?`") == [
        "12", "1.0 GiB", "2.0 GiB", "55 -> 3", "worse",
    ]  # fmt: skip
    assert "l_c0" not in visible


def test_storage_interval_cost_and_coverage_are_shown(said: Said) -> None:
    text = render_plan(plan())
    for figures in ("116.0 GiB", "10.0 TiB - 13.0 TiB", " 4.2 ", "5.0 h", "91 %", "38 skipped"):
        assert figures in text
    assert "candidate 0" in text
    assert "`spec.deletes.compaction`" in text
    said(text)


def test_a_partly_applied_plan_says_how_much_is_done(said: Said) -> None:
    document = plan(actions=3)
    done, left = document["actions"][:1], document["actions"][1:]
    text = render_plan({**document, "done": done, "actions": left})
    said(next(line for line in text.splitlines() if line.startswith("**Partly")))


def test_an_empty_plan_says_why(said: Said) -> None:
    text = render_plan(plan(actions=0))
    assert "candidate 0" in text
    said(text)


@pytest.mark.parametrize("rows", [50, 700, 5000])
def test_it_stays_within_the_limit_and_counts_what_it_cut(rows: int) -> None:
    document = plan(actions=rows, shapes=rows, rejected=rows)
    text = render_plan(document)
    assert len(text) <= MAX_CHARACTERS
    shown = len(re.findall(r"^\| a\d+ \|", text, re.MULTILINE))
    cut = re.search(r"([\d,]+) more rows? cut\.", text)
    assert shown + (int(cut.group(1).replace(",", "")) if cut else 0) == rows
    assert text.count("<details>") == text.count("</details>")


def test_very_long_names_do_not_break_the_limit() -> None:
    document = plan(actions=300, shapes=300, rejected=300)
    for item in document["evidence"]["rejected"]:
        item["why"] = "x" * 5_000
    for item in document["evidence"]["shapes"]:
        item["text"] = "y" * 5_000
    assert len(render_plan(document)) <= MAX_CHARACTERS


def test_names_cannot_end_the_comment_or_the_table() -> None:
    document = plan(table=("sales", "odd-->|name"))
    document["evidence"]["shapes"] = [shape("a = `b` | c", worse=True)]
    lines = render_plan(document).splitlines()
    assert lines[0].count("-->") == 1
    assert lines[0].endswith("-->")
    row = next(line for line in lines if "worse" in line)
    assert "`` a = `b` \\| c ``" in row
    assert len(re.findall(r"(?<!\\)\|", row)) == 7


def test_many_tables_come_largest_first_and_converged_ones_as_a_count(said: Said) -> None:
    small = plan(actions=1, table=("sales", "small"))
    large = plan(actions=5, table=("sales", "large"))
    done = plan(actions=0, table=("sales", "done"))
    text = render_plans([small, done, large], failed=[("w.x", "missing")])
    said(next(line for line in text.splitlines() if line.startswith("### ")))
    assert text.index("warehouse.sales.large") < text.index("warehouse.sales.small")
    assert cells(text, "w.x") == ["missing"]
    assert "warehouse.sales.done" not in text


def test_many_tables_stay_within_the_limit_and_are_counted() -> None:
    documents = [plan(shapes=40, rejected=40, table=("s", f"t{n:04d}")) for n in range(2_000)]
    text = render_plans(documents)
    assert len(text) <= MAX_CHARACTERS
    shown = len(re.findall(r"^\| warehouse\.s\.t", text, re.MULTILINE))
    cut = re.search(r"([\d,]+) more rows cut\.", text)
    assert cut is not None
    assert shown + int(cut.group(1).replace(",", "")) == 2_000


def test_every_plan_of_many_tables_is_named_where_details_are_cut() -> None:
    """Whoever reviews a pull request approves only plans that its comment names."""
    documents = [
        {**plan(shapes=40, rejected=40, table=("s", f"t{n:03d}")), "planId": f"p-{n:020d}"}
        for n in range(300)
    ]
    text = render_plans(documents)
    assert text.count("<details>") < len(documents)
    assert len(text) <= MAX_CHARACTERS
    assert all(document["planId"] in text for document in documents)


def test_one_document_among_many_is_the_plain_rendering() -> None:
    assert render_plans([plan()]) == render_plan(plan())


def test_budgets_and_digest_are_shown_outside_the_fold(said: Said) -> None:
    digest = "sha256:" + "ab" * 32
    text = render_plan({**plan(), "digest": digest}, "Approval: Manual, not approved.")
    visible = re.sub(r"<details>.*?</details>", "", text, flags=re.DOTALL)
    (budget,) = [line for line in visible.splitlines() if "**Budget** daily" in line]
    assert "128.0 MiB" in budget and "500.0 of 500.0 GiB" in budget
    (identity,) = [line for line in visible.splitlines() if f"digest `{digest}`" in line]
    assert "`p-3f9a1c0b77de4c21a0be`" in identity and "Manual" in identity
    said(budget)
    said(identity)


def test_every_plan_of_many_tables_names_its_digest_budgets_and_approval() -> None:
    documents = [
        {**plan(table=("sales", name)), "planId": f"p-{number:020d}", "digest": f"sha256:{number}"}
        for number, name in enumerate(("a", "b"))
    ]
    text = render_plans(documents, approvals=["Approval: first.", "Approval: second."])
    assert text.startswith("<!-- layoutctl:plan tables=2 -->\n")
    for digest, approval in (("sha256:0", "first."), ("sha256:1", "second.")):
        (line,) = [line for line in text.splitlines() if f"`{digest}`" in line]
        assert line.endswith(approval)
    assert text.count("**Budget** daily") == 2


def test_many_budgets_and_actions_of_many_tables_stay_within_the_limit() -> None:
    document = plan(actions=40, table=("s", "n" * 5_000))
    for number, item in enumerate(document["actions"]):
        item["predicted"]["label"] = f"{number} " + "<&|" * 400
    document["evidence"]["budgets"] = ["b" * 400 for _ in range(500)]
    for text in (render_plan(document), render_plans([document] * 400)):
        assert text.startswith("<!-- layoutctl:plan ")
        assert len(text) <= MAX_CHARACTERS
        assert "more" in text and "cut." in text


def test_actions_whose_names_hold_commas_are_set_apart_by_semicolons() -> None:
    document = plan(actions=2)
    labels = ("recluster by Hilbert(a, b), day=2026-10-01", "cluster by c")
    for item, label in zip(document["actions"], labels, strict=True):
        item["predicted"]["label"] = label
    text = render_plans([document, plan(actions=0, table=("s", "u"))])
    assert f"| {'; '.join(labels)} |" in text


def numbered(name: str, number: int, actions: int = 2) -> dict[str, Any]:
    return {**plan(actions=actions, table=("sales", name)), "planId": f"p-{number:020d}"}


def test_totals_over_all_tables_stand_before_them() -> None:
    text = render_plans([numbered("a", 1, 2), numbered("b", 2, 3), numbered("done", 3, 0)])
    assert cells(text, "2 of 3") == ["20 -> 10", "320.0 MiB", "60 CPU s", "88.0 TiB -> 22.0 TiB"]
    assert text.index("| 2 of 3 |") < text.index("| warehouse.sales.b |")


def test_totals_say_for_how_many_tables_reads_are_known(said: Said) -> None:
    silent = numbered("b", 2)
    silent["evidence"]["totals"] = []
    text = render_plans([numbered("a", 1), silent])
    said(cells(text, "2 of 2")[-1])


def ids_to_copy(text: str) -> list[str]:
    (block,) = re.findall(r"^```yaml\n(.*?)\n```$", text, re.DOTALL | re.MULTILINE)
    return list(yaml.safe_load(block)["approvedPlans"])


def test_the_ids_stand_in_one_block_that_a_policy_takes() -> None:
    documents = [numbered("a", 1), numbered("b", 2, 5), numbered("done", 3, 0)]
    assert ids_to_copy(render_plans(documents)) == [f"p-{2:020d}", f"p-{1:020d}"]
    assert ids_to_copy(render_plan(documents[0])) == [f"p-{1:020d}"]
    assert "```" not in render_plan(documents[2])


@pytest.mark.parametrize("many", [False, True])
def test_no_backtick_is_escaped_and_paired_ones_are_code(many: bool) -> None:
    document = plan(table=("sales", "o`dd"), rejected=1)
    document["evidence"]["rejected"][0]["why"] = "see `layoutctl explain`, or <b> and a | b"
    documents = [document, numbered("b", 2)][: 1 + many]
    text = render_plans(documents, [("x", "say `plan --refresh`")] * many, ["say `x_y`."])
    assert "\\`" not in text
    assert "`layoutctl explain`" in text and "say `x_y`." in text and "&lt;b&gt;" in text
    assert "o&#96;dd" in text


def test_a_summary_has_no_escapes_of_markdown() -> None:
    text = render_plans([numbered("line_item", 1), numbered("b<b", 2)])
    assert "<summary>warehouse.sales.line_item: " in text
    assert "<summary>warehouse.sales.b&lt;b: " in text


def compared(base: list[dict[str, Any]], head: list[dict[str, Any]], path: Path) -> Against:
    path.write_text(json.dumps({
        "kind": "LayoutPlanList", "items": base,
        "errors": [{"table": ["sales", "broken"], "error": "no access"}],
    }))  # fmt: skip
    return read_base(path).beside(head, [])


def test_each_table_says_what_the_change_does_against_its_base(tmp_path: Path, said: Said) -> None:
    moved = {**numbered("same", 11), "createdAt": "2026-11-19T10:00:00Z", "policy": "base/x.yaml"}
    moved["actions"][0]["predicted"]["bytesIn"] += 1
    base = [moved, numbered("changed", 12, 1), numbered("new", 13, 0), numbered("gone", 14, 4),
            numbered("elsewhere", 15, 1)]  # fmt: skip
    head = [numbered("same", 1), numbered("changed", 2), numbered("new", 3), numbered("gone", 4, 0),
            numbered("broken", 5)]  # fmt: skip
    text = render_plans(head, against=compared(base, head, tmp_path / "base.json"))
    for name, change in (
        ("same", "same"), ("changed", "changed"), ("new", "new"), ("broken", "unknown"),
    ):  # fmt: skip
        assert f"| warehouse.sales.{name} | {change} |" in text
    said(next(line for line in text.splitlines() if "1 unknown" in line))
    assert cells(text, "warehouse.sales.gone")[0] == "256.0 MiB"
    assert cells(text, "warehouse.sales.elsewhere")[0] == "64.0 MiB"


def test_one_plan_against_its_base_says_so_and_names_what_is_gone_elsewhere(
    tmp_path: Path, said: Said
) -> None:
    head, file = [numbered("a", 1)], tmp_path / "base.json"
    for base in (head, [], [numbered("b", 2)]):
        text = render_plans(head, against=compared(base, head, file))
        said("\n".join(line for line in text.splitlines() if "Against the base" in line))
    assert cells(text, "warehouse.sales.b")[0] == "128.0 MiB"


@pytest.mark.parametrize(
    "text",
    ["", "[]", "7", "{}", '{"kind": "Pod"}', '{"kind": "LayoutPlanList", "items": 3}',
     '{"kind": "LayoutPlan", "catalog": 1, "table": [], "actions": []}', "[" * 100_000,
     '{"kind": "LayoutPlan", "catalog": "c", "table": [1], "actions": []}',
     '{"kind": "LayoutPlan", "catalog": "c", "table": ["t"], "actions": [{"predicted": 1}]}'],
)  # fmt: skip
def test_a_base_that_is_not_a_plan_is_refused_by_name(
    text: str, tmp_path: Path, said: Said
) -> None:
    file = tmp_path / "base.json"
    file.write_text(text)
    with pytest.raises(UserError) as refused:
        read_base(file)
    said(refused.value)
    with pytest.raises(UserError) as refused:
        read_base(tmp_path / "none.json")
    said(refused.value)
